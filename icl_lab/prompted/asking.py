"""Puts questions to an engine, several at once, again where that may help, and within the budget.

Threads ask and the caller's thread writes: every answer is on the disk before the next is looked at, so that a stop
loses at most what is under way.
"""

import queue
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from icl_lab.prompted.budget import Budget
from icl_lab.prompted.engine import Engine, Failure
from icl_lab.prompted.question import Question
from icl_lab.prompted.record import Record, Reply

FIRST, MOST = 0.5, 60.0  # seconds before the second attempt, and at most before a later one
LONGEST = 300.0  # seconds that a server may ask for; beyond, the run stops
GIVE_UP = 5  # questions in a row without any answer: it is not the question
LOOK = 0.1  # seconds between two looks at whether to stop

Say = Callable[[str], object]


@dataclass
class Outcome:
    """How a round of asking ended: why it stopped early (empty: it did not), and what went wrong how often."""

    stopped: str = ""
    interrupted: bool = False
    budget: bool = False
    answered: int = 0
    failures: Counter[str] = field(default_factory=Counter)


@dataclass
class _Gate:
    """Holds all threads back while the server asks to be left alone."""

    until: float = 0.0
    guard: threading.Lock = field(default_factory=threading.Lock)

    def close(self, seconds: float) -> None:
        with self.guard:
            self.until = max(self.until, time.monotonic() + seconds)

    def left(self) -> float:
        with self.guard:
            return self.until - time.monotonic()


@dataclass
class _Tried:
    """What a thread tells: an attempt at a question, whether it is the last, and the tokens that were set aside."""

    question: Question
    reply: Reply
    final: bool
    fatal: bool = False


class Asking:
    """One round: questions, an engine, and the threads between them."""

    def __init__(self, engine: Engine, record: Record, budget: Budget, retries: int, fail_fast: bool, say: Say) -> None:
        self._engine, self._record, self._budget = engine, record, budget
        self._retries, self._fail_fast, self._say = retries, fail_fast, say
        self._open: queue.Queue[Question] = queue.Queue()
        # Bounded: nobody asks on while answers wait to be written.
        self._told: queue.Queue[_Tried | BaseException | None] = queue.Queue(maxsize=engine.parallel)
        self._halt, self._gate, self._outcome = threading.Event(), _Gate(), Outcome()
        self._said = set[str]()
        self._spent = False

    def __call__(
        self,
        questions: Sequence[Question],
        tick: Callable[[int, int], object] = lambda done, total: None,
        stopping: Callable[[], bool] = lambda: False,
        expected: str = "",
    ) -> Outcome:
        """Asks questions and adds every attempt to the record; returns how it ended.

        ``expected`` is the name that the model should answer by; another one is told and counted.
        """
        for question in questions:
            self._open.put(question)
        threads = [
            threading.Thread(target=self._work, daemon=True) for _ in range(min(self._engine.parallel, len(questions)))
        ]
        for thread in threads:
            thread.start()
        done, row, working, total = 0, 0, len(threads), len(questions)
        try:
            while working:
                if stopping() and not self._outcome.stopped:
                    self._stop("stopped", interrupted=True)
                try:
                    told = self._told.get(timeout=LOOK)
                except queue.Empty:
                    continue
                if told is None:
                    working -= 1
                elif isinstance(told, BaseException):
                    raise told
                else:
                    self._keep(told, expected)
                    row = 0 if not told.reply.failed else row + told.final
                    done += told.final
                    tick(done, total)
                    if told.reply.failed and told.final:
                        self._judge(told, row)
        finally:
            self._halt.set()
            self._drain(expected)
        if self._spent and not self._outcome.stopped:
            self._outcome.stopped, self._outcome.budget = "the budget is spent", True
        return self._outcome

    def _keep(self, told: _Tried, expected: str) -> None:
        """Writes an attempt down, and says once what is odd about it."""
        self._record.add(told.reply)
        if told.reply.failed:
            self._outcome.failures[told.reply.failed] += 1
            self._once(f"no answer: {told.reply.failed}{'' if told.final else '; asking again'}")
            return
        self._outcome.answered += 1
        if expected and told.reply.model and told.reply.model != expected:
            self._once(f"the server answers as '{told.reply.model}', asked for was '{expected}'")
            if self._fail_fast:
                self._stop(f"the server answers as '{told.reply.model}' (--fail-fast)")

    def _judge(self, told: _Tried, row: int) -> None:
        """Stops where the last failure says that others would follow."""
        if told.fatal:
            self._stop(told.reply.failed)
        elif self._fail_fast:
            self._stop(f"{told.reply.failed} (--fail-fast)")
        elif row >= GIVE_UP and not self._outcome.answered:
            self._stop(f"none of the first {row} questions was answered: {told.reply.failed}")

    def _stop(self, why: str, interrupted: bool = False) -> None:
        if not self._outcome.stopped:
            self._outcome.stopped, self._outcome.interrupted = why, interrupted
        self._halt.set()

    def _once(self, line: str) -> None:
        if line not in self._said:
            self._said.add(line)
            self._say(line)

    def _drain(self, expected: str) -> None:
        """Keeps what came in while the round was ending."""
        while True:
            try:
                told = self._told.get_nowait()
            except queue.Empty:
                return
            if isinstance(told, _Tried):
                self._keep(told, expected)

    # What the threads do.

    def _work(self) -> None:
        try:
            while not self._halt.is_set():
                try:
                    question = self._open.get_nowait()
                except queue.Empty:
                    break
                self._answer(question)
        except BaseException as error:
            self._told.put(error)
        finally:
            self._told.put(None)

    def _answer(self, question: Question) -> None:
        """Tries until there is an answer, no attempt is left, or the round ends."""
        for attempt in range(self._retries + 1):
            while (left := self._gate.left()) > 0:
                if self._halt.wait(min(left, LOOK)):
                    return
            held = self._engine.most_tokens(question)
            if self._halt.is_set():
                return
            if not self._budget.take(held):
                self._spent = True
                self._halt.set()
                return
            try:
                reply = self._engine.ask(question)
            except Failure as failure:
                # What a failed request took is not known; servers bill answers.
                self._budget.settle(held, 0)
                if not self._again(question, failure, attempt):
                    return
                continue
            self._budget.settle(held, reply.tokens)
            self._told.put(_Tried(question, reply, final=True))
            return

    def _again(self, question: Question, failure: Failure, attempt: int) -> bool:
        """Tells of a failure and waits for another attempt; returns whether there is to be one."""
        reason, fatal = str(failure), failure.fatal
        if failure.wait is not None and failure.wait > LONGEST:
            reason, fatal = f"{reason}; it asks to be left alone for {failure.wait:,.0f} s", True
        final = fatal or not failure.again or attempt == self._retries
        if final and (fatal or self._fail_fast):
            self._halt.set()
        reply = Reply(key=question.key, sha=question.sha, failed=reason)
        self._told.put(_Tried(question, reply, final, fatal))
        if final:
            return False
        if failure.wait is not None:
            self._gate.close(failure.wait)
            return True
        pause = min(MOST, FIRST * 2**attempt) * (1 + random.random() / 2)  # threads that failed together part again
        return not self._halt.wait(pause)
