"""The clip sweep: errors that are those of a clip are predicted by its bound."""

import math
from itertools import product

import pytest

from icl_lab import tasks
from icl_lab.analyses.boundary import bounds, report
from icl_lab.base.grid import Grid
from icl_lab.comparison.clip import clip_errors
from icl_lab.runs.measure import TestSpec as Spec
from icl_lab.runs.measure import draw


def sweep(run, cuts):
    """The clip sweep of a run, from what the analysis keeps of its test."""
    rows = bounds.sweep_cells(run)
    kept = Grid.of([{**run.labels, "attn": "softmax", **row} for row in rows], ["sigma_x", "sigma_f", "length"])
    return bounds.sweep_of("softmax", run.seed, run.spec, kept, cuts)


@pytest.mark.slow
def test_errors_of_a_clip_are_predicted_by_its_bound(finished):
    run = finished()
    task, spec = tasks.build("linear"), run.spec
    rows = []
    for length, sigma in product((5.0, 12.0), (1.0, 4.0, 10.0)):
        cell = {"sigma_x": 1.0, "sigma_f": sigma, "length": length}
        y = bounds.scored_targets(task, spec.test, cell)
        error = float(clip_errors([y], [3.0])[0, 0]) * (5 if sigma == 1 else 1)  # near training nothing is judged
        rows.append({"attn": "softmax", **cell, "metric": "mse-code", "value": error, "stderr": 0, "count": 64})
    grid = Grid.of(rows, ["sigma_x", "sigma_f", "length"], task="linear", preset="smoke", spec=spec.hash, seed=0)
    (run.folder / "grid.csv").write_text(grid.csv())
    (run.folder / "manifest.json").unlink()
    found = sweep(run, [3.0, math.nan, 6.0])
    assert found.residual(3.0) == pytest.approx(0, abs=1e-6)
    assert found.residual(6.0) > 0.3
    assert math.isnan(found.residual(math.nan))
    assert (found.best.bound, found.sigmas) == (3.0, (1.0, 4.0, 10.0))
    assert report.sweep_table([(found, 3.0, math.nan)])[-1].startswith("| `softmax` | 0 | 3.0 |")
    # Another clip, by hand, from the prompts themselves.
    prompt = draw(task, 12, Spec(prompts=64, axes={"length": [12.0]}), {"sigma_f": 10.0})
    y = prompt.targets[:, ::2][:, 3:]
    assert found.predicted[6.0][2] == pytest.approx((y.abs() - 6).clamp(min=0).square().mean().item(), rel=1e-4)


def test_sweep_without_far_cells_is_left_out(finished):
    assert bounds.sweep_cells(finished(sigmas="1,2")) == []
    assert sweep(finished(sigmas="1,2"), [3.0]) is None


@pytest.mark.slow
def test_zero_answers_err_by_the_mean_square_of_the_labels(finished):
    found = sweep(finished(), [3.0])
    assert found.zero[2] == pytest.approx(100 * found.zero[0], rel=1e-5)  # sigma_f 10 stretches the same functions
    assert all(zero > clipped for zero, clipped in zip(found.zero, found.predicted[3.0], strict=True))
