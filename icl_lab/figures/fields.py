"""Errors over fields of the specification: a curve over one field, a map over two."""

import math
from collections.abc import Mapping, Sequence

from matplotlib.figure import Figure

from icl_lab.figures.axes import finish, laid_out, legend, remark, sheet, ticks
from icl_lab.figures.styles import styles

Points = Mapping[float, Sequence[float]]  # errors of the seeds at each value of a field


def over_field(
    panels: Mapping[str, Mapping[str, Points]],
    *,
    axis: str,
    label: str,
    title: str,
    log: bool,
    geometric: bool = True,
    marks: Mapping[str, Mapping[str, float]] | None = None,
) -> Figure:
    """Draw mean errors over a field, a panel a name, a line a normalizer, a dot a seed.

    ``marks`` holds, by panel and normalizer, the value whose point gets a ring: the best. Seeds without a finite error
    are crosses at the upper edge.
    """
    figure = sheet(max(5.0, 3.6 * len(panels) + 1.6), 4.2, title)
    places = laid_out(figure, len(panels), min(3, len(panels)), sharey=True)
    looks = styles(dict.fromkeys(rule for lines in panels.values() for rule in lines))
    for axes, (name, lines) in zip(places, panels.items(), strict=True):
        where = sorted({value for points in lines.values() for value in points})
        lost = list[tuple[float, str]]()
        for rule, points in lines.items():
            look, kept = looks[rule], {x: [v for v in points[x] if math.isfinite(v)] for x in sorted(points)}
            means = {x: _mean(values, log) for x, values in kept.items() if values and len(values) == len(points[x])}
            axes.plot(list(means), list(means.values()), linewidth=1.6, markersize=4, label=rule, **look.dotted)
            for x, values in kept.items():
                axes.plot([x] * len(values), values, ".", color=look.color, markersize=3)
                lost += [(x, look.color)] * (len(values) < len(points[x]))
            best = ((marks or {}).get(name) or {}).get(rule)
            if best in means:
                axes.plot([best], [means[best]], "o", markersize=10, markerfacecolor="none", color=look.color)
        if not any(line.get_xdata().size for line in axes.lines):  # type: ignore[union-attr]
            remark(axes, "every training diverged")
        for number, (x, color) in enumerate(lost):
            axes.plot([x], [0.985 - 0.03 * (number % 3)], "x", color=color, transform=axes.get_xaxis_transform())
        axes.set(xlabel=axis, ylabel=label if axes is places[0] else "", title=name)
        finish(axes, ("x" if geometric else "") + ("y" if log else ""))
        ticks(axes.xaxis, where)
    legend(figure, places[0], size=8)
    return figure


def _mean(values: Sequence[float], log: bool) -> float:
    if log and min(values) > 0:
        return math.exp(sum(map(math.log, values)) / len(values))
    return sum(values) / len(values)
