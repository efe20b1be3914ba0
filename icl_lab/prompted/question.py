"""Questions: one request for one answer (or one list of answers), and the formats that a prompt is written down in."""

import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, Literal

from icl_lab.errors import UnknownName
from icl_lab.prompted.speech import Speech, Telling
from icl_lab.tasks.base import Prompt

Role = Literal["system", "user", "assistant"]
ALL = 0  # in place of a token: all answers of a prompt, as one list
FEW = 4  # choices that are all named in the instruction; of more, the first ones


@dataclass(frozen=True)
class Sent:
    """Text of a request: messages (role, content), or one text to complete.

    ``before`` stands between the end of the text and the answer; ``stop`` are texts at which an answer ends.
    """

    messages: tuple[tuple[Role, str], ...] = ()
    completion: str = ""
    before: str = ""
    stop: tuple[str, ...] = ()

    @property
    def whole(self) -> str:
        """The request as one text, to count its length and to show it."""
        return self.completion or "\n".join(f"[{role}]\n{content}" for role, content in self.messages)

    @property
    def fields(self) -> dict[str, object]:
        """The request as fields of the OpenAI protocol."""
        if self.completion:
            return {"prompt": self.completion}
        return {"messages": [{"role": role, "content": content} for role, content in self.messages]}


@dataclass(frozen=True)
class Cell:
    """One cell of the grid: a test set (its prefix), the shift, the examples of a prompt, the decimals of numbers."""

    prefix: str
    shift: tuple[tuple[str, float], ...]
    length: int
    digits: int

    def labels(self, digits: bool) -> dict[str, float]:
        """Labels of a row of the grid; ``digits`` is among them where it is an axis."""
        return {**({"digits": float(self.digits)} if digits else {}), **dict(self.shift), "length": float(self.length)}

    @property
    def key(self) -> str:
        """The cell as text."""
        where = ",".join(f"{axis}={value:g}" for axis, value in self.shift)
        return f"{self.prefix}|{where}|length={self.length}|digits={self.digits}"


@dataclass(frozen=True)
class Question:
    """One request: the text that is sent, and how the answer is read.

    ``prompt`` and ``token`` say which answer of which test prompt is wanted, ``ALL`` answers as one list of ``wants``
    (1: a single answer). ``choices`` are all answers there are; without any it is a number.
    """

    cell: Cell
    prompt: int
    token: int
    sample: int
    sent: Sent
    choices: tuple[str, ...]
    wants: int = 1

    @property
    def listed(self) -> bool:
        """True where all answers of the prompt are wanted at once."""
        return self.token == ALL and self.wants > 1

    @property
    def key(self) -> str:
        """Key of the answer in a record."""
        at = "all" if self.listed else str(self.token)
        return f"{self.cell.key}|prompt={self.prompt}|token={at}|sample={self.sample}"

    @cached_property
    def sha(self) -> str:
        """Hash of the text that is sent: the same key with other text is another question."""
        told = json.dumps([self.sent.messages, self.sent.completion, self.sent.stop])
        return hashlib.sha256(told.encode()).hexdigest()[:16]

    @property
    def seed(self) -> int:
        """Seed for sampling: another for each sample."""
        return int(hashlib.sha256(self.key.encode()).hexdigest()[:8], 16)


class Format(ABC):
    """One way to write a prompt down."""

    name: ClassVar[str]
    lists: ClassVar[bool] = False  # all answers are asked for at once, where the task has words for that
    worked: ClassVar[int] = 0  # example prompts that are shown with their answers

    def number(self, value: float, digits: int) -> str:
        """Returns a number with so many decimals; -0.00 keeps its minus: the sign is told."""
        return f"{value:.{digits}f}"

    @abstractmethod
    def sent(self, speech: Speech, telling: Telling, examples: Sequence[tuple[str, str]], instruct: bool) -> Sent:
        """Writes a prompt down; ``examples`` are other prompts with their answers, ``instruct`` says the task first."""

    def flat(self, telling: Telling) -> str:
        """The prompt as one list: inputs and the labels that are shown, in order, and the question last."""
        return ", ".join([*(part for shown in telling.shown for part in shown if part), telling.query])


class Chat(Format):
    """A conversation: an input from the user, its label from the assistant, again and again; the question last."""

    name = "chat"

    def sent(self, speech: Speech, telling: Telling, examples: Sequence[tuple[str, str]], instruct: bool) -> Sent:
        """Turns where labels are shown; else all inputs in one message."""
        messages: list[tuple[Role, str]] = [("system", f"{speech.says} {reply(speech)}")] if instruct else []
        if not all(label for _, label in telling.shown):
            return Sent((*messages, ("user", self.flat(telling))))
        for shown, label in telling.shown:
            messages += [("user", shown), ("assistant", label)]
        return Sent((*messages, ("user", telling.query)))


