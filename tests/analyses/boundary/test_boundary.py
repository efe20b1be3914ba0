"""Boundary values: a detector held to simulated curves, curves of models whose bound is known, tables and pictures."""

import math

import numpy as np
import pytest
import torch

from icl_lab import tasks
from icl_lab.analyses.boundary import clip, detector, extrapolation, report, study
from icl_lab.analyses.boundary.extrapolation import Line
from icl_lab.comparison.statistics import clip_errors
from icl_lab.errors import BadValue, Stopped
from icl_lab.figures import bounds as pictures
from icl_lab.grid import Grid
from icl_lab.runs.measure import Subject, draw
from icl_lab.runs.measure import TestSpec as Spec
from icl_lab.sweep import load_or_train, sweep
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


def rates(shape, repeats=30):
    """One line of the docstring's table, from ``repeats`` simulated curves."""
    rng = np.random.default_rng(0)
    seen = [detector.detect(T, noisy(SHAPES[shape], rng), seed=i, resamples=200) for i in range(repeats)]
    kinds = [each.kind for each in seen]
    most = max(dict.fromkeys(kinds), key=kinds.count)
    bounds, starts = (np.array([getattr(each, name).value for each in seen]) for name in ("bound", "onset"))
    covered = sum(each.bound.low <= B <= each.bound.high for each in seen)
    spoken = f"{np.median(bounds):.1f} ± {bounds.std():.1f}" if not np.isnan(bounds).any() else "none"
    start = f"{np.median(starts):.1f} ± {starts.std():.1f}"
    held = f"{covered}/30" if spoken != "none" else ""
    return f"{shape:<15}{most} {kinds.count(most)}/{repeats}".ljust(37) + f"{spoken:<13}{start:<13}{held}".rstrip()


@pytest.mark.parametrize("shape", SHAPES)
def test_the_rates_are_those_that_the_docstring_states(shape):
    assert f"        {rates(shape)}\n" in detector.detect.__doc__


def held(shape="clip"):
    """The rates as an assertion, to be made to fail."""
    assert rates(shape, 30) in detector.detect.__doc__


def bump(points):
    """A line that leaves the truth for some points, and comes back."""
    away = np.zeros(100)
    away[50 : 50 + points] = 0.25 * T[50 : 50 + points]
    return (T + away)[None]


def four_points_are_no_onset():
    assert detector.onsets(T, bump(4), np.zeros(100))[0] == T[-1]


def test_an_onset_is_the_last_good_point_before_five_bad_ones():
    four_points_are_no_onset()
    assert detector.onsets(T, bump(5), np.zeros(100))[0] == T[49]
    assert detector.onsets(T, T[None] + 1, np.zeros(100))[0] == 0  # wrong from the first point on
    late = np.where(T > 36, 0.0, T)[None]
    assert detector.onsets(T, late, np.zeros(100))[0] == pytest.approx(36)
    # Three standard errors are no departure, more are.
    error = np.full(100, 5.0)
    assert detector.onsets(T, T[None] + 14.9, error)[0] == T[-1]
    assert detector.onsets(T, T[None] + 15.1, error)[0] == 0


def faulty(monkeypatch, fault):
    if fault == "three points":
        monkeypatch.setattr(detector, "RUN", 3)
        return four_points_are_no_onset
    if fault == "no smoothing":
        monkeypatch.setattr(detector, "SMOOTH", 1)
        return lambda: held("sharp collapse")
    plain = detector.detect

    def highest(t, curves, **more):
        found = plain(t, curves, **more)
        top = float(np.median(curves, axis=0).max())
        return detector.Boundary(**{**vars(found), "bound": detector.Interval(top, top, top)})

    highest.__doc__ = plain.__doc__
    monkeypatch.setattr(detector, "detect", highest)
    return held


@pytest.mark.parametrize("fault", ["three points", "no smoothing", "raw maximum"])
def test_a_fault_would_be_seen(monkeypatch, fault):
    check = faulty(monkeypatch, fault)
    with pytest.raises(AssertionError):
        check()


