"""The analysis as a whole: from runs to grids, tables and the numbers of claims; and what it refuses."""

import math

import numpy as np
import pytest
import torch

from icl_lab import tasks
from icl_lab.analyses import runner
from icl_lab.analyses.boundary import Boundary, curves
from icl_lab.analyses.boundary.curves import Line
from icl_lab.base.errors import BadValue, Stopped
from icl_lab.pipeline import load_or_train
from icl_lab.tasks.linear import TRAINING_RANGE

pytestmark = pytest.mark.usefixtures("quick_pictures")

SMALL = {"slopes": (1.0, 3.0), "scales": (1.0, 0.3), "contexts": 16}


@pytest.fixture
def thin(monkeypatch):
    """As few points as the detector takes."""
    monkeypatch.setattr(curves, "SIDE", 40)


@pytest.mark.slow
def test_bounds_of_finished_runs_are_found_written_and_read(finished, lab, thin, tmp_path):
    groups = {"softmax": [finished(seed=seed) for seed in (0, 1)], "average": [finished("average")]}
    specs = {name: runs[0].spec for name, runs in groups.items()}
    asked = Boundary(**SMALL)
    found = runner.ask(asked, groups, lab)
    assert found.rules == ["softmax", "average"]
    assert found.lines == asked.lines
    assert found.plain == [Line(1), Line(3)]
    assert found["curves"].values("attn") == ["softmax", "average"]
    assert len(found.values("softmax", Line(3), 1, "bound")) == 2
    assert found.kinds("reference:least-squares", Line(3), -1) == ["none in range"]
    assert found.values("reference:clip", Line(1), 1, "bound") == [pytest.approx(TRAINING_RANGE, abs=1e-3)]
    assert found.growth("reference:clip")[0][:2] == (pytest.approx(0, abs=1e-4), pytest.approx(0, abs=1e-4))
    assert found.growth("reference:3-nn")[0] == (pytest.approx(1, abs=0.02), pytest.approx(1, abs=0.02), 8)
    assert math.isnan(found.growth("reference:least-squares")[0][0])
    assert [f"{sweep.rule} {sweep.seed}" for sweep, _, _ in found.sweeps] == ["softmax 0", "softmax 1", "average 0"]
    text = "\n".join(asked.table(found))
    assert "| `softmax` | 1 | 3x |" in text
    assert "### The clip sweep: errors that B predicts" in text
    row = next(line for line in text.splitlines() if line.startswith("| reference:clip"))
    assert row.count("| 4.19 ") == 4
    for name, text in asked.files(found).items():
        (tmp_path / name).write_text(text)
    assert {path.stem for path in tmp_path.glob("*.csv")} == {"answers", "boundary", "curves", "measured"}
    stored, again = asked.read(tmp_path), asked.again(tmp_path, specs)
    assert [sweep.seed for sweep, _, _ in again.sweeps] == [0, 1, 0]
    assert asked.table(again) == asked.table(found)
    assert asked.finding(again) == asked.finding(found)
    assert asked.seeds(stored) == [0, 1]
    clip = {"found": stored, "of": "reference:clip", "cells": {"slope": [1, 3]}, "seed": 1}
    assert asked.value(**clip, metric="bound") == pytest.approx(TRAINING_RANGE, abs=1e-3)
    assert asked.value(**clip, metric="") == pytest.approx(TRAINING_RANGE, abs=0.01)  # the usual one: the clip B
    figures = asked.figures(found, "a title")
    assert next(iter(figures)) == "boundary"
    assert figures["boundary"].get_suptitle() == "a title"
    (tmp_path / "curves.csv").unlink()  # as in folders from before they were kept
    assert asked.again(tmp_path, specs) is None


