"""Whether a model still knows the single numbers of a prompt in which one of them has grown.

After section 5.2 of arXiv 2508.14685: if each number is classified rightly alone and the prompt is not, what fails is
the putting together. Two readings: the model itself, on prompts of one number; and a linear probe of the residual
stream, which sees each number where it stands.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from icl_lab.model.gpt2 import GPT2
from icl_lab.runs.measure import Subject, fitting, predict, summary
from icl_lab.tasks.base import Prompt, Task, by_class

Row = dict[str, Any]
RIDGE = 1e-3  # of the probe, in units of the mean variance of a feature
NOWHERE = -1.0  # the layer of what is read at the model's output


@torch.no_grad()
def probe(
    model: GPT2,
    task: Task,
    taught: Prompt,
    calm: Prompt,
    at: int,
    factors: Sequence[float],
    device: torch.device,
) -> list[Row]:
    """Multiplies the number with index ``at`` by each factor; returns error rates, the mean over two classes each.

    ``together``: of the last answer of the prompt. ``alone-deviant`` and ``alone-others``: of the only answer of a
    prompt that holds one of its numbers. ``probe-deviant`` and ``probe-others``: of a linear probe at the numbers'
    tokens after layer 0 (the read-in), 1, ...; it learns from the prompts ``taught``, undisturbed and others than
    ``calm``. Classes are the answers that a number gets alone (``Task.singly``).
    """
    reader = Subject(lambda prompt: model(prompt.tokens.to(device)), bytes_of=model.bytes_a_prompt)
    lesson = _classes(task, taught)
    maps = [fit(states, lesson) for states in numbers(model, task, taught, device)]
    rows: list[Row] = []

    def told(metric: str, factor: float, wrong: Tensor, classes: Tensor, layer: float = NOWHERE) -> None:
        where = {"layer": layer, "factor": factor, "metric": metric}
        rows.append(where | summary(by_class(wrong.flatten(), classes.flatten())))

    classes = _classes(task, calm)
    others = torch.arange(classes.shape[1]) != at
    alone = _alone(reader, task, calm)  # but for the one that grows, the same for every factor
    for factor in factors:
        stirred = task.deviate(calm, [at], factor)
        answers = task.errors(predict(reader, stirred), stirred)[:, -1]
        told("together", factor, answers, stirred.targets[:, task.asking(classes.shape[1])] > 0)
        told("alone-deviant", factor, _alone(reader, task, _example(stirred, at, task.roles)), classes[:, at])
        told("alone-others", factor, alone[:, others], classes[:, others])
        for layer, (weights, states) in enumerate(zip(maps, numbers(model, task, stirred, device), strict=True)):
            wrong = ((_lengthen(states) @ weights > 0) != classes).double()
            told("probe-deviant", factor, wrong[:, at], classes[:, at], layer)
            told("probe-others", factor, wrong[:, others], classes[:, others], layer)
    return rows


def numbers(model: GPT2, task: Task, prompt: Prompt, device: torch.device) -> Iterator[Tensor]:
    """Yields the residual stream at the numbers' tokens before each block and after the last, each (b L d).

    Each vector comes with mean 0 and length sqrt(d), as the layer norm of the next part would hand it on.
    """
    found: list[list[Tensor]] = [[] for _ in range(len(model.blocks) + 1)]

    def see(block: torch.nn.Module, read: tuple[Tensor, ...], written: Tensor) -> None:
        layer = next(number for number, other in enumerate(model.blocks) if other is block)
        if layer == 0:
            found[0].append(_even(read[0][:, task.answers]))
        found[layer + 1].append(_even(written[:, task.answers]))

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
    """States (.. d) and their classes (..) bool -> the linear map w (d + 1) that tells them apart, by ridge regression.

    Formula: w = argmin mean_i c_i (w . (s_i, 1) - y_i)^2 + r |w|^2, y = -1 or 1, c the inverse share of the class

    Both classes weigh the same, however rare one is.
    """
    x, y = _lengthen(states).flatten(0, -2), 2.0 * classes.flatten().double() - 1
    share = (y > 0).double().mean()
    weight = torch.where(y > 0, 1 / share, 1 / (1 - share)) / len(y)
    gram = x.T @ (weight.unsqueeze(1) * x)
    gram += RIDGE * gram.diagonal().mean() * torch.eye(len(gram), dtype=gram.dtype)
    solved: Tensor = torch.linalg.solve(gram, x.T @ (weight * y))
    return solved


def _alone(reader: Subject, task: Task, prompt: Prompt) -> Tensor:
    """The error of the answer to each number when it stands alone, (b L)."""
    single = task.singly(prompt)
    return task.errors(predict(reader, single), single).view(len(prompt.tokens), -1)


def _example(prompt: Prompt, at: int, roles: int) -> Prompt:
    """The tokens of one example of each prompt."""
    own = slice(roles * at, roles * (at + 1))
    return Prompt(prompt.tokens[:, own], prompt.targets[:, own], prompt.scored[:, own])


def _classes(task: Task, prompt: Prompt) -> Tensor:
    """What each number is called when it stands alone, (b L) bool."""
    single = task.singly(prompt)
    return (single.targets[:, task.asking(1)] > 0).view(len(prompt.tokens), -1)


def _even(states: Tensor) -> Tensor:
    states = states.double().cpu()
    states = states - states.mean(-1, keepdim=True)
    return states / states.square().mean(-1, keepdim=True).sqrt().clamp(min=1e-12)


def _lengthen(states: Tensor) -> Tensor:
    return torch.cat((states, torch.ones_like(states[..., :1])), -1)
