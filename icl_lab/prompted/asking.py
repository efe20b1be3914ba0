"""Asking: questions put to an engine by several threads, within a budget of requests and tokens.

The threads ask, the caller's thread writes: every answer is on the disk before the next is looked at, so that a stop
loses at most the requests under way.
"""

import queue
import re
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from icl_lab.errors import RunFailed, Stopped
from icl_lab.prompted.question import Question
from icl_lab.prompted.record import Record, Reply

GIVE_UP = 5  # questions in a row without any answer: it is not the question
LOOK = 0.1  # seconds between two looks at the stop flag
# Pieces of about the size of a token of today's tokenizers: up to six letters, up to three digits, any other sign.
PIECE = re.compile(r"[^\W\d_]{1,6}|\d{1,3}|[^\w\s]|_|\n")
MESSAGE = 4  # tokens around each message of a conversation


class Failure(Exception):
    """No answer to a question, with the reason in one line.

    ``fatal``: no question can be answered, the run stops. ``retries`` counts requests beyond the first.
    """

    def __init__(self, reason: str, *, fatal: bool = False, retries: int = 0) -> None:
        super().__init__(" ".join(reason.split()))
        self.fatal, self.retries = fatal, retries


class Engine(Protocol):
    """A server or a model on disk; ``parallel`` is how many threads may ask at once."""

    parallel: int

    def most_tokens(self, question: Question) -> int:
        """Returns an upper bound of the tokens of the question and its answer."""

    def ask(self, question: Question, retries: int) -> Reply:
        """Answers a question, with so many more requests where one fails; raises ``Failure``."""


@dataclass(frozen=True)
class Limits:
    """Budget over all calls that share a record, retries of a request, and whether the first failure stops."""

    requests: int
    tokens: int
    retries: int = 4
    fail_fast: bool = False


@dataclass(frozen=True)
class Console:
    """Callbacks to the user: a line, the progress (stage, done, total, note), and whether to stop."""

    say: Callable[[str], object] = lambda line: None
    tick: Callable[[str, int, int, str], object] = lambda stage, done, total, note: None
    stopping: Callable[[], bool] = lambda: False


@dataclass
class Budget:
    """Requests and tokens that are left; safe for several threads.

    A question sets aside all its attempts and the most tokens that it can take, and gives back what it did not use:
    however many are under way, the bounds are not passed.
    """

    requests: int
    tokens: int
    _open: int = 0
    _changed: threading.Condition = field(default_factory=threading.Condition, repr=False)

    def take(self, attempts: int, tokens: int) -> int:
        """Sets tokens and up to so many attempts aside; returns how many attempts, 0 where the budget is spent."""
        with self._changed:
            # Questions under way may still give attempts back.
            self._changed.wait_for(lambda: self.requests > 0 or not self._open)
            granted = min(attempts, self.requests)
            if granted <= 0 or tokens > self.tokens:
                return 0
            self.requests, self.tokens, self._open = self.requests - granted, self.tokens - tokens, self._open + 1
            return granted

    def give_back(self, attempts: int, tokens: int) -> None:
        """Returns the unused part of one ``take``."""
        with self._changed:
            self.requests, self.tokens, self._open = self.requests + attempts, self.tokens + tokens, self._open - 1
            self._changed.notify_all()


def most_tokens(question: Question, answer: int) -> int:
    """Upper bound of the tokens of a request: a token is at least one byte, an answer has at most ``answer``."""
    sent = question.sent
    return len(sent.whole.encode()) + MESSAGE * (2 + 2 * len(sent.messages)) + answer


def about_tokens(text: str, messages: int = 0) -> int:
    """Estimates the tokens of a text, which no server has counted.

    >>> about_tokens("-0.51, 2.00")
    8
    """
    return len(PIECE.findall(text)) + MESSAGE * messages


@dataclass
class Outcome:
    """End of a round: why it stopped early (empty: it did not), failures by reason, and requests made again."""

    stopped: str = ""
    interrupted: bool = False
    budget: bool = False
    answered: int = 0
    retried: int = 0
    failures: Counter[str] = field(default_factory=Counter)

    def check(self, left: int, total: int, count_missing: bool) -> None:
        """Raises ``Stopped`` or ``RunFailed`` where ``left`` of ``total`` questions stop the measurement."""
        kept = f"{total - left:,} of {total:,} questions are answered, and kept"
        if self.interrupted:
            raise Stopped(f"stopped: {kept}; the same command goes on.")
        if self.budget:
            raise RunFailed(f"the budget is spent: {kept}; a greater --max-requests or --max-tokens goes on.")
        if self.stopped:
            raise RunFailed(f"{self.stopped}: {kept}; the same command goes on.")
        if left and not count_missing:
            raise RunFailed(
                f"{left:,} questions have no answer: {kept}; the same command asks for them again, and with "
                "--unanswered wrong they count as wrong."
            )


