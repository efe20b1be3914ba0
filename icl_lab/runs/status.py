"""Status of a running run, in a hidden file of its folder that is removed at the end: for whoever waits for the run.

It is in no manifest and in no hash. A process that is killed leaves it behind; the next one on the run removes it.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

import msgspec

from icl_lab.base import foreign
from icl_lab.base.files import publish, writing

NAME = ".at-work.json"
EVERY = 2.0  # seconds between two writes at the least

Stage = Literal["train", "test"]


class Status(msgspec.Struct, frozen=True):
    """Progress of a run: ``done`` of ``total`` steps of training, or shifts of its test."""

    stage: Stage
    done: int
    total: int


@contextmanager
def report_status(folder: Path) -> Iterator[Callable[[Stage, int, int], None]]:
    """Yield what reports the status of a run (stage, done, total); the file is removed afterwards, however that ended.

    Raises ``RunFailed`` where the folder cannot be written, as a checkpoint would.
    """
    path, stages, last = folder / NAME, set[Stage](), time.monotonic()

    def report(stage: Stage, done: int, total: int) -> None:
        nonlocal last
        if stage in stages and time.monotonic() - last < EVERY:
            return
        stages.add(stage)
        last = time.monotonic()
        with writing(path):
            publish(path, msgspec.json.encode(Status(stage, done, total)))

    try:
        yield report
    finally:
        path.unlink(missing_ok=True)


def read_status(folder: Path) -> Status | None:
    """Status of a run; None where there is none, or none that can be read."""
    try:
        data = foreign.read(folder / NAME, foreign.MOST_TEXT)
        return msgspec.json.decode(foreign.shallow(data), type=Status)
    except (OSError, ValueError, msgspec.DecodeError):  # nobody is at work, or it is of another version
        return None
