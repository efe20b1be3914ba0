"""Normalizers in order: dots with intervals, one row per normalizer, where curves would lie on one another."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from icl_lab.figures.axes import NARROW, WIDE, finish, log_ticks, panelled, sheet, wrapped
from icl_lab.figures.base import REFERENCE
from icl_lab.figures.styles import Style, styles


@dataclass(frozen=True)
class Dot:
    """A mean, its interval (NaN where there is none), the seeds that it is the mean of, and whether it is clear."""

    middle: float
    low: float = math.nan
    high: float = math.nan
    seeds: Sequence[float] = ()
    clear: bool = False


@dataclass(frozen=True)
class Panel:
    """One quantity of every normalizer, with the references."""

    dots: Mapping[str, Dot]
    references: Mapping[str, float]


def ranking(
    panels: Mapping[str, Panel], rules: Sequence[str], *, title: str, label: str, log: bool, width: float = WIDE
) -> Figure:
    """Draw a panel for each question: the ``rules`` from above in their order.

    Each seed is a small dot, the mean a large one with its interval. References are grey lines, named where they fit.
    """
    looks = styles(rules)
    across = 1 if width <= NARROW else len(panels)
    tall = 0.19 * len(rules) + 1.0
    figure, places = panelled(len(panels), across, (0, tall), (width, 0.5), title, sharey=True)
    for number, (axes, (name, panel)) in enumerate(zip(places, panels.items(), strict=True)):
        for place, rule in enumerate(rules):
            dot, look = panel.dots[rule], looks[rule]
            _row(axes, place, dot, look, 1.4, ".", 3)
            axes.plot(dot.middle, place, look.marker, color=look.color, markersize=5)
        shown = [value for dot in panel.dots.values() for value in (dot.middle, *dot.seeds)]
        _references(axes, panel.references, shown, log)
        axes.set_yticks(range(len(rules)), rules, fontsize=7)
        axes.set_title(wrapped(name, width / across - 1.0, 9), fontsize=9)
        if log:
            axes.set_xscale("log")
        finish(axes, "")
        if log:
            log_ticks(axes.xaxis)
        axes.tick_params(axis="x", labelsize=7)
        if number == 0:
            axes.invert_yaxis()
    figure.supxlabel(wrapped(label, width - 0.4, 8), fontsize=8)
    return figure


def _row(axes: Axes, place: int, dot: Dot, look: Style, width: float, seed: str, size: float) -> None:
    if not math.isnan(dot.low):
        axes.plot([dot.low, dot.high], [place, place], color=look.color, linewidth=width)
    axes.plot(dot.seeds, [place] * len(dot.seeds), seed, color=look.color, markersize=size, alpha=0.6)


def _references(axes: Axes, references: Mapping[str, float], shown: Sequence[float], log: bool) -> None:
    """Grey lines at the references that lie near the normalizers; one that is far off would squeeze them."""
    low, high = min(shown), max(shown)
    known = {name: value for name, value in references.items() if value > 0 or not log}
    near = {n: v for n, v in known.items() if (low / 4 < v < 4 * high if log else low - 1 <= v <= high + 1)}
    for name, value in near.items():
        axes.axvline(value, color=REFERENCE, linewidth=0.8, linestyle=(0, (4, 2)), zorder=0)
        axes.text(value, 0.02, name.removeprefix("reference:") + " ", rotation=90, ha="right", va="bottom", fontsize=6,
                  color="0.4", transform=axes.get_xaxis_transform())  # fmt: skip


def forest(
    rows: Mapping[str, tuple[Dot, str]],
    *,
    title: str,
    label: str,
    baseline: str,
    ratio: bool,
    width: float = WIDE,
) -> Figure:
    """Draw each normalizer's effect against the baseline with its interval, sorted, its number as text at the right.

    ``rows`` holds the dot and its label; with ``ratio`` the dots are ratios, and 1 means no effect. Hollow: not clear.
    Left of the line a normalizer errs less than the baseline.
    """
    none = 1.0 if ratio else 0.0
    order = sorted(rows, key=lambda rule: rows[rule][0].middle)
    looks = styles([*rows, baseline])
    # The words are set in 7 points; on a telephone they stand below the name.
    narrow = width <= NARROW
    figure = sheet(width, (0.34 if narrow else 0.24) * len(rows) + 1.25, title)
    axes = figure.subplots()
    axes.axvline(none, color=looks[baseline].color, linewidth=1)
    for place, rule in enumerate(order):
        dot, words = rows[rule]
        look = looks[rule]
        _row(axes, place, dot, look, 1.5, "|", 7)
        fill = "full" if dot.clear else "none"
        axes.plot(dot.middle, place, look.marker, color=look.color, markersize=6, fillstyle=fill)
        if narrow:
            axes.annotate(words, (0.5, place + 0.38), xycoords=("axes fraction", "data"), fontsize=6, ha="center",
                          va="center", color="0.3",
                          bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.6})  # fmt: skip
        else:
            axes.annotate(words, (1.01, place), xycoords=("axes fraction", "data"), fontsize=7, va="center")
    axes.set_yticks(range(len(order)), order, fontsize=7 if narrow else 8)
    axes.set_ylim(len(order) - 0.4, -0.6)
    shown = [v for dot, _ in rows.values() for v in (dot.middle, dot.low, dot.high, *dot.seeds) if math.isfinite(v)]
    shown = [v for v in shown if v > 0 or not ratio] or [none]
    _reach(axes, shown, none, ratio)
    finish(axes, "")
    if ratio:
        log_ticks(axes.xaxis)
    axes.set_xlabel(wrapped(f"{label}\n← errs less than {baseline}        errs more →", width - 1.0, 8), fontsize=8)
    return figure


def _reach(axes: Axes, shown: Sequence[float], none: float, ratio: bool) -> None:
    """An axis symmetric enough around no effect, and never so short that noise fills it."""
    if ratio:
        axes.set_xscale("log")
        size = max(math.log(1.25), float(np.max(np.abs(np.log(shown)))))
        low, high = min(math.log(min(shown)), -0.25 * size), max(math.log(max(shown)), 0.25 * size)
        axes.set_xlim(math.exp(low - 0.06 * size), math.exp(high + 0.06 * size))
    else:
        size = max(0.05, float(np.max(np.abs(shown))))
        axes.set_xlim(min(*shown, -0.25 * size) - 0.06 * size, max(*shown, 0.25 * size) + 0.06 * size)
