"""The study of learning rates: what it trains, widens, writes and refuses, and own rates of a comparison."""

import csv
import math
from dataclasses import replace

import pytest

import icl_lab as icl
from icl_lab.base.errors import LabError
from icl_lab.comparison.rates import Curve
from icl_lab.execute import rates
from icl_lab.execute.plan import RunPlan
from icl_lab.execute.rates import RatesPlan
from tests.execute.conftest import SET, SMALL

pytestmark = pytest.mark.usefixtures("quick_pictures")


def test_a_curve_is_stored_and_a_comparison_takes_its_best(where, tmp_path, monkeypatch):
    """Errors are set by hand: softmax is best at four times the rates, for which its curve is widened twice."""
    best = {"softmax": 0.012, "ssa": 0.003}
    monkeypatch.setattr("icl_lab.comparison.rates.curve", lambda spec, runs: _curve(spec, runs, best))
    found = icl.rates("linear", ["softmax", "ssa"], "smoke", SMALL, seeds=1, factors=[0.5, 1, 2], where=where)
    assert found["best"].tolist() == [4.0, 1.0]
    assert found["rate"].tolist() == [0.012, 0.003]
    (folder,) = tmp_path.glob("rates-linear-smoke-*")
    rows = list(csv.DictReader((folder / "rates.csv").read_text().splitlines()))
    assert [row["factor"] for row in rows if row["attn"] == "softmax"] == ["0.5", "1", "2", "4", "8"]
    assert {row["seed"] for row in rows} == {"100"}
    assert (folder / "rates.png").exists()
    assert "no other test draws" in (folder / "table.md").read_text()
    runs = RunPlan("linear", ["softmax", "ssa"], "smoke", [*SET, "rates=own"]).runs(where.store())
    assert [run.spec.train.rate for run in runs] == [0.012, 0.003]
    assert {tuple(run.spec.test.axes["sigma_f"]) for run in runs} == {(1.0, 4.0)}
    assert {run.spec.test.draws for run in runs} == {"ours"}
    study = icl.compare("linear", ["softmax", "ssa"], "smoke", {**SMALL, "rates": "own"}, seeds=1, where=where)
    said = "Own learning rates, each the best of its curve over 1 tuning seed: softmax 0.012, ssa 0.003."
    assert study.rates == said
    assert said in (study.folder / "table.md").read_text()
    assert "| `softmax` | x1 | 0.012 | x1 | x0.5 to x2 |" in (study.folder / "table.md").read_text()
    assert (study.folder / "rates.png").exists()


def _curve(spec, runs, best):
    distance = {factor: abs(math.log2(factor * spec.train.rate / best[spec.attn])) for factor in runs}
    return Curve(spec, {factor: [0.1 * 2 ** distance[factor]] for factor in runs}, 1.0, log=True)


def test_a_curve_trains_anew_once_and_keeps_its_folder(where, tmp_path, monkeypatch):
    """softmax is best at twice the rates: the curve is widened once, and runs of the first round are not redone."""
    anew = []

    def complete(runs, lab, where):
        anew.append(where.retrain)
        return done(runs, lab, where)

    done = rates.complete
    monkeypatch.setattr(rates, "complete", complete)
    monkeypatch.setattr("icl_lab.comparison.rates.curve", lambda spec, runs: _curve(spec, runs, {"softmax": 0.006}))
    asked = replace(where, name="mine", retrain=True)
    icl.rates("linear", "softmax", "smoke", SMALL, seeds=1, factors=[0.5, 1, 2], where=asked)
    assert anew == [True, False]
    before = (tmp_path / "mine" / "rates.csv").read_bytes()
    with pytest.raises(LabError, match="mine"):
        icl.rates("linear", "softmax", "smoke", SMALL, seeds=1, factors=[1, 2, 4], where=replace(where, name="mine"))
    assert (tmp_path / "mine" / "rates.csv").read_bytes() == before
    icl.rates("linear", "softmax", "smoke", SMALL, seeds=1, factors=[0.5, 1, 2], where=replace(where, name="mine"))


def test_a_normalizer_whose_trainings_all_diverged_is_named(where, monkeypatch):
    def curve(spec, runs):
        lost = {factor: [math.inf] for factor in runs}
        return Curve(spec, lost, 1.0, log=True) if spec.attn == "ssa" else _curve(spec, runs, {"softmax": 0.003})

    monkeypatch.setattr(rates, "complete", lambda runs, lab, where: True)
    monkeypatch.setattr("icl_lab.comparison.rates.curve", curve)
    with pytest.raises(LabError, match="every training of ssa diverged"):
        icl.rates("linear", ["softmax", "ssa"], "smoke", SMALL, seeds=1, factors=[0.5, 1, 2], where=where)


def test_own_rates_without_a_curve_are_refused_before_training(where, tmp_path):
    with pytest.raises(LabError, match="make it: icl-lab rates --task linear --attn 'softmax ssa' --preset smoke"):
        icl.compare("linear", ["softmax", "ssa"], "smoke", {**SMALL, "rates": "own"}, where=where)
    assert not (tmp_path / "runs").exists()


def test_a_comparison_cannot_reach_the_seeds_of_tuning(where):
    with pytest.raises(LabError, match="seeds must be a whole number from 1 to 100, got 101"):
        icl.compare("linear", ["softmax", "ssa"], "smoke", SMALL, seeds=101, where=where)


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"factors": [1, 2]}, "at least three factors, got 1, 2"),
        ({"factors": [1, 2, 3]}, "is a power of 2 from 1/256 to 256, got 3"),
        ({"factors": [1, 2, 512]}, "is a power of 2 from 1/256 to 256, got 512"),
        ({"widths": [33]}, "heads"),
        ({"settings": ["train.rat=1"]}, "train.rat"),
        ({"settings": ["model.width=32"], "widths": [8, 16]}, "model.width is both set and among the widths"),
    ],
)
def test_bad_plans_are_refused(fields, why):
    with pytest.raises(LabError, match=why):
        RatesPlan("linear", ["softmax"], "smoke", **fields).specs()
