"""How a prompt is written down for a language model: a conversation, a text to go on with, or the published layout."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Literal

from icl_lab.errors import UnknownName
from icl_lab.tasks.base import Prompt, Speech, Task, Telling

Role = Literal["system", "user", "assistant"]
WORKED = 5  # example prompts with their answers, in the published layout
FEW = 4  # choices that are all named in the instruction; of more, the first ones


@dataclass(frozen=True)
class Sent:
    """What is sent: messages (role, content), or one text that is to be gone on with.

    ``before`` stands between the end of the text and the answer; ``stop`` are texts at which an answer ends.
    """

    messages: tuple[tuple[Role, str], ...] = ()
    completion: str = ""
    before: str = ""
    stop: tuple[str, ...] = ()

    @property
    def whole(self) -> str:
        """All that is sent as one text, to count its length, and to show it."""
        return self.completion or "\n".join(f"[{role}]\n{content}" for role, content in self.messages)


class Format(ABC):
    """One way to write a prompt down."""

    name: ClassVar[str]
    lists: ClassVar[bool] = False  # whether all answers are asked for at once, where the task has words for that
    worked: ClassVar[int] = 0  # example prompts that are shown with their answers
    digits: ClassVar[int] = 2  # decimals of numbers, where the command does not say

    def number(self, value: float, digits: int) -> str:
        """Returns a number with so many decimals; a minus stays where all that is left is 0: the sign is told."""
        return f"{value:.{digits}f}"

    @abstractmethod
    def sent(self, speech: Speech, telling: Telling, examples: Sequence[tuple[str, str]], instruct: bool) -> Sent:
        """Writes a prompt down; ``examples`` are other prompts with their answers, ``instruct`` says the task first."""

    def flat(self, telling: Telling) -> str:
        """A prompt as one list: inputs and the labels that are shown, in order, and the question last."""
        items = [part for shown in telling.shown for part in shown if part]
        return ", ".join([*items, telling.query])


class Chat(Format):
    """A conversation: an input from the user, its label from the assistant, again and again; the question last."""

    name = "chat"

    def sent(self, speech: Speech, telling: Telling, examples: Sequence[tuple[str, str]], instruct: bool) -> Sent:
        """Turns where labels are shown; else all inputs in one message."""
        messages: list[tuple[Role, str]] = [("system", f"{speech.says} {reply(speech)}")] if instruct else []
        if all(label for _, label in telling.shown):
            for shown, label in telling.shown:
                messages += [("user", shown), ("assistant", label)]
            return Sent((*messages, ("user", telling.query)))
        return Sent((*messages, ("user", self.flat(telling))))


class Plain(Format):
    """A text that is to be gone on with, for models that are no assistants: lines of input and output."""

    name = "plain"

    def sent(self, speech: Speech, telling: Telling, examples: Sequence[tuple[str, str]], instruct: bool) -> Sent:
        """Lines where labels are shown; else all inputs in one line. The answer follows after a blank."""
        lines = [f"{speech.says}\n"] if instruct else []
        if all(label for _, label in telling.shown):
            lines += [f"Input: {shown}\nOutput: {label}\n" for shown, label in telling.shown]
            lines.append(f"Input: {telling.query}\nOutput:")
        else:
            lines.append(f"Input: {self.flat(telling)}\nOutput:")
        return Sent(completion="\n".join(lines), before=" ", stop=("\n",))


class Published(Format):
    """The layout of the authors' public scripts: five worked examples under an instruction, then a list of numbers.

    Layout and marks as in the folder ``prompt 70b`` of github.com/omyokun/SSA (arXiv 2508.14685): an instruction with
    five lists and their answers as the system message, a list as the user's, numbers as Python prints them after
    rounding to two decimals, truth values asked for as one list. The words of the instruction and the five lists are
    ours.
    """

    name = "published"
    lists = True
    worked = WORKED

    def number(self, value: float, digits: int) -> str:
        """As Python prints a rounded number: 0.5, not 0.50."""
        return repr(round(value, digits)) if digits else f"{value:.0f}"

    def sent(self, speech: Speech, telling: Telling, examples: Sequence[tuple[str, str]], instruct: bool) -> Sent:
        """The instruction with its examples as the system message, the prompt as the user's."""
        parts = [speech.lists or speech.says] if instruct else []
        parts += [
            f"Example {number}:\nCONTEXT: [{shown}]\n#Answer: {answer}"
            for number, (shown, answer) in enumerate(examples, 1)
        ]
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
    """Says what an answer looks like."""
    if not speech.choices:
        return "Reply with the number alone."
    if listed:
        return f"Reply with the list alone, such as [{', '.join(reversed(speech.choices))}]."
    few = len(speech.choices) <= FEW
    names = " or ".join(speech.choices) if few else ", ".join(speech.choices[: FEW - 1]) + ", .."
    return f"Reply with the answer alone: {names}."


@dataclass(frozen=True)
class Writer:
    """Writes the prompts of a task down in one format, with so many decimals.

    ``examples`` are the worked ones, the same for every question.
    """

    task: Task
    speech: Speech
    form: Format
    digits: int
    instruct: bool = True
    examples: Sequence[tuple[str, str]] = field(default=())

    @property
    def listed(self) -> bool:
        """Whether all answers of a prompt are asked for at once."""
        return self.form.lists and bool(self.speech.lists)

    def number(self, value: float) -> str:
        """A number as it is written."""
        return self.form.number(value, self.digits)

    def sent(self, prompt: Prompt, t: int) -> Sent:
        """Writes the first prompt down up to the question at token ``t``; of a list of answers it is the last one."""
        return self.form.sent(self.speech, self._telling(prompt, t), self.examples, self.instruct)

    def example(self, prompt: Prompt, t: int) -> tuple[str, str]:
        """Returns the first prompt up to token ``t`` with its answer, as a worked example."""
        answer = self.task.right(prompt, t, self.number)
        if self.listed:
            asked = prompt.scored[0].nonzero().flatten().tolist()
            answer = f"[{', '.join(self.task.right(prompt, at, self.number) for at in asked if at <= t)}]"
        return self.form.flat(self._telling(prompt, t)), answer

    def _telling(self, prompt: Prompt, t: int) -> Telling:
        telling = self.task.tell(prompt, t, self.number)
        if not self.listed:
            return telling
        # Answers that are asked for are not shown.
        return Telling(tuple((shown, "") for shown, _ in telling.shown), telling.query)
