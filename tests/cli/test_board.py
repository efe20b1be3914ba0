"""Where many runs stand: rows on a terminal, few lines in a log."""

import io
import re
import sys
from types import SimpleNamespace

import pytest

from icl_lab.cli import board
from icl_lab.cli.board import ROWS, Board
from icl_lab.workers.job import Standing


class Screen(io.StringIO):
    """A terminal that keeps what it was sent."""

    def isatty(self):
        return True


@pytest.fixture
def clock(monkeypatch):
    """The time, to be set."""
    now = SimpleNamespace(time=0.0)
    monkeypatch.setattr(board.time, "monotonic", lambda: now.time)
    return now


def runs():
    return [
        Standing("linear | ssa | seed 0", 100, "done", "gpu1", 100, 1),
        Standing("linear | ssa | seed 1", 100, "failed", "gpu1", 100, 1),
        Standing("linear | ssa | seed 2", 100, "at work", "gpu2", 50, 2),
        Standing("linear | ssa | seed 3", 100, "starting", "gpu1", 0, 1),
        Standing("linear | ssa | seed 4", 100),
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


def test_the_time_left_is_that_of_the_pace_so_far(clock):
    standings, told = runs(), Board()
    told._left(standings)  # 150 steps of finished and running ones were there at the start
    standings[2].step = 100
    clock.time = 10.0
    assert told._left(standings) == pytest.approx(200 * 10 / 50)
    assert told.summary(standings).endswith("; about 40 s left")
    for each in standings:
        each.state = "done"
    assert told.summary(standings) == "5 of 5 runs over"


def test_a_line_names_few_of_many(clock, capsys):
    many = [Standing(f"run {number}", 10, "at work", "ray", 5, 1) for number in range(200)]
    with Board() as told:
        clock.time = 100
        told(many)
    (line,) = capsys.readouterr().err.splitlines()
    assert line.endswith("run 3 at ray, 50 %; 196 more")


def test_a_terminal_shows_a_row_for_each_run_at_work(monkeypatch):
    screen = Screen()
    monkeypatch.setattr(board, "sys", SimpleNamespace(stderr=screen))
    monkeypatch.setattr(board, "REDRAWN", 0)
    many = [Standing(f"run {number}", 10, "at work", "gpu1", 5, 1) for number in range(ROWS + 3)]
    with Board() as told:
        told(many)
        rows = {int(number) for number in re.findall(r"run (\d+)", screen.getvalue())}
        assert rows == set(range(ROWS))
        for each in many[:4]:
            each.state, each.step = "done", 10
        told(many)
        assert {f"run {ROWS + extra}" for extra in range(3)} <= set(re.findall(r"run \d+", screen.getvalue()))
        assert f"4 of {ROWS + 3} runs over" in screen.getvalue()
    assert sys.stderr is not screen
