"""Curves of heads or seeds: each a thin line, or many of them a band, and a thick line for the normalizer.

Where all that is known is at one place, no line could be seen: each is a dot.
"""

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from icl_lab.figures.axes import WIDE, constant, finish, legend, panelled, remark, ticks, wrapped
from icl_lab.figures.styles import Style, styles

Line = Sequence[tuple[float, float]]
MANY = 40  # more lines of one normalizer than these hide each other
BAND = (10, 90)  # percentiles


def curves(
    panels: Mapping[str, Mapping[str, Sequence[Line]]],
    *,
    title: str,
    across: str,
    scales: Mapping[str, str],
    limits: Mapping[str, tuple[float, float]] | None = None,
    mark: float | None = None,
    base: int = 10,
) -> Figure:
    """Draw a panel for each metric: heads (or seeds) thin, their median a thick line for each normalizer.

    Of many heads the middle 80 % are a band instead. A panel with one place across shows the heads of each normalizer
    as dots from the least to the greatest value, side by side, and their median as a dash. ``scales`` names the
    logarithmic axes of a panel ("x" where it does not), ``limits`` its range (a panel says where it begins if some of
    it lies below), ``mark`` a place across that is dotted in all of them. A metric of which no value is known gets no
    panel, and is named in the title.
    """
    known = {metric: rules for metric, rules in panels.items() if _values(rules)}
    missing = [metric for metric in panels if metric not in known]
    unknown = f"\n(without any value: {', '.join(missing)})" if missing else ""
    figure, places = panelled(len(known), 2, (0, 3.0), (WIDE, 0.5), title + unknown)
    looks = styles(dict.fromkeys(rule for rules in panels.values() for rule in rules))
    for axes, (metric, rules) in zip(places, known.items(), strict=True):
        at = [place for lines in rules.values() for place, _ in lines[0]]
        alone = len(set(at)) == 1
        if alone:
            _dots(axes, rules, looks)
        else:
            _lines(axes, rules, looks)
        if mark is not None and not alone:
            axes.axvline(mark, color="0.5", linestyle=":", linewidth=1)
        if (value := constant(_values(rules))) is not None:
            remark(axes, f"all values are {value:g}")
        words = metric
        if limits and metric in limits:
            low, _ = limits[metric]
            axes.set_ylim(*limits[metric])
            words += f" (drawn from {low:g} up)" * (min(_values(rules)) < low)
        log = scales.get(metric, "x")
        finish(axes, log.replace("x", "") if alone else log, base)
        if alone:
            axes.set_xticks([])
        else:
            ticks(axes.xaxis, at)
        axes.set_xlabel(f"{across}: {at[0]:,g}; dots from least to greatest" if alone else across)
        axes.set_ylabel(wrapped(words, 2.4, 9))
    if known:
        legend(figure, places[0])
    return figure


def _lines(axes: Axes, rules: Mapping[str, Sequence[Line]], looks: Mapping[str, Style]) -> None:
    """A line for each head, or their band, and one for their median."""
    for rule, lines in rules.items():
        look = looks[rule]
        where = [place for place, _ in lines[0]]
        values = np.array([[value for place, value in line if place in where] for line in lines])
        if len(lines) > MANY:
            low, high = _percentiles(values, BAND)
            axes.fill_between(where, low, high, color=look.color, alpha=0.15, linewidth=0)
        for line in lines if len(lines) <= MANY else ():
            axes.plot(*zip(*line, strict=True), color=look.color, linewidth=0.5, alpha=0.3)
        axes.plot(where, *_percentiles(values, (50,)), linewidth=2, label=rule, **look.line)


def _dots(axes: Axes, rules: Mapping[str, Sequence[Line]], looks: Mapping[str, Style]) -> None:
    """A sorted dot plot of each normalizer's values, one column per normalizer."""
    for column, (rule, lines) in enumerate(rules.items()):
        look, values = looks[rule], np.sort(_values({rule: lines}))
        across = column + np.linspace(-0.35, 0.35, len(values)) if len(values) > 1 else [column]
        axes.plot(across, values, ".", color=look.color, markersize=3, alpha=0.6)
        middle = float(np.median(values)) if len(values) else float("nan")
        axes.plot([column - 0.4, column + 0.4], [middle] * 2, linewidth=2, label=rule, **look.line)


def _values(rules: Mapping[str, Sequence[Line]]) -> list[float]:
    every = [value for lines in rules.values() for line in lines for _, value in line]
    return [value for value in every if np.isfinite(value)]


def _percentiles(values: np.ndarray, wanted: Sequence[float]) -> list[list[float]]:
    """Percentiles of the finite values of each column; NaN without any."""
    known = [column[np.isfinite(column)] for column in values.T]
    return [[float(np.percentile(column, at)) if len(column) else float("nan") for column in known] for at in wanted]
