"""Validation of arrays from callers: ``BadValue`` names the position of an entry that is not a finite number."""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from icl_lab.base.errors import BadValue
from icl_lab.base.registry import require

Array = NDArray[np.float64]


def finite(what: str, values: ArrayLike, positive: bool = False) -> Array:
    """Return the numbers as an array; raises ``BadValue`` with the first place that is not one of those wanted."""
    x = np.asarray(values, dtype=float)
    require(x.size > 0 and x.ndim > 0, f"{what} must be at least one number", f"shape {x.shape}")
    good = np.isfinite(x) & (x > 0) if positive else np.isfinite(x)
    if not good.all():
        place = tuple(int(i) for i in np.argwhere(~good)[0])
        wanted = "above 0 (else compare by difference)" if positive else "finite"
        at = place[0] if len(place) == 1 else place
        raise BadValue(f"{what} must be {wanted}, got {x[place]} at position {at}, counted from 0.")
    return x


def listed(values: Array) -> str:
    """Numbers for a message: 1, 2.5, 10."""
    return ", ".join(f"{value:g}" for value in values)
