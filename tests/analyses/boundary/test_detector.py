"""Curves of boundary values: lines, answers far from the examples, and the detector on simulated curves."""

import math

import numpy as np
import pytest
import torch

from icl_lab import tasks
from icl_lab.analyses.boundary import curves as detector
from icl_lab.analyses.boundary.curves import Line, lines, spread
from icl_lab.base.errors import BadValue
from icl_lab.runs.measure import Subject
from icl_lab.tasks.linear import TRAINING_RANGE

B = 10.0
T = np.linspace(0, 40, 101)[1:]
C = 4 * B / 3
SHAPES = {
    "clip": np.minimum(T, B),
    "tanh": B * np.tanh(T / B),
    "smooth clip": T / (1 + (T / B) ** 4) ** 0.25,
    "collapse": T / (1 + (T / C) ** 4 / 3),
    "sharp collapse": np.where(T < B, T, B * np.exp(1 - T / B)),
    "log": B * np.log1p(T / B),
    "square root": np.where(T < B / 4, T, np.sqrt(B * T / 4)),
    "identity": T,
}


def noisy(curve, rng, point=0.5, context=0.4, contexts=16):
    return curve + point * rng.normal(size=(contexts, len(curve))) + context * rng.normal(size=(contexts, 1))


def kind(found):
    return detector.CLASSES[int(found["class"])]


def rates(shape, repeats=30):
    """One line of the docstring's table, from ``repeats`` simulated curves."""
    rng = np.random.default_rng(0)
    seen = [detector.detect(T, noisy(SHAPES[shape], rng), seed=i, resamples=200) for i in range(repeats)]
    kinds = [kind(each) for each in seen]
    most = max(dict.fromkeys(kinds), key=kinds.count)
    bounds, starts = (np.array([each[name] for each in seen]) for name in ("bound", "onset"))
    covered = sum(each["bound-low"] <= B <= each["bound-high"] for each in seen)
    spoken = f"{np.median(bounds):.1f} ± {bounds.std():.1f}" if not np.isnan(bounds).any() else "none"
    start = f"{np.median(starts):.1f} ± {starts.std():.1f}"
    held = f"{covered}/30" if spoken != "none" else ""
    return f"{shape:<15}{most} {kinds.count(most)}/{repeats}".ljust(37) + f"{spoken:<13}{start:<13}{held}".rstrip()


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.slow
def test_rates_are_those_of_the_docstring(shape):
    assert f"        {rates(shape)}\n" in detector.detect.__doc__


def bump(points):
    """A line that leaves the truth for some points, and comes back."""
    away = np.zeros(100)
    away[50 : 50 + points] = 0.25 * T[50 : 50 + points]
    return (T + away)[None]


def test_onset_precedes_five_bad_points_in_a_row():
    assert detector.onsets(T, bump(4), np.zeros(100))[0] == T[-1]
    assert detector.onsets(T, bump(5), np.zeros(100))[0] == T[49]
    assert detector.onsets(T, T[None] + 1, np.zeros(100))[0] == 0  # wrong from the first point on
    late = np.where(T > 36, 0.0, T)[None]
    assert detector.onsets(T, late, np.zeros(100))[0] == pytest.approx(36)
    # Three standard errors are no departure, more are.
    error = np.full(100, 5.0)
    assert detector.onsets(T, T[None] + 14.9, error)[0] == T[-1]
    assert detector.onsets(T, T[None] + 15.1, error)[0] == 0


def test_smoothing_keeps_lines_and_shrinks_at_the_ends():
    x = np.random.default_rng(0).normal(size=(3, 40))
    found = detector.smooth(x)
    assert found[:, 7] == pytest.approx(x[:, 5:10].mean(1))
    assert found[:, 1] == pytest.approx(x[:, 0:3].mean(1))
    assert found[:, [0, -1]] == pytest.approx(x[:, [0, -1]])
    assert detector.smooth(T[None])[0] == pytest.approx(T)


@pytest.mark.parametrize("shape", SHAPES)
def test_clip_bound_minimises_the_squared_distance(shape):
    curve = noisy(SHAPES[shape], np.random.default_rng(3), contexts=1)
    found = detector.clip_bounds(T, curve)[0]
    tries = np.linspace(0, T[-1], 4001)
    costs = ((curve[0] - np.minimum(T, tries[:, None])) ** 2).sum(1)
    assert found == pytest.approx(tries[costs.argmin()], abs=0.011)


def one(curve, seed=0, **noise):
    return detector.detect(T, noisy(curve, np.random.default_rng(seed), **noise), resamples=100)


