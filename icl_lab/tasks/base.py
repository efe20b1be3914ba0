"""Base class of tasks: a task draws prompts and scores answers.

Nothing here knows that a transformer exists: a predictor is anything that maps a prompt to outputs (b t c).
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import ClassVar

import torch
from torch import Tensor

from icl_lab.base.errors import BadValue, UnknownOption
from icl_lab.tasks.declared import LENGTH
from icl_lab.tasks.declared import Clip as Clip  # tasks find all they need here
from icl_lab.tasks.declared import Label as Label
from icl_lab.tasks.declared import Summary as Summary
from icl_lab.tasks.drawing import by_class as by_class
from icl_lab.tasks.prompt import Mark as Mark
from icl_lab.tasks.prompt import Predictor as Predictor
from icl_lab.tasks.prompt import Prompt as Prompt
from icl_lab.tasks.prompt import ScoredAnswer as ScoredAnswer
from icl_lab.tasks.prompt import plain as plain

EVERYWHERE = slice(None)

Axes = Mapping[str, Sequence[float]]  # an axis of the shift grid -> its values


class Task(ABC):
    """A distribution of prompts, with everything that depends on their meaning.

    A subclass is a frozen dataclass with keyword-only fields: its options. ``length`` counts examples; every other axis
    of the shift grid is a keyword of ``sample``, 1 in training unless ``training`` says otherwise. A shift stretches
    the shared draws and adds none. What only few analyses ask is in ``capabilities.py``; docs/add-a-task.md has a
    complete example.
    """

    registered: ClassVar[str] = ""  # the name, which ``registry.add`` fills in
    width: ClassVar[int] = 1  # w, numbers in a token
    vocabulary: ClassVar[int] = 0  # where not 0, tokens are whole numbers below it, (b t), read by an embedding
    outputs: ClassVar[int] = 1  # c, numbers in an answer
    roles: ClassVar[int] = 2  # tokens of an example, each with its own role (x, y)
    least: ClassVar[int] = 1  # the shortest length that can be drawn
    scored_from: ClassVar[int] = 0  # index of the first answer that counts in the headline; a tested prompt is longer
    published_length: ClassVar[int | None] = None  # the one length of the published evaluation set, where it has one
    published_share: ClassVar[int] = 1  # prompts in a row of the published evaluation set that share their function
    worst: ClassVar[float] = torch.inf  # the error of an answer that is not finite; 1 where errors are rates
    headline: ClassVar[str]  # the metric that is shown first
    beside: ClassVar[tuple[str, ...]] = ()  # metrics in which references are measured; none: the headline
    medians: ClassVar[tuple[str, ...]] = ()  # metrics that are summarised by their median over prompts, not their mean
    log_scale: ClassVar[bool] = False  # whether the headline spans decades
    usual: ClassVar[Mapping[str, str]] = {}  # fields in which every preset is changed for this task
    of_tests: ClassVar[tuple[str, ...]] = ()  # options that change no training: a model trained without them serves
    axes: ClassVar[Mapping[str, Axes]]  # how thin the shift grid is ("full", "thin", "tiny") -> the grid
    facets: ClassVar[tuple[str, ...]] = ()  # axes of which training has met every value: a summary is their mean
    heat_map: ClassVar[tuple[str, str]]  # the axes down and across of the default picture
    trivial: ClassVar[tuple[str, ...]] = ()  # references that no example helps: who errs as often has learned nothing
    summary: ClassVar[Summary] = Summary()  # the one number of a run
    compared_along: ClassVar[str] = ""  # the axis of tables and curves; where empty, that of the summary
    clip: ClassVar[Clip | None] = None  # where a model is compared with answers clipped at a bound; None: nowhere
    axis_labels: ClassVar[Mapping[str, Label]] = {}  # what pictures and tables call the axes
    metric_labels: ClassVar[Mapping[str, str]] = {}  # their names of the metrics
    prefixes: ClassVar[bool] = False  # whether a shorter prompt is the beginning of a longer one
    suffixes: ClassVar[bool] = (
        False  # whether the last examples of a prompt are a prompt, with the answers of the whole
    )
    bidirectional: ClassVar[bool] = False  # whether no answer stands among the tokens: a token may see both sides
    numeric: ClassVar[bool] = False  # whether an answer is one number, wanted to be the target itself
    # The tokens at which a model computes outputs; fewer save time. ``Prompt.scored`` says which of them count.
    answers: ClassVar[slice] = EVERYWHERE

    # What every task must have.

    @abstractmethod
    def sample(self, rng: torch.Generator, prompts: int, length: int, **shift: float) -> Prompt:
        """Draw prompts of ``length`` examples; ``shift`` holds the values of axes that differ from training.

        Raises ``UnknownOption`` on an axis that the task does not have.
        """

    @abstractmethod
    def loss(self, outputs: Tensor, prompt: Prompt) -> Tensor:
        """Outputs (b t c) -> the training loss, a scalar. ``Prompt.mean`` averages over the scored tokens."""

    @abstractmethod
    def errors(self, outputs: Tensor, prompt: Prompt) -> Tensor:
        """Outputs (b t c) -> the error of each answer, (b q): a column for each of the q scored tokens of a prompt.

        Or (b t), NaN at tokens that are not scored (``Prompt.blank``), where these differ from prompt to prompt.
        """

    @abstractmethod
    def views(self, errors: Tensor, prompt: Prompt, **shift: float) -> dict[str, Tensor]:
        """Errors, as ``errors`` returns them -> each metric of each prompt, (b) or (b g).

        A cell of the grid is the mean over the g classes of the mean over the prompts; NaN means that the prompt does
        not count in that class.
        """

    # What a task may say beyond that.

    def practice(self, rng: torch.Generator, prompts: int, length: int, **shift: float) -> Prompt:
        """Draw prompts of training: those of ``sample`` unless the task has a curriculum."""
        return self.sample(rng, prompts, length, **shift)

    def published(self, length: int, **shift: float) -> Prompt:
        """Return the prompts that a paper's evaluation script draws, which every reader can redraw.

        Raises ``BadValue`` without such a script, or where it draws no prompts of this length and shift.
        """
        raise BadValue(f"{self.name} has no published evaluation set that could be drawn again.")

    def references(self) -> dict[str, Predictor]:
        """Return the reference predictors (trivial, classical, exact); by default none."""
        return {}

    def confidence(self, outputs: Tensor, prompt: Prompt) -> dict[str, Tensor]:
        """Outputs (b t c) -> metrics of each prompt, (b), that its errors do not tell; none unless a task has some."""
        return {}

    def suites(self) -> dict[str, "Task"]:
        """Return the test sets: a prefix for the metric names -> the task that draws them."""
        return {"": self}

    def tokens(self, length: int) -> int:
        """Return the tokens in a prompt of ``length`` examples."""
        return self.roles * length

    @property
    def training(self) -> dict[str, float]:
        """The shifts of training: every axis but length at 1."""
        return {axis: 1.0 for axis in self.axes["full"] if axis != "length"}

    def pinned(self, labels: Mapping[str, float]) -> dict[str, float]:
        """Return the labels of a cell without those of facets, over which training conditions are a mean."""
        return {axis: value for axis, value in labels.items() if axis not in self.facets}

    def check_length(self, length: int, **shift: float) -> None:
        """Raise ``BadValue`` where no prompt of this length and shift can be drawn.

        A task that has only some lengths, or whose axes bound them, says so here: it is asked before training.
        """
        if length < self.least:
            raise BadValue(f"{self.name} needs a length of {self.least} or more, got {length}.")

    # What follows from the above.

    @property
    def metrics_of_references(self) -> tuple[str, ...]:
        """The metrics that references are measured in, in every grid."""
        return self.beside or (self.headline,)

    def axis_label(self, axis: str) -> Label:
        """Return what an axis is called; its name where the task does not say."""
        return self.axis_labels.get(axis, LENGTH if axis == "length" else Label(axis, axis))

    @property
    def axis_words(self) -> dict[str, str]:
        """Every axis of the test grid with its words."""
        return {axis: self.axis_label(axis).words for axis in self.axes["full"]}

    def metric_label(self, metric: str) -> str:
        """Return what a metric is called; its name where the task does not say."""
        return self.metric_labels.get(metric, metric)

    @property
    def name(self) -> str:
        """The name under which the task is registered."""
        return self.registered or type(self).__name__.lower()

    @property
    def rates(self) -> bool:
        """True if errors are rates, from 0 to 1; else they are losses or squares, with no upper end."""
        return self.worst == 1

    def span(self, metric: str) -> float:
        """Return the largest difference of two values of a metric: 1 for a rate, infinity if unbounded."""
        return math.inf if metric.endswith("cross-entropy") else self.worst

    @property
    def balanced(self) -> "Task":
        """The task that draws the last test set: the one with balanced classes, where there is one."""
        return list(self.suites().values())[-1]

    @property
    def line_axis(self) -> str:
        """The axis along which tables and curves compare normalizers."""
        return self.compared_along or self.summary.axis

    def asked(self, length: int) -> list[int]:
        """Return the tokens at which every prompt of ``length`` examples is asked, in order.

        Raises ``BadValue`` where prompts are asked at different tokens.
        """
        if self.answers != EVERYWHERE:
            return list(range(self.tokens(length))[self.answers])
        scored = self.sample(torch.Generator().manual_seed(0), 16, length).scored
        if not bool((scored == scored[0]).all()):
            raise BadValue(f"{self.name} asks each prompt at other tokens: there is no one row to look at.")
        return [int(t) for t in scored[0].nonzero().flatten()]

    def asking(self, length: int) -> int:
        """Return the token of a prompt of ``length`` examples at which it is asked last, and its attention is read.

        Raises ``BadValue`` where prompts are asked at different tokens.
        """
        return self.asked(length)[-1]

    def sigmas(self, shift: Mapping[str, float]) -> list[float]:
        """Return the value of each axis other than length, in order, that of training where ``shift`` names it not.

        Raises ``UnknownOption`` on an axis that the task does not have.
        """
        for axis in shift:
            if axis not in self.training:
                raise UnknownOption("The task", axis, self.training)
        return [shift.get(axis, usual) for axis, usual in self.training.items()]
