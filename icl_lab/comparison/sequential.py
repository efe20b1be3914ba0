"""Verdicts that may be asked for again and again while seeds are added, and can end: by a difference, or by none.

The seeds are looked at after 3, 5, 8, 12, 16, 24, 32, 48 and 64 of them and never in between. Each look may err with a
share of the whole error of 5 %, and the first look that decides is the verdict, whatever comes after it. So the chance
of a wrong verdict is at most 5 %, however often somebody looks and whenever he stops (Bonferroni's inequality over the
looks; alpha spending: Lan & DeMets 1983, Biometrika 70), if the differences over seeds are about normal: ``RISK``.

Bonferroni's inequality leaves slack: normal differences err in 3.7 %. Looks that share the 5 % exactly would take 8 to
17 % fewer seeds, and err in 7.3 % where differences are uniform, so that the slack is kept.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from icl_lab.comparison.given import Array
from icl_lab.comparison.statistics import Effect, Evaluation, Scale, paired
from icl_lab.comparison.verdict import Verdict
from icl_lab.comparison.widening import half_width
from icl_lab.registry import require

Relation = Literal["below", "above", "equal", "not below", "not above"]
DECIDING = (Verdict.SUPPORTED, Verdict.CONTRADICTED, Verdict.NO_DIFFERENCE)  # the first that holds is the outcome
Interval = Callable[[float], tuple[float, float]]  # a confidence -> the ends of the interval

ERROR = 0.05  # chance of a wrong verdict over all looks together
# Seeds at a look -> its share of the error: most where seeds are few, since most verdicts are clear then or late.
SPENT = {3: 0.2, 5: 0.2, 8: 0.2, 12: 0.1, 16: 0.1, 24: 0.08, 32: 0.06, 48: 0.04, 64: 0.02}
MIRROR: dict[str, Relation] = {"above": "below", "not above": "not below"}
# Measured over 200,000 simulated claims of no difference, looked at up to 64 seeds; the tests hold ``decide`` to it.
RISK = (
    "The 5 % hold for differences over seeds that are about normal: in simulated claims 3.7 % of verdicts on such are "
    "wrong, 2.4 % where tails are heavy (Student's t with 3 degrees of freedom), 6.0 % where they are uniform. Where "
    "they lean to one side more are: 14 % if exponential, 10 % if one training in ten of one rule fails by five "
    "standard deviations. There look at the single seeds, and at those that came after a verdict."
)
FUTURES = 1000  # that are drawn for a chance
LEAST = 1e-12  # p values are not told below
MOST = 0.499  # and not above: there the intervals of two one-sided tests have no width


@dataclass(frozen=True, kw_only=True)
class Decision:
    """Decision of a sequential test: the verdict, and the effect with its interval at the look that it rests on."""

    verdict: Verdict
    effect: Effect  # left against right: below 0 where left is smaller
    confidence: float  # of its interval
    p: float  # that all looks are as clear by chance: valid whenever it is read; NaN before the first look

    @property
    def seeds(self) -> int:
        """Number of training seeds that it rests on, the first ones."""
        return self.effect.seeds

    @property
    def deviation(self) -> float:
        """The standard deviation of the effect over training seeds; NaN where there is none."""
        return self.effect.seeds_error * math.sqrt(self.seeds)


def looks(seeds: int) -> list[tuple[int, float]]:
    """Returns the looks that so many seeds allow: the seeds of each, and the error that it may spend."""
    return [(count, share * ERROR) for count, share in SPENT.items() if count <= seeds]


def outcome(relation: Relation, margin: float, interval: Interval, error: float) -> Verdict:
    """Outcome of one look at "left is below right" (above, equal to, not below, not above), at this error.

    Formula, with the intervals [l, h] of confidence 1 - error and [l', h'] of 1 - 2 error around left - right, and the
    margin m of what counts as no difference:
    below: supported h < 0, contradicted l > 0, no difference -m < l' and h' < m (two one-sided tests)
    equal: supported -m < l' and h' < m, contradicted l > m or h < -m
    not below: supported l' > -m, contradicted h < -m
    Source: two one-sided tests, Schuirmann 1987, J. Pharmacokinet. Biopharm. 15
    """
    holding = shown(relation, margin, *(np.array(interval(1 - share)) for share in (error, 2 * error)))
    return next((name for name, holds in zip(DECIDING, holding, strict=True) if holds), Verdict.INCONCLUSIVE)


def shown(relation: Relation, margin: float, wide: Array, inner: Array) -> NDArray[np.bool_]:
    """True if intervals (2 ..), the wide and the inner one of ``outcome``, show one of ``DECIDING``, (verdicts ..)."""
    require(margin > 0, "the margin of what counts as no difference must be above 0", margin)
    if relation in MIRROR:
        return shown(MIRROR[relation], margin, -wide[::-1], -inner[::-1])  # of right - left
    (low, high), (inner_low, inner_high) = wide, inner
    within, never = (-margin < inner_low) & (inner_high < margin), np.zeros(np.shape(low), dtype=bool)
    if relation == "below":
        return np.stack([high < 0, low > 0, within])
    if relation == "equal":
        return np.stack([within, (low > margin) | (high < -margin), never])
    return np.stack([inner_low > -margin, high < -margin, never])


def decide(
    relation: Relation,
    left: Sequence[float],
    right: Sequence[float],
    scale: Scale,
    margin: float,
    noise: Callable[[int], Evaluation | None] = lambda seeds: None,
    resolution: float = 0.0,
    may_decide: Callable[[int], bool] = lambda seeds: True,
) -> Decision:
    """Judges a claim about two quantities, one number a training seed each, paired by position.

    ``noise`` returns for the first so many seeds how far the effect hangs on their test prompts, where that is known;
    ``may_decide`` whether a look at them may decide anything: fewer looks err less, whatever closes the others.
    Below three seeds nothing is decided. ``resolution`` is the smallest step that a rate can take, one prompt in those
    that it was measured on: the deviation over seeds is taken to be no smaller, since rates that are the same in every
    seed (no error in 256 prompts) need not be the same in truth.
    """
    allowed = looks(len(left))
    if not allowed:
        found = paired(right, left, scale)
        effect = found if len(left) == 1 else _widened(found, noise(len(left)))
        return Decision(verdict=Verdict.INCONCLUSIVE, effect=effect, confidence=0.95, p=math.nan)
    valid = 1.0
    verdict = Verdict.INCONCLUSIVE
    for seeds, error in allowed:
        effect = _widened(difference(left[:seeds], right[:seeds], scale, resolution), noise(seeds))
        if not may_decide(seeds):
            continue
        valid = min(valid, _p(relation, margin, effect.interval) * ERROR / error)
        verdict = outcome(relation, margin, effect.interval, error)
        if verdict.decided:
            break
    low, high = effect.interval(1 - error)
    effect = replace(effect, low=low, high=high)
    return Decision(verdict=verdict, effect=effect, confidence=1 - error, p=max(LEAST, valid))


def difference(left: Sequence[float], right: Sequence[float], scale: Scale, resolution: float = 0.0) -> Effect:
    """Compares left with right over training seeds, which spread by no less than one step of a rate (``decide``)."""
    effect = paired(right, left, scale)
    least = resolution / math.sqrt(effect.seeds)
    if not resolution or effect.seeds_error > least:
        return effect
    effect = replace(effect, seeds_error=least)
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
    """Returns after how many seeds a look would decide if effect and deviation stayed as they are; None beyond all.

    ``deviation`` is the standard deviation of the difference over seeds. Known from three seeds it may be wrong by a
    factor of 0.5 to 6, so this is a plan and no promise. ``prompts_error`` is the standard error of the test prompts
    below and above the effect, which no seed makes smaller; NaN (not told) counts as none.
    """
    errors = {look: deviation / math.sqrt(look) for look in SPENT if look > have}
    deciding = (look for look, error in errors.items() if decides(relation, margin, effect, error, look, prompts_error))
    return next(deciding, None)


def chance_to_decide(
    relation: Relation,
    effect: float,
    deviation: float,
    margin: float,
    have: int,
    prompts_error: tuple[float, float] = (0.0, 0.0),
    until: int = max(SPENT),
) -> float:
    """Return the share of futures in which a look at up to ``until`` seeds decides a claim that ``have`` did not.

    Formula: variance = (k - 1) s^2 / chi2(k - 1), mean = N(effect, variance / k), then seeds = N(mean, variance), where
    the effect and the deviation s are those of k seeds: the predictive distribution of normal differences when nothing
    is known beforehand (Geisser 1993, Predictive Inference, 2.2)

    So it is honest about few seeds, which tell effect and deviation badly: where these, taken as exact, would never
    decide (``seeds_to_decide``), other values that fit as well may. The same claim gets the same futures.
    """
    ahead = [look for look in SPENT if have < look <= until]
    if have < 2 or not ahead or math.isnan(deviation):
        return 0.0
    rng = np.random.default_rng(0)
    scale = deviation * np.sqrt((have - 1) / rng.chisquare(have - 1, FUTURES))
    truth = rng.normal(effect, scale / math.sqrt(have))
    mean, squares, seeds = np.full(FUTURES, effect), np.full(FUTURES, (have - 1) * deviation**2), have
    undecided = np.ones(FUTURES, dtype=bool)
    for look in ahead:
        more = look - seeds
        new = rng.normal(truth, scale / math.sqrt(more))
        squares += scale**2 * rng.chisquare(more - 1, FUTURES) if more > 1 else 0.0
        squares += (new - mean) ** 2 * seeds * more / look  # two groups' squares about their common mean
        mean, seeds = (mean * seeds + new * more) / look, look
        undecided &= ~decides(relation, margin, mean, np.sqrt(squares / (look - 1) / look), look, prompts_error)
    return 1 - float(undecided.mean())


def decides(
    relation: Relation,
    margin: float,
    effect: float | Array,
    seeds_error: float | Array,
    look: int,
    prompts_error: tuple[float, float],
) -> NDArray[np.bool_]:
    """True if a look at so many seeds decides, for effects and standard errors of one claim or of many, (..).

    ``prompts_error`` is the standard error of the test prompts below and above; NaN (not told) counts as none.
    """
    below, above = np.nan_to_num(prompts_error)
    wide, inner = (
        effect + np.stack([-half_width(p, seeds_error, look - 1, below), half_width(p, seeds_error, look - 1, above)])
        for p in (SPENT[look] * ERROR, 2 * SPENT[look] * ERROR)
    )
    return np.asarray(shown(relation, margin, wide, inner).any(axis=0))


def _widened(effect: Effect, noise: Evaluation | None) -> Effect:
    """The effect widened by the variance over its prompts, where that is known."""
    return effect if noise is None else effect.widened(noise)


def _p(relation: Relation, margin: float, interval: Interval) -> float:
    """The smallest error at which this look decides: what its p value is, for intervals of any kind."""
    low, high = math.log(LEAST), math.log(MOST)
    if not outcome(relation, margin, interval, math.exp(high)).decided:
        return 1.0
    for _ in range(40):
        middle = (low + high) / 2
        decided = outcome(relation, margin, interval, math.exp(middle)).decided
        low, high = (low, middle) if decided else (middle, high)
    return math.exp(high)
