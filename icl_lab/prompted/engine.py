"""What answers questions: a server or a model on disk, and what it says when it has no answer."""

from typing import Protocol

from icl_lab.prompted.question import Question
from icl_lab.prompted.record import Reply


class Failure(Exception):
    """An attempt that brought no answer; the message says why, in one line.

    ``again`` says whether another attempt may help, ``wait`` the seconds that the server asks to be left alone,
    ``fatal`` that no question can be answered: the run stops.
    """

    def __init__(self, reason: str, *, again: bool = False, wait: float | None = None, fatal: bool = False) -> None:
        super().__init__(" ".join(reason.split()))
        self.again, self.wait, self.fatal = again, wait, fatal


class Engine(Protocol):
    """Answers one question at a time; ``parallel`` is how many threads may ask at once."""

    parallel: int

    def most_tokens(self, question: Question) -> int:
        """Returns a bound of the tokens that the question and its answer take."""

    def ask(self, question: Question) -> Reply:
        """Answers a question; raises ``Failure``."""
