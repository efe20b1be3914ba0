"""Numbers along one axis: normalizers and their references."""

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from icl_lab.figures.axes import NARROW, constant, finish, laid_out, legend, panelled, remark, sheet, ticks, wrapped
from icl_lab.figures.base import INKS, NAMES, REFERENCE
from icl_lab.figures.styles import DASHES, styles

Interval = tuple[float, float]  # low and high; NaN where there is none


def rivals(
    where: Sequence[float],
    rules: Mapping[str, Sequence[Sequence[float]]],
    references: Mapping[str, Sequence[float]],
    *,
    axis: str,
    title: str,
    label: str,
    log: bool,
    width: float = 8.0,
    mark: float | None = None,
) -> Figure:
    """Draw each normalizer's mean over its seeds along one axis, every seed as a dot in a band.

    References are dashed and grey; NaN where one is not known. ``rules`` holds, for each normalizer, the values of the
    seeds at every place of ``where``. ``mark`` is a place that is dotted, on an axis that is then logarithmic.
    """
    narrow = width <= NARROW
    figure = sheet(width, 4.4 + 0.14 * len(rules) if narrow else 4.8, title)
    axes = figure.subplots()
    looks = styles(rules)
    for rule, values in rules.items():
        look = looks[rule]
        means = [float(np.mean(seeds)) for seeds in values]
        axes.plot(where, means, linewidth=1.6, markersize=4, label=rule, **look.dotted)
        low, high = ([pick(v) for v in values] for pick in (min, max))
        axes.fill_between(where, low, high, color=look.color, alpha=0.12, linewidth=0)
        for place, seeds in zip(where, values, strict=True):
            if len(seeds) > 1:
                axes.plot([place] * len(seeds), seeds, ".", color=look.color, markersize=3)
    shown = [v for values in rules.values() for seeds in values for v in seeds if math.isfinite(v)]
    ends = _references(axes, where, references, shown, log)
    if (value := constant(shown)) is not None:
        remark(axes, f"every normalizer: {value:g} everywhere")
    axes.set(xlabel=axis, ylabel=label)
    geometric = mark is not None or _geometric(where)
    if mark is not None:
        axes.axvline(mark, color="0.5", linestyle=":", linewidth=1)
    finish(axes, ("x" if geometric else "") + ("y" if log else ""))
    # The names of the references want room on the right.
    room = 0.28 if narrow else 0.13
    if geometric:
        axes.set_xlim(where[0] / (where[-1] / where[0]) ** (room / 4), where[-1] * (where[-1] / where[0]) ** room)
    else:
        span = where[-1] - where[0]
        axes.set_xlim(where[0] - room / 4 * span, where[-1] + room * span)
    ticks(axes.xaxis, where)
    _name_ends(axes, ends, where[-1], 7)
    legend(figure, axes, below=narrow, size=7)
    return figure


def _references(
    axes: Axes, where: Sequence[float], references: Mapping[str, Sequence[float]], shown: Sequence[float], log: bool
) -> dict[str, float]:
    """Draw references of the ``shown`` numbers, on an axis that spans decades; return their last values.

    One far below every normalizer (least squares: rounding) would squeeze what there is to see, and is left out.
    """
    floor = min((v for v in shown if v > 0), default=1e-3) / 3
    ends = {}
    for name, line in references.items():
        known = [v for v in line if not math.isnan(v)]
        if known and (not log or max(known) > floor):
            ends[name] = known[-1]
            dots = "" if len(known) == len(line) else "."  # a value without neighbours is no line
            # On a logarithmic axis a line from 0 would be a vertical one at the next place.
            line = [math.nan if log and value <= 0 else value for value in line]
            axes.plot(where, line, color=REFERENCE, linewidth=1, linestyle=(0, (4, 2)), marker=dots, zorder=1)
    if log:
        axes.set(yscale="log", ylim=(floor, None))
    return ends


def _geometric(where: Sequence[float]) -> bool:
    steps = [b / a for a, b in pairwise(where) if a]
    return len(steps) > 2 and where[0] > 0 and max(steps) < 1.01 * min(steps)


def disturbance(
    factors: Sequence[float],
    panels: Mapping[str, tuple[Mapping[str, Sequence[float]], Mapping[str, Sequence[float]], bool]],
    *,
    title: str,
    spans: Mapping[str, Mapping[str, Sequence[Interval]]] | None = None,
) -> Figure:
    """Draw what a deviant does: one panel per metric, its factor across, normalizers in ink, references dashed grey.

    ``panels`` holds, for each metric, the normalizers' values at every factor, the references' and whether they span
    decades; ``spans``, for each metric and normalizer, the interval at every factor.
    """
    figure, places = panelled(len(panels), len(panels), (4.2, 4.0), (1.6, 0), title)
    looks = styles(dict.fromkeys(rule for rules, _, _ in panels.values() for rule in rules))
    for axes, (metric, (rules, references, log)) in zip(places, panels.items(), strict=True):
        for number, (rule, values) in enumerate(rules.items()):
            # Bars of several normalizers next to each other, not on one another.
            x = np.asarray(factors, dtype=float) * 1.03 ** (number - (len(rules) - 1) / 2)
            axes.plot(x, values, linewidth=1.5, markersize=4, label=rule, **looks[rule].dotted)
            for place, (low, high) in zip(x, ((spans or {}).get(metric, {})).get(rule, ()), strict=False):
                axes.plot([place, place], [low, high], color=looks[rule].color, linewidth=1, alpha=0.7)
        shown = [v for values in rules.values() for v in values if math.isfinite(v)]
        ends = _references(axes, factors, references, shown, log)
        if (value := constant(shown)) is not None:
            remark(axes, f"every normalizer: {value:g} at every factor")
        axes.set(xscale="log", xlabel="factor of the deviant number")
        axes.set_ylabel(wrapped(metric, 3.4, 9))
        axes.set_xlim(factors[0] * 0.85, factors[-1] * (factors[-1] / factors[0]) ** 0.4)
        ticks(axes.xaxis, factors)
        _name_ends(axes, ends, factors[-1], 6.5)
        finish(axes, "y" if log else "")
    legend(figure, places[0], below=False, size=7)
    return figure


