"""A league in pictures: the skill of every normalizer on every task, and near against far."""

from collections.abc import Collection, Mapping, Sequence

import numpy as np
from matplotlib.colors import Normalize
from matplotlib.figure import Figure

from icl_lab.figures.axes import finish, laid_out, sheet
from icl_lab.figures.base import MAP, outline, write_numbers
from icl_lab.figures.scatter import Span, cross
from icl_lab.figures.styles import styles

Cell = tuple[str, str]  # normalizer, task

SKILL = Normalize(0.0, 1.0)
ABREAST = 6  # tasks of a panel in a row of panels


def matrix(
    panels: Mapping[str, Mapping[Cell, float]],
    rules: Sequence[str],
    tasks: Sequence[str],
    *,
    title: str,
    unclear: Mapping[str, Collection[Cell]],
) -> Figure:
    """Draw a panel for each part: normalizers down, tasks across, skill as colour from 0 to 1 and as number.

    Cells that are missing are crossed; those in ``unclear`` (inconclusive against the baseline) are hatched. Panels of
    many tasks stand above one another.
    """
    down = len(panels) if len(tasks) > ABREAST else 1
    across = 1 if down > 1 else len(panels)
    width, height = 0.62 * len(tasks) + 0.5, 0.3 * len(rules) + 0.4
    figure = sheet(across * width + 2.6, down * height + 2, title)
    places = laid_out(figure, len(panels), across, sharex=True, sharey=True)
    for axes, (part, cells) in zip(places, panels.items(), strict=True):
        values = np.array([[cells.get((rule, task), np.nan) for task in tasks] for rule in rules])
        image = axes.imshow(values, cmap=MAP, norm=SKILL, aspect="auto")
        write_numbers(axes, values, SKILL, 6.5, "{:.2f}".format)
        for (y, x), value in np.ndenumerate(values):
            if np.isnan(value):
                outline(axes, y, x, linewidth=0, hatch="xxxx", edgecolor="0.6")
            elif (rules[y], tasks[x]) in unclear.get(part, ()):
                outline(axes, y, x, linewidth=0, hatch="///", edgecolor="0.75", alpha=0.5)
        axes.set_title(part, fontsize=9)
        axes.set_xticks(range(len(tasks)), tasks, rotation=60, ha="right", rotation_mode="anchor", fontsize=7)
        axes.set_yticks(range(len(rules)), rules, fontsize=7)
        axes.tick_params(length=0)
    bar = figure.colorbar(image, ax=places, pad=0.01, aspect=30)
    bar.set_label("skill: 0 the best trivial reference, 1 the best of all", fontsize=7)
    bar.ax.tick_params(labelsize=7)
    return figure


def near_and_far(points: Mapping[str, tuple[Span, Span]], *, title: str) -> Figure:
    """Draw each normalizer's mean rank in training conditions against that beyond them, with intervals; 1 is best."""
    figure = sheet(8.6, 5.4, title)
    axes = figure.subplots()
    looks = styles(points)
    for rule, (near, far) in points.items():
        cross(axes, near, far, looks[rule], rule)
    axes.set(xlabel="mean rank in training conditions", ylabel="mean rank beyond them")
    axes.invert_xaxis()
    axes.invert_yaxis()  # the better corner is above on the right
    finish(axes, "")
    figure.legend(loc="outside right upper", fontsize=8, frameon=False)  # names at the points would overlap
    return figure
