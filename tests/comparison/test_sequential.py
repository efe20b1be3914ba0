"""Intervals by looks: by hand, and how often they are wrong in simulated studies."""

import math

import numpy as np
import pytest
from scipy.special import ndtri, stdtrit

from icl_lab.comparison import sequential
from icl_lab.comparison.sequential import ERROR, SPENT, chance_to_decide, look, looks, seeds_to_decide
from icl_lab.comparison.statistics import Evaluation
from icl_lab.comparison.verdict import settled
from tests.cases import few

M = 0.2


def test_the_error_is_spent_once_over_all_looks():
    assert sum(sequential.SPENT.values()) == pytest.approx(1)
    assert looks(2) == []
    assert looks(7) == [(3, pytest.approx(0.01)), (5, pytest.approx(0.01))]
    assert [seeds for seeds, _ in looks(1000)] == [3, 5, 8, 12, 16, 24, 32, 48, 64]


def test_the_interval_is_that_of_the_look_by_hand():
    """Three seeds, 99 %: the mean +- t(2) sd / sqrt(3), t(2) = 9.925."""
    left, right = [1.0, 1.2, 1.1], [0.0, 0.0, 0.0]
    found = look(left, right, "difference")
    assert found.confidence == pytest.approx(0.99)
    assert found.effect.low == pytest.approx(1.1 - 9.925 * 0.1 / math.sqrt(3), rel=1e-3)
    assert found.deviation == pytest.approx(0.1)
    # p of the t test is 0.0027; a look of a fifth of the error counts it five times.
    t = 1.1 / (0.1 / math.sqrt(3))
    p = 1 - t / math.sqrt(2 + t * t)  # Student's t with 2 degrees of freedom, both tails
    assert found.p == pytest.approx(5 * p, rel=1e-6)


def test_the_last_look_counts_with_all_its_seeds():
    left = [1.0, 1.01, 0.99, -50.0, 80.0, -90.0, 70.0, 60.0]
    found = look(left, [0.0] * 8, "difference")
    assert (found.seeds, found.effect.clear) == (8, False)
    assert look(left[:3], [0.0] * 3, "difference").effect.clear


def test_seeds_between_two_looks_wait_for_the_next():
    left = [1.0, -1.0, 2.0, 100.0]
    assert look(left, [0.0] * 4, "difference").effect.effect == pytest.approx(2 / 3)


def test_fewer_than_three_seeds_have_an_effect_and_no_interval():
    found = look([1.0, -1.0], [0.0] * 2, "difference")
    assert (found.seeds, found.effect.effect) == (2, 0.0)
    assert math.isnan(found.effect.low) and math.isnan(found.p) and math.isnan(found.confidence)  # noqa: PT018


def test_prompt_variance_widens_a_look():
    noise = Evaluation(scale="difference", effect=1.1, low=0.0, high=2.2)
    wide = look([1.0, 1.2, 1.1], [0.0] * 3, "difference", lambda seeds: noise)
    half = math.hypot(9.925 * 0.1 / math.sqrt(3), 1.1 * 2.5758 / 1.95996)
    assert wide.effect.high - 1.1 == pytest.approx(half, rel=1e-3)


def test_p_below_five_percent_excludes_zero():
    for shift in (0.5, 0.56, 0.58, 0.7):
        found = look([shift - 0.1, shift, shift + 0.1], [0.0] * 3, "difference")
        assert (found.p < ERROR) == found.effect.clear


def test_equal_rates_are_known_to_one_prompt():
    """No error in 256 prompts, three seeds, against 0.1: -0.1 +- 9.925 / 256 / sqrt(3) = 0.022."""
    left, right = [0.0] * 3, [0.1] * 3
    assert math.isnan(look(left, right, "difference").effect.low)  # seeds alone say nothing
    known = look(left, right, "difference", resolution=1 / 256).effect
    assert known.high == pytest.approx(-0.1 + 9.925 / 256 / math.sqrt(3), rel=1e-3)
    same = look(left, left, "difference", resolution=1 / 256).effect
    assert (same.low, same.high) == pytest.approx((-0.0224, 0.0224), abs=1e-4)
    wide = [0.0, 0.1, 0.2]
    assert look(wide, right, "difference", resolution=1 / 256) == look(wide, right, "difference")