def _name_ends(axes: Axes, ends: Mapping[str, float], where: float, size: float) -> None:
    """Write the names of references at the ends of their lines, once the scale of the axes is fixed."""
    for height, words in _together(ends, axes):
        axes.annotate(
            words, (where, height), (5, 0), textcoords="offset points", fontsize=size, color="0.4", va="center"
        )


def _together(ends: Mapping[str, float], axes: Axes) -> list[tuple[float, str]]:
    """Join the names of lines that end at about the same height, so that none is written over another.

    Names are in the order of the ends, the highest above, at their middle.
    """
    log = axes.get_yscale() == "log"
    turn, back = (lambda y: float(np.log10(max(y, 1e-12))), lambda y: 10.0**y) if log else (float, float)
    heights = {name: turn(value) for name, value in ends.items()}
    low, high = map(turn, axes.get_ylim())
    groups: list[list[str]] = []
    for name in sorted(heights, key=lambda name: -heights[name]):
        if groups and heights[groups[-1][-1]] - heights[name] <= 0.045 * (high - low):  # a line of text, about
            groups[-1].append(name)
        else:
            groups.append([name])
    words = [[name.removeprefix("reference:") for name in group] for group in groups]
    return [
        (
            back((heights[group[0]] + heights[group[-1]]) / 2),
            "\n".join(names) if len(names) < 4 else f"{names[0]}\nand {len(names) - 1} more",
        )
        for group, names in zip(groups, words, strict=True)
    ]


def laws(
    n: Sequence[float], learned: Mapping[str, Sequence[float]], fitted: Mapping[str, Sequence[float]], *, title: str
) -> Figure:
    """Draw learned numbers over n as dots, and the laws fitted to the first of them as lines."""
    figure = sheet(6.4, 4.2, title)
    axes = figure.subplots()
    first, *others = learned
    for number, name in enumerate((*others, first)):  # the first on top, since the laws are fitted to it
        label = name if name == first else "other seeds" if number == 0 else None
        axes.plot(n, learned[name], ".", markersize=4, color="0.2" if name == first else "0.65", label=label)
    for number, (name, values) in enumerate(fitted.items()):
        axes.plot(n, values, color=INKS[1 + number], linestyle=DASHES[number], linewidth=1.4, label=name)
    axes.set(xlabel=NAMES["keys"], ylabel="p")
    axes.grid(alpha=0.3)
    legend(figure, axes, columns=3)
    return figure


class TunedLine(NamedTuple):
    """Errors of the seeds at each place of an axis, their means (infinite: a seed diverged), and the best place."""

    errors: Mapping[float, Sequence[float]]
    means: Mapping[float, float]
    best: float | None


def tuned(
    panels: Mapping[str, Mapping[str, TunedLine]],
    *,
    axis: str,
    label: str,
    title: str,
    log: bool,
    words: Mapping[float, str] | None = None,
) -> Figure:
    """Draw mean errors over a setting: one panel per name, one line per normalizer, one dot per seed.

    The best place of a line has a ring. Places where a seed diverged are crosses at the upper edge. ``words`` names
    the places of a setting that is no number.
    """
    figure = sheet(max(5.0, 3.6 * len(panels) + 1.6), 4.2, title)
    places = laid_out(figure, len(panels), min(3, len(panels)), sharey=True)
    looks = styles(dict.fromkeys(rule for lines in panels.values() for rule in lines))
    for axes, (name, lines) in zip(places, panels.items(), strict=True):
        lost = list[tuple[float, str]]()
        for rule, line in lines.items():
            color = looks[rule].color
            means = {x: mean for x, mean in line.means.items() if math.isfinite(mean)}
            width = 0 if words else 1.6  # nothing lies between two words
            look = {"linewidth": width, "markersize": 4, "label": rule, **looks[rule].dotted}
            axes.plot(list(means), list(means.values()), **look)
            for x, errors in line.errors.items():
                finite = [error for error in errors if math.isfinite(error)]
                axes.plot([x] * len(finite), finite, ".", color=color, markersize=3)
                lost += [(x, color)] * (len(finite) < len(errors))
            if line.best is not None:
                axes.plot([line.best], [means[line.best]], "o", markersize=10, markerfacecolor="none", color=color)
        for number, (x, color) in enumerate(lost):
            axes.plot([x], [0.985 - 0.03 * (number % 3)], "x", color=color, transform=axes.get_xaxis_transform())
        axes.set(xlabel=axis, ylabel=label if axes is places[0] else "", title=name)
        known = sorted({x for line in lines.values() for x in line.errors})
        finish(axes, ("" if words or known[0] <= 0 else "x") + ("y" if log else ""))
        ticks(axes.xaxis, known)
        if words:
            axes.set_xticks(list(words), list(words.values()))
            axes.margins(x=0.15)
    legend(figure, places[0], size=8)
    return figure