def test_the_smoothed_curve_keeps_lines_and_does_not_reach_over_the_ends():
    x = np.random.default_rng(0).normal(size=(3, 40))
    found = detector.smooth(x)
    assert found[:, 7] == pytest.approx(x[:, 5:10].mean(1))
    assert found[:, 1] == pytest.approx(x[:, 0:3].mean(1))
    assert found[:, [0, -1]] == pytest.approx(x[:, [0, -1]])
    assert detector.smooth(T[None])[0] == pytest.approx(T)


@pytest.mark.parametrize("shape", SHAPES)
def test_the_clip_bound_is_the_least_of_all(shape):
    curve = noisy(SHAPES[shape], np.random.default_rng(3), contexts=1)
    found = detector.clips(T, curve)[0]
    tries = np.linspace(0, T[-1], 4001)
    costs = ((curve[0] - np.minimum(T, tries[:, None])) ** 2).sum(1)
    assert found == pytest.approx(tries[costs.argmin()], abs=0.011)


def one(curve, seed=0, **noise):
    return detector.detect(T, noisy(curve, np.random.default_rng(seed), **noise), resamples=100)


def test_a_bound_of_one_side_only():
    t = np.concatenate([-T[::-1], [0.0], T])
    curves = noisy(np.minimum(t, B), np.random.default_rng(0))
    minus, plus = (detector.detect(*part) for part in detector.sides(t, curves).values())
    assert (minus.kind, plus.kind) == ("none in range", "plateau")
    assert math.isnan(minus.bound.value)
    assert plus.bound.low < B < plus.bound.high
    # The other way round it is the same: both sides are given as sizes.
    turned = detector.detect(*detector.sides(t, -curves[:, ::-1])[1])
    assert (turned.kind, turned.onset, turned.clip) == (minus.kind, minus.onset, minus.clip)
    mirrored = detector.detect(*detector.sides(t, -curves[:, ::-1])[-1])
    assert mirrored.bound == plus.bound


def test_a_bound_that_is_hardly_reached_is_censored():
    found = one(np.minimum(T, 38))
    assert (found.kind, found.onset.value, found.reach) == ("none in range", 40, 40)
    assert math.isnan(found.bound.value)
    assert math.isnan(found.bound.high)
    inside = one(np.minimum(T, 25))
    assert inside.kind == "plateau"
    assert inside.bound.value == pytest.approx(25, abs=0.3)
    # Between the two it has not been flat for long enough to be told from what still rises.
    assert one(np.minimum(T, 30)).kind == "sublinear"


def test_noise_that_hides_every_departure_is_not_taken_for_the_truth():
    assert one(T, point=0.5, context=20.0).kind == "unclear"
    assert one(T, point=0.5, context=1.5).kind == "none in range"


def test_what_is_flat_what_sinks_and_what_rises_otherwise():
    nothing = one(0 * T, context=0.05)
    assert nothing.kind == "plateau"
    assert nothing.bound.value == pytest.approx(0, abs=0.1)
    slow = one(np.where(T < B, T, B - 0.06 * (T - B)))  # sinks by less than a fifth, but has not stopped
    assert slow.tail > 0.8 * slow.peak
    assert (slow.kind, slow.bound.value) == ("collapse", slow.peak)
    line = one(0.6 * T)
    assert line.kind == "sublinear"
    assert line.exponent == pytest.approx(1, abs=0.1)
    assert (line.onset.value, line.agreement) == (pytest.approx(0.6, abs=1), 1)


def test_a_class_that_hangs_on_the_contexts_says_so():
    """Half of the contexts collapse, half stay: the median is decided by who is drawn."""
    curves = np.concatenate(
        [noisy(SHAPES["collapse"], np.random.default_rng(0)), noisy(SHAPES["clip"], np.random.default_rng(1))]
    )
    assert detector.detect(T, curves).agreement < 0.95
    assert one(SHAPES["clip"]).agreement == 1


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
def test_curves_that_cannot_be_judged(t, curves, words):
    with pytest.raises(BadValue, match=words):
        detector.detect(t, curves)


def seen(reference, line, truth=None, count=16):
    task = tasks.build("linear")
    truth = extrapolation.truths(40.0) if truth is None else truth
    return truth, extrapolation.extrapolate(Subject(task.references()[reference]), task, line, truth, count)


