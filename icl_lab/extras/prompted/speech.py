"""Tasks in words: the instruction that a language model gets, and its answers as outputs again.

``speech(task)`` gives the words of a task. A task from outside gets them by ``@speech.register``, above a function from
the task to its ``Speech``.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial, singledispatch

import torch
from torch import Tensor

from icl_lab import tasks
from icl_lab.base.errors import BadValue
from icl_lab.extras.prompted.parser import parse_choice, parse_number
from icl_lab.tasks.base import Prompt, Task
from icl_lab.tasks.flip_flop import FlipFlop
from icl_lab.tasks.linear import Linear
from icl_lab.tasks.maximum import Maximum, MeanValue
from icl_lab.tasks.needle import Needle
from icl_lab.tasks.quantifier import Quantifier
from icl_lab.tasks.recall import Recall
from icl_lab.tasks.wording import marks

Number = Callable[[float], str]  # a number -> its text, with the decimals that are kept
SURE = 1e3  # the score of the answer that was given; all others have 0


@dataclass(frozen=True)
class PromptText:
    """A prompt up to a question, in words: inputs with the labels that are shown (empty: none), and the question."""

    shown: tuple[tuple[str, str], ...]
    query: str

    @property
    def labelled(self) -> bool:
        """True where every input has a label that is shown."""
        return all(label for _, label in self.shown)

    @property
    def line(self) -> str:
        """The prompt as one list: inputs and the labels that are shown, in order, and the question last."""
        return ", ".join([*(part for pair in self.shown for part in pair if part), self.query])


@dataclass(frozen=True)
class Speech:
    """A task in words.

    ``says`` describes the answer, ``tell`` writes the first prompt up to the question at a token, given how numbers are
    written. ``choices`` are all answers there are, in the order of the targets; without any a number is asked for.
    ``last`` says that the headline scores the last answer of a prompt; otherwise it is a mean over all of them, as are
    the metrics ``means``, which are then estimated from one answer per prompt, drawn evenly.
    """

    says: str
    tell: Callable[[Prompt, int, Number], PromptText]
    choices: tuple[str, ...] = ()
    last: bool = True
    means: tuple[str, ...] = ()

    def right(self, prompt: Prompt, t: int, number: Number) -> str:
        """Return the true answer to the first prompt at token ``t`` as a language model would write it."""
        target = prompt.targets[0, t].item()
        return self.choices[int(target)] if self.choices else number(target)

    def outputs(self, said: str, count: int) -> Tensor | None:
        """Read the text of an answer as the ``count`` outputs of a token; None where it cannot be read.

        Two choices and one output: the logit is the second score less the first.
        """
        if not self.choices:
            value = parse_number(said)
            # The largest numbers are infinite in the precision of outputs.
            return None if value is None or torch.tensor(value).isinf() else torch.tensor([value])
        choice = parse_choice(said, self.choices)
        if choice is None:
            return None
        scores = torch.zeros(len(self.choices))
        scores[self.choices.index(choice)] = SURE
        return scores[1:] - scores[:1] if len(self.choices) == 2 and count == 1 else scores


@singledispatch
def speech(task: Task) -> Speech:
    """Return a task in words; raises ``BadValue`` where it has not been put into words."""
    raise BadValue(f"{task.name} has not been put into words; these have: {', '.join(spoken())}.")


def spoken() -> list[str]:
    """Return the names of the tasks that have been put into words."""
    return [name for name in tasks.names() if speech.dispatch(tasks.registry.part(name)) is not speech.dispatch(object)]


@speech.register
def _(task: Quantifier) -> Speech:
    labels = {1.0: "True", -1.0: "False", 0.0: ""}
    return Speech(
        "Numbers come one after another. The answer after a number is True if "
        f"{task.sentence} so far is greater than 0, and False otherwise.",
        lambda prompt, t, number: _pairs(prompt, t, number, lambda y: labels[y]),
        choices=("False", "True"),
        means=("position", "balanced-position"),
    )


@speech.register
def _(task: Linear) -> Speech:
    return Speech(
        "Inputs and outputs take turns. All outputs of one list follow the same rule: output = a * input + b, with "
        "a and b unknown. The answer is the output of the last input.",
        lambda prompt, t, number: _pairs(prompt, t, number, number),
        last=False,
        means=("mse-code", "nmse-code"),
    )


@speech.register
def _(task: Needle) -> Speech:
    named = "the one key among them" if task.keys == 1 else "a key (such as K2)"
    asked = "?" if task.keys == 1 else "? and the key"
    several = "" if task.answer == 1 else f" A value has {task.answer} symbols: say the next one."
    return Speech(
        f"Symbols come one after another. Right after {named} stands its value. At the end, {asked} asks for it. "
        f"The answer is the symbol of that value.{several}",
        partial(_symbols, task),
        choices=tuple(map(task.spelled, range(task.alphabet))),
    )


@speech.register
def _(task: Recall) -> Speech:
    last = " Where a key had two values, the later one counts." if task.updates else ""
    return Speech(
        "Keys (K1, K2, ..) and values (v1, v2, ..) come one after another. The list begins with pairs of a key and "
        f"its value.{last} Later keys are named again among other symbols. The answer is the value that stood "
        "right after the last key where it was first paired with one.",
        partial(_symbols, task),
        choices=tuple(task.spelled(task.half + value) for value in range(task.half)),
        last=False,
        means=("error",),
    )


@speech.register
def _(task: FlipFlop) -> Speech:
    return Speech(
        "Instructions and bits take turns. After w (write) stands the bit that is written, after i (ignore) a bit "
        "of no account, after r (read) the bit that was written last. The answer is the bit after the last r.",
        partial(_symbols, task),
        choices=("0", "1"),
        last=False,
        means=("error",),
    )


@speech.register
def _(task: Maximum) -> Speech:
    def item(token: Tensor, number: Number) -> str:
        return f"c{int(token[1:].argmax()) + 1} {number(token[0].item())}"

    return Speech(
        "Items come one after another, each a class (c1, c2, ..) with a number. The answer is the class of the "
        "item whose number is the greatest.",
        lambda prompt, t, number: _items([item(token, number) for token in prompt.tokens[0, : t + 1]]),
        choices=tuple(f"c{kind + 1}" for kind in range(task.classes)),
        means=("all",),
    )


@speech.register
def _(task: MeanValue) -> Speech:
    return Speech(
        "Numbers come one after another. The answer is the mean of all of them.",
        lambda prompt, t, number: _items([number(x) for x in prompt.tokens[0, : t + 1, 0].tolist()]),
        means=("all",),
    )


def _pairs(prompt: Prompt, t: int, number: Number, label: Callable[[float], str]) -> PromptText:
    """Numbers x_1 y_1 .. x_i, of which the last is asked about, as inputs with their labels."""
    values = prompt.tokens[0, : t + 1, 0].tolist()
    shown = zip(values[::2], values[1::2], strict=False)
    return PromptText(tuple((number(x), label(y)) for x, y in shown), number(values[-1]))


def _items(items: list[str]) -> PromptText:
    return PromptText(tuple((item, "") for item in items[:-1]), items[-1])


def _symbols(task: Task, prompt: Prompt, t: int, number: Number) -> PromptText:
    """One line of symbols, each as the task names it."""
    return PromptText((), " ".join(mark.text for mark in marks(task, prompt)[: t + 1]))
