"""Table of the arms of the boundary."""

import csv
import io
import math
import shutil
from pathlib import Path

import boundary_arms as arms
import msgspec
import pytest
from boundary_arms import Arm

from icl_lab.base.errors import RunFailed
from icl_lab.base.grid import Grid
from icl_lab.claims import experiment as experiments
from icl_lab.claims.sides import Sides
from icl_lab.runs import study_folder
from icl_lab.runs.evidence.archive import Archive
from icl_lab.runs.measure import FLOOR
from icl_lab.runs.store import Store

ROOT = Path(__file__).parents[2]
EXPERIMENTS = ROOT / "experiments"


@pytest.fixture
def repository(tmp_path):
    return Store(tmp_path / "results", Archive(ROOT / "results" / "evidence"))


def grid(error, floor=1.0):
    """A run's grid whose error is the same at every spread of functions."""
    cells = [
        {"sigma_x": 1.0, "sigma_f": float(sigma), "metric": metric, "value": value, "stderr": 0.0, "count": 8}
        for metric, value in (("mse", error), (FLOOR, floor))
        for sigma in (1, *arms.FAR)
    ]
    who = {"task": "linear", "attn": "softmax", "preset": "deep2", "spec": "0", "seed": 0}
    return Grid.of(cells, ["sigma_x", "sigma_f"], **who)


def arm(errors, bounds=(), rescaled=(), reached=()):
    grids, others = ({seed: grid(error) for seed, error in dict(each).items()} for each in (errors, rescaled))
    return Arm(grids, dict(bounds), others, list(reached))


def cells(one, softmax, preset="deep2"):
    return arms._cells(arms._outcome(one, softmax, preset, "", "ssa"))


def test_arms_are_paired_by_seed():
    softmax = arm({1: 10.0, 2: 40.0}, {1: 10.0, 2: 20.0})
    ssa = arm({0: 99.0, 1: 9.0, 2: 36.0}, {0: 99.0, 1: 10.5, 2: 21.0})
    assert cells(ssa, softmax) == ["10.5 to 99.0", "+0.05", "", "48", "1", "0.90", ""]
    own = cells(softmax, softmax)
    assert (own[1], own[5]) == ("", "")


def test_a_failed_prediction_is_bold():
    softmax = arm({0: 10.0}, {0: 10.0})
    moved = 10 * math.exp(-arms.APART)
    good = arm({0: 7.6}, {0: moved + 0.01}, {0: 0.049}, [0.971, 0.99])
    assert cells(good, softmax) == ["9.1", "-0.10", "97 to 99 %", "7.6", "1", "0.76", "0.049"]
    bad = arm({0: 7.4}, {0: moved - 0.01}, {0: 0.051}, [0.9, 0.99])
    told = ["9.0", "**-0.10**", "**90 to 99 %**", "7.4", "1", "**0.74**", "**0.051**"]
    assert cells(bad, softmax) == told
    assert cells(bad, softmax, "nano")[-1] == "0.051"  # trained too briefly for this prediction


def test_predictions_are_told_with_where_they_fail():
    softmax = arm({0: 10.0}, {0: 10.0})
    good = arm({0: 7.6}, {0: 10.0}, {0: 0.049}, [0.98])
    bad = arm({0: 7.4}, {0: 8.0}, {0: 0.051}, [0.9])
    known = [
        arms._outcome(softmax, softmax, "deep2", "", "softmax"),
        arms._outcome(good, softmax, "deep2", "", "ssa"),
        arms._outcome(bad, softmax, "deep2", ", again", "ssa"),
        arms._outcome(arm({0: 9.0}, rescaled={0: 1.0}), softmax, "nano", "", "ssa"),
    ]
    every = list(arms.PREDICTED)
    assert every == ["moved", "ratio", "rescaled", "reached"]
    held = [one.holds() for one in known]
    assert held == [{}, dict.fromkeys(every, True), dict.fromkeys(every, False), {"ratio": True}]
    rows = [line.strip("| ").split(" | ") for line in arms.tally(known)[2:]]
    assert [row[0][:2] for row in rows] == ["1.", "2.", "3.", "4."]
    assert [row[2] for row in rows] == ["1 of 2", "2 of 3", "1 of 2", "1 of 2"]
    assert [row[1] for row in rows] == ["`deep2, again` ssa"] * 4
    known[2:3] = []
    assert [line.strip("| ").split(" | ")[1] for line in arms.tally(known)[2:]] == ["none"] * 4


