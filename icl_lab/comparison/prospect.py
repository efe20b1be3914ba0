"""Chance that more training seeds decide an open claim, and their expected number."""

import math
from dataclasses import dataclass

import numpy as np

from icl_lab.comparison.sequential import SPENT, Relation, decides

FUTURES = 1000  # that are drawn


@dataclass(frozen=True)
class Prospect:
    """The chance that one of the looks ahead decides, and the price of a verdict in seeds.

    price = the seeds that are spent up to a look, in vain too, over the chance that it or one before decides; at the
    look where that is least, since after it the claim may be left for another one. Infinite without a chance.
    """

    chance: float
    price: float


def prospect(
    relation: Relation,
    effect: float,
    deviation: float,
    margin: float,
    have: int,
    prompts_error: tuple[float, float] = (0.0, 0.0),
    until: int = max(SPENT),
) -> Prospect:
    """Draws futures of a claim that ``have`` seeds have not decided, and looks at each of them up to ``until`` seeds.

    Formula: variance = (k - 1) s^2 / chi2(k - 1), mean = N(effect, variance / k), then seeds = N(mean, variance), where
    the effect and the deviation s are those of k seeds: the predictive distribution of normal differences when nothing
    is known beforehand (Geisser 1993, Predictive Inference, 2.2)

    So it is honest about few seeds, which tell effect and deviation badly: where these, taken as exact, would never
    decide (``seeds_to_decide``), other values that fit as well may. ``prompts_error`` is that of the test prompts below
    and above, which no seed makes smaller; NaN (not told) counts as none. The same claim gets the same futures.
    """
    ahead = [look for look in SPENT if have < look <= until]
    if have < 2 or not ahead or math.isnan(deviation):
        return Prospect(0.0, math.inf)
    rng = np.random.default_rng(0)
    scale = deviation * np.sqrt((have - 1) / rng.chisquare(have - 1, FUTURES))
    truth = rng.normal(effect, scale / math.sqrt(have))
    mean, squares, seeds = np.full(FUTURES, effect), np.full(FUTURES, (have - 1) * deviation**2), have
    undecided, spent, price = np.ones(FUTURES, dtype=bool), 0.0, math.inf
    for look in ahead:
        more = look - seeds
        new = rng.normal(truth, scale / math.sqrt(more))
        squares += scale**2 * rng.chisquare(more - 1, FUTURES) if more > 1 else 0.0
        squares += (new - mean) ** 2 * seeds * more / look  # two groups' squares about their common mean
        mean, seeds = (mean * seeds + new * more) / look, look
        spent += more * float(undecided.mean())
        undecided &= ~decides(relation, margin, mean, np.sqrt(squares / (look - 1) / look), look, prompts_error)
        chance = 1 - float(undecided.mean())
        price = min(price, spent / chance if chance else math.inf)
    return Prospect(chance, price)
