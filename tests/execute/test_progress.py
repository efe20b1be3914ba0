"""Bars of progress: drawn again only for something new, and a line a minute where there is no terminal."""

import io
import sys
from types import SimpleNamespace

import pytest

from icl_lab.execute import progress
from icl_lab.execute.progress import Bar, counted, say
from tests.execute.conftest import Screen


@pytest.fixture
def screen(monkeypatch):
    screen = Screen()
    # Not of sys itself: pytest puts its own there once the test begins.
    monkeypatch.setattr(progress, "sys", SimpleNamespace(stderr=screen, modules=sys.modules))
    return screen


def test_the_same_progress_is_drawn_once(screen, monkeypatch):
    monkeypatch.setattr(progress, "REDRAWN", 0)
    bar = Bar()
    bar("runs", 100, 200, "0 of 2 runs over")
    before = screen.drawn
    for _ in range(500):
        bar("runs", 100, 200, "0 of 2 runs over")
    assert screen.drawn == before


def test_a_complete_stage_is_drawn_once(screen):
    bar = Bar()
    bar("runs", 0, 200, "")
    bar("runs", 200, 200, "2 of 2 runs over")
    before = screen.getvalue()
    for number in range(500):
        bar("runs", 200, 200, f"told again {number}")
    assert screen.getvalue() == before
    assert "100%" in before
    bar("runs", 0, 200, "")
    bar("runs", 200, 200, "")
    assert screen.getvalue().count("100%") == 2


def test_fast_steps_are_not_drawn_each(screen, monkeypatch):
    monkeypatch.setattr(progress, "REDRAWN", 1000)
    bar = Bar()
    for step in range(10_001):
        bar("train", step, 10_001, f"loss {step}")
    assert screen.drawn <= 3


def test_words_do_not_stand_in_the_line_of_the_bar(screen):
    bar = Bar()
    bar("train", 0, 300, "")
    say("goes on from step 20.")
    drawn, _, after = screen.getvalue().partition("goes on from step 20.\n")
    assert "train" in drawn
    assert "0/300" in drawn  # it stands there at step 0
    assert drawn.endswith("\r")
    assert "0/300" in after
    bar("train", 300, 300, "")


def test_without_a_terminal_a_line_a_minute(monkeypatch):
    log, now = io.StringIO(), [0.0]
    monkeypatch.setattr(sys, "stderr", log)
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    bar = Bar()
    for second in range(301):
        now[0] = float(second)
        bar("train", second * 10, 6000, f"loss {second}")
    assert log.getvalue().splitlines() == [
        f"train: {600 * minute:,} of 6,000, loss {60 * minute}" for minute in range(1, 6)
    ]


def test_every_item_is_told_before_it_is_done_and_the_end_after():
    told = []
    seen = [(item, told[-1][1]) for item in counted("abc", "reading", lambda *said: told.append(said))]
    assert seen == [("a", 0), ("b", 1), ("c", 2)]
    assert told[-1] == ("reading", 3, 3, "")


@pytest.mark.parametrize(("said", "line"), [(60.0, ""), (0.0, "reading: 1 of 2")])
def test_a_line_is_said_where_reading_takes_long(capsys, monkeypatch, said, line):
    monkeypatch.setattr(progress, "SAID", said)
    assert list(counted([1, 2], "reading")) == [1, 2]
    out, err = capsys.readouterr()
    assert (out, line in err, bool(err)) == ("", True, bool(line))
