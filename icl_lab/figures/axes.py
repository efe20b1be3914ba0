"""Axes and titles that can be read: plain numbers, ticks where something was measured, words that fit their panel."""

import math
import textwrap
from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure, FigureBase
from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, MaxNLocator, NullFormatter, NullLocator

WIDE, NARROW = 9.6, 4.0  # inches: a page's column, and a telephone


def finish(axes: Axes, log: str, base: int = 2) -> None:
    """Give a panel its grid and ticks; ``log`` names the axes that are logarithmic, across to this base.

    To be called last: ticks depend on the drawn data.
    """
    if "x" in log:
        axes.set_xscale("log", base=base)
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: plain(value)))
    if "y" in log:
        axes.set_yscale("log")
        log_ticks(axes.yaxis)
    axes.grid(alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)


def log_ticks(axis: Axis) -> None:
    """Write plain numbers on a logarithmic axis: 1, 2 and 5 of each decade where it spans few, else decades."""
    low, high = sorted(axis.get_view_interval())
    decades = math.log10(high / low) if low > 0 else 3.0
    # In little more than half a decade hardly any of 1, 2 and 5 would be there.
    short = decades < 0.7
    subs = (1.0, 2.0, 5.0) if decades < 2.2 else (1.0,)
    axis.set_major_locator(MaxNLocator(5, steps=[1, 2, 2.5, 5, 10]) if short else LogLocator(10, subs, numticks=9))
    axis.set_minor_formatter(NullFormatter())
    if short:
        axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(FuncFormatter(lambda value, _: plain(value)))


def ticks(axis: Axis, places: Sequence[float]) -> None:
    """Put ticks where something was measured if that is few places, else at whole numbers where all places are."""
    known = sorted(set(places))
    log = axis.get_scale() == "log"
    at = np.log(known) if log else np.asarray(known, dtype=float)
    # Labels touch where they are closer than a twelfth of the axis.
    if len(known) <= 12 and (len(at) < 2 or np.diff(at).min() >= (at[-1] - at[0]) / 12):
        axis.set_major_locator(FixedLocator(known))
        axis.set_major_formatter(FuncFormatter(lambda value, _: plain(value)))
        axis.set_minor_locator(NullLocator())
    elif not log and all(float(place).is_integer() for place in known):
        axis.set_major_locator(MaxNLocator(integer=True))


def wrapped(text: str, inches: float, size: float = 10) -> str:
    r"""Return a text broken into lines that fit a width at a font size; a long word is broken too.

    >>> wrapped("one two three", 0.6)
    'one two\nthree'
    """
    letters = max(4, int(inches * 72 / (0.6 * size)))
    return "\n".join(line for part in text.split("\n") for line in textwrap.wrap(part, letters) or [""])


def sheet(width: float, height: float, title: str = "", size: float = 10) -> Figure:
    """Return an empty figure, size in inches; its title, if any, is wrapped to its width."""
    figure = Figure(figsize=(width, height), layout="constrained", dpi=150)
    if title:
        figure.suptitle(wrapped(title, width - 0.2, size), fontsize=size)
    return figure


def laid_out(figure: FigureBase, count: int, across: int, **shared: Any) -> list[Axes]:
    """Return ``count`` panels of a figure, ``across`` of them in a row."""
    found = list(figure.subplots(max(1, -(-count // across)), across, squeeze=False, **shared).flat)
    for axes in found[count:]:
        axes.remove()
    return found[:count]


def panelled(
    count: int, across: int, each: tuple[float, float], around: tuple[float, float], title: str = "", **shared: Any
) -> tuple[Figure, list[Axes]]:
    """Return a figure of ``count`` panels, ``across`` in a row; width and height of ``each``, and ``around`` all."""
    down = max(1, -(-count // across))
    figure = sheet(each[0] * across + around[0], each[1] * down + around[1], title)
    return figure, laid_out(figure, count, across, **shared)


def legend(figure: Figure, axes: Axes, below: bool = True, size: float = 8, columns: int = 0) -> None:
    """Draw a legend to the right of the figure, or below it in ``columns`` columns (0: the number that fits)."""
    handles, names = axes.get_legend_handles_labels()
    widest = (max(map(len, names), default=1) + 8) * 0.6 * size / 72  # inches, with the line before a name
    columns = columns or max(1, min(len(names), int(figure.get_figwidth() // widest)))
    place = {"loc": "outside lower center", "ncols": columns} if below else {"loc": "outside right center"}
    figure.legend(handles, names, frameon=False, fontsize=size, **place)


def constant(values: Sequence[float] | np.ndarray) -> float | None:
    """Return the one value that all known numbers have; None where they differ or none is known."""
    known = np.asarray(values, dtype=float).ravel()
    known = known[np.isfinite(known)]
    return float(known[0]) if known.size and np.ptp(known) == 0 else None


def remark(axes: Axes, words: str) -> None:
    """Write a sentence into an empty panel."""
    axes.text(0.5, 0.5, words, ha="center", va="center", color="0.4", fontsize=8, transform=axes.transAxes)


def plain(value: float) -> str:
    """A tick as it is read: 0.05, 3, 20,000; powers of ten beyond."""
    if value == 0 or 1e-3 <= abs(value) < 1e6:
        return f"{value:,.12g}"
    return f"{value:.0e}".replace("e-0", "e-").replace("e+0", "e").replace("-", "−")
