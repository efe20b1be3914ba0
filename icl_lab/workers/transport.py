"""What a transport is: a place that starts workers, and the pipe of bytes to each of them."""

from collections.abc import Sequence
from typing import Protocol


class Pipe(Protocol):
    """Bytes to and from one worker, and its life."""

    def read(self) -> bytes:
        """Waits for bytes; returns none once nothing more will come."""

    def write(self, data: bytes) -> None:
        """Sends bytes; may wait. Raises ``OSError`` where nobody takes them any more."""

    def hang_up(self) -> None:
        """Ends what is sent: the worker reads the end of its input."""

    def interrupt(self) -> bool:
        """Asks the worker by a signal to stop at its next step; False where no signal reaches it."""

    def terminate(self) -> None:
        """Asks the worker to end now."""

    def kill(self) -> None:
        """Ends the worker at once, or the way to it."""

    def wait(self, seconds: float) -> bool:
        """Waits for the worker's end, or that of the way to it; returns whether it has ended."""

    def code(self) -> int | None:
        """Returns the exit code of what has ended, below zero for a signal; None where there is none."""

    def complaints(self) -> Sequence[str]:
        """Returns the last lines that were written to standard error."""


class Place(Protocol):
    """Where workers are started."""

    @property
    def name(self) -> str:
        """What people call it."""

    @property
    def at_once(self) -> int:
        """How many workers at once."""

    @property
    def remote(self) -> bool:
        """Whether it shares no file system with the driver."""

    @property
    def queues(self) -> bool:
        """Whether a worker may begin much later than it was started."""

    def start(self) -> Pipe:
        """Starts a worker; raises ``OSError`` where that cannot be done."""

    def close(self) -> None:
        """Gives back what the place holds, once no worker is left."""
