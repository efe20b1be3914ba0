"""Largest attention weight of every head over the number of keys.

Softmax over n keys with bounded scores must spread: its largest weight falls as 1/n in the end (arXiv 2410.01104, where
this is called attention dispersion).
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import ClassVar

import numpy as np
import torch
from matplotlib.figure import Figure

from icl_lab import markdown as md
from icl_lab.analyses import registry
from icl_lab.analyses.along_length import AlongLength, curves, trained_keys
from icl_lab.analyses.attention_rows import (
    attention_rows,
    entropy,
    head_rows,
    inverse_temperature,
    known_median,
    shares,
)
from icl_lab.analyses.frame import Cells, Curves, Findings, Row, Rows, StoredGrids, TrainedModel
from icl_lab.figures import heads as pictures
from icl_lab.figures.base import NAMES, short
from icl_lab.grid import Grid
from icl_lab.learned import places
from icl_lab.model.gpt2 import GPT2
from icl_lab.tasks.base import Prompt

METRICS = ("largest", "entropy", "effective", "temperature")
WORDS = {
    "largest": "largest weight",
    "entropy": "entropy / log n",
    "effective": "effective keys, exp(entropy)",
    "temperature": "effective inverse temperature",
}


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

    def measure(self, trained: TrainedModel) -> Rows:
        """Reads every head at each length, and what its normalizer has learned."""
        rows: list[Row] = []
        for done, length in enumerate(self.lengths):
            prompt = trained.prompts(self.prompts, {"length": length})
            at = trained.task.asking(length)
            where = {"length": length, "keys": at + 1}
            rows += head_rows(row_metrics(trained.model, prompt, at, trained.lab.device), where)
            trained.tick(done + 1, len(self.lengths))
        return {"fading": rows, "learned": parameters(trained.model)}

    def table(self, found: Findings) -> list[str]:
        """Slopes of the heads, every metric at each length (medians over heads), and what was learned."""
        keys = found["fading"].values("keys")
        text = [
            f"Trained up to {found.spec.train.longest} examples. The token that is asked last; medians over the heads "
            "of all seeds. Slope: of log(largest weight) on log n; 0: does not fade, -1: fades as fast as a mean does.",
        ]
        for metric in METRICS:
            slope_columns = ["slope: median", "least", "greatest"] if metric == "largest" else []
            text += ["", *md.head([WORDS[metric], *(f"n {n:g}" for n in keys), *slope_columns])]
            for rule in found.rules:
                heads = curves(found["fading"].where(attn=rule, metric=metric))
                cells = [short(known_median(value for line in heads for n, value in line if n == at)) for at in keys]
                if metric == "largest":
                    own = slopes(found["fading"].where(attn=rule))
                    cells += [f"{value:.2f}" for value in (known_median(own), min(own), max(own))]
                text.append(md.row([f"`{rule}`", *cells]))
        if "learned" in found.grids:
            text += ["", *md.head(["learned", "layer", "heads of the first seed", "mean over seeds"])]
            for rule in found["learned"].values("attn"):
                text += _learned(found["learned"].where(attn=rule), rule)
        return text

    def figures(self, found: Findings, title: str) -> Mapping[str, Figure]:
        """Every metric over n, the longest prompt of training dotted."""
        panels: dict[str, dict[str, Curves]] = {
            WORDS[metric]: {rule: curves(found["fading"].where(attn=rule, metric=metric)) for rule in found.rules}
            for metric in METRICS
        }
        scales = {WORDS[metric]: "xy" for metric in ("largest", "effective")}
        return {
            "fading": pictures.curves(
                panels, title=title, across=NAMES["keys"], scales=scales, mark=trained_keys(found.spec), base=2
            )
        }

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
        grid = found["fading"].where(attn=of, seed=seed, **cells)
        metric = metric or "slope"
        if metric == "slope":
            if len(grid.values("keys")) < 2:
                raise KeyError("a slope needs at least two lengths")
            return known_median(slopes(grid))
        if not {"length", "keys"} & set(cells):
            raise KeyError(f"a claim about '{metric}' names its keys or lengths: cells = {{ keys = [1024] }}")
        value = known_median(grid.where(metric=metric).frame.groupby(["layer", "head"])["value"].mean())
        if math.isnan(value):
            raise KeyError(f"no head has a '{metric}' there")
        return value


def row_metrics(model: GPT2, prompt: Prompt, at: int, device: torch.device) -> dict[str, torch.Tensor]:
    """Reads what token ``at`` attends to, in every layer and head: returns each metric as (b l h).

    Signed weights count by their size.
    """
    found: dict[str, list[torch.Tensor]] = {metric: [] for metric in METRICS}
    for row in attention_rows(model, prompt, at, device):
        spread = entropy(row.weights)
        found["largest"].append(shares(row.weights).amax(-1))
        found["entropy"].append(spread / math.log(at + 1))
        found["effective"].append(spread.exp())
        found["temperature"].append(inverse_temperature(row.weights, row.scores))
    return {metric: torch.cat(pieces) for metric, pieces in found.items()}


def slope(keys: Sequence[float], largest: Sequence[float]) -> float:
    """The slope of log(largest weight) on log n: 0 does not fade, -1 fades as fast as a mean does."""
    return float(np.polyfit(np.log(keys), np.log(np.maximum(largest, 1e-300)), 1)[0])


def slopes(grid: Grid) -> list[float]:
    """The slope of each head of each seed of one normalizer."""
    return [slope(*zip(*line, strict=True)) for line in curves(grid.where(metric="largest"))]


def parameters(model: GPT2) -> list[Row]:
    """The learned numbers of each layer's normalizer, by the names of the formula; one that heads share stands once."""
    found = model.learned()
    return [
        {"layer": layer, "head": head, "metric": name, "value": found[key], "stderr": None, "count": 1}
        for key, (name, layer, head) in places(found)
    ]


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
