"""Verdicts by looks: by hand, and how often they are wrong in simulated studies."""

import math

import numpy as np
import pytest
from scipy.special import ndtri, stdtrit

from icl_lab.comparison import sequential
from icl_lab.comparison.sequential import ERROR, SPENT, chance_to_decide, decide, looks, outcome, seeds_to_decide, shown
from icl_lab.comparison.statistics import Evaluation
from icl_lab.comparison.verdict import Verdict
from icl_lab.errors import BadValue

M = 0.2


def fixed(low, high, inner=None):
    """An interval, and the narrower one of two one-sided tests, whatever the error."""
    return lambda confidence: (low, high) if confidence > 0.98 else inner or (low, high)


def test_the_error_is_spent_once_over_all_looks():
    assert sum(sequential.SPENT.values()) == pytest.approx(1)
    assert looks(2) == []
    assert looks(7) == [(3, pytest.approx(0.01)), (5, pytest.approx(0.01))]
    assert [seeds for seeds, _ in looks(1000)] == [3, 5, 8, 12, 16, 24, 32, 48, 64]


@pytest.mark.parametrize(
    ("relation", "low", "high", "inner", "expected"),
    [
        ("below", -0.5, -0.1, None, Verdict.SUPPORTED),
        ("below", 0.1, 0.5, None, Verdict.CONTRADICTED),
        ("below", -0.3, 0.1, (-0.19, 0.05), Verdict.NO_DIFFERENCE),
        ("below", -0.3, 0.1, (-0.21, 0.05), Verdict.INCONCLUSIVE),
        ("below", -0.3, -0.01, (-0.15, -0.05), Verdict.SUPPORTED),  # clear, though small
        ("above", 0.1, 0.5, None, Verdict.SUPPORTED),
        ("above", -0.5, -0.1, None, Verdict.CONTRADICTED),
        ("above", -0.1, 0.3, (-0.05, 0.19), Verdict.NO_DIFFERENCE),
        ("equal", -0.3, 0.1, (-0.19, 0.05), Verdict.SUPPORTED),
        ("equal", 0.21, 0.5, None, Verdict.CONTRADICTED),
        ("equal", -0.5, -0.21, None, Verdict.CONTRADICTED),
        ("equal", 0.1, 0.5, None, Verdict.INCONCLUSIVE),  # different, but perhaps by less than the margin
        ("not below", -0.25, 0.9, (-0.19, 0.8), Verdict.SUPPORTED),
        ("not below", -0.9, -0.21, None, Verdict.CONTRADICTED),
        ("not below", -0.9, -0.1, None, Verdict.INCONCLUSIVE),
        ("not above", -0.9, 0.25, (-0.8, 0.19), Verdict.SUPPORTED),
        ("not above", 0.21, 0.9, None, Verdict.CONTRADICTED),
    ],
)
def test_a_look_by_hand(relation, low, high, inner, expected):
    assert outcome(relation, M, fixed(low, high, inner), 0.01) == expected


def test_without_an_interval_nothing_is_decided():
    nothing = fixed(math.nan, math.nan)
    for relation in ("below", "above", "equal", "not below", "not above"):
        assert outcome(relation, M, nothing, 0.01) == Verdict.INCONCLUSIVE
    with pytest.raises(BadValue, match="margin"):
        outcome("equal", 0.0, nothing, 0.01)


def test_the_interval_is_that_of_the_look_by_hand():
    """Three seeds, 99 %: the mean +- t(2) sd / sqrt(3), t(2) = 9.925."""
    left, right = [1.0, 1.2, 1.1], [0.0, 0.0, 0.0]
    found = decide("above", left, right, "difference", M)
    assert found.confidence == pytest.approx(0.99)
    assert found.effect.low == pytest.approx(1.1 - 9.925 * 0.1 / math.sqrt(3), rel=1e-3)
    assert found.verdict == Verdict.SUPPORTED
    assert found.deviation == pytest.approx(0.1)
    # p of the t test is 0.0027; a look of a fifth of the error counts it five times.
    t = 1.1 / (0.1 / math.sqrt(3))
    p = 1 - t / math.sqrt(2 + t * t)  # Student's t with 2 degrees of freedom, both tails
    assert found.p == pytest.approx(5 * p, rel=1e-6)


