"""What keeps a claim from being judged, and what one more seed of it costs."""

import math
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from msgspec.structs import replace

from icl_lab.base.grid import Grid
from icl_lab.claims import cost, experiment, judge
from icl_lab.claims.schema import Claim, Quantity
from icl_lab.claims.sides import AnalysisSides, Sides, Value, sides_of
from icl_lab.comparison.statistics import evaluation, resampled
from icl_lab.comparison.verdict import State
from icl_lab.pipeline import sweep
from icl_lab.runs import estimate
from icl_lab.runs.store import Store
from tests.claims.test_experiments import SMALL

FILES = Path(__file__).parents[2] / "experiments"


@pytest.fixture
def finished(tmp_path, monkeypatch):
    """The small experiment; ``errors`` says what its variants err in training conditions, beside a reference of 2."""
    (tmp_path / "small.toml").write_text(SMALL)
    made = Sides(experiment.load("small", tmp_path), Store(tmp_path / "results"), "smoke")
    made.errors = {"softmax": [0.1, 0.1, 1.9], "wide": [0.6, 0.6, 0.1]}
    at_home(monkeypatch, made, lambda of, seed: {made.spec(of).attn: made.errors[of][seed], "reference:zero": 2.0})
    return made


def at_home(monkeypatch, sides, errors):
    """Let models and references err like this in training conditions, by variant and seed."""
    monkeypatch.setattr(sides, "errors_in_training_conditions", errors)


def claim(left, right, sigma, **fields):
    sides = (Quantity(of, {"sigma_f": [sigma]}) for of in (left, right))
    return Claim(statement="s", where="w", left=next(sides), is_="below", right=next(sides), **fields)


def table_of(sides, claim, seeds):
    """The trainings of both sides, without their values."""
    both = (claim.left, claim.right)
    return [{seed: Value(training=sides._training(side.of, seed)) for seed in seeds} for side in both]


def unlearned(sides, claim, seeds):
    sides._trainings.clear()
    return judge._unlearned(sides, claim, table_of(sides, claim, seeds))


def unlearned_counts(sides, claim, seeds):
    sides._trainings.clear()
    return judge._unlearned_counts(sides, claim, table_of(sides, claim, seeds))


def measure(monkeypatch, sides, value):
    """Let sides have these values in three seeds, by the side and the seed."""
    monkeypatch.setattr(sides, "_seeds_of", lambda claim: ({0, 1, 2}, {0, 1, 2}))
    monkeypatch.setattr(sides, "_measurement", lambda claim, side, cells, seed: Value(value(side, seed)))
    monkeypatch.setattr(sides, "_error", lambda *_: math.nan)
    monkeypatch.setattr(sides, "step", lambda claim, table: 0.0)


def test_models_near_a_trivial_answer_are_not_judged_far_out(finished):
    told = unlearned(finished, claim("softmax", "wide", 10.0), [0, 1, 2])
    assert told.startswith("wide has not learned its task: in training conditions it errs 0.3 times as much")
    assert unlearned(finished, claim("softmax", "softmax", 10.0), [0, 1, 2]) == ""  # the median seed has learned
    assert unlearned(finished, claim("softmax", "softmax", 10.0), [2]) != ""
    assert unlearned(finished, claim("reference:zero", "softmax", 10.0), [0, 1]) == ""
    assert unlearned(finished, claim("softmax", "wide", 1.0), [0, 1, 2]) == ""  # training conditions, always
    assert unlearned(finished, claim("softmax", "wide", 10.0, ungated="it is about those"), [0, 1, 2]) == ""


def test_unlearned_seeds_are_counted_with_the_verdict(finished):
    told = "tested models that have not learned: "
    both = unlearned_counts(finished, claim("softmax", "wide", 1.0), [0, 1, 2])
    assert both == told + "1 of 3 of softmax, 2 of 3 of wide"
    assert unlearned_counts(finished, claim("softmax", "softmax", 10.0), [0, 1, 2]) == told + "1 of 3 of softmax"
    assert unlearned_counts(finished, claim("reference:zero", "softmax", 10.0), [0, 1]) == ""
    finished.errors["softmax"][1] = math.nan
    assert unlearned_counts(finished, claim("softmax", "softmax", 1.0), [0, 1]) == told + "1 of 2 of softmax"