def answer(
    questions: Sequence[Question],
    engine: Callable[[], Engine],
    record: Record,
    limits: Limits,
    console: Console,
    expected: str = "",
) -> Outcome:
    """Asks the questions that have no answer in the record yet.

    ``engine`` is called only where an answer is missing: an answered study needs neither a server nor a key.
    ``expected`` is the name that the model should answer by; another one is said.
    """
    missing = [question for question in questions if record.answer(question) is None]
    if not missing:
        return Outcome()
    if len(missing) > (left := max(0, limits.requests - record.attempts)):
        console.say(f"{len(missing):,} questions have no answer yet; --max-requests leaves {left:,} requests.")
    return Asking(engine(), record, limits, console, expected)(missing)


class Asking:
    """One round: questions, an engine, and the threads between them."""

    def __init__(self, engine: Engine, record: Record, limits: Limits, console: Console, expected: str = "") -> None:
        self._engine, self._record, self._limits = engine, record, limits
        self._console, self._expected = console, expected
        self._budget = Budget(limits.requests - record.attempts, limits.tokens - record.tokens)
        # Bounded: nobody asks on while answers wait to be written. None: a thread has ended.
        self._replies: queue.Queue[tuple[Reply, bool] | BaseException | None] = queue.Queue(maxsize=engine.parallel)
        self._halt, self._spent, self._outcome = threading.Event(), False, Outcome()
        self._said = set[str]()

    def __call__(self, questions: Sequence[Question]) -> Outcome:
        """Asks the questions and adds every reply to the record; returns how it ended."""
        # Threads share one iterator: that of a list is safe.
        shared, working = iter(list(questions)), min(self._engine.parallel, len(questions))
        for _ in range(working):
            threading.Thread(target=self._work, args=(shared,), daemon=True).start()
        done, row, outcome = 0, 0, self._outcome
        try:
            while working:
                if self._console.stopping() and not outcome.stopped:
                    self._stop("stopped")
                    outcome.interrupted = True
                try:
                    item = self._replies.get(timeout=LOOK)
                except queue.Empty:
                    continue
                if item is None:
                    working -= 1
                    continue
                if isinstance(item, BaseException):
                    raise item
                reply, fatal = item
                self._keep(reply)
                done, row = done + 1, row + 1 if reply.failed else 0
                self._console.tick("asking", done, len(questions), "")
                if fatal:
                    self._stop(reply.failed)
                elif reply.failed and self._limits.fail_fast:
                    self._stop(f"{reply.failed} (--fail-fast)")
                elif row >= GIVE_UP and not outcome.answered:
                    self._stop(f"none of the first {row} questions was answered: {reply.failed}")
        finally:
            self._halt.set()
            while not self._replies.empty():  # keep what came in while the round was ending
                if isinstance(item := self._replies.get(), tuple):
                    self._keep(item[0])
        if self._spent and not outcome.stopped:
            outcome.stopped, outcome.budget = "the budget is spent", True
        return outcome

    def _keep(self, reply: Reply) -> None:
        """Writes a reply down, and says once what is odd about it."""
        self._record.add(reply)
        self._outcome.retried += reply.retries
        if reply.failed:
            self._outcome.failures[reply.failed] += 1
            self._once(f"no answer: {reply.failed}")
            return
        self._outcome.answered += 1
        if self._expected and reply.model and reply.model != self._expected:
            self._once(f"the server answers as '{reply.model}', asked for was '{self._expected}'")
            if self._limits.fail_fast:
                self._stop(f"the server answers as '{reply.model}' (--fail-fast)")

    def _stop(self, why: str) -> None:
        self._outcome.stopped = self._outcome.stopped or why
        self._halt.set()

    def _once(self, line: str) -> None:
        if line not in self._said:
            self._said.add(line)
            self._console.say(line)

    def _work(self, questions: Iterator[Question]) -> None:
        """Asks until no question or budget is left, or the round ends; runs in each thread."""
        try:
            for question in questions:
                most = self._engine.most_tokens(question)
                granted = self._budget.take(1 + self._limits.retries, most)
                if not granted:
                    self._spent = True
                    self._halt.set()
                    return
                if self._halt.is_set():
                    self._budget.give_back(granted, most)
                    return
                reply, fatal = Reply(key=question.key, sha=question.sha), False
                try:
                    reply = self._engine.ask(question, granted - 1)
                except Failure as failure:
                    # The tokens of a failed request are not known; servers bill answers.
                    reply = Reply(key=question.key, sha=question.sha, failed=str(failure), retries=failure.retries)
                    fatal = failure.fatal
                    if fatal or self._limits.fail_fast:
                        self._halt.set()
                finally:
                    self._budget.give_back(granted - 1 - reply.retries, most - reply.tokens)
                self._replies.put((reply, fatal))
        except BaseException as error:
            self._replies.put(error)
        finally:
            self._replies.put(None)
