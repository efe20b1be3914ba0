"""Laws of n fitted to numbers by least squares, and compared by Akaike's criterion."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from icl_lab.registry import require

LEAST = 5  # values that a law can be fitted to
LAWS: Mapping[str, Callable[[np.ndarray], np.ndarray] | None] = {
    "constant": None,
    "log n": np.log,
    "sqrt n": np.sqrt,
    "n": np.positive,
}


@dataclass(frozen=True)
class Fit:
    """p_n ~ slope g(n) + shift by least squares; its share of explained variance, and Akaike's criterion."""

    law: str
    slope: float
    shift: float
    explained: float
    aic: float

    def at(self, n: ArrayLike) -> np.ndarray:
        """Returns the law at ``n``."""
        x = np.asarray(n, float)
        grown = LAWS[self.law]
        return self.shift + (self.slope * grown(x) if grown is not None else np.zeros_like(x))


def fits(p: ArrayLike, first: int = 1) -> list[Fit]:
    """Fits every law to p_n, n = first, first + 1, ...; the best by Akaike's criterion first.

    Formula: AIC = N log(RSS / N) + 2 k, with k = 3 (slope, shift, variance), or 2 for the constant

    Raises ``BadValue`` on fewer than five values.
    """
    y = np.asarray(p, float)
    require(len(y) >= LEAST, "a law is fitted to at least five values", len(y))
    n = np.arange(first, first + len(y), dtype=float)
    total = float(((y - y.mean()) ** 2).sum())
    made = []
    for law, grown in LAWS.items():
        if grown is not None:
            slope, shift = (float(value) for value in np.polyfit(grown(n), y, 1))
            rest = float(((y - slope * grown(n) - shift) ** 2).sum())
        else:
            slope, shift, rest = 0.0, float(y.mean()), total
        # Nothing is known more exactly than its rounding: an exact fit is not infinitely better.
        floor = float(len(y) * (np.finfo(np.float32).eps * float(np.abs(y).max() + 1e-30)) ** 2)
        aic = len(y) * math.log(max(rest, floor) / len(y)) + 2 * (3 if grown is not None else 2)
        made.append(Fit(law, slope, shift, 1 - rest / total if total > 0 else math.nan, aic))
    return sorted(made, key=lambda fit: fit.aic)
