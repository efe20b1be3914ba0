"""Estimated memory and time of a run: from its specification alone, or by a few measured steps.

From the specification nothing is allocated or measured. That estimate errs on the side of too much: it counts
activations as if every normalizer kept all that the greediest keeps (in a test, of a block of rows where the normalizer
is computed by blocks), and a checkpoint as written at the worst moment. docs/speed.md compares it with measured peaks.
"""

import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import accumulate

import msgspec
import numpy as np
import torch

from icl_lab import normalizers, tasks
from icl_lab.base.errors import BadValue
from icl_lab.base.rng import stream
from icl_lab.model import positions
from icl_lab.normalizers.base import BLOCK as ROWS
from icl_lab.normalizers.base import LONG
from icl_lab.runs import environment
from icl_lab.runs.measure import BLOCK, MEMORY
from icl_lab.runs.spec import RunSpec
from icl_lab.tasks.base import Task
from icl_lab.training import engines
from icl_lab.training.recipe import TrainSpec

FLOAT = 4  # bytes of a number in single precision
# Numbers kept for the backward pass of a layer: of a token, in widths; of a pair of tokens, in each head.
KEPT_A_TOKEN, KEPT_A_PAIR = 40, 8
# Copies of the parameters: themselves, gradients, two moments; of all but the gradients three more while a checkpoint
# is written.
COPIES, COPIES_IN_CHECKPOINT = 4, 9
# Bytes of a prompt as it is drawn: of a number in a token (one-hot in whole numbers, then in single precision), and of
# a token besides these (its target, whether it is scored, what its task draws on the way).
DRAWN_A_NUMBER, DRAWN_A_TOKEN = 12, 48
REFERENCE_A_PAIR = 20.0  # bytes of two tokens of a prompt in a reference predictor: 9 in the greediest, recall's rule
PACE = {"cpu": 2e10, "cuda": 5e12, "mps": 1e12}  # operations a second, about
OVERHEAD = 2e-4  # seconds of a layer in a step that has nothing to compute
YEAR = 365 * 86_400.0  # seconds: the most that one training or test may take
GB = 1e9
FEW = 2_000_000  # of the weights of a head, over all prompts of the pass that a test is estimated by
COUNTED = 20_000  # steps whose lengths are looked up; of more, as many are


@dataclass(frozen=True)
class RunSize:
    """Size of a run: parameters, bytes of its training and of its test, seconds of both."""

    parameters: int
    model: float
    step: float
    test: float
    train_seconds: float
    test_seconds: float

    @property
    def training(self) -> float:
        """Bytes of a training: the model with its optimizer, and one step."""
        return self.model + self.step


def size_of(spec: RunSpec, device: str = "cpu") -> RunSize:
    """Return the size of a run; ``device`` is a kind of device (cpu, cuda, mps)."""
    task, train, model = tasks.build(spec.task), spec.train, spec.model
    count = parameters(spec, task)
    batch, t = train.batch_at(train.steps - 1), task.tokens(train.longest)
    kept = model.layers * t * (KEPT_A_TOKEN * model.width + KEPT_A_PAIR * model.heads * t) + 4 * t * task.outputs
    step = batch * (FLOAT * kept + _drawn(task, t)) + t * t
    # Fewer tokens at the start of a curriculum, and a smaller batch, make it less than that.
    operations = 3.0 * batch * _forward(spec, task, count, t)
    shifts, lengths = len(spec.test.shifts()), spec.test.lengths
    tested = sum(_forward(spec, task, count, task.tokens(length)) for length in lengths)
    return RunSize(
        count,
        float(FLOAT * count * (COPIES + COPIES_IN_CHECKPOINT + (train.ema > 0))),
        float(step),
        prompts_bytes(spec, spec.test.prompts, lengths[-1], whole=False)
        + REFERENCE_A_PAIR * task.tokens(lengths[-1]) ** 2,
        train.steps * (operations / PACE[device] + OVERHEAD * model.layers),
        shifts * spec.test.prompts * tested / PACE[device],
    )


def training_operations(spec: RunSpec) -> float:
    """Return the operations of a training, about: three forward passes a prompt, at each step's own batch and length.

    Of many steps, a hundred are counted.
    """
    return operations_by_step(spec)(spec.train.steps)


