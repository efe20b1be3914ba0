"""Runs in parallel: a pool of workers, each doing one run at a time.

A run is locked, resumable and a pure function of (specification, seed). So a worker that dies costs the steps since its
last checkpoint, and another worker takes its run up; workers exchange nothing. ``Processes`` starts them on this
machine, ``icl_lab/execute/ray_engine.py`` on a Ray cluster.
"""

import os
import pickle
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import Protocol

import torch

from icl_lab.base import outside
from icl_lab.base.errors import LabError
from icl_lab.base.progress import Tick, silent
from icl_lab.execute.progress import Job
from icl_lab.execute.reporter import Reporter
from icl_lab.execute.where import Where
from icl_lab.runs.run import Run
from icl_lab.runs.session import Lab
from icl_lab.runs.spec import RunSpec
from icl_lab.runs.status import Status, read_status

RETRIES = 2  # of a run whose worker died
LOOK = 0.2  # seconds between two looks at the workers
GRACE = 5.0  # seconds that a worker has to keep a checkpoint before it is killed
WORKER = (sys.executable, "-c", "from icl_lab.execute.parallel import main; main()")

Finish = Callable[[Run, Lab, bool, bool], object]  # does the wanted parts of a run: its test, its model, or both
Say = Callable[[str], object]


@dataclass(frozen=True, kw_only=True)
class WorkItem:
    """One run for a worker, pickled: ``finish`` is a function of a module, ``where`` reports to nobody."""

    spec: RunSpec
    seed: int
    swap: str = ""
    tested: bool = True
    models: bool = False  # whether its weights are wanted as well as its test
    finish: Finish
    where: Where
    command: str = ""
    imports: Sequence[Mapping[str, object]] = ()  # plugins

    def run(self) -> Run:
        """Return the run in the results folder."""
        return self.where.store().run(self.spec, self.seed, self.swap)

    def execute(self, stopping: Callable[[], bool], tick: Tick = silent) -> None:
        """Do the run in this process; raises what the run raises."""
        outside.import_again(self.imports)
        with replace(self.where, progress=Worklog(stopping, tick)).session(self.command) as lab:
            if lab.device.type == "cuda" and 0 < self.where.gpus_per_run < 1:
                torch.cuda.set_per_process_memory_fraction(self.where.gpus_per_run, lab.device)
            self.finish(self.run(), lab, self.tested, self.models)


class Worklog(Reporter):
    """Reporter of a worker: lines on standard error, whose last one is kept; stops where its driver says so."""

    def __init__(self, stopping: Callable[[], bool], tick: Tick) -> None:
        self._stopping, self.tick = stopping, tick

    def say(self, text: str) -> None:
        """Print a line."""
        print(text, file=sys.stderr, flush=True)

    def last(self, text: str) -> None:
        """Print a line."""
        self.say(text)

    @contextmanager
    def stoppable(self) -> Iterator[Callable[[], bool]]:
        """Yield whether the driver asked to stop."""
        yield self._stopping


@dataclass(frozen=True)
class Ending:
    """End of one attempt at a run: ``done``, ``failed``, ``stopped``, ``killed``, or ``lost`` where the worker died."""

    state: str
    reason: str = ""


class Worker(Protocol):
    """A worker doing one run."""

    def ending(self) -> Ending | None:
        """Return how it ended; None while it works."""

    def status(self) -> Status | None:
        """Return the progress of its training or test; None before the first word of it."""

    def place(self) -> str:
        """Return the host name; empty on this machine."""

    def stop(self) -> None:
        """Ask the worker to keep a checkpoint and end."""

    def kill(self) -> None:
        """End the worker at once."""


class WorkerPool(Protocol):
    """A place for workers."""

    @property
    def jobs(self) -> int:
        """Number of runs at once."""

    def start(self, item: WorkItem, slot: int) -> Worker | None:
        """Start a worker; None where another process holds the run just now."""


def execute(
    jobs: Sequence[Job[WorkItem]],
    engine: WorkerPool,
    stopping: Callable[[], bool],
    watch: Callable[[Sequence[Job[WorkItem]]], object],
    say: Say,
) -> None:
    """Do every job by workers of an engine; each then says how it ended.

    A run whose worker died is done again, up to ``RETRIES`` times; one that failed with a reason is not, since it would
    fail again. Once ``stopping()``, workers are asked to keep checkpoints and end, and runs that have not begun are
    left. ``watch`` is called a few times a second. Whatever else ends this function ends the workers first.
    """
    waiting, running, asked = deque(jobs), dict[int, tuple[Job[WorkItem], Worker]](), False
    try:
        while waiting or running:
            if not asked and stopping():
                asked = True
                for _, attempt in running.values():
                    attempt.stop()
            if asked:
                for job in waiting:
                    job.state, job.reason = "stopped", "asked to stop" if job.attempts else "not begun"
                waiting.clear()
            _start(waiting, running, engine)
            for slot, (job, attempt) in list(running.items()):
                if (ending := attempt.ending()) is None:
                    _look(job, attempt)
                    continue
                del running[slot]
                if _again(job, ending, asked, say):
                    waiting.appendleft(job)
            watch(jobs)
            if running or waiting:
                time.sleep(LOOK)
    finally:
        _end([attempt for _, attempt in running.values()])


