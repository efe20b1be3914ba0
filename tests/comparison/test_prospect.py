"""What further seeds can be expected to do, against futures that are drawn seed by seed."""

import importlib
import math

import numpy as np
import pytest
from scipy.special import ndtri, stdtrit

from icl_lab.comparison.prospect import Prospect, prospect
from icl_lab.comparison.sequential import ERROR, SPENT, shown
from icl_lab.comparison.statistics import MARGIN

M = MARGIN["difference"]
module = importlib.import_module("icl_lab.comparison.prospect")  # whose function bears its name


def drawn(relation, seen, luck, futures=20_000):
    """The share of futures that a look decides by 24 seeds, and the least of: seeds spent by a look / decided by it."""
    rng = np.random.default_rng(1)
    have, deviation = len(seen), np.std(seen, ddof=1)
    sigma = deviation * np.sqrt((have - 1) / rng.chisquare(have - 1, (futures, 1)))
    truth = rng.normal(np.mean(seen), sigma / math.sqrt(have))
    whole = np.hstack([np.tile(seen, (futures, 1)), rng.normal(truth, sigma, (futures, 24 - have))])
    ended, prices = np.full(futures, np.inf), []
    for look in (look for look in SPENT if have < look <= 24):
        now, intervals = whole[:, :look], []
        for tail in (SPENT[look] * ERROR / 2, SPENT[look] * ERROR):  # on each side, of the wide and the inner interval
            seeds = stdtrit(look - 1, 1 - tail) * now.std(axis=1, ddof=1) / math.sqrt(look)
            half = np.hypot(seeds, ndtri(1 - tail) * luck)
            intervals.append(np.stack([now.mean(axis=1) - half, now.mean(axis=1) + half]))
        decides = shown(relation, M, *intervals).any(axis=0)
        ended = np.where(decides & np.isinf(ended), look, ended)
        if (ended <= look).any():
            prices.append((np.minimum(ended, look) - have).mean() / (ended <= look).mean())
    return np.isfinite(ended).mean(), min(prices)


@pytest.mark.parametrize(
    ("relation", "seen", "luck"),
    [
        ("below", [-0.2, 0.0, 0.1], 0.0),
        ("above", [-0.1, 0.3, 0.5, -0.2, 0.6], 0.05),
        ("equal", [0.03, -0.03, 0.0], 0.0),
        ("not above", [0.0, 0.06, 0.01], 0.01),
    ],
)
def test_the_chance_is_that_of_futures_drawn_seed_by_seed(relation, seen, luck, monkeypatch):
    monkeypatch.setattr(module, "FUTURES", 20_000)
    told = prospect(relation, float(np.mean(seen)), float(np.std(seen, ddof=1)), M, len(seen), (luck, luck), until=24)
    chance, price = drawn(relation, seen, luck)
    assert 0.1 < chance < 0.9
    assert told.chance == pytest.approx(chance, abs=0.015)  # three standard errors of either
    assert told.price == pytest.approx(price, rel=0.05)


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
