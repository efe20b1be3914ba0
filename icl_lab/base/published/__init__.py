"""Numbers printed in papers (``printed/``) and results computed from them (``computed/``), with notes of doubt.

A table is found by being there; ``sources.csv`` says where it comes from and under which conditions, ``notes.csv`` what
is doubtful about which cells. Nothing is corrected: a number stays as it was printed, and its footnote says the rest.
"""

import csv
import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Literal

from icl_lab.base.errors import BadValue, UnknownName, UnknownOption


@dataclass(frozen=True)
class Cell:
    """A number as it was printed, and as a float (NaN where it is not a number)."""

    text: str
    number: float

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True)
class Source:
    """Source of a printed table; conditions and units hold for all its cells."""

    paper: str
    table: str
    link: str
    conditions: str
    units: str


@dataclass(frozen=True)
class Note:
    """A doubt: the cells of ``columns`` in the rows whose labels are ``where``. Empty ``columns`` means all of them."""

    where: Mapping[str, tuple[str, ...]]
    columns: tuple[str, ...]
    text: str

    def covers(self, row: "Row", column: str | None = None) -> bool:
        """True if the note is about this row, or about this column of it."""
        here = all(row[label].text in wanted for label, wanted in self.where.items())
        return here and (column is None or not self.columns or column in self.columns)


Row = Mapping[str, Cell]


@dataclass(frozen=True)
class PublishedTable:
    """One file: its rows in order, its source and its doubts."""

    name: str
    kind: Literal["printed", "computed"]
    source: Source
    rows: tuple[Row, ...]
    notes: tuple[Note, ...]

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the columns."""
        return tuple(self.rows[0])

    def where(self, **labels: object) -> tuple[Row, ...]:
        """Return the rows with these labels, compared as numbers where both are; ``LabError`` if there is none."""
        for column in labels:
            if column not in self.columns:
                raise UnknownOption(f"The published table '{self.name}'", column, self.columns)
        rows = tuple(row for row in self.rows if all(_same(row[key], value) for key, value in labels.items()))
        if not rows:
            asked = ", ".join(f"{key}={value}" for key, value in labels.items())
            raise BadValue(f"The published table '{self.name}' has no row with {asked}.")
        return rows

    def at(self, column: str, /, **labels: object) -> Cell:
        """Return the one cell with these labels; raises ``LabError`` if there is none or more than one.

        >>> load("ssa_table1").at("mse", method="Softmax", sigma=10)
        Cell(text='45.35', number=45.35)
        """
        rows = self.where(**labels)
        if column not in self.columns:
            raise UnknownOption(f"The published table '{self.name}'", column, self.columns)
        if len(rows) > 1:
            raise BadValue(f"The published table '{self.name}' has {len(rows)} rows with these labels, not one.")
        return rows[0][column]

    def footnotes(self, row: Row, column: str | None = None) -> tuple[Note, ...]:
        """Return the doubts about a row, or about one column of it; those about the whole table are not repeated."""
        return tuple(note for note in self.notes if note.where and note.covers(row, column))

    @property
    def remarks(self) -> tuple[Note, ...]:
        """The doubts about the whole table."""
        return tuple(note for note in self.notes if not note.where)


def names() -> list[str]:
    """Return the names of all tables, sorted."""
    return sorted(_folders())


@cache
def load(name: str) -> PublishedTable:
    """Read a table; raises ``UnknownName`` with those that exist."""
    folders = _folders()
    if name not in folders:
        raise UnknownName("published table", name, folders)
    source = next(line for line in _read("sources.csv") if line["file"] == name)
    rows = tuple({key: _cell(text) for key, text in line.items()} for line in _read(f"{folders[name]}/{name}.csv"))
    notes = tuple(_note(line) for line in _read("notes.csv") if line["file"] == name)
    about = Source(*(source[key] for key in ("paper", "table", "link", "conditions", "units")))
    return PublishedTable(name, folders[name], about, rows, notes)


def _folders() -> dict[str, Literal["printed", "computed"]]:
    kinds: tuple[Literal["printed", "computed"], ...] = ("printed", "computed")
    return {
        path.name.removesuffix(".csv"): kind
        for kind in kinds
        for path in files(__name__).joinpath(kind).iterdir()
        if path.name.endswith(".csv")
    }


def _read(path: str) -> list[dict[str, str]]:
    text = files(__name__).joinpath(path).read_text(encoding="utf-8")
    return list(csv.DictReader(text.splitlines(), strict=True))


def _cell(text: str) -> Cell:
    try:
        return Cell(text, float(text))
    except ValueError:
        return Cell(text, math.nan)


def _same(cell: Cell, value: object) -> bool:
    """True if a cell is the wanted label: 1, 1.0 and "1" are one label, "tau=5" is only itself."""
    wanted = _cell(str(value))
    return cell.text == wanted.text or cell.number == wanted.number


def _note(line: Mapping[str, str]) -> Note:
    """``where`` is written ``method=Softmax;sigma=7|8``: all labels, any of the values of each."""
    pairs = (pair.partition("=") for pair in line["where"].split(";") if pair)
    where = {label: tuple(values.split("|")) for label, _, values in pairs}
    return Note(where, tuple(column for column in line["columns"].split("|") if column), line["note"])
