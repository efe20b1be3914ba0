"""The engines: steps eager, compiled and replayed as a CUDA graph, in single and in half precision."""

import time
from collections.abc import Iterator
from dataclasses import dataclass

import torch

from icl_lab.bench.base import Bench, Measurement, Steps, alternate
from icl_lab.errors import BadValue
from icl_lab.model.gpt2 import ModelSpec
from icl_lab.runs.presets import PRESETS
from icl_lab.training.recipe import Engine, Precision

PART = "engines"
ATTN = "softmax"
PAPER_STEPS = 500_000  # of the published recipe
SECONDS = 0.4  # that one timing of eager steps should take: long against a clock, short against a turn


@dataclass(frozen=True)
class Way:
    """An engine and a precision."""

    engine: Engine
    precision: Precision

    def __str__(self) -> str:
        return f"{self.engine} {self.precision}"


BASE = Way("eager", "float32")
OTHERS = (
    Way("compiled", "float32"),
    Way("graph", "float32"),
    Way("eager", "bf16"),
    Way("compiled", "bf16"),
    Way("graph", "bf16"),
)


@dataclass(frozen=True)
class EngineSize:
    """A preset's model and its longest training prompts."""

    name: str
    model: ModelSpec
    batch: int
    pairs: int


def measure(bench: Bench) -> Iterator[Measurement]:
    """Yields the steps of every engine against eager ones in single precision, and what comes before the first step.

    On a CPU at the size of preset lite, on CUDA also at the published one.
    """
    names = ("lite", "paper") if bench.device.type == "cuda" else ("lite",)
    for done, name in enumerate(names):
        preset = PRESETS[name]
        bench.tick(PART, done, len(names), name)
        yield from compare(EngineSize(name, preset.model, preset.train.batch, preset.train.longest), bench)
    bench.tick(PART, len(names), len(names), "")


def compare(size: EngineSize, bench: Bench) -> Iterator[Measurement]:
    """The engines that are possible here, in turns; those that are not are said."""
    ways: dict[Way, Steps] = {}
    for way in (BASE, *possible(bench.device)):
        began = time.perf_counter()
        try:
            steps = made(way, size, bench)
            steps()  # a graph is recorded at its first step
        except BadValue as error:
            bench.say(f"{PART}: {way}, {size.name}: {error}")
            continue
        if bench.device.type == "cuda":
            torch.cuda.synchronize(bench.device)
        ways[way] = steps
        if way.engine != "eager":
            took = time.perf_counter() - began
            yield bench.row(
                PART, f"{way}, {size.name}", "", took, "seconds before the second step", note="once for each length"
            )
    base, *_ = (alternate([ways[BASE]], 1, bench.device))[0]
    many = max(1, round(SECONDS / base))
    times = alternate([steps.times(many) for steps in ways.values()], bench.pairs, bench.device)
    each = {way: [seconds / many for seconds in own] for way, own in zip(ways, times, strict=True)}
    for way, own in each.items():
        ones = [1.0] * len(own)
        note = f"{PAPER_STEPS:,} steps: {sorted(own)[len(own) // 2] * PAPER_STEPS / 60:,.0f} minutes"
        yield bench.quotient(PART, f"{way}, {size.name}", "a second", "steps", ones, own, note=note)
        if way != BASE:
            yield bench.quotient(PART, f"{way}, {size.name}", str(BASE), "x as fast", each[BASE], own)


def possible(device: torch.device) -> list[Way]:
    """The other ways that are worth their minute: what half precision costs a CPU is seen without a compiler."""
    return [way for way in OTHERS if device.type == "cuda" or way != Way("compiled", "bf16")]


def made(way: Way, size: EngineSize, bench: Bench) -> Steps:
    """Returns our training by that engine, compiled where it must be."""
    return Steps(size.model, ATTN, size.batch, size.pairs, bench.device, way.engine, way.precision)
