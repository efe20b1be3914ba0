"""The training loop: fresh prompts at every step, a curriculum that is a function of the step."""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from statistics import fmean
from typing import Annotated, Any, Literal

import msgspec
import torch
from msgspec import Meta
from torch import Tensor, nn

from icl_lab.errors import RunFailed, Stopped
from icl_lab.model.gpt2 import GPT2
from icl_lab.rng import stream
from icl_lab.tasks.base import Task
from icl_lab.training import engines
from icl_lab.training.curriculum import Staircase

Positive = Annotated[int, Meta(ge=1)]
Rate = Annotated[float, Meta(gt=0, le=1)]

ROW = 50  # steps that one row of the history sums up
CHECKPOINT_SECONDS = 15.0


class TrainSpec(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How a model is trained: Adam without decay, a rate that rises for ``warmup`` steps, then stays or falls.

    ``clip`` bounds the norm of the gradient (0: no bound). ``schedule=cosine`` ends at 1 % of ``rate``. From
    ``switch_step`` on (0: never) the rule ``switch_to`` stands in the place of the first one, its parameters at their
    start, and the rate rises anew: variant f of arXiv 2501.19399. ``shift`` holds the standard deviations (axes of the
    task's shift grid) of the training prompts that are not 1: a wider training law.

    ``engine`` says how a step is executed: ``eager`` as it is written; ``compiled`` with the loss and its gradients as
    code made by ``torch.compile``, which takes a while before the first step; ``graph`` recorded whole for each length
    and replayed, on CUDA only. ``precision=bf16`` takes the products inside the blocks in half precision, in training
    and not in tests. Engines differ by rounding, but training amplifies rounding, so both are part of what a run is.
    """

    steps: Positive = 6000
    batch: Positive = 64
    rate: Rate = 1e-3
    schedule: Literal["constant", "cosine"] = "cosine"
    warmup: Annotated[int, Meta(ge=0)] = 100
    clip: Annotated[float, Meta(ge=0)] = 1.0
    curriculum: Staircase = Staircase()
    switch_step: Annotated[int, Meta(ge=0)] = 0
    switch_to: str = ""
    shift: dict[str, float] = {}
    engine: engines.Name = "eager"
    precision: engines.Precision = "float32"

    def __post_init__(self) -> None:
        if bool(self.switch_step) != bool(self.switch_to):
            raise ValueError("switch_step and switch_to go together")
        for axis, sigma in self.shift.items():
            if not 0 < sigma < math.inf:
                raise ValueError(f"shift.{axis} must be finite and > 0, got {sigma:g}")
        if self.switch_step >= self.steps:
            raise ValueError(f"switch_step must be < steps, got {self.switch_step} of {self.steps}")

    def rate_at(self, step: int) -> float:
        """The learning rate of ``step`` (from 0)."""
        since = step - self.switch_step if step >= self.switch_step else step
        rise = min(1.0, (since + 1) / (self.warmup + 1))
        if self.schedule == "constant":
            return self.rate * rise
        share = max(0, step - self.warmup) / max(1, self.steps - self.warmup)
        return self.rate * rise * (0.01 + 0.99 * 0.5 * (1 + math.cos(math.pi * share)))

    def length_at(self, step: int) -> int:
        """The examples in the prompts of ``step`` (from 0)."""
        return self.curriculum.at(step, self.steps)

    @property
    def longest(self) -> int:
        """The examples in the longest prompts that the curriculum reaches."""
        return self.curriculum.height(self.steps - 1, self.steps)


@dataclass
class Progress:
    """Where a training stands: everything that the rest of it depends on, but for the model's own numbers."""

    step: int = 0  # steps done
    history: list[dict[str, float]] = field(default_factory=list)
    pending: list[float] = field(default_factory=list)  # losses since the last row of the history
    optimizer: dict[str, Any] | None = None


def train(
    model: GPT2,
    task: Task,
    spec: TrainSpec,
    seed: int,
    progress: Progress,
    keep: Callable[[Progress], object],
    *,
    stopping: Callable[[], bool] = lambda: False,
    tick: Callable[[int, float], object] = lambda step, loss: None,
) -> list[dict[str, float]]:
    """Trains ``model`` in place from ``progress`` to the last step, and returns the history, one row for ``ROW`` steps.

    The prompts of a step are drawn at the address (seed, "train", step), so a training that is stopped and taken up
    again is bit for bit the one that never stopped. ``keep`` is called with all that is needed to go on, every
    ``CHECKPOINT_SECONDS`` and before leaving early; ``tick`` after each row.

    Raises ``RunFailed`` at the first loss that is not finite, with its step and value, and keeps nothing from after it;
    raises ``Stopped`` when ``stopping()`` turns true, and ``BadValue`` where the engine cannot do this training.
    """
    device = next(model.parameters()).device
    adam = optimizer(model)
    if progress.optimizer is not None:
        adam.load_state_dict(progress.optimizer)
    engine = prepare(model, task, adam, spec)
    history, pending = list(progress.history), [torch.tensor(loss, device=device) for loss in progress.pending]
    kept = time.monotonic()
    model.train()
    for step in range(progress.step, spec.steps):
        if spec.switch_to and step == spec.switch_step:
            model.swap_rule(spec.switch_to)
            adam = optimizer(model, adam)
            engine = prepare(model, task, adam, spec)
        pending.append(advance(engine, spec, seed, step))
        done = step + 1
        if done % ROW == 0 or done == spec.steps:
            # Read in groups, so that a GPU need not wait at every step; nothing is kept before it is read.
            history.append(row(model, spec, done, read(pending, done)))
            pending = []
            tick(done, history[-1]["loss"])
        if done < spec.steps and (stopping() or time.monotonic() - kept > CHECKPOINT_SECONDS):
            keep(Progress(done, history, read(pending, done), adam.state_dict()))
            kept = time.monotonic()
            if stopping():
                raise Stopped(f"stopped at step {done} of {spec.steps}; the same command goes on from there.")
    model.eval()
    return history


def prepare(model: GPT2, task: Task, adam: torch.optim.Adam, spec: TrainSpec) -> engines.Eager:
    """Returns the engine that does the steps of a training; raises ``BadValue`` where it cannot."""
    work = engines.Work(model, task, adam, spec.clip, spec.precision, spec.batch, spec.longest)
    return engines.build(spec.engine, work)


def advance(engine: engines.Eager, spec: TrainSpec, seed: int, step: int) -> Tensor:
    """Does one step of Adam on the prompts of ``step``, and returns their loss without synchronising the device."""
    model, task = engine.work.model, engine.work.task
    device = next(model.parameters()).device
    prompt = task.sample(stream(seed, "train", step), spec.batch, spec.length_at(step), **spec.shift).to(device)
    where = model.places(prompt.tokens.shape[1], stream(seed, "places", step), device)
    return engine.step(prompt, where, spec.rate_at(step))


def row(model: GPT2, spec: TrainSpec, done: int, losses: list[float]) -> dict[str, float]:
    """What the history says of the last steps up to ``done``: their mean loss, and what the rules have learned."""
    last = done - 1
    return {
        "step": done,
        "loss": fmean(losses),
        "length": spec.length_at(last),
        "rate": spec.rate_at(last),
        **model.learned(),
    }


def optimizer(model: nn.Module, before: torch.optim.Adam | None = None) -> torch.optim.Adam:
    """Adam over what can be learned. What ``before`` knows of parameters that are still there is taken over."""
    adam = torch.optim.Adam([p for p in model.parameters() if p.requires_grad], fused=True)
    if before is not None:
        adam.state.update({p: before.state[p] for p in adam.param_groups[0]["params"] if p in before.state})
    return adam


def read(losses: list[Tensor], done: int) -> list[float]:
    """Reads the losses of the last steps up to ``done``; raises ``RunFailed`` at the first that is not finite."""
    values = [loss.item() for loss in losses]
    for step, value in enumerate(values, done - len(values) + 1):
        if not math.isfinite(value):
            raise RunFailed(f"the loss is {value} at step {step}; a lower train.rate, or train.clip=1, may help.")
    return values
