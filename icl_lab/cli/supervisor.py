"""Many runs at once: a supervisor of worker processes that loses none because another died.

A job is a process of its own. It reads its orders as one line of JSON, writes its progress as lines of JSON, and keeps
its results in the store, so nothing is lost with a process but the steps since its last checkpoint. A job that is
killed is started again, ``RETRIES`` times; a job that fails with a reason is not, since it would fail again.

Jobs are known by their number, so that two may have the same name. Whatever ends the supervisor, an error of its own or
a second Ctrl-C, ends its processes first.
"""

import json
import queue
import signal
import subprocess
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

RETRIES = 2
GRACE = 5.0  # seconds that a process has to keep what it has, before it is killed
LOOK = 0.2  # seconds between two looks at the processes


@dataclass(frozen=True)
class Job:
    """A name for people, the orders for the process, and its size in steps (for the common progress bar)."""

    name: str
    orders: Mapping[str, Any]
    size: int


@dataclass(frozen=True)
class Outcome:
    """How a job ended: ``done``, ``failed`` (with its reason), ``killed`` or ``stopped``.

    The last two go on from their checkpoints when asked again.
    """

    job: Job
    state: str
    reason: str
    attempts: int


def supervise(
    jobs: Sequence[Job],
    command: Sequence[str],
    workers: int,
    *,
    stopping: Callable[[], bool] = lambda: False,
    tick: Callable[[int, int, str], object] = lambda done, total, note: None,
) -> list[Outcome]:
    """Runs ``command`` once for each job, ``workers`` at a time, and returns how each ended, in the order of ``jobs``.

    ``tick`` is told the steps done over all jobs; a job that is still running has at least one left. When
    ``stopping()`` turns true, every process is asked to stop at its next step, and jobs that have not begun are left.
    """
    crew = _Crew(jobs, command)
    threads = [threading.Thread(target=crew.work, daemon=True) for _ in range(min(workers, len(jobs)))]
    for thread in threads:
        thread.start()
    total = sum(job.size for job in jobs)
    try:
        while any(thread.is_alive() for thread in threads):
            tick(sum(crew.steps), total, crew.note)
            if stopping() and not crew.stopped.is_set():
                crew.stop(signal.SIGINT)
            threads[0].join(LOOK) if threads[0].is_alive() else time.sleep(LOOK)
        if jobs:
            tick(sum(crew.steps), total, crew.note)
    finally:
        crew.end()
    if crew.errors:
        raise crew.errors[0]
    return [crew.outcomes.get(number, Outcome(job, "stopped", "not begun", 0)) for number, job in enumerate(jobs)]


class _Crew:
    """The processes at work, and the threads' common book about them: outcomes by the number of a job."""

    def __init__(self, jobs: Sequence[Job], command: Sequence[str]) -> None:
        self.jobs, self.command = jobs, command
        self.outcomes: dict[int, Outcome] = {}
        self.steps = [0] * len(jobs)
        self.errors: list[BaseException] = []
        self.stopped = threading.Event()
        self._waiting: queue.SimpleQueue[int] = queue.SimpleQueue()
        self._running: dict[int, subprocess.Popen[str]] = {}
        self._guard = threading.Lock()
        for number in range(len(jobs)):
            self._waiting.put(number)

    @property
    def note(self) -> str:
        """How many jobs have ended."""
        return f"{len(self.outcomes)} of {len(self.jobs)} runs over"

    def work(self) -> None:
        """Does jobs until none is left; an error of the supervisor's own stops everything."""
        try:
            while not self.stopped.is_set():
                try:
                    number = self._waiting.get_nowait()
                except queue.Empty:
                    return
                self.outcomes[number] = self._run(number)
                self.steps[number] = self.jobs[number].size
        except BaseException as error:
            self.errors.append(error)
            self.stop(signal.SIGTERM)

    def stop(self, number: int) -> None:
        """Begins nothing more, and sends every process a signal."""
        with self._guard:
            self.stopped.set()
            for process in self._running.values():
                process.send_signal(number)

    def end(self) -> None:
        """Ends every process that is left: asked first, killed where it does not listen."""
        with self._guard:
            self.stopped.set()
            left = list(self._running.values())
        for process in left:
            process.terminate()
        deadline = time.monotonic() + GRACE
        for process in left:
            try:
                process.wait(max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def _run(self, number: int) -> Outcome:
        job = self.jobs[number]
        for attempt in range(1, RETRIES + 2):
            with self._guard:
                if self.stopped.is_set():
                    return Outcome(job, "stopped", "asked to stop", attempt - 1)
                # A session of its own: Ctrl-C reaches the supervisor alone, which passes it on once, not twice.
                process = subprocess.Popen(
                    self.command,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    text=True,
                    start_new_session=True,
                )
                self._running[number] = process
            complaints: deque[str] = deque(maxlen=20)
            code = self._follow(number, process, complaints)
            with self._guard:
                del self._running[number]
            reason = complaints[-1].strip() if complaints else f"exit code {code}"
            if code == 0:
                return Outcome(job, "done", "", attempt)
            if code in (75, 130):
                return Outcome(job, "stopped", reason, attempt)
            if code > 0:
                return Outcome(job, "failed", reason, attempt)
        reason = (
            f"killed {attempt} times, last by {signal.Signals(-code).name}; where memory is short, fewer --jobs help. "
            "The same command goes on from its last checkpoint"
        )
        return Outcome(job, "killed", reason, attempt)

    def _follow(self, number: int, process: "subprocess.Popen[str]", complaints: deque[str]) -> int:
        """Gives a process its orders, listens to it until it ends, and returns its exit code."""
        with process:
            try:
                orders, progress, said = process.stdin, process.stdout, process.stderr
                if orders is None or progress is None or said is None:
                    raise RuntimeError("the process has no pipes")
                listener = threading.Thread(target=complaints.extend, args=(said,), daemon=True)
                listener.start()
                with suppress(BrokenPipeError):  # it died before it read; how is in its exit code
                    orders.write(json.dumps(self.jobs[number].orders) + "\n")
                    orders.close()
                for line in progress:
                    self._hear(number, line, complaints)
                listener.join()
                return process.wait()
            except BaseException:  # the end of ``with`` waits for the process
                process.terminate()
                raise

    def _hear(self, number: int, line: str, complaints: deque[str]) -> None:
        step = _step(line)
        if step is None:  # a library that prints
            complaints.append(line)
        else:
            self.steps[number] = max(0, min(self.jobs[number].size - 1, step))


def _step(line: str) -> int | None:
    """The step that a line of progress tells; None where it is none."""
    try:
        told = json.loads(line)
    except ValueError:
        return None
    step = told.get("step") if isinstance(told, dict) else None
    return step if isinstance(step, int) else None