def operations_by_step(spec: RunSpec) -> Callable[[int], float]:
    """Return the operations of the first steps of a training as a function of how many, as ``training_operations``."""
    task, train = tasks.build(spec.task), spec.train
    count, counted = parameters(spec, task), range(0, train.steps, max(1, train.steps // 100))
    read = ((train.batch_at(step), task.tokens(train.length_at(step))) for step in counted)
    sums = list(accumulate((batch * _forward(spec, task, count, t) for batch, t in read), initial=0.0))
    ends = [train.steps * number / len(counted) for number in range(len(sums))]
    return lambda step: float(3.0 * np.interp(step, ends, sums) * train.steps / len(counted))


def test_operations(spec: RunSpec) -> float:
    """Return the operations of a test, about: a forward pass a prompt and cell, one for lengths cut from the greatest.

    References are left out, and normalizers that need a pass for every length are reckoned as the others.
    """
    task, test = tasks.build(spec.task), spec.test
    count, lengths = parameters(spec, task), test.lengths[-1:] if task.prefixes else test.lengths
    sets = len(test.shifts()) * (len(task.suites()) if test.draws != "paper" else 1)
    return sets * _prompts(spec, task) * sum(_forward(spec, task, count, task.tokens(length)) for length in lengths)


def prompts_bytes(spec: RunSpec, prompts: int, length: int, *, whole: bool = True) -> float:
    """Return the bytes that the answers to ``prompts`` prompts of ``length`` examples take, with the model.

    A test keeps the errors of all prompts, and the answers only of some at a time: ``whole=False``.
    """
    task, model = tasks.build(spec.task), spec.model
    t, stored = task.tokens(length), -(-prompts // BLOCK) * BLOCK
    outputs = 3 * FLOAT * t * task.outputs  # a piece, all pieces, and what views make of them
    rows = ROWS if not whole and t >= LONG and _by_blocks(spec, t) else t
    one = FLOAT * t * (5 * model.heads * rows + 12 * model.width)
    held = 2 * FLOAT * parameters(spec, task)
    kept = stored * (2 * _drawn(task, t) + (outputs if whole else 3 * FLOAT * t))
    return held + kept + max(MEMORY, float(one + outputs)) + t * t


def _by_blocks(spec: RunSpec, t: int) -> bool:
    """True if the normalizer is computed by blocks of rows, and no position code adds a whole matrix to its scores."""
    model = spec.model
    site = {"heads": model.heads, "head_dim": model.width // model.heads, "train_tokens": t}
    rule = normalizers.build(spec.attn, **site)
    return rule.fits_blocks(causal=model.mask == "causal") and not _code(spec, t).adds_to_scores


def _code(spec: RunSpec, t: int) -> positions.Positions:
    with torch.device("meta"):  # a table of any size takes no memory there
        return positions.build(spec.model.positions, spec.model.width, spec.model.width // spec.model.heads, t)


def parameters(spec: RunSpec, task: Task) -> int:
    """Return the parameters of a model, those of its normalizers apart: they are few."""
    model, d = spec.model, spec.model.width
    code = _code(spec, task.tokens(spec.train.longest))
    norm, last = 2 * d * model.norm, {"layer": 2 * d, "rms": d, "none": 0}[model.norm_before_read_out]
    block = (4 * d * d + 4 * d + norm) * model.attention + (8 * d * d + 5 * d + norm) * model.mlp
    ends = (task.vocabulary or task.width + 1) * d + (d + 1) * task.outputs + last + 2 * d * model.norm_in
    return model.layers * block + ends + sum(p.numel() for p in code.parameters())


def room(device: torch.device) -> float:
    """Return the bytes of memory of a device; of the whole machine where it has no separate memory."""
    if device.type == "cuda":
        return float(torch.cuda.get_device_properties(device).total_memory)
    return float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))


def check_training(spec: RunSpec, device: torch.device, together: int = 1) -> None:
    """Raise ``BadValue`` where ``together`` trainings of a kind do not fit the device, or one takes over a year."""
    size = size_of(spec, device.type)
    whole = f"{together} trainings at once" if together > 1 else "the training"
    parts = f"{_gb(size.model)} GB for {size.parameters:,} parameters, {_gb(size.step)} GB for a step"
    _fits(whole, together * size.training, parts, room(device))
    _in_time("the training", size.train_seconds, f"{spec.train.steps:,} steps")


def check_test(spec: RunSpec, device: torch.device, together: int = 1, swap: str = "") -> None:
    """Raise ``BadValue`` where ``together`` tests do not fit into memory, or one takes over a year.

    ``swap`` is the normalizer that the model is tested with, where that is another one.
    """
    size, test = size_of(msgspec.structs.replace(spec, attn=swap or spec.attn), device.type), spec.test
    what = f"{test.prompts:,} prompts of {test.lengths[-1]:,} examples"
    _fits("the test", together * size.test, what, room(torch.device("cpu")))
    _in_time("the test", size.test_seconds, f"{what} in {len(test.shifts()) * len(test.lengths):,} cells")


def check_prompts(spec: RunSpec, sets: Iterable[tuple[int, int]]) -> None:
    """Raise ``BadValue`` where prompts that an analysis asks for, each set a count and a length, do not fit."""
    for prompts, length in sets:
        what = f"{prompts:,} prompts of {length:,} examples"
        _fits("the analysis", prompts_bytes(spec, prompts, length), what, room(torch.device("cpu")))


def training_seconds(spec: RunSpec, device: torch.device) -> tuple[float, int]:
    """Return the seconds that training will take here, and the working parameters.

    Raises ``BadValue`` where the device is not one for the engine.
    """
    engines.check(spec.train.engine, device)
    seconds, count = _timed_step(spec, device)
    return seconds * examples(spec.train) / spec.train.longest, count


def _timed_step(spec: RunSpec, device: torch.device) -> tuple[float, int]:
    """Seconds of a step at full length, the fastest of three, and the working parameters.

    An eager step in single precision, whatever the engine: to compile would take longer than to estimate.
    """
    task = tasks.build(spec.task)
    model = spec.untrained(task, 0).to(device)
    prompt = task.sample(stream(0, "estimate"), spec.train.batch, spec.train.longest).to(device)

    def step() -> None:
        torch.autograd.backward(task.loss(model(prompt.tokens, answers=task.answers), prompt))

    step()  # the first one includes set-up costs
    # The fastest of three: a machine that others use is slow now and then.
    return min(environment.seconds(step, device) for _ in range(3)), model.parameter_count()


@torch.no_grad()
def test_seconds(spec: RunSpec, device: torch.device) -> float:
    """Return the seconds that the test of a model will take here, by a few prompts of the greatest length.

    That is the greater part of it; references come on top, and normalizers without a pass for all lengths take less
    than the estimate where the lengths differ much.
    """
    task = tasks.build(spec.task)
    model = spec.untrained(task, 0).to(device).eval()
    lengths = spec.test.lengths
    prompts = _prompts(spec, task)
    few = max(1, min(prompts, FEW // task.tokens(lengths[-1]) ** 2))
    tokens = task.sample(stream(0, "estimate"), few, lengths[-1]).to(device).tokens

    def one() -> None:
        model(tokens, answers=task.answers).cpu()

    one()
    passes = 1.0 if task.prefixes and model.prefix_consistent else sum(lengths) / lengths[-1]
    sets = len(spec.test.shifts()) * (len(task.suites()) if spec.test.draws != "paper" else 1)
    return min(environment.seconds(one, device) for _ in range(2)) * sets * passes * prompts / few


def _prompts(spec: RunSpec, task: Task) -> int:
    test = spec.test
    return test.prompts if test.draws != "paper" else len(task.published(test.lengths[0], **test.shifts()[0]).tokens)


def examples(spec: TrainSpec, since: int = 0) -> float:
    """Return the sum of the prompts' lengths over the steps from ``since`` on, in batches of the first step's size.

    Of very many steps, from a part.
    """
    stride = max(1, (spec.steps - since) // COUNTED)
    counted = range(since, spec.steps, stride)
    read = sum(spec.length_at(step) * spec.batch_at(step) for step in counted) / spec.batch
    return read * (spec.steps - since) / max(1, len(counted))


def _drawn(task: Task, t: int) -> float:
    return float(t * (DRAWN_A_NUMBER * task.width + DRAWN_A_TOKEN))


def _forward(spec: RunSpec, task: Task, count: int, t: int) -> float:
    """Operations of one forward pass of a prompt: two per parameter and token, four per pair of tokens and width."""
    return 2.0 * count * t + 4.0 * spec.model.layers * spec.model.width * t * t


def _fits(what: str, needs: float, parts: str, bound: float) -> None:
    if needs > bound:
        raise BadValue(
            f"{what} would need about {_gb(needs)} GB of memory ({parts}), more than the {_gb(bound)} GB that are "
            "here; ask for less, or add --allow-large to try all the same."
        )


def _gb(size: float) -> str:
    return f"{size / GB:,.0f}" if size >= 10 * GB else f"{size / GB:.2g}"


def _in_time(what: str, seconds: float, parts: str) -> None:
    if seconds > YEAR:
        raise BadValue(
            f"{what} would take about {seconds / YEAR:,.1f} years ({parts}), more than the one that is the bound; ask "
            "for less, or add --allow-large to try all the same."
        )
