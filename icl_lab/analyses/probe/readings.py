"""Error rates on the numbers of a disturbed prompt: together, each alone, and by linear probes."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from icl_lab.analyses.probe.linear import classified, fit, states
from icl_lab.model.gpt2 import GPT2
from icl_lab.runs.measure import Subject, errors_of, summary
from icl_lab.tasks.base import Prompt, by_class
from icl_lab.tasks.capabilities import SingleNumbers

Row = dict[str, Any]
OUTPUT = -1.0  # the layer of what is read at the model's output


@torch.no_grad()
def readings(
    model: GPT2,
    task: SingleNumbers,
    lessons: Prompt,
    undisturbed: Prompt,
    at: int,
    factors: Sequence[float],
    device: torch.device,
    tick: Callable[[int, int], object] = lambda done, total: None,
) -> list[Row]:
    """Multiplies the number with index ``at`` by each factor; returns error rates, the mean over two classes each.

    ``together``: of the last answer of the prompt. ``alone-deviant`` and ``alone-others``: of the only answer of a
    prompt that holds one of its numbers. ``probe-deviant`` and ``probe-others``: of a linear probe at the numbers'
    tokens after layer 0 (the read-in), 1, ...; it learns from the prompts ``lessons``, undisturbed and others than
    ``undisturbed``. Classes are the answers that a number gets alone (``SingleNumbers.singly``).
    """
    reader = Subject(lambda prompt: model(prompt.tokens.to(device)), bytes_of=model.bytes_a_prompt)
    taught = _classes(task, lessons)
    probes = [fit(seen, taught) for seen in states(model, task, lessons, device)]
    rows: list[Row] = []

    def add(metric: str, factor: float, wrong: Tensor, classes: Tensor, layer: float = OUTPUT) -> None:
        where = {"layer": layer, "factor": factor, "metric": metric}
        rows.append(where | summary(by_class(wrong.flatten(), classes.flatten())))

    classes = _classes(task, undisturbed)
    others = torch.arange(classes.shape[1]) != at
    alone = _errors_alone(reader, task, undisturbed)  # of the others, the same for every factor
    for done, factor in enumerate(factors):
        disturbed = task.deviate(undisturbed, [at], factor)
        answers = errors_of(task, reader, disturbed)[:, -1]
        add("together", factor, answers, disturbed.targets[:, task.asking(classes.shape[1])] > 0)
        add("alone-deviant", factor, _errors_alone(reader, task, _example(disturbed, at, task.roles)), classes[:, at])
        add("alone-others", factor, alone[:, others], classes[:, others])
        for layer, (weights, seen) in enumerate(zip(probes, states(model, task, disturbed, device), strict=True)):
            wrong = (classified(seen, weights) != classes).double()
            add("probe-deviant", factor, wrong[:, at], classes[:, at], layer)
            add("probe-others", factor, wrong[:, others], classes[:, others], layer)
        tick(done + 1, len(factors))
    return rows


def _errors_alone(reader: Subject, task: SingleNumbers, prompt: Prompt) -> Tensor:
    """The error of the answer to each number when it stands alone, (b L)."""
    single = task.singly(prompt)
    return errors_of(task, reader, single).view(len(prompt.tokens), -1)


def _example(prompt: Prompt, at: int, roles: int) -> Prompt:
    """The tokens of one example of each prompt."""
    own = slice(roles * at, roles * (at + 1))
    return Prompt(prompt.tokens[:, own], prompt.targets[:, own], prompt.scored[:, own])


def _classes(task: SingleNumbers, prompt: Prompt) -> Tensor:
    """The class of each number when it stands alone, (b L) bool."""
    single = task.singly(prompt)
    return (single.targets[:, task.asking(1)] > 0).view(len(prompt.tokens), -1)
