"""Registration of claims: since which commit a claim is what it is, and which seeds came before it."""

import subprocess
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from icl_lab.base.errors import RunFailed
from icl_lab.claims import experiment, registration
from tests.claims.test_hostile_files import HEAD, VARIANT

CLAIM = """
[[claims]]
statement = "{statement}"
where = "w"
left = {{ of = "ssa", cells = {{ sigma_f = [{cells}] }} }}
is = "{relation}"
right = {{ of = "softmax" }}
"""
FILE = HEAD + VARIANT + VARIANT.replace("softmax", "ssa")
FIRST = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.fixture
def repository(tmp_path):
    """A repository of git with one experiment file; returns what commits a version of it, one a day."""
    files, days = tmp_path / "experiments", []
    files.mkdir()

    def git(*words, **env):
        subprocess.run(["git", *words], cwd=tmp_path, check=True, capture_output=True, env=env or None)

    def commit(*claims, file=FILE):
        text = file + "".join(CLAIM.format(**claim) for claim in claims)
        (files / "mine.toml").write_text(text)
        date = (FIRST + timedelta(days=len(days))).isoformat()
        days.append(date)
        who = {f"GIT_{role}_{what}": "x" for role in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
        git("add", ".")
        git("commit", "-m", "version", **who, GIT_COMMITTER_DATE=date, GIT_AUTHOR_DATE=date, PATH="/usr/bin:/bin")

    git("init", "-q")
    commit.files = files
    return commit


def told(files):
    """The day, counted from the first, at which each claim of the file was registered."""
    (files / registration.NAME).write_text(registration.table(files))
    made = experiment.load("mine", files)
    times = {claim.statement: made.registered.get(claim.statement) for claim in made.claims}
    return {statement: time and (time - FIRST).days for statement, time in times.items()}


def claim(statement="s", cells="4, 5", relation="below"):
    return {"statement": statement, "cells": cells, "relation": relation}


def margins(*texts):
    """A version of the file for each margin."""
    return [[{**claim(), "relation": f'below"\nmargin = {text}\nbecause = "a half'}] for text in texts]


LATE = claim("late", cells="9")
HISTORIES = {
    "other words are the same claim": ([[claim()], [claim(), LATE], [claim("other words"), LATE]], [0, 1]),
    "other cells are another": ([[claim()], [claim(cells="4")]], [1]),
    "another relation is another": ([[claim()], [claim(relation="equal")]], [1]),
    "one that comes back is new": ([[claim()], [claim(cells="9")], [claim()]], [2]),
    "another margin is another": ([[claim()], *margins("2", "2.0", "3")], [3]),
    "another spelling of it is none": (margins("2", "3.0", "3"), [1]),
}


@pytest.mark.parametrize(("versions", "days"), HISTORIES.values(), ids=HISTORIES)
def test_a_claim_is_registered_when_it_last_changed(repository, versions, days):
    for version in versions:
        repository(*version)
    assert list(told(repository.files).values()) == days


@pytest.mark.parametrize(
    ("old", "new", "day"),
    [
        ('attn = "ssa"', 'attn = "ssa:n=2.0"', 1),  # the variant keeps its name and is trained otherwise
        ('attn = "ssa"', 'attn = "ssa"\nset = ["train.rate=0.01"]', 1),
        ('attn = "softmax"', 'attn = "softmax"\ntask = "linear:law=uniform"', 1),
        ('task = "linear"', 'task = "linear"\nset = ["test.prompts=512"]', 1),
        ('task = "linear"', 'task = "linear"\ndraws = "paper"', 1),
        ('task = "linear"', 'task = "linear"\nrates = "own"', 1),
        ('task = "linear"', 'task = "linear"\ndraws = "ours"', 0),  # the default, spelled out
        ('title = "t"', 'title = "other"', 0),
    ],
)
def test_another_treatment_of_a_side_is_another_claim(repository, old, new, day):
    repository(claim())
    repository(claim(), file=FILE.replace(old, new))
    assert told(repository.files) == {"s": day}


def test_another_spelling_of_a_normalizer_is_the_same_claim(repository):
    for spelled in ("ssa:n=2.0", "ssa:n=2", "gone:n=2"):  # the last is known no more
        repository(claim(), file=FILE.replace('attn = "ssa"', f'attn = "{spelled}"'))
    assert told(repository.files) == {"s": 2}
    repository(claim(), file=FILE.replace('attn = "ssa"', 'attn = "ssa:n=2"'))
    repository(claim(), file=FILE.replace('attn = "ssa"', 'attn = "ssa:n=2.0"'))
    assert told(repository.files) == {"s": 3}


def test_a_record_of_claims_begins_with_their_registration(repository, run, monkeypatch, tmp_path):
    """Verdicts depend on it, so that it is in step before anything is judged; where nothing was run none is written."""
    monkeypatch.setenv("ICL_LAB_EVIDENCE", "")
    repository(claim())
    (tmp_path / "results").mkdir()
    words = ("claims", "--record", "--experiments", str(repository.files), "--results", str(tmp_path / "results"))
    assert "nothing to record" in run.failed(*words)[1]
    assert not (repository.files / registration.NAME).exists()
    (tmp_path / "results" / "runs" / "linear" / "ssa" / "smoke-00000000" / "seed-0").mkdir(parents=True)
    run(*words)
    written = (repository.files / registration.NAME).read_text()
    assert written == registration.table(repository.files)
    assert written.count("mine") == 1


def test_a_claim_that_is_not_committed_is_not_registered(repository):
    repository(claim())
    (repository.files / "mine.toml").write_text(FILE + CLAIM.format(**claim(cells="7")))
    assert told(repository.files) == {"s": None}


def test_without_git_it_is_said(tmp_path):
    assert not registration.complete(tmp_path)
    with pytest.raises(RunFailed, match="only a whole clone"):
        registration.table(tmp_path)


@pytest.mark.slow
def test_the_repositorys_record_is_that_of_its_history():
    files = Path(__file__).parents[2] / "experiments"
    if not registration.complete(files):
        pytest.skip("a shallow clone has no history")
    assert (files / registration.NAME).read_text() == registration.table(files), "run: icl-lab claims --record"


def test_a_record_that_is_none_is_said(tmp_path):
    (tmp_path / registration.NAME).write_text("experiment,claim,time\na,b,yesterday\n")
    with pytest.raises(RunFailed, match=r"registered\.csv cannot be read"):
        registration.read(tmp_path)
    assert registration.read(tmp_path / "none") == {}
