"""The printed effect of a claim, and the seeds that came before its registration."""

import json
import math
from datetime import UTC, datetime
from pathlib import Path
from statistics import fmean
from types import SimpleNamespace

import pytest
from msgspec.structs import replace

from icl_lab.base import published
from icl_lab.base.errors import BadValue
from icl_lab.claims import experiment, judge, printed, registration
from icl_lab.claims.finished import Finished
from icl_lab.claims.ledger import Finding
from icl_lab.claims.schema import PrintedEffect, Quantity
from icl_lab.comparison.verdict import State
from icl_lab.runs.evidence.archive import Archive
from icl_lab.runs.store import Store

FILES = Path(__file__).parents[2] / "experiments"


@pytest.fixture
def table1():
    return experiment.load("ssa-table1", FILES)


def test_the_printed_effect_uses_both_printed_rows(table1):
    """The mean over sigma 4 to 10 of log(SSA / softmax), by the table itself; a ratio of 0.064."""
    rows = {name: published.load("ssa_table1").where(method=name) for name in ("SSA", "Softmax")}
    logs = {
        name: [math.log(row["mse"].number) for row in found if 4 <= row["sigma"].number <= 10]
        for name, found in rows.items()
    }
    found = printed.effect(table1, table1.claims[0], "log-ratio", "mse-code")
    assert found == pytest.approx(fmean(logs["SSA"]) - fmean(logs["Softmax"]))
    assert math.exp(found) == pytest.approx(0.064, abs=0.001)


def test_no_printed_effect_off_the_claims_cells(table1):
    first = table1.claims[0]
    far = replace(first.left, cells={"sigma_f": [100.0]})
    for other in (
        replace(first, left=far),
        replace(first, metric="floor"),
        replace(first, right=replace(first.right, of="reference:3-nn")),
        replace(first, left=replace(first.left, cells={"length": [5.0]})),
    ):
        assert math.isnan(printed.effect(table1, other, "log-ratio", "mse-code"))


def test_a_claim_may_name_its_printed_effect(table1):
    named = replace(table1.claims[0], printed=PrintedEffect(source="the text", ratio=0.5))
    assert printed.effect(table1, named, "log-ratio", "mse-code") == pytest.approx(math.log(0.5))
    with pytest.raises(BadValue, match="its printed effect must be a difference"):
        printed.effect(table1, named, "difference", "mse-code")
    for wrong in ({}, {"ratio": 0.5, "difference": 0.1}, {"ratio": -1.0}):
        with pytest.raises(ValueError, match="a printed"):
            PrintedEffect(source="s", **wrong)


def trained(env):
    """A training that says this of its environment."""
    return SimpleNamespace(key="a/b/nano-01234567/seed-0", env=lambda: env)


def test_a_repeated_training_counts_from_the_first_time(table1, tmp_path, monkeypatch):
    """The evidence holds the run twice, the second in place of the first."""
    archive = Archive(tmp_path / "evidence")
    key, files = "linear/ssa/nano-01234567/seed-0", {"spec.json": b"{}", "history.csv": b"step\n"}
    for month in (2, 4):
        env = json.dumps({"finished": f"2026-0{month}-01T00:00:00+00:00"}).encode()
        archive.add({key: {**files, "env.json": env}}, replace=True)
    archive.add({key.replace("ssa", "softmax"): {**files, "env.json": b"{}"}})
    run = archive.run(key)
    assert [json.loads(env)["finished"][:7] for env in run.versions("env.json")] == ["2026-02", "2026-04"]
    assert list(run.versions("grid.csv")) == []
    again = SimpleNamespace(key=key, env=lambda: json.loads(run.find("env.json")))
    first = table1.claims[0]
    made = replace(table1, registered={registration.digest(first): datetime(2026, 3, 1, tzinfo=UTC)})
    for store, early in ((Store(tmp_path, archive), [0]), (Store(tmp_path), [])):
        finished = Finished(made, store, "nano")
        monkeypatch.setattr(finished, "_trainings", lambda claim, seed: [again])
        assert finished.before_registration(first, [0]) == early


def test_seeds_finished_before_a_claim_was_registered_are_known(table1, tmp_path, monkeypatch):
    """Both sides must have been there: seed 1 of SSA came after."""
    first = table1.claims[0]
    since = datetime(2026, 3, 1, tzinfo=UTC)
    made = replace(table1, registered={registration.digest(first): since})
    finished = Finished(made, Store(tmp_path), "nano")
    ends = {0: ("2026-02-01T00:00:00+00:00", "2026-02-02"), 1: ("2026-02-01", "2026-03-02T00:00:00+00:00"), 2: ("", "")}
    monkeypatch.setattr(
        finished, "_trainings", lambda claim, seed: [trained({"finished": time} if time else {}) for time in ends[seed]]
    )
    assert finished.before_registration(first, [0, 1, 2]) == [0]
    assert finished.before_registration(made.claims[1], [0, 1, 2]) == []  # not registered


def test_blocks_are_commit_and_machine_of_both_sides(table1, tmp_path, monkeypatch):
    finished = Finished(table1, Store(tmp_path), "nano")
    envs = {0: ("a", "x"), 1: ("a", "y"), 2: ("b", "x")}
    monkeypatch.setattr(
        finished,
        "_trainings",
        lambda claim, seed: [trained(dict(zip(("commit", "machine"), envs[seed], strict=True)))] * 2,
    )
    assert finished.blocks(table1.claims[0], [0, 1, 2, 0]) == [0, 1, 2, 0]
    envs[2] = ("b", "")
    assert finished.blocks(table1.claims[0], [0, 1, 2]) == []  # one does not say


def test_a_printed_difference_is_a_plain_number(table1):
    """Shares, as metrics are: of the poster's accuracies at 1,024 tokens, and one that a claim names."""
    named = replace(table1.claims[0], printed=PrintedEffect(source="the text", difference=0.05))
    assert printed.effect(table1, named, "difference", "mse-code") == 0.05
    poster = experiment.load("poster-task3", FILES)
    rows = {name: published.load("poster_task3_retrieval").where(method=name) for name in ("SSMax", "Softmax")}
    shares = {
        name: fmean(row["accuracy"].number for row in found if row["context_length"].number == 1024)
        for name, found in rows.items()
    }
    (left, right), cells = (Quantity("ssmax", {"length": [1024.0]}), Quantity("softmax", {"length": [1024.0]})), None
    claim = replace(poster.claims[0], left=left, right=right, metric="", printed=cells)
    found = printed.effect(poster, claim, "difference", "error")
    assert found == pytest.approx(shares["Softmax"] - shares["SSMax"], abs=1e-3)
    assert found != 0
    words = Finding(claim="c", relation="below", state=State.JUDGED, printed=0.05, scale="difference").printed_words
    assert words == "0.05"


@pytest.mark.parametrize(
    ("early", "seeds", "exploratory"), [([0, 1], [2, 3, 4], False), ([0, 1, 2], [0, 1, 2, 3, 4], True)]
)
def test_three_seeds_after_its_registration_judge_a_claim_alone(monkeypatch, early, seeds, exploratory):
    """Of five: with three new ones the old ones are left out; with two all count, and it is exploratory."""
    monkeypatch.setattr(
        judge.quantities,
        "source",
        lambda finished, claim, answers, left_out: SimpleNamespace(seeds=[s for s in range(5) if s not in left_out]),
    )
    finished = SimpleNamespace(preset="nano", before_registration=lambda claim, seeds: early)
    evidence, found = judge._evidence(finished, SimpleNamespace(suggested_by={}), None)
    assert (evidence.seeds, found) == (seeds, exploratory)
