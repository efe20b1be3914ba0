"""The functions f(x) = a x + b that boundary values are looked for on."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np

from icl_lab import tasks
from icl_lab.registry import require
from icl_lab.runs.spec import RunSpec
from icl_lab.tasks.capabilities import HasLines


@dataclass(frozen=True, order=True)
class Line:
    """f(x) = slope x + intercept, told by examples whose inputs are N(0, scale^2); training has scale 1."""

    slope: float
    intercept: float = 0.0
    scale: float = 1.0

    def __str__(self) -> str:
        slope = {1.0: "", -1.0: "-"}.get(self.slope, f"{self.slope:g}")
        return f"{slope}x{f' {self.intercept:+g}'.replace('+', '+ ').replace('-', '- ') if self.intercept else ''}"


def lines(slopes: Sequence[float], intercepts: Sequence[float], scales: Sequence[float]) -> list[Line]:
    """Returns every combination once.

    Raises ``BadValue`` on a slope of 0, a scale <= 0, what is not finite, and where one of the three lists is empty.
    """
    for name, values in (("slopes", slopes), ("intercepts", intercepts), ("scales", scales)):
        require(len(values) > 0, f"{name} must be at least one number", "none")
        require(bool(np.isfinite(values).all()), f"{name} must be finite", ", ".join(f"{v:g}" for v in values))
    require(all(slopes), "a slope must not be 0: the true value would not move", "0")
    require(min(scales) > 0, "scales of the inputs must be > 0", f"{min(scales):g}")
    return [Line(*each) for each in dict.fromkeys(product(slopes, intercepts, scales))]


def spread(spec: RunSpec) -> float:
    """Returns the root mean square of y in the training of a run."""
    return tasks.require(tasks.build(spec.task), HasLines).spread(**spec.train.shift)
