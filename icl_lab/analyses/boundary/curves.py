"""Answers far from the examples of f(x) = a x + b: the lines, the curves, and their rows in the grids.

After Figures 1 and 9 of Naim et al. 2025, arXiv 2508.14685.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np
import torch
from torch import Tensor

from icl_lab import tasks
from icl_lab.analyses.boundary import detector
from icl_lab.analyses.findings import Row
from icl_lab.comparison.given import Array
from icl_lab.parts.registry import require
from icl_lab.rng import stream
from icl_lab.runs.measure import TEST_SEED, Subject, predict_at
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
    return tasks.require(tasks.build(spec.task), HasLines).label_rms(**spec.train.shift)


EXAMPLES = 39  # of a context; the query is the next
SIDE = 100  # points on either side of 0
BEYOND, FARTHEST = 6, 1000.0  # points from the end of the range on, in geometric steps


def truths(reach: float) -> Array:
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
    subject: Subject, task: HasLines, line: Line, truth: Array, count: int, examples: int = EXAMPLES
) -> Array:
    """Answers to the query x = (t - b) / a after ``examples`` examples of f, for each t of ``truth`` (n): (count n)."""
    known = line.scale * contexts(count, examples)
    query = torch.from_numpy((truth - line.intercept) / line.slope).float()
    n = len(query)
    x = torch.cat((known[:, None].expand(-1, n, -1), query[None, :, None].expand(count, -1, 1)), 2).flatten(0, 1)
    prompt = task.on_line(x, line.slope, line.intercept)
    return predict_at(subject, prompt, task.asking(examples + 1), n)[:, 0].double().reshape(count, n).numpy()


def curve(where: Row, truth: Array, answers: Array) -> list[Row]:
    """Answers (contexts n) to the true values (n) -> their medians, with the standard error of a normal median."""
    middle, error = np.median(answers, axis=0), math.sqrt(math.pi / 2 / len(answers)) * answers.std(axis=0, ddof=1)
    return [
        {
            **where,
            "target": float(f"{t:.6g}"),
            "metric": "answer",
            "value": float(f"{p:.5g}"),
            "stderr": float(f"{e:.2g}"),
        }
        for t, p, e in zip(truth, middle, error, strict=True)
    ]


def detected(where: Row, truth: Array, answers: Array, reach: float) -> list[Row]:
    """Answers (contexts n) to the true values (n) -> what is detected on either side up to ``reach``, a row a metric.

    The metrics are the fields of ``detector.Detected``: intervals as ``-low`` and ``-high``, the class as its place in
    ``CLASSES``; and ``far``, the median answer at the farthest query.
    """
    rows = list[Row]()
    for side, (t, curves) in detector.sides(truth, answers).items():
        near = t <= reach * (1 + 1e-9)
        each = detector.detect(t[near], curves[:, near])
        numbers = {"class": float(detector.CLASSES.index(each.kind)), "agreement": each.agreement}
        for name in ("onset", "bound", "clip"):
            interval: detector.Interval = getattr(each, name)
            numbers |= {name: interval.value, f"{name}-low": interval.low, f"{name}-high": interval.high}
        numbers |= {name: getattr(each, name) for name in ("tail", "previous", "peak", "exponent", "reach")}
        numbers["far"] = float(np.median(curves[:, -1]))
        rows += [
            {**where, "side": side, "metric": metric, "value": float(f"{value:.6g}"), "stderr": None}
            for metric, value in numbers.items()
        ]
    return rows
