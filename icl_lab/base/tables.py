"""Tables for elsewhere: LaTeX for a paper, Markdown, CSV, Parquet. With ``grid`` the only door to pandas."""

import csv
import io
import lzma
import re
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from pathlib import Path

import pandas as pd

from icl_lab.base import markdown as md
from icl_lab.base.errors import BadValue, UnknownName
from icl_lab.base.grid import EXACT

KINDS = ("latex", "markdown", "csv", "parquet")
NEEDS = r"% \usepackage{booktabs,etoolbox,siunitx}; bold numbers: \robustify\bfseries, \sisetup{detect-weight=true}"
PRINTED = "table.md"  # in the folder of a study: what its command printed
LATEX = {
    **{mark: f"\\{mark}" for mark in "&%$#_{}"},
    **{"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "<": "$<$", ">": "$>$"},
    **{"−": "$-$", "±": r"$\pm$", "×": r"$\times$", "≥": r"$\geq$", "≤": r"$\leq$", "→": r"$\to$", "σ": r"$\sigma$"},
    **{"|": r"\textbar{}", "…": r"\dots{}"},
}
# A number, alone or with others after it (an interval, a standard deviation), or a bare sign.
NUMBERS = re.compile(r"[+-]?(inf|nan|\.?\d([\d\s.,%*±×()\[\]+-]|e[+-]?\d|sd )*)?")


def csv_cell(cell: object) -> object:
    """Return a cell, safe in a CSV file; spreadsheets execute formulas, so their beginnings are marked.

    >>> csv_cell("=cmd()!A1"), csv_cell("-0.3"), csv_cell("-x"), csv_cell(-1)
    ("'=cmd()!A1", '-0.3', "'-x", -1)
    """
    if not isinstance(cell, str):
        return cell
    text = md.printable(cell)
    formula = text.startswith(("=", "+", "-", "@", "\t")) and not NUMBERS.fullmatch(text)
    return f"'{text}" if formula else text


def csv_text(columns: Sequence[str], rows: Iterable[Mapping[str, object]]) -> str:
    """Return rows as CSV."""
    with io.StringIO() as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(map(csv_cell, columns))
        writer.writerows([csv_cell(row.get(name, "")) for name in columns] for row in rows)
        return file.getvalue()


def encode(frame: pd.DataFrame, kind: str, caption: str = "", label: str = "") -> bytes:
    """Return a table as a file: ``latex`` (booktabs, siunitx), ``markdown``, ``csv`` or ``parquet``.

    Cells that are bold or code in Markdown are so in LaTeX, and plain in CSV and Parquet, where columns of numbers are
    numbers. With a ``caption`` or a ``label`` LaTeX's table is a float. Raises ``UnknownName`` on another kind, and
    ``BadValue`` on a caption of another one.
    """
    if kind not in KINDS:
        raise UnknownName("kind of table", kind, KINDS)
    if (caption or label) and kind != "latex":
        raise BadValue(f"A caption and a label are for LaTeX, not for {kind}.")
    if re.search(r"[^\w:.+-]", label):
        raise BadValue(f"A label has letters, digits and :.+-_ alone, got {label!r}.")
    if not isinstance(frame.index, pd.RangeIndex):  # names of rows
        frame = frame.rename_axis(index=lambda name: name or "").reset_index()
    if kind == "latex":
        return f"{NEEDS}\n{latex(frame, caption, label)}".encode()
    if kind == "markdown":
        return ("\n".join([*md.head(map(str, frame.columns)), *map(md.row, _texts(frame))]) + "\n").encode()
    numbers = _numbers(frame)
    if kind == "csv":
        return typed(numbers.map(csv_cell).rename(columns=csv_cell), kind)
    numbers.columns = pd.Index(_distinct(map(str, numbers.columns)))  # of which Parquet has no two alike
    return typed(numbers, kind)


def chosen(frame: pd.DataFrame, columns: Sequence[str] = (), rows: Sequence[str] = ()) -> pd.DataFrame:
    """Return named columns of a table after its first one, and rows named by that, in the order of the names.

    Marks of Markdown and the prefix of references need not be named. Raises ``UnknownName`` with those there are.
    """
    heads = [str(name) for name in frame.columns]
    names = [_plain(str(_bare(cell))) for cell in frame.iloc[:, 0]]
    for kind, wanted, there in (("column", columns, heads), ("row", [_plain(row) for row in rows], names)):
        for name in wanted:
            if name not in there:
                raise UnknownName(f"{kind} of the table", name, there)
    kept = [0, *(heads.index(name) for name in columns if name != heads[0])] if columns else range(len(heads))
    lines = [names.index(_plain(row)) for row in rows] if rows else range(len(names))
    return frame.iloc[[*lines], [*kept]].reset_index(drop=True)


def _plain(row: str) -> str:
    return row.removeprefix("reference:")


def latex(frame: pd.DataFrame, caption: str = "", label: str = "", *, columns: str = "", long: bool = False) -> str:
    """Return a table as LaTeX by pandas' Styler; ``columns`` are its column types, if not ``S`` and ``l`` by content.

    A ``long`` one is a ``longtable``, with its head on every page.
    """
    measured = [all(map(_measured, column)) for _, column in frame.items()]
    cells = [
        [_siunitx(cell) if number else _latex(cell) for cell in column]
        for number, (_, column) in zip(measured, frame.items(), strict=True)
    ]
    heads = [f"{{{_head(name)}}}" if number else _head(name) for number, name in zip(measured, frame, strict=True)]
    # Heads are formats of pandas, in which braces stand twice.
    made = pd.DataFrame(dict(enumerate(cells))).style.hide(axis="index")
    made = made.relabel_index([head.replace("{", "{{").replace("}", "}}") for head in heads], axis="columns")
    return made.to_latex(
        column_format=columns or "".join("S" if number else "l" for number in measured),
        hrules=True,
        caption=in_latex(caption) or None,
        label=label or None,
        position="t" if caption or label else None,
        position_float="centering" if caption or label else None,
        environment="longtable" if long else None,
    )


def typed(frame: pd.DataFrame, kind: str) -> bytes:
    """Return a table whose numbers are numbers as ``csv`` or ``parquet``.

    Raises ``UnknownName`` on another kind.
    """
    if kind == "csv":
        return str(frame.to_csv(index=False, lineterminator="\n")).encode()
    if kind != "parquet":
        raise UnknownName("kind of table", kind, ("csv", "parquet"))
    with io.BytesIO() as file:
        frame.to_parquet(file, index=False)
        return file.getvalue()


def stored(place: Path) -> dict[str, Path]:
    """Return the tables of a study's or a run's folder, or a single file, by name; ``table`` is the printed one.

    Raises ``BadValue`` where there is none.
    """
    paths = sorted(place.iterdir()) if place.is_dir() else [place]
    printed = [path for path in paths if path.name == PRINTED]
    found = {"table": printed[0]} if printed else {}
    found |= {path.name.partition(".")[0]: path for path in paths if re.search(r"\.csv(\.(xz|gz))?$", path.name)}
    if not found:
        raise BadValue(f"{place} holds no table: neither {PRINTED} nor a CSV file.")
    return found


def read(path: Path) -> list[pd.DataFrame]:
    """Read a CSV file, packed or not, or all tables of a file of Markdown, whose cells are text."""
    try:
        if path.suffix == ".md":
            return of_markdown(path.read_text(encoding="utf-8"))
        return [pd.read_csv(path, keep_default_na=False, na_values=[""], low_memory=False, **EXACT)]
    except (ValueError, OSError, EOFError, lzma.LZMAError) as error:
        raise BadValue(f"{path} cannot be read as a table: {error}.") from None


def of_markdown(text: str) -> list[pd.DataFrame]:
    """Return every table of a text, its cells as they stand there."""
    tables = (each for each in md.blocks(text) if isinstance(each, list))
    return [pd.DataFrame(rows, columns=head) for head, *rows in tables]


def _texts(frame: pd.DataFrame) -> list[list[str]]:
    return [["" if pd.isna(cell) else _short(cell) for cell in row] for row in frame.itertuples(index=False)]


def _short(cell: object) -> str:
    return f"{cell:.6g}" if isinstance(cell, float) else str(cell)


def _bare(cell: object) -> object:
    """A cell without the marks of Markdown, its minus as programs write it."""
    if not isinstance(cell, str):
        return cell
    return re.sub(r"^\*\*(.*)\*\*$", r"\1", cell).replace("`", "").replace("−", "-")


def _numbers(frame: pd.DataFrame) -> pd.DataFrame:
    """The table with a column of numbers where all of its cells are such."""
    bare = frame.map(_bare)
    # By position: two columns may have one name.
    columns = [
        pd.to_numeric(column.map(lambda cell: None if cell in ("", "nan") else cell))
        if all(map(_numeric, column))
        else column
        for _, column in bare.items()
    ]
    made = pd.concat(columns, axis=1) if columns else bare
    made.columns = bare.columns
    return made


def _distinct(names: Iterable[str]) -> list[str]:
    """Names of columns, the second of one name with ``.1`` behind it, as pandas reads a CSV file."""
    found = list[str]()
    for name in names:
        number = sum(other == name or re.fullmatch(rf"{re.escape(name)}\.\d+", other) is not None for other in found)
        found.append(f"{name}.{number}" if number else name)
    return found


def _measured(cell: object) -> bool:
    """True of a number, of one with its spread ("0.5 ± 0.1"), and of an empty cell."""
    return all(map(_numeric, cell.strip("*").split(" ± "))) if isinstance(cell, str) else _numeric(cell)


def _siunitx(cell: object) -> str:
    """A number as a column of siunitx reads it; other text in braces.

    An exponent would be one of a number and of its spread together: these are written without.
    """
    text = "" if pd.isna(cell) else _short(cell)  # type: ignore[call-overload]
    bare = str(_bare(text))
    if " ± " in bare and "e" in bare:
        bare = re.sub(r"[-+.\de]*\de[-+\d]+", lambda number: format(Decimal(number[0]), "f"), bare)
    bare = bare.replace("±", "+-")
    known = "" if not bare else bare if re.fullmatch(r"[-\d.e+ ]+", bare) else f"{{{bare}}}"
    return rf"\bfseries {known}" if text.startswith("**") else known


def _numeric(cell: object) -> bool:
    if isinstance(cell, str):
        return re.fullmatch(r"|-?\d+(\.\d*)?(e[-+]?\d+)?|nan|-?inf", str(_bare(cell))) is not None
    return isinstance(cell, int | float) or bool(pd.isna(cell))  # type: ignore[call-overload]


def in_latex(text: str) -> str:
    r"""Return a text as LaTeX: code between backticks, and the letters that it reads as commands.

    >>> in_latex("`a_b`, 12 %")
    '\\texttt{a\\_b}, 12 \\%'
    """
    parts = ["".join(LATEX.get(letter, letter) for letter in part) for part in text.split("`")]
    odd = len(parts) % 2 == 0  # a backtick that nothing closes is one
    return "`".join(parts) if odd else "".join(rf"\texttt{{{p}}}" if n % 2 else p for n, p in enumerate(parts))


def _head(name: object) -> str:
    r"""A head of a column as LaTeX, a value of a standard deviation as mathematics: ``$\sigma_f = 1$``."""
    cell = re.fullmatch(r"sigma(_\w+)? (\S+)", str(name))
    return rf"$\sigma{cell[1] or ''} = {cell[2]}$" if cell else _latex(name)


def _latex(cell: object) -> str:
    """A cell as LaTeX: bold, code, powers of ten and the letters that it reads as commands."""
    if not isinstance(cell, str):
        return "" if pd.isna(cell) else _latex(_short(cell))  # type: ignore[call-overload]
    bold = re.fullmatch(r"\*\*(.*)\*\*", cell)
    bare = bold[1] if bold else cell
    power = re.fullmatch(r"([−-]?)([\d.]+)e([−+-]?)0*(\d+)", bare)
    if power:
        text = f"${'-' if power[1] else ''}{power[2]}\\times10^{{{'-' if power[3] in ('−', '-') else ''}{power[4]}}}$"
    else:
        text = in_latex(bare)
    return rf"\textbf{{{text}}}" if bold else text
