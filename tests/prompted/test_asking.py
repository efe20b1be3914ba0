"""Asking: several questions at once, within the budget, and every way in which a round ends."""

import asyncio
import json

import pytest

from icl_lab.prompted import asking
from icl_lab.prompted.asking import Failure, Round, answer
from icl_lab.prompted.question import PromptQuestion, about_tokens
from icl_lab.prompted.record import Record, Reply


def questions(count):
    return [PromptQuestion(str(number), number, 4, {"prompt": f"{number}:"}) for number in range(count)]


class Scripted:
    """A server that answers by ``script(question)``: text, a failure that is raised, or seconds to wait."""

    def __init__(self, script=lambda asked: "1", parallel=1, retries=0):
        self.script, self.parallel, self.retries, self.asked, self.granted = script, parallel, retries, [], []
        self.now, self.most, self.closed, self.model = 0, 0, False, "m"

    def most_tokens(self, question):
        return 10

    async def ask(self, question, retries):
        self.asked.append(question.prompt)
        self.granted.append(retries)
        self.now += 1
        self.most = max(self.most, self.now)
        try:
            await asyncio.sleep(0)
            said = self.script(question)
            if isinstance(said, Exception):
                raise said
            if isinstance(said, float):
                await asyncio.sleep(said)
                said = "1"
            used = min(retries, self.retries)
            return Reply(key=question.key, sha=question.sha, said=said, model="m", read=3, wrote=1, retries=used)
        finally:
            self.now -= 1

    async def close(self):
        self.closed = True


@pytest.fixture
def round_of(tmp_path, monkeypatch):
    monkeypatch.setattr(asking, "POLL", 0.005)
    said = []

    def call(engine, asked, *, requests=1000, tokens=10**9, retries=2, **how):
        with Record(tmp_path / "r.jsonl", {"q": 1}).held() as record:
            left = requests - record.attempts, tokens - record.tokens
            made = Round(record, *left, retries, say=said.append, **how)
            answer(asked, lambda: engine, made)
            return made, record

    call.said = said
    return call


def test_every_question_is_asked_once(round_of):
    engine = Scripted(parallel=4)
    outcome, record = round_of(engine, questions(30))
    assert sorted(engine.asked) == list(range(30))
    assert len(record.answers) == outcome.answered == 30
    assert not outcome.stopped
    engine = Scripted()
    round_of(engine, questions(31))
    assert engine.asked == [30]  # what is answered is not asked again


def test_no_more_at_once_than_the_engine_allows(round_of):
    engine = Scripted(lambda asked: 0.005, parallel=3)
    round_of(engine, questions(20))
    assert 1 < engine.most <= 3


def test_failures_are_counted_said_once_and_the_others_go_on(round_of):
    outcome, record = round_of(Scripted(lambda asked: Failure("garbage") if asked.prompt % 2 else "1"), questions(20))
    assert (outcome.answered, outcome.stopped, outcome.failures) == (10, "", {"garbage": 10})
    assert (len(record.answers), record.attempts) == (10, 20)
    assert round_of.said == ["no answer: garbage"]


def test_a_fatal_failure_stops_everything(round_of):
    engine = Scripted(lambda asked: Failure("wrong key", fatal=True) if asked.prompt == 2 else "1")
    outcome, record = round_of(engine, questions(50))
    assert outcome.stopped == "wrong key"
    assert engine.asked == [0, 1, 2]
    assert len(record.answers) == 2


def test_nothing_but_failures_stops(round_of):
    engine = Scripted(lambda asked: Failure("garbage"))
    outcome, _ = round_of(engine, questions(50))
    assert outcome.stopped.startswith("none of the first 5 questions was answered")
    assert len(engine.asked) <= 7  # one may be under way
    engine = Scripted(lambda asked: "1" if asked.prompt == 0 else Failure("garbage"))
    assert not round_of(engine, questions(20))[0].stopped
    assert len(engine.asked) == 20


def test_fail_fast_stops_at_the_first(round_of):
    engine = Scripted(lambda asked: Failure("garbage") if asked.prompt == 3 else "1")
    outcome, _ = round_of(engine, questions(50), fail_fast=True)
    assert (outcome.stopped, engine.asked) == ("garbage (--fail-fast)", [0, 1, 2, 3])