@pytest.mark.parametrize("line", [Line(1), Line(10, 3, 0.3), Line(-9, -2, 3)])
def test_predictors_with_known_bounds(line):
    """Least squares follows the line everywhere, a clip bounds the output: whatever the slope and the context."""
    truth, answers = seen("least-squares", line)
    assert answers == pytest.approx(np.broadcast_to(truth, answers.shape), rel=1e-3, abs=0.01)
    _, cut = seen("clip", line)
    assert cut == pytest.approx(np.broadcast_to(truth.clip(-TRAINING_RANGE, TRAINING_RANGE), cut.shape), abs=0.01)


def test_the_nearest_neighbours_are_bounded_by_the_examples():
    truth, near = seen("3-nn", Line(1))
    _, steep = seen("3-nn", Line(10), 10 * truth)
    _, narrow = seen("3-nn", Line(1, scale=0.3))
    assert steep == pytest.approx(10 * near, rel=1e-3, abs=1e-3)
    assert narrow[:, [0, -1]] == pytest.approx(0.3 * near[:, [0, -1]], rel=1e-3)


def test_contexts_are_the_same_for_all_and_more_of_them_keep_the_first():
    assert torch.equal(extrapolation.contexts(32, 39)[:16], extrapolation.contexts(16, 39))
    many = extrapolation.contexts(400, 39)
    assert (many.mean().item(), many.std().item()) == pytest.approx((0, 1), abs=0.02)
    assert len(torch.unique(many[:, 0])) == 400


def test_the_query_grid_reaches_a_thousand():
    truth = extrapolation.truths(40.0)
    assert (np.diff(truth) > 0).all()
    assert truth == pytest.approx(-truth[::-1])
    assert ((truth > 0) & (truth <= 40)).sum() == 100
    assert (truth[-1], truth[106]) == (pytest.approx(1000), 0)
    assert len(extrapolation.truths(2000.0)) == 201


def test_lines_are_named_as_functions_and_bad_ones_refused():
    assert [str(Line(*each)) for each in ((1,), (9,), (-1, 2), (10, -3))] == ["x", "9x", "-x + 2", "10x - 3"]
    assert extrapolation.lines([1, 1, 3], [0], [1]) == [Line(1), Line(3)]
    for bad, words in (
        (([0.0], [0], [1]), "a slope must not be 0"),
        (([1.0], [math.inf], [1]), "intercepts must be finite"),
        (([math.nan], [0], [1]), "slopes must be finite"),
        (([1.0], [0], [0.0]), "scales of the inputs must be > 0"),
    ):
        with pytest.raises(BadValue, match=words):
            extrapolation.lines(*bad)


def trained(tiny, lab, attn="softmax", seed=0, task="linear"):
    spec = tiny(task, attn, "train.steps=5", "test.axes.sigma_f=1,4,10", "test.axes.sigma_x=1")
    sweep(spec, seed, lab)
    return lab.store.run(spec, seed)


def test_boundaries_of_finished_runs(tiny, lab, tmp_path, monkeypatch):
    monkeypatch.setattr(extrapolation, "SIDE", 40)  # as thin as the detector takes it
    groups = {"softmax": [trained(tiny, lab, seed=seed) for seed in (0, 1)], "average": [trained(tiny, lab, "average")]}
    asked = extrapolation.lines([1, 3], [0], [1, 0.3])
    found = study.follow(groups, lab, asked, 16)
    assert found.rules == ["softmax", "average"]
    assert found.lines == asked
    assert found.plain == [Line(1), Line(3)]
    assert len(found.values("softmax", Line(3), 1, "bound")) == 2
    assert found.kinds("reference:least-squares", Line(3), -1) == ["none in range"]
    assert found.values("reference:clip", Line(1), 1, "bound") == [pytest.approx(TRAINING_RANGE, abs=1e-3)]
    assert found.growth("reference:clip")[0][:2] == (pytest.approx(0, abs=1e-4), pytest.approx(0, abs=1e-4))
    assert found.growth("reference:3-nn")[0] == (pytest.approx(1, abs=0.02), pytest.approx(1, abs=0.02), 8)
    assert math.isnan(found.growth("reference:least-squares")[0][0])
    # What is written is what was found.
    sweeps = study.sweeps(found, groups)
    text, files = report.publish(found, sweeps, groups["softmax"][0].spec, tmp_path / "b", "icl-lab boundary")
    assert set(files) >= {"curves.csv", "boundary.csv", "table.md", "boundary.png", "boundary.svg"}
    assert (tmp_path / "b" / "table.md").read_text() == text
    again = study.Boundaries(Grid.read(tmp_path / "b" / "curves.csv"), Grid.read(tmp_path / "b" / "boundary.csv"))
    assert report.markdown(again, sweeps, groups["softmax"][0].spec, "icl-lab boundary") == text
    assert "| `softmax` | 1 | 3x |" in text
    assert "### The sweep over functions that B predicts" in text
    row = next(line for line in text.splitlines() if line.startswith("| reference:clip"))
    assert row.count("| 4.19 ") == 4


