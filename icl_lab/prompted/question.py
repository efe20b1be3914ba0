"""Questions: one request for one answer to one test prompt, as a conversation or as a text to complete."""

import hashlib
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from icl_lab.prompted.speech import PromptText, Speech

# Pieces of about the size of a token of today's tokenizers: up to six letters, up to three digits, any other sign.
PIECE = re.compile(r"[^\W\d_]{1,6}|\d{1,3}|[^\w\s]|_|\n")
MESSAGE = 4  # tokens around each message of a conversation
FEW = 4  # choices that are all named in the instruction; of more, the first ones


def about_tokens(text: str) -> int:
    """Estimates the tokens of a text that no server has counted.

    >>> about_tokens("-0.51, 2.00")
    8
    """
    return len(PIECE.findall(text))


@dataclass(frozen=True)
class PromptQuestion:
    """Request for the answer at one token of one test prompt; ``key`` names it in a record, ``truth`` is right.

    ``sent`` are its fields in the OpenAI protocol: ``messages``, or a ``prompt`` to complete and where to ``stop``.
    """

    key: str
    prompt: int
    token: int
    sent: Mapping[str, Any]
    truth: str = ""

    @cached_property
    def sha(self) -> str:
        """Hash of the text that is sent: the same key with other text is another question."""
        messages = [[message["role"], message["content"]] for message in self.sent.get("messages", [])]
        text = json.dumps([messages, self.sent.get("prompt", ""), self.sent.get("stop", [])])
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    @property
    def text(self) -> str:
        """The request as one text, to count its length and to show it."""
        messages = self.sent.get("messages", [])
        return self.sent.get("prompt") or "\n".join(f"[{each['role']}]\n{each['content']}" for each in messages)

    @property
    def about_tokens(self) -> int:
        """Estimate of the tokens of the request."""
        return about_tokens(self.text) + MESSAGE * len(self.sent.get("messages", []))

    @property
    def most_tokens(self) -> int:
        """Upper bound of the tokens of the request: a token is at least one byte."""
        return len(self.text.encode()) + MESSAGE * (2 + 2 * len(self.sent.get("messages", [])))


def chat(speech: Speech, text: PromptText, instruct: bool) -> dict[str, Any]:
    """A conversation: an input from the user, its label from the assistant, in turn; without labels one message."""
    said = [("system", f"{speech.says} {_reply(speech)}")] if instruct else []
    if text.labelled:
        for shown, label in text.shown:
            said += [("user", shown), ("assistant", label)]
    said.append(("user", text.query if text.labelled else text.line))
    return {"messages": [{"role": role, "content": content} for role, content in said]}


def plain(speech: Speech, text: PromptText, instruct: bool) -> dict[str, Any]:
    """A text to complete, for models that are no assistants: lines of input and output; without labels one line."""
    lines = [f"{speech.says}\n"] if instruct else []
    if text.labelled:
        lines += [f"Input: {shown}\nOutput: {label}\n" for shown, label in text.shown]
    query = text.query if text.labelled else text.line
    return {"prompt": "\n".join([*lines, f"Input: {query}\nOutput:"]), "stop": ["\n"]}


FORMATS: Mapping[str, Callable[[Speech, PromptText, bool], dict[str, Any]]] = {"chat": chat, "plain": plain}


def _reply(speech: Speech) -> str:
    """Instruction on the form of an answer."""
    if not speech.choices:
        return "Reply with the number alone."
    if len(speech.choices) <= FEW:
        return f"Reply with the answer alone: {' or '.join(speech.choices)}."
    return f"Reply with the answer alone: {', '.join(speech.choices[: FEW - 1])}, ..."
