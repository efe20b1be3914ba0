"""One attempt at a job, from the start of a worker to its end."""

import signal
import threading
import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass

from icl_lab.errors import RunFailed, Stopped
from icl_lab.workers import identity
from icl_lab.workers.attempt import Attempt, Silence
from icl_lab.workers.job import Ending, Job, Standing
from icl_lab.workers.protocol import BEAT, Message
from icl_lab.workers.transport import Place

LOOK = 0.2  # seconds between two looks at a worker
PATIENCE = 5  # times the silence that is allowed before the hello: a library that loads holds up everything


@dataclass
class Follower:
    """A job in a slot of a place. ``stopped`` is set when everything is to stop."""

    job: Job
    place: Place
    slot: int
    standing: Standing
    stopped: threading.Event
    silence: float  # seconds
    started: Callable[[Attempt], object]  # told of the worker, so that it can be ended from elsewhere

    def follow(self) -> Ending:
        """Does the job once. Raises ``OSError`` where no worker can be started."""
        files = self.job.files if self.place.remote else None
        try:
            with files.held(self.stopped.is_set) if files else nullcontext(True) as needed:
                return self._attempt() if needed else Ending("done")
        except Stopped as error:
            return Ending("stopped", str(error))
        except RunFailed as error:  # what came back cannot be kept
            return Ending("failed", str(error))

    def _attempt(self) -> Ending:
        if self.stopped.is_set():
            return Ending("stopped", "asked to stop")
        self._said_hello = self._asked = False
        attempt = Attempt(self.place.start())
        self.started(attempt)
        try:
            ending = self._converse(attempt)
        except BaseException:
            attempt.abandon()
            raise
        if ending is None:  # the worker's voice ended without a word about how
            attempt.close()
            return self._how(attempt)
        attempt.close() if ending.state in ("done", "failed", "stopped") else attempt.abandon()
        return ending

    def _converse(self, attempt: Attempt) -> Ending | None:
        """Gives the orders and listens; None where the worker's voice ended."""
        if not self.place.remote:
            attempt.tell(**self.job.orders, slot=self.slot)
        silence, beaten = Silence(attempt), time.monotonic()
        while not attempt.over:
            message = attempt.next(LOOK)
            if message is not None and (ending := self._hear(attempt, message)) is not None:
                return ending
            if self.stopped.is_set() and not self._asked:
                self._asked = True
                if self.place.remote and not self._said_hello:  # it has nothing to keep
                    attempt.abandon()
                    return Ending("stopped", "asked to stop")
                attempt.ask()
            if self.place.remote and self._said_hello and time.monotonic() - beaten > BEAT:
                attempt.tell(alive=True)
                beaten = time.monotonic()
            allowed = self.silence * (1 if self._said_hello else PATIENCE)
            if silence.look() > allowed and (attempt.sounds or not self.place.queues):
                return Ending("lost" if self._said_hello else "unreached", f"nothing was heard for {allowed:.0f} s")
        return None

    def _hear(self, attempt: Attempt, message: Message) -> Ending | None:
        told = message.told
        if "hello" in told and not self._said_hello:
            self._said_hello = True
            self.standing.state = "at work"
            if self.place.remote:
                refusal = identity.refusal(identity.hello(), told["hello"], self.place.name)
                if refusal:
                    return Ending("refused", refusal)
                self.standing.place = str(told["hello"].get("host", self.place.name))
                self._send(attempt)
        if isinstance(told.get("step"), int):
            self.standing.state = "at work"
            self.standing.step = max(0, min(self.job.size - 1, told["step"]))
        if self.place.remote and self.job.files is not None:
            if "file" in told:
                self.job.files.take(told["file"], message.data)
                attempt.tell(got=told["file"])
            if "gone" in told:
                self.job.files.drop(map(str, told["gone"]))
        if "end" in told:
            return self._ended(str(told["end"]), str(told.get("reason", "")))
        return None

    def _send(self, attempt: Attempt) -> None:
        """Orders and files, to a worker that shares nothing."""
        attempt.tell(**self.job.orders, slot=self.slot)
        if self.job.files is not None:
            for name, data, more in self.job.files.parcels():
                attempt.give(name, data, **more)
        attempt.tell(go=True)

    def _ended(self, state: str, reason: str) -> Ending:
        files = self.job.files if self.place.remote else None
        if state == "done" and files is not None and not files.complete():
            return Ending("failed", "the worker ended without all of its files")
        if state == "stopped" and files is not None and not self._asked:  # its node is taken away
            return Ending("lost", reason or "the worker was stopped")
        return Ending(state if state in ("done", "failed", "stopped") else "lost", reason)

    def _how(self, attempt: Attempt) -> Ending:
        """How a worker ended that did not say so."""
        code, reason = attempt.pipe.code(), attempt.reason()
        if self.place.remote:
            if self._asked:
                return Ending("stopped", reason)
            return Ending("lost" if self._said_hello else "unreached", reason)
        if code == 0:
            return Ending("done")
        if code in (75, 130):
            return Ending("stopped", reason)
        if code is not None and code > 0:
            return Ending("failed", reason)
        return Ending("lost", signal.Signals(-(code or -signal.SIGKILL)).name)
