"""The session that a command opens: results folder, device, and receivers of progress."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import torch

from icl_lab.base.errors import Stopped
from icl_lab.base.progress import Tick, silent
from icl_lab.runs.run import Run
from icl_lab.runs.store import Store

LONGEST = 8 * 3600.0  # seconds: longer runs are begun only when that is said


class Untracked:
    """Tracker that discards everything; ``icl_lab/execute/tracking.py`` has the others."""

    asked = ""  # ``--track``, for other processes

    def rows(self, run: Run, history: Sequence[Mapping[str, float]]) -> None:
        """Note that the history of a training has grown to these rows."""

    def finished(self, run: Run) -> None:
        """Note that a run is trained, or tested too, and drawn."""

    def study(self, folder: Path, text: str) -> None:
        """Note what a study found, once it is in its folder."""


@dataclass(frozen=True)
class Lab:
    """Session: results folder, device, and how progress is reported."""

    store: Store
    device: torch.device
    say: Callable[[str], object] = print
    tick: Tick = silent
    stopping: Callable[[], bool] = lambda: False
    command: str = ""  # the command line, kept with the results
    allow_large: bool = False  # whether to begin what memory and time, as estimated, do not suffice for
    longest: float = LONGEST  # seconds that the runs of a command may take, as estimated
    tracked: Untracked = field(default_factory=Untracked)
    show: Callable[[str], object] = lambda text: None  # tables of a study, before its figures are drawn

    def tested(self, done: int, total: int) -> None:
        """Show how far the test is; raises ``Stopped`` between two of its shifts when asked to stop."""
        self.tick("sweep", done, total, "")
        if done < total and self.stopping():
            raise Stopped("stopped while testing; the model is kept, and the same command tests it again.")
