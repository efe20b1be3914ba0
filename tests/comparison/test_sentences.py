"""The closing sentence of a comparison says what its numbers say, and no more."""

import dataclasses
import math

import pytest

from icl_lab import tasks
from icl_lab.base.grid import Grid
from icl_lab.comparison import sentences
from icl_lab.comparison.statistics import paired
from icl_lab.comparison.study import PairedGrids

HOME = {"sigma_x": 1.0, "length": 40.0}
SIGMAS = (1.0, 2.0, 10.0)


def study(values, *, task="linear", sigmas=SIGMAS):
    """A study whose grids hold, for each normalizer, one row of values over sigma_f a seed."""
    grids = {}
    for rule, seeds in values.items():
        grids[rule] = [
            Grid.of(
                [
                    {**HOME, "sigma_f": sigma, "metric": "mse-code", "value": value, "stderr": 0.0, "count": 64}
                    for sigma, value in zip(sigmas, row, strict=True)
                ],
                ["sigma_x", "sigma_f", "length"],
                task="linear",
                attn=rule,
                preset="lite",
                spec=rule,
                seed=seed,
            )
            for seed, row in enumerate(seeds)
        ]
    return PairedGrids(tasks.build(task), grids, "softmax", {**HOME, "sigma_f": 1.0})


MEASURE = "mean log error over sigma_f 2 to 10"
FAR = f"{MEASURE}; 95 % intervals"
SOFTMAX = [(1.0, 4.0, 100.0), (1.1, 4.1, 101.0), (0.9, 3.9, 99.0)]


def test_a_rule_that_errs_less_at_home_and_alike_far_out():
    ssa = [(0.50, 3.0, 130.0), (0.56, 5.0, 80.0), (0.45, 3.5, 100.0)]
    made = study({"softmax": SOFTMAX, "ssa": ssa})
    near = paired([1.0, 1.1, 0.9], [0.50, 0.56, 0.45])
    ratio, low, high = near.ratio
    far = made.overall("ssa", "softmax")
    assert sentences.sentence(made) == (
        f"ssa errs {ratio:.3g}x softmax in training conditions [{low:.3g}, {high:.3g}] over 3 seeds; "
        f"far out ({FAR}) no difference beyond a factor 1.25 "
        f"(x{math.exp(far.effect):.3g} [{math.exp(far.low):.3g}, "
        f"{math.exp(far.high):.3g}])."
    )
    assert 0.4 < ratio < 0.6


def test_a_rule_that_errs_more_far_out():
    ssa = [(1.0, 8.0, 200.0), (1.2, 8.3, 204.0), (0.85, 7.7, 197.0)]
    text = sentences.sentence(study({"softmax": SOFTMAX, "ssa": ssa}))
    assert "no difference beyond a factor 1.25 (x1" in text
    assert f"; far out ({FAR}) it errs more (x2 [" in text
    ssa = [(1.0, 2.0, 50.0), (1.2, 2.1, 50.0), (0.85, 1.9, 49.0)]
    assert f"; far out ({FAR}) it errs less (x0.498" in sentences.sentence(study({"softmax": SOFTMAX, "ssa": ssa}))


def test_nothing_is_compared_where_a_side_has_not_learned():
    ssa = [(1.0, 8.0, 200.0), (1.2, 8.3, 204.0), (0.85, 7.7, 197.0)]
    made = study({"softmax": SOFTMAX, "ssa": ssa, "ssmax": ssa})
    lost = dataclasses.replace(made, not_learned={"ssa": "not learned: error 2"})
    first, second = sentences.sentence(lost).splitlines()
    assert first == "ssa against softmax: ssa has not learned the task, so nothing is compared."
    assert "it errs more (x2 [" in second
    lost = dataclasses.replace(made, not_learned={"ssa": "not learned: error 2", "softmax": "not learned: error 2"})
    assert sentences.sentence(lost).splitlines() == [
        "ssa against softmax: ssa and softmax have not learned the task, so nothing is compared.",
        "ssmax against softmax: softmax has not learned the task, so nothing is compared.",
    ]