def test_the_first_look_that_decides_is_kept_whatever_comes_after():
    left = [1.0, 1.01, 0.99, -50.0, 80.0, -90.0, 70.0, 60.0]
    found = decide("above", left, [0.0] * 8, "difference", M)
    assert (found.verdict, found.seeds) == (Verdict.SUPPORTED, 3)


def test_a_look_that_may_not_decide_is_no_look():
    left = [1.0, 1.01, 0.99, -0.5, 0.0]
    assert decide("above", left[:3], [0.0] * 3, "difference", M).verdict == Verdict.SUPPORTED
    closed = decide("above", left[:3], [0.0] * 3, "difference", M, may_decide=lambda seeds: False)
    assert (closed.verdict, closed.seeds, closed.p) == (Verdict.INCONCLUSIVE, 3, 1.0)
    assert closed.effect.low > 0  # it is shown as it is
    later = decide("above", left, [0.0] * 5, "difference", M, may_decide=lambda seeds: seeds == 5)
    assert (later.verdict, later.seeds) == (Verdict.INCONCLUSIVE, 5)
    assert later.p > decide("above", left, [0.0] * 5, "difference", M).p


def test_seeds_between_two_looks_wait_for_the_next():
    left = [1.0, -1.0, 2.0, 100.0]
    assert decide("above", left, [0.0] * 4, "difference", M).effect.effect == pytest.approx(2 / 3)
    assert decide("above", left[:2], [0.0] * 2, "difference", M).verdict == Verdict.INCONCLUSIVE


def test_prompt_variance_keeps_a_look_open():
    left = [1.0, 1.2, 1.1]
    noise = Evaluation(scale="difference", effect=1.1, low=0.0, high=2.2)
    wide = decide("above", left, [0.0] * 3, "difference", M, lambda seeds: noise)
    assert wide.verdict == Verdict.INCONCLUSIVE
    half = math.hypot(9.925 * 0.1 / math.sqrt(3), 1.1 * 2.5758 / 1.95996)
    assert wide.effect.high - 1.1 == pytest.approx(half, rel=1e-3)


def test_rates_that_are_the_same_in_every_seed_are_known_to_one_prompt():
    """No error in 256 prompts, three seeds, against 0.1: -0.1 +- 9.925 / 256 / sqrt(3) = 0.022."""
    left, right = [0.0] * 3, [0.1] * 3
    assert decide("below", left, right, "difference", 0.05).verdict == Verdict.INCONCLUSIVE  # seeds alone say nothing
    known = decide("below", left, right, "difference", 0.05, resolution=1 / 256)
    assert known.verdict == Verdict.SUPPORTED
    assert known.effect.high == pytest.approx(-0.1 + 9.925 / 256 / math.sqrt(3), rel=1e-3)
    assert decide("below", left, [0.02] * 3, "difference", 0.005, resolution=1 / 256).verdict == Verdict.INCONCLUSIVE
    assert decide("below", left, left, "difference", 0.05, resolution=1 / 256).verdict == Verdict.NO_DIFFERENCE
    wide = [0.0, 0.1, 0.2]
    assert decide("below", wide, right, "difference", 0.05, resolution=1 / 256) == decide(
        "below", wide, right, "difference", 0.05
    )


def test_a_plan_says_the_look_at_which_effect_and_spread_would_decide():
    """Effect 1, deviation 1: half widths 2.06 (5 seeds), 1.24 (8), 1.009 (12), 0.815 (16)."""
    assert seeds_to_decide("above", 1.0, 1.0, M, 3) == 16
    assert seeds_to_decide("above", 1.01, 1.0, M, 3) == 12
    assert seeds_to_decide("above", 1.0, 1.0, M, 16) == 24
    assert seeds_to_decide("above", M, 1.0, M, 3) is None
    assert seeds_to_decide("below", 0.0, 0.1, M, 3) == 5  # no difference