def grid_of(cells):
    """A grid of the headline: (predictor, sigma_f) -> error."""
    here = {"sigma_x": 1.0, "length": 12, "metric": "mse-code", "stderr": 0.0, "count": 9}
    rows = [{"attn": name, "sigma_f": sigma, "value": value, **here} for (name, sigma), value in cells.items()]
    return Grid.of(rows, ["sigma_x", "sigma_f", "length"], task="linear", preset="smoke", spec="0", seed=0)


@pytest.mark.parametrize(
    ("wide", "softmax", "reason"),
    [
        (60.0, 90.0, "wide and softmax learned nothing there: no better than zero"),
        (50.0, 90.0, "softmax learned nothing there: no better than zero"),
        (60.0, 50.0, "wide learned nothing there: no better than zero"),
        (50.0, 59.0, ""),
    ],
)
def test_no_better_than_trivial_is_not_judged(finished, monkeypatch, wide, softmax, reason):
    """The answer 0 errs 60 in the cells of the claim; a side that errs as much does no better."""
    values = {"softmax": softmax, "wide": wide}
    finished.errors["wide"] = [0.1] * 3
    measure(monkeypatch, finished, lambda side, seed: math.log(values[side.of] + 0.01 * seed))
    grid = grid_of({("reference:zero", 10.0): 60.0})
    monkeypatch.setattr(type(finished), "measured", lambda self, of, seed: (grid, None))
    finished.experiment = replace(finished.experiment, claims=[claim("wide", "softmax", 10.0)])
    (found,) = judge.findings(finished)
    assert (found.state, found.note) == (State.NOT_BETTER if reason else State.JUDGED, reason)


@pytest.mark.parametrize(("unigram", "told"), [(5.0, "lssa and softmax learned nothing"), (9.0, "")])
def test_losses_are_held_against_trivial_references(tmp_path, monkeypatch, unigram, told):
    reason = told and f"{told} there: no better than unigram"
    made = experiment.load("text-rules", FILES)
    sides = AnalysisSides(made, Store(tmp_path), "lite", measured=object())
    values = {"lssa": 5.5, "softmax": 6.0, "reference:unigram": unigram}
    measure(monkeypatch, sides, lambda side, seed: values.get(side.of, 5.0) + 0.01 * seed * (side.of == "lssa"))
    monkeypatch.setattr(sides, "_value", lambda claim, side, of, cells, seed: values.get(of, 9.0))
    found = judge.findings(sides)
    one = next(f for c, f in zip(made.claims, found, strict=True) if {c.left.of, c.right.of} == {"lssa", "softmax"})
    assert (one.state, one.note) == (State.NOT_BETTER if reason else State.JUDGED, reason)


def test_a_loss_with_a_floor_is_counted_from_the_best_reference(finished, monkeypatch):
    """1.6 where the best reference has 1.5 and the trivial one 2: a fifth of the way, though 0.8 of the loss."""
    plain = finished.errors_in_training_conditions
    at_home(monkeypatch, finished, lambda of, seed: {**plain(of, seed), "reference:best": 1.5})
    finished.errors.update(softmax=[1.6, 1.6, 1.6], wide=[1.7, 1.7, 1.7])
    assert unlearned(finished, claim("softmax", "softmax", 10.0), [0, 1, 2]) == ""
    assert unlearned(finished, claim("softmax", "wide", 10.0), [0, 1, 2]).startswith("wide has not learned")


def test_needle_heads_are_judged_only_of_models_that_find(monkeypatch, tmp_path):
    """Prompts are eight training lengths long though no cell says so; at the length of training all are judged."""
    made = sides_of(experiment.load("ssmax-figure7", FILES), Store(tmp_path), "nano")
    errors = {"softmax": 0.0, "ssmax": 0.9}
    at_home(monkeypatch, made, lambda of, seed: {of: errors[of], "reference:chance": 0.9})
    (about,) = made.experiment.claims
    assert unlearned(made, about, [0, 1, 2]).startswith("ssmax has not learned its task")
    errors["ssmax"] = 0.1
    assert unlearned(made, about, [0, 1, 2]) == ""
    errors["ssmax"] = 0.9
    within = made.specs["softmax"].train.longest
    made.analysis = replace(made.experiment, options={"length": within}).question()
    assert unlearned(made, about, [0, 1, 2]) == ""


