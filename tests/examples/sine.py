"""Sines of one frequency a prompt, to be inferred from examples."""

from dataclasses import dataclass

import torch

from icl_lab.tasks import registry
from icl_lab.tasks.base import Label, Prompt, Summary, Task


@registry.add("sine")
@dataclass(frozen=True, kw_only=True)
class Sine(Task):
    """Regression of y = sin(f x), the same f for all examples of a prompt.

    Formula: x ~ N(0, 1); f ~ frequency * U(0.5, 1.5), one draw a prompt; squared error
    """

    headline = "mse"
    log_scale = True
    prefixes = True
    axes = {
        "full": {"frequency": (1, 2, 3, 4), "length": (10, 20, 40, 80)},
        "thin": {"frequency": (1, 2, 4), "length": (10, 20, 40)},
        "tiny": {"frequency": (1, 2, 4), "length": (10, 40)},
    }
    heat_map = ("length", "frequency")
    summary = Summary("frequency", "range", 1, 4)
    axis_labels = {"frequency": Label("frequency of the sine", "f")}
    metric_labels = {"mse": "mean squared error"}

    def sample(self, rng, prompts, length, **shift):
        (frequency,) = self.sigmas(shift)
        f = frequency * (0.5 + torch.rand(prompts, 1, generator=rng))
        x = torch.randn(prompts, length, generator=rng)
        y = torch.sin(f * x)
        tokens = torch.stack((x, y), 2).flatten(1).unsqueeze(2)  # x_1 y_1 x_2 y_2 ..
        scored = (torch.arange(2 * length) % 2 == 0).expand(prompts, -1)  # asked after each x
        return Prompt(tokens, y.repeat_interleave(2, 1), scored)

    def loss(self, outputs, prompt):
        return prompt.mean((outputs[..., 0] - prompt.targets).square())

    def errors(self, outputs, prompt):
        return (outputs[:, ::2, 0] - prompt.targets[:, ::2]).square()

    def views(self, errors, prompt, **shift):
        return {"mse": errors.mean(1)}
