"""The printed effect of a claim, and the seeds that came before its registration."""

import json
import math
from datetime import UTC, datetime
from pathlib import Path
from statistics import fmean

import pytest
from msgspec.structs import replace

from icl_lab.base import published
from icl_lab.base.errors import BadValue
from icl_lab.claims import experiment, judge, printed
from icl_lab.claims.ledger import Finding
from icl_lab.claims.schema import PrintedEffect, Quantity
from icl_lab.claims.sides import Training, Value, first_end
from icl_lab.comparison.verdict import State
from icl_lab.runs.evidence.archive import Archive
from tests.claims.given import BEFORE, NOW, GivenSides, claim

FILES = Path(__file__).parents[2] / "experiments"


@pytest.fixture
def table1():
    return experiment.load("ssa-table1", FILES)


def test_the_printed_effect_uses_both_printed_rows(table1):
    """The mean over sigma 4 to 10 of log(SSA / softmax), by the table itself; a ratio of 0.064."""

    def mean(name):
        rows = published.load("ssa_table1").where(method=name)
        return fmean(math.log(row["mse"].number) for row in rows if 4 <= row["sigma"].number <= 10)

    found = printed.effect(table1, table1.claims[0], "log-ratio", "mse-code")
    assert found == pytest.approx(mean("SSA") - mean("Softmax"))
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
    envs = [json.loads(env) for env in run.versions("env.json")]
    assert first_end(envs) == datetime(2026, 2, 1, tzinfo=UTC)
    assert first_end(envs[1:]) == datetime(2026, 4, 1, tzinfo=UTC)
    assert first_end([{"finished": "2026-03-02"}, {}]) == datetime(2026, 3, 2, tzinfo=UTC)
    assert first_end([{}]) is None


@pytest.mark.parametrize(
    ("seeds", "left_out", "exploratory"), [([0, 1, 2, 3, 4], [0], False), ([0, 1, 2], [], True), ([1, 2], [], False)]
)
def test_three_seeds_after_its_registration_judge_a_claim_alone(seeds, left_out, exploratory):
    """Both sides of seed 0 were there before, one of seed 1; with less than three others all count: exploratory."""
    ends = [(BEFORE, BEFORE), (BEFORE, NOW), (None, None), (NOW, NOW), (NOW, NOW)]
    sides = GivenSides([1.0] * len(seeds), [2.0] * len(seeds), ends=[ends[seed] for seed in seeds], models=True,
                       seeds_of_table=seeds)  # fmt: skip
    about = claim()
    sides.experiment.registered = {about.statement: datetime(2026, 6, 1, tzinfo=UTC)}
    assert judge._left_out(sides, about, sides.table(about)) == (left_out, exploratory)
    sides.experiment.registered = {}
    assert judge._left_out(sides, about, sides.table(about)) == ([], False)


def test_blocks_are_commit_and_machine_of_both_sides():
    def blocks(*origins):
        sides = zip(*origins, strict=True)
        return judge._blocks([{n: Value(training=Training(origin=o)) for n, o in enumerate(side)} for side in sides])

    a, b, c, unknown = ("a", "x"), ("a", "y"), ("b", "x"), ("b", "")
    assert blocks((a, a), (a, b), (c, a), (a, b), (a, None)) == [0, 1, 2, 1, 3]
    assert blocks((a, a), (a, unknown)) == []
    assert blocks((a, a), (None, None)) == []


def test_a_printed_difference_is_a_plain_number(table1):
    """Shares, as metrics are: of the poster's accuracies at 1,024 tokens, and one that a claim names."""
    named = replace(table1.claims[0], printed=PrintedEffect(source="the text", difference=0.05))
    assert printed.effect(table1, named, "difference", "mse-code") == 0.05
    poster = experiment.load("poster-task3", FILES)

    def share(name):
        rows = published.load("poster_task3_retrieval").where(method=name)
        return fmean(row["accuracy"].number for row in rows if row["context_length"].number == 1024)

    left, right = (Quantity(of, {"length": [1024.0]}) for of in ("ssmax", "softmax"))
    claim = replace(poster.claims[0], left=left, right=right, metric="", printed=None)
    found = printed.effect(poster, claim, "difference", "error")
    assert found == pytest.approx(share("Softmax") - share("SSMax"), abs=1e-3)
    assert found != 0
    words = Finding(claim="c", relation="below", state=State.JUDGED, printed=0.05, scale="difference").printed_words
    assert words == "0.05"
