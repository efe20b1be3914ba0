"""What a model answers where the true value is far from its examples: curves of f(x) = a x + b.

After Figures 1 and 9 of Naim et al. 2025, arXiv 2508.14685.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from icl_lab.registry import require
from icl_lab.rng import stream
from icl_lab.runs.measure import TEST_SEED, Subject, predict
from icl_lab.tasks.linear import Linear

EXAMPLES = 39  # of a context; the query is the next
SIDE = 100  # points on either side of 0
BEYOND, FARTHEST = 6, 1000.0  # points from the end of the range on, in geometric steps


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
    """Returns every combination once; raises ``BadValue`` on a slope of 0, a scale <= 0, and what is not finite."""
    for name, values in (("slopes", slopes), ("intercepts", intercepts), ("scales", scales)):
        require(bool(np.isfinite(values).all()), f"{name} must be finite", ", ".join(f"{v:g}" for v in values))
    require(all(slopes), "a slope must not be 0: the true value would not move", "0")
    require(min(scales) > 0, "scales of the inputs must be > 0", f"{min(scales):g}")
    return [Line(*each) for each in dict.fromkeys(product(slopes, intercepts, scales))]


def truths(reach: float) -> NDArray[np.float64]:
    """The true values to ask for: 100 a side up to ``reach`` and 0 between them, then geometric steps to 1,000."""
    near = np.linspace(-reach, reach, 2 * SIDE + 1)
    far = np.geomspace(reach, FARTHEST, BEYOND + 1)[1:] if reach < FARTHEST else np.empty(0)
    return np.concatenate([-far[::-1], near, far])


def contexts(count: int, examples: int) -> Tensor:
    """Standard normal inputs, (count examples), the same for all models; more contexts keep the first ones."""
    drawn = [torch.randn(examples, generator=stream(TEST_SEED, "boundary", number)) for number in range(count)]
    return torch.stack(drawn)


@torch.no_grad()
def extrapolate(
    subject: Subject, task: Linear, line: Line, truth: NDArray[np.float64], count: int, examples: int = EXAMPLES
) -> NDArray[np.float64]:
    """Answers to the query x = (t - b) / a after ``examples`` examples of f, for each t of ``truth`` (n): (count n)."""
    known = line.scale * contexts(count, examples)
    query = torch.from_numpy((truth - line.intercept) / line.slope).float()
    n = len(query)
    x = torch.cat((known[:, None].expand(-1, n, -1), query[None, :, None].expand(count, -1, 1)), 2).flatten(0, 1)
    a, b = (torch.full((len(x), 1), value) for value in (line.slope, line.intercept))
    outputs = predict(subject, task.prompt(x, a, b))
    return outputs[:, task.asking(examples + 1), 0].double().reshape(count, n).numpy()
