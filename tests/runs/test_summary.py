"""A finished run in words: what several seeds have in common, and whether anything was learned."""

import math
from types import SimpleNamespace

import pandas as pd
import pytest
import torch

from icl_lab import tasks
from icl_lab.base.grid import Grid
from icl_lab.execute.draw import heat_map
from icl_lab.runs import summary
from icl_lab.runs.spec import resolve

SPEC = resolve("linear", "ssa", "smoke")
TASK = tasks.build("linear")


def grid(seed, ours, zero=2.0):
    """A grid of two cells over sigma_f: training conditions, and one where every error is ten times as large."""
    rows = [
        {"attn": name, "sigma_x": 1.0, "sigma_f": sigma, "length": 40.0, "value": value * scale}
        for name, value in (("ssa", ours), ("reference:zero", zero), ("reference:least-squares", 0.0))
        for sigma, scale in ((1.0, 1), (2.0, 10))
    ]
    who = {"task": "linear", "preset": "smoke", "spec": SPEC.hash, "seed": seed, "stderr": 0.0, "count": 64}
    return Grid.of(rows, ["sigma_x", "sigma_f", "length"], metric=TASK.headline, **who)


@pytest.mark.parametrize(
    ("ours", "learned"), [(0.1, True), (0.49, True), (0.51, False), (1.1, False), (5.0, False), (math.nan, False)]
)
def test_a_quarter_of_a_trivial_error_is_not_learned(ours, learned):
    assert (summary.unlearned([grid(0, ours)], TASK, SPEC) == "") == learned


def test_what_was_not_learned_names_both_errors():
    """Of several seeds the median, as the share of the way is one: the mean of these is 1.24."""
    ending = "1.9 in training conditions, 95% of the way from the best reference (least-squares, 0) to the best that "
    ending += "reads no example (zero, 2); learned is below 25%"
    reason = summary.unlearned([grid(0, 1.9), grid(1, 2.0), grid(2, 0.01)], TASK, SPEC)
    assert reason == f"not learned: median error of 3 seeds {ending}"
    assert summary.unlearned([grid(0, 1.9)], TASK, SPEC) == f"not learned: error {ending}"


def test_answers_that_are_no_numbers_are_no_share_of_a_way():
    for seeds in ((math.nan,), (math.inf,), (0.1, math.inf, math.nan)):
        reason = summary.unlearned([grid(seed, error) for seed, error in enumerate(seeds)], TASK, SPEC)
        assert reason == "not learned: in training conditions its answers are no finite numbers"


def test_the_median_seed_tells_what_was_learned():
    assert summary.unlearned([grid(0, 0.1), grid(1, 0.2), grid(2, 9.0)], TASK, SPEC) == ""
    assert summary.unlearned([grid(0, 0.1), grid(1, 0.9), grid(2, math.nan)], TASK, SPEC) != ""


def test_without_training_conditions_learning_is_not_told():
    """Trained on inputs of standard deviation 3, tested at 1: an error of 5 there is one under a shift."""
    spec = resolve("linear", "ssa", "smoke", ["train.shift.sigma_x=3"])
    lacking = "trained at sigma_x=3, tested at 1"
    assert summary.left_out(grid(0, 5.0), TASK, spec) == lacking
    assert summary.unlearned([grid(0, 5.0)], TASK, spec) == ""
    told = f"in the nearest cell to training conditions ({lacking})"
    assert summary.home(grid(0, 5.0), TASK, spec) == told
    assert f"{told} (sigma_x=1, sigma_f=1, length=40):" in summary.brief(grid(0, 5.0), TASK, spec)
    assert summary.left_out(grid(0, 5.0), TASK, SPEC) == ""
    assert "in training conditions (sigma_x=1, sigma_f=1, length=40):" in summary.brief(grid(0, 5.0), TASK, SPEC)


def test_an_axis_fully_met_in_training_leaves_nothing_out():
    spec, task = resolve("needle", "ssa", "smoke"), tasks.build("needle")
    cell = {"length": float(spec.test.lengths[0]), "depth": 17.0}
    rows = [{"attn": "ssa", **cell, "metric": task.headline, "value": 0.5}]
    who = {"task": "needle", "preset": "smoke", "spec": spec.hash, "seed": 0, "stderr": 0.0, "count": 64}
    assert "depth" in task.facets
    assert summary.left_out(Grid.of(rows, ["length", "depth"], **who), task, spec) == ""


@pytest.mark.parametrize("name", tasks.registry.names())
def test_every_task_names_trivial_references_that_it_has(name):
    task = tasks.build(name)
    assert task.trivial
    assert set(task.trivial) < set(task.references())


def test_several_seeds_are_their_mean_and_standard_deviation():
    *_, row = summary.spread([grid(0, 1.0), grid(1, 3.0)], TASK, SPEC).splitlines()
    assert row == "| 1 | 2.0 ± 1.4 | 20 ± 14 |"