def test_a_run_without_a_grid_says_nothing(finished, monkeypatch):
    monkeypatch.undo()
    assert finished.errors_in_training_conditions("softmax", 0) == {}
    far = claim("softmax", "reference:zero", 10.0)
    assert unlearned(finished, far, [0, 1, 2]) == ""
    told = "not known whether 'softmax' learned the task: not tested"
    assert unlearned_counts(finished, far, [0, 1, 2]) == told
    both = told.replace("'softmax'", "'softmax' and 'wide'")
    assert unlearned_counts(finished, claim("softmax", "wide", 10.0), [0]) == both
    assert unlearned_counts(finished, far, []) == ""
    assert unlearned_counts(finished, claim("softmax", "wide", 10.0, ungated="it is about those"), [0]) == ""


def test_a_run_without_a_grid_among_others_is_named(finished, monkeypatch):
    """Of seeds 2 and 1, though the claim asks for no gate: the count alone would look whole."""
    known = finished.errors_in_training_conditions
    at_home(monkeypatch, finished, lambda of, seed: known(of, seed) if seed == 2 else {})
    ungated = claim("softmax", "softmax", 10.0, ungated="it is about those")
    told = "tested models that have not learned: 1 of 1 of softmax; not known whether 'softmax' learned the task at "
    assert unlearned_counts(finished, ungated, [2, 1]) == f"{told}seed 1: not tested"


def test_without_trivial_answers_learning_is_not_asked(finished, monkeypatch):
    """No test would tell."""
    monkeypatch.undo()
    far = claim("softmax", "wide", 10.0)
    assert unlearned_counts(finished, far, [0]) != ""
    monkeypatch.setattr(type(finished.task), "trivial", ())
    assert unlearned_counts(finished, far, [0]) == ""


def test_normalizers_without_a_model_have_nothing_to_learn(tmp_path):
    made = sides_of(experiment.load("theory", FILES), Store(tmp_path), "lite")
    assert unlearned_counts(made, made.experiment.claims[0], [0, 1, 2]) == ""


@pytest.mark.slow
def test_without_training_conditions_nothing_is_learned(finished, monkeypatch, tiny, lab):
    monkeypatch.undo()
    finished.specs["softmax"] = shifted = tiny("linear", "softmax", "train.shift.sigma_x=3", "test.axes.sigma_x=1,10")
    finished.store = lab.store
    sweep(shifted, 0, lab)
    assert finished.errors_in_training_conditions("softmax", 0) == {}
    far = claim("softmax", "softmax", 10.0)
    assert unlearned(finished, far, [0]) == ""
    told = "not known whether 'softmax' learned the task: trained at sigma_x=3, tested at 1, 10"
    assert unlearned_counts(finished, far, [0]) == told


@pytest.mark.slow
def test_learning_is_asked_with_the_trained_positions(finished, monkeypatch, tiny, lab):
    monkeypatch.undo()
    rotary = ("model.positions=rotary", "test.axes.sigma_f=1,10")
    plain = tiny("linear", "softmax", *rotary)
    finished.specs["softmax"] = raised = tiny("linear", "softmax", *rotary, "model.rope_theta=500000")
    finished.store = lab.store
    cell = {"attn": "softmax", "metric": "mse-code", "sigma_x": 1, "sigma_f": 1, "length": 12}
    far = sweep(raised, 0, lab).at(**cell)
    assert finished.errors_in_training_conditions("softmax", 0)["softmax"] == far  # all that is known
    near = sweep(plain, 0, lab).at(**cell)
    assert near != far
    assert finished.errors_in_training_conditions("softmax", 0)["softmax"] == near


@pytest.fixture
def free(monkeypatch):
    """Tests take no time."""
    monkeypatch.setattr(cost.Costs, "test", lambda self, spec: 0.0)


def of_a_seed(finished, left, right):
    return cost.Costs(finished.store, "smoke").seed(finished, claim(left, right, 10.0))


