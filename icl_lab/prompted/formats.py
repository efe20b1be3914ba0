"""Formats that a prompt is written down in: a conversation, a text to complete, the layout of published scripts."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from icl_lab.errors import UnknownName
from icl_lab.prompted.question import RequestText, Role
from icl_lab.prompted.speech import PromptText, Speech
from icl_lab.tasks.base import Prompt

FEW = 4  # choices that are all named in the instruction; of more, the first ones


@dataclass(frozen=True)
class Format:
    """One way to write a prompt down.

    ``lists`` says that all answers are asked for at once, where the task has words for that; ``worked`` is the number
    of example prompts that are shown with their answers.
    """

    name: str
    write: Callable[["Writer", PromptText], RequestText]
    lists: bool = False
    worked: int = 0
    number: Callable[[float, int], str] = lambda value, digits: f"{value:.{digits}f}"  # -0.00 keeps its sign


def chat(writer: "Writer", text: PromptText) -> RequestText:
    """A conversation: an input from the user, its label from the assistant, in turn; without labels one message."""
    speech = writer.speech
    messages: list[tuple[Role, str]] = [("system", f"{speech.says} {reply(speech)}")] if writer.instruct else []
    if not text.labelled:
        return RequestText((*messages, ("user", text.line)))
    for shown, label in text.shown:
        messages += [("user", shown), ("assistant", label)]
    return RequestText((*messages, ("user", text.query)))


def plain(writer: "Writer", text: PromptText) -> RequestText:
    """A text to complete, for models that are no assistants: lines of input and output; without labels one line."""
    lines, query = [f"{writer.speech.says}\n"] if writer.instruct else [], text.line
    if text.labelled:
        lines += [f"Input: {shown}\nOutput: {label}\n" for shown, label in text.shown]
        query = text.query
    return RequestText(completion="\n".join([*lines, f"Input: {query}\nOutput:"]), before=" ", stop=("\n",))


def published(writer: "Writer", text: PromptText) -> RequestText:
    """The layout of the authors' public scripts: five worked examples under an instruction, then a list of numbers.

    Layout and marks as in the folder ``prompt 70b`` of github.com/omyokun/SSA (arXiv 2508.14685): an instruction with
    five lists and their answers as the system message, a list as the user's, numbers as Python prints them after
    rounding to two decimals (0.5, not 0.50), truth values asked for as one list. The words of the instruction and the
    five lists are ours.
    """
    speech = writer.speech
    parts = [speech.lists or speech.says] if writer.instruct else []
    for number, (shown, answer) in enumerate(writer.examples, 1):
        parts.append(f"Example {number}:\nCONTEXT: [{shown}]\n#Answer: {answer}")
    if writer.instruct:
        parts.append(reply(speech, listed=bool(speech.lists)))
    return RequestText((("system", "\n\n".join(parts)), ("user", f"CONTEXT: [{text.line}]")))


def _as_python_prints(value: float, digits: int) -> str:
    return repr(round(value, digits)) if digits else f"{value:.0f}"


FORMATS: Mapping[str, Format] = {
    "published": Format("published", published, lists=True, worked=5, number=_as_python_prints),
    "chat": Format("chat", chat),
    "plain": Format("plain", plain),
}


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

    def sent(self, prompt: Prompt, t: int) -> RequestText:
        """Writes the first prompt down up to the question at token ``t``; of a list of answers it is the last one."""
        return self.form.write(self, self._text(prompt, t))

    def example(self, prompt: Prompt, t: int) -> tuple[str, str]:
        """Returns the first prompt up to token ``t`` with its answer, as a worked example."""
        answer = self.speech.right(prompt, t, self.number)
        if self.listed:
            asked = prompt.scored[0].nonzero().flatten().tolist()
            answer = f"[{', '.join(self.speech.right(prompt, at, self.number) for at in asked if at <= t)}]"
        return self._text(prompt, t).line, answer

    def _text(self, prompt: Prompt, t: int) -> PromptText:
        text = self.speech.tell(prompt, t, self.number)
        if not self.listed:
            return text
        # Answers that are asked for are not shown.
        return PromptText(tuple((shown, "") for shown, _ in text.shown), text.query)
