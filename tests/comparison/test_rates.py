"""Learning-rate curves: brackets, divergence, sensitivity, the stored curve, and tuning that reads no test prompt."""

import math
from functools import partial
from types import SimpleNamespace

import msgspec
import pytest
import torch

from icl_lab import tasks
from icl_lab.base.errors import BadValue
from icl_lab.comparison import rates
from icl_lab.comparison.rates import table
from icl_lab.runs.measure import draw
from icl_lab.runs.spec import resolve
from icl_lab.runs.store import Store

SPEC = resolve("linear", "ssa", "nano")


def curve(errors, trivial=1.0):
    return rates.Curve(SPEC, {factor: [value, value] for factor, value in errors.items()}, trivial, log=True)


@pytest.mark.parametrize(
    ("errors", "best", "bracket", "more"),
    [
        ({0.5: 0.4, 1.0: 0.1, 2.0: 0.2}, 1, (0.5, 2), []),
        ({1: 0.1, 2: 0.2, 4: 0.3}, None, None, [0.5]),  # an edge is no best, and is widened
        ({1: 0.3, 2: 0.2, 4: 0.1}, None, None, [8]),
        ({1: 0.5, 2: 0.1, 4: 0.1}, None, None, [8]),  # 4 errs no more than 2: a plateau at an edge
        ({1: 0.5, 2: 0.1, 4: 0.1, 8: 0.2}, 2, (1, 8), []),  # one between worse rates has these as its bracket
        ({1: 0.1, 2: 0.1, 4: 0.1}, None, None, [0.5, 8]),
    ],
)
def test_the_best_has_a_worse_rate_on_each_side(errors, best, bracket, more):
    found = curve(errors)
    assert (found.best, found.bracket, found.wider()) == (best, bracket, more)


def test_a_best_below_a_cliff_is_left_for_half_of_it():
    """The cap is 1: an error of 0.25 or more is a seed that failed, of one seed alone too."""

    def best(half, above):
        return rates.Curve(SPEC, {1: half, 2: [0.02, 0.02], 4: above}, 1.0, log=True).best

    assert best([0.05, 0.05], [0.03, 0.3]) == 1
    assert best([0.05, 0.05], [0.03, math.inf]) == 1
    assert best([0.05, 0.05], [0.03, 0.24]) == 2
    assert best([0.07, 0.07], [0.03, 0.3]) == 2


def test_a_tie_goes_to_the_lower_rate_from_three_seeds_on():
    """log(0.022 / 0.02) is 0.095 in the mean; three seeds that spread by 0.3 hold 0, by 0.01 they do not."""
    here = [0.02, 0.02, 0.02]

    def best(half, least=here):
        return rates.Curve(SPEC, {1: half, 2: least, 4: [0.9] * len(least)}, 10.0, log=True).best

    spread = [0.022 * math.exp(step) for step in (-0.3, 0, 0.3)]
    close = [0.022 * math.exp(step) for step in (-0.01, 0, 0.01)]
    assert (best(spread), best(close), best(spread[1:], here[1:])) == (1, 2, 2)
    # Paired by seed: both spread alike, and every seed errs 1.1 times as much, or a little more, at half.
    assert best([1.1 * spread[0], 1.1 * spread[1], 1.11 * spread[2]], spread) == 2


@pytest.mark.parametrize("rate", [0.00316228, 0.005, 0.002])
def test_factors_of_the_tuned_rates_are_those_of_the_recipe(rate):
    """A comparison at own rates looks its curve up from the tuned rates: 1/16 and then 2 is 1/8, to the last bit."""
    base = msgspec.structs.replace(SPEC, train=msgspec.structs.replace(SPEC.train, rate=rate, muon_rate=rate))
    for power in range(9):
        tuned = rates.scaled(base, 2.0**-power)
        assert rates.scaled(tuned, 2.0**power) == base
        assert rates.tuning(tuned, 2.0).hash == rates.tuning(base, 2.0 ** (1 - power)).hash
    assert rates.scaled(resolve("linear", "ssa", "nano"), 0.25).train.rate == 0.00125


def test_rates_above_one_are_not_tried():
    high = msgspec.structs.replace(SPEC, train=msgspec.structs.replace(SPEC.train, rate=0.2))
    found = rates.Curve(high, {1: [0.3], 2: [0.2], 4: [0.1]}, 1.0, log=True)
    assert found.wider() == []
    with pytest.raises(BadValue, match=r"a rate is at most 1, got 1\.6"):
        rates.scaled(high, 8)