def test_another_model_is_said_once(round_of):
    engine = Scripted()
    engine.model = "gpt"
    _, record = round_of(engine, questions(5))
    assert round_of.said == ["the server answers as 'm', asked for was 'gpt'"]
    assert len(record.answers) == 5


@pytest.mark.parametrize("parallel", [1, 3])
def test_the_budget_of_requests_counts_retries_and_all_calls(round_of, parallel):
    engine = Scripted(parallel=parallel, retries=1)
    outcome, record = round_of(engine, questions(20), requests=9)
    assert outcome.answered + outcome.retried == record.attempts == 9
    assert (outcome.stopped, len(engine.asked)) == ("the budget is spent", outcome.answered)
    assert max(engine.granted) == 2
    engine = Scripted()
    round_of(engine, questions(20), requests=9)
    assert engine.asked == []  # all of it was spent before
    round_of(engine, questions(20), requests=11)
    assert len(engine.asked) == 2


def test_the_budget_of_tokens_is_never_passed(round_of):
    outcome, record = round_of(Scripted(parallel=4), questions(100), tokens=101)
    assert outcome.stopped == "the budget is spent"
    assert 101 - 4 * 10 - 4 <= record.tokens <= 101  # and most of it was used


@pytest.mark.slow
def test_a_stop_keeps_what_is_answered(round_of):
    engine, stop = Scripted(), []
    tick = lambda stage, done, total, note: stop.append(done) if done >= 3 else None  # noqa: E731
    outcome, record = round_of(engine, questions(200), tick=tick, stopping=lambda: bool(stop))
    assert outcome.stopped == asking.STOPPED
    assert 3 <= len(record.answers) == len(engine.asked) < 200
    round_of(engine, questions(200))
    assert sorted(engine.asked) == list(range(200))


def recorded(tmp_path):
    return [json.loads(line) for line in (tmp_path / "r.jsonl").read_text().splitlines()[1:]]


def test_a_second_stop_acts_at_once_and_keeps_what_came(round_of, tmp_path):
    engine = Scripted(lambda asked: "1" if asked.prompt < 5 else 30.0, parallel=4)

    def tick(stage, done, total, note):
        if done == 5:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        round_of(engine, questions(20), tick=tick)
    assert (engine.now, engine.closed) == (0, True)
    assert len(Record(tmp_path / "r.jsonl", {"q": 1}).answers) == 5


def test_a_stop_does_not_wait_for_a_server_that_never_answers(round_of, tmp_path, monkeypatch):
    monkeypatch.setattr(asking, "GRACE", 0.05)
    engine = Scripted(lambda asked: "1" if asked.prompt < 5 else 30.0, parallel=4)
    outcome, record = round_of(engine, questions(20), stopping=lambda: len(engine.asked) == 9)
    assert outcome.stopped == asking.STOPPED
    assert (len(record.answers), engine.now, engine.closed) == (5, 0, True)
    # What was sent counts in the budget, though its answer never came.
    assert [line["failed"] for line in recorded(tmp_path)[5:]] == ["no answer before the stop"] * 4
    assert record.attempts == Record(tmp_path / "r.jsonl", {"q": 1}).attempts == 9


def test_a_stop_leaves_requests_under_way_a_moment(round_of):
    engine = Scripted(lambda asked: 0.05, parallel=4)
    outcome, record = round_of(engine, questions(20), stopping=lambda: len(engine.asked) == 4)
    assert outcome.stopped == asking.STOPPED
    assert len(record.answers) == len(engine.asked) == 4


def test_a_fault_of_the_engine_is_not_swallowed(round_of):
    with pytest.raises(ZeroDivisionError):
        round_of(Scripted(lambda asked: ZeroDivisionError()), questions(3))


@pytest.mark.parametrize("text", ["0.52, -1.33", "True", "Zahlen ☃ folgen", ""])
def test_the_bound_of_a_request_is_above_any_tokenizer(text):
    question = PromptQuestion("", 0, 4, {"messages": [{"role": "user", "content": text}]})
    assert question.most_tokens >= len(text.encode())


def test_an_estimate_counts_signs_digits_and_words():
    assert about_tokens("-0.51") == 4
    assert about_tokens("True") == 1
    question = PromptQuestion("", 0, 4, {"messages": [{"role": "user", "content": "x"}]})
    assert question.about_tokens == about_tokens("[user]\nx") + 4
