"""An interval with two sources of noise, training seeds and test prompts, and the p value that belongs to it.

Formula: half(c) = sqrt((t(k - 1) s)^2 + (z e)^2), t and z the quantiles at (1 + c) / 2 of Student's t and the normal, s
the standard error over k seeds, e that of the prompts on the side in question; p = 1 - c where half(c) = |effect|.
Source: Zou & Donner 2008 for the quadrature, side by side. A test is the reverse of an interval (Neyman 1937): p is the
level at which the interval would just touch 0.
"""

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtr, ndtri, stdtr, stdtrit

Array = NDArray[np.float64]

HALVINGS = 44  # of a bracket of log p: to a relative 1e-12 of p


def half_width(p: ArrayLike, seeds_error: ArrayLike, freedom: ArrayLike, prompts_error: ArrayLike) -> Array:
    """The half width of the interval at confidence 1 - p; a standard error of 0 adds nothing.

    Shapes broadcast. freedom: degrees of freedom of the standard error over seeds, at least 1 (seeds - 1).
    """
    tail = np.asarray(p, dtype=float) / 2
    wide: Array = np.hypot(stdtrit(freedom, tail) * np.asarray(seeds_error), ndtri(tail) * np.asarray(prompts_error))
    return wide


def p_value(effect: ArrayLike, seeds_error: ArrayLike, freedom: ArrayLike, prompts_error: ArrayLike) -> Array:
    """The p at which the interval would just touch 0: below 0.05 exactly where the 95 % interval excludes 0.

    Without prompts' noise it is that of the t test over seeds, without seeds' noise that of the normal. An interval
    without any width has p = 0 where its effect is not 0. Shapes broadcast; ``prompts_error`` is that of the side
    towards 0. NaN where any argument is. Agrees with an interval to the 12 digits to which p is computed.
    """
    d, s, k, e = np.broadcast_arrays(
        *(np.asarray(x, dtype=float) for x in (effect, seeds_error, freedom, prompts_error))
    )
    d = np.abs(d)
    with np.errstate(divide="ignore", invalid="ignore"):
        seeds, prompts = 2 * stdtr(k, -d / s), 2 * ndtr(-d / e)
        # t is the wider of the two: with it alone, for both, half the width is at least as much.
        high = 2 * stdtr(k, -d / np.hypot(s, e))
        low = np.fmax(seeds, prompts)
        both = (s > 0) & (e > 0) & (d > 0) & (low > 0)
        found = np.where(s > 0, seeds, prompts)
        found = np.where(d == 0, 1.0, np.where((s == 0) & (e == 0), 0.0, found))
        found = np.where(np.isnan(d + s + k + e), np.nan, found)
        below, above = np.log(low[both]), np.log(np.fmax(high, low)[both])
        for _ in range(HALVINGS):
            middle = (below + above) / 2
            wide = half_width(np.exp(middle), s[both], k[both], e[both]) > d[both]
            below, above = np.where(wide, middle, below), np.where(wide, above, middle)
    result = np.array(found)
    result[both] = np.exp((below + above) / 2)
    return result
