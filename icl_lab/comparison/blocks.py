"""Blocks of training seeds: those trained on one class of machine at one commit may be alike.

If seeds of a block are correlated, the spread over seeds understates the error of their mean. No claim by itself has
blocks enough to tell the correlation (most have one to three), so that it is estimated over all claims together.
"""

from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from functools import lru_cache

import numpy as np
import scipy
from numpy.typing import NDArray

from icl_lab.base.registry import require
from icl_lab.comparison.given import Array

DRAWS = 4000  # of a claim's seeds, for expected values
MOST = 0.95  # largest correlation that is estimated
Sample = tuple[Sequence[float], Sequence[Hashable]]  # an effect for each seed, the block of each seed


def correlation(samples: Iterable[Sample]) -> float:
    """Intraclass correlation of seeds within a block, over the effects of many claims; 0 where they show none.

    Formula: the r at which the expectation of sum R equals its value, R = sum_j n_j (m_j - m)^2 / sum_i (x_i - m)^2 of
    each claim, the share of the variance of its seeds that lies between the means m_j of blocks of n_j seeds

    A claim counts where it has two blocks or more and one of them two seeds or more; NaN where none does. The shares
    that are expected are means over normal draws, the same for every call.
    """
    found, patterns = 0.0, Counter[tuple[int, ...]]()
    for values, names in samples:
        x, block = np.asarray(values, dtype=float), _numbered(names)
        sizes = np.bincount(block)
        if 2 <= len(sizes) < len(x) and np.isfinite(x).all() and np.ptp(x) > 0:
            found += float(_between(x[None], block)[0])
            patterns[tuple(sorted(sizes.tolist()))] += 1
    if not patterns:
        return np.nan

    def excess(r: float) -> float:
        return sum(count * _expected(sizes, r) for sizes, count in patterns.items()) - found

    if excess(0.0) >= 0:
        return 0.0
    return float(scipy.optimize.brentq(excess, 0.0, MOST, xtol=1e-4)) if excess(MOST) > 0 else MOST


def _numbered(names: Sequence[Hashable]) -> NDArray[np.intp]:
    return np.unique([str(name) for name in names], return_inverse=True)[1]


def _between(x: Array, block: NDArray[np.intp]) -> Array:
    """Share of the variance that lies between blocks, of rows of seeds (rows seeds)."""
    sizes = np.bincount(block)
    x = x - x.mean(axis=1, keepdims=True)
    means = np.stack([x[:, block == j].mean(axis=1) for j in range(len(sizes))])
    return np.asarray((sizes[:, None] * means**2).sum(axis=0) / (x**2).sum(axis=1))


@lru_cache(maxsize=4096)
def _expected(sizes: tuple[int, ...], r: float) -> float:
    """Expected share between blocks of these sizes at a correlation r."""
    rng, block = np.random.default_rng(0), np.repeat(np.arange(len(sizes)), sizes)
    common, own = rng.normal(size=(DRAWS, len(sizes))), rng.normal(size=(DRAWS, len(block)))
    return float(_between(np.sqrt(r) * common[:, block] + np.sqrt(1 - r) * own, block).mean())


def inflation(blocks: Sequence[Hashable], correlation: float) -> float:
    """Factor on the standard error of a mean over seeds whose errors are correlated within blocks; 1 without any.

    Formula: sqrt((1 + r (a - 1)) / (1 - r (a - 1) / (k - 1))), a = sum n_j^2 / k: the variance of the mean grows by the
    numerator, and that between seeds, from which it is estimated, is too small by the denominator
    Source: design effect, Kish 1965
    """
    require(not correlation >= 1, "the correlation of seeds must be below 1", correlation)  # NaN: not known
    seeds = len(blocks)
    if seeds < 2 or not correlation > 0:
        return 1.0
    _, sizes = np.unique([str(name) for name in blocks], return_counts=True)
    excess = correlation * ((sizes**2).sum() / seeds - 1)
    return float(np.sqrt((1 + excess) / (1 - excess / (seeds - 1))))