def test_a_diverged_training_is_a_point_of_the_curve():
    found = rates.Curve(SPEC, {1: [0.4, 0.3], 2: [0.1, 0.1], 4: [0.01, math.inf]}, 1.0, log=True)
    assert (found.mean(4), found.best, found.wider()) == (math.inf, 2, [])
    lost = rates.Curve(SPEC, {1: [math.inf], 2: [math.inf], 4: [math.inf]}, 1.0, log=True)
    assert (lost.lowest, lost.best, lost.wider()) == (None, None, [])
    assert math.isnan(lost.sensitivity)


def test_shares_of_wrong_answers_are_measured_by_the_loss():
    """Of 20 steps the tenth is 19 and 20; the cap is the largest first loss; a seed that diverged is infinite."""
    spec = resolve("every:balance=half", "ssa", "nano", ["train.steps=20"])

    def run(*losses, diverged=""):
        rows = [{"step": step, "loss": loss} for step, loss in zip((1, 18, 19, 20), losses, strict=True)]
        return SimpleNamespace(spec=spec, diverged=diverged, history=lambda: rows)

    lost = run(9.0, 9.0, 9.0, 9.0, diverged="at step 20")
    found = rates.curve(spec, {1: [run(0.7, 0.5, 0.02, 0.04)], 2: [run(0.8, 0.1, 0.01, 0.01)], 4: [lost]})
    assert found.errors == {1: [pytest.approx(0.03)], 2: [0.01], 4: [math.inf]}
    assert (found.trivial, found.log) == (0.8, True)
    assert rates.measure(tasks.build("every")).startswith("Training loss")
    assert rates.measure(tasks.build("linear")).startswith("mean squared error")


def test_means_are_geometric_where_errors_span_decades():
    assert rates.Curve(SPEC, {1: [0.01, 1.0]}, 1.0, log=True).mean(1) == pytest.approx(0.1)
    assert rates.Curve(SPEC, {1: [0.01, 1.0]}, 1.0, log=False).mean(1) == pytest.approx(0.505)


def test_sensitivity_is_the_mean_log_excess_capped():
    """(log 1 + log 2 + log (0.5 / 0.1)) / 3: the third error is capped at 0.5."""
    found = curve({0.5: 0.2, 1.0: 0.1, 2.0: 30.0}, trivial=0.5)
    assert found.sensitivity == pytest.approx((math.log(2) + math.log(5)) / 3)
    assert curve({0.5: 3.0, 1.0: 2.0, 2.0: 4.0}, trivial=1.0).sensitivity == 0  # nothing is learned: all are capped


def test_both_rates_of_muon_are_scaled_and_one_of_adam():
    assert (rates.scaled(SPEC, 2).train.rate, rates.scaled(SPEC, 2).train.muon_rate) == (0.01, 0.01)
    adam = resolve("linear", "ssa", "lite")
    assert rates.scaled(adam, 2).train.rate == 0.004
    assert rates.scaled(adam, 2).train.muon_rate == adam.train.muon_rate


def test_a_factor_of_one_is_the_training_that_is_compared():
    assert rates.tuning(SPEC, 1.0).training == SPEC.training
    assert rates.tuning(SPEC, 2.0).training == rates.scaled(SPEC, 2.0).training


@pytest.mark.parametrize("name", ["linear", "every:balance=half", "needle"])
def test_tuning_reads_no_prompt_of_the_test(name):
    spec = rates.tuning(resolve(name, "softmax", "nano"), 1.0)
    task, (shift, *_) = tasks.build(name), spec.test.shifts()
    ours = msgspec.structs.replace(spec.test, draws="ours", prompts=64)
    tuning = msgspec.structs.replace(spec.test, prompts=64)
    length = spec.test.lengths[0]
    first, second = (draw(task, length, test, shift).tokens for test in (tuning, ours))
    assert not (first[:, None] == second[None]).flatten(2).all(2).any()
    assert torch.equal(first, draw(task, length, tuning, shift).tokens)


def test_tuning_asks_in_training_conditions_alone():
    spec = rates.tuning(SPEC, 1.0)
    assert spec.test.draws == "tuning"
    length = max(n for n in SPEC.test.lengths if n <= SPEC.train.curriculum.stop)
    assert spec.test.axes == {"sigma_x": [1.0], "sigma_f": [1.0], "length": [length]}


