"""Numbers along one axis: training, and rules beside their references."""

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.figure import Figure

from icl_lab.figures.base import DASHES, INKS, NAMES


def learning_curve(histories: Mapping[str, Sequence[Mapping[str, float]]], *, title: str, label: str) -> Figure:
    """Draws the training loss, on a logarithmic scale, and the length of the prompts below it."""
    figure = Figure(figsize=(6, 4), layout="constrained", dpi=150)
    loss, length = figure.subplots(2, sharex=True, height_ratios=(4, 1))
    for name, rows in histories.items():
        steps = [row["step"] for row in rows]
        loss.plot(steps, [row["loss"] for row in rows], linewidth=1, label=name)
        length.plot(steps, [row["length"] for row in rows], linewidth=1)
    loss.set(yscale="log", ylabel=label, title=title)
    loss.grid(alpha=0.3)
    if len(histories) > 1:
        loss.legend(frameon=False)
    length.set(xlabel="step", ylabel="examples")
    length.grid(alpha=0.3)
    return figure


def rivals(
    where: Sequence[float],
    rules: Mapping[str, Sequence[Sequence[float]]],
    references: Mapping[str, Sequence[float]],
    *,
    axis: str,
    title: str,
    label: str,
    log: bool,
) -> Figure:
    """Draws each rule's mean over its seeds along one axis, every seed as a dot, the references dashed and grey.

    ``rules`` holds, for each rule, the values of the seeds at every place of ``where``.
    """
    figure = Figure(figsize=(8, 4.8), layout="constrained", dpi=150)
    axes = figure.subplots()
    for number, (rule, values) in enumerate(rules.items()):
        hue, dash = INKS[number % len(INKS)], DASHES[number // len(INKS) % len(DASHES)]
        axes.plot(where, [float(np.mean(seeds)) for seeds in values], dash, color=hue, linewidth=1.6, label=rule)
        for place, seeds in zip(where, values, strict=True):
            if len(seeds) > 1:
                axes.plot([place] * len(seeds), seeds, ".", color=hue, markersize=3)
    floor = min((v for values in rules.values() for seeds in values for v in seeds if v > 0), default=1e-3) / 3
    for name, line in references.items():
        # A reference far below every rule (least squares: rounding) would squeeze what there is to see.
        if not log or max(line) > floor:
            axes.plot(where, line, color="0.55", linewidth=1, linestyle=(0, (4, 2)))
            axes.annotate(name.removeprefix("reference:"), (where[-1], line[-1]), (4, 0), textcoords="offset points",
                          fontsize=7, color="0.4", va="center")  # fmt: skip
    if log:
        axes.set(yscale="log", ylim=(floor, None))
    room = 0.12 * (where[-1] - where[0])  # for the names of the references
    axes.set(xlabel=NAMES.get(axis, axis), ylabel=label, title=title, xlim=(where[0] - room / 4, where[-1] + room))
    axes.grid(alpha=0.3)
    axes.legend(frameon=False, fontsize=7, loc="center left", bbox_to_anchor=(1.0, 0.5))
    return figure
