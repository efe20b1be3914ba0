"""Whole runs: the shift grid in one pass and otherwise, four seeds at once, and the start of a process."""

import tempfile
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from itertools import count
from pathlib import Path

import torch

from benchmarks.rows import Bench, Measurement, child
from icl_lab import tasks
from icl_lab.base.rng import stream
from icl_lab.model.gpt2 import GPT2, TokenSpec
from icl_lab.pipeline import subject
from icl_lab.runs.measure import BLOCK, TestSpec, draw, measure, summary
from icl_lab.runs.presets import PRESETS
from icl_lab.tasks.base import Task

LENGTHS = tuple(float(length) for length in range(10, 201, 10))
PROMPTS, SIGMAS, METRIC = 64, (1.0, 5.0), "mse-code"
SEEDS = 4
STEPS = 1000  # of each of these runs: long against the start of its process
STARTS = {
    "python": ("-c", "pass"),
    "import torch": ("-c", "import torch"),
    "icl-lab --help": ("-m", "icl_lab", "--help"),
    "import icl_lab.pipeline": ("-c", "import icl_lab.pipeline"),
}


def grid(bench: Bench) -> Iterator[Measurement]:
    """Yield how much sooner one pass for all lengths is done than other ways, and how far their numbers are apart."""
    lite, task = PRESETS["lite"], tasks.build("linear")
    tokens = TokenSpec(task.width, task.outputs, task.roles, task.tokens(lite.train.longest))
    model = GPT2(lite.model, tokens, "softmax", stream(0, "init")).to(bench.device).eval()
    test = TestSpec(prompts=PROMPTS, axes={"sigma_x": [1.0], "sigma_f": list(SIGMAS), "length": list(LENGTHS)})
    bench.tick(bench.part, 0, 1, f"{len(LENGTHS)} lengths, {len(SIGMAS)} shifts")
    once = partial(by_measure, model, task, test, True, bench.device)
    ways = {
        "one pass a length": partial(by_measure, model, task, test, False, bench.device),
        "a loop over cells": partial(by_hand, model, task, test, bench.device),
    }
    own, *others = bench.alternate(once, *ways.values())
    values, case = once(), f"one pass for all lengths ({len(LENGTHS)})"
    for (way, job), times in zip(ways.items(), others, strict=True):
        yield bench.quotient(case, way, "x as fast", times, own)
        apart = (values - job()).abs() / torch.maximum(values.abs(), job().abs())
        yield bench.row(case, way, apart.max().item(), "largest relative difference")
    bench.tick(bench.part, 1, 1, "")


def by_measure(model: GPT2, task: Task, test: TestSpec, one_pass: bool, device: torch.device) -> torch.Tensor:
    """The cells as ``sweep`` measures them, with or without the one pass, in the order of shifts and lengths."""
    asked = replace(subject(model, task, device), one_pass=one_pass, exact_within_bound=None)
    rows = measure({"model": asked}, task, test).cells
    return torch.tensor([row["value"] for row in rows if row["metric"] == METRIC], dtype=torch.float64)


@torch.no_grad()
def by_hand(model: GPT2, task: Task, test: TestSpec, device: torch.device) -> torch.Tensor:
    """The cells by the loop that one writes first: for each, draw its prompts, ask the model block by block, average.

    The prompts are those of ``sweep``, drawn at the greatest length and cut, so that the numbers can be compared.
    """
    found = []
    for shift in test.shifts():
        for length in test.lengths:
            prompt = draw(task, test.lengths[-1], test, shift).first(task.tokens(length))
            answered = ((model(piece.tokens.to(device)).cpu(), piece) for piece in prompt.pieces(BLOCK))
            errors = torch.cat([task.errors(*each) for each in answered])
            found.append(summary(task.views(errors, prompt, **shift)[METRIC])["value"])
    return torch.tensor(found, dtype=torch.float64)


def jobs(bench: Bench) -> Iterator[Measurement]:
    """Yield whole commands, ``icl-lab sweep --jobs 1`` against other ways; on a CPU two at once, on a GPU more."""
    names, fresh = ["--jobs 1", "--jobs 2"], count()
    if bench.device.type == "cuda":
        names.append(f"--jobs {SEEDS}")
    threads = torch.get_num_threads()
    settings = [f"train.steps={STEPS}", "test.prompts=64", "test.axes.length=40", "test.axes.sigma_x=1"]
    sets = [word for setting in (*settings, "test.axes.sigma_f=1") for word in ("--set", setting)]
    words = ["-m", "icl_lab", "sweep", "--task", "linear", "--attn", "softmax", "--seeds", str(SEEDS), *sets]
    words += ["--device", str(bench.device), "--threads", str(threads)]
    bench.tick(bench.part, 0, 1, f"{SEEDS} seeds, once each: {', '.join(names)}")
    with tempfile.TemporaryDirectory(prefix="icl-lab-bench-") as folder:

        def sweep(way: str) -> None:
            child(*words, *way.split(), "--results", str(Path(folder) / str(next(fresh))))  # nobody has used it

        child("-m", "icl_lab", "--help")  # warms up the disk alone; a whole run more would take too long
        one, *others = bench.alternate(*(partial(sweep, way) for way in names), most=1, warm=False)
    note = f"{STEPS} steps each, {threads} threads in all"
    for way, times in zip(names[1:], others, strict=True):
        yield bench.quotient(f"{SEEDS} seeds, {way}", names[0], "x as fast", one, times, note=note)
    bench.tick(bench.part, 1, 1, "")


def start(bench: Bench) -> Iterator[Measurement]:
    """Yield the start of a process that helps or imports, against one that does less."""
    bench.tick(bench.part, 0, 1, "")
    found = bench.alternate(*(partial(child, *words) for words in STARTS.values()))
    times = dict(zip(STARTS, found, strict=True))
    for case, base in (("icl-lab --help", "python"), ("import icl_lab.pipeline", "import torch")):
        yield bench.quotient(case, base, "x as fast", times[base], times[case])
    bench.tick(bench.part, 1, 1, "")
