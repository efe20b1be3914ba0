"""Training steps of every normalizer and engine; against Hugging Face, the machine's products and torch's Muon."""

import statistics
import time
from collections.abc import Callable, Iterator
from functools import partial
from importlib.util import find_spec
from typing import Any

import torch
from msgspec import structs

from benchmarks.rows import Bench, Measurement
from icl_lab import normalizers, tasks
from icl_lab.base.errors import BadValue
from icl_lab.base.rng import stream
from icl_lab.model.gpt2 import GPT2, ModelSpec, TokenSpec
from icl_lab.runs.presets import PRESETS
from icl_lab.training.curriculum import Staircase
from icl_lab.training.loop import advance, optimizer, prepare
from icl_lab.training.muon import Muon
from icl_lab.training.recipe import Engine, Precision, TrainSpec

BATCH, PAIRS = 64, 40
SIDE = 1024  # of the square matrices whose product is taken for the peak: large enough for it, small enough to be quick
PRODUCTS = 16  # the most of them in one timing
BASELINE = "softmax"
WRAPPED = ("lssa+reweight:p=3",)  # a wrapper is named together with its normalizer
# Fields of a model, each with the value that is measured and the one that it is held against.
VARIED = (
    ("mask", "full", "causal"),
    *(("positions", code, "none") for code in ("alibi", "t5", "kerple", "fire")),
)
# Models by their published names, and how many of their steps one timing holds.
SIZES = {
    "2L4AH d=64": (ModelSpec(layers=2, heads=4, width=64), 5),
    "6L4AH d=128": (ModelSpec(layers=6, heads=4, width=128), 1),
    "12L8AH d=256": (ModelSpec(layers=12, heads=8, width=256), 1),
}
PAPER_STEPS = 500_000  # of the published recipe
SECONDS = 0.4  # that one timing of eager steps should take: long against a clock, short against a turn
Way = tuple[Engine, Precision]
EAGER: Way = ("eager", "float32")
HALF: Way = ("eager", "bf16")
ENGINES: tuple[Way, ...] = (EAGER, ("graph", "float32"), HALF, ("graph", "bf16"))
ON_CUDA = {"lite": ENGINES, "paper": ENGINES}  # by preset
ON_CPU = {"lite": (EAGER, HALF), "paper2": (EAGER, HALF)}


class Steps:
    """Our own training of ``linear``, step after step, at one length.

    Raises ``BadValue`` where the engine cannot do it here.
    """

    def __init__(
        self, model: ModelSpec, attn: str, batch: int, pairs: int, device: torch.device, way: Way = EAGER, seed: int = 0
    ) -> None:
        task, length = tasks.build("linear"), Staircase(start=pairs, stop=pairs)
        self.task, self.seed, self.step = task, seed, 0
        self.spec = TrainSpec(batch=batch, rate=1e-4, curriculum=length, engine=way[0], precision=way[1])
        self.tokens = TokenSpec(task.width, task.outputs, task.roles, task.tokens(pairs))
        self.model = GPT2(model, self.tokens, attn, stream(seed, "init")).to(device).train()
        self.engine = prepare(self.model, task, optimizer(self.model, self.spec), self.spec)

    def __call__(self) -> torch.Tensor:
        """Do the next step and return its loss."""
        self.step += 1
        return advance(self.engine, self.spec, self.seed, self.step - 1)

    def times(self, steps: int) -> Callable[[], object]:
        """Return a job of several steps."""
        return lambda: [self() for _ in range(steps)]


def steps_of(
    preset: str, device: torch.device, attn: str = BASELINE, way: Way = EAGER, seed: int = 0, **changed: str
) -> Steps:
    """Return steps at the size of a preset and its longest prompts; ``changed`` are fields of the model."""
    size = PRESETS[preset]
    model = structs.replace(size.model, **changed)
    return Steps(model, attn, size.train.batch, size.train.longest, device, way, seed)


def step(bench: Bench) -> Iterator[Measurement]:
    """Yield our step against others, its tokens a second and share of the peak; Muon's; that of each normalizer.

    Then that of a mask of both sides, and of each position code that adds to scores.
    """
    if not has_transformers():
        bench.say("step: transformers is not here, so nothing is held against it: pip install 'icl_lab[hf]'")
    asked: list[tuple[str, Callable[[], Iterator[Measurement]]]] = [
        (name, partial(against_others, name, model, steps, bench)) for name, (model, steps) in SIZES.items()
    ]
    asked += [("muon", partial(against_torch, size, bench)) for size in ("nano", "paper2")]
    varied = [("attn", rule, BASELINE) for rule in (*normalizers.names(), *WRAPPED)]
    asked += [(each[1], partial(against_usual, *each, bench)) for each in (*varied, *VARIED)]
    for _, rows in bench.counted(asked, lambda each: each[0]):
        yield from rows()


def has_transformers() -> bool:
    """True if the package can be imported here."""
    return find_spec("transformers") is not None


