"""Correlation of training seeds within blocks: found again in simulated ledgers, and kept out of the error."""

import math

import numpy as np
import pytest
from scipy.stats import t

from icl_lab.base.errors import BadValue
from icl_lab.comparison.blocks import correlation, inflation
from icl_lab.comparison.sequential import look


def ledger(r, sizes, count, seed=0):
    """Claims without any effect whose seeds are correlated within blocks."""
    rng, block = np.random.default_rng(seed), np.repeat(np.arange(len(sizes)), sizes)
    common, own = rng.normal(size=(count, len(sizes))), rng.normal(size=(count, len(block)))
    return [(row, block) for row in math.sqrt(r) * common[:, block] + math.sqrt(1 - r) * own]


@pytest.mark.parametrize("sizes", [(4, 4), (3, 3, 2), (2, 2, 2, 2)])
@pytest.mark.parametrize("r", [0.0, 0.3, 0.6])
def test_a_correlation_is_found_again_over_many_claims(r, sizes):
    assert correlation(ledger(r, sizes, 2000)) == pytest.approx(r, abs=0.05)


def test_claims_of_one_block_or_of_blocks_of_one_tell_nothing():
    assert math.isnan(correlation([]))
    assert math.isnan(correlation([([1.0, 2.0], "aa"), ([1.0, 2.0], "ab"), ([1.0, 1.0, 1.0], "aab")]))


def test_more_alike_between_blocks_than_within_is_no_correlation():
    assert correlation([([1.0, 5.0, 1.0, 5.0], "aabb")] * 10) == 0


def test_the_inflation_by_hand():
    """Eight seeds in two blocks of four, r = .3: a = 4, so (1 + .9) / (1 - .9 / 7)."""
    assert inflation("aaaabbbb", 0.3) == pytest.approx(math.sqrt(1.9 / (1 - 0.9 / 7)))
    assert inflation("aaaa", 0.5) == pytest.approx(math.sqrt(2.5 / 0.5))
    assert inflation("abcd", 0.5) == inflation("aaaa", 0.0) == inflation("a", 0.5) == inflation("aab", math.nan) == 1
    with pytest.raises(BadValue, match="correlation"):
        inflation("aab", 1.0)


@pytest.mark.parametrize("sizes", [(4, 4), (3, 3, 2), (8,)])
@pytest.mark.exhaustive
def test_correlated_seeds_keep_five_percent(sizes):
    """With r = .3, as estimated over a ledger whose claims have two blocks, and at the look after eight seeds."""
    r = correlation(ledger(0.3, (4, 4), 1000, seed=1))
    wrong = naive = 0
    claims = ledger(0.3, sizes, 2000, seed=2)
    for gaps, block in claims:
        found = look(gaps.tolist(), [0.0] * 8, "difference", inflation=lambda seeds, b=block: inflation(b[:seeds], r))
        wrong += found.effect.clear
        naive += abs(gaps.mean()) > t.ppf(0.995, 7) * gaps.std(ddof=1) / math.sqrt(8)
    assert wrong / len(claims) <= 0.05
    assert naive / len(claims) > 0.02  # of 0.01 that this look may spend
