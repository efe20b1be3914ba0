"""Numbers along one axis: training, and rules beside their references."""

from collections.abc import Mapping, Sequence
from itertools import pairwise

import numpy as np
from matplotlib.figure import Figure

from icl_lab.figures.base import DASHES, INKS, NAMES, finish


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


def learned(history: Sequence[Mapping[str, float]], *, title: str) -> Figure | None:
    """Draws each learned number of the rules against the step, a panel a name, a colour a layer; None without any."""
    names = list(dict.fromkeys(key for row in history for key in row if " " in key))
    kinds = list(dict.fromkeys(name.split(" ")[0] for name in names))
    if not kinds:
        return None
    figure = Figure(figsize=(3.4 * len(kinds) + 0.8, 3.0), layout="constrained", dpi=150)
    for axes, kind in zip(figure.subplots(1, len(kinds), squeeze=False)[0], kinds, strict=True):
        for name in [name for name in names if name.split(" ")[0] == kind]:
            layer, head = (int(number) for number in name.split(" ")[1].split("."))
            known = [(row["step"], row[name]) for row in history if name in row]
            label = f"layer {layer}" if head == 0 else None
            axes.plot(*zip(*known, strict=True), color=INKS[layer % len(INKS)], linewidth=1, label=label)
        axes.set(xlabel="step", ylabel=kind)
        axes.grid(alpha=0.3)
    figure.axes[-1].legend(frameon=False, fontsize=7)
    figure.suptitle(title, fontsize=10)
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
    """Draws each rule's mean over its seeds along one axis, every seed as a dot in a band.

    References are dashed and grey. ``rules`` holds, for each rule, the values of the seeds at every place of ``where``.
    """
    figure = Figure(figsize=(8, 4.8), layout="constrained", dpi=150)
    axes = figure.subplots()
    for number, (rule, values) in enumerate(rules.items()):
        hue, dash = INKS[number % len(INKS)], DASHES[number // len(INKS) % len(DASHES)]
        means = [float(np.mean(seeds)) for seeds in values]
        axes.plot(where, means, linestyle=dash, color=hue, linewidth=1.6, label=rule)
        axes.fill_between(where, [min(v) for v in values], [max(v) for v in values], color=hue, alpha=0.12, linewidth=0)
        for place, seeds in zip(where, values, strict=True):
            if len(seeds) > 1:
                axes.plot([place] * len(seeds), seeds, ".", color=hue, markersize=3)
    floor = min((v for values in rules.values() for seeds in values for v in seeds if v > 0), default=1e-3) / 3
    # A reference far below every rule (least squares: rounding) would squeeze what there is to see.
    drawn = {name: line for name, line in references.items() if not log or max(line) > floor}
    for line in drawn.values():
        axes.plot(where, line, color="0.55", linewidth=1, linestyle=(0, (4, 2)))
    for height, words in _together({name: line[-1] for name, line in drawn.items()}, log):
        axes.annotate(
            words, (where[-1], height), (4, 0), textcoords="offset points", fontsize=7, color="0.4", va="center"
        )
    if log:
        axes.set(yscale="log", ylim=(floor, None))
    axes.set(xlabel=NAMES.get(axis, axis), ylabel=label, title=title)
    # The names of the references want room on the right.
    if _geometric(where):
        finish(axes, "x")
        room = (where[-1] / where[0]) ** 0.12
        axes.set_xlim(where[0] / room**0.25, where[-1] * room)
    else:
        room = 0.12 * (where[-1] - where[0])
        axes.set_xlim(where[0] - room / 4, where[-1] + room)
    axes.grid(alpha=0.3)
    axes.legend(frameon=False, fontsize=7, loc="center left", bbox_to_anchor=(1.0, 0.5))
    return figure


def _geometric(where: Sequence[float]) -> bool:
    """Whether each place is the same multiple of the one before."""
    steps = [b / a for a, b in pairwise(where)]
    return len(steps) > 2 and max(steps) < 1.01 * min(steps)


def disturbance(
    factors: Sequence[float],
    panels: Mapping[str, tuple[Mapping[str, Sequence[float]], Mapping[str, Sequence[float]], bool]],
    *,
    title: str,
) -> Figure:
    """Draws what a deviant does: a panel for each metric, its factor across, rules in ink, references dashed and grey.

    ``panels`` holds, for each metric, the rules' values at every factor, the references' and whether they span decades.
    """
    figure = Figure(figsize=(4.2 * len(panels) + 1.6, 4.0), layout="constrained", dpi=150)
    figure.suptitle(title, fontsize=10)
    places = figure.subplots(1, len(panels), squeeze=False)[0]
    for axes, (metric, (rules, references, log)) in zip(places, panels.items(), strict=True):
        for number, (rule, values) in enumerate(rules.items()):
            hue, dash = INKS[number % len(INKS)], DASHES[number // len(INKS) % len(DASHES)]
            axes.plot(factors, values, linestyle=dash, marker="o", color=hue, linewidth=1.5, markersize=3, label=rule)
        shown = [v for values in rules.values() for v in values if v > 0]
        floor = min(shown, default=1e-3) / 3
        drawn = {name: values for name, values in references.items() if not log or max(values) > floor}
        for values in drawn.values():
            axes.plot(factors, values, color="0.55", linewidth=1, linestyle=(0, (4, 2)), zorder=1)
        for height, words in _together({name: values[-1] for name, values in drawn.items()}, log):
            axes.annotate(words, (factors[-1], height), (5, 0), textcoords="offset points",
                          fontsize=6.5, color="0.4", va="center")  # fmt: skip
        axes.set(xscale="log", xlabel="factor of the deviant number", ylabel=metric)
        axes.set_xlim(factors[0] * 0.85, factors[-1] * (factors[-1] / factors[0]) ** 0.4)
        if log:
            axes.set(yscale="log", ylim=(floor, None))
        axes.grid(alpha=0.3)
    places[-1].legend(frameon=False, fontsize=7, loc="center left", bbox_to_anchor=(1.0, 0.5))
    return figure


def _together(ends: Mapping[str, float], log: bool) -> list[tuple[float, str]]:
    """Joins the names of lines that end at about the same height, so that none is written over another."""
    heights = {name: float(np.log10(max(value, 1e-12))) if log else value for name, value in ends.items()}
    near = 0.05 * (max(heights.values(), default=0.0) - min(heights.values(), default=0.0))
    groups: list[list[str]] = []
    for name in sorted(heights, key=lambda name: heights[name]):
        if groups and heights[name] - heights[groups[-1][0]] <= near:
            groups[-1].append(name)
        else:
            groups.append([name])
    words = [[name.removeprefix("reference:") for name in group] for group in groups]
    return [
        (ends[group[0]], "\n".join(names) if len(names) < 3 else f"{names[0]}\nand {len(names) - 1} more")
        for group, names in zip(groups, words, strict=True)
    ]


def laws(
    n: Sequence[float], learned: Mapping[str, Sequence[float]], fitted: Mapping[str, Sequence[float]], *, title: str
) -> Figure:
    """Draws learned numbers over n as dots, and the laws fitted to the first of them as lines."""
    figure = Figure(figsize=(6.4, 4.2), layout="constrained", dpi=150)
    axes = figure.subplots()
    for name, values in learned.items():
        axes.plot(n, values, ".", markersize=4, color="0.2" if name == next(iter(learned)) else "0.65", label=name)
    for number, (name, values) in enumerate(fitted.items()):
        axes.plot(n, values, color=INKS[1 + number], linestyle=DASHES[number], linewidth=1.4, label=name)
    axes.set(xlabel=NAMES["keys"], ylabel="p", title=title)
    axes.grid(alpha=0.3)
    axes.legend(frameon=False, fontsize=8)
    return figure
