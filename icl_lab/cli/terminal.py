"""Reports of a command: progress on standard error, data on standard output."""

import shlex
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from icl_lab.cli.output import out
from icl_lab.cli.signals import catch_signals
from icl_lab.launch.reporter import Reporter


def typed() -> str:
    """Return the command line as it was typed."""
    return shlex.join(["icl-lab", *sys.argv[1:]])


class Terminal(Reporter):
    """Terminal, or a log, of a command."""

    def __init__(self) -> None:
        super().__init__()
        self.command = typed()

    def out(self, text: str) -> None:
        """Print a line of a dry run."""
        out(text)

    @contextmanager
    def stoppable(self) -> Iterator[Callable[[], bool]]:
        """Yield whether a signal asked to stop; the process ends with the command, so that none is given back."""
        yield catch_signals()
