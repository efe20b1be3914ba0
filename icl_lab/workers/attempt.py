"""One worker at one job, as the driver sees it: messages come in, orders and files go out, and neither waits."""

import queue
import threading
import time
from collections import deque
from collections.abc import Sequence
from typing import Any

from icl_lab.errors import RunFailed
from icl_lab.workers.protocol import Decoder, Message, line, parcel
from icl_lab.workers.transport import Pipe

GRACE = 5.0  # seconds that a worker has to keep what it has, before it is killed


class Attempt:
    """A worker that was started. What it says after ``abandon`` is not heard."""

    def __init__(self, pipe: Pipe) -> None:
        self.pipe = pipe
        self.sounds = 0  # how often anything was heard
        self.over = False  # whether everything that the worker said has been taken
        self.damage = ""  # what was wrong with what it said
        self._noise: deque[str] = deque(maxlen=20)
        self._inbox: queue.SimpleQueue[Message | None] = queue.SimpleQueue()
        self._outbox: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        for job in (self._receive, self._send):
            threading.Thread(target=job, daemon=True).start()

    def next(self, seconds: float) -> Message | None:
        """Returns the next message; None where none comes in that time, or ever again (``over``)."""
        if self.over:
            return None
        try:
            message = self._inbox.get(timeout=seconds)
        except queue.Empty:
            return None
        if message is None:
            self.over = True
        elif message.noise:
            self._noise.append(message.noise)
        return message

    def tell(self, **told: Any) -> None:
        """Sends a message."""
        self._outbox.put(line(**told))

    def give(self, name: str, data: bytes, **told: Any) -> None:
        """Sends a file."""
        for piece in parcel(name, data, **told):
            self._outbox.put(piece)

    def ask(self) -> None:
        """Asks the worker to stop at its next step."""
        if not self.pipe.interrupt():
            self.tell(stop=True)

    def abandon(self) -> None:
        """Ends the worker at once, and hears nothing more of it."""
        self.over = True
        self._outbox.put(None)
        self.pipe.kill()
        self.pipe.wait(GRACE)

    def close(self) -> None:
        """Waits a while for a worker that has said its last, then ends it."""
        self._outbox.put(None)
        if not self.pipe.wait(GRACE):
            self.abandon()

    def reason(self) -> str:
        """Returns the last line of complaint, or else the exit code."""
        said: Sequence[str] = [text.strip() for text in (*self._noise, *self.pipe.complaints()) if text.strip()]
        return self.damage or (said[-1] if said else f"exit code {self.pipe.code()}")

    def _receive(self) -> None:
        decoder = Decoder()
        try:
            while data := self.pipe.read():
                self.sounds += 1
                for message in decoder.feed(data):
                    self._inbox.put(message)
        except RunFailed as error:
            self.damage = str(error)
        except OSError as error:
            self.damage = f"the way to the worker broke: {error}"
        self._inbox.put(None)

    def _send(self) -> None:
        try:
            while (data := self._outbox.get()) is not None:
                self.pipe.write(data)
        except OSError:  # it died before it read; how is in its exit code
            return
        finally:
            self.pipe.hang_up()


class Silence:
    """How long nothing was heard of an attempt, in seconds that this process was awake for."""

    STEP = 1.0  # longer between two looks, and it was this process that slept

    def __init__(self, attempt: Attempt) -> None:
        self._attempt, self._sounds, self._looked = attempt, attempt.sounds, time.monotonic()
        self.seconds = 0.0

    def look(self) -> float:
        """Returns the seconds of silence."""
        now = time.monotonic()
        passed, self._looked = min(now - self._looked, self.STEP), now
        self.seconds = self.seconds + passed if self._attempt.sounds == self._sounds else 0.0
        self._sounds = self._attempt.sounds
        return self.seconds
