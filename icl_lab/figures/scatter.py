"""Rules as points between two scores."""

import math
from collections.abc import Mapping

from matplotlib.figure import Figure

from icl_lab.figures.axes import headline, log_ticks
from icl_lab.figures.styles import styles

Span = tuple[float, float, float]  # middle, low and high; the last two NaN where there is no interval


def scatter(points: Mapping[str, tuple[Span, Span, int]], *, across: str, down: str, title: str) -> Figure:
    """Draws each rule with its intervals, its name beside it; hollow where one seed has no interval.

    The better corner is below on the right: found more, erred less. ``down`` is on a logarithmic scale.
    """
    figure = Figure(figsize=(8.4, 5.6), layout="constrained", dpi=150)
    axes = figure.subplots()
    taken: list[tuple[float, float]] = []
    logs = [math.log(y) for _, (y, _, _), _ in points.values()]
    reach = max(max(logs) - min(logs), 0.1)
    looks = styles(points)
    for rule, ((x, left, right), (y, low, high), _) in points.items():
        hue = looks[rule].color
        if not math.isnan(left):
            axes.plot([max(left, 0), min(right, 1)], [y, y], color=hue, linewidth=1, alpha=0.6)
        if not math.isnan(low):
            axes.plot([x, x], [low, high], color=hue, linewidth=1, alpha=0.6)
        hollow = math.isnan(left) or math.isnan(low)
        axes.plot(x, y, looks[rule].marker, color=hue, markersize=6, fillstyle="none" if hollow else "full")
        # Names that would lie on one another climb.
        here = (x, math.log(y) / reach)
        lift = sum(abs(here[0] - other[0]) < 0.14 and abs(here[1] - other[1]) < 0.04 for other in taken)
        taken.append(here)
        axes.annotate(rule, (x, y), (7, 4 + 9 * lift), textcoords="offset points", fontsize=7.5, color=hue)
    axes.set(xlim=(-0.03, 1.15), yscale="log", xlabel=across, ylabel=down)
    log_ticks(axes.yaxis)
    headline(figure, title)
    axes.set_xticks([0, 0.2, 0.4, 0.6, 0.8, 1.0])
    axes.grid(alpha=0.3, which="both")
    axes.spines[["top", "right"]].set_visible(False)
    return figure
