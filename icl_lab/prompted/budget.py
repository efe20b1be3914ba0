"""How much may be asked: requests and tokens, over all calls that share a record."""

import re
import threading
from dataclasses import dataclass, field

from icl_lab.prompted.question import Question

# Pieces of about the size of a token of today's tokenizers: up to six letters, up to three digits, any other sign.
PIECE = re.compile(r"[^\W\d_]{1,6}|\d{1,3}|[^\w\s]|_|\n")
MESSAGE = 4  # tokens around each message of a conversation


@dataclass
class Budget:
    """Counts requests and tokens, and gives none out beyond the bounds; safe for several threads.

    A request is counted before it is sent, with the most tokens that it can take, and corrected by what the server
    counted: however many are under way, the bound is not passed.
    """

    requests: int
    tokens: int
    spent_requests: int = 0
    spent_tokens: int = 0
    _held: int = 0
    _guard: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def take(self, tokens: int) -> bool:
        """Sets a request aside that takes at most so many tokens; returns whether there was room."""
        with self._guard:
            if self.spent_requests >= self.requests or self.spent_tokens + self._held + tokens > self.tokens:
                return False
            self.spent_requests += 1
            self._held += tokens
            return True

    def settle(self, held: int, used: int) -> None:
        """Puts what a request really took in the place of what was set aside for it."""
        with self._guard:
            self._held -= held
            self.spent_tokens += used


def most_tokens(question: Question, answer: int) -> int:
    """Returns a bound of the tokens of a request: a token is at least one byte, an answer has at most ``answer``."""
    sent = question.sent
    return len(sent.whole.encode()) + MESSAGE * (2 + 2 * len(sent.messages)) + answer


def about_tokens(text: str, messages: int = 0) -> int:
    """Estimates the tokens of a text, which no server has counted.

    >>> about_tokens("-0.51, 2.00")
    8
    """
    return len(PIECE.findall(text)) + MESSAGE * messages
