"""What further seeds can be expected to do, against futures that are drawn seed by seed and judged one by one."""

import math

import numpy as np
import pytest
from scipy.special import ndtri, stdtrit

from icl_lab.comparison.prospect import FUTURES, Prospect, prospect
from icl_lab.comparison.sequential import ERROR, SPENT, outcome
from icl_lab.comparison.statistics import MARGIN

M = MARGIN["difference"]


def drawn(relation, seen, luck, futures=500):
    """The share of futures that a look decides by 24 seeds, and the least of: seeds spent by a look / decided by it."""
    rng = np.random.default_rng(1)
    have, mean, deviation = len(seen), np.mean(seen), np.std(seen, ddof=1)
    looks = [look for look in SPENT if have < look <= 24]
    decided, spent = dict.fromkeys(looks, 0), dict.fromkeys(looks, 0)
    for _ in range(futures):
        sigma = deviation * math.sqrt((have - 1) / rng.chisquare(have - 1))
        truth = rng.normal(mean, sigma / math.sqrt(have))
        whole = np.array([*seen, *rng.normal(truth, sigma, 24 - have)])
        for look in looks:
            now = whole[:look]

            def interval(confidence, now=now):
                seeds = stdtrit(len(now) - 1, (1 + confidence) / 2) * now.std(ddof=1) / math.sqrt(len(now))
                half = math.hypot(seeds, ndtri((1 + confidence) / 2) * luck)
                return now.mean() - half, now.mean() + half

            if outcome(relation, M, interval, SPENT[look] * ERROR) != "inconclusive":
                break
        else:
            look = math.inf
        for each in looks:
            decided[each] += look <= each
            spent[each] += min(look, each) - have
    return decided[24] / futures, min(spent[look] / decided[look] for look in looks if decided[look])


@pytest.mark.parametrize(
    ("relation", "seen", "luck"),
    [
        ("below", [-0.2, 0.0, 0.1], 0.0),
        ("above", [-0.1, 0.3, 0.5, -0.2, 0.6], 0.05),
        ("equal", [0.03, -0.03, 0.0], 0.0),
        ("not above", [0.0, 0.06, 0.01], 0.01),
    ],
)
def test_the_chance_is_that_of_futures_drawn_one_by_one(relation, seen, luck):
    told = prospect(relation, float(np.mean(seen)), float(np.std(seen, ddof=1)), M, len(seen), (luck, luck), until=24)
    chance, price = drawn(relation, seen, luck)
    error = math.sqrt(chance * (1 - chance) * (1 / 500 + 1 / FUTURES))
    assert 0.1 < chance < 0.9
    assert told.chance == pytest.approx(chance, abs=4 * error)
    assert told.price == pytest.approx(price, rel=0.25)


def test_what_is_certain_and_what_is_in_vain():
    assert prospect("below", 0.0, 1e-9, M, 3) == Prospect(1.0, 2.0)  # no difference, at the look after five
    assert prospect("below", M, 1e-9, M, 3, (M, M)) == Prospect(0.0, math.inf)  # the luck of the prompts stays
    assert prospect("below", 0.0, 1.0, M, 64) == Prospect(0.0, math.inf)
    assert prospect("below", 0.0, math.nan, M, 1) == Prospect(0.0, math.inf)


def test_the_same_claim_has_the_same_futures_and_fewer_seeds_leave_more_open():
    assert prospect("above", 0.1, 1.0, M, 3) == prospect("above", 0.1, 1.0, M, 3)
    few, many = (prospect("above", 0.1, 1.0, M, have).chance for have in (3, 24))
    assert few > 0.3 > 0.1 > many
    told, blind = (prospect("above", 0.1, 1.0, M, 3, luck) for luck in ((0.0, 0.0), (math.nan, math.nan)))
    assert told == blind
