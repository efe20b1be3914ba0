"""Every head a thin line."""

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.figure import Figure

from icl_lab.figures.base import DASHES, INKS, NAMES, finish

Line = Sequence[tuple[float, float]]


def curves(panels: Mapping[str, Mapping[str, Sequence[Line]]], *, title: str, trained: float) -> Figure:
    """Draws a panel for each metric over the keys n: heads thin, the median of a rule thick, training length dotted."""
    figure = Figure(figsize=(9.6, 3.1 * -(-len(panels) // 2) + 0.5), layout="constrained", dpi=150)
    figure.suptitle(title, fontsize=10)
    places = figure.subplots(-(-len(panels) // 2), 2, squeeze=False)
    for axes, (metric, rules) in zip(places.flat, panels.items(), strict=False):
        for number, (rule, lines) in enumerate(rules.items()):
            hue, dash = INKS[number % len(INKS)], DASHES[number // len(INKS) % len(DASHES)]
            for line in lines:
                axes.plot(*zip(*line, strict=True), color=hue, linewidth=0.5, alpha=0.25)
            keys = [n for n, _ in lines[0]]
            values = np.array([[value for _, value in line] for line in lines])
            axes.plot(keys, np.nanmedian(values, axis=0), color=hue, linestyle=dash, linewidth=2, label=rule)
        axes.axvline(trained, color="0.5", linestyle=":", linewidth=1)
        finish(axes, "xy" if "entropy /" not in metric and "temperature" not in metric else "x")
        axes.set(xlabel=NAMES["keys"], ylabel=metric)
    handles, names = places.flat[0].get_legend_handles_labels()
    figure.legend(handles, names, frameon=False, fontsize=8, loc="outside lower center", ncols=min(4, len(names)))
    return figure
