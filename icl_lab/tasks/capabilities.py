"""Capabilities of tasks: questions that few analyses ask and few tasks can answer.

A task that has one inherits from its class in place of ``Task``. ``tasks.require(task, Stretchable)`` asks for it, and
refuses in one line that names the tasks that have it.
"""

import math
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import ClassVar

from torch import Tensor

from icl_lab.base.errors import BadValue
from icl_lab.base.rescale import FIRST, PairRescaling, Rescale, Rescaling
from icl_lab.tasks.base import Prompt, Task
from icl_lab.tasks.texts.corpus import Corpus


class Capability(Task):
    """Base of capabilities; ``offers`` ends the sentence "this task has no ..."."""

    offers: ClassVar[str]


class Stretchable(Capability):
    """Tasks in which a number of a prompt can be multiplied by a factor (deviant, probe, saturation)."""

    offers: ClassVar[str] = "number that can be stretched"
    deviants: ClassVar[Sequence[float]]  # the usual factors

    @abstractmethod
    def deviate(self, prompt: Prompt, at: Sequence[int], factor: float) -> Prompt:
        """Return the prompts with the numbers of the examples ``at`` (from 0) multiplied by ``factor``.

        Everything that follows from a number follows; nothing else changes.
        """

    @abstractmethod
    def disturbed(self, before: Tensor, after: Tensor, prompt: Prompt, at: Sequence[int]) -> dict[str, Tensor]:
        """Errors (b L) without and with deviants -> metrics of each prompt, (b), NaN where one does not count."""

    def misleads(self, prompt: Prompt, at: int) -> Tensor | None:
        """True if the number with index ``at`` by itself says the opposite of the last answer's truth, (b).

        None where a single number says nothing of the answer.
        """
        return None

    def agreement(self, outputs: Tensor, prompt: Prompt) -> dict[str, Tensor]:
        """Outputs (b t c) -> by metric 1 where the last answer is that of a heuristic, else 0, (b); by default none.

        Only where answers are classes: numbers agree to a degree.
        """
        return {}


class HasLines(Capability):
    """Tasks whose prompts are examples of a line (boundary)."""

    offers: ClassVar[str] = "prompts of y = a x + b, on which boundary values are defined"

    @abstractmethod
    def on_line(self, x: Tensor, slope: Tensor | float, intercept: Tensor | float) -> Prompt:
        """Inputs x (b L) -> the prompts of y = slope x + intercept; numbers, or one per prompt (b 1)."""

    @abstractmethod
    def label_rms(self, **shift: float) -> float:
        """Return the root mean square of training labels under a shift (none for axes that it leaves out)."""

    def largest_label(self, **shift: float) -> float:
        """Return the least upper bound of the size of a training label: infinite unless the law has one."""
        return math.inf

    @abstractmethod
    def share_beyond(self, size: float, **shift: float) -> float:
        """Return the probability that a training label under a shift exceeds ``size`` > 0 in absolute value."""


class SingleNumbers(Stretchable):
    """Tasks in which a single number, stretched or not, has an answer (probe)."""

    offers: ClassVar[str] = "answer to a single number"

    @abstractmethod
    def singly(self, prompt: Prompt) -> Prompt:
        """Return each number of the prompts (b t w) as a separate prompt, in order, (b L) prompts."""


class Retrieval(Capability):
    """Tasks whose answer is part of the context, symbol by symbol (needle)."""

    offers: ClassVar[str] = "answer that stands in its context, for needle scores"

    @abstractmethod
    def value_places(self, prompt: Prompt) -> Tensor:
        """Return the tokens of the context that hold the answer's symbols, (b m), in order."""


class TypedPrompts(Capability):
    """Tasks whose prompts are lists of numbers that a reader can type (attention)."""

    offers: ClassVar[str] = "prompt of typed numbers, only random ones such as random:length=40"
    parameters: ClassVar[tuple[str, ...]] = ()  # parameters of the function from inputs to labels

    @abstractmethod
    def prompt_of(self, numbers: Sequence[float], **parameters: float) -> Prompt:
        """Return one prompt of these inputs, with the labels that follow, up to the last input: the query.

        ``parameters`` are those of the task's function.
        """

    @abstractmethod
    def reach(self, **shift: float) -> dict[str, float]:
        """Return, by role, the size that 99 of 100 numbers of a training prompt stay below; ``shift`` as in training.

        Only roles of which it is known.
        """


class Rescalable(Capability):
    """Tasks of which parts of a prompt can be rescaled and leave its truth as it is (``icl_lab/base/rescale.py``)."""

    offers: ClassVar[str] = "part that can be rescaled and keep the truth of its prompts"
    rescales: ClassVar[tuple[Rescale, ...]]  # these parts, the usual one first
    equivariant: ClassVar[str]  # the reference that answers a rescaled prompt, times the factor, as the prompt itself
    padding: int = 0  # columns of an input before its numbers

    def rescaling(self, part: Rescale, first: int = FIRST) -> Rescaling:
        """Rescaling of a part of the prompts; raises ``BadValue`` where the task has none of this part."""
        if part not in self.rescales:
            there = ", ".join(self.rescales)
            raise BadValue(f"{self.name} cannot rescale {part} and keep the truth of its prompts: it has {there}.")
        return PairRescaling(part, first, self.padding)


class HasPictures(Capability):
    """Tasks whose prompts are images: tokens are patches, row by row, then a class token (attention)."""

    offers: ClassVar[str] = "image to show"

    @property
    @abstractmethod
    def grid(self) -> tuple[int, int]:
        """Rows and columns of patches."""

    @abstractmethod
    def picture(self, prompt: Prompt) -> Tensor:
        """Return the image of the first prompt, (h w c)."""


class ReadsFiles(Capability):
    """Tasks that read files (text, images)."""

    offers: ClassVar[str] = "file that it reads"

    pin: ClassVar[str] = "sha"  # the option that names the file, among ``pins``

    @abstractmethod
    def pins(self) -> Mapping[str, str]:
        """Return options, with their values as text, by which a run names the files that it reads.

        They are added to the task when a run is asked for: two versions of a file are two tasks.
        """

    @abstractmethod
    def reads(self) -> Mapping[str, str]:
        """Return the SHA-256 of each file that is read, by name, for the record of a run."""


def check_unchanged(name: str, sha: str, pinned: str) -> None:
    """Raise ``BadValue`` if a file of this SHA-256 is not the one that the task is pinned to (empty: any file)."""
    if not sha.startswith(pinned):
        raise BadValue(
            f"{name} has changed: its SHA-256 begins with {sha[:12]}, not with {pinned}; "
            "leave sha out for a run of its own."
        )


class ReadsText(ReadsFiles):
    """Tasks of a text, whose models are language models."""

    offers: ClassVar[str] = "text, whose models would be language models"

    @property
    @abstractmethod
    def corpus(self) -> Corpus:
        """The text as tokens, with the tokenizer that made them."""
