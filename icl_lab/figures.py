"""Grids to pictures. The only door to matplotlib; nothing here computes, so a stored CSV can be redrawn anywhere."""

import io
import math
from collections.abc import Mapping, Sequence

import matplotlib
import numpy as np
from matplotlib.colors import LogNorm, Normalize
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.ticker import LogLocator

from icl_lab.grid import Grid

# Perceptually even, and readable without red-green vision.
MAP = "viridis"
NAMES = {"sigma_x": "σ of inputs", "sigma_f": "σ of functions", "sigma": "σ of numbers", "length": "examples"}

matplotlib.rcParams.update({"svg.hashsalt": "icl_lab", "svg.fonttype": "none", "font.size": 9, "axes.titlesize": 10})


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
    figure = Figure(figsize=(max(3.6, 0.52 * width + 2.2), max(2.6, 0.36 * height + 1.5)), layout="constrained", dpi=150)
    axes = figure.subplots()
    scale = _scale(values, log, limits)
    image = axes.imshow(values, cmap=MAP, norm=scale, aspect="auto", origin="lower")
    axes.set(xlabel=NAMES.get(columns, columns), ylabel=NAMES.get(rows, rows), title=title)
    axes.set_xticks(range(width), [f"{value:g}" for value in table.columns])
    axes.set_yticks(range(height), [f"{value:g}" for value in table.index])
    axes.tick_params(length=0)
    bar = figure.colorbar(image, ax=axes, label=label, pad=0.02)
    if isinstance(scale, LogNorm):
        bar.ax.yaxis.set_major_locator(LogLocator(numticks=6))
    if width <= 20:
        _write_numbers(axes, values, scale)
    if home is not None and home[columns] in table.columns and home[rows] in table.index:
        x, y = list(table.columns).index(home[columns]), list(table.index).index(home[rows])
        axes.add_patch(Rectangle((x - 0.5, y - 0.5), 1, 1, fill=False, edgecolor="#d55e00", linewidth=2, zorder=3))
        axes.set_title(title + "\n(outlined: as in training)")
    return figure


def learning_curve(histories: Mapping[str, Sequence[Mapping[str, float]]], *, title: str, label: str) -> Figure:
    """Draws the training loss, on a logarithmic scale, and the length of the prompts below it."""
    figure = Figure(figsize=(6, 4), layout="constrained", dpi=150)
    loss, length = figure.subplots(2, sharex=True, height_ratios=(4, 1))
    for name, rows in histories.items():
        steps = [row["step"] for row in rows]
        loss.plot(steps, [row["loss"] for row in rows], linewidth=1, label=name)
        length.plot(steps, [row["length"] for row in rows], linewidth=1)
    loss.set(yscale="log", ylabel=label, title=title)
    loss.grid(alpha=0.3)
    if len(histories) > 1:
        loss.legend(frameon=False)
    length.set(xlabel="step", ylabel="examples")
    length.grid(alpha=0.3)
    return figure


def encode(figure: Figure, kind: str) -> bytes:
    """Returns a figure as ``png``, ``svg`` or ``pdf``; the same figure gives the same bytes."""
    with io.BytesIO() as file:
        # No date inside, so that redrawing a stored grid does not look like a change.
        figure.savefig(file, format=kind, metadata={"Date": None} if kind == "svg" else {})
        return file.getvalue()


def _scale(values: np.ndarray, log: bool, limits: tuple[float, float] | None) -> Normalize:
    shown = values[np.isfinite(values) & ((values > 0) | (not log))]
    if limits is None:
        limits = (float(shown.min()), float(shown.max())) if shown.size else (0.0, 1.0)
    low, high = limits
    # A log scale with one value, or with less than half a decade, says less than a linear one.
    if log and low > 0 and high > 3 * low:
        return LogNorm(low, high)
    return Normalize(min(low, 0.0), high if high > low else low + 1.0)


def _write_numbers(axes: matplotlib.axes.Axes, values: np.ndarray, scale: Normalize) -> None:
    size = 7.5 if values.shape[1] <= 12 else 6
    for (y, x), value in np.ndenumerate(values):
        if math.isfinite(value):
            # Dark ink on the bright end of the map, light ink on the dark end.
            ink = "black" if float(np.ma.filled(scale(value), 0.0)) > 0.6 else "white"
            axes.text(x, y, short(value), ha="center", va="center", fontsize=size, color=ink)


def short(value: float) -> str:
    """Two digits that fit a cell: 0.0083, 0.12, 3.4, 56, 1.2k."""
    size = abs(value)
    if value == 0 or 0.01 <= size < 0.995:
        return f"{value:.2g}"
    if size < 0.01:
        return f"{value:.1e}".replace("e-0", "e-").replace("e-", "e−")
    return f"{value:.1f}" if size < 9.95 else f"{value:.0f}" if size < 999.5 else f"{value / 1000:.1f}k"