def test_a_training_that_both_sides_share_counts_once(finished, monkeypatch, free):
    monkeypatch.setattr(cost, "of_run", lambda store, spec: {"softmax": 10.0, "ssa": 7.0}[spec.attn])
    assert of_a_seed(finished, "softmax", "softmax") == 10
    assert of_a_seed(finished, "softmax", "wide") == 17
    assert of_a_seed(finished, "reference:zero", "wide") == 17  # read beside the baseline


def test_a_training_that_two_sides_test_differently_counts_once(finished, monkeypatch, free):
    ours = finished.specs["softmax"]
    finished.specs["wide"] = replace(ours, test=replace(ours.test, prompts=32))
    monkeypatch.setattr(cost, "of_run", lambda store, spec: 10.0 if spec.test.prompts == 32 else math.nan)
    assert of_a_seed(finished, "softmax", "wide") == 10
    finished.store.run(finished.specs["wide"], 0).begin()
    assert of_a_seed(finished, "wide", "softmax") == 10


def test_untrained_work_is_estimated_at_the_pace_of_its_scale(finished, monkeypatch, free):
    monkeypatch.setattr(cost, "of_run", lambda store, spec: {"softmax": 10.0, "ssa": math.nan}[spec.attn])
    monkeypatch.setattr(estimate, "training_operations", lambda spec: {"softmax": 5.0, "ssa": 20.0}[spec.attn])
    assert math.isnan(of_a_seed(finished, "softmax", "wide"))
    monkeypatch.setattr(cost.Costs, "_pace", lambda self, task: 3.0)
    assert of_a_seed(finished, "softmax", "wide") == 10 + 20 * 3


def test_what_trainings_take_is_looked_up_once(finished, monkeypatch, free):
    asked = []
    monkeypatch.setattr(cost, "of_run", lambda store, spec: asked.append(spec.attn) or math.nan)
    monkeypatch.setattr(cost.Costs, "_pace", lambda self, task: asked.append("pace") or 1.0)
    costs = cost.Costs(finished.store, "smoke")
    for _ in range(2):
        assert costs.seed(finished, claim("softmax", "wide", 10.0)) > 0
    assert asked == ["softmax", "pace", "ssa", "pace"]


def test_the_pace_is_that_of_the_runs_at_the_scale(tiny, tmp_path, monkeypatch):
    store = Store(tmp_path)
    seconds = {("linear", 0): 6.0, ("linear", 1): 8.0, ("linear", 2): 50.0, ("linear", 3): None}
    monkeypatch.setattr(cost, "seconds_of", lambda run, spec: seconds[spec.task, run.seed])
    monkeypatch.setattr(estimate, "training_operations", lambda spec: 2.0)
    assert math.isnan(cost.Costs(store, "smoke")._pace("linear"))
    for seed in range(4):
        store.run(tiny("linear"), seed).begin()
    store.run(tiny("every"), 0).begin()  # another task is not looked at
    assert cost.Costs(store, "smoke")._pace("linear") == 4
    assert math.isnan(cost.Costs(store, "nano")._pace("linear"))


def test_seconds_are_those_of_the_whole_training(monkeypatch, tiny, tmp_path):
    spec, store = tiny(), Store(tmp_path)
    envs = {
        0: {"seconds": 30.0, "steps_timed": 30},  # resumed at half: 60 for all 60 steps
        1: {"seconds": 100.0, "steps_timed": 60},
        2: {"seconds": 40.0, "steps_timed": 2},  # resumed at the end: mostly starting up
        3: {"seconds": 80.0, "steps_timed": 60, "stacked": 2},
    }
    for seed in envs:
        run = store.run(spec, seed)
        run.begin()
        (run.folder / "model.safetensors").touch()
    monkeypatch.setattr(type(run), "trained", property(lambda self: True))
    monkeypatch.setattr(type(run), "env", lambda self: envs[self.seed])
    assert cost.of_run(store, spec) == 60  # the median of 60, 100 and 40


@pytest.fixture
def priced(monkeypatch):
    """A training takes 10 seconds, a test 2 with softmax and 4 with ssa."""
    monkeypatch.setattr(cost, "of_run", lambda store, spec: 10.0)
    monkeypatch.setattr(cost.Costs, "_pace", lambda self, task: 0.5)
    monkeypatch.setattr(estimate, "test_operations", lambda spec: {"softmax": 4.0, "ssa": 8.0}[spec.attn])


