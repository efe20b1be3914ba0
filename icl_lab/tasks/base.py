"""What a task is: it draws prompts, and says how an answer to one is scored.

Nothing here knows that a transformer exists: a predictor is anything that maps a prompt to outputs (b t c).
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Self

import torch
from torch import Tensor

from icl_lab.errors import BadValue, UnknownOption

NORMAL_RANGE = 2.576  # 99 of 100 standard normal numbers are smaller in size


@dataclass(frozen=True)
class Prompt:
    """tokens (b t w) are read; targets (b t) are wanted where scored (b t) is true."""

    tokens: Tensor
    targets: Tensor
    scored: Tensor

    def __post_init__(self) -> None:
        if not self.tokens.shape[:2] == self.targets.shape == self.scored.shape:
            shapes = [tuple(x.shape) for x in (self.tokens, self.targets, self.scored)]
            raise ValueError(f"tokens (b t w), targets (b t), scored (b t) do not fit: {shapes}")

    def first(self, t: int) -> Self:
        """Returns the prompts cut after ``t`` tokens."""
        return type(self)(self.tokens[:, :t], self.targets[:, :t], self.scored[:, :t])

    def take(self, b: int) -> Self:
        """Returns the first ``b`` prompts."""
        return type(self)(self.tokens[:b], self.targets[:b], self.scored[:b])

    def pieces(self, b: int) -> Iterator[Self]:
        """Yields the prompts in order, at most ``b`` at a time."""
        for start in range(0, len(self.tokens), b):
            parts = (self.tokens, self.targets, self.scored)
            yield type(self)(*(part[start : start + b] for part in parts))

    def to(self, device: torch.device) -> Self:
        """Returns the prompts on ``device``."""
        return type(self)(self.tokens.to(device), self.targets.to(device), self.scored.to(device))


@dataclass(frozen=True)
class Mark:
    """One token of a prompt in words: its role and index (from 1, as in x_1), its text, its number if it has one."""

    role: str
    index: int
    text: str
    value: float | None = None
    quiet: bool = False  # a filler, which pictures grey

    @property
    def label(self) -> str:
        """``x₁ = −2``; the index as a subscript, so that it is not taken for a factor."""
        name = self.role + "".join("₀₁₂₃₄₅₆₇₈₉"[int(digit)] for digit in str(self.index))
        return f"{name} = {self.text}" if self.text else name


@dataclass(frozen=True)
class Answer:
    """What is answered at a token, beside the truth; ``error`` as the task scores it."""

    token: int
    answer: str
    truth: str
    error: float


Predictor = Callable[[Prompt], Tensor]  # prompts -> outputs (b t c)
Axes = Mapping[str, Sequence[float]]  # an axis of the shift grid -> its values


class Task(ABC):
    """Draws prompts, and owns everything that depends on what they mean.

    A subclass is a frozen dataclass with keyword-only fields: its options. ``length`` counts examples; every other axis
    of the shift grid is a keyword of ``sample``, 1 in training. A shift stretches the shared draws and adds none.
    """

    width: ClassVar[int] = 1  # w, numbers in a token
    outputs: ClassVar[int] = 1  # c, numbers in an answer
    roles: ClassVar[int] = 2  # tokens of an example, each with its own role (x, y)
    headline: ClassVar[str]  # the metric that is shown first
    beside: ClassVar[tuple[str, ...]]  # metrics in which the references stand beside a model in every grid
    medians: ClassVar[tuple[str, ...]] = ()  # metrics that are summarised by their median over prompts, not their mean
    log_scale: ClassVar[bool] = False  # whether the headline spans decades
    usual: ClassVar[Mapping[str, str]] = {}  # fields in which every preset is changed for this task
    axes: ClassVar[Mapping[str, Axes]]  # how thin the shift grid is ("full", "thin", "tiny") -> the grid
    deviants: ClassVar[Sequence[float]] = ()  # factors by which one number is stretched; none: it cannot be
    usual_for: ClassVar[tuple[str, ...]] = ()  # analyses that ask this task where the command names none
    facets: ClassVar[tuple[str, ...]] = ()  # axes of which training has met every value: a summary is their mean
    heat_map: ClassVar[tuple[str, str]]  # the axes down and across of the default picture
    parameters: ClassVar[tuple[str, ...]] = ()  # numbers of a function that labels follow from, beside the inputs

    @property
    def answers(self) -> slice:
        """The tokens that are asked for an answer: the first of each example, unless a task says otherwise."""
        return slice(None, None, self.roles)

    def asking(self, length: int) -> int:
        """Returns the token of a prompt of ``length`` examples at which it is asked last, and its attention is read."""
        return range(self.tokens(length))[self.answers][-1]

    @property
    @abstractmethod
    def prefixes(self) -> bool:
        """Whether a shorter prompt is the beginning of a longer one."""

    @abstractmethod
    def sample(self, rng: torch.Generator, prompts: int, length: int, **shift: float) -> Prompt:
        """Draws prompts of ``length`` examples; ``shift`` holds the standard deviations that differ from training.

        Raises ``UnknownOption`` on an axis that the task does not have.
        """

    @abstractmethod
    def published(self, length: int, **shift: float) -> Prompt:
        """Returns the prompts that the paper's evaluation script draws (omyokun/SSA), which every reader can redraw.

        Raises ``BadValue`` where the script draws none: its generators are seeded with whole sigmas.
        """

    @abstractmethod
    def loss(self, outputs: Tensor, prompt: Prompt) -> Tensor:
        """Outputs (b t c) -> the training loss, a scalar."""

    @abstractmethod
    def errors(self, outputs: Tensor, prompt: Prompt) -> Tensor:
        """Outputs (b t c) -> the error at each example, (b L)."""

    @abstractmethod
    def views(self, errors: Tensor, prompt: Prompt, **shift: float) -> dict[str, Tensor]:
        """Errors (b L) -> each metric of each prompt, (b) or (b g).

        A cell of the grid is the mean over the g classes of the mean over the prompts; NaN means that the prompt does
        not count in that class.
        """

    def confidence(self, outputs: Tensor, prompt: Prompt) -> dict[str, Tensor]:
        """Outputs (b t c) -> metrics of each prompt, (b), that its errors do not tell; none unless a task has some."""
        return {}

    @abstractmethod
    def references(self) -> dict[str, Predictor]:
        """Returns the predictors to stand beside a model: trivial, classical, and the exact rule."""

    def deviate(self, prompt: Prompt, at: Sequence[int], factor: float) -> Prompt:
        """Returns the prompts with the numbers of the examples ``at`` (from 0) multiplied by ``factor``.

        Everything that follows from a number follows; nothing else changes. Only tasks with ``deviants`` have this.
        """
        raise NotImplementedError

    def disturbed(self, before: Tensor, after: Tensor, prompt: Prompt, at: Sequence[int]) -> dict[str, Tensor]:
        """Errors (b L) without and with deviants -> metrics of each prompt, (b), NaN where one does not count."""
        raise NotImplementedError

    def singly(self, prompt: Prompt) -> Prompt:
        """Returns each number of the prompts (b t w) as a prompt of its own, in order, (b L) of them in a row.

        Raises ``BadValue`` where a single number has no answer.
        """
        raise BadValue(f"{type(self).__name__.lower()} has no answer to a single number; take every or some.")

    def prompt_of(self, numbers: Sequence[float], **parameters: float) -> Prompt:
        """Returns one prompt of these inputs, with the labels that follow, up to the last input: the query.

        ``parameters`` are those of the task's function. Raises ``BadValue`` where prompts are not lists of numbers.
        """
        raise BadValue(f"{type(self).__name__} reads no list of numbers; take random, random:length=40 or the like.")

    def marks(self, prompt: Prompt) -> list[Mark]:
        """Returns the tokens of the first prompt in words."""
        roles = ("x", "y")[: self.roles]
        return [
            Mark(roles[t % self.roles], t // self.roles + 1, plain(value), value)
            for t, value in enumerate(prompt.tokens[0, :, 0].tolist())
        ]

    def answered(self, outputs: Tensor, prompt: Prompt) -> list[Answer]:
        """Outputs (b t c) -> the answers to the first prompt, token by token."""
        at = range(prompt.tokens.shape[1])[self.answers]
        errors = self.errors(outputs, prompt)[0].tolist()
        return [Answer(t, *self.words(outputs, prompt, t), error) for t, error in zip(at, errors, strict=True)]

    def words(self, outputs: Tensor, prompt: Prompt, t: int) -> tuple[str, str]:
        """Outputs (b t c) -> the answer to the first prompt at token ``t`` and the truth, in words."""
        return plain(outputs[0, t, 0].item()), plain(prompt.targets[0, t].item())

    def reach(self, **shift: float) -> dict[str, float]:
        """Returns, by role, the size that 99 of 100 numbers of a training prompt stay below; ``shift`` as in training.

        Only roles of which it is known.
        """
        return {}

    def suites(self) -> dict[str, "Task"]:
        """Returns the test sets: a prefix for the metric names -> the task that draws them."""
        return {"": self}

    @property
    def balanced(self) -> "Task":
        """The task that draws the last test set: the one with balanced classes, where there is one."""
        return list(self.suites().values())[-1]

    def tokens(self, length: int) -> int:
        """Returns the tokens in a prompt of ``length`` examples."""
        return self.roles * length

    def sigmas(self, shift: Mapping[str, float]) -> list[float]:
        """Returns the value of each axis other than length, in order, 1 where ``shift`` does not name it."""
        for axis in shift:
            if axis not in self.training:
                raise UnknownOption("The task", axis, self.training)
        return [shift.get(axis, 1.0) for axis in self.training]

    @property
    def training(self) -> dict[str, float]:
        """The shifts of training: every axis but length at 1."""
        return {axis: 1.0 for axis in self.axes["full"] if axis != "length"}


def plain(value: float) -> str:
    """Returns a number in up to four digits, with the minus sign of print."""
    return f"{value:.4g}".replace("-", "−")


def published_inputs(prompts: int, length: int) -> Tensor:
    """The standard normal inputs of the paper's evaluation script, (b L).

    Number j of prompt i is the first draw of a generator seeded with 10 (10 i + j), so the prompts are overlapping
    windows, ten apart, of one stream: 64 prompts of 40 hold 670 different numbers.
    """
    stream = [torch.randn(1, generator=torch.Generator().manual_seed(10 * m)) for m in range(10 * prompts + length)]
    return torch.cat(stream).unfold(0, length, 10)[:prompts].contiguous()


def whole(sigma: float) -> int:
    """Returns a sigma as the seed that the published script makes of it; raises ``BadValue`` if it is not whole."""
    if sigma != int(sigma):
        raise BadValue(f"the published evaluation set exists for whole sigmas, got {sigma:g}.")
    return int(sigma)


def by_class(values: Tensor, classes: Tensor) -> Tensor:
    """Values, classes (b) -> (b 2): the value in the column of its class (true, false), NaN in the other."""
    return torch.stack([values.where(classes, torch.nan), values.where(~classes, torch.nan)], dim=1)


def interleave(x: Tensor, y: Tensor) -> Tensor:
    """x, y (b L) -> x_1 y_1 x_2 y_2 ..., (b 2L)."""
    return torch.stack((x, y), dim=2).flatten(1)
