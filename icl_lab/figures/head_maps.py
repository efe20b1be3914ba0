"""One number of every head, layer by layer: one row per head, one column per condition."""

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.figure import Figure

from icl_lab.figures.axes import WIDE, panelled, wrapped
from icl_lab.figures.base import MAP, color_scale, write_numbers

READABLE = 16  # heads of a model whose numbers are written into their cells


def head_maps(
    panels: Mapping[str, np.ndarray],
    heads: Sequence[tuple[int, int]],
    across: Sequence[str],
    *,
    title: str,
    label: str,
    x: str,
    columns: int,
) -> Figure:
    """Draw an array (heads, conditions) for each name, ``columns`` of them in a row, all on one scale from 0 to 1.

    ``heads`` are (layer, head), in the order of the rows, the first at the top; a white line parts two layers.
    """
    small = len(heads) <= READABLE
    tall = max(1.2, (0.21 if small else 0.09) * len(heads) + 0.45)
    figure, places = panelled(len(panels), columns, (0, tall), (WIDE, 1.5), title)
    scale = color_scale(np.array([]), False, (0.0, 1.0))
    shown = [place for place, (_, head) in enumerate(heads) if small or head == 0]
    for number, (axes, (name, values)) in enumerate(zip(places, panels.items(), strict=True)):
        image = axes.imshow(values, cmap=MAP, norm=scale, aspect="auto")
        axes.set_title(wrapped(name, WIDE / columns - 0.6, 9), fontsize=9)
        bottom = number + columns >= len(panels)
        axes.set_xticks(range(len(across)), across if bottom else [], fontsize=7 if columns < 5 else 6)
        names = [f"{layer}.{head}" for layer, head in (heads[place] for place in shown)]
        axes.set_yticks(shown, names if number % columns == 0 else [], fontsize=7)
        axes.tick_params(length=0)
        for place in range(1, len(heads)):
            if heads[place][0] != heads[place - 1][0]:
                axes.axhline(place - 0.5, color="white", linewidth=1.5)
        if small and columns * len(across) <= 36:
            write_numbers(axes, values, scale, size=6, write="{:.2f}".format)  # a share: 1e-5 of it is none
    figure.supxlabel(x, fontsize=8)
    figure.supylabel("layer.head", fontsize=8)
    bar = figure.colorbar(image, ax=places, location="top", pad=0.02, aspect=50, shrink=0.6)
    bar.set_label(label, fontsize=8)
    bar.ax.tick_params(labelsize=7)
    return figure
