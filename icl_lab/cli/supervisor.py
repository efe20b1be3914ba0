"""Many runs at once: a supervisor of worker processes that loses none because another died.

A job is a process of its own. It reads its orders as one line of JSON, writes its progress as lines of JSON, and keeps
its results in the store, so nothing is lost with a process but the steps since its last checkpoint. A job that is
killed is started again, ``RETRIES`` times; a job that fails with a reason is not, since it would fail again.
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


@dataclass(frozen=True)
class Job:
    """A name for people, the orders for the process, and its size in steps (for the common progress bar)."""

    name: str
    orders: Mapping[str, Any]
    size: int


@dataclass(frozen=True)
class Outcome:
    """How a job ended: ``done``, ``failed`` (with its reason) or ``stopped`` (it goes on when asked again)."""

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

    ``tick`` is told the steps done over all jobs. When ``stopping()`` turns true, every process is asked to stop at its
    next step, and jobs that have not begun are left.
    """
    waiting: queue.SimpleQueue[Job] = queue.SimpleQueue()
    for job in jobs:
        waiting.put(job)
    outcomes: dict[str, Outcome] = {}
    steps = dict.fromkeys((job.name for job in jobs), 0)
    running: dict[str, subprocess.Popen[str]] = {}
    guard, stopped = threading.Lock(), threading.Event()

    def heard(job: Job, line: str) -> None:
        steps[job.name] = min(job.size, int(json.loads(line)["step"]))

    def work() -> None:
        while not stopped.is_set():
            try:
                job = waiting.get_nowait()
            except queue.Empty:
                return
            outcomes[job.name] = _run(job, command, running, guard, stopped, heard)
            steps[job.name] = job.size

    threads = [threading.Thread(target=work, daemon=True) for _ in range(min(workers, len(jobs)))]
    for thread in threads:
        thread.start()
    total = sum(job.size for job in jobs)
    while any(thread.is_alive() for thread in threads):
        tick(sum(steps.values()), total, f"{len(outcomes)} of {len(jobs)} runs over")
        if stopping() and not stopped.is_set():
            with guard:
                stopped.set()
                for process in running.values():
                    process.send_signal(signal.SIGINT)
        time.sleep(0.2)
    tick(total, total, f"{len(outcomes)} of {len(jobs)} runs over")
    left = {job.name: Outcome(job, "stopped", "not begun", 0) for job in jobs}
    return [outcomes.get(job.name, left[job.name]) for job in jobs]


def _run(
    job: Job,
    command: Sequence[str],
    running: dict[str, "subprocess.Popen[str]"],
    guard: threading.Lock,
    stopped: threading.Event,
    heard: Callable[[Job, str], object],
) -> Outcome:
    for attempt in range(1, RETRIES + 2):
        with guard:
            if stopped.is_set():
                return Outcome(job, "stopped", "asked to stop", attempt - 1)
            # A session of its own: Ctrl-C reaches the supervisor alone, which passes it on once, not twice.
            process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                start_new_session=True,
            )
            running[job.name] = process
        complaints: deque[str] = deque(maxlen=20)
        with process:
            orders, progress, said = process.stdin, process.stdout, process.stderr
            if orders is None or progress is None or said is None:
                raise RuntimeError("the process has no pipes")
            listener = threading.Thread(target=complaints.extend, args=(said,), daemon=True)
            listener.start()
            with suppress(BrokenPipeError):  # it died before it read; how is in its exit code
                orders.write(json.dumps(job.orders) + "\n")
                orders.close()
            for line in progress:
                heard(job, line)
            listener.join()
            code = process.wait()
        with guard:
            del running[job.name]
        reason = complaints[-1].strip() if complaints else f"exit code {code}"
        if code == 0:
            return Outcome(job, "done", "", attempt)
        if code in (75, 130):
            return Outcome(job, "stopped", reason, attempt)
        if code > 0:
            return Outcome(job, "failed", reason, attempt)
    return Outcome(job, "failed", f"killed by signal {-code} {attempt} times", attempt)