def test_models_are_asked_as_they_are(tiny, lab):
    """The curve is the model's own answer after the same examples, each query by itself."""
    run = trained(tiny, lab)
    found = study.follow({"softmax": [run]}, lab, [Line(3, 1)], 16)
    model, task = load_or_train(run, lab), tasks.build("linear")
    known = extrapolation.contexts(16, min(39, run.spec.train.longest - 1))
    x = torch.cat((known, torch.full((16, 1), (40.0 - 1) / 3)), 1)
    prompt = task.prompt(x, torch.full((16, 1), 3.0), torch.ones(16, 1))
    with torch.no_grad():
        answers = model(prompt.tokens)[:, -2, 0]
    assert prompt.targets[:, -2].tolist() == pytest.approx([40.0] * 16)
    assert found.curves.at(slope=3, target=40) == pytest.approx(np.median(answers.numpy()), rel=1e-3)


def planted(bounds, kind=1, rule="softmax", slopes=(1.0,), scales=(1.0,)):
    """Boundaries with given bounds, one a seed, on both sides of every line."""
    rows = []
    for seed, value in enumerate(bounds):
        for slope in slopes:
            for scale in scales:
                b = value(slope, scale) if callable(value) else value
                code = 0 if math.isnan(b) else kind
                numbers = {
                    "class": code,
                    "bound": b,
                    "bound-low": b - 1,
                    "bound-high": b + 1,
                    "clip": 7.0,
                    "onset": 5.0,
                }
                numbers |= {"agreement": 0.9, "exponent": 0.5, "reach": 40.0, "far": 2.0}
                for side in (-1, 1):
                    rows += [
                        {"attn": rule, "seed": seed, "slope": slope, "intercept": 0, "scale": scale, "side": side}
                        | {"metric": metric, "value": v, "stderr": None, "count": 16}
                        for metric, v in numbers.items()
                    ]
    grid = Grid.of(rows, [*study.AXES, "side"], task="linear", preset="smoke", spec="0")
    return study.Boundaries(grid, grid)


def claims(found):
    return report._claims(found, "softmax", Line(1), 1)


def test_a_claim_over_seeds():
    # 10 +- t(2) sd / sqrt 3 = 4.303 / 1.732
    assert claims(planted([9.0, 10.0, 11.0])) == ["plateau 3", "5", "10 [7.52, 12.5]", "7"]
    assert claims(planted([9.0, math.nan, 11.0])) == [
        "plateau 2, none in range 1",
        "5",
        "10 (2 of 3 seeds)",
        "7",
    ]
    assert claims(planted([math.nan] * 2))[:3] == ["none in range 2", "5", "> 40"]
    assert claims(planted([10.0]))[2] == "10"
    assert report._each(planted([10.0]), "softmax", Line(1), 1, 0) == "plateau 10 [9, 11] (90%)"
    assert report._each(planted([math.nan]), "softmax", Line(1), -1, 0) == "> 40 (90%)"


