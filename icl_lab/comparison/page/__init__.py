"""A comparison in words and pictures: tables, figures, and one page that holds them all."""

from icl_lab.comparison.page.facts import Facts, facts_of
from icl_lab.comparison.page.figures import Picture, pictures
from icl_lab.comparison.page.html import html, render
from icl_lab.comparison.page.tables import (
    Row,
    Section,
    Table,
    brief,
    divergences,
    markdown,
    markdown_rows,
    table,
    tuning,
)
from icl_lab.comparison.page.words import finding

__all__ = [
    "Facts",
    "Picture",
    "Row",
    "Section",
    "Table",
    "brief",
    "divergences",
    "facts_of",
    "finding",
    "html",
    "markdown",
    "markdown_rows",
    "pictures",
    "render",
    "table",
    "tuning",
]
