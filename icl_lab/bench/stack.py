"""Many seeds in one process: a step of their stack against a step of each, one after another."""

import statistics
from collections.abc import Callable, Iterator

import torch

from icl_lab import tasks
from icl_lab.bench.base import Bench, Measurement, alternate
from icl_lab.model.gpt2 import GPT2, TokenSpec
from icl_lab.rng import stream
from icl_lab.runs.presets import PRESETS
from icl_lab.training import ensemble
from icl_lab.training.curriculum import Staircase
from icl_lab.training.ensemble import Stack, advance
from icl_lab.training.loop import advance as advance_one
from icl_lab.training.loop import optimizer, prepare
from icl_lab.training.recipe import TrainSpec

PART = "stack"
SEEDS = 8
RULES = ("softmax", "ssa")


def measure(bench: Bench) -> Iterator[Measurement]:
    """Yields, for each rule, the time of a step of every seed on its own over that of a step of their stack."""
    # A GPU's step is too short for one to be timed.
    steps = 1 if bench.device.type == "cpu" else 50
    for done, rule in enumerate(RULES):
        bench.tick(PART, done, len(RULES), rule)
        alone, together = alternate(jobs(rule, steps, bench.device), bench.pairs, bench.device)
        own = statistics.median(together) / steps
        longer = statistics.median(own * steps * SEEDS / seconds for seconds in alone)
        note = f"{SEEDS / own:.0f} steps a second over all seeds; {longer:.1f} x the time of one seed"
        case = f"{SEEDS} seeds of {rule}, lite, stacked"
        yield bench.quotient(PART, case, "one after another", "x as fast", alone, together, note=note)
    bench.tick(PART, len(RULES), len(RULES), "")


def jobs(rule: str, steps: int, device: torch.device) -> tuple[Callable[[], object], Callable[[], object]]:
    """Returns ``steps`` steps of each seed alone, and of all as one, at the longest prompts of preset lite."""
    lite, task = PRESETS["lite"], tasks.build("linear")
    longest = lite.train.longest
    spec = TrainSpec(batch=lite.train.batch, rate=1e-4, curriculum=Staircase(start=longest, stop=longest))
    reading = TokenSpec(task.width, task.outputs, task.roles, task.tokens(longest))
    models = [GPT2(lite.model, reading, rule, stream(seed, "init")).to(device).train() for seed in range(SEEDS)]
    stack = Stack(models, task)
    optim = ensemble.optimizer(stack, spec)
    engines = [prepare(model, task, optimizer(model, spec), spec) for model in models]

    def alone() -> None:
        for seed, engine in enumerate(engines):
            for step in range(steps):
                advance_one(engine, spec, seed, step)

    def together() -> None:
        for step in range(steps):
            advance(stack, optim, spec, range(SEEDS), step)

    return alone, together
