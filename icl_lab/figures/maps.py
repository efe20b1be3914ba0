"""One metric over two axes."""

import math
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colorbar import Colorbar
from matplotlib.colors import LogNorm, TwoSlopeNorm
from matplotlib.figure import Figure
from matplotlib.image import AxesImage
from matplotlib.ticker import LogLocator

from icl_lab.base.grid import Grid
from icl_lab.figures.axes import WIDE, log_ticks, panelled, sheet, wrapped
from icl_lab.figures.base import MAP, color_scale, outline, short, write_numbers

Place = tuple[float, float]  # value down, value across
Map = Mapping[Place, Any]  # what stands there


def heat_map(
    grid: Grid,
    rows: str,
    columns: str,
    *,
    title: str,
    label: str,
    log: bool = False,
    training: Mapping[str, float] | None = None,
    names: Mapping[str, str] | None = None,
    lost: Collection[Place] = (),
) -> Figure:
    """Draw one metric, ``rows`` down and ``columns`` across, with its numbers where they fit.

    ``training`` marks the cell of training; ``names`` says what the axes are called. Cells that are ``lost`` are
    hatched as infinite ones are: some answers there were no finite numbers, and counted as wrong.
    """
    table, called = grid.table(rows, columns), names or {}
    values = table.to_numpy(dtype=float)
    height, width = values.shape
    figure = sheet(max(3.6, 0.52 * width + 2.2), max(2.6, 0.36 * height + 1.5))
    axes = figure.subplots()
    scale = color_scale(values, log)
    image = axes.imshow(values, cmap=MAP, norm=scale, aspect="auto", origin="lower")
    axes.set(xlabel=called.get(columns, columns), ylabel=called.get(rows, rows))
    outlined = training is not None and training[columns] in table.columns and training[rows] in table.index
    # The panel is narrower than the figure by its colour bar and the labels.
    axes.set_title(wrapped(title, figure.get_figwidth() - 1.0) + ("\n(outlined: as in training)" if outlined else ""))
    axes.set_xticks(range(width), [f"{value:g}" for value in table.columns])
    axes.set_yticks(range(height), [f"{value:g}" for value in table.index])
    axes.tick_params(length=0)
    bar = figure.colorbar(image, ax=axes, label=wrapped(label, max(2.0, figure.get_figheight() - 0.6), 9), pad=0.02)
    if isinstance(scale, LogNorm):
        bar.ax.yaxis.set_major_locator(LogLocator(numticks=6))
    hatch(axes, values, _array(dict.fromkeys(lost, 1.0), [*map(float, table.index)], [*map(float, table.columns)]))
    if width <= 20:
        write_numbers(axes, values, scale)
    if training is not None and outlined:
        x, y = list(table.columns).index(training[columns]), list(table.index).index(training[rows])  # type: ignore[arg-type]
        outline(axes, y, x, edgecolor="#d55e00", linewidth=2, zorder=3)
    return figure


def hatch(axes: Axes, values: np.ndarray, lost: np.ndarray) -> None:
    """Hatch the cells whose error is infinite, or of which ``lost`` is 1: answers there were no finite numbers."""
    for y, x in zip(*np.nonzero(np.isinf(values) | (lost == 1)), strict=True):
        outline(axes, y, x, hatch="xxxx", edgecolor="0.55", linewidth=0, zorder=1)


def side_by_side(
    tables: Mapping[str, Map],
    rows: str,
    columns: str,
    *,
    label: str,
    log: bool,
    width: float = WIDE,
    lost: Mapping[str, Collection[Place]] | None = None,
    outlined: Mapping[str, Place] | None = None,
    words: tuple[Mapping[float, str], Mapping[float, str]] = ({}, {}),
) -> Figure:
    """Draw a map for each name, all on one colour scale; ``rows`` and ``columns`` say what the axes are.

    ``lost`` holds for a name the cells that are hatched, as in ``heat_map``; ``outlined`` one that has a frame.
    ``words`` names the values down and across that are no numbers.
    """
    arrays = {name: _array(table) for name, table in tables.items()}
    scale = color_scale(np.concatenate([array.ravel() for array in arrays.values()]), log)
    figure, panels = _panels(arrays, tables, rows, columns, width, words)
    for axes, (name, array) in zip(panels, arrays.items(), strict=True):
        image = axes.imshow(array, cmap=MAP, norm=scale, aspect="auto", origin="lower")
        down, across = (sorted({where[side] for where in tables[name]}) for side in (0, 1))
        hatch(axes, array, _array(dict.fromkeys((lost or {}).get(name, ()), 1.0), down, across))
        write_numbers(axes, array, scale, size=6.5)
        if name in (outlined or {}):
            y, x = (outlined or {})[name]
            outline(axes, down.index(y), across.index(x), edgecolor="#d55e00", linewidth=2, zorder=3)
    bar = _bar(figure, panels, image, label)
    if isinstance(scale, LogNorm):
        log_ticks(bar.ax.xaxis if bar.orientation == "horizontal" else bar.ax.yaxis)
    return figure


