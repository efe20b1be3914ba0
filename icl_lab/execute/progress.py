"""Progress of a run in a pool; one progress bar on standard error, or one line per minute without a terminal."""

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Generic

from tqdm import tqdm

from icl_lab.base import progress
from icl_lab.base.progress import Item, Tick
from icl_lab.runs.status import Status

REDRAWN = 0.25  # seconds between two looks of a bar
SAID = 60.0  # seconds between two lines without a terminal


@dataclass
class Job(Generic[Item]):
    """One run in the pool: ``waiting``, ``starting``, ``at work``, then ``done``, ``failed``, ``killed``, ``stopped``.

    One that was killed or stopped goes on from its checkpoint when asked again.
    """

    name: str
    size: int  # steps of its training
    item: Item
    state: str = "waiting"
    step: int = 0
    attempts: int = 0
    place: str = ""  # host name, where that is not this machine
    reason: str = ""  # why it is not done
    status: Status | None = None  # that of its worker
    training: Callable[[int], float] = float  # work of its first steps: the default number
    test: float = 0.0  # work of its test

    @property
    def testing(self) -> Status | None:
        """Progress of its test; None before and after."""
        return None if self.over or self.status is None or self.status.stage == "train" else self.status

    @property
    def count(self) -> int:
        """Steps and shifts of its test that are done."""
        return self.step + (self.testing.done if self.testing else 0)

    @property
    def whole(self) -> float:
        """Work of its training and its test."""
        return self.training(self.size) + self.test

    @property
    def done(self) -> float:
        """Work that is done; all of it once the run has ended, however that was."""
        if self.over:
            return self.whole
        if self.testing is None:
            return self.training(self.step)
        return self.training(self.size) + self.test * self.testing.done / max(1, self.testing.total)

    @property
    def over(self) -> bool:
        """True once it has ended."""
        return self.state not in ("waiting", "starting", "at work")


def drawn() -> bool:
    """True where a bar can be drawn over itself: in a terminal and in Jupyter, and not in a log."""
    if sys.stderr.isatty():
        return True
    shell = sys.modules.get("IPython")  # imported is not enough: its kernel is one for the process that it runs in
    return shell is not None and "IPKernelApp" in getattr(shell.get_ipython(), "config", {})


def say(text: str) -> None:
    """Show a line to whoever waits, above a bar that is there; standard output is for data."""
    if drawn():
        tqdm.write(text, file=sys.stderr)
    else:
        print(text, file=sys.stderr, flush=True)


def above_bars() -> AbstractContextManager[None]:
    """Clear the bars while standard output is written; they are drawn again below."""
    mode: AbstractContextManager[None] = tqdm.external_write_mode()
    return mode


def counted(items: Sequence[Item], stage: str, tick: Tick | None = None) -> Iterator[Item]:
    """Yield each item and show how many are done; ``tick`` is called instead of a new bar."""
    return progress.counted(items, stage, tick or Bar())


class Bar:
    """The progress of one stage after another; the same progress reported twice is shown once.

    A stage begins with its first ``done`` of ``total`` and ends with the first that is complete; a second report of
    completion shows nothing.
    """

    def __init__(self) -> None:
        self._stage: tuple[str, int] | None = None
        self._last: tuple[int, str] = (-1, "")
        self._bar: Any = None
        self._said = time.monotonic()

    def __call__(self, stage: str, done: int, total: int, note: str) -> None:
        """Show that ``done`` of ``total`` steps of a stage are done."""
        over = self._stage == (stage, total) and self._last[0] == total and done == total
        if over or (self._stage == (stage, total) and self._last == (done, note)):
            return
        again = self._stage != (stage, total) or done < self._last[0]
        if drawn():
            self._draw(stage, done, total, note, again)
        elif time.monotonic() - self._said >= SAID:
            say(f"{stage}: {done:,} of {total:,}{', ' if note else ''}{note}")
            self._said = time.monotonic()
        self._stage, self._last = (stage, total), (done, note)

    def _draw(self, stage: str, done: int, total: int, note: str, again: bool) -> None:
        if again:
            if self._bar is not None:
                self._bar.close()
            left = sys.stderr.isatty()  # a notebook is kept, and nobody reads its bars again
            self._bar = tqdm(total=total, initial=done, desc=stage, file=sys.stderr, mininterval=REDRAWN, leave=left)
        self._bar.set_postfix_str(note, refresh=False)
        self._bar.update(done - self._bar.n)
        if done == total:
            self._bar.close()
            self._bar = None
