r"""The protocol of driver and worker: lines of JSON, and files, over one stream of bytes in each direction.

    {"spec": ..., "seed": 0, ...}                             the orders: what to do (driver)
    {"file": "env.json", "size": 412, "sha256": "9f.."}\n     followed by 412 bytes (both)
    {"go": true}                                              all files are there (driver, to a remote worker)
    {"got": "checkpoint.pt"}                                  a file has been written (driver)
    {"alive": true}                                           every few seconds (both)
    {"stop": true}                                            leave at the next step, with a checkpoint (driver)
    {"hello": {"icl_lab": "0.1.0", "torch": ...}}             the first thing that a worker says of itself
    {"step": 150}                                             how far the run is (worker)
    {"gone": ["checkpoint.pt"]}                               files that are no longer wanted (worker)
    {"end": "done", "reason": ""}                             done, stopped or failed (worker)

Keys that one side does not know are passed over.
"""

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

from icl_lab.errors import RunFailed

BEAT = 3.0  # seconds between two signs of life
CHUNK = 1 << 20  # bytes that are read at once


@dataclass(frozen=True)
class Message:
    """What was told, with the bytes of the file that came with it; ``noise`` is a line that is no message."""

    told: dict[str, Any]
    data: bytes = b""
    noise: str = ""


def line(**told: Any) -> bytes:
    """Returns a message as bytes."""
    return json.dumps(told).encode() + b"\n"


def parcel(name: str, data: bytes, **told: Any) -> Iterator[bytes]:
    """Yields a file as bytes: its head, then the data in pieces."""
    yield line(file=name, size=len(data), sha256=hashlib.sha256(data).hexdigest(), **told)
    for start in range(0, len(data), CHUNK):
        yield data[start : start + CHUNK]


def inside(name: str) -> str:
    """Returns the name of a file below a folder; raises ``RunFailed`` where it leads out of it or is hidden."""
    parts = PurePosixPath(name).parts
    if not parts or any(part == "/" or part.startswith(".") for part in parts):
        raise RunFailed(f"a file is called {name!r}, which is no name inside the folder of a run.")
    return name


class Decoder:
    """Bytes to messages, in whatever pieces they come."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._head: dict[str, Any] | None = None

    def feed(self, data: bytes) -> Iterator[Message]:
        """Takes bytes in, and yields the messages that they complete.

        Raises ``RunFailed`` where the bytes of a file are not those that were sent.
        """
        self._buffer += data
        while (message := self._next()) is not None:
            yield message

    def _next(self) -> Message | None:
        if self._head is None:
            end = self._buffer.find(b"\n")
            if end < 0:
                return None
            text = bytes(self._buffer[:end])
            del self._buffer[: end + 1]
            told = _told(text)
            if told is None:
                return Message({}, noise=text.decode(errors="replace"))
            if "file" not in told:
                return Message(told)
            self._head = told
        size = int(self._head["size"])
        if len(self._buffer) < size:
            return None
        head, data = self._head, bytes(self._buffer[:size])
        del self._buffer[:size]
        self._head = None
        if hashlib.sha256(data).hexdigest() != head["sha256"]:
            raise RunFailed(f"{head['file']} came with other bytes than it was sent with.")
        return Message(head, data)


def _told(text: bytes) -> dict[str, Any] | None:
    """The message of a line; None where it is none, such as what a login script prints."""
    try:
        told = json.loads(text)
    except ValueError:
        return None
    if not isinstance(told, dict):
        return None
    whole = isinstance(told.get("size"), int) and told["size"] >= 0 and isinstance(told.get("sha256"), str)
    return None if "file" in told and not (whole and isinstance(told["file"], str)) else told