def test_an_arm_is_compared_with_softmax_of_the_same_norm():
    names = ["softmax", "ssa", "ssa, fixed", "softmax, rms norm", "ssa, rms norm"]
    against = [arms._compared_with(name, names) for name in names]
    assert against == ["softmax", "softmax", "softmax", "softmax", "softmax, rms norm"]


@pytest.mark.slow
def test_arms_stand_beside_their_predictions(repository):
    lines = arms.table(arms.outcomes(EXPERIMENTS, repository))
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]
    softmax, ssa = (next(r for r in rows if r[:2] == ["`nano`", name]) for name in ("softmax", "ssa"))
    assert softmax[8] == ""  # it is what others are compared with
    assert 0.75 < float(ssa[8]) < 1
    none = next(r for r in rows if r[:2] == ["`nano`", "ssa, no final norm"])
    assert (none[3], none[7]) == ("none", "none")
    recorded = csv.DictReader(io.StringIO((ROOT / "results" / "claims.csv").read_text()))
    ratio = next(
        float(row["effect"])
        for row in recorded
        if (row["experiment"], row["preset"]) == ("boundary-bound", "nano")
        and row["claim"].startswith("Without the final norm SSA")
    )
    assert float(none[8]) == pytest.approx(2.718281828**ratio, abs=0.006)


@pytest.mark.slow
def test_arms_of_another_training_are_told_apart(repository, monkeypatch):
    """Rows of every experiment that trains, each with its own words behind the preset."""
    table = arms.table(arms.outcomes(EXPERIMENTS, repository))
    assert sum(row.startswith("| `deep2, published optimizer` | ssa | ") for row in table) == 1
    monkeypatch.setattr(arms, "TRAINED", {"boundary-bound": ", again"})
    assert any(
        row.startswith("| `nano, again` | softmax |") for row in arms.table(arms.outcomes(EXPERIMENTS, repository))
    )


def test_every_study_of_the_boundary_tells_what_is_reached(repository, monkeypatch):
    """B/C by specification and seed, whatever the study is called and what asked for it."""
    made = experiments.load("boundary-optimizer", EXPERIMENTS)
    softmax = Sides(made, repository, "deep2").specs["softmax"]
    place = repository.study(repository.root / "experiments" / "boundary-optimizer-values-deep2")
    rows = list(csv.DictReader(io.StringIO((place / "answers.csv").read_text())))
    bound, largest = (
        max(float(row["value"]) for row in rows if (row["attn"], row["metric"]) == ("softmax", metric))
        for metric in ("bound", "largest")
    )
    reached = arms._reached(repository)
    assert reached[softmax.hash, 0] == pytest.approx(largest / bound)
    own = repository.root / "boundary-of-mine"
    shutil.copytree(place, own)
    assert arms._reached(Store(repository.root))[softmax.hash, 0] == pytest.approx(largest / bound)
    study = study_folder.read(own)
    swapped = msgspec.structs.replace(study, runs=[msgspec.structs.replace(run, swap="ssa") for run in study.runs])
    with monkeypatch.context() as patch:
        patch.setattr(arms.folders, "of_kind", lambda kind, store: {own: swapped})
        assert arms._reached(repository) == {}  # tested with another normalizer: no model of an arm
    (own / "answers.csv").write_text("edited")
    with pytest.raises(RunFailed, match=r"answers\.csv"):
        arms._reached(repository)
