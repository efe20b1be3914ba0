"""Asking: questions put to a server, several at once, within a budget of requests and tokens.

Every answer is on the disk before its worker asks again, so that a stop loses at most the requests under way.
"""

import asyncio
import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from icl_lab.progress import Tick, silent
from icl_lab.prompted.question import PromptQuestion
from icl_lab.prompted.record import Record, Reply

if TYPE_CHECKING:
    from icl_lab.prompted.endpoint import Endpoint

GIVE_UP = 5  # questions in a row without any answer: it is not the question
POLL = 0.1  # seconds between two looks at the stop flag
GRACE = 2.0  # seconds that requests under way have left after a stop: their answers are paid for
STOPPED = "stopped"


class Failure(Exception):
    """No answer to a question, with the reason in one line.

    ``fatal``: no question can be answered, the round stops. ``retries`` counts requests beyond the first.
    """

    def __init__(self, reason: str, *, fatal: bool = False, retries: int = 0) -> None:
        super().__init__(" ".join(reason.split()))
        self.fatal, self.retries = fatal, retries


@dataclass
class Round:
    """One round of questions to a server, whose answers go into a record.

    ``requests`` and ``tokens`` are what is left of the budget; ``retries`` those of each request; ``fail_fast`` stops
    at the first question without an answer. ``say`` shows a line, ``tick`` the progress (stage, done, total, note),
    ``stopping`` tells whether to stop. After it, ``stopped`` says why it ended early; empty: it did not.
    """

    record: Record
    requests: int
    tokens: int
    retries: int = 4
    fail_fast: bool = False
    say: Callable[[str], object] = lambda line: None
    tick: Tick = silent
    stopping: Callable[[], bool] = lambda: False
    stopped: str = ""
    answered: int = 0
    retried: int = 0
    failures: Counter[str] = field(default_factory=Counter)
    _left: deque[PromptQuestion] = field(default_factory=deque)

    async def ask(self, endpoint: "Endpoint", questions: Sequence[PromptQuestion]) -> None:
        """Asks the questions and adds every reply to the record."""
        self._left = deque(questions)
        workers = {asyncio.create_task(self._work(endpoint)) for _ in range(min(endpoint.parallel, len(questions)))}
        until = float("inf")
        try:
            while workers and time.monotonic() < until:
                done, workers = await asyncio.wait(workers, timeout=POLL, return_when=asyncio.FIRST_COMPLETED)
                for worker in done:
                    worker.result()  # raises an error that is no failure of the server
                if self.stopping():
                    self.stopped = self.stopped or STOPPED
                if self.stopped:
                    until = min(until, time.monotonic() + GRACE)
        finally:
            for worker in workers:
                worker.cancel()
            await asyncio.gather(*workers, return_exceptions=True)
            await endpoint.close()
        if self._left:
            self.stopped = self.stopped or "the budget is spent"

    async def _work(self, endpoint: "Endpoint") -> None:
        """Asks until no question is left, the budget does not reach for another one, or the round stops."""
        while self._left and not self.stopped:
            # A question sets aside all its attempts and the most tokens that it can take, and gives back what it did
            # not use: the bounds hold however many are under way, and the last worker uses what others gave back.
            attempts, tokens = min(1 + self.retries, self.requests), endpoint.most_tokens(self._left[0])
            if attempts < 1 or tokens > self.tokens:
                return
            question = self._left.popleft()
            self.requests, self.tokens = self.requests - attempts, self.tokens - tokens
            try:
                reply = await endpoint.ask(question, attempts - 1)
            except Failure as failure:
                # The tokens of a failed request are not known; servers bill answers.
                reply = Reply(key=question.key, sha=question.sha, failed=str(failure), retries=failure.retries)
                if failure.fatal:
                    self.stopped = self.stopped or reply.failed
            except asyncio.CancelledError:  # it was sent, and counts in the budget
                self.record.add(Reply(key=question.key, sha=question.sha, failed="no answer before the stop"))
                raise
            self.record.add(reply)
            self.requests += attempts - 1 - reply.retries
            self.tokens += tokens - reply.read - reply.wrote
            self._count(reply, endpoint.model)

    def _count(self, reply: Reply, model: str) -> None:
        """Counts a reply, says once what is odd about it, and stops the round where no other would fare better."""
        self.retried += reply.retries
        if not reply.failed:
            first = not self.answered
            self.answered += 1
            if first and reply.model and reply.model != model:
                self.say(f"the server answers as '{reply.model}', asked for was '{model}'")
        else:
            self.failures[reply.failed] += 1
            if self.failures[reply.failed] == 1:
                self.say(f"no answer: {reply.failed}")
            failed = self.failures.total()
            if self.fail_fast:
                self.stopped = self.stopped or f"{reply.failed} (--fail-fast)"
            elif failed >= GIVE_UP and not self.answered:
                self.stopped = self.stopped or f"none of the first {failed} questions was answered: {reply.failed}"
        done = self.answered + self.failures.total()
        self.tick("asking", done, done + len(self._left), "")


def answer(questions: Sequence[PromptQuestion], connect: Callable[[], "Endpoint"], made: Round) -> None:
    """Asks the questions that have no answer in the record yet.

    ``connect`` is called only where an answer is missing: an answered study needs neither a server nor a key.
    """
    missing = [question for question in questions if made.record.answer(question) is None]
    if len(missing) > made.requests:
        left = max(0, made.requests)
        made.say(f"{len(missing):,} questions have no answer yet; --max-requests leaves {left:,} requests.")
    if missing:
        asyncio.run(made.ask(connect(), missing))
