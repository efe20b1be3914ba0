"""The worker's end of the protocol: it says what it has to say, and notices when nobody is there any more.

Nothing here waits for the driver but the orders and the end: behind a cut network a write may last for ever.
"""

import os
import queue
import threading
import time
from collections.abc import Iterator
from typing import Any

from icl_lab.errors import RunFailed
from icl_lab.workers.protocol import BEAT, CHUNK, Decoder, Message, line, parcel

WAIT = 0.1  # seconds between two looks whether all is said


class Line:
    """Reads orders from one file descriptor and writes to another; a thread gives a sign of life every few seconds."""

    def __init__(self, source: int, sink: int, beat: float = BEAT) -> None:
        self._source, self._sink, self._beat = source, sink, beat
        self._outbox: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._messages = self._read()
        self._heard, self._silence = time.monotonic(), float("inf")
        self._gone = threading.Event()  # nothing more is said, or nobody is there to hear it
        self.stopped = threading.Event()  # asked to stop, or nobody is there
        self.got: dict[str, float] = {}  # files that have arrived, and when
        self._writer = threading.Thread(target=self._write, daemon=True)
        self._writer.start()
        threading.Thread(target=self._live, daemon=True).start()

    def say(self, **told: Any) -> None:
        """Sends a message; where nobody takes it, the work is to stop."""
        self._outbox.put(line(**told))

    def send(self, name: str, data: bytes) -> None:
        """Sends a file."""
        self.got.pop(name, None)
        self._outbox.put(b"".join(parcel(name, data)))

    def orders(self) -> tuple[dict[str, Any], list[Message]]:
        """Waits for orders, and for the files that come with them to a remote worker.

        Raises ``RunFailed`` where the driver leaves before that.
        """
        orders: dict[str, Any] = {}
        files: list[Message] = []
        for message in self._messages:
            if "file" in message.told:
                files.append(message)
            elif "spec" in message.told:
                orders = message.told
            if orders and ("go" in message.told or not orders.get("remote")):
                return orders, files
        raise RunFailed("no orders came.")

    def listen(self, silence: float) -> None:
        """Hears from now on what the driver says; one that is silent for so many seconds is held for gone."""
        self._heard, self._silence = time.monotonic(), silence
        threading.Thread(target=self._listen, daemon=True).start()

    def end(self, state: str, reason: str = "") -> None:
        """Says how the run ended, and nothing after it; waits until all is said, as long as somebody is there."""
        self.say(end=state, reason=reason)
        self._outbox.put(None)
        while self._writer.is_alive() and not self._gone.is_set():
            self._writer.join(WAIT)
        self._gone.set()

    def _read(self) -> Iterator[Message]:
        decoder = Decoder()
        while data := os.read(self._source, CHUNK):
            self._heard = time.monotonic()
            yield from decoder.feed(data)

    def _listen(self) -> None:
        try:
            for message in self._messages:
                if "stop" in message.told:
                    self.stopped.set()
                if "got" in message.told:
                    self.got[str(message.told["got"])] = time.monotonic()
        except (OSError, RunFailed):  # what comes is not to be trusted any more
            pass
        self.stopped.set()  # the driver is gone

    def _live(self) -> None:
        while not self._gone.is_set():
            self.say(alive=True)
            if time.monotonic() - self._heard > self._silence:
                self._leave()
            self._gone.wait(self._beat)

    def _write(self) -> None:
        try:
            while (data := self._outbox.get()) is not None:
                rest = memoryview(data)
                while rest and not self._gone.is_set():
                    rest = rest[os.write(self._sink, rest) :]
        except OSError:  # nobody reads
            self._leave()

    def _leave(self) -> None:
        """Nobody is there any more: the work stops as if asked to, and keeps what there is."""
        self._gone.set()
        self.stopped.set()
