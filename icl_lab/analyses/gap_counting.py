"""Scores near the largest of a row: which power of log n the inverse temperature needs to keep attention together.

Softmax at the inverse temperature b gives the j-th largest of n scores e^(-b gap_j) times the weight of the largest,
gap_j their distance. The largest is not outweighed by the j that are as near if b gap_j >= log j. So b must reach
max_j log(j) / gap_j, whatever the scores are: log(n) / gap for one key above a flat rest, sqrt(2 log n) / sigma for
Gaussian scores. Counting scores by their gap in this way is the idea of arXiv 2605.12697; the estimate is ours.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from icl_lab import markdown as md
from icl_lab.analyses import registry
from icl_lab.analyses.along_length import AlongLength, curves
from icl_lab.analyses.attention_rows import AttentionRow, inverse_temperature
from icl_lab.analyses.findings import known_median
from icl_lab.analyses.frame import Findings
from icl_lab.figures.base import short
from icl_lab.grid import Grid

NEAR = 1.0  # of the largest score: the keys that are counted


@registry.add("gap-counting")
@dataclass(frozen=True, kw_only=True)
class GapCounting(AlongLength):
    """Count scores near the largest as prompts grow: which power of log n keeps attention together?

    Metrics of a head, at the token that is asked last: the critical temperature T = min_j gap_j / log j over the scores
    in falling order, gap_j the distance of the j-th to the largest; the keys within 1 of the largest; and ``reached``,
    T times the effective inverse temperature of the normalizer (1 for softmax, s log n for SSMax), which is at least 1
    where attention holds together. The power p of 1 / T = c (log n)^p over the lengths is what log-n:power=p follows.
    """

    grids: ClassVar[Mapping[str, Sequence[str]]] = {"gaps": ("layer", "head", "length", "keys")}
    title: ClassVar[str] = "scores near the largest, of the token that is asked last"
    words: ClassVar[Mapping[str, str]] = {
        "critical": "critical temperature",
        "reached": "inverse temperature times critical temperature",
        "near": f"keys within {NEAR:g} of the largest score",
    }
    trend: ClassVar[str] = "power"
    explained: ClassVar[str] = (
        "Critical temperature: min over j of gap_j / log j, gap_j the j-th score below the largest. Power: p of 1 / "
        "(critical temperature) = c (log n)^p; 1/2 if scores spread like Gaussian ones, 1 if one key stands above a "
        "flat rest, 0 if no growth is needed. Inverse temperature times critical temperature: 1 or more where "
        "attention holds together."
    )
    logarithmic: ClassVar[Sequence[str]] = tuple(words)

    def read_row(self, row: AttentionRow) -> dict[str, Tensor]:
        critical = critical_temperature(row.scores)
        return {
            "critical": critical,
            "reached": critical * inverse_temperature(row.weights, row.scores),
            "near": (row.scores >= row.scores.amax(-1, keepdim=True) - NEAR).sum(-1).double(),
        }

    def trends(self, grid: Grid) -> list[float]:
        return powers(grid)

    def write(self, trend: float) -> str:
        return short(trend)

    def finding(self, found: Findings) -> str:
        """Power of log n that each normalizer's scores ask for."""
        asked = [f"{known_median(powers(found['gaps'].where(attn=rule))):.2f} with {rule}" for rule in found.rules]
        return f"Scores ask for a power of log n as inverse temperature: {md.listed(asked)} (median over heads)."


def critical_temperature(scores: Tensor) -> Tensor:
    """Scores (... t) of t >= 2 keys -> min over j of gap_j / log j, (...): 0 where the two largest are equal."""
    falling = scores.double().sort(-1, descending=True).values
    ranks = torch.arange(2, scores.shape[-1] + 1, dtype=torch.float64)
    found: Tensor = ((falling[..., :1] - falling[..., 1:]) / ranks.log()).amin(-1)
    return found


def powers(grid: Grid) -> list[float]:
    """Power of log n for each head of each seed of one normalizer; NaN where a critical temperature is 0."""
    return [_power(*zip(*line, strict=True)) for line in curves(grid.where(metric="critical"))]


def _power(keys: Sequence[float], critical: Sequence[float]) -> float:
    if min(critical) <= 0 or min(keys) < 2:
        return math.nan
    return float(-np.polyfit(np.log(np.log(keys)), np.log(critical), 1)[0])