def test_sides_are_judged_separately():
    t = np.concatenate([-T[::-1], [0.0], T])
    curves = noisy(np.minimum(t, B), np.random.default_rng(0))
    minus, plus = (detector.detect(*part) for part in detector.sides(t, curves).values())
    assert (kind(minus), kind(plus)) == ("none in range", "plateau")
    assert plus["bound-low"] < B < plus["bound-high"]
    # The other way round it is the same: both sides are given as sizes.
    turned = detector.detect(*detector.sides(t, -curves[:, ::-1])[1])
    assert (kind(turned), turned["onset"], turned["clip"]) == (kind(minus), minus["onset"], minus["clip"])
    mirrored = detector.detect(*detector.sides(t, -curves[:, ::-1])[-1])
    assert mirrored["bound"] == plus["bound"]


def test_bound_near_the_end_of_the_range_is_not_detected():
    found = one(np.minimum(T, 38))
    assert (kind(found), found["onset"], found["reach"]) == ("none in range", 40, 40)
    assert math.isnan(found["bound"])
    assert math.isnan(found["bound-high"])
    inside = one(np.minimum(T, 25))
    assert kind(inside) == "plateau"
    assert inside["bound"] == pytest.approx(25, abs=0.3)
    # Between the two it has not been flat for long enough to be told from what still rises.
    assert kind(one(np.minimum(T, 30))) == "sublinear"


def test_noisy_curves_are_unclear_not_unbounded():
    assert kind(one(T, point=0.5, context=20.0)) == "unclear"
    assert kind(one(T, point=0.5, context=1.5)) == "none in range"


def test_classes_of_flat_sinking_and_rising_curves():
    nothing = one(0 * T, context=0.05)
    assert kind(nothing) == "plateau"
    assert nothing["bound"] == pytest.approx(0, abs=0.1)
    slow = one(np.where(T < B, T, B - 0.06 * (T - B)))  # sinks by less than a fifth, but has not stopped
    assert slow["tail"] > 0.8 * slow["peak"]
    assert (kind(slow), slow["bound"]) == ("collapse", slow["peak"])
    line = one(0.6 * T)
    assert kind(line) == "sublinear"
    assert line["exponent"] == pytest.approx(1, abs=0.1)
    assert (line["onset"], line["agreement"]) == (pytest.approx(0.6, abs=1), 1)


def test_agreement_is_low_where_contexts_disagree():
    """Half of the contexts collapse, half stay: the median is decided by who is drawn."""
    halves = [noisy(SHAPES[shape], np.random.default_rng(seed)) for seed, shape in enumerate(("collapse", "clip"))]
    assert detector.detect(T, np.concatenate(halves))["agreement"] < 0.95
    assert one(SHAPES["clip"])["agreement"] == 1


@pytest.mark.parametrize(
    ("t", "curves", "words"),
    [
        (T, np.zeros((15, 100)), "at least 16 contexts, got 15"),
        (T[:39], np.zeros((16, 39)), "at least 40 points a side, got 39"),
        (T - 1, np.zeros((16, 100)), "t must ascend from above 0"),
        (T[::-1], np.zeros((16, 100)), "t must ascend from above 0"),
        (T, np.zeros((16, 99)), "curves are"),
        (T, np.full((16, 100), np.nan), "answers must be finite; 1600 are not"),
    ],
)
def test_bad_curves_are_refused(t, curves, words):
    with pytest.raises(BadValue, match=words):
        detector.detect(t, curves)


def seen(reference, line, truth=None, count=16):
    task = tasks.build("linear")
    truth = detector.truths(40.0) if truth is None else truth
    return truth, detector.extrapolate(Subject(task.references()[reference]), task, line, truth, count)


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
    assert torch.equal(detector.contexts(32, 39)[:16], detector.contexts(16, 39))
    many = detector.contexts(400, 39)
    assert (many.mean().item(), many.std().item()) == pytest.approx((0, 1), abs=0.02)
    assert len(torch.unique(many[:, 0])) == 400


def test_true_values_reach_a_thousand():
    truth = detector.truths(40.0)
    assert (np.diff(truth) > 0).all()
    assert truth == pytest.approx(-truth[::-1])
    assert ((truth > 0) & (truth <= 40)).sum() == 100
    assert (truth[-1], truth[106]) == (pytest.approx(1000), 0)
    assert len(detector.truths(2000.0)) == 201


def test_a_context_has_39_examples_before_its_query():
    asked = []

    def see(prompt):
        asked.append(prompt.tokens.shape[1])
        return torch.zeros(*prompt.tokens.shape[:2], 1)

    detector.extrapolate(Subject(see), tasks.build("linear"), Line(2.0), np.array([1.0, 2.0]), 2)
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
