"""Rows of the bench: timing in turns, and numbers as lines, CSV and JSON."""

import csv
import io
import json
import math
import os
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path

import msgspec
import torch

import icl_lab
from icl_lab.base.errors import RunFailed
from icl_lab.base.grid import frame_of
from icl_lab.base.progress import Item, Tick, counted, silent
from icl_lab.base.tables import typed
from icl_lab.runs.environment import seconds

HOME = Path(icl_lab.__file__).parent.parent  # the folder that holds the package
KEY = ("device", "part", "case", "against", "unit")  # columns that say what a row measures


@dataclass(frozen=True)
class Measurement:
    """One number: ``ratio`` of a case to ``against``, in words of ``unit``, from ``count`` pairs.

    ``low`` and ``high`` are the ends of its range, ``seconds`` the median time of the case itself; each is NaN where
    there is none. ``bound`` is ``>=`` where the number is only a lower bound.
    """

    part: str
    case: str
    against: str
    ratio: float
    unit: str
    low: float = math.nan
    high: float = math.nan
    seconds: float = math.nan
    count: int = 1
    bound: str = ""
    note: str = ""
    device: str = "cpu"


COLUMNS = [field.name for field in fields(Measurement)]


@dataclass(frozen=True)
class Bench:
    """Settings of a part: device, number of timed pairs, longest training, reporting."""

    device: torch.device
    pairs: int = 3
    minutes: float = 0.5  # of training, for each recipe and task
    say: Callable[[str], object] = lambda text: None
    tick: Tick = silent
    part: str = ""

    def counted(self, items: Sequence[Item], name: Callable[[Item], str] = str) -> Iterator[Item]:
        """Yield each item, and show which one is measured."""
        return counted(items, self.part, self.tick, name)

    def row(self, case: str, against: str, ratio: float, unit: str, **more: float | int | str) -> Measurement:
        """Return a row of this part and device."""
        return Measurement(self.part, case, against, ratio, unit, device=self.device.type, **more)  # type: ignore[arg-type]

    def quotient(
        self, case: str, against: str, unit: str, over: Sequence[float], under: Sequence[float], **more: float | str
    ) -> Measurement:
        """Return the row of the quotients ``over`` / ``under``, pair by pair; ``under`` are the case's own seconds."""
        found = [a / b for a, b in zip(over, under, strict=True)]
        ends = {"low": min(found), "high": max(found), "seconds": statistics.median(under), "count": len(found)}
        return self.row(case, against, statistics.median(found), unit, **(ends | more))

    def alternate(self, *jobs: Callable[[], object], most: int = 10**6, warm: bool = True) -> list[list[float]]:
        """Run the jobs in turns, A B A B ..., ``most`` times at most, and return the seconds, one list per job.

        With ``warm`` each is done once before, which does not count: the first time includes set-up costs.
        """
        for job in jobs if warm else ():
            job()
        rounds = [[seconds(job, self.device) for job in jobs] for _ in range(min(most, self.pairs))]
        return [list(times) for times in zip(*rounds, strict=True)]


def child(*words: str) -> str:
    """Run Python on ``words`` in a separate process that imports this very package; return its standard output.

    Raises ``RunFailed`` with the last line of its complaint.
    """
    path = os.pathsep.join(filter(None, (str(HOME), os.environ.get("PYTHONPATH", ""))))
    done = subprocess.run(
        [sys.executable, *words], capture_output=True, text=True, env={**os.environ, "PYTHONPATH": path}
    )
    if done.returncode:
        complaint = (done.stderr.strip().splitlines() or ["no word of why"])[-1]
        raise RunFailed(f"python {' '.join(words)} failed with exit code {done.returncode}: {complaint}")
    return done.stdout


def line(row: Measurement) -> str:
    """Return a row as a line for the terminal: the number, its range, and the seconds of the case itself."""
    case = f"{row.case} / {row.against}" if row.against else row.case
    number = "none" if math.isnan(row.ratio) else f"{row.bound} {short(row.ratio)} {row.unit}".strip()
    ranged = "" if math.isnan(row.low) else f"{short(row.low)} to {short(row.high)}"
    own = "" if math.isnan(row.seconds) else f"{short(row.seconds)} s"
    return f"  {case:58} {number:38} {ranged:18} {own:10} {row.note}".rstrip()


def as_json(rows: Sequence[Measurement]) -> str:
    """Return a list of objects, one per row; null for missing numbers."""
    return json.dumps([_fields(row) for row in rows], indent=1)


def as_csv(rows: Sequence[Measurement]) -> str:
    """Return one line per row under a line of names; empty for missing numbers."""
    return typed(frame_of(map(_fields, rows), COLUMNS), "csv").decode()


def read(text: str) -> list[Measurement]:
    """Read what ``as_csv`` wrote; raises ``RunFailed`` where it is something else."""
    reader = csv.DictReader(io.StringIO(text))
    if list(reader.fieldnames or []) != COLUMNS:
        raise RunFailed(f"the CSV of an earlier bench has other columns than {', '.join(COLUMNS)}; move it away.")
    # Without its empty cells a line has the defaults there.
    lines = [{"against": ""} | {"ratio": math.nan} | {k: v for k, v in line.items() if v} for line in reader]
    return msgspec.convert(lines, list[Measurement], strict=False)


def merge(old: Sequence[Measurement], new: Sequence[Measurement], *columns: str) -> list[Measurement]:
    """The new rows in the place of the old ones that have the same labels in these columns; all others stay."""
    again = {tuple(getattr(row, name) for name in columns) for row in new}
    return [row for row in old if tuple(getattr(row, name) for name in columns) not in again] + list(new)


def short(value: float) -> str:
    """A number in three digits: 1.62, 0.0042, 51,200.

    >>> [short(value) for value in (1.6180, 0.00423, 51_234.0, 3e-7)]
    ['1.62', '0.00423', '51,234', '3e-07']
    """
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def _fields(row: Measurement) -> dict[str, object]:
    """Fields of a row, numbers in six digits."""
    rounded = {n: float(f"{value:.6g}") if isinstance(value, float) else value for n, value in asdict(row).items()}
    return {name: None if value != value else value for name, value in rounded.items()}
