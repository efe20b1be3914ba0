"""Estimated time of training and test on this machine, and the step of a stopped run."""

import time

import torch

from icl_lab import tasks
from icl_lab.rng import stream
from icl_lab.runs import checkpoints
from icl_lab.runs.run import Run
from icl_lab.runs.spec import RunSpec
from icl_lab.training import engines
from icl_lab.training.recipe import TrainSpec

FEW = 2_000_000  # of the weights of a head, over all prompts of the pass that a test is estimated by
COUNTED = 20_000  # steps whose lengths are looked up; of more, as many are


def estimate(spec: RunSpec, device: torch.device, since: int = 0) -> tuple[float, int]:
    """Returns the seconds that training will take here from step ``since`` on, and the working parameters.

    A few steps at full length are measured. They are eager ones in single precision, whatever the engine: to compile
    would take longer than to estimate. Raises ``BadValue`` where the device is not one for the engine.
    """
    engines.check(spec.train.engine, device, spec.train.optimizer)
    task = tasks.build(spec.task)
    model = spec.untrained(task, 0).to(device)
    prompt = task.sample(stream(0, "estimate"), spec.train.batch, spec.train.longest).to(device)

    def step() -> float:
        began = time.monotonic()
        torch.autograd.backward(task.loss(model(prompt.tokens, answers=task.answers), prompt))
        return time.monotonic() - began

    step()  # the first one pays for what is built once
    # The fastest of three: a machine that others use is slow now and then.
    return min(step() for _ in range(3)) * examples(spec.train, since) / spec.train.longest, model.parameter_count()


@torch.no_grad()
def testing(spec: RunSpec, device: torch.device) -> float:
    """Returns the seconds that the test of a model will take here, by a few prompts of the greatest length.

    That is the greater part of it; references come on top, and rules without a pass for all lengths take less than is
    told where the lengths differ much.
    """
    task = tasks.build(spec.task)
    model = spec.untrained(task, 0).to(device).eval()
    lengths = spec.test.lengths
    few = max(1, min(spec.test.prompts, FEW // task.tokens(lengths[-1]) ** 2))
    tokens = task.sample(stream(0, "estimate"), few, lengths[-1]).to(device).tokens

    def one() -> float:
        began = time.monotonic()
        model(tokens, answers=task.answers).cpu()
        return time.monotonic() - began

    one()
    passes = 1.0 if task.prefixes and model.prefix_consistent else sum(lengths) / lengths[-1]
    sets = len(spec.test.shifts()) * (len(task.suites()) if spec.test.draws == "ours" else 1)
    return min(one() for _ in range(2)) * sets * passes * spec.test.prompts / few


def examples(spec: TrainSpec, since: int = 0) -> float:
    """Returns the sum of the prompts' lengths over the steps from ``since`` on, in batches of the first step's size.

    Of very many steps, from a part.
    """
    stride = max(1, (spec.steps - since) // COUNTED)
    counted = range(since, spec.steps, stride)
    read = sum(spec.length_at(step) * spec.batch_at(step) for step in counted) / spec.batch
    return read * (spec.steps - since) / max(1, len(counted))


def standing(run: Run) -> int:
    """Returns the step from which a training would go on: of its newest whole checkpoint, 0 without one."""
    return checkpoints.step(run.folder)
