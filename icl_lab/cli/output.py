"""Standard output: Markdown as it is where a program reads it, and tables of columns where a person does."""

import io
import os
import re
import shutil
import sys
from itertools import takewhile, zip_longest

import click

from icl_lab.base import markdown

GAP = 2  # spaces between columns


def out(text: str) -> None:
    """Print a text that may hold Markdown tables.

    Where nobody reads any more (``| head -1``) what follows goes nowhere, and the work that is left is done all the
    same.
    """
    if sys.stdout.isatty():
        text = rendered(text, shutil.get_terminal_size().columns)
    try:
        click.echo(text)
    except BrokenPipeError:
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115, PTH123


def rendered(text: str, width: int) -> str:
    """Return a text with its Markdown tables in columns of a terminal of this width, numbers to the right.

    Cells wrap where the terminal is narrow. Bold cells stay bold; no colour is used.
    """
    lines, made = text.split("\n"), list[str]()
    while lines:
        rows = list(takewhile(lambda line: line.startswith("| ") and line.endswith(" |"), lines))
        is_table = len(rows) > 1 and set(rows[1]) <= set("|-: ")
        made += _columns([markdown.cells(line) for line in rows], width) if is_table else rows or lines[:1]
        lines = lines[len(rows) or 1 :]
    return "\n".join(made)


def _columns(rows: list[list[str]], width: int) -> list[str]:
    from rich.console import Console  # takes long, and few commands print a table
    from rich.table import Table
    from rich.text import Text

    head, _, *body = rows
    table = Table(box=None, pad_edge=False, padding=(0, GAP, 0, 0), show_header=False)
    columns = list(zip_longest(*body, fillvalue="")) or [() for _ in head]
    widths = _widths([list(map(_shown, column)) for column in zip_longest(head, *body, fillvalue="")], width)
    for column, wide in zip(columns, widths, strict=False):
        to_right = any(column) and all(map(_numeric, column))
        table.add_column(justify="right" if to_right else "left", overflow="fold", width=wide)
    for number, row in enumerate([head, *body]):
        strong = [number == 0 or (cell.startswith("**") and cell.endswith("**")) for cell in row]
        shown = map(_shown, row)
        table.add_row(*(Text(cell, style="bold" if bold else "") for cell, bold in zip(shown, strong, strict=True)))
    file = io.StringIO()
    # Its own colours are for whole screens; here bold is all, which NO_COLOR allows.
    Console(file=file, width=width, force_terminal=True, color_system="standard", legacy_windows=False).print(table)
    return [line.rstrip() for line in file.getvalue().rstrip("\n").split("\n")]


def _widths(columns: list[list[str]], width: int) -> list[int | None]:
    """Widths that break no word: room goes to the column with most lines. None where even words do not fit."""
    least = [max((len(word) for cell in column for word in cell.split()), default=0) for column in columns]
    wanted = [max(map(len, column)) for column in columns]
    room = width - GAP * (len(columns) - 1) - sum(least)
    if room < 0:
        return [None] * len(columns)
    for _ in range(min(room, sum(wanted) - sum(least))):
        least[max(range(len(least)), key=lambda i: wanted[i] / max(least[i], 1))] += 1
    return [*least]


def _shown(cell: str) -> str:
    """A cell without marks of Markdown; a line may end after the prefix of a reference."""
    return cell.strip("*").replace("`", "").replace("reference:", "reference: ")


def _numeric(cell: str) -> bool:
    return not cell or re.match(r"[*`]*[-−+±<>x×]*(\d|nan|inf)", cell) is not None
