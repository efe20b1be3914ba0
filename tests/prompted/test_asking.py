"""Who is asked how often: several at once, again where that may help, never beyond the budget."""

import threading
import time

import pytest

from icl_lab.prompted import asking
from icl_lab.prompted.asking import Asking
from icl_lab.prompted.budget import Budget
from icl_lab.prompted.engine import Failure
from icl_lab.prompted.formats import Sent
from icl_lab.prompted.question import Cell, Question
from icl_lab.prompted.record import Record, Reply


def questions(count):
    return [Question(Cell("", (), 10, 2), number, 4, 0, Sent(completion=f"{number}:"), ()) for number in range(count)]


class Told:
    """An engine that answers by ``rule(question, attempt)``: text, or a failure that is raised."""

    def __init__(self, rule=lambda asked, attempt: "1", parallel=1):
        self.rule, self.parallel, self.asked, self.guard = rule, parallel, [], threading.Lock()
        self.now = self.most = 0

    def most_tokens(self, question):
        return 10

    def ask(self, question):
        with self.guard:
            attempt = sum(each == question.prompt for each in self.asked)
            self.asked.append(question.prompt)
            self.now += 1
            self.most = max(self.most, self.now)
        try:
            said = self.rule(question, attempt)
            if isinstance(said, Exception):
                raise said
            return Reply(key=question.key, sha=question.sha, said=said, model="m", read=3, wrote=1)
        finally:
            with self.guard:
                self.now -= 1


@pytest.fixture
def round_of(tmp_path, monkeypatch):
    monkeypatch.setattr(asking, "FIRST", 0.001)
    monkeypatch.setattr(asking, "LOOK", 0.005)
    said = []

    def call(engine, asked, *, requests=1000, tokens=10**9, retries=2, fail_fast=False, expected="", **how):
        with Record.read(tmp_path / "r.jsonl", {"q": 1}) as record:
            open_ones = [each for each in asked if record.answer(each) is None]
            budget = Budget(requests, tokens, record.attempts, record.tokens)
            outcome = Asking(engine, record, budget, retries, fail_fast, said.append)(
                open_ones, expected=expected, **how
            )
            return outcome, record

    call.said = said
    return call


def test_every_question_is_asked_once(round_of):
    engine = Told(parallel=4)
    outcome, record = round_of(engine, questions(30))
    assert sorted(engine.asked) == list(range(30))
    assert len(record.answers) == outcome.answered == 30
    assert not outcome.stopped
    engine = Told()
    round_of(engine, questions(31))
    assert engine.asked == [30]  # what is answered is not asked again


def test_no_more_at_once_than_the_engine_allows(round_of):
    engine = Told(lambda asked, attempt: time.sleep(0.005) or "1", parallel=3)
    round_of(engine, questions(20))
    assert 1 < engine.most <= 3


def test_a_passing_failure_is_tried_again_and_told_once(round_of):
    engine = Told(lambda asked, attempt: Failure("busy", again=True) if attempt < 2 else "1")
    outcome, record = round_of(engine, questions(3))
    assert engine.asked == [0, 0, 0, 1, 1, 1, 2, 2, 2]
    assert len(record.answers) == 3
    assert record.attempts == 9
    assert outcome.failures == {"busy": 6}
    assert round_of.said == ["no answer: busy; asking again"]


def test_a_question_is_given_up_after_its_retries_and_the_others_go_on(round_of):
    engine = Told(lambda asked, attempt: Failure("busy", again=True) if asked.prompt == 1 else "1")
    outcome, record = round_of(engine, questions(4), retries=2)
    assert engine.asked.count(1) == 3
    assert set(record.failures) == {questions(4)[1].key}
    assert (outcome.answered, outcome.stopped) == (3, "")


def test_what_cannot_get_better_is_tried_once(round_of):
    engine = Told(lambda asked, attempt: Failure("garbage") if asked.prompt % 2 else "1")
    outcome, record = round_of(engine, questions(6))
    assert sorted(engine.asked) == list(range(6))
    assert len(record.failures) == 3


def test_a_fatal_failure_stops_everything(round_of):
    engine = Told(lambda asked, attempt: Failure("wrong key", fatal=True) if asked.prompt == 2 else "1")
    outcome, record = round_of(engine, questions(50))
    assert outcome.stopped == "wrong key"
    assert engine.asked == [0, 1, 2]
    assert len(record.answers) == 2


