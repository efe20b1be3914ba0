"""Figures for print."""

from collections.abc import Callable

from matplotlib.figure import Figure

from icl_lab.errors import UnknownName
from icl_lab.figures.axes import WIDE

STYLES = ("screen", "paper")


def styled(figure: Figure, style: str, columns: int = 0) -> Figure:
    """Returns a figure in a style."""
    if style not in STYLES:
        raise UnknownName("style of figures", style, STYLES)
    return figure


def drawn(draw: Callable[[float], Figure], style: str, columns: int = 0) -> Figure:
    """Draws a figure in a style."""
    return styled(draw(WIDE), style, columns)