def test_one_seed_shows_nothing():
    text = sentences.sentence(study({"softmax": SOFTMAX[:1], "ssa": [(0.1, 0.2, 1.0)]}))
    assert text == (
        "ssa against softmax in training conditions of one seed: no interval, so nothing is shown (x0.1); "
        f"far out ({MEASURE}) no interval, so nothing is shown (x0.0224)."
    )


def test_what_was_not_tested_is_said():
    made = study({"softmax": [row[1:] for row in SOFTMAX], "ssa": [row[1:] for row in SOFTMAX]}, sigmas=SIGMAS[1:])
    text = sentences.sentence(made)
    assert text.startswith(
        f"ssa: training conditions were not tested; far out ({FAR}) no difference beyond a factor 1.25 (x1 ["
    )
    made = study({"softmax": [row[:1] for row in SOFTMAX], "ssa": [row[:1] for row in SOFTMAX]}, sigmas=SIGMAS[:1])
    assert sentences.sentence(made).endswith("nothing was tested far out.")


def test_every_rule_has_a_line_and_the_baseline_none():
    lines = sentences.sentence(study({"ssa": SOFTMAX, "softmax": SOFTMAX, "ssmax": SOFTMAX})).splitlines()
    assert [line.split()[0] for line in lines] == ["ssa", "ssmax"]


@pytest.mark.parametrize(
    ("effect", "unclear", "words"),
    [
        (-0.1, "", "ssa errs less than softmax in training conditions over 3 seeds (difference in error -0.1 ["),
        (0.1, "", "ssa errs more than softmax in training conditions over 3 seeds (difference in error +0.1 ["),
        (0.1, "no difference is shown", "over 3 seeds: no difference is shown (difference in error +0.1 ["),
    ],
)
def test_rates_are_compared_by_difference(effect, unclear, words):
    found = paired([0.2, 0.3, 0.4], [0.2 + effect, 0.31 + effect, 0.39 + effect], "difference")
    assert words in sentences._near(found, "ssa", "softmax", "over 3 seeds", unclear)


BARELY = [(0.8, 2.0, 50.0), (0.93, 2.0, 50.5), (0.66, 2.02, 49.4)]  # at home p is 0.03
NOISY = [(1.0, 9.0, 300.0), (0.4, 1.0, 20.0), (2.5, 5.0, 90.0)]


def test_p_is_corrected_over_all_sentences():
    """What is clear beside one normalizer is not beside five: as many comparisons were made."""
    few = study({"softmax": SOFTMAX, "ssa": BARELY})
    alone = few.versus("ssa", "softmax", few.training).p
    assert 0.05 / 12 < alone < 0.05
    assert sentences.sentence(few).startswith("ssa errs 0.79")
    many = {f"rule {n}": NOISY for n in range(5)}
    text = sentences.sentence(study({"softmax": SOFTMAX, "ssa": BARELY, **many})).splitlines()[0]
    assert "no difference is shown once p is corrected for 12 comparisons (x0.79" in text


def test_unlike_and_unknown_are_told_apart():
    """Of two normalizers that nothing is shown of, one is known to differ by less than the margin, the other is not."""
    alike = [(1.01, 4.0, 100.0), (1.09, 4.1, 101.5), (0.9, 3.92, 99.0)]
    lines = sentences.sentence(study({"softmax": SOFTMAX, "ssa": alike, "ssmax": NOISY})).splitlines()
    assert lines[0].count("no difference beyond a factor 1.25 (x") == 2
    assert lines[1].count("no difference is shown (x") == 2


def test_a_ratio_that_no_number_holds_is_infinite():
    found = dataclasses.replace(paired([1.0, 2.0], [1.0, 2.1], "difference"), effect=0.0, low=-800.0, high=800.0)
    assert sentences._number(found, ratio=True) == "x1 [0, inf]"
