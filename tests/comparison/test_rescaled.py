"""The baseline asked with rescaled prompts, as a line beside a comparison."""

import math
from dataclasses import replace
from types import SimpleNamespace

import pytest

from icl_lab import pipeline
from icl_lab.comparison import rescaled
from icl_lab.comparison.gather import gather
from icl_lab.comparison.page import tables
from icl_lab.execute.study import test_rescaled as measure_rescaled
from icl_lab.runs.evidence.archive import Archive, ArchivedRun
from tests.comparison.made import grid

pytestmark = pytest.mark.usefixtures("quick_pictures")


def runs_of(lab, tiny, attn, task="linear", seeds=2, *settings):
    spec = tiny(task, attn, *settings)
    return [lab.store.run(spec, seed) for seed in range(seeds)]


@pytest.mark.slow
def test_the_line_is_the_mean_over_seeds_of_the_rescaled_tests(lab, tiny):
    groups = {attn: runs_of(lab, tiny, attn) for attn in ("softmax", "ssa")}
    for runs in groups.values():
        for run in runs:
            pipeline.sweep(run.spec, run.seed, lab)
    assert rescaled.tested(groups["softmax"]) == {}
    measure_rescaled(groups["softmax"], lab)
    line = rescaled.tested(groups["softmax"])
    assert list(line) == ["labels"]
    cell = {"sigma_x": 1, "sigma_f": 10, "length": 12, "metric": "mse-code"}
    grids = [pipeline.sweep(tiny("linear", "softmax", "test.rescale=labels"), seed, lab) for seed in (0, 1)]
    assert line["labels"].at(**cell) == pytest.approx(sum(grid.at(attn="softmax", **cell) for grid in grids) / 2)
    study = gather(groups, "softmax")
    table = tables.table(study, groups["softmax"][0].spec)
    row = next(row for row in table.rows if row.cells[0] == "softmax, labels rescaled")
    assert row.reference
    assert "without training" in table.note


@pytest.mark.exhaustive
def test_the_share_above_the_floor_is_that_of_the_bound(lab, tiny):
    groups = {attn: runs_of(lab, tiny, attn) for attn in ("softmax", "ssa")}
    grids = [pipeline.sweep(run.spec, run.seed, lab) for runs in groups.values() for run in runs][:2]
    study = gather(groups, "softmax")
    cell = study.line("sigma_f")[-1]
    here = {"attn": "softmax", **cell}
    floor, error = (sum(grid.at(metric=each, **here) for grid in grids) for each in ("floor", "mse-code"))
    assert tables.above_floor(study, "softmax", cell) == f"{1 - floor / error:.0%}"
    assert tables.table(study, groups["softmax"][0].spec).head[-2:] == ["above the floor", "learned?"]


ASKED = ("maximum test.axes.length=8", "linear test.rescale=labels", "linear model.read_in=scaled")


@pytest.mark.parametrize("asked", ASKED)
def test_no_rescaled_row_where_nothing_can_be_rescaled(lab, tiny, asked):
    task, *settings = asked.split()
    assert rescaled.runs_of(runs_of(lab, tiny, "softmax", task, 1, *settings)) == []


def test_a_quantifier_is_rescaled_by_its_inputs(lab, tiny):
    (run,) = rescaled.runs_of(runs_of(lab, tiny, "softmax", "every", 1))
    assert run.spec.test.rescale == "inputs"
    assert run.folder == lab.store.run(run.spec, 0).folder


def test_an_archived_run_is_not_its_rescaled_test(lab, tiny, tmp_path):
    (run,) = runs_of(lab, tiny, "softmax", seeds=1)
    (other,) = rescaled.runs_of([replace(run, copy=ArchivedRun(Archive(tmp_path), run.key))])
    assert other.copy.key == other.key != run.key


@pytest.mark.parametrize(("errors", "wanted"), [([0.1, 0.3], 0.2), ([0.1, math.nan], math.nan)])
def test_the_standard_error_of_the_line_is_the_mean_over_seeds(monkeypatch, errors, wanted):
    """The seeds share their prompts, so that errors do not cancel; where one has none the mean has none."""
    grids = [grid("softmax", lambda sigma, seed: 1.0 + seed, seed) for seed in range(2)]
    for made, error in zip(grids, errors, strict=True):
        made.frame["stderr"] = error
    spec = SimpleNamespace(test=SimpleNamespace(rescale="labels"))
    runs = [SimpleNamespace(finished=True, spec=spec, measured=lambda made=made: (made, None)) for made in grids]
    monkeypatch.setattr(rescaled, "runs_of", lambda runs: runs)
    (line,) = rescaled.tested(runs).values()
    assert set(line.frame["value"]) == {1.5}
    assert line.frame["stderr"].tolist() == pytest.approx([wanted] * len(line.frame), nan_ok=True)
