"""Attention of the heads: statistics along a prompt and under every shift, and how they go with the length.

Softmax over n keys with bounded scores must spread: its largest weight falls as 1/n in the end (arXiv 2410.01104, where
this is called attention dispersion). At the inverse temperature b it gives the j-th largest of n scores e^(-b gap_j)
times the weight of the largest, gap_j their distance. The largest is not outweighed by the j that are as near if
b gap_j >= log j. So b must reach max_j log(j) / gap_j for any scores: log(n) / gap for one key above a flat rest,
sqrt(2 log n) / sigma for Gaussian scores. Counting scores by their gap in this way is the idea of arXiv 2605.12697; the
estimate is ours.
"""

import math
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import ClassVar, Self

import numpy as np
import torch
from torch import Tensor

from icl_lab import tasks
from icl_lab.analyses import registry
from icl_lab.analyses.attention_rows import (
    AttentionRow,
    attention_rows,
    head_rows,
    inverse_temperature,
    statistics,
    watchable,
)
from icl_lab.analyses.findings import (
    Curves,
    Findings,
    Row,
    Rows,
    StoredGrids,
    TrainedModel,
    cell,
    check_drawn,
    known,
    known_median,
)
from icl_lab.analyses.frame import SHIFTS, Analysis, Cells, option
from icl_lab.base import markdown as md
from icl_lab.base.errors import BadValue
from icl_lab.base.grid import Grid
from icl_lab.base.learned import places
from icl_lab.figures.base import NAMES, short
from icl_lab.model.gpt2 import GPT2
from icl_lab.runs.measure import summary
from icl_lab.runs.run import Run
from icl_lab.runs.spec import RunSpec
from icl_lab.tasks.base import Prompt, Task
from icl_lab.training.curriculum import LONGEST

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
STRETCHES = (0.5, 1, 2, 4, 8, 16)  # the usual lengths, in training lengths
NEAR = 1.0  # of the largest score: the keys that are counted


@registry.add("heads")
@dataclass(frozen=True, kw_only=True)
class Heads(Analysis):
    """Describe what heads attend to: entropy, first token, neighbours, numbers or answers.

    Statistics of the attention weights are taken at several answers of a prompt, in training conditions and along each
    axis of the test grid.
    """

    grids: ClassVar[Mapping[str, Sequence[str]]] = {"heads": (SHIFTS, "length", "layer", "head", "index")}
    title: ClassVar[str] = "what heads attend to, as in training"
    across: ClassVar[str] = "answer of the prompt, from 1"
    constants: ClassVar[bool] = True

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

    def panels(self, found: Findings) -> dict[str, dict[str, Curves]]:
        """Some of the statistics over the place in the prompt, in training conditions, every head a thin line."""
        grid, others = found["heads"], ("seed", "layer", "head")
        own = {rule: grid.where(attn=rule, **training(grid.where(attn=rule))) for rule in found.rules}
        return {
            WORDS[metric]: {rule: cells.where(metric=metric).lines("index", *others) for rule, cells in own.items()}
            for metric in SHOWN
            if metric in grid.values("metric")
        }

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

    def span(self, task: Task, metric: str) -> float:
        """Return 1: weights are shares, and entropies shares of log n."""
        return 1.0

    def value(self, found: StoredGrids, of: str, cells: Cells, metric: str, seed: int) -> float:
        """The median over heads of a metric (usually ``entropy``) in the cells, mean over several.

        Axes that cells do not name are as in training, and ``index`` is the last answer of a prompt.
        """
        if (number := self.constant(of, metric)) is not None:
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