def test_rules_are_compared_over_the_seeds_that_both_have():
    first, other = planted([8.0, 10.0, 12.0]), planted([16.0, 20.0, 27.0], rule="ssa")
    grid = Grid.join([first.found, other.found])
    # log ratios log 2, log 2, log 2.25: mean 0.7324, t(2) sd / sqrt 3 = 4.303 * 0.0680 / 1.732 = 0.1690
    assert report._against(study.Boundaries(grid, grid))[-1] == "| `ssa` | 2.08 [1.76, 2.46] | 1 [1, 1] | 3 |"
    uneven = Grid.join([first.found, planted([16.0, 30.0], rule="ssa").found])
    # log 2 and log 3: their mean is log sqrt 6
    assert report._against(study.Boundaries(uneven, uneven))[-1].startswith("| `ssa` | 2.45 [")
    missing = Grid.join([first.found, planted([math.nan, 8.0], rule="ssa").found])
    assert report._against(study.Boundaries(missing, missing))[-1].startswith("| `ssa` | none | 1 ")


@pytest.mark.parametrize(
    ("law", "alpha", "gamma", "reading"),
    [
        (lambda a, c: 9.0, 0, 0, "nearer to a bound on the output"),
        (lambda a, c: 2.0 * a, 1, 0, "nearer to a bound on the input"),
        (lambda a, c: 2.0 * a * c, 1, 1, "nearer to a bound on the input"),
    ],
)
def test_slopes_and_contexts_tell_what_is_bounded(law, alpha, gamma, reading):
    wobble = [lambda a, c, s=s: law(a, c) * a**s for s in (-0.02, 0.0, 0.02)]
    found = planted(wobble, slopes=(1.0, 3.0, 10.0), scales=(1.0, 0.3))
    assert [each[0] for each in found.growth("softmax")] == pytest.approx([alpha - 0.02, alpha, alpha + 0.02], abs=1e-6)
    assert [each[1] for each in found.growth("softmax")] == pytest.approx([gamma] * 3, abs=1e-6)
    assert report._control(found)[-1].endswith(f"{reading} |")


def test_a_censored_bound_is_left_out_of_the_exponent():
    """A bound beyond the range at the steepest slope is not known, so the others speak."""
    law = lambda a, c: 5.0 * a if a < 5 else math.nan  # noqa: E731
    (alpha, gamma, used), *_ = planted([law], slopes=(1.0, 3.0, 10.0)).growth("softmax")
    assert (alpha, used) == (pytest.approx(1), 4)
    assert math.isnan(gamma)
    (alpha, _, used), *_ = planted([law], slopes=(1.0, 10.0)).growth("softmax")
    assert math.isnan(alpha)
    assert used == 2


def test_the_typical_bound_is_that_of_plain_contexts_on_both_sides():
    found = planted([lambda a, c: 5.0 * a * c], slopes=(1.0, 3.0), scales=(0.3, 1.0))
    frame = found.found.frame
    frame.loc[(frame["side"] == 1) & (frame["metric"] == "bound"), "value"] *= 3
    assert found.typical("softmax", 0) == 15  # the median of 5 and 15 on the left, 15 and 45 on the right
    assert math.isnan(planted([math.nan]).typical("softmax", 0))


def test_a_stop_is_heard_between_two_curves(tiny, lab):
    run = trained(tiny, lab)
    object.__setattr__(lab, "stopping", lambda: True)
    with pytest.raises(Stopped, match="nothing was written"):
        study.follow({"softmax": [run]}, lab, [Line(1)], 16)


def test_a_sweep_made_by_a_clip_is_predicted_by_its_bound(tiny, lab):
    run = trained(tiny, lab)
    task, spec = tasks.build("linear"), run.spec
    rows = []
    for sigma in (1.0, 4.0, 10.0):
        cell = {"sigma_x": 1.0, "sigma_f": sigma, "length": 12.0}
        y = clip.scored_targets(task, spec.test, cell)
        error = float(clip_errors([y], [3.0])[0, 0]) * (5 if sigma == 1 else 1)  # near training nothing is judged
        rows.append({"attn": "softmax", **cell, "metric": "mse-code", "value": error, "stderr": 0, "count": 64})
    grid = Grid.of(rows, ["sigma_x", "sigma_f", "length"], task="linear", preset="smoke", spec="0", seed=0)
    (run.folder / "grid.csv").write_text(grid.csv())
    found = clip.sweep_of("softmax", run, [3.0, math.nan, 6.0])
    assert found.residual(3.0) == pytest.approx(0, abs=1e-6)
    assert found.residual(6.0) > 0.3
    assert math.isnan(found.residual(math.nan))
    assert (found.best.bound, found.sigmas) == (3.0, (1.0, 4.0, 10.0))
    assert clip.table([(found, 3.0, math.nan)])[-1].startswith("| `softmax` | 0 | 3.0 |")
    # Another clip, by hand, from the prompts themselves.
    prompt = draw(task, 12, Spec(prompts=64, axes={"length": [12.0]}), {"sigma_f": 10.0})
    y = prompt.targets[:, ::2][:, 3:]
    assert found.predicted[6.0][2] == pytest.approx((y.abs() - 6).clamp(min=0).square().mean().item(), rel=1e-4)


