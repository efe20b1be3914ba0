"""A curve and what is detected on it, as rows of the two grids."""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from icl_lab.analyses.boundary import detector

Array = NDArray[np.float64]
Row = dict[str, Any]


def curve(where: Mapping[str, Any], truth: Array, answers: Array) -> list[Row]:
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


def detected(where: Mapping[str, Any], truth: Array, answers: Array, reach: float) -> list[Row]:
    """Answers (contexts n) to the true values (n) -> what is detected on either side up to ``reach``, a row a metric.

    The metrics are the fields of ``detector.Detected``: intervals as ``-low`` and ``-high``, the class as its place in
    ``CLASSES``; and ``far``, the median answer at the farthest query.
    """
    rows = []
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