def test_a_plan_counts_prompt_variance_which_no_seed_makes_smaller():
    """Effect 1, deviation 1, 16 seeds (99.5 %): 0.815 of seeds and 2.81 x 0.2 of prompts make hypot 0.99."""
    assert seeds_to_decide("above", 1.0, 1.0, M, 3, (0.2, 0.0)) == 16
    assert seeds_to_decide("above", 1.0, 1.0, M, 3, (0.25, 0.0)) == 24
    assert seeds_to_decide("above", 1.0, 1.0, M, 3, (0.0, 9.0)) == 16  # the side away from 0
    assert seeds_to_decide("above", 1.0, 0.0, M, 3, (0.4, 0.0)) is None  # z of 99 % is 2.58
    assert seeds_to_decide("above", 1.0, 0.0, M, 3, (0.38, 0.0)) == 5
    assert seeds_to_decide("above", 1.0, 1.0, M, 3, (math.nan, math.nan)) == 16


DRAWS = {
    "normal": lambda rng: rng.normal(size=64),
    "Student's t, 3 degrees of freedom": lambda rng: rng.standard_t(3, size=64) / math.sqrt(3),
    "Laplace": lambda rng: rng.laplace(size=64) / math.sqrt(2),
}


def studies(draw, relation, effect, margin, count=1500):
    """How simulated studies of up to 64 seeds end, looked at whenever that is allowed."""
    rng, tally = (
        np.random.default_rng(0),
        dict.fromkeys((Verdict.SUPPORTED, Verdict.CONTRADICTED, Verdict.NO_DIFFERENCE, Verdict.INCONCLUSIVE), 0.0),
    )
    counts = [seeds for seeds, _ in looks(64)]
    quantiles = {(n, round(c, 6)): stdtrit(n - 1, (1 + c) / 2) for n, e in looks(64) for c in (1 - e, 1 - 2 * e)}
    for _ in range(count):
        d = draw(rng) + effect
        for n, error in looks(64):
            mean, spread = d[:n].mean(), d[:n].std(ddof=1) / math.sqrt(n)

            def interval(confidence, n=n, mean=mean, spread=spread):
                half = quantiles[n, round(confidence, 6)] * spread
                return mean - half, mean + half

            verdict = outcome(relation, margin, interval, error)
            if verdict != Verdict.INCONCLUSIVE:
                break
        tally[verdict] += 1 / count
    assert counts[-1] == 64
    return tally


@pytest.mark.slow
@pytest.mark.parametrize("name", DRAWS)
def test_looking_again_and_again_errs_as_seldom_as_promised(name):
    """At most 5 % of studies find a difference where there is none, or none where it equals the margin."""
    null = studies(DRAWS[name], "below", 0.0, 0.6)
    assert null[Verdict.SUPPORTED] + null[Verdict.CONTRADICTED] <= 0.05
    assert null[Verdict.NO_DIFFERENCE] > 0.8  # they end
    edge = studies(DRAWS[name], "below", 0.6, 0.6)
    assert edge[Verdict.NO_DIFFERENCE] + edge[Verdict.SUPPORTED] <= 0.05
    equal = studies(DRAWS[name], "equal", 0.6, 0.6)
    assert equal[Verdict.SUPPORTED] <= 0.05
    assert equal[Verdict.CONTRADICTED] <= 0.05
    beyond = studies(DRAWS[name], "not below", -0.6, 0.6)
    assert beyond[Verdict.SUPPORTED] <= 0.05
    assert studies(DRAWS[name], "below", -1.0, 0.3)[Verdict.SUPPORTED] > 0.97


