"""A round of every fault is withstood, and the round would tell if it were not."""

import random

import pytest

from icl_lab.runs import checkpoints, manifest, study_folder
from tests.torture import rounds
from tests.torture.arena import Arena
from tests.torture.faults import BAD, KINDS, Fault


@pytest.fixture(scope="module")
def arena(tmp_path_factory):
    return Arena.build(tmp_path_factory.mktemp("arena"))


def outcomes(arena, kind, times=1):
    return [fault.outcome for number in range(times) for fault in KINDS[kind](arena, random.Random(number))]


@pytest.mark.slow
@pytest.mark.exhaustive
@pytest.mark.parametrize("kind", KINDS)
def test_faults_are_withstood(arena, kind):
    found = outcomes(arena, kind)
    assert found  # how many depends on when a process is met, and what it has written by then
    assert not set(found) & set(BAD)


@pytest.mark.slow
@pytest.mark.exhaustive
def test_damage_that_nothing_checks_is_told_as_silent(arena, monkeypatch):
    monkeypatch.setattr(manifest, "check", lambda *_: None)
    assert "silent" in outcomes(arena, "damaged file", 3)
    assert "silent" in outcomes(arena, "file of another run")


@pytest.mark.slow
def test_damage_to_a_study_that_nothing_checks_is_told_as_silent(arena, monkeypatch):
    monkeypatch.setattr(study_folder, "verify", lambda *_: None)
    assert "silent" in outcomes(arena, "damaged file", 3)


@pytest.mark.slow
@pytest.mark.exhaustive
def test_a_run_that_goes_on_wrongly_is_told(arena, monkeypatch):
    """The checkpoint before the last, taken for a start from the first step."""
    resume = checkpoints.resume

    def forgets(*args):
        progress = resume(*args)
        progress.step = max(0, progress.step - 1)
        return progress

    monkeypatch.setattr(checkpoints, "resume", forgets)
    assert "wrong bits" in outcomes(arena, "killed", 2)


@pytest.mark.slow
@pytest.mark.exhaustive
def test_a_run_that_cannot_be_finished_is_told(arena, monkeypatch):
    from icl_lab.errors import RunFailed

    def refuses(folder, *args):
        if any((folder / name).exists() for name in checkpoints.NAMES):
            raise RunFailed("no")
        return resume(folder, *args)

    resume = checkpoints.resume
    monkeypatch.setattr(checkpoints, "resume", refuses)
    assert "lost" in outcomes(arena, "killed", 2)


def test_the_table_counts_by_hand():
    faults = [
        Fault("killed", "a", "same bits"),
        Fault("killed", "b", "lost", "exit code 1"),
        Fault("damaged file", "c", "named"),
    ]
    text = rounds.table(faults, "torture")
    assert "| killed | 2 | 1 | 0 | 1 | 0 | 0 |" in text
    assert "| all | 3 | 1 | 1 | 1 | 0 | 0 |" in text
    assert "* killed, b: lost exit code 1" in text


@pytest.mark.slow
def test_the_same_seed_draws_the_same_faults(arena):
    draw = lambda: [fault.to for fault in KINDS["damaged file"](arena, random.Random("0 1 a"))]  # noqa: E731
    assert draw() == draw()
