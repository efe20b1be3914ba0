"""Largest attention weight of every head over the number of keys.

Softmax over n keys with bounded scores must spread: its largest weight falls as 1/n in the end (arXiv 2410.01104, where
this is called attention dispersion).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import ClassVar

import numpy as np
from torch import Tensor

from icl_lab import markdown as md
from icl_lab.analyses import registry
from icl_lab.analyses.along_length import AlongLength, curves
from icl_lab.analyses.attention_rows import AttentionRow, inverse_temperature, statistics
from icl_lab.analyses.findings import cell, known_median
from icl_lab.analyses.frame import Cells, Findings, Row, Rows, StoredGrids, TrainedModel
from icl_lab.grid import Grid
from icl_lab.learned import places
from icl_lab.model.gpt2 import GPT2


@registry.add("fading")
@dataclass(frozen=True, kw_only=True)
class Fading(AlongLength):
    """Follow the attention of every head as prompts grow: does its largest weight fade?

    Metrics of a head, at the token that is asked last: its largest weight; entropy / log n; how many keys it
    effectively attends to, exp(entropy); and the effective inverse temperature. n is the number of keys that the token
    sees. The numbers that the normalizer has learned stand beside them.
    """

    grids: ClassVar[Mapping[str, Sequence[str]]] = {
        "fading": ("layer", "head", "length", "keys"),
        "learned": ("layer", "head"),
    }
    title: ClassVar[str] = "attention of the token that is asked last"
    words: ClassVar[Mapping[str, str]] = {
        "largest": "largest weight",
        "entropy": "entropy / log n",
        "effective": "effective keys, exp(entropy)",
        "temperature": "effective inverse temperature",
    }
    trend: ClassVar[str] = "slope"
    explained: ClassVar[str] = (
        "Slope: of log(largest weight) on log n; 0: does not fade, -1: fades as fast as a mean does."
    )
    logarithmic: ClassVar[Sequence[str]] = ("largest", "effective")

    def read_row(self, row: AttentionRow) -> dict[str, Tensor]:
        """The metrics; signed weights count by their size."""
        return {**statistics(row.weights), "temperature": inverse_temperature(row.weights, row.scores)}

    def trends(self, grid: Grid) -> list[float]:
        return slopes(grid)

    def measure(self, trained: TrainedModel) -> Rows:
        """Reads every head at each length, and what its normalizer has learned."""
        return {**super().measure(trained), "learned": parameters(trained.model)}

    def table(self, found: Findings) -> list[str]:
        """Slopes of the heads, every metric at each length (medians over heads), and what was learned."""
        text = super().table(found)
        if "learned" in found.grids:
            text += ["", *md.head(["learned", "layer", "heads of the first seed", "mean over seeds"])]
            for rule in found["learned"].values("attn"):
                text += _learned(found["learned"].where(attn=rule), rule)
        return text

    def finding(self, found: Findings) -> str:
        """Rate at which the largest weight of each normalizer falls."""
        falls = [f"n^{known_median(slopes(found['fading'].where(attn=rule))):.2f} with {rule}" for rule in found.rules]
        return f"The largest weight changes as {md.listed(falls)} (median slope over heads)."

    def value(self, found: StoredGrids, of: str, cells: Cells, metric: str, seed: int) -> float:
        """The median over heads of ``slope`` (the usual metric), or of another metric in the cells.

        ``slope`` is that of log(largest weight) on log n, over the lengths or keys that cells name, or all. Another
        metric needs cells that name lengths or keys, and is a head's mean over them. Raises ``KeyError`` where it has
        no value.
        """
        if metric not in ("", self.trend) and not {"length", "keys"} & set(cells):
            raise KeyError(f"a claim about '{metric}' names its keys or lengths: cells = {{ keys = [1024] }}")
        return super().value(found, of, cells, metric, seed)


def slope(keys: Sequence[float], largest: Sequence[float]) -> float:
    """The slope of log(largest weight) on log n: 0 does not fade, -1 fades as fast as a mean does."""
    return float(np.polyfit(np.log(keys), np.log(np.maximum(largest, 1e-300)), 1)[0])


def slopes(grid: Grid) -> list[float]:
    """The slope of each head of each seed of one normalizer."""
    return [slope(*zip(*line, strict=True)) for line in curves(grid.where(metric="largest"))]


def parameters(model: GPT2) -> list[Row]:
    """The learned numbers of each layer's normalizer, by the names of the formula; one that heads share stands once."""
    found = model.learned()
    return [cell(name, found[key], layer=layer, head=head) for key, (name, layer, head) in places(found)]


def _learned(grid: Grid, rule: str) -> list[str]:
    rows = []
    for metric in grid.values("metric"):
        own = grid.where(metric=metric)
        for layer in own.values("layer"):
            part = own.where(layer=layer)
            first = part.where(seed=part.values("seed")[0]).frame["value"]
            cells = ", ".join(f"{value:.2f}" for value in first)
            rows.append(md.row([f"`{rule}` {metric}", f"{layer:g}", cells, f"{fmean(part.frame['value']):.2f}"]))
    return rows
