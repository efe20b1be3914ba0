"""Where many runs stand: rows on a terminal, few lines in a log."""

import re
import sys
from types import SimpleNamespace

import pytest

from icl_lab.execute import board
from icl_lab.execute.board import ROWS, Board
from icl_lab.execute.progress import Job
from icl_lab.runs.status import Status
from tests.execute.conftest import Screen


@pytest.fixture
def clock(monkeypatch):
    """The time, to be set."""
    now = SimpleNamespace(time=0.0)
    monkeypatch.setattr(board.time, "monotonic", lambda: now.time)
    return now


def runs():
    return [
        Job("linear | ssa | seed 0", 100, None, "done", 100, 1, "gpu1"),
        Job("linear | ssa | seed 1", 100, None, "failed", 100, 1, "gpu1"),
        Job("linear | ssa | seed 2", 100, None, "at work", 50, 2, "gpu2"),
        Job("linear | ssa | seed 3", 100, None, "starting", 0, 1, "gpu1"),
        Job("linear | ssa | seed 4", 100, None),
    ]


def test_a_log_gets_a_line_a_minute(clock, capsys):
    with Board() as told:
        for second in range(150):
            clock.time = second
            told(runs())
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 2
    assert lines[0] == (
        "2 of 5 runs over, 1 of them not finished; at work: linear | ssa | seed 2 at gpu2, attempt 2, 50 %; "
        "linear | ssa | seed 3 starting at gpu1, 0 %"
    )


def test_the_time_left_of_tests_is_that_of_their_shifts(clock):
    job, told = Job("one", 100, None, "starting", test=1.0), Board()
    assert told._left([job]) is None
    job.state, job.step, job.status = "at work", 99, Status("test", 1, 11)
    assert told._left([job]) is None
    clock.time, job.status = 10.0, Status("test", 6, 11)
    assert told._left([job]) == pytest.approx(10.0)
    job.state, job.step = "done", 100
    assert told._left([job]) is None


def test_the_time_left_is_that_of_the_pace_so_far(clock):
    jobs, told = runs(), Board()
    told._left(jobs)  # 150 steps of finished and running ones were there at the start
    jobs[2].step = 100
    clock.time = 10.0
    assert told._left(jobs) == pytest.approx(200 * 10 / 50)
    assert told.summary(jobs).endswith("; about 40 s left")
    for each in jobs:
        each.state = "done"
    assert told.summary(jobs) == "5 of 5 runs over"


def test_steps_of_an_earlier_command_are_no_pace(clock):
    jobs = [Job("a", 100, None, "starting"), Job("b", 100, None)]
    told = Board()
    assert told._left(jobs) is None
    clock.time = 2.0
    jobs[0].state, jobs[0].step = "at work", 60  # it went on from its checkpoint
    assert told._left(jobs) is None
    clock.time = 10.0
    jobs[0].step = 80
    assert told._left(jobs) == pytest.approx((20 + 100) * 10 / 20)
    clock.time = 20.0
    jobs[0].state, jobs[0].step = "done", 100
    jobs[1].state, jobs[1].step = "done", 100  # begun and over between two looks
    jobs.append(Job("c", 100, None))
    assert told._left(jobs) == pytest.approx(100 * 20 / 140)


def test_the_time_left_weighs_steps_by_their_work(clock):
    jobs = [Job("a", 10, None, "at work", training=lambda steps: float(steps**2), test=44.0), Job("b", 4, None)]
    told = Board()
    assert told._left(jobs) is None
    clock.time, jobs[0].step = 6.0, 5
    assert told._left(jobs) == pytest.approx((100 - 25 + 44 + 4) * 6 / 25)
    clock.time, jobs[0].status = 60.0, Status("test", 1, 2)
    assert told._left(jobs) == pytest.approx((22 + 4) * 60 / 122)
    jobs[0].state = "failed"
    assert jobs[0].done == jobs[0].whole == 144


def test_what_waits_with_a_checkpoint_is_no_pace_and_not_left(clock):
    jobs, told = [Job("a", 100, None, "at work"), Job("b", 100, None, step=60)], Board()
    assert told._left(jobs) is None
    clock.time, jobs[0].step, jobs[1].state = 10.0, 20, "starting"
    assert told._left(jobs) == pytest.approx((80 + 40) * 10 / 20)


ONE, TWO = Job("one", 10, None, "at work", 5, 1), Job("two", 10, None, "starting", 0, 1)
MANY = [Job(f"run {number}", 10, None, "at work", 5, 1, "ray") for number in range(200)]
FOUR = "; ".join(f"run {number} at ray, 50 %" for number in range(4))


@pytest.mark.parametrize(
    ("jobs", "line"),
    [
        ([Job("a", 9, None, "at work", 8, 1, status=Status("test", 7, 11))], "1 runs over; at work: a, test 7 of 11"),
        ([ONE, TWO], "2 runs over; at work: one, 50 %; two starting, 0 %"),  # on this machine no place is named
        (MANY, f"200 runs over; at work: {FOUR}; 196 more"),
    ],
)
def test_a_line_names_the_first_runs_at_work(clock, capsys, jobs, line):
    with Board() as told:
        clock.time = 100
        told(jobs)
    assert capsys.readouterr().err == f"0 of {line}\n"


def test_a_terminal_shows_a_row_for_each_run_at_work(monkeypatch):
    screen = Screen()
    monkeypatch.setattr(sys, "stderr", screen)
    monkeypatch.setattr(board, "REDRAWN", 0)
    many = [Job(f"run {number}", 10, None, "at work", 5, 1, "gpu1") for number in range(ROWS + 3)]
    with Board() as told:
        told(many)
        rows = {int(number) for number in re.findall(r"run (\d+)", screen.getvalue())}
        assert rows == set(range(ROWS))
        for each in many[:4]:
            each.state, each.step = "done", 10
        told(many)
        assert {f"run {ROWS + extra}" for extra in range(3)} <= set(re.findall(r"run \d+", screen.getvalue()))
        assert f"4 of {ROWS + 3} runs over" in screen.getvalue()


def test_no_time_is_told_before_a_few_steps(clock):
    job, told = Job("a", 100, None, "starting"), Board()
    assert told._left([job]) is None
    clock.time = 60.0  # a minute in which its process has imported torch
    assert told._left([job]) is None
    job.state = "at work"
    assert told._left([job]) is None
    clock.time, job.step = 61.0, 4
    assert told._left([job]) is None
    clock.time, job.step = 62.0, 10
    assert told._left([job]) == pytest.approx(90 * 2 / 10)
