"""A task in words: how a prompt is told to a language model, and how what it says becomes outputs again."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from icl_lab.errors import BadValue
from icl_lab.tasks.prompt import Prompt

Number = Callable[[float], str]  # a number -> its text, in so many decimals as are kept
SURE = 1e3  # the score of an answer that was given as text; all others have 0


@dataclass(frozen=True)
class Printed:
    """A published row of a prompted model: the labels that find it, and the column that holds the values of an axis."""

    table: str
    where: Mapping[str, str]
    column: str
    axis: str
    value: str


@dataclass(frozen=True)
class Speech:
    """A task in words.

    ``says`` tells a reader what the answer is. ``choices`` are all answers there are, in the order of the targets;
    without any a number is asked for. ``last`` says that the headline scores the last answer of a prompt; otherwise it
    is a mean over all of them, as are the metrics ``means``, which are then estimated from one answer a prompt, drawn
    evenly. ``lists`` is what is said where all answers of a prompt are wanted at once, as a list; empty where that is
    not natural. ``worked`` is the length of an example prompt that is shown with its answer.
    """

    says: str
    choices: tuple[str, ...] = ()
    last: bool = True
    means: tuple[str, ...] = ()
    lists: str = ""
    worked: int = 6
    printed: Printed | None = None


@dataclass(frozen=True)
class Telling:
    """A prompt up to a question, in words: inputs with the labels that are shown (empty: none), and what is asked."""

    shown: tuple[tuple[str, str], ...]
    query: str


class Speaker:
    """The part of a task that language models meet. A task that says nothing here cannot be put to one."""

    registered: ClassVar[str]
    outputs: ClassVar[int]

    @property
    def speech(self) -> Speech | None:
        """The task in words; None where it has not been put into words."""
        return None

    def tell(self, prompt: Prompt, t: int, number: Number) -> Telling:
        """Returns the first prompt up to the question at token ``t`` in words, its numbers written by ``number``.

        Raises ``BadValue`` where the task has no words.
        """
        raise BadValue(f"{self.registered} has not been put into words for a language model.")

    def right(self, prompt: Prompt, t: int, number: Number) -> str:
        """Returns the true answer to the first prompt at token ``t`` as a language model would write it."""
        speech, target = self.speech, prompt.targets[0, t].item()
        return speech.choices[int(target)] if speech and speech.choices else number(target)

    def heard(self, scores: Tensor) -> Tensor:
        """Spoken answer -> the outputs (c) of a token.

        ``scores`` holds one number for each choice, a log-probability or ``SURE`` for the one that was named; or the
        number that was said, (1). Two choices and one output: the logit is the second score less the first.
        """
        if self.speech and len(self.speech.choices) == 2 and self.outputs == 1:
            return scores[1:] - scores[:1]
        return scores


def sure(choices: tuple[str, ...], answer: str) -> Tensor:
    """Returns the scores of an answer that was given as text, (choices)."""
    scores = torch.zeros(len(choices))
    scores[choices.index(answer)] = SURE
    return scores


def pairs(values: list[float], number: Number, label: Callable[[float], str]) -> Telling:
    """Numbers x_1 y_1 .. x_i, of which the last is asked about, as inputs with their labels."""
    shown = zip(values[::2], values[1::2], strict=False)
    return Telling(tuple((number(x), label(y)) for x, y in shown), number(values[-1]))
