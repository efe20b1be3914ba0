"""HTML of results for notebooks, every text in it escaped."""

import base64
import html
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from matplotlib.figure import Figure

from icl_lab.base import markdown as md
from icl_lab.execute.arguments import checked
from icl_lab.figures.base import encode

if TYPE_CHECKING:
    from icl_lab.execute.study import Made

TABLE = "border-collapse:collapse;font-variant-numeric:tabular-nums"
CELL = "padding:2px 10px 2px 0;text-align:{};border:0"


class Written:
    """A result in a folder, as a command would have printed it."""

    made: "Made"

    @property
    def folder(self) -> Path:
        """The folder with the numbers, tables, figures and pages."""
        return self.made.folder

    @checked
    def page(self) -> "Page":
        """Return the page, which shows itself in a notebook."""
        return Page(self.folder / "report.html")

    def __str__(self) -> str:
        return self.made.text


@dataclass(frozen=True)
class Page:
    """A page that was written, and shows itself in Jupyter, marimo and VS Code in a frame."""

    path: Path
    height: int = 900

    @property
    def html(self) -> str:
        """The whole page: self-contained, without requests."""
        return self.path.read_text(encoding="utf-8")

    def __repr__(self) -> str:
        return f"<page {self.path}>"

    def _repr_html_(self) -> str:
        return frame(self.html, self.path.stem, self.height)


def frame(page: str, title: str, height: int) -> str:
    """Return a page in a frame, so that its styles, names and scripts meet no others of the notebook."""
    return (
        f'<iframe title="{html.escape(title)}" style="width:100%;height:{height}px;border:0" '
        f'srcdoc="{html.escape(page)}"></iframe>'
    )


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table whose first column holds names, the others numbers."""
    return (
        f'<table style="{TABLE}"><thead><tr>{_cells(head, "th")}</tr></thead><tbody>'
        + "".join(f"<tr>{_cells(row, 'td')}</tr>" for row in rows)
        + "</tbody></table>"
    )


def paragraph(text: str) -> str:
    """Return a text as a paragraph."""
    return f'<p style="margin:.3em 0">{html.escape(text)}</p>'


def picture(figure: Figure, alt: str) -> str:
    """Return a figure embedded in the notebook, without a file."""
    data = base64.b64encode(encode(figure, "png")).decode()
    width = round(72 * figure.get_figwidth())
    return f'<img alt="{html.escape(alt)}" style="max-width:100%;width:{width}px" src="data:image/png;base64,{data}">'


def of_markdown(text: str) -> str:
    """Return paragraphs, headings and tables of Markdown as HTML; everything in them is text."""
    made = list[str]()
    for each in md.blocks(text):
        if isinstance(each, list):
            made.append(table(each[0], each[1:]))
        elif each.startswith("#"):
            made.append(f'<p style="margin:.6em 0 .2em"><b>{html.escape(each.lstrip("# "))}</b></p>')
        elif each.strip():
            made.append(paragraph(each))
    return "".join(made)


def _cells(cells: Sequence[str], tag: str) -> str:
    return "".join(
        f'<{tag} style="{CELL.format("right" if place else "left")}">{_bold(cell)}</{tag}>'
        for place, cell in enumerate(cells)
    )


def _bold(cell: str) -> str:
    """A cell of Markdown: bold where it is, and without the marks of code."""
    text = html.escape(re.sub(r"^\*\*(.*)\*\*$", r"\1", cell).replace("`", ""))
    return f"<b>{text}</b>" if cell.startswith("**") and cell.endswith("**") and len(cell) > 4 else text
