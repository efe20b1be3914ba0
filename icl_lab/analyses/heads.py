"""Attention of the heads: statistics along a prompt and under every shift."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from matplotlib.figure import Figure
from torch import Tensor

from icl_lab.analyses import registry
from icl_lab.analyses.attention_rows import statistics, watchable
from icl_lab.analyses.findings import Findings, Row, Rows, StoredGrids, TrainedModel, known_median
from icl_lab.analyses.frame import ANY, SHIFTS, Analysis, Cells, Metric, option
from icl_lab.base import markdown as md
from icl_lab.base.errors import BadValue
from icl_lab.base.grid import Grid
from icl_lab.figures.base import short
from icl_lab.figures.heads import curves
from icl_lab.model.gpt2 import GPT2
from icl_lab.runs.measure import summary
from icl_lab.runs.spec import RunSpec
from icl_lab.tasks.base import Prompt

SHOWN = ("entropy", "largest", "first", "itself", "previous", "answers")
WORDS = {  # of the statistics in the table
    "entropy": "entropy / log n",
    "largest": "largest weight",
    "first": "weight on the first token",
    "itself": "weight on the token itself",
    "previous": "weight on the token before",
    "answers": "weight on answers",
    "negative": "share of negative weights",
}


@registry.add("heads")
@dataclass(frozen=True, kw_only=True)
class Heads(Analysis):
    """Describe what heads attend to: entropy, first token, neighbours, numbers or answers.

    Statistics of the attention weights are taken at several answers of a prompt, in training conditions and along each
    axis of the test grid.
    """

    grids: ClassVar[Mapping[str, Sequence[str]]] = {"heads": (SHIFTS, "length", "layer", "head", "index")}
    title: ClassVar[str] = "what heads attend to, as in training"
    metrics: ClassVar[Mapping[str, Metric]] = {ANY: Metric("heads", mean=False, kind="share", constants=True)}

    prompts: int = option(64, "Prompts in each cell.", least=2, most=100_000)

    def asks(self, spec: RunSpec) -> list[tuple[int, int]]:
        return [(self.prompts, spec.test.lengths[-1])]

    def check(self, spec: RunSpec) -> None:
        if not spec.model.attention:
            raise BadValue("a model without attention has no heads to look at.")

    def measure(self, trained: TrainedModel) -> Rows:
        """Read every head in training conditions and in the cells that differ from them along one axis."""
        suite, rows = trained.task.balanced, []
        cells = cells_along_axes(trained.cell, trained.spec.test.axes)
        for done, here in enumerate(cells):
            length = int(here["length"])
            asked = suite.asked(length)
            indices = spread_out(len(asked)) if suite.prefixes else [len(asked)]
            places = {index: asked[index - 1] for index in indices}
            prompt = trained.prompts(self.prompts, here)
            rows += [
                {**here, **row}
                for row in statistics_of_heads(trained.model, prompt, places, suite.roles, trained.lab.device)
            ]
            trained.tick(done + 1, len(cells))
        return {"heads": rows}

    def table(self, found: Findings) -> list[str]:
        """The median head of each normalizer in training conditions, and at the ends of every axis."""
        grid = found["heads"]
        metrics = [metric for metric in WORDS if metric in grid.values("metric") and _has_values(grid, metric)]
        text = ["Medians over the heads of all seeds, at the last answer of a prompt.", ""]
        text += md.head(["normalizer", "where", *(WORDS[metric] for metric in metrics)])
        for rule in found.rules:
            own = grid.where(attn=rule)
            here = training(own)
            places = [("as in training", here)]
            for axis in here:
                ends = {min(own.values(axis)), max(own.values(axis))} - {here[axis]}
                places += [(f"{axis} {value:g}", {**here, axis: value}) for value in sorted(ends)]
            for words, at in places:
                medians = [short(_last(own.where(metric=metric, **at))) for metric in metrics]
                text.append(md.row([f"`{rule}`", words, *medians]))
        return text

    def figures(self, found: Findings, title: str) -> Mapping[str, Figure]:
        """Some of the statistics over the place in the prompt, in training conditions, every head a thin line."""
        grid, others = found["heads"], ("seed", "layer", "head")
        own = {rule: grid.where(attn=rule, **training(grid.where(attn=rule))) for rule in found.rules}
        panels = {
            WORDS[metric]: {rule: cells.where(metric=metric).lines("index", *others) for rule, cells in own.items()}
            for metric in SHOWN
            if metric in grid.values("metric")
        }
        return {"heads": curves(panels, title=title, across="answer of the prompt, from 1", scales={})}

    def finding(self, found: Findings) -> str:
        """Entropy and largest weight of the median head in training conditions."""
        grids = {rule: found["heads"].where(attn=rule) for rule in found.rules}
        medians = {
            rule: [_last(grid.where(metric=metric, **training(grid))) for metric in ("entropy", "largest")]
            for rule, grid in grids.items()
        }
        entropies = (
            f"{short(spread)} log n with {rule} (largest weight {short(largest)})"
            for rule, (spread, largest) in medians.items()
        )
        return f"At the last answer in training conditions the median head has an entropy of {md.listed(entropies)}."

    def value(self, found: StoredGrids, of: str, cells: Cells, metric: str, seed: int) -> float:
        """The median over heads of a metric (usually ``entropy``) in the cells, mean over several.

        Axes that cells do not name are as in training, and ``index`` is the last answer of a prompt.
        """
        if (number := self._constant(of, metric)) is not None:
            return number
        grid = found["heads"].where(attn=of, seed=seed)
        named = {axis: values for axis, values in cells.items() if axis != "index"}
        part = grid.where(metric=metric or "entropy", **training(grid) | named)
        part = part.where(index=cells.get("index", [max(part.values("index"))]))
        heads = part.frame.groupby(["layer", "head"])["value"].mean()
        return known_median(heads)


@torch.no_grad()
def statistics_of_heads(
    model: GPT2, prompt: Prompt, places: Mapping[int, int], roles: int, device: torch.device
) -> list[Row]:
    """Measure some tokens in every layer and head; ``places`` maps an index of the grid to its token (from 0)."""
    found: dict[tuple[int, int, str], list[Tensor]] = {}

    def see(layer: int, weights: Tensor, scores: Tensor) -> None:
        for index, token in places.items():
            for metric, values in statistics(weights[:, :, token, : token + 1].cpu(), roles).items():
                found.setdefault((layer, index, metric), []).append(values)

    for piece in watchable(model, prompt):
        model(piece.tokens.to(device), see)
    rows: list[Row] = []
    for (layer, index, metric), pieces in found.items():
        place = {"layer": layer, "index": index, "metric": metric}
        rows += [{**place, "head": head, **summary(column)} for head, column in enumerate(torch.cat(pieces).unbind(1))]
    return rows


def cells_along_axes(here: Mapping[str, float], axes: Mapping[str, Sequence[float]]) -> list[dict[str, float]]:
    """Return the cell of training, then those of the test grid that differ from it along one axis."""
    return [dict(here)] + [
        {**here, axis: value} for axis, values in axes.items() for value in values if value != here[axis]
    ]


def spread_out(length: int, places: int = 6) -> Sequence[int]:
    """Numbers of answers from the first to the last, evenly in the logarithm: heads change most in short prompts."""
    return sorted({round(value) for value in np.geomspace(1, length, places).tolist()})


def training(grid: Grid) -> dict[str, float]:
    """Return the cell of training of one normalizer, which is measured first."""
    first = grid.frame.iloc[0]
    return {axis: float(first[axis]) for axis in grid.axes if axis not in ("layer", "head", "index")}


def _has_values(grid: Grid, metric: str) -> bool:
    return metric != "negative" or bool((grid.where(metric=metric).frame["value"] > 0).any())


def _last(grid: Grid) -> float:
    return known_median(grid.where(index=max(grid.values("index"))).frame["value"])
