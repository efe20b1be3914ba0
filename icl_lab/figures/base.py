"""Style of figures, and their files. With its siblings the only importer of matplotlib."""

import io
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import LogNorm, Normalize
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from PIL import Image
from PIL.PngImagePlugin import PngInfo

from icl_lab.base.markdown import short as short

# Perceptually even, and readable without red-green vision.
MAP = "viridis"
NAMES = {
    "keys": "visible keys n",
    "gap": "gap between the largest score and the others",
    "z_max": "largest score (all others 0)",
    "x": "score x",
}
# For other things than normalizers (layers, laws, numbers of keys): Wong's colours, without the yellow that white paper
# swallows.
INKS = ("#000000", "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")
REFERENCE = "0.5"  # the grey of reference predictors, which no normalizer has

ORIGIN = "Source"  # a keyword of the PNG format

# No date inside, so that redrawing a stored grid does not look like a change.
UNDATED: dict[str, dict[str, None]] = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}

matplotlib.rcParams.update({"svg.hashsalt": "icl_lab", "svg.fonttype": "none", "font.size": 9, "axes.titlesize": 10})
matplotlib.rcParams.update({"pdf.fonttype": 42, "ps.fonttype": 42})  # TrueType inside: publishers refuse Type 3


def encode(figure: Figure, kind: str, drawn_from: str = "") -> bytes:
    """Return a figure as ``png``, ``svg`` or ``pdf``; the same figure gives the same bytes.

    ``drawn_from`` is kept in a png: see ``origin``.
    """
    with io.BytesIO() as file:
        if kind != "png":
            figure.savefig(file, format=kind, metadata=UNDATED[kind])
            return file.getvalue()
        # 256 colours are plenty for lines and maps, and a third of the bytes that a page carries. Other methods than
        # this one spend the colours on the rims of letters, and colour bars show steps.
        picture = pixels(figure).quantize(256, Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE)
        about = PngInfo()
        if drawn_from:
            about.add_text(ORIGIN, drawn_from)
        picture.save(file, "png", optimize=True, pnginfo=about)
        return file.getvalue()


def pixels(figure: Figure) -> Image.Image:
    """Draw a figure: what ``savefig`` would write, which lays it out twice and packs it once more."""
    before = figure.canvas
    canvas = FigureCanvasAgg(figure)
    try:
        canvas.draw()  # type: ignore[no-untyped-call]
        seen = canvas.buffer_rgba()  # type: ignore[no-untyped-call]
        return Image.fromarray(np.asarray(seen)).convert("RGB")
    finally:
        figure.set_canvas(before)


def origin(png: Path) -> str:
    """Return what a picture says it was drawn from; empty without a picture, or where it does not say."""
    if not png.exists():
        return ""
    with Image.open(png) as picture:
        return str(picture.info.get(ORIGIN, ""))


def color_scale(values: np.ndarray, log: bool, limits: tuple[float, float] | None = None) -> Normalize:
    """Return the colour scale of some values: logarithmic where ``log`` and where they span half a decade."""
    shown = values[np.isfinite(values) & ((values > 0) | (not log))]
    if limits is None:
        limits = (float(shown.min()), float(shown.max())) if shown.size else (0.0, 1.0)
    low, high = limits
    # A log scale with one value, or with less than half a decade, says less than a linear one.
    if log and low > 0 and high > 3 * low:
        return LogNorm(low, high)
    return Normalize(min(low, 0.0), high if high > low else low + 1.0)


def outline(axes: Axes, y: float, x: float, **look: Any) -> None:
    """Draw the edge, or the hatching, of a cell of a map."""
    axes.add_patch(Rectangle((x - 0.5, y - 0.5), 1, 1, fill=False, **look))


def write_numbers(
    axes: Axes,
    values: np.ndarray,
    scale: Normalize,
    size: float | None = None,
    write: Callable[[float], str] = short,
) -> None:
    """Write each number into its cell, in ink that can be read there, by default as ``short`` does."""
    size = size or (7.5 if values.shape[1] <= 12 else 6)
    for (y, x), value in np.ndenumerate(values):
        if math.isfinite(value):
            # Dark ink on the bright end of the map, light ink on the dark end.
            ink = "black" if float(np.ma.filled(scale(value), 0.0)) > 0.6 else "white"
            axes.text(x, y, write(value), ha="center", va="center", fontsize=size, color=ink)


def writer(log_scale: bool, rates: bool) -> Callable[[float], str]:
    """Number format of a task's errors: losses, which differ by hundredths, with three decimals."""
    return short if log_scale or rates else "{:.3f}".format