class Plain(Format):
    """A text to complete, for models that are no assistants: lines of input and output."""

    name = "plain"

    def sent(self, speech: Speech, telling: Telling, examples: Sequence[tuple[str, str]], instruct: bool) -> Sent:
        """Lines where labels are shown; else all inputs in one line. The answer follows after a blank."""
        lines, query = [f"{speech.says}\n"] if instruct else [], self.flat(telling)
        if all(label for _, label in telling.shown):
            lines += [f"Input: {shown}\nOutput: {label}\n" for shown, label in telling.shown]
            query = telling.query
        return Sent(completion="\n".join([*lines, f"Input: {query}\nOutput:"]), before=" ", stop=("\n",))


class Published(Format):
    """The layout of the authors' public scripts: five worked examples under an instruction, then a list of numbers.

    Layout and marks as in the folder ``prompt 70b`` of github.com/omyokun/SSA (arXiv 2508.14685): an instruction with
    five lists and their answers as the system message, a list as the user's, numbers as Python prints them after
    rounding to two decimals, truth values asked for as one list. The words of the instruction and the five lists are
    ours.
    """

    name = "published"
    lists = True
    worked = 5

    def number(self, value: float, digits: int) -> str:
        """Rounded number as Python prints it: 0.5, not 0.50."""
        return repr(round(value, digits)) if digits else f"{value:.0f}"

    def sent(self, speech: Speech, telling: Telling, examples: Sequence[tuple[str, str]], instruct: bool) -> Sent:
        """The instruction with its examples as the system message, the prompt as the user's."""
        parts = [speech.lists or speech.says] if instruct else []
        for number, (shown, answer) in enumerate(examples, 1):
            parts.append(f"Example {number}:\nCONTEXT: [{shown}]\n#Answer: {answer}")
        if instruct:
            parts.append(reply(speech, listed=bool(speech.lists)))
        return Sent((("system", "\n\n".join(parts)), ("user", f"CONTEXT: [{self.flat(telling)}]")))


FORMATS: Mapping[str, Format] = {made.name: made for made in (Published(), Chat(), Plain())}


def named(name: str) -> Format:
    """Returns a format; raises ``UnknownName`` with those there are."""
    if name not in FORMATS:
        raise UnknownName("prompt format", name, FORMATS)
    return FORMATS[name]


def reply(speech: Speech, listed: bool = False) -> str:
    """Instruction on the form of an answer."""
    if not speech.choices:
        return "Reply with the number alone."
    if listed:
        return f"Reply with the list alone, such as [{', '.join(reversed(speech.choices))}]."
    few = len(speech.choices) <= FEW
    names = " or ".join(speech.choices) if few else ", ".join(speech.choices[: FEW - 1]) + ", .."
    return f"Reply with the answer alone: {names}."


@dataclass(frozen=True)
class Writer:
    """Writes the prompts of a task down in one format, with so many decimals; ``examples`` are the worked ones."""

    speech: Speech
    form: Format
    digits: int
    instruct: bool = True
    examples: Sequence[tuple[str, str]] = ()

    @property
    def listed(self) -> bool:
        """True where all answers of a prompt are asked for at once."""
        return self.form.lists and bool(self.speech.lists)

    def number(self, value: float) -> str:
        """A number as it is written."""
        return self.form.number(value, self.digits)

    def sent(self, prompt: Prompt, t: int) -> Sent:
        """Writes the first prompt down up to the question at token ``t``; of a list of answers it is the last one."""
        return self.form.sent(self.speech, self._telling(prompt, t), self.examples, self.instruct)

    def example(self, prompt: Prompt, t: int) -> tuple[str, str]:
        """Returns the first prompt up to token ``t`` with its answer, as a worked example."""
        answer = self.speech.right(prompt, t, self.number)
        if self.listed:
            asked = prompt.scored[0].nonzero().flatten().tolist()
            answer = f"[{', '.join(self.speech.right(prompt, at, self.number) for at in asked if at <= t)}]"
        return self.form.flat(self._telling(prompt, t)), answer

    def _telling(self, prompt: Prompt, t: int) -> Telling:
        telling = self.speech.tell(prompt, t, self.number)
        if not self.listed:
            return telling
        # Answers that are asked for are not shown.
        return Telling(tuple((shown, "") for shown, _ in telling.shown), telling.query)
