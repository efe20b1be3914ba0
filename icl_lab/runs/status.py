"""Status of a running run: a small file in its folder, for those who watch, removed at the end.

It is no part of what a run is: it is hidden, in no manifest and in no hash, and nothing is ever read from it but by a
person. A process that is killed leaves it behind; then its time tells that nobody works there any more.
"""

import math
import os
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Literal, TypeVar

import msgspec

from icl_lab.files import publish, writing

NAME = ".at-work.json"
EVERY = 2.0  # seconds between two writes at the least
MOST = 400  # points of the loss curve that are written
SILENCE = 60.0  # seconds of silence after which a run counts as silent, or five times its usual pause

Stage = Literal["train", "test"]
Point = TypeVar("Point")


class Status(msgspec.Struct, frozen=True):
    """Progress of a run: ``done`` of ``total`` steps (or shifts of the test), ``since`` the first of this process.

    ``seconds`` of work in this stage, ``pause`` the time between the last two writes, ``written`` the clock.
    """

    stage: Stage
    done: int
    total: int
    since: int
    seconds: float
    pause: float
    written: float
    process: int
    device: str = ""
    losses: list[tuple[int, float]] = []  # step, mean loss

    def silent(self, now: float) -> float:
        """Returns for how many seconds too long nothing was said; 0 where that is no longer than usual."""
        return max(0.0, now - self.written - max(SILENCE, 5 * self.pause))


class StatusFile:
    """Status file of one run. Raises ``RunFailed`` where its folder cannot be written, as a checkpoint would."""

    def __init__(self, folder: Path, device: str, history: Iterable[Mapping[str, float]] = ()) -> None:
        self.path, self.device = folder / NAME, device
        self._losses = [(int(row["step"]), float(row["loss"])) for row in history]
        self._stage: Stage | None = None
        self._began = self._said = time.monotonic()
        self._since = 0

    def train(self, done: int, total: int, loss: float | None = None) -> None:
        """Report how many steps are done; ``loss`` is the mean of those since the last one that was told."""
        if loss is not None and math.isfinite(loss):
            self._losses.append((done, loss))
        self._say("train", done, total)

    def test(self, done: int, total: int) -> None:
        """Report how far the test is."""
        self._say("test", done, total)

    def _say(self, stage: Stage, done: int, total: int) -> None:
        now, first = time.monotonic(), stage != self._stage
        if first:
            self._stage, self._began, self._since = stage, now, done
        elif now - self._said < EVERY:
            return
        pause, self._said = (0.0 if first else now - self._said), now
        status = Status(
            stage,
            done,
            total,
            self._since,
            now - self._began,
            pause,
            time.time(),
            os.getpid(),
            self.device,
            thinned(self._losses),
        )
        with writing(self.path):
            publish(self.path, msgspec.json.encode(status))


@contextmanager
def report_status(folder: Path, device: str, history: Iterable[Mapping[str, float]] = ()) -> Iterator[StatusFile]:
    """Keep the status file of a run while it is held; it is removed afterwards, however that ended."""
    try:
        yield StatusFile(folder, device, history)
    finally:
        (folder / NAME).unlink(missing_ok=True)


def read_status(folder: Path) -> Status | None:
    """Status of a run; None where there is none, or none that can be read."""
    try:
        return msgspec.json.decode((folder / NAME).read_bytes(), type=Status)
    except (OSError, msgspec.DecodeError, UnicodeDecodeError):  # nobody is at work, or it is of another version
        return None


def thinned(rows: Sequence[Point], most: int = MOST) -> list[Point]:
    """Returns at most ``most`` points of a curve (or rows of a history), at even distances, the last one always."""
    stride = max(1, -(-len(rows) // most))
    return list(rows[(len(rows) - 1) % stride :: stride]) if rows else []
