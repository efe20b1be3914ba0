"""One metric over two axes."""

from collections.abc import Mapping

from matplotlib.colors import LogNorm
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
    home: Mapping[str, float] | None = None,
) -> Figure:
    """Draws one metric, ``rows`` down and ``columns`` across, with its numbers where they fit.

    ``limits`` shares one colour scale between pictures; ``home`` marks the cell of training.
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
    if home is not None and home[columns] in table.columns and home[rows] in table.index:
        x, y = list(table.columns).index(home[columns]), list(table.index).index(home[rows])  # type: ignore[arg-type]
        axes.add_patch(Rectangle((x - 0.5, y - 0.5), 1, 1, fill=False, edgecolor="#d55e00", linewidth=2, zorder=3))
        axes.set_title(title + "\n(outlined: as in training)")
    return figure