def test_own_rates_without_a_curve_name_the_command(tmp_path):
    """One command for all that lack a curve and share their settings; fields of the test are none of its business."""
    names = ("ssa", "softmax", "entmax")
    specs = [resolve("linear", name, "nano", ["train.steps=9", "test.axes.length=5"]) for name in names]
    specs[2] = msgspec.structs.replace(specs[2], model=msgspec.structs.replace(specs[2].model, layers=1))
    with pytest.raises(BadValue) as refused:
        rates.own(specs, Store(tmp_path))
    said, command = str(refused.value).split("; make it: icl-lab ")
    assert said == "ssa, softmax on linear at nano: no stored learning-rate curve with a best between two worse rates"
    words = "rates --task linear --attn 'ssa softmax' --preset nano --set train.steps=9 --results"
    assert command == f"{words} {tmp_path}"


def test_words_say_shared_or_own():
    assert rates.words({"softmax": SPEC, "ssa": SPEC}) == "Shared learning rate: 0.005 (Muon 0.005)."
    two = {"softmax": SPEC, "ssa": rates.scaled(SPEC, 2)}
    assert rates.words(two) == "Learning rates differ: softmax 0.005 (Muon 0.005), ssa 0.01 (Muon 0.01)."
    said = rates.words(two, {"softmax": curve({1: 0.1})})
    assert said.startswith("Own learning rates, each the best of its curve over 2 tuning seeds: softmax 0.005")


def test_a_curve_whose_best_has_moved_is_noticed():
    still, moved, lost = curve({0.5: 0.2, 1: 0.1, 2: 0.2}), curve({1: 0.2, 2: 0.1, 4: 0.2}), curve({1: 0.1, 2: 0.2})
    assert rates.moved_words({"softmax": still}) == []
    words = "ssa: the best of its curve has moved to 2 times the rates of these runs."
    assert rates.moved_words({"ssa": moved}) == [words]
    assert rates.moved_words({"ssa": lost}) == ["ssa: its curve has no best any more."]


def test_a_best_below_a_cliff_is_noticed():
    """The cap is 1, so that nothing is learned from 0.25 on; two steps above the best it is no cliff."""
    steep, lost = curve({1: 0.4, 2: 0.1, 4: 0.25}), curve({1: 0.4, 2: 0.1, 4: math.inf})
    gentle, edge = curve({1: 0.2, 2: 0.1, 4: 0.24, 8: 1.0}), curve({1: 0.1, 2: 0.9})
    (said,) = rates.cliff_words({"softmax": steep, "ssa": gentle, "l1": lost, "sima": edge})
    assert said.startswith("One step above the best of softmax, l1 a tuning seed learns nothing")
    assert rates.cliff_words({"ssa": gentle, "sima": edge}) == []


def test_the_table_has_the_best_its_bracket_and_each_error():
    lines = table({"ssa": curve({1: 0.4, 2: 0.1, 4: 0.3}), "softmax": curve({1: 0.1, 2: 0.2, 4: math.inf})})
    assert lines[0] == "| normalizer | best | rate | least | bracket | error | sensitivity | x1 | x2 | x4 |"
    assert lines[2] == "| ssa | x2 | 0.01 (Muon 0.01) | x2 | x1 to x4 | 0.1 | 0.83 | 0.4 | 0.1 | 0.3 |"
    assert lines[3] == "| softmax | none |  | none | none |  | 1 | 0.1 | 0.2 | inf |"


class Tuned:
    """A store of runs at one and two times the rates, from seeds 0 (a comparison's), 100 and 101."""

    def seeds(self, spec):
        return [0, 100, 101] if spec.train.rate in (0.0025, 0.005, 0.01) else []

    def run(self, spec, seed):
        factor, error = spec.train.rate / 0.005, {0: 9.0, 100: 0.1, 101: 0.3}[seed]
        # Of seed 100 alone half the rates are best, and of seed 0 twice.
        error *= {0.5: {100: 0.5, 101: 4}, 2: {0: 0.1}}.get(factor, {}).get(seed, 1) * (1 if factor < 2 else 2)
        frame = SimpleNamespace(frame={"value": torch.tensor([error])})
        grid = SimpleNamespace(where=lambda **labels: frame)
        return SimpleNamespace(spec=spec, seed=seed, name="ssa", finished=True, diverged="", grid=lambda: grid)


