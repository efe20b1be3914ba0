"""A finished run in words: what several seeds have in common, and whether anything was learned."""

import math

import pytest

from icl_lab import tasks
from icl_lab.grid import Grid
from icl_lab.runs import summary
from icl_lab.runs.spec import resolve

SPEC = resolve("linear", "ssa", "smoke")
TASK = tasks.build("linear")


def grid(seed, ours, zero=2.0):
    """A grid of two cells over sigma_f: training conditions, and one where every error is ten times as large."""
    rows = [
        {
            "attn": name,
            "sigma_x": 1.0,
            "sigma_f": sigma,
            "length": 40.0,
            "metric": TASK.headline,
            "value": value * scale,
        }
        for name, value in (("ssa", ours), ("reference:zero", zero), ("reference:least-squares", 0.0))
        for sigma, scale in ((1.0, 1), (2.0, 10))
    ]
    who = {"task": "linear", "preset": "smoke", "spec": SPEC.hash, "seed": seed, "stderr": 0.0, "count": 64}
    return Grid.of(rows, ["sigma_x", "sigma_f", "length"], **who)


@pytest.mark.parametrize(
    ("ours", "learned"), [(0.1, True), (1.79, True), (1.81, False), (5.0, False), (math.nan, False)]
)
def test_a_rule_has_learned_what_errs_less_than_the_trivial_reference(ours, learned):
    assert (summary.unlearned([grid(0, ours)], TASK, SPEC) == "") == learned


def test_what_was_not_learned_names_both_errors():
    reason = summary.unlearned([grid(0, 1.9), grid(1, 2.1)], TASK, SPEC)
    assert reason.startswith("not learned: error in training conditions 2, the best trivial reference (zero) 2;")


@pytest.mark.parametrize("name", tasks.registry.names())
def test_every_task_names_trivial_references_that_it_has(name):
    task = tasks.build(name)
    assert task.trivial
    assert set(task.trivial) < set(task.references())


def test_several_seeds_are_their_mean_and_standard_deviation():
    *_, row = summary.spread([grid(0, 1.0), grid(1, 3.0)], TASK, SPEC).splitlines()
    assert row.split() == ["1", "2.0", "±", "1.4", "20", "±", "14"]


def test_training_conditions_are_the_mean_over_seeds():
    here = summary.at_home([grid(0, 1.0), grid(1, 3.0)], TASK, SPEC)
    assert here == {"ssa": 2.0, "reference:zero": 2.0, "reference:least-squares": 0.0}
