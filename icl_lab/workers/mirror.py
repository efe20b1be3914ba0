"""The worker's side of a run that is kept elsewhere: its folder in scratch, and what of it the driver has."""

import hashlib
import time
from collections.abc import Iterable
from pathlib import Path

from icl_lab.files import publish
from icl_lab.workers import folder
from icl_lab.workers.line import Line
from icl_lab.workers.protocol import Message, inside

OFTEN = 15.0  # seconds between two checkpoints that are sent
SHARE = 50  # sending takes at most one part in so many of the time


class Mirror:
    """Keeps the driver's copy of a run in step with the folder here."""

    def __init__(self, place: Path, line: Line, files: Iterable[Message]) -> None:
        self._place, self._line = place, line
        self._known: dict[str, str] = {}  # what the driver has, by checksum
        self._sent: float | None = None  # when the last checkpoint was
        self._began, self._stamp = time.monotonic(), 0
        for message in files:
            name = inside(message.told["file"])
            publish(place / name, message.data)
            self._known[name] = message.told["sha256"]

    def checkpoint(self) -> None:
        """Sends the last checkpoint, where it is new and the one before it was sent long enough ago.

        To be called between two steps, by the thread that writes checkpoints.
        """
        pause, since = OFTEN, self._began
        if self._sent is not None:
            arrived = self._line.got.get(folder.CHECKPOINT)
            if arrived is None:  # still on its way
                return
            pause, since = max(OFTEN, SHARE * (arrived - self._sent)), self._sent
        if time.monotonic() - since < pause:
            return
        path = self._place / folder.CHECKPOINT
        if path.exists() and (stamp := path.stat().st_mtime_ns) != self._stamp:
            self._stamp, self._sent = stamp, time.monotonic()
            self._send(folder.CHECKPOINT)

    def send(self) -> None:
        """Sends everything that is new, in the order in which it was written, and names what is no longer there."""
        there = list(folder.names(self._place))
        for name in there:
            if name != folder.BEFORE:
                self._send(name)
        gone = sorted(set(self._known) - set(there))
        if gone:
            self._line.say(gone=gone)
            self._known = {name: sha for name, sha in self._known.items() if name in there}

    def _send(self, name: str) -> None:
        data = (self._place / name).read_bytes()
        sha = hashlib.sha256(data).hexdigest()
        if self._known.get(name) != sha:
            self._known[name] = sha
            self._line.send(name, data)
