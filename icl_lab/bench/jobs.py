"""Many runs: the wall time of four seeds, one at a time against two at a time, threads divided."""

import tempfile
from collections.abc import Iterator
from functools import partial
from itertools import count
from pathlib import Path

import torch

from icl_lab.bench.base import Bench, Row, alternate, child

PART = "jobs"
SEEDS, AT_ONCE = 4, 2
STEPS = 250  # each run long against the start of its process
PAIRS = 2  # at most: a pair takes a minute


def measure(bench: Bench) -> Iterator[Row]:
    """Yields the wall time of ``icl-lab sweep`` with ``--jobs 1`` over that with ``--jobs 2``."""
    # On a GPU most of the wall time is that of starting processes, and once is enough to see it.
    pairs, runs = min(PAIRS if bench.device.type == "cpu" else 1, bench.pairs), count()
    bench.tick(PART, 0, 1, f"{SEEDS} seeds, {pairs} times one by one and {pairs} times {AT_ONCE} at once")
    with tempfile.TemporaryDirectory(prefix="icl-lab-bench-") as folder:
        jobs = [partial(sweep, Path(folder), runs, at_once, bench.device) for at_once in (1, AT_ONCE)]
        child("-m", "icl_lab", "--help")  # what is warmed up is the disk; a whole run more would take too long
        one, several = alternate(jobs, pairs, bench.device, warm=False)
    case = f"{SEEDS} seeds, --jobs {AT_ONCE}"
    threads = torch.get_num_threads()
    note = f"{STEPS} steps each, {threads} threads in all"
    yield bench.quotient(PART, case, "--jobs 1", "x as fast", one, several, note=note)
    bench.tick(PART, 1, 1, "")


def sweep(folder: Path, runs: Iterator[int], at_once: int, device: torch.device) -> None:
    """Trains and tests the seeds from the command line, in a results folder that nobody has used."""
    settings = [f"train.steps={STEPS}", "test.prompts=64", "test.axes.length=40", "test.axes.sigma_x=1"]
    settings.append("test.axes.sigma_f=1")
    words = ["--results", str(folder / str(next(runs))), "--device", str(device)]
    words += ["--threads", str(torch.get_num_threads()), "--jobs", str(at_once), "--seeds", str(SEEDS)]
    words += [word for setting in settings for word in ("--set", setting)]
    child("-m", "icl_lab", "sweep", "--task", "linear", "--attn", "softmax", *words)
