"""The shift grid: one pass for all lengths, against one a length, against a loop over its cells."""

import math
from collections.abc import Callable, Iterator
from functools import partial

import torch

from icl_lab import tasks
from icl_lab.bench.base import Bench, Measurement, alternate
from icl_lab.model.gpt2 import GPT2, TokenSpec
from icl_lab.rng import stream
from icl_lab.runs.measure import BLOCK, Subject, TestSpec, draw, summary
from icl_lab.runs.measure import measure as cells
from icl_lab.runs.presets import PRESETS
from icl_lab.tasks.base import Prompt, Task

PART = "grid"
LENGTHS = tuple(float(length) for length in range(10, 201, 10))
SIGMAS = (1.0, 5.0)
PROMPTS = 64
METRIC = "mse-code"
PASSES = "one pass for all lengths"

Cell = tuple[float, float]  # sigma_f, length


def measure(bench: Bench) -> Iterator[Measurement]:
    """Yields how much sooner one pass is done than the two others, and how far their numbers are apart."""
    lite, task = PRESETS["lite"], tasks.build("linear")
    reading = TokenSpec(task.width, task.outputs, task.roles, task.tokens(lite.train.longest))
    model = GPT2(lite.model, reading, "softmax", stream(0, "init")).to(bench.device).eval()
    test = TestSpec(prompts=PROMPTS, axes={"sigma_x": [1.0], "sigma_f": list(SIGMAS), "length": list(LENGTHS)})
    ways: dict[str, Callable[[], dict[Cell, float]]] = {
        PASSES: partial(by_measure, model, task, test, True, bench.device),
        "one pass a length": partial(by_measure, model, task, test, False, bench.device),
        "a loop over cells": partial(by_hand, model, task, test, bench.device),
    }
    bench.tick(PART, 0, 1, f"{len(LENGTHS)} lengths, {len(SIGMAS)} shifts")
    times = dict(zip(ways, alternate(list(ways.values()), bench.pairs, bench.device), strict=True))
    found = {way: job() for way, job in ways.items()}
    for way in list(ways)[1:]:
        case = f"{PASSES} ({len(LENGTHS)})"
        yield bench.quotient(PART, case, way, "x as fast", times[way], times[PASSES])
        yield bench.row(PART, case, way, apart(found[PASSES], found[way]), "largest relative difference")
    bench.tick(PART, 1, 1, "")


def by_measure(model: GPT2, task: Task, test: TestSpec, one_pass: bool, device: torch.device) -> dict[Cell, float]:
    """The cells as ``sweep`` measures them, with or without the one pass."""
    subject = Subject(
        lambda prompt: model(prompt.tokens.to(device), answers=task.answers), one_pass, model.bytes_a_prompt
    )
    rows = cells({"model": subject}, task, test).cells
    return {(row["sigma_f"], row["length"]): row["value"] for row in rows if row["metric"] == METRIC}


@torch.no_grad()
def by_hand(model: GPT2, task: Task, test: TestSpec, device: torch.device) -> dict[Cell, float]:
    """The cells by the loop that one writes first: for each, draw its prompts, ask the model block by block, average.

    The prompts are those of ``sweep``, drawn at the greatest length and cut, so that the numbers can be compared.
    """
    found: dict[Cell, float] = {}
    for shift in test.shifts():
        for length in test.lengths:
            prompt = draw(task, test.lengths[-1], test, shift).first(task.tokens(length))
            blocks = [
                Prompt(*(part[at : at + BLOCK] for part in (prompt.tokens, prompt.targets, prompt.scored)))
                for at in range(0, test.prompts, BLOCK)
            ]
            errors = torch.cat([task.errors(model(block.tokens.to(device)).cpu(), block) for block in blocks])
            value = summary(task.views(errors, prompt, **shift)[METRIC])["value"]
            found[shift["sigma_f"], length] = value
    return found


def apart(one: dict[Cell, float], other: dict[Cell, float]) -> float:
    """The largest difference of two sets of the same cells, as a share of the larger value.

    >>> apart({(1.0, 10): 2.0}, {(1.0, 10): 1.5})
    0.25
    """
    if one.keys() != other.keys():
        return math.inf
    return max(abs(value - other[cell]) / max(abs(value), abs(other[cell]), 1e-300) for cell, value in one.items())
