"""True if a model still classifies the single numbers of a prompt in which one of them has grown.

After section 5.2 of arXiv 2508.14685: where each number is classified rightly alone and the prompt is not, what fails
is aggregation, not representation.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from statistics import median
from typing import ClassVar, Self

import torch
from matplotlib.figure import Figure
from torch import Tensor

from icl_lab import tasks
from icl_lab.analyses import registry
from icl_lab.analyses.attention_rows import watchable
from icl_lab.analyses.findings import FACTORS, check_growth, mean_rows, with_undisturbed
from icl_lab.analyses.frame import Analysis, Findings, Metric, Row, Rows, TrainedModel, option
from icl_lab.base import markdown as md
from icl_lab.base.errors import BadValue
from icl_lab.base.rng import stream
from icl_lab.figures import heads as pictures
from icl_lab.figures.base import short
from icl_lab.model.gpt2 import GPT2
from icl_lab.runs.measure import TEST_SEED, Subject, errors_of
from icl_lab.runs.run import Run
from icl_lab.runs.spec import RunSpec
from icl_lab.runs.summary import training_cell
from icl_lab.tasks.base import Prompt, Task, by_class
from icl_lab.tasks.capabilities import SingleNumbers

RIDGE = 1e-3  # in units of the mean variance of a feature


def states(model: GPT2, task: Task, prompt: Prompt) -> Iterator[Tensor]:
    """Yield the residual stream at the numbers' tokens before each block and after the last, each (b L d).

    Each vector is shifted to mean 0 and scaled to length sqrt(d), as the layer norm of the next block reads it.
    """
    places = ["layers.0.before", *(f"layers.{layer}.after" for layer in range(len(model.blocks)))]
    found = [
        [_normed(trace[name][:, task.answers]) for name in places]
        for trace in (model.trace(piece, only=places) for piece in watchable(model, prompt))
    ]
    yield from map(torch.cat, zip(*found, strict=True))


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


OUTPUT = -1.0  # the layer of rows at the model's output


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
    """Multiply the number with index ``at`` by each factor; return error rates, the mean over two classes each.

    ``together``: of the last answer of the prompt. ``alone-deviant`` and ``alone-others``: of the only answer of a
    prompt that holds one of its numbers. ``probe-deviant`` and ``probe-others``: of a linear probe at the numbers'
    tokens after layer 0 (the read-in), 1, ...; it learns from the prompts ``lessons``, undisturbed and others than
    ``undisturbed``. Classes are the answers that a number gets alone (``SingleNumbers.singly``).
    """
    reader = Subject(lambda prompt: model(prompt.tokens.to(device)), bytes_of=model.bytes_a_prompt)
    taught = _classes(task, lessons)
    probes = [fit(seen, taught) for seen in states(model, task, lessons)]
    rows: list[Row] = []

    def add(metric: str, factor: float, wrong: Tensor, classes: Tensor, layer: float = OUTPUT) -> None:
        rows.extend(mean_rows({metric: by_class(wrong.flatten(), classes.flatten())}, layer=layer, factor=factor))

    classes = _classes(task, undisturbed)
    others = torch.arange(classes.shape[1]) != at
    alone = _errors_alone(reader, task, undisturbed)  # of the others, the same for every factor
    for done, factor in enumerate(factors):
        disturbed = task.deviate(undisturbed, [at], factor)
        answers = errors_of(task, reader, disturbed)[:, -1]
        add("together", factor, answers, disturbed.targets[:, task.asking(classes.shape[1])] > 0)
        own = slice(task.roles * at, task.roles * (at + 1))
        deviant = Prompt(disturbed.tokens[:, own], disturbed.targets[:, own], disturbed.scored[:, own])
        add("alone-deviant", factor, _errors_alone(reader, task, deviant), classes[:, at])
        add("alone-others", factor, alone[:, others], classes[:, others])
        for layer, (weights, seen) in enumerate(zip(probes, states(model, task, disturbed), strict=True)):
            wrong = (classified(seen, weights) != classes).double()
            add("probe-deviant", factor, wrong[:, at], classes[:, at], layer)
            add("probe-others", factor, wrong[:, others], classes[:, others], layer)
        tick(done + 1, len(factors))
    return rows


def _errors_alone(reader: Subject, task: SingleNumbers, prompt: Prompt) -> Tensor:
    single = task.singly(prompt)
    return errors_of(task, reader, single).view(len(prompt.tokens), -1)


def _classes(task: SingleNumbers, prompt: Prompt) -> Tensor:
    single = task.singly(prompt)
    return (single.targets[:, task.asking(1)] > 0).view(len(prompt.tokens), -1)


LESSONS = 512  # prompts that a probe learns from
WORDS = {
    "together": "the whole prompt",
    "alone-deviant": "growing number, alone",
    "alone-others": "others, alone",
    "probe-deviant": "growing number, by probe",
    "probe-others": "others, by probe",
}


@registry.add("probe")
@dataclass(frozen=True, kw_only=True)
class Probe(Analysis):
    """Classify each number of a disturbed prompt: does representation fail, or aggregation?

    One number is multiplied by each factor. Error rates are those of the whole prompt, of the model on prompts that
    hold one of its numbers, and of a linear probe that reads the residual stream where each number stands.
    """

    grids: ClassVar[Mapping[str, Sequence[str]]] = {"probe": ("layer", "factor")}
    title: ClassVar[str] = "one number growing"
    metrics: ClassVar[Mapping[str, Metric]] = dict.fromkeys(
        WORDS, Metric("probe", ("factor",), last=("layer",), kind="share", constants=True)
    )
    undefined: ClassVar[str] = "the prompts are all of one class, so there is no mean over the classes"

    position: int = option(0, "Index of the number.", least=0)
    factors: tuple[float, ...] = option(FACTORS, "What it is multiplied by; 1 is always among them.")
    prompts: int = option(1024, "Test prompts.", least=2, most=1_000_000)

    @property
    def tag(self) -> str:
        return f"at-{self.position}" if self.position else ""

    def check(self, spec: RunSpec) -> None:
        check_growth(self.factors)
        task = tasks.require(tasks.build(spec.task), SingleNumbers)
        length = int(training_cell(task, spec)["length"])
        if not 0 <= self.position < length:
            raise BadValue(f"the growing number stands at an index from 0 to {length - 1}, got {self.position}.")

    def prepared(self, runs: Sequence[Run]) -> Self:
        return replace(self, factors=with_undisturbed(self.factors))

    def measure(self, trained: TrainedModel) -> Rows:
        """Train probes on separate undisturbed prompts, then read the test prompts at each factor."""
        suite, here = tasks.require(trained.task.balanced, SingleNumbers), dict(trained.cell)
        length = int(here.pop("length"))
        lessons = suite.sample(stream(TEST_SEED, "probe", length), LESSONS, length, **here)
        undisturbed, device = trained.prompts(self.prompts), trained.lab.device
        rows = readings(trained.model, suite, lessons, undisturbed, self.position, self.factors, device, trained.tick)
        return {"probe": rows}

    def table(self, found: Findings) -> list[str]:
        """The median error over seeds of each reading, normalizer by normalizer."""
        factors, errors = found["probe"].values("factor"), found["probe"].by("attn", "metric", "layer", "factor")
        rows = [
            [f"`{rule}`", words(*read), *(short(median(errors[rule, *read, factor])) for factor in factors)]
            for rule, read in product(found.rules, metrics_and_layers(found))
        ]
        return [
            "Medians of error rates over seeds: the mean over numbers that make the answer alone true and false (the "
            "whole prompt: over its truth).",
            "",
            *md.table(["normalizer", "what is asked", *(f"x{factor:g}" for factor in factors)], rows),
        ]

    def figures(self, found: Findings, title: str) -> Mapping[str, Figure]:
        """Each reading over the factor: the whole prompt, its numbers alone, and the probes at the last layer."""
        last = max(layer for _, layer in metrics_and_layers(found))
        panels = {
            f"error: {words(metric, layer)}": found.curves_by_rule(
                "probe", "factor", "seed", metric=metric, layer=layer
            )
            for metric, layer in metrics_and_layers(found)
            if layer in (OUTPUT, last)
        }
        limits = dict.fromkeys(panels, (-0.02, 0.62))
        drawn = pictures.curves(panels, title=title, across="factor of the growing number", scales={}, limits=limits)
        return {"probe": drawn}

    def finding(self, found: Findings) -> str:
        """Error rates at the greatest factor: of the whole prompt, and of the grown number alone and by probe."""
        most, errors = max(found["probe"].values("factor")), found["probe"].by("attn", "metric", "layer", "factor")
        last = max(layer for _, layer in metrics_and_layers(found))

        def rates(metric: str, layer: float) -> str:
            return md.listed(f"{short(median(errors[rule, metric, layer, most]))} with {rule}" for rule in found.rules)

        return (
            f"With the number at index {self.position} multiplied by {most:g}, the error rate of the whole prompt is "
            f"{rates('together', OUTPUT)}; that of the grown number alone is {rates('alone-deviant', OUTPUT)}, and by "
            f"a linear probe after layer {last:g} it is {rates('probe-deviant', last)} (medians over seeds)."
        )


def metrics_and_layers(found: Findings) -> list[tuple[str, float]]:
    """Quantity that was read, and the layer."""
    frame = found["probe"].frame.drop_duplicates(["metric", "layer"])
    read = list(zip(frame["metric"], frame["layer"], strict=True))
    return sorted(read, key=lambda place: (list(WORDS).index(place[0]), place[1]))


def words(metric: str, layer: float) -> str:
    """Quantity that was read, in words."""
    return WORDS[metric] + ("" if layer == OUTPUT else f" after layer {layer:g}" if layer else " as read in")
