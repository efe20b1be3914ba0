"""Lines of a Markdown table, tables as a terminal shows them, and lists within a sentence."""

import math
import re
from collections.abc import Iterable, Iterator
from itertools import takewhile

# Control characters, with which terminals are steered; marks that turn the direction of text; halves of a character.
UNPRINTABLE = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


# In a cell: code, and outside of it what makes a new cell or begins HTML.
MARK = re.compile(r"(`[^`]*`)|(?<!\\)(?:\||<(?=[A-Za-z/!?]))")


def printable(text: str) -> str:
    r"""Return a text from outside, safe in a terminal, a page and a table; lines and tabs are kept.

    >>> printable("\x1b[31mred\n")
    '\ufffd[31mred\n'
    """
    return UNPRINTABLE.sub("\ufffd", text)


def row(cells: Iterable[str]) -> str:
    r"""Return one line; a stroke or a line's end within a cell makes no new one, and no mark there is HTML.

    >>> row(["`ssa`", "0.17", "a|b <!-- end -->", "`<b>` < 2"])
    '| `ssa` | 0.17 | a\\|b \\<!-- end --> | `<b>` < 2 |'
    """
    lines = (MARK.sub(_literal, printable(" ".join(cell.splitlines()))) for cell in cells)
    return f"| {' | '.join(lines)} |"


def _literal(mark: re.Match[str]) -> str:
    return re.sub(r"(?<!\\)\|", r"\\|", mark[1]) if mark[1] else f"\\{mark[0]}"


def code(text: str) -> str:
    """Return a text as code within a line, whatever it holds: a path may have backticks.

    >>> code("icl-lab list"), code("a`b"), code("`")
    ('`icl-lab list`', '``a`b``', '`` ` ``')
    """
    fence = "`" * (max(map(len, re.findall("`+", text)), default=0) + 1)
    pad = " " if text.startswith("`") or text.endswith("`") else ""
    return f"{fence}{pad}{printable(text)}{pad}{fence}"


def escaped(text: str) -> str:
    r"""Return a text as words of a sentence: what begins code, HTML or a link there is written out.

    >>> escaped("a <b> `c` [d]")
    'a \\<b> \\`c\\` \\[d]'
    """
    return re.sub(r"([\\`<\[])", r"\\\1", printable(" ".join(text.splitlines())))


def head(names: Iterable[str]) -> list[str]:
    """Return the line of names and the line under it.

    >>> head(["normalizer", "error"])
    ['| normalizer | error |', '| --- | --- |']
    """
    named = list(names)
    return [row(named), row(["---"] * len(named))]


def table(names: Iterable[str], rows: Iterable[Iterable[str]]) -> list[str]:
    """Return the lines of a table.

    >>> table(["normalizer", "error"], [["`ssa`", "0.17"]])[2:]
    ['| `ssa` | 0.17 |']
    """
    return [*head(names), *map(row, rows)]


def listed(words: Iterable[str]) -> str:
    """Return words as a list within a sentence.

    >>> listed(["softmax", "ssa", "ssmax"])
    'softmax, ssa and ssmax'
    """
    *first, last = words
    return f"{', '.join(first)} and {last}" if first else last


def interval(middle: float, low: float, high: float, form: str = ".3g") -> str:
    """Return a number with its interval, where there is one.

    >>> interval(1.234, 1.0, 1.5), interval(0.5, float("nan"), float("nan"), ".2f")
    ('1.23 [1, 1.5]', '0.50')
    """
    return f"{middle:{form}}" + ("" if math.isnan(low) else f" [{low:{form}}, {high:{form}}]")


def cells(line: str) -> list[str]:
    """Return the cells of a row; a stroke that is escaped belongs to its cell, and HTML is text again."""
    found = re.split(r"(?<!\\)\|", line.strip()[1:-1])
    return [cell.strip().replace("\\|", "|").replace("\\<", "<") for cell in found]


def blocks(text: str) -> Iterator[str | list[list[str]]]:
    """Yield the lines of a text, and each table as its rows of cells, without the rule below its head."""
    lines = text.split("\n")
    while lines:
        rows = list(takewhile(lambda line: line.startswith("| ") and line.endswith(" |"), lines))
        if len(rows) > 1 and "-" in rows[1] and set(rows[1]) <= set("|-: "):
            yield [cells(row) for row in (rows[0], *rows[2:])]
        else:
            yield from rows or lines[:1]
        lines = lines[len(rows) or 1 :]


def short(value: float) -> str:
    """Two digits that fit a cell: 0.0083, 0.12, 3.4, 56, 1.2k; ``inf`` and ``nan`` as they are."""
    size = abs(value)
    if not math.isfinite(value):
        return f"{value:g}"
    if value == 0 or 0.01 <= size < 0.995:
        return f"{value:.2g}"
    if size < 0.01:
        return f"{value:.1e}".replace("e-0", "e-").replace("e-", "e−")
    return f"{value:.1f}" if size < 9.95 else f"{value:.0f}" if size < 999.5 else f"{value / 1000:.1f}k"
