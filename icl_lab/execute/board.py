"""Progress board of many runs: a line each on a terminal; elsewhere one line a minute for all."""

import sys
import time
from collections.abc import Sequence
from types import TracebackType
from typing import Any

from tqdm import tqdm

from icl_lab.execute.announce import duration
from icl_lab.execute.progress import REDRAWN, SAID, Job, drawn, say

ROWS = 16  # runs that a terminal shows
NAMED = 4  # runs that a line names
BUSY = ("starting", "at work")
FEW = 5  # steps, or shifts of a test, by which the pace is judged


class Board:
    """Progress of the jobs in the pool, for people. Used in a ``with`` statement, which clears the terminal."""

    def __init__(self) -> None:
        self._began, self._said = time.monotonic(), time.monotonic()
        # Work and steps that were done of a run at the first look or when first seen at work.
        self._before: dict[int, tuple[float, int]] = {}
        self._seen: set[int] = set()  # numbers of runs seen at work or over
        self._whole: Any = None
        self._rows: dict[int, tuple[int, Any]] = {}  # row and bar, by the number of a run
        self._drawn = -REDRAWN

    def __enter__(self) -> "Board":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for _, bar in self._rows.values():
            bar.close()
        if self._whole is not None:
            self._whole.close()

    def __call__(self, jobs: Sequence[Job[Any]]) -> None:
        """Show where each run stands."""
        if not jobs:
            return
        if drawn():
            self._draw(jobs)
        elif time.monotonic() - self._said >= SAID:
            self._said = time.monotonic()
            say(f"{self.summary(jobs)}{_named(jobs)}")
        else:
            self._left(jobs)

    def summary(self, jobs: Sequence[Job[Any]]) -> str:
        """Return how many runs are over, how many of them did not finish, and about how long the rest takes."""
        over = [each for each in jobs if each.over]
        bad = sum(each.state != "done" for each in over)
        text = f"{len(over)} of {len(jobs)} runs over{f', {bad} of them not finished' if bad else ''}"
        left = self._left(jobs)
        return text if left is None else f"{text}; about {duration(left)} left"

    def _left(self, jobs: Sequence[Job[Any]]) -> float | None:
        """The seconds that are left at the pace so far; None before a few steps were done.

        The start of processes does not count.
        """
        for number, each in enumerate(jobs):
            # What is done then was done by an earlier command, or comes from its checkpoint.
            if number not in self._before or (each.state == "at work" and number not in self._seen):
                self._before[number] = each.done, each.count
            if each.state not in ("waiting", "starting"):
                self._seen.add(number)
        if all(each.state in ("waiting", "starting") for each in jobs):
            self._began = time.monotonic()
        counted = [(n, each) for n, each in enumerate(jobs) if each.state in (*BUSY, "done")]
        done = sum(each.done - self._before[n][0] for n, each in counted)
        steps = sum(each.count - self._before[n][1] for n, each in counted)
        rest = sum(each.whole - each.done for each in jobs if not each.over)
        return rest * (time.monotonic() - self._began) / done if done > 0 and steps >= FEW and rest else None

    def _draw(self, jobs: Sequence[Job[Any]]) -> None:
        if time.monotonic() - self._drawn < REDRAWN:
            return
        self._drawn = time.monotonic()
        if self._whole is None:
            self._whole = _bar(sum(each.whole for each in jobs), 0, "runs {percentage:3.0f}%|{bar:30}| {desc}")
        rows = ROWS if sys.stderr.isatty() else 0  # a notebook has one row
        busy = {number: each for number, each in enumerate(jobs) if each.state in BUSY}
        for number in self._rows.keys() - busy.keys():
            self._rows.pop(number)[1].close()
        for number, each in busy.items():
            if number not in self._rows and len(self._rows) < rows:
                taken = {row for row, _ in self._rows.values()}
                row = next(row for row in range(1, rows + 1) if row not in taken)
                self._rows[number] = row, _bar(each.size, row, "  {percentage:3.0f}% {n_fmt}/{total_fmt} {desc}")
            if number in self._rows:
                _show(self._rows[number][1], each.step, f"{each.name}{_where(each)}{_test_progress(each)}")
        _show(self._whole, sum(each.done for each in jobs), self.summary(jobs))


def _bar(total: float, row: int, form: str) -> Any:
    return tqdm(total=total, file=sys.stderr, position=row, leave=not row, bar_format=form)


def _show(bar: Any, done: float, text: str) -> None:
    bar.n = done
    bar.set_description_str(text, refresh=True)


def _where(job: Job[Any]) -> str:
    again = f", attempt {job.attempts}" if job.attempts > 1 else ""
    at = f" at {job.place}" if job.place else ""
    return f"{' starting' if job.state == 'starting' else ''}{at}{again}"


def _test_progress(job: Job[Any]) -> str:
    test = job.testing
    return "" if test is None else f", test {test.done} of {test.total}"


def _progress(job: Job[Any]) -> str:
    return _test_progress(job) or f", {100 * job.step // max(1, job.size)} %"


def _named(jobs: Sequence[Job[Any]]) -> str:
    """The runs at work, the first few by name."""
    busy = [each for each in jobs if each.state in BUSY]
    lines = [f"{each.name}{_where(each)}{_progress(each)}" for each in busy[:NAMED]]
    more = [f"{len(busy) - NAMED} more"] if len(busy) > NAMED else []
    return f"; at work: {'; '.join(lines + more)}" if lines else ""
