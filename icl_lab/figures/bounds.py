"""Boundary values: curves of answers, how the bound goes with the slope, and the sweep that it predicts."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from icl_lab.figures.axes import finish, laid_out, legend, log_ticks, panelled, sheet, wrapped
from icl_lab.figures.base import REFERENCE
from icl_lab.figures.styles import Style, styles

Line = Sequence[tuple[float, float]]
Model = Mapping[str, Mapping[float, float]]  # bound, largest, error, floor or rescaled -> spread of functions -> value


@dataclass(frozen=True)
class BoundPanel:
    """One function: each normalizer's seeds as lines of (true value, answer), with detected bounds.

    ``onsets`` and ``bounds`` hold one number per seed and side, signed as the true value and as the answer.
    """

    curves: Mapping[str, Sequence[Line]]
    onsets: Mapping[str, Sequence[float]] = field(default_factory=dict)
    bounds: Mapping[str, Sequence[float]] = field(default_factory=dict)


def curves(panels: Mapping[str, BoundPanel], *, title: str, trained: float, reach: float) -> Figure:
    """Draw a panel for each function: seeds thin, the median of a normalizer thick, the truth dashed.

    Shaded: training range. Short bars on the left (B-) and right (B+) margins: detected bounds. Triangles on the axis
    below: detected onsets, where the answer leaves the truth. Those inside the training range are left out: where a
    function is as steep as 9x, answers leave the truth at once, and the place says nothing of a bound.
    """
    figure, places = panelled(len(panels), min(2, len(panels)), (5.4, 3.9), (0, 0.9), title)
    looks = styles(dict.fromkeys(rule for panel in panels.values() for rule in panel.curves))
    every = [y for panel in panels.values() for seeds in panel.curves.values() for line in seeds for _, y in line]
    top = min(reach, 1.25 * max(np.abs(every).max(), trained))
    for axes, (name, panel) in zip(places, panels.items(), strict=True):
        axes.axvspan(-trained, trained, color="0.92", linewidth=0, label="99 % of training y")
        axes.axhline(0, color="0.8", linewidth=0.8)
        axes.plot([-reach, reach], [-reach, reach], color="0.45", linestyle="--", linewidth=1, label="truth")
        for number, (rule, seeds) in enumerate(panel.curves.items()):
            hue, dash = looks[rule].color, looks[rule].dash
            for line in seeds if len(seeds) > 1 else ():
                axes.plot(*zip(*line, strict=True), color=hue, linewidth=0.6, alpha=0.4)
            t = [x for x, _ in seeds[0]]
            middle = np.median([[y for _, y in line] for line in seeds], axis=0)
            axes.plot(t, middle, color=hue, linestyle=dash, linewidth=1.8, label=rule)
            for bound in panel.bounds.get(rule, ()):
                edge = (0.955, 1.0) if bound > 0 else (0.0, 0.045)
                axes.plot(edge, [bound] * 2, color=hue, linewidth=1.6, transform=axes.get_yaxis_transform())
            onsets = [onset for onset in panel.onsets.get(rule, ()) if trained < abs(onset) < reach]
            height = [0.025 + 0.035 * number] * len(onsets)
            axes.plot(onsets, height, "^", color=hue, markersize=4, transform=axes.get_xaxis_transform())
        finish(axes, "")
        axes.set_title(wrapped(name, 5.0))
        axes.set(xlim=(-1.08 * reach, 1.08 * reach), ylim=(-top, top))
        axes.set(xlabel="true value t of the query", ylabel="answer")
    places[0].plot([], [], "^", color="0.3", markersize=4, label="onset beyond training")
    places[0].plot([], [], "-", color="0.3", linewidth=1.6, label="B (at the margins)")
    legend(figure, places[0])
    return figure


def bound(models: Mapping[str, Sequence[Model]], *, title: str, words: tuple[str, str]) -> Figure:
    """Draw the largest answers B against the bound C, one dot per model, and errors over the spread of functions.

    ``models`` are by label, one a seed. Right: geometric means over seeds; shaded are errors below the floor of the
    lowest bound. ``words`` name the spread and the error.
    """
    figure = sheet(10.4, 4.6, title)
    left, right = figure.subplots(1, 2, width_ratios=(1, 1.35))
    looks = styles(models)
    _largest(left, models, looks)
    _errors(right, models, looks)
    right.set(xscale="log", yscale="log", xlabel=f"{words[0]} (1: training)", ylabel=words[1])
    finish(right, "")
    legend(figure, right)
    return figure


@dataclass(frozen=True)
class BoundDot:
    """A model: its normalizer and its kind, the largest label of its training, C, and its error (NaN: not shown)."""

    label: str
    kind: str
    largest: float
    bound: float
    error: float


def law(
    dots: Sequence[BoundDot],
    *,
    title: str,
    marks: Mapping[str, str],
    floor: Line = (),
    printed: Mapping[str, BoundDot] | None = None,
    error: str = "",
) -> Figure:
    """Draw C against the largest training label; with a ``floor``, also the error far from training against C.

    Left: the line on which C is the largest label. Right: shaded are errors below the ``floor``, pairs (C, least error
    of a model with that C). ``marks`` holds the marker of each kind. Stars: printed rows, by their legend.
    """
    stars = printed or {}
    every = [*dots, *stars.values()]
    figure = sheet(8.8 if floor else 5.2, 4.4, title)
    left, *rest = laid_out(figure, 2 if floor else 1, 2 if floor else 1)
    looks = styles(dict.fromkeys(dot.label for dot in every))
    hollow: dict[str, Any] = {"markersize": 5.5, "fillstyle": "none", "markeredgewidth": 1.2}
    for dot in dots:
        left.plot(dot.largest, dot.bound, marks[dot.kind], color=looks[dot.label].color, **hollow)
    ends = [0.8 * min(dot.bound for dot in every), 1.2 * max(max(dot.largest, dot.bound) for dot in every)]
    left.plot(ends, ends, color="0.6", linewidth=1, zorder=0)
    place: dict[str, Any] = {
        "xytext": (-6, 0),
        "textcoords": "offset points",
        "ha": "right",
        "va": "top",
        "fontsize": 9,
    }
    left.annotate("C = largest label", (ends[1] / 1.1, ends[1] / 1.1), color="0.4", **place)
    left.set(xlabel="largest label of the training", ylabel="bound C on the answers")
    for right in rest:
        errors = [dot.error for dot in every if dot.error > 0]
        low, high = 0.5 * min(errors), 2 * max(errors)
        c, least = (np.array(column) for column in zip(*floor, strict=True))
        right.fill_between(c, low, np.maximum(least, low), color="0.88", linewidth=0)
        right.annotate(
            "no model with this C errs less", (0.03, 0.05), xycoords="axes fraction", color="0.4", fontsize=9
        )
        for dot in dots:
            right.plot(dot.bound, dot.error, marks[dot.kind], color=looks[dot.label].color, **hollow)
        right.set(xlim=(c[0], c[-1]), ylim=(low, high), xlabel="bound C on the answers", ylabel=error)
    for axes, across in ((left, "largest"), *((right, "bound") for right in rest)):
        for dot in stars.values():
            up = dot.bound if axes is left else dot.error
            axes.plot(getattr(dot, across), up, "*", color=looks[dot.label].color, markersize=13)
        axes.set(xscale="log", yscale="log")
        finish(axes, "")
        for axis in (axes.xaxis, axes.yaxis):
            log_ticks(axis)
    for label in dict.fromkeys(dot.label for dot in dots):
        left.plot([], [], "o", color=looks[label].color, label=label, **hollow)
    for kind in [kind for kind in marks if len(marks) > 1 and any(dot.kind == kind for dot in dots)]:
        left.plot([], [], marks[kind], color="0.5", label=kind, **hollow)
    for words, dot in stars.items():
        left.plot([], [], "*", color=looks[dot.label].color, markersize=11, linestyle="none", label=words)
    legend(figure, left)
    return figure


def _largest(axes: Axes, models: Mapping[str, Sequence[Model]], looks: Mapping[str, Style]) -> None:
    """Dots, one per model: its bound C across, its largest answer B upwards."""
    highest = 0.0
    for look, each in ((looks[label], each) for label, seeds in models.items() for each in seeds):
        c, b = next(iter(each["bound"].values())), max(each["largest"].values())
        axes.plot(c, b, look.marker, color=look.color, markersize=5)
        highest = max(highest, 1.1 * c, 1.1 * b)
    axes.plot([0, highest], [0, highest], color="0.6", linewidth=1, zorder=0)
    axes.annotate("B = C", (0.3 * highest, 0.3 * highest), (-4, 4), textcoords="offset points", ha="right", color="0.4")
    axes.set(xlabel="bound C of the final norm and the read-out", ylabel="largest answer B", xlim=(0, highest))
    axes.set(ylim=(0, highest), aspect="equal")
    finish(axes, "")


def _errors(axes: Axes, models: Mapping[str, Sequence[Model]], looks: Mapping[str, Style]) -> None:
    """Errors of each label as they are and with labels rescaled, and the floor shaded."""
    lowest, floors = np.inf, list[Mapping[float, float]]()
    for label, look in looks.items():
        seeds = models[label]
        axes.plot([], [], "-", color=look.color, linewidth=1.6, label=label)
        for metric, dash in (("error", "-"), ("rescaled", ":")):
            known = [each[metric] for each in seeds if metric in each]
            if known:
                spreads = sorted(known[0])
                middle = [float(np.exp(np.mean([np.log(each[spread]) for each in known]))) for spread in spreads]
                lowest = min(lowest, *middle)
                axes.plot(spreads, middle, dash, color=look.color, linewidth=1.6)
        floors += [each["floor"] for each in seeds if "floor" in each]
    if any("rescaled" in each for seeds in models.values() for each in seeds):
        axes.plot([], [], ":", color="0.3", linewidth=1.6, label="labels rescaled")
    if floors:
        spreads = sorted(floors[0])
        below = [max(0.5 * lowest, min(each[spread] for each in floors)) for spread in spreads]
        axes.fill_between(spreads, 0.5 * lowest, below, color="0.85", linewidth=0, label="below the floor")
        axes.set_ylim(bottom=0.5 * lowest)


def control(
    slopes: Sequence[float], panels: Mapping[str, Mapping[str, Sequence[Sequence[float]]]], *, title: str
) -> Figure:
    """Draw the bound over the slope, a panel for each scale of the context, every seed a dot.

    ``panels`` holds, for each normalizer, the bounds of the seeds (NaN: none) at every slope. Flat: the output is
    bounded. Parallel to the dashed guides: the input, or what the model makes of it. A bound that is not above 0
    (answers on the wrong side) has no place on a logarithmic axis: the panel says how many there are.
    """
    figure, places = panelled(len(panels), len(panels), (4.6, 4.1), (0, 0), title, sharey=True)
    x = np.abs(slopes)
    looks = styles(dict.fromkeys(rule for rules in panels.values() for rule in rules))
    for axes, (name, rules) in zip(places, panels.items(), strict=True):
        for number, (rule, values) in enumerate(rules.items()):
            hue, dash = looks[rule].color, looks[rule].dash
            nudge = 1.02 ** (number - (len(rules) - 1) / 2)
            table = np.array(values, float)  # (slopes seeds)
            known = ~np.isnan(table).all(axis=1)
            means = np.array([np.nanmean(row) for row in table[known]])
            means[means <= 0], table[table <= 0] = np.nan, np.nan
            axes.plot(x[known] * nudge, means, color=hue, linestyle=dash, linewidth=1.5, label=rule)
            axes.plot(
                np.repeat(x * nudge, table.shape[1]), table.ravel(), looks[rule].marker, color=hue, markersize=3.5
            )
        axes.set(xscale="log", yscale="log", xlabel="size of the slope a")
        below = sum(bound <= 0 for values in rules.values() for bounds in values for bound in bounds)
        axes.set_title(wrapped(name, 4.2) + (f"\n({below} not above 0: not drawn)" if below else ""))
    low, high = places[0].get_ylim()
    low = min(low, high / 5)  # so that flat looks flat
    for axes in places:
        for start in np.geomspace(low / x.max(), high / x.min(), 9):
            axes.plot(x, start * x, color="0.8", linestyle="--", linewidth=0.8, zorder=0)
        axes.set_ylim(low, high)
        axes.set_xticks(sorted(set(x)), [f"{value:g}" for value in sorted(set(x))])
        axes.minorticks_off()
        finish(axes, "")
    ticks = [value for value in (0.1, 0.2, 0.5, 1, 2, 3, 5, 7, 10, 15, 20, 30, 50, 100) if low <= value <= high]
    places[0].set_yticks(ticks, [f"{value:g}" for value in ticks])
    places[0].set_ylabel("boundary value B, mean of both sides")
    places[0].plot([], [], color="0.8", linestyle="--", linewidth=0.8, label="B ∝ a")
    legend(figure, places[0])
    return figure


def sweeps(
    sigmas: Sequence[float],
    rules: Mapping[str, tuple[Sequence[Sequence[float]], Sequence[Sequence[float]]]],
    zero: Sequence[float],
    *,
    title: str,
    judged: float,
    axis: str,
) -> Figure:
    """Draw the measured errors of each normalizer's seeds as dots, and what the bound of each predicts as lines.

    ``sigmas`` are the values of ``axis``. ``rules`` holds (measured, predicted), one row per seed. Grey: the error of
    answering 0. Only to the right of ``judged`` is a bound expected to explain the error.
    """
    across = min(3, len(rules))
    figure, places = panelled(len(rules), across, (3.4, 3.1), (0.4, 0.7), title, sharey=True)
    floor = min(value for measured, _ in rules.values() for row in measured for value in row) / 2
    looks = styles(rules)
    for number, (axes, (rule, (measured, predicted))) in enumerate(zip(places, rules.items(), strict=True)):
        hue = looks[rule].color
        axes.plot(sigmas, zero, color=REFERENCE, linestyle=(0, (4, 2)), linewidth=1, label="answer 0")
        axes.axvline(judged, color="0.5", linestyle=":", linewidth=1)
        for seed, row in enumerate(predicted):
            axes.plot(sigmas, row, color=hue, linewidth=1.2, label="predicted from B" if not seed else None)
        for seed, row in enumerate(measured):
            axes.plot(sigmas, row, "o", color=hue, markersize=3.5, fillstyle="none", label=None if seed else "measured")
        axes.set(yscale="log", ylim=(floor, None), xlabel=axis if number >= len(rules) - across else "")
        axes.set_title(wrapped(rule, 3.2))
        finish(axes, "y")
    for axes in places[::across]:
        axes.set_ylabel("mean squared error")
    legend(figure, places[0], columns=3)
    return figure
