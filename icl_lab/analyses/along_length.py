"""Analyses that read the attention of the token that is asked last, in prompts of several lengths."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Self

from icl_lab import tasks
from icl_lab.analyses.frame import Analysis, Curves, option
from icl_lab.errors import BadValue
from icl_lab.grid import Grid
from icl_lab.runs.measure import TestSpec, draw
from icl_lab.runs.run import Run
from icl_lab.runs.spec import RunSpec, change, check
from icl_lab.tasks.base import Prompt
from icl_lab.training.curriculum import LONGEST

STRETCHES = (0.5, 1, 2, 4, 8, 16)  # the usual lengths, in training lengths


@dataclass(frozen=True, kw_only=True)
class AlongLength(Analysis):
    """Base of analyses over lengths, which are filled in where none are named."""

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
            prompts_of(spec, length, 1)
        tasks.build(spec.task).asking(spec.train.longest)
        _two_or_more(self.lengths or usual_lengths(spec))

    def prepared(self, runs: Sequence[Run]) -> Self:
        if self.lengths:
            return replace(self, lengths=tuple(sorted(set(self.lengths))))
        usual = [usual_lengths(run.spec) for run in runs]
        lengths = tuple(length for length in usual[0] if all(length in others for others in usual))
        _two_or_more(lengths)
        return replace(self, lengths=lengths)


def usual_lengths(spec: RunSpec) -> list[int]:
    """Returns 1/2 to 16 training lengths, as far as prompts can be made and the position code goes."""
    lengths = dict.fromkeys(max(8, int(stretch * spec.train.longest)) for stretch in STRETCHES)
    return [length for length in lengths if _can(spec, length)]


def prompts_of(spec: RunSpec, length: int, count: int) -> Prompt:
    """Draws test prompts of a length; raises ``BadValue`` where the task or the position code has none so long."""
    task = tasks.build(spec.task)
    check(change(spec, {"test.axes.length": [float(length)]}), task)
    return draw(task.balanced, length, TestSpec(count, {"length": [float(length)]}, spec.test.draws), {})


def trained_keys(spec: RunSpec) -> int:
    """Number of keys that the token which is asked last sees in the longest prompt of training."""
    return tasks.build(spec.task).asking(spec.train.longest) + 1


def curves(grid: Grid) -> Curves:
    """For each head of each seed of one normalizer: (keys, value) along the length."""
    return grid.lines("keys", "seed", "layer", "head")


def _can(spec: RunSpec, length: int) -> bool:
    try:
        prompts_of(spec, length, 1)
    except BadValue:
        return False
    return True


def _two_or_more(lengths: Sequence[int]) -> None:
    if len(set(lengths)) < 2:
        raise BadValue(f"a curve needs at least two lengths, got {', '.join(map(str, lengths)) or 'none'}.")
