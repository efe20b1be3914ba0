"""Progress in a notebook or a program: one bar on standard error for each stage, plain text wherever it runs."""

import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from types import TracebackType
from typing import Any

from icl_lab.parallel import Job

REDRAWN = 0.5  # seconds between two looks of a bar


def say(text: str) -> None:
    """Tells whoever waits, above a bar that is there."""
    from tqdm import tqdm

    tqdm.write(text, file=sys.stderr)


def quiet(text: str) -> None:
    """Tells nobody."""


class Progress:
    """The progress of one stage after another, a bar each; a stage that is complete leaves nothing behind."""

    def __init__(self) -> None:
        self._stage: tuple[str, int] | None = None
        self._bar: Any = None

    def __call__(self, stage: str, done: int, total: int, note: str) -> None:
        """Shows that ``done`` of ``total`` steps of a stage are done."""
        if self._stage != (stage, total):
            self._close()
            self._stage, self._bar = (stage, total), _bar(stage, total)
        if self._bar is not None:
            self._bar.set_postfix_str(note, refresh=False)
            self._bar.update(done - self._bar.n)
        if done == total:
            self._close()
            self._stage = None

    def _close(self) -> None:
        if self._bar is not None:
            self._bar.close()
            self._bar = None


class Board:
    """One bar for all runs that workers do."""

    def __enter__(self) -> Callable[[Sequence[Job]], object]:
        self._bar: Any = None
        return self._show

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._bar is not None:
            self._bar.close()

    @staticmethod
    def quiet() -> AbstractContextManager[Callable[[Sequence[Job]], object]]:
        """A board that shows nothing."""
        return nullcontext(lambda jobs: None)

    def _show(self, jobs: Sequence[Job]) -> None:
        if not jobs:
            return
        if self._bar is None:
            self._bar = _bar("runs", sum(each.size for each in jobs))
        over = sum(each.over for each in jobs)
        self._bar.set_postfix_str(f"{over} of {len(jobs)} over", refresh=False)
        self._bar.update(sum(each.step for each in jobs) - self._bar.n)


def _bar(stage: str, total: int) -> Any:
    """A bar where it can be drawn over itself: in a terminal and in Jupyter; nowhere else, as in a log."""
    from tqdm import tqdm

    drawn = sys.stderr.isatty() or "ipykernel" in sys.modules
    return tqdm(total=total, desc=stage, file=sys.stderr, leave=False, mininterval=REDRAWN, disable=not drawn)
