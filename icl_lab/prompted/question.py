"""Questions: one request for one answer, or for one list of answers."""

import hashlib
import json
import re
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

Role = Literal["system", "user", "assistant"]
ALL = 0  # in place of a token: all answers of a prompt, as one list
# Pieces of about the size of a token of today's tokenizers: up to six letters, up to three digits, any other sign.
PIECE = re.compile(r"[^\W\d_]{1,6}|\d{1,3}|[^\w\s]|_|\n")
MESSAGE = 4  # tokens around each message of a conversation


def about_tokens(text: str) -> int:
    """Estimates the tokens of a text that no server has counted.

    >>> about_tokens("-0.51, 2.00")
    8
    """
    return len(PIECE.findall(text))


@dataclass(frozen=True)
class RequestText:
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
    def about_tokens(self) -> int:
        """Estimate of the tokens of the request."""
        return about_tokens(self.whole) + MESSAGE * len(self.messages)

    @property
    def most_tokens(self) -> int:
        """Upper bound of the tokens of the request: a token is at least one byte."""
        return len(self.whole.encode()) + MESSAGE * (2 + 2 * len(self.messages))

    @property
    def fields(self) -> dict[str, object]:
        """The request as fields of the OpenAI protocol."""
        if self.completion:
            return {"prompt": self.completion}
        return {"messages": [{"role": role, "content": content} for role, content in self.messages]}


@dataclass(frozen=True)
class GridCell:
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
class PromptQuestion:
    """One request: the text that is sent, and how the answer is read.

    ``prompt`` and ``token`` are the number of the test prompt and the token whose answer is asked for; with ``ALL`` in
    place of a token, ``count`` answers as one list. ``choices`` are all answers there are; without any it is a number.
    """

    cell: GridCell
    prompt: int
    token: int
    sample: int
    sent: RequestText
    choices: tuple[str, ...]
    count: int = 1

    @property
    def listed(self) -> bool:
        """True where all answers of the prompt are asked for at once."""
        return self.token == ALL and self.count > 1

    @property
    def key(self) -> str:
        """Key of the answer in a record."""
        at = "all" if self.listed else str(self.token)
        return f"{self.cell.key}|prompt={self.prompt}|token={at}|sample={self.sample}"

    @cached_property
    def sha(self) -> str:
        """Hash of the text that is sent: the same key with other text is another question."""
        text = json.dumps([self.sent.messages, self.sent.completion, self.sent.stop])
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    @property
    def seed(self) -> int:
        """Seed for sampling: another for each sample."""
        return int(hashlib.sha256(self.key.encode()).hexdigest()[:8], 16)
