"""Rows as a table, as CSV and as JSON."""

import csv
import io
import json
import math
from collections.abc import Sequence
from dataclasses import asdict, fields
from itertools import groupby
from typing import Any

from icl_lab.bench.base import Measurement
from icl_lab.errors import RunFailed

COLUMNS = [field.name for field in fields(Measurement)]


def table(rows: Sequence[Measurement]) -> list[str]:
    """Returns lines for the terminal, part by part: the number, its range, and the seconds of the case itself."""
    lines: list[str] = []
    for part, group in groupby(rows, key=lambda row: row.part):
        lines += ["", f"{part}"]
        for row in group:
            case = f"{row.case} / {row.against}" if row.against else row.case
            number = f"{row.bound + ' ' if row.bound else ''}{short(row.ratio)} {row.unit}"
            number = "none" if math.isnan(row.ratio) else number
            ranged = "" if math.isnan(row.low) else f"{short(row.low)} to {short(row.high)}"
            own = "" if math.isnan(row.seconds) else f"{short(row.seconds)} s"
            lines.append(f"  {case:58} {number:38} {ranged:18} {own:10} {row.note}".rstrip())
    return lines[1:]


def as_json(rows: Sequence[Measurement]) -> str:
    """Returns a list of objects, one a row; null where there is no number."""
    return json.dumps([{key: _told(value) for key, value in asdict(row).items()} for row in rows], indent=1)


def as_csv(rows: Sequence[Measurement]) -> str:
    """Returns one line a row under a line of names; empty where there is no number."""
    text = io.StringIO()
    writer = csv.DictWriter(text, COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows([{key: _told(value) for key, value in asdict(row).items()} for row in rows])
    return text.getvalue()


def read(text: str) -> list[Measurement]:
    """Reads what ``as_csv`` wrote; raises ``RunFailed`` where it is something else."""
    reader = csv.DictReader(io.StringIO(text))
    if list(reader.fieldnames or []) != COLUMNS:
        raise RunFailed(f"the CSV of an earlier bench has other columns than {', '.join(COLUMNS)}; move it away.")
    kinds: dict[str, Any] = {field.name: field.type for field in fields(Measurement)}
    return [Measurement(**{key: _read(value, kinds[key]) for key, value in line.items()}) for line in reader]


def merge(old: Sequence[Measurement], new: Sequence[Measurement]) -> list[Measurement]:
    """The new rows in the place of the old ones of the same parts and device; parts not measured again stay."""
    again = {(row.device, row.part) for row in new}
    return [row for row in old if (row.device, row.part) not in again] + list(new)


def short(value: float) -> str:
    """A number in three digits: 1.62, 0.0042, 51,200.

    >>> [short(value) for value in (1.6180, 0.00423, 51_234.0, 3e-7)]
    ['1.62', '0.00423', '51,234', '3e-07']
    """
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def _told(value: Any) -> Any:
    if isinstance(value, float):
        return None if math.isnan(value) else float(f"{value:.6g}")
    return value


def _read(text: str, kind: Any) -> Any:
    return math.nan if kind is float and not text else kind(text)
