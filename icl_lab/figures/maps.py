"""One metric over two axes."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib.colors import LogNorm, TwoSlopeNorm
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.ticker import LogLocator

from icl_lab.figures.base import MAP, NAMES, color_scale, write_numbers
from icl_lab.grid import Grid


def heat_map(
    grid: Grid,
    rows: str,
    columns: str,
    *,
    title: str,
    label: str,
    log: bool = False,
    limits: tuple[float, float] | None = None,
    training: Mapping[str, float] | None = None,
) -> Figure:
    """Draws one metric, ``rows`` down and ``columns`` across, with its numbers where they fit.

    ``limits`` shares one colour scale between pictures; ``training`` marks the cell of training.
    """
    table = grid.table(rows, columns)
    values = table.to_numpy(dtype=float)
    height, width = values.shape
    figure = Figure(
        figsize=(max(3.6, 0.52 * width + 2.2), max(2.6, 0.36 * height + 1.5)), layout="constrained", dpi=150
    )
    axes = figure.subplots()
    scale = color_scale(values, log, limits)
    image = axes.imshow(values, cmap=MAP, norm=scale, aspect="auto", origin="lower")
    axes.set(xlabel=NAMES.get(columns, columns), ylabel=NAMES.get(rows, rows), title=title)
    axes.set_xticks(range(width), [f"{value:g}" for value in table.columns])
    axes.set_yticks(range(height), [f"{value:g}" for value in table.index])
    axes.tick_params(length=0)
    bar = figure.colorbar(image, ax=axes, label=label, pad=0.02)
    if isinstance(scale, LogNorm):
        bar.ax.yaxis.set_major_locator(LogLocator(numticks=6))
    if width <= 20:
        write_numbers(axes, values, scale)
    if training is not None and training[columns] in table.columns and training[rows] in table.index:
        x, y = list(table.columns).index(training[columns]), list(table.index).index(training[rows])  # type: ignore[arg-type]
        axes.add_patch(Rectangle((x - 0.5, y - 0.5), 1, 1, fill=False, edgecolor="#d55e00", linewidth=2, zorder=3))
        axes.set_title(title + "\n(outlined: as in training)")
    return figure


Map = Mapping[tuple[float, float], Any]  # (value down, value across) -> what stands there


def side_by_side(tables: Mapping[str, Map], rows: str, columns: str, *, label: str, log: bool) -> Figure:
    """Draws a map for each name, all on one colour scale."""
    arrays = {name: _array(table) for name, table in tables.items()}
    scale = color_scale(np.concatenate([array.ravel() for array in arrays.values()]), log, None)
    figure, panels = _panels(arrays, tables, rows, columns)
    for axes, array in zip(panels, arrays.values(), strict=True):
        image = axes.imshow(array, cmap=MAP, norm=scale, aspect="auto", origin="lower")
        write_numbers(axes, array, scale, size=6.5)
    figure.colorbar(image, ax=list(panels), label=label, pad=0.01)
    return figure


def effects(tables: Mapping[str, Map], rows: str, columns: str, *, label: str) -> Figure:
    """Draws a map for each name of effects around 0, one scale for all; cells that are not clear are hatched.

    ``tables`` holds (effect, clear) for each cell.
    """
    arrays = {name: _array({where: cell[0] for where, cell in table.items()}) for name, table in tables.items()}
    reach = max(1e-9, max(float(np.nanmax(np.abs(array))) for array in arrays.values()))
    figure, panels = _panels(arrays, tables, rows, columns)
    for axes, (name, array) in zip(panels, arrays.items(), strict=True):
        image = axes.imshow(array, cmap="RdBu_r", norm=TwoSlopeNorm(0.0, -reach, reach), aspect="auto", origin="lower")
        clear = _array({where: float(cell[1]) for where, cell in tables[name].items()})
        for (y, x), value in np.ndenumerate(array):
            ink = "white" if abs(value) > 0.6 * reach else "black"
            axes.text(x, y, f"{round(value, 2) + 0.0:+.2f}", ha="center", va="center", fontsize=6.5, color=ink)
            if not clear[y, x]:
                axes.add_patch(
                    Rectangle(
                        (x - 0.5, y - 0.5), 1, 1, fill=False, hatch="////", edgecolor="0.35", linewidth=0, alpha=0.35
                    )
                )
    figure.colorbar(image, ax=list(panels), label=label, pad=0.01)
    return figure


def _array(table: Mapping[tuple[float, float], float]) -> np.ndarray:
    down, across = (sorted({where[side] for where in table}) for side in (0, 1))
    return np.array([[table.get((y, x), np.nan) for x in across] for y in down], dtype=float)


def _panels(arrays: Mapping[str, np.ndarray], tables: Mapping[str, Map], rows: str, columns: str) -> tuple[Figure, Any]:
    """A figure with a titled panel for each name, two in a row."""
    height, width = next(iter(arrays.values())).shape
    lines = -(-len(arrays) // 2)
    size = (2 * (0.42 * width + 0.9) + 1.2, lines * (0.3 * height + 1.0) + 0.4)
    figure = Figure(figsize=(max(6.0, size[0]), max(2.4, size[1])), layout="constrained", dpi=150)
    grid = figure.subplots(lines, 2, squeeze=False)
    panels = list(grid.flat)
    for axes in panels[len(arrays) :]:
        axes.set_visible(False)
    for number, (axes, name) in enumerate(zip(panels, arrays, strict=False)):
        down, across = (sorted({where[side] for where in tables[name]}) for side in (0, 1))
        axes.set_title(name)
        axes.set_xticks(range(width), [f"{value:g}" for value in across])
        axes.set_yticks(range(height), [f"{value:g}" for value in down])
        axes.tick_params(length=0)
        if number + 2 >= len(arrays):
            axes.set_xlabel(NAMES.get(columns, columns))
        if number % 2 == 0:
            axes.set_ylabel(NAMES.get(rows, rows))
    return figure, panels[: len(arrays)]