@dataclass(frozen=True, kw_only=True)
class AlongLength(Analysis):
    """Base of analyses of heads over lengths, which are filled in where none are named.

    The first grid holds every metric of every head at each length; the first metric has a trend in n, one number a
    head.
    """

    along: ClassVar[str] = "keys"
    across: ClassVar[str] = NAMES["keys"]
    base: ClassVar[int] = 2
    trend: ClassVar[str]  # name of that number, a metric of claims
    explained: ClassVar[str]  # above the tables

    lengths: tuple[int, ...] = option(
        (), "Examples of a prompt, e.g. 64,128.  [default: 1/2 to 16 training lengths]", least=1, most=LONGEST
    )
    prompts: int = option(64, "Prompts at each length.", least=2, most=100_000)

    def asks(self, spec: RunSpec) -> list[tuple[int, int]]:
        return [(self.prompts, length) for length in self.lengths or (spec.train.longest,)]

    def check(self, spec: RunSpec) -> None:
        if not spec.model.attention:
            raise BadValue("a model without attention has no heads to follow.")
        for length in self.lengths:
            check_drawn(spec, length)
        tasks.build(spec.task).asking(spec.train.longest)
        _two_or_more(self.lengths or usual_lengths(spec))

    def prepared(self, runs: Sequence[Run]) -> Self:
        if self.lengths:
            return replace(self, lengths=tuple(sorted(set(self.lengths))))
        usual = [usual_lengths(run.spec) for run in runs]
        lengths = tuple(length for length in usual[0] if all(length in others for others in usual))
        _two_or_more(lengths)
        return replace(self, lengths=lengths)

    @abstractmethod
    def read_row(self, row: AttentionRow) -> Mapping[str, Tensor]:
        """Return each metric of some prompts, (b l h)."""

    @abstractmethod
    def trends(self, grid: Grid) -> list[float]:
        """Return the trend of each head of each seed of one normalizer, from cells of the first grid."""

    def said(self, found: Findings, rule: str) -> str:
        """Median trend over heads."""
        return f"{known_median(self.trends(found.first.where(attn=rule))):.2f}"

    def write(self, trend: float) -> str:
        """Return a trend as the table holds it."""
        return f"{trend:.2f}"

    def measure(self, trained: TrainedModel) -> Rows:
        """Read every head at each length."""
        rows: list[Row] = []
        for done, length in enumerate(self.lengths):
            prompt, at = trained.prompts(self.prompts, {"length": length}), trained.task.asking(length)
            pieces = [self.read_row(row) for row in attention_rows(trained.model, prompt, at, trained.lab.device)]
            metrics = {metric: torch.cat([piece[metric] for piece in pieces]) for metric in self.words}
            rows += head_rows(metrics, {"length": length, "keys": at + 1})
            trained.tick(done + 1, len(self.lengths))
        return {next(iter(self.grids)): rows}

    def table(self, found: Findings) -> list[str]:
        """Every metric at each length, medians over heads, and the trends."""
        keys, grid = found.first.values("keys"), next(iter(self.grids))
        text = [
            f"Trained up to {found.spec.train.longest} examples. The token that is asked last; medians over the heads "
            f"of all seeds. {self.explained}",
        ]
        ends = [f"{self.trend}: median", "least", "greatest"]
        for metric, words in self.words.items():
            rows = found.rows(grid, "keys", lambda values: short(known_median(values)), metric=metric)
            if ends:
                for rule, row in zip(found.rules, rows, strict=True):
                    own = known(self.trends(found.first.where(attn=rule))) or [math.nan]
                    row += [self.write(value) for value in (known_median(own), min(own), max(own))]
            text += ["", *md.table([words, *(f"n {n:g}" for n in keys), *ends], rows)]
            ends = []
        return text

    def panels(self, found: Findings) -> dict[str, dict[str, Curves]]:
        """Every metric over n, a curve per head and seed."""
        return {
            words: {rule: curves(found.first.where(attn=rule, metric=metric)) for rule in found.rules}
            for metric, words in self.words.items()
        }

    def mark(self, found: Findings) -> float:
        """Keys that the token that is asked last sees in the longest prompt of training."""
        return tasks.build(found.spec.task).asking(found.spec.train.longest) + 1

    def value(self, found: StoredGrids, of: str, cells: Cells, metric: str, seed: int) -> float:
        """The median over heads of the trend (the usual metric), or of a head's mean of another one over the cells.

        Raises ``KeyError`` where there is none.
        """
        grid, metric = found.first.where(attn=of, seed=seed, **cells), metric or self.trend
        if metric == self.trend:
            if len(grid.values("keys")) < 2:
                raise KeyError(f"a {metric} needs at least two lengths")
            value = known_median(self.trends(grid))
        else:
            value = known_median(grid.where(metric=metric).frame.groupby(["layer", "head"])["value"].mean())
        if math.isnan(value):
            raise KeyError(f"no head has a '{metric}' there")
        return value


def usual_lengths(spec: RunSpec) -> list[int]:
    """Return 1/2 to 16 training lengths, as far as prompts can be made and the position code goes."""
    lengths = dict.fromkeys(max(8, int(stretch * spec.train.longest)) for stretch in STRETCHES)
    return [length for length in lengths if _can(spec, length)]


def curves(grid: Grid) -> Curves:
    """For each head of each seed of one normalizer: (keys, value) along the length."""
    return grid.lines("keys", "seed", "layer", "head")


def _can(spec: RunSpec, length: int) -> bool:
    try:
        check_drawn(spec, length)
    except BadValue:
        return False
    return True


def _two_or_more(lengths: Sequence[int]) -> None:
    if len(set(lengths)) < 2:
        raise BadValue(f"a curve needs at least two lengths, got {', '.join(map(str, lengths)) or 'none'}.")


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
    sentence: ClassVar[str] = "The largest weight changes as {} (median slope over heads)."
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
        """Read every head at each length, and what its normalizer has learned."""
        return {**super().measure(trained), "learned": parameters(trained.model)}

    def table(self, found: Findings) -> list[str]:
        """Slopes of the heads, every metric at each length (medians over heads), and the learned numbers."""
        text = super().table(found)
        if "learned" in found.grids:
            text += ["", *md.head(["learned", "layer", "heads of the first seed", "mean over seeds"])]
            for rule in found["learned"].values("attn"):
                text += _learned(found["learned"].where(attn=rule), rule)
        return text

    def said(self, found: Findings, rule: str) -> str:
        """Rate at which the largest weight changes."""
        return f"n^{super().said(found, rule)}"

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
    sentence: ClassVar[str] = "Scores ask for a power of log n as inverse temperature: {} (median over heads)."
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
