"""Intervals that may be looked at again and again while seeds are added.

The seeds are looked at after 3, 5, 8, 12, 16, 24, 32, 48 and 64 of them and never in between. Each look has a share of
the whole error of 5 %, and its interval has confidence one minus that share. So the intervals of all looks together
hold the true effect with 95 %, however often somebody looks and whenever he stops (Bonferroni's inequality over the
looks; alpha spending: Lan & DeMets 1983, Biometrika 70), if the differences over seeds are about normal: ``RISK``. The
verdict is read from the interval of the last look that the seeds allow.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtrit

from icl_lab.comparison.given import Array
from icl_lab.comparison.statistics import Effect, Evaluation, Scale, paired, unpaired
from icl_lab.comparison.verdict import Relation, settled
from icl_lab.comparison.widening import half_width

ERROR = 0.05  # chance that the interval of some look misses the effect
# Seeds at a look -> its share of the error: most where seeds are few, since most verdicts are clear then or late.
SPENT = {3: 0.2, 5: 0.2, 8: 0.2, 12: 0.1, 16: 0.1, 24: 0.08, 32: 0.06, 48: 0.04, 64: 0.02}
# Measured over 200,000 simulated claims, looked at up to 64 seeds; the tests hold ``look`` to it.
RISK = (
    "The 5 % hold for differences over seeds that are about normal: in simulated claims without any effect some look "
    "tells a direction in 3.7 % of those, in 2.4 % where tails are heavy (Student's t with 3 degrees of freedom), in "
    "6.0 % where they are uniform. Where they lean to one side it is more: 14 % if exponential, 10 % if one training "
    "in ten of one normalizer fails by five standard deviations. There look at the single seeds."
)
# Whether the two sides of a claim are paired by training seed: chosen once, from the correlation of both sides over
# seeds, pooled over all claims of the record of 2026-11-29 (tests/claims/test_referee.py). Pairing has half the degrees
# of freedom, so that it is the narrower one, at 8 seeds and 99 %, only above a correlation of 1 - (t(14) / t(7))^2.
PAIRED = {"one model": True, "two models": False}  # correlations 0.43 and 0.16
# Claims whose seeds were all trained later are judged so; others keep the paired interval that they were judged by.
SINCE = datetime(2026, 11, 29, 13, 30, tzinfo=UTC)
WORTH_PAIRING = 1 - float(stdtrit(14, 0.995) / stdtrit(7, 0.995)) ** 2  # 0.28
FUTURES = 1000  # that are drawn for a chance


@dataclass(frozen=True, kw_only=True)
class Look:
    """Last look at an effect: its interval holds at every look together, and so does its p value."""

    effect: Effect  # left against right, with the interval of the look; NaN where there are fewer than three seeds
    confidence: float  # of the interval
    p: float  # of no effect, below 0.05 exactly where the interval excludes 0; NaN before the first look

    @property
    def seeds(self) -> int:
        """Number of training seeds that it rests on, the first ones."""
        return self.effect.seeds

    @property
    def deviation(self) -> float:
        """The standard deviation of the effect over training seeds; NaN where there is none."""
        return self.effect.seeds_error * math.sqrt(self.seeds)


def looks(seeds: int) -> list[tuple[int, float]]:
    """Return the looks that this number of seeds allows: the seeds of each, and the error that it may spend."""
    return [(count, share * ERROR) for count, share in SPENT.items() if count <= seeds]


def look(
    left: Sequence[float],
    right: Sequence[float],
    scale: Scale,
    noise: Callable[[int], Evaluation | None] = lambda seeds: None,
    resolution: float = 0.0,
    inflation: Callable[[int], float] = lambda seeds: 1.0,
    span: float = math.inf,
    apart: bool = False,
) -> Look:
    """Compare two quantities, one number per training seed each, at the last look they allow.

    They are paired by position, or two independent groups where they are ``apart`` (``PAIRED``). Of groups of unequal
    size all seeds count, and the look is that of the smaller one.
    ``noise`` maps a number of seeds to the effect's error from their test prompts, where that is known, ``inflation`` a
    factor on the standard error over seeds, for seeds that are correlated. ``resolution`` is the smallest step that a
    rate can take, one prompt in those that it was measured on: the deviation over seeds is taken to be no smaller,
    since rates that are the same in every seed (no error in 256 prompts) need not be the same in truth. The interval
    ends at -span and span, beyond which no difference lies. With one or two seeds there is an effect, but no interval.
    """
    both = min(len(left), len(right))
    allowed, unequal = looks(both), len(left) != len(right)
    if not allowed:
        few = replace((unpaired if unequal else paired)(right, left, scale), low=math.nan, high=math.nan)
        return Look(effect=few, confidence=math.nan, p=math.nan)
    seeds, error = allowed[-1]
    if not (apart and unequal):
        left, right = left[:seeds], right[:seeds]
    effect = replace(difference(left, right, scale, resolution, inflation(seeds), apart), seeds=seeds)
    if (known := noise(seeds)) is not None:
        effect = effect.widened(known)
    low, high = effect.interval(1 - error)
    effect = replace(effect, low=low, high=high).clipped(span)
    return Look(effect=effect, confidence=1 - error, p=min(1.0, effect.p * ERROR / error))


def difference(
    left: Sequence[float],
    right: Sequence[float],
    scale: Scale,
    resolution: float = 0.0,
    inflation: float = 1.0,
    apart: bool = False,
) -> Effect:
    """Compare left with right over training seeds, which spread by no less than one step of a rate (``look``)."""
    effect = (unpaired if apart else paired)(right, left, scale)
    known = 0.0 if math.isnan(effect.seeds_error) else effect.seeds_error
    error = inflation * max(known, resolution / math.sqrt(effect.seeds))
    if error in (0.0, known):
        return effect
    effect = replace(effect, seeds_error=error)
    low, high = effect.interval()
    return replace(effect, low=low, high=high)


def seeds_to_decide(
    relation: Relation,
    effect: float,
    deviation: float,
    margin: float,
    have: int,
    prompts_error: tuple[float, float] = (0.0, 0.0),
) -> int | None:
    """Return after how many seeds a claim would be settled, were effect and deviation to stay; None beyond all.

    ``deviation`` is the standard deviation of the difference over seeds. Known from three seeds it may be wrong by a
    factor of 0.5 to 6, so this is a plan and no promise. ``prompts_error`` is the standard error of the test prompts
    below and above the effect, which no seed makes smaller; NaN (unknown) counts as none.
    """
    errors = {count: deviation / math.sqrt(count) for count in SPENT if count > have}
    settling = (n for n, error in errors.items() if settles(relation, margin, effect, error, n, prompts_error))
    return next(settling, None)


def chance_to_decide(
    relation: Relation,
    effect: float,
    deviation: float,
    margin: float,
    have: int,
    prompts_error: tuple[float, float] = (0.0, 0.0),
    until: int = max(SPENT),
) -> float:
    """Return the share of futures in which a look at up to ``until`` seeds settles a claim that ``have`` did not.

    Formula: variance = (k - 1) s^2 / chi2(k - 1), mean = N(effect, variance / k), then seeds = N(mean, variance), where
    the effect and the deviation s are those of k seeds: the predictive distribution of normal differences when nothing
    is known beforehand (Geisser 1993, Predictive Inference, 2.2)

    So it is honest about few seeds, which tell effect and deviation badly: where these, taken as exact, would never
    settle it (``seeds_to_decide``), other values that fit as well may. The same claim gets the same futures.
    """
    ahead = [count for count in SPENT if have < count <= until]
    if have < 2 or not ahead or math.isnan(deviation):
        return 0.0
    rng = np.random.default_rng(0)
    scale = deviation * np.sqrt((have - 1) / rng.chisquare(have - 1, FUTURES))
    truth = rng.normal(effect, scale / math.sqrt(have))
    mean, squares, seeds = np.full(FUTURES, effect), np.full(FUTURES, (have - 1) * deviation**2), have
    still_open = np.ones(FUTURES, dtype=bool)
    for count in ahead:
        more = count - seeds
        new = rng.normal(truth, scale / math.sqrt(more))
        squares += scale**2 * rng.chisquare(more - 1, FUTURES) if more > 1 else 0.0
        squares += (new - mean) ** 2 * seeds * more / count  # two groups' squares about their common mean
        mean, seeds = (mean * seeds + new * more) / count, count
        still_open &= ~settles(relation, margin, mean, np.sqrt(squares / (count - 1) / count), count, prompts_error)
    return 1 - float(still_open.mean())


def settles(
    relation: Relation,
    margin: float,
    effect: float | Array,
    seeds_error: float | Array,
    seeds: int,
    prompts_error: tuple[float, float],
) -> NDArray[np.bool_]:
    """True if a look at this number of seeds decides a claim, for effects and standard errors of claims, (..).

    ``prompts_error`` is the standard error of the test prompts below and above; NaN (unknown) counts as none.
    """
    below, above = np.nan_to_num(prompts_error)
    error = SPENT[seeds] * ERROR
    low = effect - half_width(error, seeds_error, seeds - 1, below)
    return settled(relation, margin, low, effect + half_width(error, seeds_error, seeds - 1, above))
