"""Figures for print: the width of a column, letters that can be read there, and no meaning in colour alone.

One column is 3.25 inches wide and two are 6.75, as in most two-column proceedings. Lines differ by dash and marker as
well as by colour, and bars by hatching, so that a grey copy says the same; maps are even in lightness (viridis) or
have their numbers written in. PDF files hold TrueType fonts (Type 42), never Type 3, which publishers refuse.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.text import Text

from icl_lab.base.errors import BadValue, UnknownName
from icl_lab.figures.axes import WIDE
from icl_lab.figures.base import encode
from icl_lab.figures.styles import DASHES, MARKERS

STYLES = ("screen", "paper")
WIDTHS = {1: 3.25, 2: 6.75}  # inches
NARROW_ENOUGH = 4.5  # inches on a screen: figures that are not wider fit one column
LEAST, MOST = 6.0, 9.0  # points of letters
HATCHES = ("", "////", "....", "xxxx", "\\\\\\\\", "----", "oo", "++")
FEW = 15  # points of a line: each gets its marker
SUFFIX = "-paper.pdf"
_wanted: ContextVar[bool] = ContextVar("figures for print as well", default=False)


class Shown(Figure):
    """A figure that shows itself in a notebook, also where nobody has imported pyplot."""

    def _repr_png_(self) -> tuple[bytes, dict[str, int]]:
        return encode(self, "png"), {"width": round(96 * self.get_figwidth())}


@contextmanager
def as_well() -> Iterator[None]:
    """Inside, whoever publishes figures publishes them for print as well, as ``NAME-paper.pdf``."""
    token = _wanted.set(True)
    try:
        yield
    finally:
        _wanted.reset(token)


def wanted() -> bool:
    """True if figures are published for print as well."""
    return _wanted.get()


def drawn(draw: Callable[[float], Figure], style: str, columns: int = 0) -> Figure:
    """Draw a figure of a given width: for a screen, or for ``columns`` of paper (two unless said)."""
    width = _width(style, columns or 2)
    return styled(draw(width or WIDE), style, columns or 2)


def styled(figure: Figure, style: str, columns: int = 0) -> Figure:
    """Return the figure, changed for print where ``style`` is ``paper``: one column wide if it is narrow, else two.

    Raises ``LabError`` on another style, and on a number of columns that is not 1 or 2.
    """
    figure.__class__ = Shown
    width = _width(style, columns or (1 if figure.get_figwidth() <= NARROW_ENOUGH else 2))
    if not width:
        return figure
    scale = width / figure.get_figwidth()
    figure.set_size_inches(width, figure.get_figheight() * max(scale, min(1.0, scale**0.6)))
    figure.set_dpi(300)
    for text in figure.findobj(Text):
        assert isinstance(text, Text)
        text.set_fontsize(min(MOST, max(LEAST, text.get_fontsize() * min(1.0, scale**0.6))))
    panels = [axes for axes in figure.axes if axes.get_label() != "<colorbar>"]
    if len(panels) == 1:  # the caption says it
        panels[0].set_title("")
        figure.suptitle("")
    _tell_apart(panels, figure)
    return figure


def _width(style: str, columns: int) -> float:
    """The width in inches; 0 for a screen, whose figures keep theirs."""
    if style not in STYLES:
        raise UnknownName("style of figures", style, STYLES)
    if columns not in WIDTHS:
        raise BadValue(f"columns must be 1 or 2, got {columns!r}.")
    return WIDTHS[columns] if style == "paper" else 0.0


def _tell_apart(panels: Sequence[Axes], figure: Figure) -> None:
    """Give each named colour of lines a distinct dash and marker, in legends too, and of bars a hatching."""
    legends = [legend for legend in (*figure.legends, *(axes.get_legend() for axes in panels)) if legend is not None]
    handles = [handle for legend in legends for handle in legend.legend_handles]
    lines = [line for axes in panels for line in axes.lines if _is_curve(line)]
    named = [line for line in lines if not str(line.get_label()).startswith("_")]
    # Black stays solid: it is the baseline in most figures.
    colors = sorted(dict.fromkeys(map(_color, named)), key=lambda color: color != "#000000")
    if len(colors) > 1:
        for line in [*lines, *(handle for handle in handles if isinstance(handle, Line2D))]:
            if _color(line) in colors:
                _restyle(line, colors.index(_color(line)), marked=line in named or line in handles)
    bars = [bar for axes in panels for box in axes.containers for bar in box if isinstance(bar, Patch)]
    faces = list(dict.fromkeys(to_hex(bar.get_facecolor()) for bar in bars))
    if len(faces) > 1:
        for bar in [*bars, *(handle for handle in handles if isinstance(handle, Patch))]:
            if (face := to_hex(bar.get_facecolor())) in faces:
                bar.set_hatch(HATCHES[faces.index(face) % len(HATCHES)])


def _restyle(line: Line2D, place: int, marked: bool) -> None:
    line.set_linestyle(DASHES[place % len(DASHES)])  # type: ignore[arg-type]
    if marked and line.get_marker() in ("None", None, "", " "):
        many = np.size(line.get_xdata())
        line.set_marker(MARKERS[place % len(MARKERS)])
        line.set_markersize(3)
        line.set_markevery(1 if many <= FEW else (place * many // 40, many // 8))


def _is_curve(line: Line2D) -> bool:
    """True if a line shows numbers by a solid colour; grey or dashed lines are distinct without it."""
    red, green, blue = (int(_color(line)[at : at + 2], 16) for at in (1, 3, 5))
    x, y = np.asarray(line.get_xdata(), float), np.asarray(line.get_ydata(), float)
    straight = len(x) < 2 or np.ptp(x) == 0 or (len(x) == 2 and np.ptp(y) == 0)
    return line.get_linestyle() == "-" and (not red == green == blue or red == 0) and not straight


def _color(line: Line2D) -> str:
    return str(to_hex(line.get_color()))
