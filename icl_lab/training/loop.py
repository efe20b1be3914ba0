"""The training loop: fresh prompts at every step, a curriculum that is a function of the step."""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any

import torch
from torch import Tensor

from icl_lab.base.errors import Diverged, Stopped
from icl_lab.base.rng import stream
from icl_lab.model.gpt2 import GPT2
from icl_lab.tasks.base import Prompt, Task
from icl_lab.training import engines, scaling
from icl_lab.training.optimizers import Optimizer
from icl_lab.training.recipe import TrainSpec

ROW = 50  # steps that one row of the history sums up
CHECKPOINT_SECONDS = 15.0
WATCHED = 8  # prompts of a step whose attention a row of the history describes
MEMORY = 2**28  # bytes that their pass may take, roughly


@dataclass
class Progress:
    """State of a training, without the model's parameters."""

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
    """Train ``model`` in place from ``progress`` to the last step, and return the history, one row for ``ROW`` steps.

    The prompts of a step are drawn at the address (seed, "train", step), so a training that is stopped and taken up
    again is bit for bit the one that never stopped. ``keep`` is called with all that is needed to go on, every
    ``CHECKPOINT_SECONDS`` and before leaving early; ``tick`` after each row.

    Raises ``Diverged`` at the first loss that is not finite, with its step and value, and keeps nothing from after it;
    raises ``Stopped`` when ``stopping()`` turns true, and ``BadValue`` where the engine cannot do this training.
    """
    device = next(model.parameters()).device
    optim = optimizer(model, spec)
    if progress.optimizer is not None:
        optim.load_state_dict(progress.optimizer)
    engine = prepare(model, task, optim, spec)
    history, pending = progress.history, [torch.tensor(loss, device=device) for loss in progress.pending]
    kept = time.monotonic()
    model.train()
    try:
        for step in range(progress.step, spec.steps):
            if spec.switch_to and step == spec.switch_step:
                model.swap_rule(spec.switch_to)
                optim = optimizer(model, spec, optim)
                engine = prepare(model, task, optim, spec)
            pending.append(advance(engine, spec, seed, step))
            done = step + 1
            if done % ROW == 0 or done == spec.steps:
                # Read in groups, so that a GPU need not wait at every step; nothing is kept before it is read.
                history.append(row(model, task, spec, seed, done, read(pending, done, model.attn)))
                pending = []
                tick(done, history[-1]["loss"])
            if done < spec.steps and (stopping() or time.monotonic() - kept > CHECKPOINT_SECONDS):
                keep(Progress(done, history, read(pending, done, model.attn), optim.state_dict()))
                kept = time.monotonic()
                if stopping():
                    raise Stopped(f"stopped at step {done} of {spec.steps}; the same command goes on from there.")
    except Diverged as error:
        raise Diverged(str(error), history) from None
    optim.load_ema()
    model.eval()
    return history


def prepare(model: GPT2, task: Task, optim: Optimizer, spec: TrainSpec) -> engines.Eager:
    """Return the engine that does the steps of a training; raises ``BadValue`` where it cannot."""
    most = spec.batch_at(spec.steps - 1)
    work = engines.Work(model, task, optim, spec.clip, spec.precision, most, spec.longest)
    return engines.build(spec.engine, work)


@engines.subnormals_flushed()
def advance(engine: engines.Eager, spec: TrainSpec, seed: int, step: int) -> Tensor:
    """Do one step on the prompts of ``step``, and return their loss without synchronising the device."""
    model = engine.work.model
    device = next(model.parameters()).device
    prompt = drawn(engine.work.task, spec, seed, step).to(device)
    where = model.places(prompt.tokens.shape[1], stream(seed, "places", step), device)
    return engine.step(prompt, where, spec.rate_at(step))


def drawn(task: Task, spec: TrainSpec, seed: int, step: int) -> Prompt:
    """Return the training prompts of ``step`` (from 0), on the CPU."""
    return task.practice(stream(seed, "train", step), spec.batch_at(step), spec.length_at(step), **spec.shift)


def row(model: GPT2, task: Task, spec: TrainSpec, seed: int, done: int, losses: list[float]) -> dict[str, float]:
    """Row of the history: mean loss of the last steps up to ``done``, bound, attention, learned numbers.

    ``bound`` is C of ``GPT2.answer_bound``, the largest over the outputs; there is none without a final norm. The
    statistics of attention are those of ``attention_statistics`` on prompts of the last step.
    """
    last = done - 1
    bound = float(model.answer_bound()[1].max())
    return {
        "step": done,
        "loss": fmean(losses),
        "length": spec.length_at(last),
        "rate": spec.rate_at(last),
        **({"bound": bound} if math.isfinite(bound) else {}),
        **attention_statistics(model, drawn(task, spec, seed, last).tokens, stream(seed, "places", last)),
        **model.learned(),
    }


@torch.no_grad()
def attention_statistics(model: GPT2, tokens: Tensor, rng: torch.Generator | None = None) -> dict[str, float]:
    """Largest score and mean entropy of attention in each layer, on the first prompts of tokens (b t w) or (b t).

    ``rng`` draws the places of the tokens, where a position code draws them in training.

    Formula: ``score.l`` = max z over prompts, heads and visible keys, z = q.k / sqrt(d) and the bias of the position
    code; ``entropy.l`` = mean over prompts, heads and queries of -sum_j p_j ln p_j (nats), p = |w| / sum_j |w_j|

    Values are rounded to bfloat16 (three digits), which keeps histories small; values that are not finite are left out.
    """
    t, device, found = tokens.shape[1], model.read_in.weight.device, dict[str, float]()
    few = max(1, min(WATCHED, int(MEMORY / model.bytes_a_prompt(t))))
    visible = model.visible(t, device)

    def watch(layer: int, weights: Tensor, scores: Tensor) -> None:
        p = weights.abs() / weights.abs().sum(-1, keepdim=True).clamp(min=1e-30)
        found[f"score.{layer}"] = scores.masked_fill(~visible, -math.inf).amax().bfloat16().item()
        found[f"entropy.{layer}"] = -torch.xlogy(p, p).sum(-1).mean().bfloat16().item()

    model(tokens[:few].to(device), watch, places=model.places(t, rng, device))
    return {name: value for name, value in found.items() if math.isfinite(value)}


def optimizer(model: GPT2, spec: TrainSpec, before: Optimizer | None = None) -> Optimizer:
    """Optimizer of all learnable parameters; the state of ``before`` is taken over for those that are still there."""
    made = Optimizer(spec, dict(model.named_parameters()), model.matrices(), scaling.parts(model, spec))
    if before is not None:
        made.take_over(before)
    return made


def read(losses: list[Tensor], done: int, attn: str) -> list[float]:
    """Read the losses of the last steps up to ``done``; raises ``Diverged`` at the first that is not finite.

    The loss of step 1 is that of the untrained model: no learning rate has had a say in it, so the normalizer ``attn``
    is named.
    """
    values = [loss.item() for loss in losses]
    for step, value in enumerate(values, done - len(values) + 1):
        if not math.isfinite(value):
            untrained = f"before any weight has moved; icl-lab check-part {attn} looks for the fault."
            advice = untrained if step == 1 else "a lower train.rate, or train.clip=1, may help."
            raise Diverged(f"the loss is {value} at step {step}{',' if step == 1 else ';'} {advice}")
    return values
