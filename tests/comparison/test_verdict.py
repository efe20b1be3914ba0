"""Direction and size by hand, and what is told of true effects in simulated studies."""

import math
from collections import Counter

import numpy as np
import pytest
from scipy.stats import t

from icl_lab.base.errors import BadValue
from icl_lab.comparison.sequential import SPENT, look
from icl_lab.comparison.verdict import Direction, EffectSize, agrees, direction_of, settled, size_of, verdict_words

M = 0.2


@pytest.mark.parametrize(
    ("low", "high", "direction", "size"),
    [
        (-0.5, -0.3, Direction.BELOW, EffectSize.BEYOND),
        (-0.15, -0.05, Direction.BELOW, EffectSize.WITHIN),
        (-0.5, -0.1, Direction.BELOW, EffectSize.INCONCLUSIVE),
        (0.3, 0.5, Direction.ABOVE, EffectSize.BEYOND),
        (0.1, 0.5, Direction.ABOVE, EffectSize.INCONCLUSIVE),
        (-0.1, 0.15, Direction.INCONCLUSIVE, EffectSize.WITHIN),
        (0.0, 0.15, Direction.INCONCLUSIVE, EffectSize.WITHIN),
        (-0.1, 0.5, Direction.INCONCLUSIVE, EffectSize.NOT_BELOW),
        (-0.5, 0.1, Direction.INCONCLUSIVE, EffectSize.NOT_ABOVE),
        (-0.5, 0.5, Direction.INCONCLUSIVE, EffectSize.INCONCLUSIVE),
        (math.nan, math.nan, Direction.INCONCLUSIVE, EffectSize.INCONCLUSIVE),
    ],
)
def test_direction_and_size_against_the_margin(low, high, direction, size):
    assert (direction_of(low, high), size_of(low, high, M)) == (direction, size)


@pytest.mark.parametrize(
    ("low", "high", "size"),
    [
        (-1.2, -0.8, EffectSize.AS_PRINTED),
        (-0.9, -0.1, EffectSize.SMALLER),
        (-2.0, -1.1, EffectSize.LARGER),
        (-0.9, 0.1, EffectSize.EXCLUDED),
        (0.1, 0.5, EffectSize.EXCLUDED),  # the other direction
        (-1.2, 0.1, EffectSize.INCONCLUSIVE),
        (math.nan, math.nan, EffectSize.INCONCLUSIVE),
    ],
)
def test_size_against_a_printed_effect_and_its_mirror_image(low, high, size):
    assert size_of(low, high, M, printed=-1.0) == size
    assert size_of(-high, -low, M, printed=1.0) == size


@pytest.mark.parametrize(
    ("low", "high", "size"),
    [
        (-0.1, 0.1, EffectSize.AS_PRINTED),
        (0.3, 0.5, EffectSize.EXCLUDED),
        (-0.5, -0.3, EffectSize.LARGER),
        (-0.3, 0.1, EffectSize.NOT_ABOVE),
        (-0.3, 0.3, EffectSize.INCONCLUSIVE),
    ],
)
def test_an_effect_printed_within_the_margin_is_none(low, high, size):
    assert size_of(low, high, M, printed=-0.05) == size


@pytest.mark.parametrize(
    ("relation", "low", "high", "answer"),
    [
        ("below", -0.5, -0.1, True),
        ("below", 0.1, 0.5, False),
        ("below", -0.1, 0.1, None),  # settled: no difference
        ("above", 0.1, 0.5, True),
        ("equal", -0.1, 0.1, True),
        ("equal", 0.21, 0.5, False),
        ("not below", -0.1, 0.9, True),
        ("not below", -0.9, -0.21, False),
        ("not above", -0.9, 0.1, True),
        ("not above", 0.21, 0.9, False),
    ],
)
def test_an_interval_that_settles_a_claim(relation, low, high, answer):
    assert settled(relation, M, low, high)
    assert agrees(relation, M, low, high) is answer


@pytest.mark.parametrize(
    ("relation", "low", "high"),
    [("below", -0.3, 0.1), ("equal", 0.1, 0.5), ("not below", -0.9, -0.1), ("not above", 0.1, 0.9)],
)
def test_an_interval_that_leaves_a_claim_open(relation, low, high):
    assert not settled(relation, M, low, high)
    assert agrees(relation, M, low, high) is None
    assert not settled(relation, M, math.nan, math.nan)


def test_a_margin_must_be_above_zero():
    for told in (lambda: settled("equal", 0.0, 0, 1), lambda: size_of(0, 1, 0.0)):
        with pytest.raises(BadValue, match="margin"):
            told()


def test_verdicts_in_words():
    below = Direction.BELOW, EffectSize.WITHIN
    assert verdict_words(*below, math.log(1.25), "log-ratio") == "below; less than a quarter either way"
    assert verdict_words(*below, 0.05, "difference") == "below; less than 0.05 either way"
    assert verdict_words(Direction.INCONCLUSIVE, EffectSize.INCONCLUSIVE, 0.05, "difference") == "inconclusive"


# What is told of 1,000 studies of a true ratio, printed as 0.064, each looked at after 12 seeds whose log ratios have a
# standard deviation of 0.1: the share of each direction, and of each size.
TOLD = {
    0.5: ({"below": 1.0}, {"smaller than printed": 1.0}),
    0.7: ({"below": 1.0}, {"smaller than printed": 1.0}),
    0.9: ({"below": 0.57, "inconclusive": 0.43}, {"smaller than printed": 0.57, "printed effect excluded": 0.43}),
    1.0: ({"inconclusive": 1.0}, {"printed effect excluded": 1.0}),
}


@pytest.mark.parametrize("true", TOLD)
@pytest.mark.exhaustive
def test_the_words_follow_the_interval_and_not_chance(true):
    """Whatever is told, it is true of the interval; what depends on chance is the interval alone."""
    rng, directions, sizes = np.random.default_rng(0), Counter(), Counter()
    for _ in range(1000):
        gaps = math.log(true) + 0.1 * rng.normal(size=12)
        found = look(np.exp(gaps).tolist(), [1.0] * 12, "log-ratio")
        low, high = found.effect.low, found.effect.high
        half = t.ppf(1 - SPENT[12] * 0.05 / 2, 11) * gaps.std(ddof=1) / math.sqrt(12)
        assert (low, high) == pytest.approx((gaps.mean() - half, gaps.mean() + half))
        direction, size = direction_of(low, high), size_of(low, high, math.log(1.25), math.log(0.064))
        assert (direction is Direction.BELOW) == (high < 0)
        assert (size is EffectSize.SMALLER) == (high < 0)  # the printed effect lies far outside each interval
        directions[str(direction)] += 1 / 1000
        sizes[str(size)] += 1 / 1000
    for counted, told in zip((directions, sizes), TOLD[true], strict=True):
        assert set(counted) - set(told) <= {word for word, share in counted.items() if share < 0.02}
        for word, share in told.items():
            assert counted[word] == pytest.approx(share, abs=0.05)


def test_an_effect_printed_beyond_the_margin_is_one():
    """Not much beyond it: an interval within the margin says that it is smaller, not as printed."""
    assert size_of(-0.1, 0.1, M, printed=-1.5 * M) == EffectSize.EXCLUDED
    assert size_of(-1.2 * M, -0.1, M, printed=-1.5 * M) == EffectSize.SMALLER
