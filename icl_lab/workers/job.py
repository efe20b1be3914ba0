"""What is to be done, where it stands and how it ended."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol


class Files(Protocol):
    """The files of a job, where the worker does not share them."""

    def held(self, stopping: Callable[[], bool]) -> AbstractContextManager[bool]:
        """Keeps other processes away; says False where nothing is left to do. Raises ``Stopped`` while it waits."""

    def parcels(self) -> Iterator[tuple[str, bytes, Mapping[str, Any]]]:
        """Yields what a worker has to have: the name of a file, its bytes, what else its head says."""

    def take(self, name: str, data: bytes) -> None:
        """Keeps a file that a worker made. Raises ``RunFailed``."""

    def drop(self, names: Iterable[str]) -> None:
        """Removes files that a worker has done with. Raises ``RunFailed``."""

    def complete(self) -> bool:
        """Whether everything is there that the job is to make."""


@dataclass(frozen=True)
class Job:
    """A name for people, the orders for the worker, its size in steps, and its files for a remote worker."""

    name: str
    orders: Mapping[str, Any]
    size: int
    files: Files | None = None


@dataclass(frozen=True)
class Outcome:
    """How a job ended: ``done``, ``failed`` (with its reason), ``killed`` or ``stopped``.

    The last two go on from their checkpoints when asked again.
    """

    job: Job
    state: str
    reason: str
    attempts: int


@dataclass(frozen=True)
class Ending:
    """How one attempt ended.

    ``done``, ``failed`` and ``stopped`` as the job; ``lost`` when the worker died or fell silent; ``unreached`` when no
    worker began; ``refused`` when it is of another version.
    """

    state: str
    reason: str = ""


@dataclass
class Standing:
    """Where a job stands: ``waiting``, ``starting``, ``at work``, or how it ended."""

    name: str
    size: int
    state: str = "waiting"
    place: str = ""
    step: int = 0
    attempts: int = 0

    @property
    def over(self) -> bool:
        """Whether it has ended."""
        return self.state not in ("waiting", "starting", "at work")
