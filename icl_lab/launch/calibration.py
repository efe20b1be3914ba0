"""Throughput of this machine: steps a second of several runs at once, measured in processes and kept in a cache file.

Two runs at once share caches and memory bandwidth, so that a step timed alone tells too little. A measurement takes
seconds and is kept under the machine and the size of the model, unless others used the machine meanwhile.
"""

import json
import math
import os
import pickle
import platform
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import torch

from icl_lab import files
from icl_lab.parts import outside
from icl_lab.runs import environment, estimate
from icl_lab.runs.spec import RunSpec

MEASURED = 1.0  # seconds that steps are counted for, at least one step
BUSY = 0.5  # processes at work on average from which the machine is not free, so that nothing is kept
CPUINFO = Path("/proc/cpuinfo")
WORKER = (sys.executable, "-c", "from icl_lab.launch.calibration import main; main()")
Worker = subprocess.Popen[bytes]


def throughput(spec: RunSpec, threads: Mapping[int, int], say: Callable[[str], object]) -> dict[int, float]:
    """Return the steps a second of all runs together, by their number; ``threads`` are those of each run by number.

    A process that does not answer, for want of memory or of a package, adds nothing.
    """
    kept, key = _kept(), _key(spec)
    rates, names = kept.get(key, {}), {number: f"{number}x{each}" for number, each in threads.items()}
    if not rates.keys() >= set(names.values()):
        free = os.getloadavg()[0] < BUSY
        say("measuring how many runs at once are fastest on this machine: a few seconds")
        found = measured(spec, threads)
        rates = rates | {names[number]: rate for number, rate in found.items()}
        if free and all(found.values()):
            _keep(kept | {key: rates})
    return {number: rates[name] for number, name in names.items()}


def measured(spec: RunSpec, threads: Mapping[int, int]) -> dict[int, float]:
    """Measure what ``throughput`` returns, whatever the cache holds; 0 for all if a process does not start."""
    orders, pipe = pickle.dumps((spec, outside.orders())), subprocess.PIPE
    workers = [Worker(WORKER, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL) for _ in range(max(threads))]
    try:
        if b"" in _answers(workers, orders):
            return dict.fromkeys(threads, 0.0)
        asked = {number: _answers(workers[:number], b"%d\n" % each) for number, each in threads.items()}
        return {number: math.fsum(float(answer or 0) for answer in answers) for number, answers in asked.items()}
    finally:
        for worker in workers:
            worker.kill()
            worker.communicate()


def place() -> Path:
    """Return the cache file; what is in it can be deleted at any time."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "icl_lab" / "calibration.json"


def main() -> None:
    """Answer, for each number of threads on standard input, with the steps a second that this process does."""
    answers, sys.stdout = sys.stdout, sys.stderr  # parts from outside may print
    spec, imports = pickle.load(sys.stdin.buffer)
    outside.obey(imports)
    step, _ = estimate.stepper(spec, torch.device("cpu"))
    step()
    print("ready", file=answers, flush=True)
    for line in sys.stdin.buffer:
        torch.set_num_threads(int(line))
        step()  # starts the threads
        began, steps = time.monotonic(), 0
        while (passed := time.monotonic() - began) < MEASURED:
            step()
            steps += 1
        print(steps / passed, file=answers, flush=True)


def _answers(workers: Sequence[Worker], words: bytes) -> list[bytes]:
    """Tell all workers before the first answer is waited for; a dead one's is empty."""
    for worker in workers:
        with suppress(BrokenPipeError):
            assert worker.stdin is not None
            worker.stdin.write(words)
            worker.stdin.flush()
    return [worker.stdout.readline().strip() for worker in workers if worker.stdout is not None]


def _key(spec: RunSpec) -> str:
    """The machine, and what the time of a step depends on."""
    lines = CPUINFO.read_text().splitlines() if CPUINFO.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    machine = [environment.machine_class(), (names or [platform.processor()])[0], f"torch {torch.__version__}"]
    size = [spec.task, spec.attn, spec.model, spec.train.batch, spec.train.longest]
    return f"{', '.join(machine)} | {files.sha256(repr(size).encode())[:12]}"


def _kept() -> dict[str, dict[str, float]]:
    with suppress(OSError, ValueError):  # none yet, or damaged: it is measured again
        found = json.loads(place().read_bytes())
        return found if isinstance(found, dict) else {}
    return {}


def _keep(found: Mapping[str, Mapping[str, float]]) -> None:
    with suppress(OSError):  # without a home to write to, it is measured each time
        files.publish(place(), json.dumps(found, indent=1, sort_keys=True).encode())