def test_nothing_but_failures_stops(round_of):
    engine = Told(lambda asked, attempt: Failure("garbage"))
    outcome, _ = round_of(engine, questions(50))
    assert outcome.stopped.startswith("none of the first 5 questions was answered")
    assert len(engine.asked) <= 7  # one may be under way


def test_failures_between_answers_do_not_stop(round_of):
    engine = Told(lambda asked, attempt: "1" if asked.prompt == 0 else Failure("garbage"))
    outcome, _ = round_of(engine, questions(20))
    assert not outcome.stopped
    assert len(engine.asked) == 20


def test_fail_fast_stops_at_the_first(round_of):
    engine = Told(lambda asked, attempt: Failure("garbage") if asked.prompt == 3 else "1")
    outcome, _ = round_of(engine, questions(50), fail_fast=True)
    assert outcome.stopped == "garbage (--fail-fast)"
    assert len(engine.asked) <= 6


def test_another_model_is_told_once_counted_and_stops_if_asked_to(round_of):
    outcome, record = round_of(Told(), questions(5), expected="gpt")
    assert round_of.said == ["the server answers as 'm', asked for was 'gpt'"]
    assert len(record.answers) == 5
    outcome, _ = round_of(Told(), questions(50), expected="gpt", fail_fast=True)
    assert "answers as 'm'" in outcome.stopped


def test_the_budget_of_requests_counts_retries_and_all_calls(round_of):
    engine = Told(lambda asked, attempt: Failure("busy", again=True) if attempt < 1 else "1", parallel=3)
    outcome, record = round_of(engine, questions(20), requests=9)
    assert len(engine.asked) == 9
    assert outcome.budget
    engine = Told()
    outcome, record = round_of(engine, questions(20), requests=9)
    assert engine.asked == []  # all of it was spent before
    round_of(engine, questions(20), requests=11)
    assert len(engine.asked) == 2


def test_the_budget_of_tokens_is_never_passed(round_of):
    outcome, record = round_of(Told(parallel=4), questions(100), tokens=101)
    assert outcome.budget
    assert record.tokens <= 101
    assert record.tokens >= 101 - 4 * 10 - 4  # and most of it was used


def test_a_server_that_asks_for_time_is_left_alone_by_all(round_of):
    times, begun = [], time.monotonic()

    def rule(asked, attempt):
        times.append(time.monotonic() - begun)
        return Failure("slowly", again=True, wait=0.15) if len(times) == 1 else "1"

    outcome, record = round_of(Told(rule, parallel=1), questions(4))
    assert len(record.answers) == 4
    assert times[1] - times[0] >= 0.15


def test_a_server_that_asks_for_hours_stops_the_run(round_of):
    outcome, _ = round_of(Told(lambda *_: Failure("slowly", again=True, wait=3600)), questions(4))
    assert "left alone for 3,600 s" in outcome.stopped


def test_a_stop_keeps_what_is_answered(round_of):
    engine, stop = Told(parallel=1), []

    def tick(done, total):
        stop.append(done) if done >= 3 else None

    outcome, record = round_of(engine, questions(200), tick=tick, stopping=lambda: bool(stop))
    assert outcome.interrupted
    assert 3 <= len(record.answers) == len(engine.asked) < 200
    round_of(engine, questions(200))
    assert sorted(engine.asked) == list(range(200))


def test_a_stop_ends_a_wait(round_of):
    begun = time.monotonic()
    outcome, _ = round_of(Told(lambda *_: Failure("slowly", again=True, wait=200)), questions(2), stopping=lambda: True)
    assert outcome.interrupted
    assert time.monotonic() - begun < 100


def test_a_second_stop_acts_at_once_and_keeps_what_came(round_of, tmp_path):
    never, engine = threading.Event(), Told(parallel=4)
    engine.rule = lambda asked, attempt: "1" if asked.prompt < 5 else str(never.wait(60))

    def tick(done, total):
        while len(engine.asked) < 8:  # four answers wait to be written, and four questions are under way
            time.sleep(0.01)
        time.sleep(0.05)
        raise KeyboardInterrupt

    begun = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        round_of(engine, questions(20), tick=tick)
    assert time.monotonic() - begun < 30  # what is under way is not waited for
    never.set()
    assert len(Record.read(tmp_path / "r.jsonl", {"q": 1}).answers) == 5


def test_a_fault_of_the_engine_is_not_swallowed(round_of):
    with pytest.raises(ZeroDivisionError):
        round_of(Told(lambda *_: ZeroDivisionError()), questions(3))
