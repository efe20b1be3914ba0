"""Answers far from the examples: curves of f(x) = a x + b.

After Figures 1 and 9 of Naim et al. 2025, arXiv 2508.14685.
"""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from icl_lab.analyses.boundary.lines import Line
from icl_lab.rng import stream
from icl_lab.runs.measure import TEST_SEED, Subject, predict
from icl_lab.tasks.capabilities import HasLines

EXAMPLES = 39  # of a context; the query is the next
SIDE = 100  # points on either side of 0
BEYOND, FARTHEST = 6, 1000.0  # points from the end of the range on, in geometric steps


def truths(reach: float) -> NDArray[np.float64]:
    """The true values to ask for: 100 a side up to ``reach`` and 0 between them, then geometric steps to 1,000."""
    near = np.linspace(-reach, reach, 2 * SIDE + 1)
    far = np.geomspace(reach, FARTHEST, BEYOND + 1)[1:] if reach < FARTHEST else np.empty(0)
    return np.concatenate([-far[::-1], near, far])


def contexts(count: int, examples: int) -> Tensor:
    """Standard normal inputs, (count examples), the same for all models; more contexts keep the first ones."""
    drawn = [torch.randn(examples, generator=stream(TEST_SEED, "boundary", number)) for number in range(count)]
    return torch.stack(drawn)


def largest(line: Line, reach: float) -> float:
    """Returns the size that no number of a prompt exceeds: inputs up to 6 standard deviations, queries and labels."""
    far, input_ = max(reach, FARTHEST), 6 * line.scale
    return max(
        far, (far + abs(line.intercept)) / abs(line.slope), input_, abs(line.slope) * input_ + abs(line.intercept)
    )


def extrapolate(
    subject: Subject, task: HasLines, line: Line, truth: NDArray[np.float64], count: int, examples: int = EXAMPLES
) -> NDArray[np.float64]:
    """Answers to the query x = (t - b) / a after ``examples`` examples of f, for each t of ``truth`` (n): (count n)."""
    known = line.scale * contexts(count, examples)
    query = torch.from_numpy((truth - line.intercept) / line.slope).float()
    n = len(query)
    x = torch.cat((known[:, None].expand(-1, n, -1), query[None, :, None].expand(count, -1, 1)), 2).flatten(0, 1)
    outputs = predict(subject, task.on_line(x, line.slope, line.intercept))
    return outputs[:, task.asking(examples + 1), 0].double().reshape(count, n).numpy()