def against_others(name: str, model: ModelSpec, steps: int, bench: Bench) -> Iterator[Measurement]:
    """Our softmax step, in turns with matrix products and, where it is here, with the step of transformers."""
    ours = Steps(model, BASELINE, BATCH, PAIRS, bench.device)
    work = operations(model, ours.tokens, BATCH, 2 * PAIRS, PAIRS, keys=(2 * PAIRS + 1) / 2)
    products = min(PRODUCTS, max(1, round(steps * work / (2 * SIDE**3))))
    a, out = torch.ones(2, SIDE, SIDE, device=bench.device)
    jobs = [ours.times(steps), lambda: [torch.mm(a, a, out=out) for _ in range(products)]]
    if has_transformers():
        from benchmarks.hugging_face import Loop

        theirs = Loop(model.layers, model.heads, model.width, BATCH, PAIRS, bench.device)
        jobs.append(lambda: [theirs() for _ in range(steps)])
    mine, peak, *others = bench.alternate(*jobs)
    mine = [seconds / steps for seconds in mine]
    at_peak = [seconds * work / (products * 2 * SIDE**3) for seconds in peak]
    for other in others:
        there = [seconds / steps for seconds in other]
        yield bench.quotient(name, "Hugging Face GPT-2", "x as fast", there, mine)
    tokens = [float(BATCH * 2 * PAIRS)] * len(mine)
    yield bench.quotient(name, "a second", "tokens", tokens, mine)
    note = f"{work / 1e9:.2f} billion operations a step"
    yield bench.quotient(name, "float32 matrix product", "of its rate", at_peak, mine, note=note)


def against_torch(preset: str, bench: Bench) -> Iterator[Measurement]:
    """One step of Muon in turns with that of torch, on the matrices of a preset, without the rest of the step."""
    model = steps_of(preset, bench.device).model
    matrices = [model.get_parameter(name) for name in model.matrices()]
    for p in matrices:
        p.grad = p.detach().clone()
    ours, theirs = Muon(matrices, 0.0), torch.optim.Muon(matrices, weight_decay=0.0)
    own, there = bench.alternate(ours.step, theirs.step)
    yield bench.quotient(f"Muon, {preset}", "torch.optim.Muon", "x as fast", there, own)


def against_usual(field: str, value: str, usual: str, bench: Bench, steps: int = 2) -> Iterator[Measurement]:
    """The step with another normalizer, or a field of the model changed, in turns with the usual one, at size lite."""
    models: list[dict[str, Any]] = [{field: each} for each in (usual, value)]
    theirs, own = bench.alternate(*(steps_of("lite", bench.device, **each).times(steps) for each in models))
    case, against = (each if field == "attn" else f"{field}={each}" for each in (value, usual))
    seconds = statistics.median(own) / steps
    yield bench.quotient(f"{case}, lite", against, "x as long", own, theirs, seconds=seconds)


def operations(model: ModelSpec, spec: TokenSpec, batch: int, tokens: int, answers: int, keys: float) -> float:
    """The floating operations of the matrix products of one training step, a multiplication and an addition apart.

    Formula: n = b t tokens, m = b a answers, d the width, l layers, w numbers in a token, c in an answer, k keys a row:
    forward 2 n w d + l (8 n d^2 + 4 n k d) + 16 d^2 ((l - 1) n + m) + 2 m d c; backward twice as many, for the weights
    and for the inputs, but for the read-in, whose input wants no gradient

    k = t is the whole square of scores; a causal row needs (t + 1) / 2 keys in the mean. The last block's MLP reads the
    answers only. What else a step does (norms, softmax, gelu, Adam, scores that a fused kernel computes again) counts
    for nothing here.
    """
    n, m, d, layers = batch * tokens, batch * answers, model.width, model.layers
    read_in = 2.0 * n * spec.width * d
    attention = layers * (8.0 * n * d**2 + 4.0 * n * keys * d)
    mlp = 16.0 * d**2 * ((layers - 1) * n + m)
    return 2 * read_in + 3 * (attention + mlp + 2.0 * m * d * spec.outputs)


def engines(bench: Bench) -> Iterator[Measurement]:
    """Yield the steps of every engine against eager ones in single precision, and what comes before the first step.

    At the size of preset lite and at the published one, of which a CPU does the eager steps alone.
    """
    ways = ON_CUDA if bench.device.type == "cuda" else ON_CPU
    for size in bench.counted(list(ways)):
        made: dict[str, Steps] = {}
        for way in ways[size]:
            name, began = f"{' '.join(way)}, {size}", time.perf_counter()
            try:
                steps = steps_of(size, bench.device, way=way)
                float(steps())  # a graph is recorded at its first step
            except BadValue as error:
                bench.say(f"engines: {name}: {error}")
                continue
            made[name] = steps
            if way[0] != "eager":
                took, note = time.perf_counter() - began, "once for each length"
                yield bench.row(name, "", took, "seconds before the second step", note=note)
        yield from _steps_a_second(made, bench)


def _steps_a_second(made: dict[str, Steps], bench: Bench) -> Iterator[Measurement]:
    """Steps of engines in turns, the first of which is eager in single precision."""
    (base, eager), *_ = made.items()
    many = max(1, round(SECONDS / bench.alternate(eager, most=1)[0][0]))
    times = bench.alternate(*(steps.times(many) for steps in made.values()))
    each = {name: [seconds / many for seconds in own] for name, own in zip(made, times, strict=True)}
    for name, own in each.items():
        note = f"{PAPER_STEPS:,} steps: {sorted(own)[len(own) // 2] * PAPER_STEPS / 60:,.0f} minutes"
        yield bench.quotient(name, "a second", "steps", [1.0] * len(own), own, note=note)
        if name != base:
            yield bench.quotient(name, " ".join(EAGER), "x as fast", each[base], own)
