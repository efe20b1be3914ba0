"""Asking: several questions at once, within the budget, and every way in which a round ends."""

import threading
import time

import pytest

from icl_lab.prompted import asking
from icl_lab.prompted.asking import Budget, Console, Failure, Limits, about_tokens, answer, most_tokens
from icl_lab.prompted.question import Cell, Question, Sent
from icl_lab.prompted.record import Record, Reply


def questions(count):
    return [Question(Cell("", (), 10, 2), number, 4, 0, Sent(completion=f"{number}:"), ()) for number in range(count)]


class Told:
    """An engine that answers by ``rule(question)``: text, or a failure that is raised."""

    def __init__(self, rule=lambda asked: "1", parallel=1, retries=0):
        self.rule, self.parallel, self.retries, self.asked, self.granted = rule, parallel, retries, [], []
        self.guard, self.now, self.most = threading.Lock(), 0, 0

    def most_tokens(self, question):
        return 10

    def ask(self, question, retries):
        with self.guard:
            self.asked.append(question.prompt)
            self.granted.append(retries)
            self.now += 1
            self.most = max(self.most, self.now)
        try:
            said = self.rule(question)
            if isinstance(said, Exception):
                raise said
            used = min(retries, self.retries)
            return Reply(key=question.key, sha=question.sha, said=said, model="m", read=3, wrote=1, retries=used)
        finally:
            with self.guard:
                self.now -= 1


@pytest.fixture
def round_of(tmp_path, monkeypatch):
    monkeypatch.setattr(asking, "LOOK", 0.005)
    said = []

    def call(engine, asked, *, requests=1000, tokens=10**9, retries=2, fail_fast=False, expected="", **how):
        with Record.read(tmp_path / "r.jsonl", {"q": 1}) as record:
            limits, console = Limits(requests, tokens, retries, fail_fast), Console(say=said.append, **how)
            return answer(asked, lambda: engine, record, limits, console, expected), record

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
    engine = Told(lambda asked: time.sleep(0.005) or "1", parallel=3)
    round_of(engine, questions(20))
    assert 1 < engine.most <= 3


def test_failures_are_counted_said_once_and_the_others_go_on(round_of):
    outcome, record = round_of(Told(lambda asked: Failure("garbage") if asked.prompt % 2 else "1"), questions(20))
    assert (outcome.answered, outcome.stopped, outcome.failures) == (10, "", {"garbage": 10})
    assert (len(record.answers), record.attempts) == (10, 20)
    assert round_of.said == ["no answer: garbage"]


def test_a_fatal_failure_stops_everything(round_of):
    engine = Told(lambda asked: Failure("wrong key", fatal=True) if asked.prompt == 2 else "1")
    outcome, record = round_of(engine, questions(50))
    assert outcome.stopped == "wrong key"
    assert engine.asked == [0, 1, 2]
    assert len(record.answers) == 2


def test_nothing_but_failures_stops(round_of):
    engine = Told(lambda asked: Failure("garbage"))
    outcome, _ = round_of(engine, questions(50))
    assert outcome.stopped.startswith("none of the first 5 questions was answered")
    assert len(engine.asked) <= 7  # one may be under way
    engine = Told(lambda asked: "1" if asked.prompt == 0 else Failure("garbage"))
    assert not round_of(engine, questions(20))[0].stopped
    assert len(engine.asked) == 20


def test_fail_fast_stops_at_the_first(round_of):
    engine = Told(lambda asked: Failure("garbage") if asked.prompt == 3 else "1")
    outcome, _ = round_of(engine, questions(50), fail_fast=True)
    assert (outcome.stopped, engine.asked) == ("garbage (--fail-fast)", [0, 1, 2, 3])


def test_another_model_is_said_once_and_stops_if_asked_to(round_of):
    _, record = round_of(Told(), questions(5), expected="gpt")
    assert round_of.said == ["the server answers as 'm', asked for was 'gpt'"]
    assert len(record.answers) == 5
    outcome, _ = round_of(Told(), questions(50), expected="gpt", fail_fast=True)
    assert "answers as 'm'" in outcome.stopped


@pytest.mark.parametrize("parallel", [1, 3])
def test_the_budget_of_requests_counts_retries_and_all_calls(round_of, parallel):
    engine = Told(parallel=parallel, retries=1)
    outcome, record = round_of(engine, questions(20), requests=9)
    assert len(engine.asked) == 5  # four of two requests, one of the last
    assert (record.attempts, outcome.retried, outcome.budget) == (9, 4, True)
    assert max(engine.granted) == 2
    engine = Told()
    round_of(engine, questions(20), requests=9)
    assert engine.asked == []  # all of it was spent before
    round_of(engine, questions(20), requests=11)
    assert len(engine.asked) == 2


def test_the_budget_of_tokens_is_never_passed(round_of):
    outcome, record = round_of(Told(parallel=4), questions(100), tokens=101)
    assert outcome.budget
    assert 101 - 4 * 10 - 4 <= record.tokens <= 101  # and most of it was used


def test_many_threads_take_no_more_than_there_is():
    budget, taken = Budget(requests=50, tokens=10**9), []

    def work():
        while granted := budget.take(3, 1):
            budget.give_back(granted - 1, 0)
            taken.append(1)

    threads = [threading.Thread(target=work, daemon=True) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert (sum(taken), budget.requests) == (50, 0)


def test_attempts_that_may_come_back_are_waited_for():
    budget, taken = Budget(requests=2, tokens=100), []
    assert budget.take(2, 1) == 2
    thread = threading.Thread(target=lambda: taken.append(budget.take(2, 1)), daemon=True)
    thread.start()
    thread.join(0.1)
    assert taken == []
    budget.give_back(1, 0)
    thread.join(30)
    assert taken == [1]


def test_a_stop_keeps_what_is_answered(round_of):
    engine, stop = Told(), []
    tick = lambda stage, done, total, note: stop.append(done) if done >= 3 else None  # noqa: E731
    outcome, record = round_of(engine, questions(200), tick=tick, stopping=lambda: bool(stop))
    assert outcome.interrupted
    assert 3 <= len(record.answers) == len(engine.asked) < 200
    round_of(engine, questions(200))
    assert sorted(engine.asked) == list(range(200))


def test_a_second_stop_acts_at_once_and_keeps_what_came(round_of, tmp_path):
    never, engine = threading.Event(), Told(parallel=4)
    engine.rule = lambda asked: "1" if asked.prompt < 5 else str(never.wait(60))

    def tick(stage, done, total, note):
        while len(engine.asked) < 8:  # four answers wait to be written, and four questions are under way
            time.sleep(0.01)
        time.sleep(0.05)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        round_of(engine, questions(20), tick=tick)
    assert not never.is_set()  # what is under way is not waited for
    assert engine.now > 0
    never.set()
    assert len(Record.read(tmp_path / "r.jsonl", {"q": 1}).answers) == 5


def test_a_fault_of_the_engine_is_not_swallowed(round_of):
    with pytest.raises(ZeroDivisionError):
        round_of(Told(lambda asked: ZeroDivisionError()), questions(3))


@pytest.mark.parametrize("text", ["0.52, -1.33", "True", "Zahlen ☃ folgen", ""])
def test_the_bound_of_a_request_is_above_any_tokenizer(text):
    asked = Question(Cell("", (), 5, 2), 0, 1, 0, Sent(messages=(("user", text),)), ())
    assert most_tokens(asked, 16) >= len(text.encode()) + 16


def test_an_estimate_counts_signs_digits_and_words():
    assert about_tokens("-0.51") == 4
    assert about_tokens("True") == 1
    assert about_tokens("x", messages=2) == 9
