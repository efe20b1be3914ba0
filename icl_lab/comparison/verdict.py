"""Verdict on a claim: the direction of an effect and its size, both read from one interval.

An effect is left against right: the logarithm of their ratio, or their difference. Nothing here looks at the estimate:
two intervals that are equal have the same verdict.
"""

import math
from enum import StrEnum
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from icl_lab.base.registry import require
from icl_lab.comparison.statistics import Scale

Relation = Literal["below", "above", "equal", "not below", "not above"]


class State(StrEnum):
    """State of a claim: judged, or the reason why it cannot be."""

    JUDGED = "judged"
    FEW_SEEDS = "too few seeds"
    NOT_LEARNED = "not learned"
    NOT_BETTER = "no better than trivial"
    UNTRAINED = "untrained positions"
    AT_BOUND = "at the ceiling"
    NOTHING_TO_JUDGE = "nothing to judge"
    NOT_RUN = "not run"


class Direction(StrEnum):
    """Direction of an effect: the side of 0 on which the whole interval lies."""

    BELOW = "below"
    ABOVE = "above"
    INCONCLUSIVE = "inconclusive"


class EffectSize(StrEnum):
    """Size of an effect: against the printed one where a paper prints it, else against the margin of no difference."""

    AS_PRINTED = "as printed"
    SMALLER = "smaller than printed"
    LARGER = "larger than printed"
    EXCLUDED = "printed effect excluded"
    WITHIN = "within the margin"
    BEYOND = "beyond the margin"
    NOT_BELOW = "not below by the margin"
    NOT_ABOVE = "not above by the margin"
    INCONCLUSIVE = "inconclusive"


def direction_of(low: float, high: float) -> Direction:
    """Return the direction of an interval; inconclusive where 0 lies in it, or where it has no ends (NaN).

    >>> direction_of(-0.3, -0.1), direction_of(-0.1, 0.3)
    (<Direction.BELOW: 'below'>, <Direction.INCONCLUSIVE: 'inconclusive'>)
    """
    if high < 0:
        return Direction.BELOW
    return Direction.ABOVE if low > 0 else Direction.INCONCLUSIVE


def size_of(low: float, high: float, margin: float, printed: float | None = None) -> EffectSize:
    """Return the size that an interval [l, h] shows, with the printed effect p or the margin m of no difference.

    Formula, of the first that holds, written for p < 0 (p > 0 is its mirror image):
    printed: larger h < p; smaller p < l and h < 0; excluded p < l; as printed l <= p <= h and h < 0
    margin: within -m < l and h < m; beyond h < -m or l > m; not below l > -m; not above h < m
    Of an effect printed as smaller than the margin: as printed within, larger or (on the other side) excluded beyond.
    """
    require(margin > 0, "the margin of what counts as no difference must be above 0", margin)
    if printed is None or math.isnan(printed):
        return _by_margin(low, high, margin)
    if abs(printed) < margin:
        beyond = EffectSize.LARGER if printed * (low + high) > 0 else EffectSize.EXCLUDED
        by_margin = _by_margin(low, high, margin)
        return {EffectSize.WITHIN: EffectSize.AS_PRINTED, EffectSize.BEYOND: beyond}.get(by_margin, by_margin)
    if printed > 0:
        low, high, printed = -high, -low, -printed
    if high < printed:
        return EffectSize.LARGER
    if low > printed:
        return EffectSize.SMALLER if high < 0 else EffectSize.EXCLUDED
    return EffectSize.AS_PRINTED if high < 0 else EffectSize.INCONCLUSIVE


def _by_margin(low: float, high: float, margin: float) -> EffectSize:
    if -margin < low and high < margin:
        return EffectSize.WITHIN
    if high < -margin or low > margin:
        return EffectSize.BEYOND
    if direction_of(low, high) is not Direction.INCONCLUSIVE:
        return EffectSize.INCONCLUSIVE
    if low > -margin:
        return EffectSize.NOT_BELOW
    return EffectSize.NOT_ABOVE if high < margin else EffectSize.INCONCLUSIVE


def settled(relation: Relation, margin: float, low: ArrayLike, high: ArrayLike) -> NDArray[np.bool_]:
    """Return True where intervals, (..), answer a claim, so that it needs no further seed.

    Formula, with the interval [l, h] and the margin m of no difference:
    below, above: h < 0, or l > 0, or -m < l and h < m
    equal: -m < l and h < m, or l > m, or h < -m
    not below: l > -m, or h < -m; not above is its mirror image
    """
    require(margin > 0, "the margin of what counts as no difference must be above 0", margin)
    low, high = np.asarray(low, dtype=float), np.asarray(high, dtype=float)
    if relation == "not above":
        return settled("not below", margin, -high, -low)
    if relation == "not below":
        return np.asarray((low > -margin) | (high < -margin))
    within = (-margin < low) & (high < margin)
    border = margin if relation == "equal" else 0.0
    return np.asarray(within | (low > border) | (high < -border))


def agrees(relation: Relation, margin: float, low: float, high: float) -> bool | None:
    """Return True if an interval shows what a claim says, False if it shows the opposite, None if neither."""
    if not settled(relation, margin, low, high):
        return None
    if relation == "equal":
        return bool(-margin < low and high < margin)
    if relation in ("not below", "not above"):
        return bool(low > -margin if relation == "not below" else high < margin)
    direction = direction_of(low, high)
    return None if direction is Direction.INCONCLUSIVE else str(direction) == relation


def named_margin(margin: float, scale: Scale) -> str:
    """Return a margin in words.

    >>> [named_margin(math.log(ratio), "log-ratio") for ratio in (1.25, 3)], named_margin(0.05, "difference")
    (['a quarter', 'a factor 3'], '0.05')
    """
    if scale == "difference":
        return f"{margin:g}"
    factor = f"{math.exp(margin):.3g}"
    return {"1.25": "a quarter", "1.33": "a third"}.get(factor, f"a factor {factor}")


def size_words(size: EffectSize, margin: float, scale: Scale) -> str:
    """Return a size in words; the margin is named where it is what the effect was held against."""
    named = named_margin(margin, scale)
    return {
        EffectSize.WITHIN: f"less than {named} either way",
        EffectSize.BEYOND: f"more than {named}",
        EffectSize.NOT_BELOW: f"less than {named} below",
        EffectSize.NOT_ABOVE: f"less than {named} above",
    }.get(size, str(size))


def verdict_words(direction: Direction, size: EffectSize, margin: float, scale: Scale) -> str:
    """Return a verdict in words.

    >>> verdict_words(Direction.BELOW, EffectSize.SMALLER, 0.05, "difference")
    'below; smaller than printed'
    >>> verdict_words(Direction.INCONCLUSIVE, EffectSize.WITHIN, 0.05, "difference")
    'inconclusive; less than 0.05 either way'
    """
    if size is EffectSize.INCONCLUSIVE:
        return str(direction)
    return f"{direction}; {size_words(size, margin, scale)}"
