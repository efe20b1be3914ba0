"""Linear probes of the residual stream: what can be read from it at the tokens of the numbers, layer by layer."""

from collections.abc import Iterator

import torch
from torch import Tensor

from icl_lab.model.gpt2 import GPT2
from icl_lab.runs.measure import fitting
from icl_lab.tasks.base import Prompt, Task

RIDGE = 1e-3  # in units of the mean variance of a feature


@torch.no_grad()
def states(model: GPT2, task: Task, prompt: Prompt, device: torch.device) -> Iterator[Tensor]:
    """Yields the residual stream at the numbers' tokens before each block and after the last, each (b L d).

    Each vector is shifted to mean 0 and scaled to length sqrt(d), as the layer norm of the next block reads it.
    """
    found: list[list[Tensor]] = [[] for _ in range(len(model.blocks) + 1)]

    def see(block: torch.nn.Module, read: tuple[Tensor, ...], written: Tensor) -> None:
        layer = next(number for number, other in enumerate(model.blocks) if other is block)
        if layer == 0:
            found[0].append(_normed(read[0][:, task.answers]))
        found[layer + 1].append(_normed(written[:, task.answers]))

    hooks = [block.register_forward_hook(see) for block in model.blocks]
    try:
        for piece in fitting(prompt, model.bytes_a_prompt):
            model(piece.tokens.to(device))
    finally:
        for hook in hooks:
            hook.remove()
    for pieces in found:
        yield torch.cat(pieces)


def fit(states: Tensor, classes: Tensor) -> Tensor:
    """States (.. d) and their classes (..) bool -> weights (d + 1) of a linear classifier, by ridge regression.

    Formula: w = argmin mean_i c_i (w . (s_i, 1) - y_i)^2 + r |w|^2, y = -1 or 1, c the inverse share of the class

    Both classes weigh the same, however rare one is.
    """
    x, y = _with_constant(states).flatten(0, -2), 2.0 * classes.flatten().double() - 1
    share = (y > 0).double().mean()
    weight = torch.where(y > 0, 1 / share, 1 / (1 - share)) / len(y)
    gram = x.T @ (weight.unsqueeze(1) * x)
    gram += RIDGE * gram.diagonal().mean() * torch.eye(len(gram), dtype=gram.dtype)
    solved: Tensor = torch.linalg.solve(gram, x.T @ (weight * y))
    return solved


def classified(states: Tensor, weights: Tensor) -> Tensor:
    """States (.. d) and the weights (d + 1) of a classifier -> the classes that it gives, (..) bool."""
    return _with_constant(states) @ weights > 0


def _normed(states: Tensor) -> Tensor:
    states = states.double().cpu()
    states = states - states.mean(-1, keepdim=True)
    return states / states.square().mean(-1, keepdim=True).sqrt().clamp(min=1e-12)


def _with_constant(states: Tensor) -> Tensor:
    return torch.cat((states, torch.ones_like(states[..., :1])), -1)
