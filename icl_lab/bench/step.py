"""The training step: against Hugging Face, the machine's own matrix product and torch's Muon, and of every rule."""

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass

import torch

from icl_lab import normalizers
from icl_lab.bench import hugging_face
from icl_lab.bench.base import Bench, Measurement, Steps, alternate
from icl_lab.model.gpt2 import ModelSpec, TokenSpec
from icl_lab.runs.presets import PRESETS
from icl_lab.training.muon import Muon

PART = "step"
BATCH, PAIRS = 64, 40
SIDE = 1024  # of the square matrices whose product is taken for the peak: large enough for it, small enough to be quick
PRODUCTS = 16  # the most of them in one timing
BASELINE = "softmax"
WRAPPED = ("lssa+reweight:p=3",)  # a wrapper has no name of its own


@dataclass(frozen=True)
class StepSize:
    """A model by its published name, and how many of its steps one timing holds."""

    name: str
    model: ModelSpec
    steps: int = 1


SIZES = (
    StepSize("2L4AH d=64", ModelSpec(layers=2, heads=4, width=64), steps=5),
    StepSize("6L4AH d=128", ModelSpec(layers=6, heads=4, width=128)),
    StepSize("12L8AH d=256", ModelSpec(layers=12, heads=8, width=256)),
)


def measure(bench: Bench) -> Iterator[Measurement]:
    """Yields the step against that of transformers, its tokens a second and share of the peak; Muon's; each rule's."""
    rules = [*normalizers.names(), *WRAPPED]
    total = len(SIZES) + 1 + len(rules)
    if not hugging_face.available():
        bench.say(f"{PART}: transformers is not here, so nothing is held against it: pip install 'icl_lab[hf]'")
    for done, size in enumerate(SIZES):
        bench.tick(PART, done, total, size.name)
        yield from against_others(size, bench)
    bench.tick(PART, len(SIZES), total, "muon")
    yield against_torch(bench)
    for done, rule in enumerate(rules, len(SIZES) + 1):
        bench.tick(PART, done, total, rule)
        yield against_softmax(rule, bench)
    bench.tick(PART, total, total, "")


def against_others(size: StepSize, bench: Bench) -> Iterator[Measurement]:
    """Our softmax step, in turns with matrix products and, where it is here, with the step of transformers."""
    model, device = size.model, bench.device
    ours = Steps(model, BASELINE, BATCH, PAIRS, device)
    work = operations(model, ours.reading, BATCH, 2 * PAIRS, PAIRS, keys=(2 * PAIRS + 1) / 2)
    products = min(PRODUCTS, max(1, round(size.steps * work / (2 * SIDE**3))))
    jobs = [ours.times(size.steps), lambda: multiply(products, device)]
    if hugging_face.available():
        theirs = hugging_face.Loop(model.layers, model.heads, model.width, BATCH, PAIRS, device)
        jobs.append(lambda: [theirs() for _ in range(size.steps)])
    mine, peak, *others = alternate(jobs, bench.pairs, device)
    mine = [seconds / size.steps for seconds in mine]
    at_peak = [seconds * work / (products * 2 * SIDE**3) for seconds in peak]
    if others:
        there = [seconds / size.steps for seconds in others[0]]
        yield bench.quotient(PART, size.name, "Hugging Face GPT-2", "x as fast", there, mine)
    tokens = [float(BATCH * 2 * PAIRS)] * len(mine)
    yield bench.quotient(PART, size.name, "a second", "tokens", tokens, mine)
    note = f"{work / 1e9:.2f} billion operations a step"
    yield bench.quotient(PART, size.name, "float32 matrix product", "of its rate", at_peak, mine, note=note)


def against_torch(bench: Bench) -> Measurement:
    """One step of Muon in turns with that of torch, on the matrices of preset nano, without the rest of the step."""
    nano = PRESETS["nano"]
    model = Steps(nano.model, BASELINE, nano.train.batch, nano.train.longest, bench.device).model
    matrices = [model.get_parameter(name) for name in model.matrices()]
    for p in matrices:
        p.grad = p.detach().clone()
    ours, theirs = Muon(matrices, 0.0), torch.optim.Muon(matrices, weight_decay=0.0)
    own, there = alternate([ours.step, theirs.step], bench.pairs, bench.device)
    return bench.quotient(PART, "Muon, nano", "torch.optim.Muon", "x as fast", there, own)


def against_softmax(rule: str, bench: Bench, steps: int = 2) -> Measurement:
    """The step of a rule in turns with that of softmax, at the size of preset lite and its longest prompts."""
    lite = PRESETS["lite"]
    base, other = (
        Steps(lite.model, attn, lite.train.batch, lite.train.longest, bench.device).times(steps)
        for attn in (BASELINE, rule)
    )
    theirs, own = alternate([base, other], bench.pairs, bench.device)
    row = bench.quotient(PART, f"{rule}, lite", BASELINE, "x as long", own, theirs)
    return dataclasses.replace(row, seconds=sorted(own)[len(own) // 2] / steps)


def multiply(products: int, device: torch.device) -> torch.Tensor:
    """Multiplies two square matrices, ``products`` times: the most that float32 arithmetic can hope for here."""
    a = torch.ones(SIDE, SIDE, device=device)
    b = torch.ones(SIDE, SIDE, device=device)
    out = torch.empty_like(a)
    for _ in range(products):
        torch.mm(a, b, out=out)
    return out


def operations(model: ModelSpec, reading: TokenSpec, batch: int, tokens: int, answers: int, keys: float) -> float:
    """The floating operations of the matrix products of one training step, a multiplication and an addition apart.

    Formula: n = b t tokens, m = b a answers, d the width, l layers, w numbers in a token, c in an answer, k keys a row:
    forward 2 n w d + l (8 n d^2 + 4 n k d) + 16 d^2 ((l - 1) n + m) + 2 m d c; backward twice as many, for the weights
    and for what was read, but for the read-in, whose input wants no gradient

    k = t is the whole square of scores; a causal row needs (t + 1) / 2 keys in the mean. The last block's MLP reads the
    answers only. What else a step does (norms, softmax, gelu, Adam, scores that a fused kernel computes again) counts
    for nothing here.
    """
    n, m, d, layers = batch * tokens, batch * answers, model.width, model.layers
    read_in = 2.0 * n * reading.width * d
    attention = layers * (8.0 * n * d**2 + 4.0 * n * keys * d)
    mlp = 16.0 * d**2 * ((layers - 1) * n + m)
    return 2 * read_in + 3 * (attention + mlp + 2.0 * m * d * reading.outputs)
