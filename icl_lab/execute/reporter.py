"""Reports of a call to whoever waits for it, and their wish to stop."""

import signal
import sys
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

from icl_lab.base.errors import Stopped
from icl_lab.base.progress import Tick
from icl_lab.execute.progress import Bar, Job, say

if TYPE_CHECKING:
    from icl_lab.runs.run import Run

PACKAGE = __name__.partition(".")[0]
Watch = Callable[[Sequence[Job[Any]]], object]  # shows the runs of a pool


class Reporter:
    """Lines and bars on standard error; Ctrl-C ends at the next step, with its checkpoint kept."""

    command = ""  # the command line as it was typed, where there is one

    def __init__(self) -> None:
        self.tick: Tick = Bar()

    def say(self, text: str) -> None:
        """Show a line."""
        say(text)

    def last(self, text: str) -> None:
        """Warn of what must not be passed over: a command shows it when all else is said."""
        frame, depth = sys._getframe(), 1
        while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] == PACKAGE:
            frame, depth = frame.f_back, depth + 1
        warnings.warn(text, stacklevel=depth)

    def out(self, text: str) -> None:
        """Show a line of a dry run."""
        self.say(text)

    def show(self, text: str) -> None:
        """Show the tables of a study, which are there before its figures are drawn."""

    def board(self) -> AbstractContextManager[Watch]:
        """Return what shows the runs of a pool."""
        from icl_lab.execute.board import Board

        return Board()

    def finished(self, run: "Run", already: bool) -> None:
        """Note that a run is finished, and whether it was before."""

    @contextmanager
    def stoppable(self) -> Iterator[Callable[[], bool]]:
        """Yield whether Ctrl-C was pressed; a second one acts at once. Raises ``KeyboardInterrupt`` when it was.

        Outside of the main thread Python hands no signal to anybody, and none is taken.
        """
        if threading.current_thread() is not threading.main_thread():
            yield lambda: False
            return
        asked: list[int] = []

        def catch(number: int, frame: object) -> None:
            asked.append(number)
            signal.signal(number, signal.default_int_handler)
            self.say("stopping after this step; once more stops at once.")

        before = signal.signal(signal.SIGINT, catch)
        try:
            yield lambda: bool(asked)
        except Stopped as reason:
            if not asked:
                raise
            raise KeyboardInterrupt(f"{reason} The same call goes on where it stands.") from reason
        finally:
            signal.signal(signal.SIGINT, before)


class Silent(Reporter):
    """No lines and no bars."""

    def __init__(self) -> None:
        self.tick = lambda stage, done, total, note: None

    def say(self, text: str) -> None:
        """Show nothing."""

    def board(self) -> AbstractContextManager[Watch]:
        """Return what shows nothing."""
        return nullcontext(lambda jobs: None)
