"""A league in pictures: the skill of every normalizer on every task, and near against far."""

from collections.abc import Collection, Mapping, Sequence

import numpy as np
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from icl_lab.figures.axes import headline
from icl_lab.figures.base import MAP
from icl_lab.figures.scatter import Span, cross
from icl_lab.figures.styles import styles

Cell = tuple[str, str]  # normalizer, task

ABREAST = 6  # tasks of a panel that stands beside another


def matrix(
    panels: Mapping[str, Mapping[Cell, float]],
    rules: Sequence[str],
    tasks: Sequence[str],
    *,
    title: str,
    unclear: Mapping[str, Collection[Cell]],
) -> Figure:
    """Draws a panel for each part: normalizers down, tasks across, skill as colour from 0 to 1 and as number.

    Cells that are missing are crossed; those in ``unclear`` (not told from the baseline) are hatched. Panels of many
    tasks stand above one another.
    """
    down = len(panels) if len(tasks) > ABREAST else 1
    across = 1 if down > 1 else len(panels)
    width, height = 0.62 * len(tasks) + 0.5, 0.3 * len(rules) + 0.4
    figure = Figure(figsize=(across * width + 2.6, down * height + 2), layout="constrained", dpi=150)
    headline(figure, title)
    places = figure.subplots(down, across, squeeze=False, sharex=True, sharey=True).flatten()
    for axes, (part, cells) in zip(places, panels.items(), strict=True):
        values = np.array([[cells.get((rule, task), np.nan) for task in tasks] for rule in rules])
        image = axes.imshow(values, cmap=MAP, vmin=0, vmax=1, aspect="auto")
        for (y, x), value in np.ndenumerate(values):
            cell = (rules[y], tasks[x])
            corner = (x - 0.5, y - 0.5)
            if np.isnan(value):
                axes.add_patch(Rectangle(corner, 1, 1, fill=False, linewidth=0, hatch="xxxx", edgecolor="0.6"))
                continue
            axes.text(x, y, f"{value:.2f}", ha="center", va="center", fontsize=6.5,
                      color="black" if value > 0.6 else "white")  # fmt: skip
            if cell in unclear.get(part, ()):
                patch = Rectangle(corner, 1, 1, fill=False, linewidth=0, hatch="///", edgecolor="0.75", alpha=0.5)
                axes.add_patch(patch)
        axes.set_title(part, fontsize=9)
        axes.set_xticks(range(len(tasks)), tasks, rotation=60, ha="right", rotation_mode="anchor", fontsize=7)
        axes.set_yticks(range(len(rules)), rules, fontsize=7)
        axes.tick_params(length=0)
    bar = figure.colorbar(image, ax=list(places), pad=0.01, aspect=30)
    bar.set_label("skill: 0 the best trivial reference, 1 the best of all", fontsize=7)
    bar.ax.tick_params(labelsize=7)
    return figure


def near_and_far(points: Mapping[str, tuple[Span, Span]], *, title: str) -> Figure:
    """Draw each normalizer's mean rank in training conditions against that beyond them, with intervals; 1 is best."""
    figure = Figure(figsize=(8.6, 5.4), layout="constrained", dpi=150)
    axes = figure.subplots()
    looks = styles(points)
    for rule, (near, far) in points.items():
        cross(axes, near, far, looks[rule], rule)
    axes.set(xlabel="mean rank in training conditions", ylabel="mean rank beyond them")
    axes.invert_xaxis()
    axes.invert_yaxis()  # the better corner is above on the right
    axes.grid(alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)
    figure.legend(loc="outside right upper", fontsize=8, frameon=False)  # names beside the points would overlap
    headline(figure, title)
    return figure
