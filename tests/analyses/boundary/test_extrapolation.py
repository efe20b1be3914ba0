"""Answers far from the examples: predictors whose bounds are known, and which values are asked for."""

import math

import numpy as np
import pytest
import torch

from icl_lab import tasks
from icl_lab.analyses.boundary import curves
from icl_lab.analyses.boundary.curves import Line, lines, spread
from icl_lab.base.errors import BadValue
from icl_lab.runs.measure import Subject
from icl_lab.tasks.linear import TRAINING_RANGE


def seen(reference, line, truth=None, count=16):
    task = tasks.build("linear")
    truth = curves.truths(40.0) if truth is None else truth
    return truth, curves.extrapolate(Subject(task.references()[reference]), task, line, truth, count)


@pytest.mark.parametrize("line", [Line(1), Line(10, 3, 0.3), Line(-9, -2, 3)])
def test_references_have_their_known_bounds(line):
    """Least squares follows the line everywhere, a clip bounds the output: whatever the slope and the context."""
    truth, answers = seen("least-squares", line)
    assert answers == pytest.approx(np.broadcast_to(truth, answers.shape), rel=1e-3, abs=0.01)
    _, cut = seen("clip", line)
    assert cut == pytest.approx(np.broadcast_to(truth.clip(-TRAINING_RANGE, TRAINING_RANGE), cut.shape), abs=0.01)


def test_nearest_neighbours_are_bounded_by_the_examples():
    truth, near = seen("3-nn", Line(1))
    _, steep = seen("3-nn", Line(10), 10 * truth)
    _, narrow = seen("3-nn", Line(1, scale=0.3))
    assert steep == pytest.approx(10 * near, rel=1e-3, abs=1e-3)
    assert narrow[:, [0, -1]] == pytest.approx(0.3 * near[:, [0, -1]], rel=1e-3)


def test_more_contexts_keep_the_first_ones():
    assert torch.equal(curves.contexts(32, 39)[:16], curves.contexts(16, 39))
    many = curves.contexts(400, 39)
    assert (many.mean().item(), many.std().item()) == pytest.approx((0, 1), abs=0.02)
    assert len(torch.unique(many[:, 0])) == 400


def test_true_values_reach_a_thousand():
    truth = curves.truths(40.0)
    assert (np.diff(truth) > 0).all()
    assert truth == pytest.approx(-truth[::-1])
    assert ((truth > 0) & (truth <= 40)).sum() == 100
    assert (truth[-1], truth[106]) == (pytest.approx(1000), 0)
    assert len(curves.truths(2000.0)) == 201


def test_a_context_has_39_examples_before_its_query():
    asked = []

    def see(prompt):
        asked.append(prompt.tokens.shape[1])
        return torch.zeros(*prompt.tokens.shape[:2], 1)

    curves.extrapolate(Subject(see), tasks.build("linear"), Line(2.0), np.array([1.0, 2.0]), 2)
    assert asked == [2 * 40]


def test_lines_are_written_as_functions():
    assert [str(Line(*each)) for each in ((1,), (9,), (-1, 2), (10, -3))] == ["x", "9x", "-x + 2", "10x - 3"]
    assert lines([1, 1, 3], [0], [1]) == [Line(1), Line(3)]


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        (([0.0], [0], [1]), "a slope must not be 0"),
        (([1.0], [math.inf], [1]), "intercepts must be finite, got inf"),
        (([math.nan], [0], [1]), "slopes must be finite, got nan"),
        (([1.0], [0], [0.0]), "scales of the inputs must be > 0"),
        (([1.0], [0], []), "scales must be at least one number, got none"),
        (([], [0], [1]), "slopes must be at least one number, got none"),
    ],
)
def test_bad_lines_are_refused(bad, words):
    with pytest.raises(BadValue, match=words):
        lines(*bad)


def test_spread_follows_the_training_distribution(tiny):
    wider = tiny("linear", "softmax", "train.shift.sigma_f=10")
    assert spread(wider) == pytest.approx(10 * spread(tiny("linear")))
    assert spread(tiny("linear")) == pytest.approx(math.sqrt(2))
    prompt = tasks.build("linear").sample(torch.Generator().manual_seed(1), 200_000, 1)
    assert prompt.targets.square().mean().sqrt().item() == pytest.approx(spread(tiny("linear")), rel=0.01)
