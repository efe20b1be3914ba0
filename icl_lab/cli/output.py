"""Standard output: Markdown as it is where a program reads it, and tables of columns where a person does."""

import io
import os
import re
import shutil
import sys
import textwrap
from collections.abc import Sequence
from itertools import zip_longest

import click

from icl_lab.base import markdown
from icl_lab.execute.progress import above_bars

GAP = 2  # spaces between columns
NARROW = 12  # letters that a column of words has at least
LEAST = 3  # of columns alike: both ends and the middle
# Lines with paths and commands to be copied.
VERBATIM = ("next:", "wrote ", "figure: ", "heat map: ", "would write ", "Made by ")
# Spaces at which no line ends: those of an interval, of a spread and of a share.
WITHIN = re.compile(r"(?<=\d) (?=\[[-−+\d])|(?<=,) (?=[^\s\[\]]+\])|(?<=\d) (?=[±%])|(?<=±) ")
TIED = "\xa0"  # that space, while lines are broken


def out(text: str, whole: str = "on a wider terminal", *, prose: bool = False) -> None:
    """Print a text that may hold Markdown tables; ``whole`` names the file with the columns that do not fit.

    Sentences beside a table, and those of ``prose``, wrap between words; what may be copied as it is does not.

    Where nobody reads any more (``| head -1``) what follows goes nowhere, and the work that is left is done all the
    same.
    """
    if sys.stdout.isatty():
        text = rendered(text, shutil.get_terminal_size().columns, whole, prose=prose)
    try:
        with above_bars():
            click.echo(text)
    except BrokenPipeError:
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115, PTH123


def rendered(text: str, width: int, whole: str = "on a wider terminal", *, prose: bool = False) -> str:
    """Return a text for a terminal of this width: Markdown tables in columns, numbers to the right, no word broken.

    Where not all columns fit, those between both ends and the middle are left out and counted. Bold cells stay bold;
    no colour is used.
    """
    blocks = list(markdown.blocks(text))
    prose = prose or any(isinstance(each, list) for each in blocks)
    made = list[str]()
    for each in blocks:
        if isinstance(each, list):
            made += _columns(each, width, whole)
        else:
            made += _sentence(each, width) if prose else [each]
    return "\n".join(made).replace(TIED, " ")


def _sentence(line: str, width: int) -> list[str]:
    if len(line) <= width or line.startswith(VERBATIM):
        return [line]
    indent = " " * (len(line) - len(line.lstrip()) + 4 * ("  " in line.strip()))  # a row of a list hangs
    return _wrapped(WITHIN.sub(TIED, line), width, indent)


def _wrapped(text: str, width: int, indent: str = "") -> list[str]:
    return textwrap.wrap(text, width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)


def _columns(rows: list[list[str]], width: int, whole: str) -> list[str]:
    from rich.console import Console  # takes long, and few commands print a table
    from rich.table import Table
    from rich.text import Text

    head, *body = rows
    columns = [[head, *cells] for head, *cells in zip_longest(head, *body, fillvalue="")]
    to_right = [any(cells) and all(map(_numeric, cells)) for _, *cells in columns]
    line = _line([name for name, *_ in columns])
    for tied in (True, False):
        shown = [[WITHIN.sub(TIED, _shown(cell)) if tied else _shown(cell) for cell in column] for column in columns]
        least = [_least(column, tied and not (number or line)) for column, number in zip(shown, to_right, strict=True)]
        kept = _fitting(line, least, width)
        if line or len(kept) == len(columns):
            break
    widths = _widths([shown[place] for place in kept], [least[place] for place in kept], width)

    table = Table(box=None, pad_edge=False, padding=(0, GAP, 0, 0), show_header=False)
    for place, wide in zip(kept, widths, strict=True):
        table.add_column(justify="right" if to_right[place] else "left", overflow="fold", width=wide)
    for number in range(len(body) + 1):
        cells = ["\n".join(_wrapped(shown[place][number], wide)) for place, wide in zip(kept, widths, strict=True)]
        strong = [number == 0 or columns[place][number].startswith("**") for place in kept]
        table.add_row(
            *(Text(cell, style="bold" if cell and bold else "") for cell, bold in zip(cells, strong, strict=True))
        )
    file = io.StringIO()
    # Its own colours are for whole screens; here bold is all, which NO_COLOR allows.
    Console(file=file, width=width, force_terminal=True, color_system="standard", legacy_windows=False).print(table)
    lines = [line.rstrip() for line in file.getvalue().rstrip("\n").split("\n")]
    lost = len(columns) - len(kept)
    return [*lines, f"{lost} more column{'s' * (lost > 1)} {whole}"] if lost else lines


def _least(column: list[str], wide: bool) -> int:
    """The least width in which no word is broken, or, of a ``wide`` column, in which words are read with ease."""
    longest = max((len(word) for cell in column for word in cell.split(" ")), default=0)
    return max(longest, min(NARROW, max(map(len, column)))) if wide else longest


def _line(heads: Sequence[str]) -> list[int]:
    """Places of the columns whose heads begin alike (sigma_f 1, sigma_f 2), where they are a few at least."""
    groups = dict[str, list[int]]()
    for place, head in enumerate(heads[1:], 1):
        groups.setdefault(head.rstrip("0123456789."), []).append(place)
    alike = max(groups.values(), key=len, default=[])
    return alike if len(alike) >= LEAST else []


def _fitting(line: Sequence[int], least: Sequence[int], width: int) -> list[int]:
    """Indices of the columns that fit: the ends and the middle first, then their neighbours."""
    others = [place for place in range(1, len(least)) if place not in line]
    fewest = min(len(line), LEAST)
    choices = [(count, len(others)) for count in range(len(line), fewest - 1, -1)]
    choices += [(fewest, count) for count in range(len(others) - 1, -1, -1)]
    choices += [(count, 0) for count in range(fewest - 1, 0, -1)]
    kept = list[int]()
    for some, beside in choices:
        spread = {line[round(n * (len(line) - 1) / max(some - 1, 1))] for n in range(some)}
        kept = sorted({0, *spread, *others[:beside]})
        if sum(least[place] + GAP for place in kept) - GAP <= width:
            break
    return kept


def _widths(columns: list[list[str]], least: list[int], width: int) -> list[int]:
    """Widths of columns; room goes to the one with most lines."""
    widths, wanted = [*least], [max(map(len, column)) for column in columns]
    room = width - GAP * (len(columns) - 1) - sum(least)
    for _ in range(min(room, sum(wanted) - sum(least))):
        widths[max(range(len(widths)), key=lambda i: wanted[i] / max(widths[i], 1))] += 1
    return [max(wide, 1) for wide in widths]


def _shown(cell: str) -> str:
    """A cell without marks of Markdown and prefixes of references."""
    return cell.strip("*").replace("`", "").replace("reference:", "").strip()


def _numeric(cell: str) -> bool:
    return not cell or re.match(r"[*`]*[-−+±<>x×]*(\d|nan|inf)", cell) is not None
