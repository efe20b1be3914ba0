"""Attention maps for print: every layer and head of each run."""

from collections.abc import Mapping, Sequence

import matplotlib
import numpy as np
from matplotlib.colors import Normalize, TwoSlopeNorm
from matplotlib.figure import Figure

from icl_lab.figures.axes import sheet, wrapped
from icl_lab.figures.base import MAP

SIGNED = "RdBu_r"  # as the maps of effects: blue below 0, red above


def attention(
    runs: Mapping[str, np.ndarray],
    labels: Sequence[str],
    layers: Sequence[int],
    heads: Sequence[int],
    *,
    title: str,
    notes: Sequence[str] = (),
    full: bool = False,
) -> Figure:
    """Draw weights (l h r t) of each run, queries down and keys across; rows are the last queries.

    One colour scale for all. Keys that a query does not see are hatched, later ones unless ``full``; a weight that is
    exactly 0 is marked by a dot.
    """
    l, h, r, t = next(iter(runs.values())).shape
    hidden = np.triu(np.full((r, t), not full), t - r + 1)
    scale, signed = _scale(runs)
    side = min(2.4, max(1.5, 0.17 * t))
    named = t <= 16  # beyond that the words would be smaller than print allows
    titles = {
        (name, at, to): wrapped(f"{name}, layer {layers[at]}, head {heads[to]}", side, 7)
        for name in runs
        for at, to in np.ndindex(l, h)
    }
    most = max(words.count("\n") for words in titles.values())  # lines of a title beyond its first
    rows = len(runs) * l
    wide = h * side + (1.6 if named else 1.0) + 0.9
    tall = rows * (side * max(0.4, r / t) + 0.12 * most) + 1.7 + 0.15 * len(notes) + 0.2 * l
    figure = sheet(wide, tall, "\n".join([title, *notes]), 9)
    places = figure.subplots(rows, h, squeeze=False)
    shown = list(range(t)) if named else [*range(0, t, -(-t // 8))]
    image = None
    for number, (name, weights) in enumerate(runs.items()):
        for at, to in np.ndindex(l, h):
            axes = places[number * l + at, to]
            axes.set_facecolor("0.92")
            axes.patch.set(hatch="////", edgecolor="0.75", linewidth=0)
            values = np.where(hidden, np.nan, weights[at, to])
            image = axes.imshow(values, cmap=SIGNED if signed else MAP, norm=scale, interpolation="nearest")
            zeros = np.argwhere((values == 0) & ~hidden)
            if len(zeros):
                axes.scatter(zeros[:, 1], zeros[:, 0], s=max(0.5, 40 / t), c="black" if signed else "white", marker=".")
            axes.set_title(titles[name, at, to], fontsize=7)
            below, left = number * l + at == rows - 1, to == 0
            axes.set_xticks(shown, [labels[key] for key in shown] if below else [], fontsize=6.5, rotation=90)
            down = [key for key in shown if key >= t - r]
            words = [labels[key] for key in down] if left else []
            axes.set_yticks([key - (t - r) for key in down], words, fontsize=6.5)
            axes.tick_params(length=2 if below or left else 0)
    if image is not None:
        figure.colorbar(image, ax=list(places.flat), label="attention weight", pad=0.01, shrink=0.8)
    figure.supxlabel("key", fontsize=8)
    figure.supylabel("query", fontsize=8)
    return figure


def over_image(
    image: np.ndarray,
    runs: Mapping[str, np.ndarray],
    layers: Sequence[int],
    heads: Sequence[int],
    *,
    title: str,
    notes: Sequence[str] = (),
) -> Figure:
    """Draw one query's weights (l h rows columns) on the patches of an image (h w c) over it, next to the image.

    One colour scale for all.
    """
    l, h, rows, columns = next(iter(runs.values())).shape
    scale, signed = _scale(runs)
    low, high = float(image.min()), float(image.max())
    shown = (image - low) / max(high - low, 1e-9)
    shown = shown if image.shape[2] == 3 else np.repeat(shown.mean(2, keepdims=True), 3, 2)
    figure = sheet(1.5 * (h + 1) + 0.9, 1.75 * len(runs) * l + 1.0, "\n".join([title, *notes]), 9)
    places = figure.subplots(len(runs) * l, h + 1, squeeze=False)
    drawn = None
    for number, (name, weights) in enumerate(runs.items()):
        for at, to in np.ndindex(l, h + 1):
            axes = places[number * l + at, to]
            axes.set_axis_off()
            axes.imshow(shown, extent=(0, columns, rows, 0))
            words = f"{name}, layer {layers[at]}"
            if to:
                words += f", head {heads[to - 1]}"
                drawn = axes.imshow(weights[at, to - 1], cmap=SIGNED if signed else MAP, norm=scale, alpha=0.7,
                                    extent=(0, columns, rows, 0))  # fmt: skip
            axes.set_title(wrapped(words if to else "the image", 1.5, 7), fontsize=7)
    if drawn is not None:
        figure.colorbar(drawn, ax=list(places.flat), label="attention weight", pad=0.01, shrink=0.8)
    return figure


def _scale(runs: Mapping[str, np.ndarray]) -> tuple[Normalize, bool]:
    """Colour scale of the weights of all runs, and whether any is negative: then 0 is in its middle."""
    top = max(1e-9, max(float(np.nanmax(np.abs(weights))) for weights in runs.values()))
    signed = any((weights < 0).any() for weights in runs.values())
    return TwoSlopeNorm(0.0, -top, top) if signed else Normalize(0.0, top), signed


def ramps() -> dict[str, bytes]:
    """Return the colour maps of the figures as 256 RGB triples each, so that a page shows the same colours."""
    steps = np.linspace(0, 1, 256)
    return {
        name: (matplotlib.colormaps[colors](steps)[:, :3] * 255).round().astype(np.uint8).tobytes()
        for name, colors in (("plain", MAP), ("signed", SIGNED))
    }