def test_training_conditions_are_the_mean_over_seeds():
    here = summary.errors_in_distribution([grid(0, 1.0), grid(1, 3.0)], TASK, SPEC)
    assert here == {"ssa": 2.0, "reference:zero": 2.0, "reference:least-squares": 0.0}
    shifted = resolve("linear", "ssa", "smoke", ["train.shift.sigma_f=1.8"])  # the nearest cell stands for them
    assert summary.errors_in_distribution([grid(0, 1.0)], TASK, shifted)["ssa"] == 10


def test_cells_with_non_numeric_answers_are_marked():
    """In one cell of training conditions, and in another length, which the picture does not show."""
    frame = grid(0, 0.1).frame
    marks = frame[frame["attn"] == "ssa"].assign(metric="not-finite", value=0.25)
    here = {"sigma_x": 1.0, "sigma_f": 1.0, "length": 40.0}
    far = marks.assign(length=80.0)
    other = frame.assign(length=80.0)
    marked = Grid(pd.concat([frame, marks[marks["sigma_f"] == 2.0], other, far], ignore_index=True))
    assert summary.lost(marked, TASK, here) == {(1.0, 2.0)}
    assert summary.lost(grid(0, 0.1), TASK, here) == set()
    crossed = [patch for patch in heat_map(marked, SPEC).axes[0].patches if patch.get_hatch()]
    assert len(crossed) == 1


@pytest.mark.parametrize(("choice", "mark"), [("every", "balanced-not-finite"), ("every:balance=half", "not-finite")])
def test_marks_of_another_test_set_are_not_those_of_the_headline(choice, mark):
    task = tasks.build(choice)
    axes = {"sigma": 1.0, "length": 10.0}
    who = {"task": "every", "preset": "smoke", "spec": "0", "seed": 0, "stderr": 0.0, "count": 64}
    for metric in ("not-finite", "balanced-not-finite"):
        rows = [{"attn": "ssa", **axes, "metric": each, "value": 0.5} for each in (task.headline, metric)]
        found = summary.lost(Grid.of(rows, list(axes), **who), task, axes)
        assert found == ({(1.0, 10.0)} if metric == mark else set()), metric


def test_the_trivial_error_is_the_least_without_an_example(monkeypatch):
    errors = {"ssa": 0.1, "reference:zero": 2.0, "reference:mean": 1.5, "reference:bayes": 0.01}
    monkeypatch.setattr(summary, "errors_in_distribution", lambda *of: errors)
    assert summary.trivial_error(None, SimpleNamespace(trivial=("zero", "mean")), None) == 1.5


def test_a_length_at_the_end_of_the_curriculum_is_training():
    spec = resolve("linear", "ssa", "smoke", ["test.axes.length=5,41,80"])
    assert spec.train.curriculum.stop == 41
    assert summary.training_cell(TASK, spec) == {"sigma_x": 1.0, "sigma_f": 1.0, "length": 41.0}


def test_errors_are_normalized_only_above_the_best_reference():
    """(1 - 0.5) / (2 - 0.5); unknown where the trivial reference is the best of all, or is not there."""
    values = {"ssa": 1.0, "reference:zero": 2.0, "reference:least-squares": 0.5}
    assert summary.normalized_error(values, "ssa", TASK) == pytest.approx(1 / 3)
    assert summary.normalized_error({**values, "reference:zero": 0.5}, "ssa", TASK) is None
    assert summary.normalized_error({**values, "reference:zero": 0.4}, "ssa", TASK) is None
    del values["reference:zero"]
    assert summary.normalized_error(values, "ssa", TASK) is None


def test_words_about_attention_are_of_the_last_step():
    history = [{"step": step, "score.0": 1.0 * step, "score.1": 0.5, "entropy.0": 2.0 / step} for step in (1, 4)]
    assert summary.attention_words(history) == "largest score by layer 4, 0.5; entropy of attention 0.5 nats"
    assert summary.attention_words([]) == ""


@pytest.mark.parametrize(
    ("bounds", "said"),
    [
        ([2.0], "answers bounded by C = 2 around 0.25"),
        ([1.0, 3.0, 2.0], "outputs bounded by C up to 3"),
        ([math.inf], "no bound on answers (no final norm)"),
    ],
)
def test_the_bound_of_several_outputs_is_the_largest(bounds, said):
    known = torch.full((len(bounds),), 0.25), torch.tensor(bounds)
    assert summary.bound_words(SimpleNamespace(answer_bound=lambda: known)) == said


def test_axes_beside_the_map_are_said_with_their_values():
    assert TASK.heat_map == ("sigma_x", "sigma_f")
    here = {"sigma_x": 1.0, "sigma_f": 1.0, "length": 40.0}
    assert summary.fixed_axes(grid(0, 1.0), TASK, here) == ", length 40"