@pytest.mark.exhaustive
def test_a_sweep_tests_the_model_that_was_asked(finished, lab, thin):
    """Of answers that are known from earlier the test is known from then, or not: the run's may be another model's."""
    asked, runs = Boundary(**SMALL), [finished(seed=seed) for seed in (0, 1)]
    before, rows = runner.ask(asked, {"softmax": runs}, lab), {}

    def known(label, run):
        own = {name: grid.where(attn=label, seed=run.seed).rows() for name, grid in before.grids.items()}
        return rows.setdefault(run.seed, own | ({"measured": []} if run.seed == 1 else {}))

    for run in runs:
        (run.folder / "grid.csv").write_text("damaged")
    (sweep, *_), *others = runner.ask(asked, {"softmax": runs}, lab, known).sweeps
    assert (sweep.seed, sweep.measured) == (0, before.sweeps[0][0].measured)
    assert others == []


def test_claims_read_the_mean_over_sides_and_slopes(planted):
    found = planted([10.0, 20.0], slopes=(1.0, 3.0), scales=(1.0, 0.3))
    frame_ = found.first.frame
    frame_.loc[(frame_["metric"] == "clip") & (frame_["side"] == 1) & (frame_["slope"] == 3), "value"] = 15.0
    frame_.loc[(frame_["metric"] == "clip") & (frame_["scale"] == 0.3), "value"] = 99.0  # not as in training
    asked = Boundary()
    assert asked.value(found, "softmax", {"slope": [1]}, "", 0) == 7
    assert asked.value(found, "softmax", {"slope": [1, 3]}, "", 0) == 9
    assert asked.value(found, "softmax", {"slope": (1.0,)}, "bound", 1) == 20
    with pytest.raises(KeyError, match="names its slope"):
        asked.value(found, "softmax", {}, "", 0)


@pytest.mark.slow
def test_curves_are_the_answers_of_the_model(finished, lab):
    """The curve is the model's own answer after the same examples, each query by itself."""
    run = finished()
    found = runner.ask(Boundary(slopes=(3,), intercepts=(1,), scales=(1,), contexts=16), {"softmax": [run]}, lab)
    model, task = load_or_train(run, lab), tasks.build("linear")
    known = curves.contexts(16, min(39, run.spec.train.longest - 1))
    x = torch.cat((known, torch.full((16, 1), (40.0 - 1) / 3)), 1)
    prompt = task.on_line(x, torch.full((16, 1), 3.0), torch.ones(16, 1))
    with torch.no_grad():
        answers = model(prompt.tokens)[:, -2, 0]
    assert prompt.targets[:, -2].tolist() == pytest.approx([40.0] * 16)
    assert found["curves"].at(slope=3, target=40) == pytest.approx(np.median(answers.numpy()), rel=1e-3)


@pytest.mark.slow
def test_stop_is_heard_between_two_curves(finished, lab, monkeypatch):
    run, asked, real = finished(), [], curves.extrapolate

    def extrapolate(*arguments):
        asked.append(arguments)
        object.__setattr__(lab, "stopping", lambda: True)
        return real(*arguments)

    monkeypatch.setattr(curves, "extrapolate", extrapolate)
    with pytest.raises(Stopped, match="nothing was written"):
        runner.ask(Boundary(slopes=(1, 3), contexts=16), {"softmax": [run]}, lab)
    assert len(asked) == 1


def test_reach_widens_with_the_training_distribution(tiny, lab):
    plain, wider = (lab.store.run(tiny("linear", "softmax", *shift), 0) for shift in ((), ("train.shift.sigma_f=10",)))
    assert Boundary().prepared([plain]).reach == pytest.approx(40)
    assert Boundary().prepared([plain, wider]).reach == pytest.approx(400)
    assert Boundary(reach=50.0).prepared([plain, wider]).reach == 50


def test_one_run_given_twice_is_refused(tiny, lab):
    shallow, deep = lab.store.run(tiny("linear"), 0), lab.store.run(tiny("linear", "softmax", "model.layers=2"), 0)
    runner.checked(Boundary(), {"softmax": [shallow], "softmax, deep": [deep]})  # one normalizer, two labels
    with pytest.raises(BadValue, match="softmax, seed 0, is there twice"):
        runner.checked(Boundary(), {"softmax": [shallow, deep]})