def test_differences_of_rates_end_at_one():
    """Finding half, all and nothing is known to more than rates have; direction and p stay."""
    left, right = [0.5, 1.0, 0.0], [0.9, 1.0, 0.8]
    free, rates = (look(left, right, "difference", span=span) for span in (math.inf, 1.0))
    assert free.effect.low < -1 < free.effect.effect < 1 < free.effect.high
    assert (rates.effect.low, rates.effect.high) == (-1.0, 1.0)
    assert (rates.p, rates.effect.effect) == (free.p, free.effect.effect)
    narrow = look([0.1, 0.12, 0.11], [0.0] * 3, "difference", span=1.0)
    assert narrow == look([0.1, 0.12, 0.11], [0.0] * 3, "difference")


def test_correlated_seeds_widen_a_look():
    one, two = (look([1.0, 1.2, 1.1], [0.0] * 3, "difference", inflation=lambda seeds, f=f: f).effect for f in (1, 2))
    assert (two.high - two.effect) == pytest.approx(2 * (one.high - one.effect))


def test_a_plan_says_which_look_would_decide():
    """Effect 1, deviation 1: half widths 2.06 (5 seeds), 1.24 (8), 1.009 (12), 0.815 (16)."""
    assert seeds_to_decide("above", 1.0, 1.0, M, 3) == 16
    assert seeds_to_decide("above", 1.01, 1.0, M, 3) == 12
    assert seeds_to_decide("above", 1.0, 1.0, M, 16) == 24
    assert seeds_to_decide("above", M, 1.0, M, 3) is None
    assert seeds_to_decide("below", 0.0, 0.1, M, 3) == 8  # no difference: 0.206 (5 seeds), 0.124 (8)


def test_a_plan_counts_prompt_variance():
    """Effect 1, deviation 1, 16 seeds (99.5 %): 0.815 of seeds and 2.81 x 0.2 of prompts make hypot 0.99."""
    assert seeds_to_decide("above", 1.0, 1.0, M, 3, (0.2, 0.0)) == 16
    assert seeds_to_decide("above", 1.0, 1.0, M, 3, (0.25, 0.0)) == 24
    assert seeds_to_decide("above", 1.0, 1.0, M, 3, (0.0, 9.0)) == 16  # the side away from 0
    assert seeds_to_decide("above", 1.0, 0.0, M, 3, (0.4, 0.0)) is None  # z of 99 % is 2.58
    assert seeds_to_decide("above", 1.0, 0.0, M, 3, (0.38, 0.0)) == 5
    assert seeds_to_decide("above", 1.0, 1.0, M, 3, (math.nan, math.nan)) == 16


DRAWS = {
    "normal": lambda rng, shape: rng.normal(size=shape),
    "Student's t, 3 degrees of freedom": lambda rng, shape: rng.standard_t(3, size=shape) / math.sqrt(3),
    "Laplace": lambda rng, shape: rng.laplace(size=shape) / math.sqrt(2),
}


def intervals(left, right=0.0, apart=False):
    """Student's or Welch's intervals of all looks at many claims, sides (claims seeds); (looks 2 claims)."""
    found, gaps = [], left - right
    for seeds, error in looks(gaps.shape[1]):
        mean, spread = gaps[:, :seeds].mean(axis=1), gaps[:, :seeds].std(axis=1, ddof=1) / math.sqrt(seeds)
        freedom = seeds - 1
        if apart:
            parts = np.stack([side[:, :seeds].var(axis=1, ddof=1) / seeds for side in (left, right)])
            spread, freedom = np.sqrt(parts.sum(axis=0)), parts.sum(axis=0) ** 2 * (seeds - 1) / (parts**2).sum(axis=0)
        half = stdtrit(freedom, 1 - error / 2) * spread
        found.append((mean - half, mean + half))
    return np.array(found)


@pytest.mark.slow
@pytest.mark.parametrize("name", few(1, DRAWS))
def test_all_looks_together_hold_the_effect_as_often_as_promised(name):
    d = DRAWS[name](np.random.default_rng(0), (20_000, 64)) + 0.3
    low, high = intervals(d).transpose(1, 0, 2)
    assert ((low > 0.3) | (high < 0.3)).any(axis=0).mean() <= 0.05
    ends = settled("below", 0.6, low - 0.3, high - 0.3).any(axis=0)
    assert ends.mean() > 0.8  # by 64 seeds