LEANING = {
    "normal": (lambda rng, shape: rng.normal(size=shape), "3.7 %"),
    "Student's t, 3 degrees of freedom": (lambda rng, shape: rng.standard_t(3, size=shape), "2.4 %"),
    "uniform": (lambda rng, shape: rng.uniform(-1, 1, size=shape), "6.0 %"),
    "exponential": (lambda rng, shape: rng.exponential(size=shape) - 1, "14 %"),
    "one fails": (lambda rng, shape: rng.normal(size=shape) + 5 * ((rng.random(shape) < 0.1) - 0.1), "10 %"),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", LEANING)
def test_how_often_a_verdict_is_wrong_is_told(name):
    """Many claims at once by the intervals of looks; of some of them ``decide`` says the same."""
    draw, words = LEANING[name]
    told = float(words.split()[0]) / 100
    d = draw(np.random.default_rng(2), (20_000, 64))
    decided = np.zeros(len(d), bool)
    for seeds, error in looks(64):
        first = d[:, :seeds]
        half = stdtrit(seeds - 1, 1 - error / 2) * first.std(axis=1, ddof=1) / math.sqrt(seeds)
        decided |= abs(first.mean(axis=1)) > half
    for row, wrong in zip(d[:40], decided, strict=False):
        found = decide("below", row.tolist(), [0.0] * 64, "difference", 1e-9)
        assert (found.verdict in (Verdict.SUPPORTED, Verdict.CONTRADICTED)) == wrong
    assert abs(decided.mean() - told) < 0.003 + 3 * math.sqrt(told / len(d))
    assert f" {words}" in sequential.RISK


def drawn(relation, seen, noise, futures=20_000):
    """The share of futures, drawn seed by seed, that a look decides by 24 seeds."""
    rng = np.random.default_rng(1)
    have, deviation = len(seen), np.std(seen, ddof=1)
    sigma = deviation * np.sqrt((have - 1) / rng.chisquare(have - 1, (futures, 1)))
    truth = rng.normal(np.mean(seen), sigma / math.sqrt(have))
    whole = np.hstack([np.tile(seen, (futures, 1)), rng.normal(truth, sigma, (futures, 24 - have))])
    decided = np.zeros(futures, dtype=bool)
    for look in (look for look in SPENT if have < look <= 24):
        now, intervals = whole[:, :look], []
        for tail in (SPENT[look] * ERROR / 2, SPENT[look] * ERROR):  # on each side, of the wide and the inner interval
            seeds = stdtrit(look - 1, 1 - tail) * now.std(axis=1, ddof=1) / math.sqrt(look)
            half = np.hypot(seeds, ndtri(1 - tail) * noise)
            intervals.append(np.stack([now.mean(axis=1) - half, now.mean(axis=1) + half]))
        decided |= shown(relation, 0.05, *intervals).any(axis=0)
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
    told = chance_to_decide(
        relation, float(np.mean(seen)), float(np.std(seen, ddof=1)), 0.05, len(seen), (noise, noise), until=24
    )
    chance = drawn(relation, seen, noise)
    assert 0.1 < chance < 0.9
    assert told == pytest.approx(chance, abs=0.015)  # three standard errors of either


def test_what_is_certain_and_what_is_in_vain():
    assert chance_to_decide("below", 0.0, 1e-9, 0.05, 3) == 1  # no difference, at the look after five
    assert chance_to_decide("below", 0.05, 1e-9, 0.05, 3, (0.05, 0.05)) == 0  # the noise of the prompts stays
    assert chance_to_decide("below", 0.0, 1.0, 0.05, 64) == 0
    assert chance_to_decide("below", 0.0, math.nan, 0.05, 1) == 0


def test_the_same_claim_has_the_same_futures_and_fewer_seeds_leave_more_open():
    few, many = (chance_to_decide("above", 0.1, 1.0, 0.05, have) for have in (3, 24))
    assert few == chance_to_decide("above", 0.1, 1.0, 0.05, 3) > 0.3 > 0.1 > many
    told, blind = (chance_to_decide("above", 0.1, 1.0, 0.05, 3, noise) for noise in ((0.0, 0.0), (math.nan, math.nan)))
    assert told == blind
