"""Many runs: the wall time of four seeds, one at a time, two at a time with the threads divided, and as one stack."""

import tempfile
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import count
from pathlib import Path

import torch

from icl_lab.bench.base import Bench, Measurement, alternate, child

PART = "jobs"
SEEDS, AT_ONCE = 4, 2
STEPS = 200  # each run long against the start of its process
PAIRS = 1  # at most: it takes a minute and more


def measure(bench: Bench) -> Iterator[Measurement]:
    """Yields how long ``icl-lab sweep`` takes with ``--jobs 1`` over that of other ways: two at once, on a GPU more."""
    ways: list[tuple[str, ...]] = [("--jobs", "1"), ("--jobs", str(AT_ONCE))]
    pairs, runs = min(PAIRS, bench.pairs), count()
    if bench.device.type == "cuda":
        # A CPU has too few cores for the one, and gains nothing from the other.
        ways += [("--jobs", str(SEEDS)), ("--stack",)]
    names = [" ".join(way) for way in ways]
    bench.tick(PART, 0, 1, f"{SEEDS} seeds, {pairs} times each: {', '.join(names)}")
    with tempfile.TemporaryDirectory(prefix="icl-lab-bench-") as folder:
        jobs = [partial(sweep, Path(folder), runs, way, bench.device) for way in ways]
        child("-m", "icl_lab", "--help")  # what is warmed up is the disk; a whole run more would take too long
        one, *others = alternate(jobs, pairs, bench.device, warm=False)
    note = f"{STEPS} steps each, {torch.get_num_threads()} threads in all"
    for name, times in zip(names[1:], others, strict=True):
        yield bench.quotient(PART, f"{SEEDS} seeds, {name}", names[0], "x as fast", one, times, note=note)
    bench.tick(PART, 1, 1, "")


def sweep(folder: Path, runs: Iterator[int], way: Sequence[str], device: torch.device) -> None:
    """Trains and tests the seeds from the command line, in a results folder that nobody has used."""
    settings = [f"train.steps={STEPS}", "test.prompts=64", "test.axes.length=40", "test.axes.sigma_x=1"]
    settings.append("test.axes.sigma_f=1")
    words = ["--results", str(folder / str(next(runs))), "--device", str(device)]
    words += ["--threads", str(torch.get_num_threads()), *way, "--seeds", str(SEEDS)]
    words += [word for setting in settings for word in ("--set", setting)]
    child("-m", "icl_lab", "sweep", "--task", "linear", "--attn", "softmax", *words)
