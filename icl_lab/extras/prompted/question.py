"""Questions: one request for one answer to one test prompt, as a conversation or as a text to complete."""

import hashlib
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from icl_lab.extras.prompted.speech import PromptText, Speech

# Pieces of about the size of a token of today's tokenizers: up to six letters, up to three digits, any other sign.
PIECE = re.compile(r"[^\W\d_]{1,6}|\d{1,3}|[^\w\s]|_|\n")
MESSAGE = 4  # tokens around each message of a conversation
LONGEST = 64  # characters of a custom_id; some services take no more
FEW = 4  # choices that are all named in the instruction; of more, the first ones


def about_tokens(text: str) -> int:
    """Estimate the tokens of a text, without a tokenizer.

    >>> about_tokens("-0.51, 2.00")
    8
    """
    return len(PIECE.findall(text))


@dataclass(frozen=True)
class PromptQuestion:
    """Request for the answer at one token of one test prompt, which is ``truth``.

    ``address`` names cell, prompt and token; ``body`` holds the fields of the request in OpenAI's API.
    """

    address: str
    prompt: int
    token: int
    body: Mapping[str, Any]
    truth: str = ""

    @cached_property
    def key(self) -> str:
        """The ``custom_id``: the address and a hash of the request, so that another request has another."""
        text = json.dumps([self.address, self.body], sort_keys=True)
        end = f"_{hashlib.sha256(text.encode()).hexdigest()[:16]}"
        return self.address[len(end) - LONGEST :] + end

    @property
    def request(self) -> dict[str, Any]:
        """The line of a file of requests."""
        url = "/v1/completions" if "prompt" in self.body else "/v1/chat/completions"
        return {"custom_id": self.key, "method": "POST", "url": url, "body": dict(self.body)}

    @property
    def about_tokens(self) -> int:
        """Estimate of the tokens of the prompt."""
        messages = self.body.get("messages", [])
        said = [self.body.get("prompt", ""), *(message["content"] for message in messages)]
        return sum(map(about_tokens, said)) + MESSAGE * len(messages)


def chat(speech: Speech, text: PromptText, instruct: bool) -> dict[str, Any]:
    """A conversation: an input from the user, its label from the assistant, in turn; without labels one message."""
    said = [("system", f"{speech.says} {_reply(speech)}")] if instruct else []
    if text.labelled:
        for shown, label in text.shown:
            said += [("user", shown), ("assistant", label)]
    said.append(("user", text.query if text.labelled else text.line))
    return {"messages": [{"role": role, "content": content} for role, content in said]}


def plain(speech: Speech, text: PromptText, instruct: bool) -> dict[str, Any]:
    """A text to complete, for models that are not assistants: lines of input and output; without labels one line."""
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
