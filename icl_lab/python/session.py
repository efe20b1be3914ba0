"""The laboratory that a call works in: the command line's store, progress for a notebook, Ctrl-C as Python has it."""

import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from icl_lab.errors import BadValue, LabError, Stopped
from icl_lab.option_values import write
from icl_lab.python.progress import Board, Progress, quiet, say

if TYPE_CHECKING:
    from icl_lab.launch.order import Order
    from icl_lab.runs.run import Run
    from icl_lab.runs.session import Lab

RESULTS = "results"
Folder = str | PathLike[str]


@dataclass(frozen=True)
class Here:
    """Results folder, device and evidence, as every function of this package takes them."""

    results: Folder = RESULTS
    device: str = "auto"
    threads: int | None = None
    evidence: bool | None = None
    allow_large: bool = False
    progress: bool = True

    def lab(self, command: str) -> "Lab":
        """Returns the laboratory of a call; ``command`` is what one would type for the same.

        Raises ``BadValue`` where the device or the evidence is not there.
        """
        import torch

        from icl_lab.evidence.archive import Archive
        from icl_lab.runs import environment
        from icl_lab.runs.session import Lab
        from icl_lab.runs.store import Store

        if self.threads is not None:
            torch.set_num_threads(whole(self.threads, "threads", 1))
        archive = None if self.evidence is False else Archive.find()
        tick = Progress() if self.progress else lambda stage, done, total, note: None
        told = say if self.progress else quiet
        return Lab(
            Store(Path(self.results), archive),
            environment.device(self.device),
            told,
            tick,
            command=command,
            allow_large=self.allow_large,
        )


@contextmanager
def interruptible(lab: "Lab") -> Iterator["Lab"]:
    """Yields a laboratory that ends at the next step after Ctrl-C, its checkpoint kept; a second acts at once.

    Raises ``KeyboardInterrupt`` then. Outside of the main thread Python hands no signal to anybody, and none is taken.
    """
    if threading.current_thread() is not threading.main_thread():
        yield lab
        return
    asked: list[int] = []

    def catch(number: int, frame: object) -> None:
        asked.append(number)
        signal.signal(number, signal.default_int_handler)
        lab.say("stopping after this step; once more stops at once.")

    before = signal.signal(signal.SIGINT, catch)
    try:
        yield replace(lab, stopping=lambda: bool(asked))
    except Stopped as reason:
        if not asked:
            raise
        raise KeyboardInterrupt(f"{reason} The same call goes on where it stands.") from reason
    finally:
        signal.signal(signal.SIGINT, before)


def complete(runs: Sequence["Run"], lab: "Lab", order: "Order", tested: bool = True) -> None:
    """Finishes runs as the command line does.

    Raises ``BadValue`` where several processes are asked for and a part was defined in a cell: they cannot import it.
    """
    from icl_lab.launch import complete as launching
    from icl_lab.runs import environment

    told: dict[str, None] = {}
    for run in runs:
        if order.parallel and not run.finished:
            importable(run)
        told |= dict.fromkeys(environment.changed_parts(run.spec, run.folder))
    for sentence in told:
        lab.say(sentence)
    launching.complete(runs, lab, order, board=Board if lab.say is say else Board.quiet, out=lab.say, tested=tested)


def finisher(lab: "Lab", order: "Order") -> Callable[[Sequence["Run"], bool], bool]:
    """Returns what a study calls to have its runs finished; nothing is left to others, so they all are."""

    def finish(runs: Sequence["Run"], tested: bool) -> bool:
        complete(runs, lab, order, tested)
        return True

    return finish


def importable(run: "Run") -> None:
    """Raises ``BadValue`` where a part of a run was defined in this program, in no file that another could import."""
    from icl_lab import outside
    from icl_lab.runs import environment

    for registry, name in environment.parts(run.spec):
        source = registry.source(name)
        if source is not None and not source.distribution and source not in outside.loaded():
            raise BadValue(
                f"the {registry.kind} '{name}' was defined in this program, which other processes cannot import: use "
                f"jobs=1, or write it to a file and name that by icl.import_parts('./{name}.py')."
            )


def whole(value: Any, name: str, least: int, most: int = 1_000_000) -> int:
    """Returns a whole number within bounds; raises ``BadValue`` otherwise."""
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise BadValue(f"{name} must be a whole number from {least} to {most:,}, got {value!r}.")
    return value


def words(values: object, name: str) -> list[str]:
    """Returns texts, one or several; raises ``BadValue`` where something else stands there."""
    several = [values] if isinstance(values, str) else values
    if not isinstance(several, Sequence) or not all(isinstance(each, str) for each in several):
        raise BadValue(f"{name} must be a text or a list of texts, got {values!r}.")
    return list(several)


def settings_of(settings: object) -> list[str]:
    """Returns settings as ``--set`` takes them, from texts or from a mapping.

    >>> settings_of({"train.steps": 20, "model.mlp": False, "test.axes.length": [5, 12]})
    ['train.steps=20', 'model.mlp=no', 'test.axes.length=5,12']
    """
    if not isinstance(settings, dict):
        return words(settings, "settings")
    return [f"{name}={write(value)}" for name, value in settings.items()]


def missing(package: str, what: str, extra: str) -> LabError:
    """Returns the complaint that a package is not there, with the extra that brings it."""
    return LabError(f"{what} needs {package}, which is not installed: pip install 'icl_lab[{extra}]'")
