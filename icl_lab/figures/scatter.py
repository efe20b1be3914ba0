"""Normalizers as points between scores."""

import math
from collections.abc import Mapping
from typing import NamedTuple

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from icl_lab.figures.axes import finish, log_ticks, sheet, wrapped
from icl_lab.figures.styles import Style, styles

Span = tuple[float, float, float]  # middle, low and high; the last two NaN without an interval


class Scale(NamedTuple):
    """Axis of a score: its label, and whether it spans decades; one that does not is a share, from 0 to 1."""

    label: str
    decades: bool


def pairs(points: Mapping[str, Mapping[str, Span]], scales: Mapping[str, Scale], *, title: str) -> Figure:
    """Draw each normalizer with its intervals, one panel per pair of scores; hollow where one seed has no interval.

    Panels form a triangle, with the names of the normalizers in the empty corner.
    """
    first, second, *more = scales
    rows, columns = [second, *more], [first, *reversed(more)]
    figure = sheet(4.6 * len(columns) + 0.6, 4 * len(rows) + 0.6, title)
    places = figure.subplots(len(rows), len(columns), squeeze=False, sharex="col", sharey="row")
    looks = styles(points)
    for row, down in enumerate(rows):
        for column, across in enumerate(columns):
            axes, lowest = places[row][column], len(columns) - 1 - column
            if row > lowest:
                axes.set_axis_off()
                continue
            for rule, spans in points.items():
                cross(axes, spans[across], spans[down], looks[rule])
            finish(axes, "")
            _scale(axes, "x", scales[across], 4.0 if row == lowest else 0)
            _scale(axes, "y", scales[down], 3.4 if column == 0 else 0)
            axes.tick_params(labelbottom=row == lowest)
    names = [
        Line2D([], [], linestyle="", color=looks[rule].color, marker=looks[rule].marker, label=rule)
        for rule in points
    ]  # fmt: skip
    places[-1][-1].legend(
        handles=names, loc="center", fontsize=9, frameon=False, title="hollow: one seed, no interval", title_fontsize=8
    )
    return figure


def cross(axes: Axes, across: Span, down: Span, look: Style) -> None:
    """Draw a point with its intervals across and down; hollow where it lacks one of them."""
    (x, left, right), (y, low, high) = across, down
    axes.plot([left, right], [y, y], color=look.color, linewidth=1, alpha=0.6)
    axes.plot([x, x], [low, high], color=look.color, linewidth=1, alpha=0.6)
    fill = "none" if math.isnan(left) or math.isnan(low) else "full"
    axes.plot(x, y, look.marker, color=look.color, markersize=6, fillstyle=fill)


def _scale(axes: Axes, side: str, scale: Scale, inches: float) -> None:
    """Set the scale of the axis x or y; its label, no longer than ``inches``, stands where there are any."""
    if scale.decades:
        axes.set(**{f"{side}scale": "log"})
        log_ticks(axes.xaxis if side == "x" else axes.yaxis)
    else:
        axes.set(**{f"{side}lim": (-0.03, 1.03)})
    if inches:
        axes.set(**{f"{side}label": wrapped(scale.label, inches, 8.5)})
