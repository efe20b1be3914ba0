"""Claims of a paper as a forest: each effect with its interval, and the printed effect."""

from collections.abc import Sequence

import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from numpy.typing import NDArray

from icl_lab.figures.axes import finish, sheet, wrapped

OURS, PRINTED = "#0072b2", "#d55e00"
LABELS = 3.1  # inches for the statements
ROW = 0.3  # inches
TICKS = (-1000, -100, -10, -1, 0, 1, 10, 100, 1000)


def forest(
    labels: Sequence[str], values: NDArray[np.float64], judged: Sequence[bool], *, label: str, width: float
) -> Figure:
    """Draw one row per claim, from above: effect, interval and printed effect (rows 4); hollow where it is not judged.

    They are in units of the claim's margin; NaN is not drawn. The axis is linear within the margin and logarithmic
    beyond, so that effects of all sizes and units fit it.
    """
    figure = sheet(width, ROW * len(labels) + 1.1)
    axes = figure.subplots()
    axes.axvspan(-1, 1, color="0.9", linewidth=0, zorder=0)
    axes.axvline(0, color="0.3", linewidth=0.8)
    for place, (row, filled) in enumerate(zip(values, judged, strict=True)):
        effect, low, high, printed = row
        axes.plot([low, high], [place, place], color=OURS, linewidth=1.4)
        axes.plot(effect, place, "o", color=OURS, markersize=4.5, fillstyle="full" if filled else "none")
        axes.plot(printed, place, "D", color=PRINTED, markersize=4.5, fillstyle="none")
    axes.set_yticks(range(len(labels)), [wrapped(text, LABELS, 6.5) for text in labels], fontsize=6.5)
    axes.set_ylim(len(labels) - 0.4, -0.6)
    axes.set_xscale("symlog", linthresh=1.0)
    size = np.abs(values[np.isfinite(values)]).max(initial=1.0 / 1.3)
    most = max(1.5, 1.3 * size)
    finish(axes, "")
    axes.set_xticks([tick for tick in TICKS if abs(tick) <= most])
    axes.set_xticklabels([f"{tick:,}".replace("-", "−") for tick in TICKS if abs(tick) <= most], fontsize=7)
    axes.set_xlim(-most, most)
    figure.supxlabel(wrapped(label, width - 0.3, 7), fontsize=7)
    ours = Line2D([], [], color=OURS, marker="o", markersize=4.5, label="ours, with its interval")
    theirs = Line2D([], [], color=PRINTED, marker="D", markersize=4.5, linestyle="", fillstyle="none", label="printed")
    figure.legend(handles=[ours, theirs], frameon=False, fontsize=7, ncols=2, loc="outside upper center")
    return figure
