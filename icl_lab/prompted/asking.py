"""Asking: questions put to an engine, several at once, within a budget of requests and tokens.

Every answer is on the disk before its worker asks again, so that a stop loses at most the requests under way.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from icl_lab.errors import RunFailed, Stopped
from icl_lab.prompted.question import PromptQuestion
from icl_lab.prompted.record import Record, Reply

GIVE_UP = 5  # questions in a row without any answer: it is not the question
POLL = 0.1  # seconds between two looks at the stop flag
GRACE = 2.0  # seconds that requests under way have left after a stop: their answers are paid for


class Failure(Exception):
    """No answer to a question, with the reason in one line.

    ``fatal``: no question can be answered, the round stops. ``retries`` counts requests beyond the first.
    """

    def __init__(self, reason: str, *, fatal: bool = False, retries: int = 0) -> None:
        super().__init__(" ".join(reason.split()))
        self.fatal, self.retries = fatal, retries


class Engine(Protocol):
    """A server or a model on disk; ``parallel`` is the number of questions that it takes at once."""

    parallel: int

    def most_tokens(self, question: PromptQuestion) -> int:
        """Returns an upper bound of the tokens of the question and its answer."""

    async def ask(self, question: PromptQuestion, retries: int) -> Reply:
        """Answers a question, with so many more requests where one fails; raises ``Failure``."""

    async def close(self) -> None:
        """Closes connections."""


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
    """Requests and tokens that are left.

    A question reserves all its attempts and the most tokens that it can take, and releases what it did not use: however
    many are under way, the bounds are not passed.
    """

    requests: int
    tokens: int
    _open: int = 0
    _changed: asyncio.Condition = field(default_factory=asyncio.Condition, repr=False)

    async def reserve(self, attempts: int, tokens: int) -> int:
        """Reserves tokens and up to so many attempts; returns how many attempts, 0 where the budget is spent."""
        async with self._changed:
            # Questions under way may still release attempts.
            await self._changed.wait_for(lambda: self.requests > 0 or not self._open)
            granted = min(attempts, self.requests)
            if granted <= 0 or tokens > self.tokens:
                return 0
            self.requests, self.tokens, self._open = self.requests - granted, self.tokens - tokens, self._open + 1
            return granted

    async def release(self, attempts: int, tokens: int) -> None:
        """Returns the unused part of one reservation."""
        async with self._changed:
            self.requests, self.tokens, self._open = self.requests + attempts, self.tokens + tokens, self._open - 1
            self._changed.notify_all()


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
    questions: Sequence[PromptQuestion],
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
    return asyncio.run(Round(engine(), record, limits, console, expected).ask(missing))


class Round:
    """One round of questions: workers that share an engine, a record and a budget."""

    def __init__(self, engine: Engine, record: Record, limits: Limits, console: Console, expected: str = "") -> None:
        self._engine, self._record, self._limits = engine, record, limits
        self._console, self._expected = console, expected
        self._budget = Budget(limits.requests - record.attempts, limits.tokens - record.tokens)
        self._outcome, self._halted, self._spent, self._said = Outcome(), False, False, set[str]()
        self._done, self._total, self._failed_in_a_row = 0, 0, 0

    async def ask(self, questions: Sequence[PromptQuestion]) -> Outcome:
        """Asks the questions and adds every reply to the record; returns how it ended."""
        shared, outcome, self._total = iter(questions), self._outcome, len(questions)
        workers = {asyncio.create_task(self._work(shared)) for _ in range(min(self._engine.parallel, len(questions)))}
        until = float("inf")
        try:
            while workers and time.monotonic() < until:
                done, workers = await asyncio.wait(workers, timeout=POLL, return_when=asyncio.FIRST_COMPLETED)
                for worker in done:
                    worker.result()  # raises a fault of the engine
                if self._console.stopping() and not outcome.stopped:
                    self._stop("stopped")
                    outcome.interrupted = True
                if outcome.stopped:
                    until = min(until, time.monotonic() + GRACE)
        finally:
            for worker in workers:
                worker.cancel()
            await asyncio.gather(*workers, return_exceptions=True)
            await self._engine.close()
        if self._spent and not outcome.stopped:
            outcome.stopped, outcome.budget = "the budget is spent", True
        return outcome

    async def _work(self, questions: Iterator[PromptQuestion]) -> None:
        """Asks until no question or budget is left, or the round stops."""
        for question in questions:
            await asyncio.sleep(0)  # a model on disk never waits: the stop flag is looked at here
            most = self._engine.most_tokens(question)
            granted = 0 if self._halted else await self._budget.reserve(1 + self._limits.retries, most)
            if self._halted:
                return
            if not granted:
                self._spent = self._halted = True
                return
            fatal = False
            try:
                reply = await self._engine.ask(question, granted - 1)
            except Failure as failure:
                # The tokens of a failed request are not known; servers bill answers.
                reply = Reply(key=question.key, sha=question.sha, failed=str(failure), retries=failure.retries)
                fatal = failure.fatal
            except asyncio.CancelledError:  # it was sent, and counts in the budget
                self._record.add(Reply(key=question.key, sha=question.sha, failed="no answer before the stop"))
                raise
            self._record.add(reply)
            await self._budget.release(granted - 1 - reply.retries, most - reply.tokens)
            self._count(reply, fatal)

    def _count(self, reply: Reply, fatal: bool) -> None:
        """Counts a reply, says once what is odd about it, and stops the round where no other would fare better."""
        outcome, failed = self._outcome, reply.failed
        outcome.retried += reply.retries
        if failed:
            outcome.failures[failed] += 1
            self._failed_in_a_row += 1
            self._say_once(f"no answer: {failed}")
        else:
            outcome.answered += 1
        self._done += 1
        self._console.tick("asking", self._done, self._total, "")
        if fatal:
            self._stop(failed)
        elif failed and self._limits.fail_fast:
            self._stop(f"{failed} (--fail-fast)")
        elif self._failed_in_a_row >= GIVE_UP and not outcome.answered:
            self._stop(f"none of the first {self._failed_in_a_row} questions was answered: {failed}")
        elif not failed and self._expected and reply.model and reply.model != self._expected:
            self._say_once(f"the server answers as '{reply.model}', asked for was '{self._expected}'")
            if self._limits.fail_fast:
                self._stop(f"the server answers as '{reply.model}' (--fail-fast)")

    def _stop(self, why: str) -> None:
        self._outcome.stopped = self._outcome.stopped or why
        self._halted = True

    def _say_once(self, line: str) -> None:
        if line not in self._said:
            self._said.add(line)
            self._console.say(line)