LEANING = {
    "normal": (lambda rng, shape: rng.normal(size=shape), "3.7 %"),
    "Student's t, 3 degrees of freedom": (lambda rng, shape: rng.standard_t(3, size=shape), "2.4 %"),
    "uniform": (lambda rng, shape: rng.uniform(-1, 1, size=shape), "6.0 %"),
    "exponential": (lambda rng, shape: rng.exponential(size=shape) - 1, "14 %"),
    "one fails": (lambda rng, shape: rng.normal(size=shape) + 5 * ((rng.random(shape) < 0.1) - 0.1), "10 %"),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", few(2, LEANING))
def test_how_often_a_direction_is_wrong_is_told(name):
    """Many claims at once by the intervals of looks; of some, both wrong and right, ``look`` says the same."""
    draw, words = LEANING[name]
    told = float(words.split()[0]) / 100
    d = draw(np.random.default_rng(2), (20_000, 64))
    low, high = intervals(d).transpose(1, 0, 2)
    wrong = ((low > 0) | (high < 0)).any(axis=0)
    for row in (*np.flatnonzero(wrong)[:4], *np.flatnonzero(~wrong)[:4]):
        each = [look(d[row, :seeds].tolist(), [0.0] * seeds, "difference").effect.clear for seeds, _ in looks(64)]
        assert any(each) == wrong[row]
    assert abs(wrong.mean() - told) < 0.003 + 3 * math.sqrt(told / len(d))
    assert words in sequential.RISK


def drawn(relation, seen, noise, futures=20_000):
    """The share of futures, drawn seed by seed, that a look decides by 24 seeds."""
    rng = np.random.default_rng(1)
    have, deviation = len(seen), np.std(seen, ddof=1)
    sigma = deviation * np.sqrt((have - 1) / rng.chisquare(have - 1, (futures, 1)))
    truth = rng.normal(np.mean(seen), sigma / math.sqrt(have))
    whole = np.hstack([np.tile(seen, (futures, 1)), rng.normal(truth, sigma, (futures, 24 - have))])
    decided = np.zeros(futures, dtype=bool)
    for count in (count for count in SPENT if have < count <= 24):
        now, tail = whole[:, :count], SPENT[count] * ERROR / 2
        seeds = stdtrit(count - 1, 1 - tail) * now.std(axis=1, ddof=1) / math.sqrt(count)
        half = np.hypot(seeds, ndtri(1 - tail) * noise)
        decided |= settled(relation, 0.05, now.mean(axis=1) - half, now.mean(axis=1) + half)
    return decided.mean()


@pytest.mark.parametrize(
    ("relation", "seen", "noise"),
    [
        ("below", [-0.2, 0.0, 0.1], 0.0),
        ("above", [-0.1, 0.3, 0.5, -0.2, 0.6], 0.05),
        ("equal", [0.03, -0.03, 0.0], 0.0),
        ("not above", [0.0, 0.06, 0.01], 0.01),
    ],
)
def test_the_chance_is_that_of_futures_drawn_seed_by_seed(relation, seen, noise, monkeypatch):
    monkeypatch.setattr(sequential, "FUTURES", 20_000)
    effect, spread = float(np.mean(seen)), float(np.std(seen, ddof=1))
    told = chance_to_decide(relation, effect, spread, 0.05, len(seen), (noise, noise), until=24)
    chance = drawn(relation, seen, noise)
    assert 0.1 < chance < 0.9
    assert told == pytest.approx(chance, abs=0.015)  # three standard errors of either


def test_what_is_certain_and_what_is_in_vain():
    assert chance_to_decide("below", 0.0, 1e-9, 0.05, 3) == 1  # no difference, at the look after five
    assert chance_to_decide("below", 0.05, 1e-9, 0.05, 3, (0.05, 0.05)) == 0  # the noise of the prompts stays
    assert chance_to_decide("below", 0.0, 1.0, 0.05, 64) == 0
    assert chance_to_decide("below", 0.0, math.nan, 0.05, 1) == 0


def test_futures_of_a_claim_are_fixed_and_narrow_with_seeds():
    few, many = (chance_to_decide("above", 0.1, 1.0, 0.05, have) for have in (3, 24))
    assert few == chance_to_decide("above", 0.1, 1.0, 0.05, 3) > 0.3 > 0.1 > many
    told, blind = (chance_to_decide("above", 0.1, 1.0, 0.05, 3, noise) for noise in ((0.0, 0.0), (math.nan, math.nan)))
    assert told == blind