def test_a_stored_curve_is_the_mean_over_all_tuning_seeds_alone(monkeypatch):
    monkeypatch.setattr(rates, "trivial_error", lambda *of: 10.0)
    found = rates.stored(SPEC, Tuned())
    assert {factor: [*map(float, errors)] for factor, errors in found.errors.items()} == {
        0.5: pytest.approx([0.05, 1.2]), 1: pytest.approx([0.1, 0.3]), 2: pytest.approx([0.2, 0.6]),
    }  # fmt: skip
    assert found.best == 1
    assert [spec.train.rate for spec in rates.own([SPEC], Tuned())] == [0.005]


def test_the_widest_factors_are_run_too():
    low = msgspec.structs.replace(SPEC, train=msgspec.structs.replace(SPEC.train, rate=0.001, muon_rate=0.001))

    def wider(*powers):
        return rates.Curve(low, {2.0**power: [0.1] for power in powers}, 1.0, log=True).wider()

    assert wider(-7, 0, 7) == [2.0**-8, 2.0**8]
    assert wider(-8, 0, 8) == []


def at_seeds(*seeds):
    return [SimpleNamespace(seed=seed) for seed in seeds]


def test_a_curve_is_not_whole_where_a_seed_or_a_factor_lacks():
    holes = partial(rates.holes, 2.0)
    whole, half = at_seeds(100, 101), at_seeds(100)
    assert holes({1.0: whole, 2.0: whole, 4.0: whole}) == {}
    assert holes({1.0: half, 4.0: whole}) == {1.0: [101], 2.0: [100, 101]}
    assert holes({1.0: whole, 2.0: whole, 4.0: half}) == {4.0: [101]}
    # Five seeds at the least, 2, and its neighbours are enough: the others have the first two.
    five = at_seeds(*range(100, 105))
    assert holes({0.5: whole, 1.0: five, 2.0: five, 4.0: five, 8.0: whole}) == {}
    assert holes({0.5: half, 1.0: five, 2.0: five, 4.0: whole, 8.0: whole}) == {0.5: [101], 4.0: [102, 103, 104]}


def test_the_command_of_a_curve_with_a_hole_fills_it(monkeypatch):
    """Of 8, 16 and 32 times the rates, 16 was not run, and 8 with one seed: the factors of the command have it."""
    found = {8.0: at_seeds(100), 32.0: at_seeds(100, 101)}
    monkeypatch.setattr(rates, "stored_runs", lambda spec, store: found)
    monkeypatch.setattr(rates, "curve", lambda *_: SimpleNamespace(lowest=8.0))
    assert rates.stored(SPEC, None) is None
    with pytest.raises(
        BadValue, match=r"x8 \(seed 101\), x16 \(seed 100 and 101\); .* --factors 0.25,0.5,1,2,4,8,16,32$"
    ):
        rates.own([SPEC], SimpleNamespace(root="results"))
    found |= dict.fromkeys((8.0, 32.0), at_seeds(*range(100, 103)))
    with pytest.raises(BadValue, match=r"--seeds 3 .*--factors 0.25,0.5,1,2,4,8,16,32$"):
        rates.own([SPEC], SimpleNamespace(root="results"))


def test_rows_of_curves_hold_the_best_and_its_bracket():
    found, none = rates.rows({"ssa": curve({1: 0.4, 2: 0.1, 4: 0.2}), "softmax": curve({1: 0.1, 2: 0.2})})
    assert [found[name] for name in rates.BEST[:-1]] == [2, 0.01, 0.01, 2, 1, 4]
    assert found["error"] == pytest.approx(0.1)
    assert all(math.isnan(none[name]) for name in rates.BEST)
    assert none["sensitivity"] == pytest.approx(math.log(2) / 2)


def test_the_figure_rings_a_best_with_a_bracket_alone():
    edge = rates.Curve(resolve("linear", "softmax", "nano"), {1: [0.1], 2: [0.2]}, 1.0, log=True)
    drawn = rates.figure({"ssa": curve({1: 0.4, 2: 0.1, 4: 0.3}), "softmax": edge}, "error")
    rings = [line.get_xydata().tolist() for line in drawn.axes[0].lines if line.get_markersize() == 10]
    assert rings == [[[2, pytest.approx(0.1)]]]


def test_runs_that_are_not_finished_are_no_part_of_a_curve():
    class Half(Tuned):
        def run(self, spec, seed):
            run = super().run(spec, seed)
            run.finished = spec.train.rate == 0.005 or (spec.train.rate == 0.01 and seed == 100)
            return run

    found = rates.stored_runs(SPEC, Half())
    assert {factor: [run.seed for run in runs] for factor, runs in found.items()} == {1: [100, 101], 2: [100]}