@pytest.mark.usefixtures("priced")
def test_the_operations_of_a_test_and_of_two_swaps(finished):
    assert of_a_seed(finished, "softmax", "softmax") == 10 + 2
    assert of_a_seed(finished, "softmax", "wide") == 20 + 2 + 4
    plain, wide = finished.experiment.variants
    swapped = replace(plain, name="wide", swap="ssa")
    made = Sides(replace(finished.experiment, variants=[plain, swapped]), finished.store, "smoke")
    assert of_a_seed(made, "softmax", "wide") == 10 + 2 + 2  # one training, tested twice


@pytest.mark.usefixtures("priced")
def test_models_of_an_analysis_are_tested_once(finished):
    """It reads no grid: whether they have learned is known from there alone."""
    finished.experiment = replace(finished.experiment, analysis="deviant", options={})
    assert of_a_seed(finished, "softmax", "wide") == 20 + 2 + 4
    ungated = [replace(each, ungated="it is about those") for each in finished.experiment.claims]
    whole, finished.experiment = finished.experiment, replace(finished.experiment, claims=ungated)
    assert of_a_seed(finished, "softmax", "wide") == 20
    finished.specs["wide"] = finished.specs["softmax"]
    plain, wide = whole.variants
    finished.experiment = replace(whole, variants=[plain, replace(wide, attn="softmax", swap="ssa")])
    assert of_a_seed(finished, "softmax", "wide") == 10 + 2


@pytest.mark.parametrize(
    ("left", "prompts", "step"),
    [
        ([1.0, 1.0, 1.0], 512, 4 / 512),  # a quarter of the prompts, one of these
        ([1.0, 1.0, 0.9], 512, 0.0),  # the seeds tell their own deviation
        ([1.0, 1.0, 1.0], 0, 0.0),  # no prompts, no rates
    ],
)
def test_rates_alike_in_every_seed_are_known_to_a_prompt(left, prompts, step):
    sides = AnalysisSides.__new__(AnalysisSides)
    sides.analysis = SimpleNamespace(asks=lambda spec: [(prompts, 1)] if prompts else [])
    sides.spec = lambda of: None
    table = {n: Value(value) for n, value in enumerate(left)}, {n: Value(0.0) for n in range(len(left))}
    assert sides.step(claim("a", "b", 1.0), table) == step


@pytest.mark.parametrize("scale", ["difference", "log-ratio"])
def test_the_error_over_prompts_is_that_of_a_paired_bootstrap(scale):
    """Where single prompts are kept; else it is at most that of both sides together."""
    parts = np.random.default_rng(0).exponential(size=(2, 3, 40))
    means = resampled(parts, seed=0)
    drawn = np.log(means) if scale == "log-ratio" else means
    kept = [[drawn[:, side, seed] for side in range(2)] for seed in range(3)]

    def noise(count):
        columns = [{n: Value(resamples=drawn) for n, drawn in enumerate(side)} for side in zip(*kept, strict=True)]
        return judge._noise(columns, ({}, {}), scale, count)

    for count in (2, 3):
        by_hand = evaluation((drawn[:, 0, :count] - drawn[:, 1, :count]).mean(axis=1), scale)
        ends = by_hand.effect, by_hand.low, by_hand.high
        assert (noise(count).effect, noise(count).low, noise(count).high) == pytest.approx(ends)
    of_two = noise(2)
    kept[2][1] = None  # of a seed from before they were kept
    assert noise(3) == of_two
    kept[2][1], kept[0][0], kept[1][1] = drawn[:, 1, 2], None, None
    assert noise(1) == noise(2) == noise(3)  # a later seed tells it where the look has none that does
    assert noise(3).effect == pytest.approx(float((drawn[:, 0, 2] - drawn[:, 1, 2])[0]))
    kept[:] = [[None, None]] * 3
    assert noise(3) is None
    errors = [{n: Value(error=e) for n, e in enumerate(side)} for side in ((0.1, 0.3, 0.1), (0.2, 0.2, math.nan))]
    most = judge._bound(errors, scale, 2)
    assert most.high == -most.low == pytest.approx(1.959964 * (0.3 + 0.5) / 2)  # both sides, mean over seeds
    assert judge._bound(errors, scale, 3) is None  # of the third seed one side is not told
