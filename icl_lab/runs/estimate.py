"""How long a training will take here, before it is begun."""

import time

import torch

from icl_lab import tasks
from icl_lab.model.gpt2 import GPT2
from icl_lab.rng import stream
from icl_lab.runs.spec import RunSpec
from icl_lab.training import engines


def estimate(spec: RunSpec, device: torch.device) -> tuple[float, int]:
    """Returns the seconds that training will take here, from a few steps at full length, and the working parameters.

    The steps are eager ones in single precision, whatever the engine: to compile would take longer than to estimate.
    Raises ``BadValue`` where the device is not one for the engine.
    """
    engines.check(spec.train.engine, device)
    task = tasks.build(spec.task)
    model = GPT2(spec.model, spec.reading(task), spec.attn, stream(0, "init")).to(device)
    lengths = [spec.train.length_at(step) for step in range(spec.train.steps)]

    prompt = task.sample(stream(0, "estimate"), spec.train.batch, spec.train.longest).to(device)

    def step() -> float:
        began = time.monotonic()
        torch.autograd.backward(task.loss(model(prompt.tokens, answers=task.answers), prompt))
        return time.monotonic() - began

    step()  # the first one pays for what is built once
    # The fastest of three: a machine that others use is slow now and then.
    return min(step() for _ in range(3)) * sum(lengths) / spec.train.longest, model.parameter_count()