def test_a_sweep_without_far_functions_is_left_out(tiny, lab):
    spec = tiny("linear", "softmax", "train.steps=5", "test.axes.sigma_f=1,2", "test.axes.sigma_x=1")
    sweep(spec, 0, lab)
    assert clip.sweep_of("softmax", lab.store.run(spec, 0), [3.0]) is None


def test_what_is_asked_in_vain_is_said(tiny, lab):
    runs = [lab.store.run(tiny("linear"), 0)]
    study.check({"softmax": runs}, None, 16)
    shallow, deep = runs[0], lab.store.run(tiny("linear", "softmax", "model.layers=2"), 0)
    study.check({"softmax": [shallow], "softmax, deep": [deep]}, None, 16)  # one rule, two names
    other = lab.store.run(tiny("every"), 0)
    for asked, words in (
        (([other], None, 16), "looked for in the task linear, got every"),
        ((runs, None, 8), "at least 16 contexts, got 8"),
        ((runs, 5.0, 16), "at least 6 times the spread of training y, 8.49, got 5"),
        ((runs, math.inf, 16), "must be finite"),
        (([shallow, deep], None, 16), "is there twice"),
    ):
        with pytest.raises(BadValue, match=words):
            study.check({"softmax": asked[0]}, *asked[1:])


def test_a_wider_training_law_asks_farther_out(tiny):
    wider = tiny("linear", "softmax", "train.shift.sigma_f=10")
    assert study.spread(wider) == pytest.approx(10 * study.spread(tiny("linear")))
    assert study.spread(tiny("linear")) == pytest.approx(math.sqrt(2))


def test_the_picture_of_the_curves_says_what_was_detected():
    t = np.linspace(-40, 40, 9)
    line = list(zip(t, t.clip(-5, 5), strict=True))
    panel = pictures.Panel({"softmax": [line, line]}, {"softmax": [-5.0, 40.0]}, {"softmax": [5.0]})
    drawn = pictures.curves({"f(x) = x": panel, "f(x) = 9x": panel}, title="t", trained=4.2, reach=40)
    axes = drawn.axes[0]
    assert [each.get_title() for each in drawn.axes] == ["f(x) = x", "f(x) = 9x"]
    (middle,) = [each for each in axes.lines if each.get_label() == "softmax"]
    assert middle.get_ydata() == pytest.approx(t.clip(-5, 5))
    marks = [each for each in axes.lines if each.get_marker() == "^"]
    assert list(marks[0].get_xdata()) == [-5]  # an onset at the end of the range is none
    assert [list(each.get_ydata()) for each in axes.lines if list(each.get_xdata()) == [0.955, 1.0]] == [[5, 5]]
    assert {text.get_text() for text in drawn.legends[0].get_texts()} >= {"truth", "softmax", "onset"}


def test_the_pictures_of_the_control_and_of_the_sweep():
    drawn = pictures.control([1, 10], {"inputs": {"softmax": [[8, 9], [math.nan, math.nan]]}}, title="t")
    (line,) = [each for each in drawn.axes[0].lines if each.get_label() == "softmax"]
    assert list(line.get_ydata()) == [8.5]
    low, high = drawn.axes[0].get_ylim()
    assert high / low >= 5
    drawn = pictures.sweeps([1, 4, 10], {"ssa": ([[0.1, 9, 90]], [[0, 5, 60]])}, [2, 32, 200], title="t", judged=4)
    assert {each.get_label() for each in drawn.axes[0].lines} >= {"measured", "predicted from B", "answer 0"}
