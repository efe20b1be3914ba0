"""Bounds over seeds: which are typical, how they grow, and errors of a clip, which they predict."""

import math
from itertools import product

import pytest

from icl_lab import tasks
from icl_lab.analyses.boundary import bounds, curves, report
from icl_lab.analyses.boundary.curves import Line
from icl_lab.base.grid import Grid
from icl_lab.comparison.clip import clip_errors
from icl_lab.runs.measure import TestSpec as Spec
from icl_lab.runs.measure import draw


@pytest.mark.parametrize(
    ("law", "alpha", "gamma", "reading"),
    [
        (lambda a, c: 9.0, 0, 0, "nearer to a bound on the output"),
        (lambda a, c: 2.0 * a, 1, 0, "nearer to a bound on the input"),
        (lambda a, c: 2.0 * a * c, 1, 1, "nearer to a bound on the input"),
    ],
)
def test_growth_recovers_planted_exponents(planted, law, alpha, gamma, reading):
    wobble = [lambda a, c, s=s: law(a, c) * a**s for s in (-0.02, 0.0, 0.02)]
    found = planted(wobble, slopes=(1.0, 3.0, 10.0), scales=(1.0, 0.3))
    assert [each[0] for each in found.growth("softmax")] == pytest.approx([alpha - 0.02, alpha, alpha + 0.02], abs=1e-6)
    assert [each[1] for each in found.growth("softmax")] == pytest.approx([gamma] * 3, abs=1e-6)
    assert report._control(found)[-1].endswith(f"{reading} |")


def test_the_largest_number_of_a_prompt_by_hand():
    """Queries of answers up to 1,000; inputs of six standard deviations, and their labels."""
    assert curves.largest(Line(1), 5) == 1000
    assert curves.largest(Line(0.01, 1), 5) == pytest.approx(100_100)
    assert curves.largest(Line(0.5, 1, 1000), 5) == 6000
    assert curves.largest(Line(2, 1, 1000), 5) == 12_001


def test_growth_leaves_out_curves_without_a_bound(planted):
    law = lambda a, c: 5.0 * a if a < 5 else math.nan  # noqa: E731
    (alpha, gamma, used), *_ = planted([law], slopes=(1.0, 3.0, 10.0)).growth("softmax")
    assert (alpha, used) == (pytest.approx(1), 4)
    assert math.isnan(gamma)
    (alpha, _, used), *_ = planted([law], slopes=(1.0, 10.0)).growth("softmax")
    assert math.isnan(alpha)
    assert used == 2


def test_typical_bound_is_a_median_in_plain_contexts(planted):
    found = planted([lambda a, c: 5.0 * a * c], slopes=(1.0, 3.0), scales=(0.3, 1.0))
    frame = found.first.frame
    frame.loc[(frame["side"] == 1) & (frame["metric"] == "bound"), "value"] *= 3
    assert found.typical("softmax", 0) == 15  # the median of 5 and 15 on the left, 15 and 45 on the right
    assert math.isnan(planted([math.nan]).typical("softmax", 0))


def test_both_sides_are_averaged_where_both_have_a_bound(planted):
    found = planted([10.0, 12.0])
    frame = found.first.frame
    frame.loc[(frame["side"] == 1) & (frame["metric"] == "bound") & (frame["seed"] == 0), "value"] = 20
    frame.loc[(frame["side"] == 1) & (frame["metric"] == "bound") & (frame["seed"] == 1), "value"] = math.nan
    assert found.both("softmax", 1.0, 1.0) == [15, 12]
    assert found.plain == [Line(1)]
    assert (found.reach, found.contexts) == (40, 16)


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
