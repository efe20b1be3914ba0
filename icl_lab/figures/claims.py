"""Claims of a paper as a forest: each effect with its interval, and the printed effect beside it."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from icl_lab.figures.axes import finish, sheet, wrapped

OURS, PRINTED = "#0072b2", "#d55e00"
LABELS = 3.1  # inches for the statements
ROW = 0.3  # inches
TICKS = (-1000, -100, -10, -1, 0, 1, 10, 100, 1000)


@dataclass(frozen=True, kw_only=True)
class ClaimRow:
    """One claim: its effect with an interval, and the printed effect (NaN: unknown), all in units of its margin."""

    label: str
    effect: float
    low: float
    high: float
    printed: float = math.nan
    judged: bool = True


def forest(rows: Sequence[ClaimRow], *, label: str, width: float) -> Figure:
    """Draws one row a claim, from above; hollow where the claim is not judged.

    The axis is linear within the margin and logarithmic beyond, so that effects of all sizes and units fit it.
    """
    figure = sheet(width, ROW * len(rows) + 1.1)
    axes = figure.subplots()
    axes.axvspan(-1, 1, color="0.9", linewidth=0, zorder=0)
    axes.axvline(0, color="0.3", linewidth=0.8)
    for place, row in enumerate(rows):
        axes.plot([row.low, row.high], [place, place], color=OURS, linewidth=1.4)
        axes.plot(row.effect, place, "o", color=OURS, markersize=4.5, fillstyle="full" if row.judged else "none")
        axes.plot(row.printed, place, "D", color=PRINTED, markersize=4.5, fillstyle="none")
    axes.set_yticks(range(len(rows)), [wrapped(row.label, LABELS, 6.5) for row in rows], fontsize=6.5)
    axes.set_ylim(len(rows) - 0.4, -0.6)
    axes.set_xscale("symlog", linthresh=1.0)
    size = max((abs(v) for row in rows for v in (row.effect, row.low, row.high, row.printed) if math.isfinite(v)),
               default=1.0)  # fmt: skip
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
