"""Curves of heads or seeds: each a thin line, or many of them a band, and a thick line for the rule."""

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.figure import Figure

from icl_lab.figures.axes import columns, constant, finish, headline, remark, ticks, wrapped
from icl_lab.figures.styles import styles

Line = Sequence[tuple[float, float]]
MANY = 40  # more lines of one rule than these hide each other
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
    """Draws a panel for each metric: heads (or seeds) thin, their median a thick line for each rule.

    Of many heads the middle 80 % are a band instead. ``scales`` names the logarithmic axes of a panel ("x" where it
    does not), ``limits`` its range (a panel says where it begins if some of it lies below), ``mark`` a place across
    that is dotted in all of them. A metric of which no value is known gets no panel, and is named in the title.
    """
    known = {metric: rules for metric, rules in panels.items() if _values(rules)}
    missing = [metric for metric in panels if metric not in known]
    down = max(1, -(-len(known) // 2))
    figure = Figure(figsize=(9.6, 3.0 * down + 0.5), layout="constrained", dpi=150)
    headline(figure, title + (f"\n(without any value: {', '.join(missing)})" if missing else ""))
    places = figure.subplots(down, 2, squeeze=False)
    looks = styles(dict.fromkeys(rule for rules in panels.values() for rule in rules))
    for axes, (metric, rules) in zip(places.flat, known.items(), strict=False):
        at: list[float] = []
        for rule, lines in rules.items():
            look = looks[rule]
            where = [place for place, _ in lines[0]]
            values = np.array([[value for place, value in line if place in where] for line in lines])
            if len(lines) > MANY:
                axes.fill_between(where, *_percentiles(values, BAND), color=look.color, alpha=0.15, linewidth=0)
            for line in lines if len(lines) <= MANY else ():
                axes.plot(*zip(*line, strict=True), color=look.color, linewidth=0.5, alpha=0.3)
            axes.plot(where, *_percentiles(values, (50,)), linewidth=2, label=rule, **look.line)
            at += where
        if mark is not None:
            axes.axvline(mark, color="0.5", linestyle=":", linewidth=1)
        if (value := constant(_values(rules))) is not None:
            remark(axes, f"all values are {value:g}")
        words = metric
        if limits and metric in limits:
            low, _ = limits[metric]
            axes.set_ylim(*limits[metric])
            words += f" (drawn from {low:g} up)" * (min(_values(rules)) < low)
        finish(axes, scales.get(metric, "x"), base)
        ticks(axes.xaxis, at)
        axes.set_xlabel(across)
        axes.set_ylabel(wrapped(words, 2.4, 9))
    for axes in list(places.flat)[len(known) :]:
        axes.remove()
    if known:
        handles, names = places.flat[0].get_legend_handles_labels()
        figure.legend(handles, names, frameon=False, fontsize=8, loc="outside lower center", ncols=columns(names, 9.6))
    return figure


def _values(rules: Mapping[str, Sequence[Line]]) -> list[float]:
    """Every known number of a panel."""
    every = [value for lines in rules.values() for line in lines for _, value in line]
    return [value for value in every if np.isfinite(value)]


def _percentiles(values: np.ndarray, wanted: Sequence[float]) -> list[list[float]]:
    """Percentiles of each column over what is known of it; NaN where nothing is."""
    known = [column[np.isfinite(column)] for column in values.T]
    return [[float(np.percentile(column, at)) if len(column) else float("nan") for column in known] for at in wanted]
