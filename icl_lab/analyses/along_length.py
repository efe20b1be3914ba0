"""Analyses of the attention of the token that is asked last, in prompts of several lengths."""

import math
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Self

import torch
from matplotlib.figure import Figure
from torch import Tensor

from icl_lab import markdown as md
from icl_lab import tasks
from icl_lab.analyses.attention_rows import AttentionRow, attention_rows, head_rows
from icl_lab.analyses.findings import (
    Curves,
    Findings,
    Row,
    Rows,
    StoredGrids,
    TrainedModel,
    check_drawn,
    known,
    known_median,
)
from icl_lab.analyses.frame import Analysis, Cells, option
from icl_lab.errors import BadValue
from icl_lab.figures import heads as pictures
from icl_lab.figures.base import NAMES, short
from icl_lab.grid import Grid
from icl_lab.runs.run import Run
from icl_lab.runs.spec import RunSpec
from icl_lab.training.curriculum import LONGEST

STRETCHES = (0.5, 1, 2, 4, 8, 16)  # the usual lengths, in training lengths


@dataclass(frozen=True, kw_only=True)
class AlongLength(Analysis):
    """Base of analyses of heads over lengths, which are filled in where none are named.

    The first grid holds every metric of every head at each length; the first metric has a trend in n, one number a
    head.
    """

    words: ClassVar[Mapping[str, str]]  # of each metric
    trend: ClassVar[str]  # name of that number, a metric of claims
    explained: ClassVar[str]  # above the tables
    logarithmic: ClassVar[Sequence[str]]  # metrics that are drawn on two logarithmic axes

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
        """Returns each metric of some prompts, (b l h)."""

    @abstractmethod
    def trends(self, grid: Grid) -> list[float]:
        """Returns the trend of each head of each seed of one normalizer, from cells of the first grid."""

    def write(self, trend: float) -> str:
        """Returns a trend as the table holds it."""
        return f"{trend:.2f}"

    def measure(self, trained: TrainedModel) -> Rows:
        """Reads every head at each length."""
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
        keys, (first, *_) = found.first.values("keys"), self.words
        text = [
            f"Trained up to {found.spec.train.longest} examples. The token that is asked last; medians over the heads "
            f"of all seeds. {self.explained}",
        ]
        for metric, words in self.words.items():
            columns = [f"{self.trend}: median", "least", "greatest"] if metric == first else []
            text += ["", *md.head([words, *(f"n {n:g}" for n in keys), *columns])]
            for rule in found.rules:
                lines = curves(found.first.where(attn=rule, metric=metric))
                cells = [short(known_median(value for line in lines for n, value in line if n == at)) for at in keys]
                if metric == first:
                    own = self.trends(found.first.where(attn=rule))
                    ends = known(own) or [math.nan]
                    cells += [self.write(value) for value in (known_median(own), min(ends), max(ends))]
                text.append(md.row([f"`{rule}`", *cells]))
        return text

    def figures(self, found: Findings, title: str) -> Mapping[str, Figure]:
        """Every metric over n, the longest prompt of training dotted."""
        panels: dict[str, dict[str, Curves]] = {
            words: {rule: curves(found.first.where(attn=rule, metric=metric)) for rule in found.rules}
            for metric, words in self.words.items()
        }
        scales = {self.words[metric]: "xy" for metric in self.logarithmic}
        # What the token that is asked last sees in the longest prompt of training.
        mark = tasks.build(found.spec.task).asking(found.spec.train.longest) + 1
        drawn = pictures.curves(panels, title=title, across=NAMES["keys"], scales=scales, mark=mark, base=2)
        return {next(iter(found.grids)): drawn}

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
    """Returns 1/2 to 16 training lengths, as far as prompts can be made and the position code goes."""
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