def _end(attempts: Sequence[Worker]) -> None:
    """Ask workers to keep checkpoints and end, then end those that have not."""
    for attempt in attempts:
        attempt.stop()
    patience = time.monotonic() + GRACE
    while time.monotonic() < patience and any(attempt.ending() is None for attempt in attempts):
        time.sleep(LOOK)
    for attempt in attempts:
        attempt.kill()


def _start(waiting: deque[Job[WorkItem]], running: dict[int, tuple[Job[WorkItem], Worker]], engine: WorkerPool) -> None:
    """Fill the free slots; a run that another process holds is asked for again at the next look."""
    free = [slot for slot in range(engine.jobs) if slot not in running]
    for _ in range(len(waiting)):
        if not free:
            return
        job = waiting.popleft()
        attempt = engine.start(job.item, free[0])
        if attempt is None:
            waiting.append(job)
            continue
        running[free.pop(0)] = job, attempt
        job.state, job.status, job.attempts = "starting", None, job.attempts + 1


def _look(job: Job[WorkItem], attempt: Worker) -> None:
    found = attempt.status()
    if found is not None:
        job.state, job.status, job.place = "at work", found, attempt.place()
        # While it is tested, one step is left.
        job.step = job.size - 1 if found.stage == "test" else min(found.done, job.size - 1)


def _again(job: Job[WorkItem], ending: Ending, asked: bool, say: Say) -> bool:
    """Note how an attempt ended; returns whether the run is to be taken up by another worker."""
    state, reason = ending.state, ending.reason
    if state == "lost" and asked:
        state = "stopped"
    elif state == "lost" and job.attempts <= RETRIES:
        job.state = "waiting"
        say(f"lost: {job.name} ({reason}); it goes on from its last checkpoint")
        return True
    elif state == "lost":
        state = "killed"
        reason = (
            f"killed {job.attempts} times, last by {reason}; where memory is short, fewer --jobs help. "
            "The same command goes on from its last checkpoint"
        )
    job.state, job.reason, job.step = state, reason, job.size
    return False


@dataclass(frozen=True)
class Processes:
    """Workers as processes of this machine, which share its results folder; several GPUs are taken in turn."""

    jobs: int

    def start(self, item: WorkItem, slot: int) -> "Process":
        """Start a process."""
        if item.where.device == "cuda":
            item = replace(item, where=replace(item.where, device=_gpu(slot)))
        return Process(item)


class Process:
    """A process doing one run. Its progress is read from the run's folder, its end from its exit code."""

    # Not multiprocessing: its children import the program's main module, so that a script which calls icl.sweep with
    # jobs=2 and has no `if __name__ == "__main__"` would begin again in each of them.
    def __init__(self, item: WorkItem) -> None:
        self._folder = item.run().folder
        self._end: Ending | None = None
        self._said = tempfile.TemporaryFile()  # noqa: SIM115
        with tempfile.TemporaryFile() as pipe:
            pickle.dump((os.getpid(), item), pipe)
            pipe.seek(0)
            # A process group of its own: Ctrl-C reaches this process alone, which passes it on once. No session of its
            # own, since a system that shares cores by session would not heed `nice`.
            self._process = subprocess.Popen(WORKER, stdin=pipe, stdout=self._said, stderr=self._said, process_group=0)

    def ending(self) -> Ending | None:
        """Return how the process ended, with the last line that it said; None while it runs."""
        code = self._process.poll()
        if code is not None and not self._said.closed:
            with self._said as said:
                said.seek(0)
                lines = [line for line in said.read().decode(errors="replace").splitlines() if line.strip()]
            reason = lines[-1].strip() if lines else f"exit code {code}"
            self._end = Ending({0: "done", 75: "stopped", 130: "stopped"}.get(code, "failed"), reason)
            if code < 0:
                self._end = Ending("lost", signal.Signals(-code).name)
        return self._end

    def status(self) -> Status | None:
        """Return the progress recorded in the run's folder."""
        return read_status(self._folder)

    def place(self) -> str:
        """Return nothing: it is this machine."""
        return ""

    def stop(self) -> None:
        """Send SIGINT."""
        self._process.send_signal(signal.SIGINT)

    def kill(self) -> None:
        """Send SIGKILL to the process and those it has started."""
        if self._process.poll() is None:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
            self.ending()


def main() -> None:
    """Do the run whose item is pickled on standard input; the exit code and the last line say how it ended."""
    asked = list[int]()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda number, frame: asked.append(number))
    driver, item = pickle.load(sys.stdin.buffer)
    try:
        # Without its driver a worker keeps a checkpoint and ends.
        item.execute(lambda: bool(asked) or os.getppid() != driver)
    except LabError as error:
        print(error, file=sys.stderr)
        sys.exit(error.exit_code)


def trainings_first(runs: Sequence[Run]) -> list[Run]:
    """Order runs: one of each training before all that share it, so that none repeats what another does."""
    met = Counter[tuple[str, int]]()

    def turn(run: Run) -> int:
        met[run.training] += 1
        return met[run.training]

    return sorted(runs, key=turn)


def _gpu(slot: int) -> str:
    count = torch.cuda.device_count()
    return f"cuda:{slot % count}" if count > 1 else "cuda"