def effects(
    tables: Mapping[str, Map],
    rows: str,
    columns: str,
    *,
    label: str,
    least: float = 0.0,
    ratio: bool = False,
    width: float = WIDE,
) -> Figure:
    """Draw a map for each name of effects around 0, one scale for all; cells that are not clear are hatched.

    ``tables`` holds (effect, clear) for each cell. The colours reach as far as the largest effect and at least to
    ``least``, so that effects of no account stay pale. With ``ratio`` effects are powers of two, and are written as the
    ratio.
    """
    arrays = {name: _array({where: cell[0] for where, cell in table.items()}) for name, table in tables.items()}
    # Effects that are infinite (a model without finite answers) take the ends of the scale, and do not set it.
    reach = max([1e-9, least, *(abs(v) for array in arrays.values() for v in array.ravel() if np.isfinite(v))])
    figure, panels = _panels(arrays, tables, rows, columns, width)
    for axes, (name, array) in zip(panels, arrays.items(), strict=True):
        image = axes.imshow(array, cmap="RdBu_r", norm=TwoSlopeNorm(0.0, -reach, reach), aspect="auto", origin="lower")
        clear = _array({where: float(cell[1]) for where, cell in tables[name].items()})
        for (y, x), value in np.ndenumerate(array):
            ink = "white" if abs(value) > 0.6 * reach else "black"
            words = _times(value) if ratio else f"{round(value, 2) + 0.0:+.2f}"
            axes.text(x, y, words, ha="center", va="center", fontsize=6.5, color=ink)
            if not clear[y, x]:
                outline(axes, y, x, hatch="////", edgecolor="0.35", linewidth=0, alpha=0.35)
    bar = _bar(figure, panels, image, label)
    if any(not clear for table in tables.values() for _, clear in table.values()):
        bar.set_label(f"{label}; hatched: not clear, p not below 0.05")  # a picture is shown without its caption too
    if ratio:
        bar.set_ticks(_ratios(reach), labels=[f"{2**power:.3g}" for power in _ratios(reach)])
    return figure


def _times(power: float) -> str:
    ratio = 2.0**power if power < 1000 else np.inf
    return f"{ratio:.2f}" if ratio < 9.95 else short(ratio)


def _ratios(reach: float) -> list[float]:
    """Round ratios between 1 / 2^reach and 2^reach, at most three on a side and none too near another, as powers of 2.

    >>> [round(2**power, 3) for power in _ratios(1.0)]
    [0.5, 0.667, 0.8, 1.0, 1.25, 1.5, 2.0]
    """
    chosen: list[float] = []
    for ratio in (1000, 300, 100, 30, 10, 5, 3, 2, 1.5, 1.25, 1.1):
        power = math.log2(ratio)
        near = [*chosen, 0.0]
        if power <= reach and len(chosen) < 3 and min(abs(power - other) for other in near) > 0.18 * reach:
            chosen.append(power)
    return sorted([0.0, *chosen, *(-power for power in chosen)])


def _array(
    table: Mapping[Place, float], down: Sequence[float] | None = None, across: Sequence[float] | None = None
) -> np.ndarray:
    down = sorted({where[0] for where in table}) if down is None else down
    across = sorted({where[1] for where in table}) if across is None else across
    return np.array([[table.get((y, x), np.nan) for x in across] for y in down], dtype=float)


def _panels(
    arrays: Mapping[str, np.ndarray],
    tables: Mapping[str, Map],
    rows: str,
    columns: str,
    width: float,
    words: tuple[Mapping[float, str], Mapping[float, str]] = ({}, {}),
) -> tuple[Figure, list[Axes]]:
    """A figure with a titled panel for each name, as many in a row as ``width`` has room for."""
    down, across = next(iter(arrays.values())).shape
    panel = 0.36 * across + 0.7
    columns_of = max(1, min(len(arrays), int((width - 0.4) // panel)))
    wide = min(width, max(3.2, columns_of * (0.42 * across + 0.9) + 1.0))
    titles = {name: wrapped(name, wide / columns_of - 0.6, 9) for name in arrays}
    most = max(title.count("\n") for title in titles.values())
    tall = max(0.3 * down, 0.75) + 0.4 + 0.15 * most
    figure, panels = panelled(len(arrays), columns_of, (0, tall), (wide, 1.1))
    for number, (axes, name) in enumerate(zip(panels, arrays, strict=True)):
        y, x = (sorted({where[side] for where in tables[name]}) for side in (0, 1))
        axes.set_title(titles[name], fontsize=9)
        last, first = number + columns_of >= len(arrays), number % columns_of == 0
        axes.set_xticks(range(across), [words[1].get(at, f"{at:g}") for at in x] if last else [], fontsize=7)
        axes.set_yticks(range(down), [words[0].get(at, f"{at:g}") for at in y] if first else [], fontsize=7)
        axes.tick_params(length=0)
    figure.supxlabel(columns, fontsize=8)
    figure.supylabel(rows, fontsize=8)
    return figure, panels


def _bar(figure: Figure, panels: list[Axes], image: AxesImage, label: str) -> Colorbar:
    """One colour bar for all panels: above them, where it costs no width."""
    bar = figure.colorbar(image, ax=panels, location="top", pad=0.02, fraction=0.05, aspect=40, shrink=0.8)
    bar.set_label(wrapped(label, figure.get_figwidth() - 0.5, 8), fontsize=8)
    bar.ax.tick_params(labelsize=7)
    return bar
