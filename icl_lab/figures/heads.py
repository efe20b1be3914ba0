"""Every head a thin line."""

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.figure import Figure

from icl_lab.figures.base import DASHES, INKS, finish

Line = Sequence[tuple[float, float]]


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

    ``scales`` names the logarithmic axes of a panel ("x" where it does not), ``limits`` its range, ``mark`` a place
    across that is dotted in all of them.
    """
    figure = Figure(figsize=(9.6, 3.0 * -(-len(panels) // 2) + 0.5), layout="constrained", dpi=150)
    figure.suptitle(title, fontsize=10)
    places = figure.subplots(-(-len(panels) // 2), 2, squeeze=False)
    for axes, (metric, rules) in zip(places.flat, panels.items(), strict=False):
        for number, (rule, lines) in enumerate(rules.items()):
            hue, dash = INKS[number % len(INKS)], DASHES[number // len(INKS) % len(DASHES)]
            for line in lines:
                axes.plot(*zip(*line, strict=True), color=hue, linewidth=0.5, alpha=0.3)
            where = [place for place, _ in lines[0]]
            values = np.array([[value for place, value in line if place in where] for line in lines])
            axes.plot(where, _middle(values), color=hue, linestyle=dash, linewidth=2, label=rule)
        if mark is not None:
            axes.axvline(mark, color="0.5", linestyle=":", linewidth=1)
        finish(axes, scales.get(metric, "x"), base)
        axes.set(xlabel=across, ylabel=metric)
        if limits and metric in limits:
            axes.set_ylim(*limits[metric])
    for axes in list(places.flat)[len(panels) :]:
        axes.set_visible(False)
    handles, names = places.flat[0].get_legend_handles_labels()
    figure.legend(handles, names, frameon=False, fontsize=8, loc="outside lower center", ncols=min(4, len(names)))
    return figure


def _middle(values: np.ndarray) -> list[float]:
    """The median of each column over what is known of it; NaN where nothing is."""
    known = [column[np.isfinite(column)] for column in values.T]
    return [float(np.median(column)) if len(column) else float("nan") for column in known]
