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
from matplotlib.figure import Figure
from torch import Tensor

from icl_lab import markdown as md
from icl_lab.analyses import registry
from icl_lab.analyses.along_length import AlongLength, curves, trained_keys
from icl_lab.analyses.attention_rows import attention_rows, head_rows, inverse_temperature, known_median
from icl_lab.analyses.frame import Cells, Findings, Row, Rows, StoredGrids, TrainedModel
from icl_lab.figures import heads as pictures
from icl_lab.figures.base import NAMES, short
from icl_lab.grid import Grid
from icl_lab.model.gpt2 import GPT2
from icl_lab.tasks.base import Prompt

NEAR = 1.0  # of the largest score: the keys that are counted
WORDS = {
    "critical": "critical temperature",
    "reached": "inverse temperature times critical temperature",
    "near": f"keys within {NEAR:g} of the largest score",
}


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

    def measure(self, trained: TrainedModel) -> Rows:
        """Reads the scores of every head at each length."""
        rows: list[Row] = []
        for done, length in enumerate(self.lengths):
            prompt, at = trained.prompts(self.prompts, {"length": length}), trained.task.asking(length)
            metrics = row_metrics(trained.model, prompt, at, trained.lab.device)
            rows += head_rows(metrics, {"length": length, "keys": at + 1})
            trained.tick(done + 1, len(self.lengths))
        return {"gaps": rows}

    def table(self, found: Findings) -> list[str]:
        """Medians over heads of every metric at each length, and the power of log n."""
        keys = found["gaps"].values("keys")
        text = [
            f"Trained up to {found.spec.train.longest} examples. The token that is asked last; medians over the heads "
            "of all seeds. Critical temperature: min over j of gap_j / log j, gap_j the j-th score below the largest. "
            "Power: p of 1 / (critical temperature) = c (log n)^p; 1/2 if scores spread like Gaussian ones, 1 if one "
            "key stands above a flat rest, 0 if no growth is needed. Inverse temperature times critical temperature: 1 "
            "or more where attention holds together.",
        ]
        for metric, words in WORDS.items():
            powers_head = ["power: median", "least", "greatest"] if metric == "critical" else []
            text += ["", *md.head([words, *(f"n {n:g}" for n in keys), *powers_head])]
            for rule in found.rules:
                lines = curves(found["gaps"].where(attn=rule, metric=metric))
                cells = [short(known_median(value for line in lines for n, value in line if n == at)) for at in keys]
                if metric == "critical":
                    own = powers(found["gaps"].where(attn=rule))
                    cells += [short(known_median(own)), *(short(end) for end in _ends(own))]
                text.append(md.row([f"`{rule}`", *cells]))
        return text

    def figures(self, found: Findings, title: str) -> Mapping[str, Figure]:
        """Every metric over n, the longest prompt of training dotted."""
        panels = {
            words: {rule: curves(found["gaps"].where(attn=rule, metric=metric)) for rule in found.rules}
            for metric, words in WORDS.items()
        }
        scales, mark = dict.fromkeys(panels, "xy"), trained_keys(found.spec)
        return {"gaps": pictures.curves(panels, title=title, across=NAMES["keys"], scales=scales, mark=mark, base=2)}

    def finding(self, found: Findings) -> str:
        """Power of log n that each normalizer's scores ask for."""
        asked = [f"{known_median(powers(found['gaps'].where(attn=rule))):.2f} with {rule}" for rule in found.rules]
        return f"Scores ask for a power of log n as inverse temperature: {md.listed(asked)} (median over heads)."

    def value(self, found: StoredGrids, of: str, cells: Cells, metric: str, seed: int) -> float:
        """The median over heads of ``power`` (the usual metric), or of another metric over the cells.

        Raises ``KeyError`` where it has no value.
        """
        grid, metric = found["gaps"].where(attn=of, seed=seed, **cells), metric or "power"
        if metric == "power" and len(grid.values("keys")) < 2:
            raise KeyError("a power needs at least two lengths")
        heads = grid.where(metric=metric).frame.groupby(["layer", "head"])["value"] if metric != "power" else None
        value = known_median(powers(grid) if heads is None else heads.mean())
        if math.isnan(value):
            raise KeyError(f"no head has a '{metric}' there")
        return value


def critical_temperature(scores: Tensor) -> Tensor:
    """Scores (... t) of t >= 2 keys -> min over j of gap_j / log j, (...): 0 where the two largest are equal."""
    falling = scores.double().sort(-1, descending=True).values
    ranks = torch.arange(2, scores.shape[-1] + 1, dtype=torch.float64)
    found: Tensor = ((falling[..., :1] - falling[..., 1:]) / ranks.log()).amin(-1)
    return found


def row_metrics(model: GPT2, prompt: Prompt, at: int, device: torch.device) -> dict[str, Tensor]:
    """Reads the scores of token ``at`` in every layer and head: returns each metric as (b l h)."""
    found: dict[str, list[Tensor]] = {metric: [] for metric in WORDS}
    for row in attention_rows(model, prompt, at, device):
        critical = critical_temperature(row.scores)
        found["critical"].append(critical)
        found["reached"].append(critical * inverse_temperature(row.weights, row.scores))
        found["near"].append((row.scores >= row.scores.amax(-1, keepdim=True) - NEAR).sum(-1).double())
    return {metric: torch.cat(pieces) for metric, pieces in found.items()}


def powers(grid: Grid) -> list[float]:
    """Power of log n for each head of each seed of one normalizer; NaN where a critical temperature is 0."""
    return [_power(*zip(*line, strict=True)) for line in curves(grid.where(metric="critical"))]


def _power(keys: Sequence[float], critical: Sequence[float]) -> float:
    if min(critical) <= 0 or min(keys) < 2:
        return math.nan
    return float(-np.polyfit(np.log(np.log(keys)), np.log(critical), 1)[0])


def _ends(values: Sequence[float]) -> tuple[float, float]:
    known = [value for value in values if not math.isnan(value)]
    return (min(known), max(known)) if known else (math.nan, math.nan)
