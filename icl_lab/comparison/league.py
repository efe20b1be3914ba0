"""Many normalizers over many tasks: errors as skill, ranks with intervals, and missing cells.

Errors of two tasks cannot be averaged. Skill can be compared: 0 is the task's best trivial reference, 1 its best
reference of all, in the same cell (a skill score, Murphy 1988). Ranks within a task use no scale at all.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import fmean
from typing import Any

import numpy as np
import scipy

from icl_lab import tasks
from icl_lab.base import markdown as md
from icl_lab.base.errors import BadValue
from icl_lab.base.grid import Grid, model_name
from icl_lab.base.registry import require
from icl_lab.base.rng import stream
from icl_lab.base.tables import csv_text
from icl_lab.comparison.statistics import CLEAR, paired
from icl_lab.runs.run import Run
from icl_lab.runs.spec import RunSpec
from icl_lab.runs.summary import left_out, training_cell
from icl_lab.tasks.base import Task

WORST = -1.0  # a skill below this counts as this: as far below the trivial reference as the best one is above it
DRAWS = 2000  # of the bootstrap
PARTS = ("near", "far")
WORDS = {"near": "in training conditions", "far": "beyond them"}


@dataclass(frozen=True)
class Skill:
    """Skill of a normalizer on a task, a number for each training seed: in training conditions, and beyond them."""

    near: dict[int, float]
    far: dict[int, float]

    def values(self, part: str) -> list[float]:
        """The numbers of a part, by seed."""
        return list((self.near if part == "near" else self.far).values())


@dataclass(frozen=True)
class Standing:
    """The mean rank of a normalizer over the tasks of a part, with the middle 95 % of the bootstrap."""

    mean: float
    low: float
    high: float


@dataclass(frozen=True)
class League:
    """Skills by normalizer and task; a pair without finished runs is missing."""

    skills: Mapping[tuple[str, str], Skill]
    baseline: str

    @cached_property
    def rules(self) -> list[str]:
        """The normalizers, in order of appearance, the baseline first."""
        found = list(dict.fromkeys(rule for rule, _ in self.skills))
        return sorted(found, key=lambda rule: rule != self.baseline)

    @cached_property
    def tasks(self) -> list[str]:
        """The tasks of which at least two normalizers are there: with one there is nothing to rank."""
        every = dict.fromkeys(task for _, task in self.skills)
        return [task for task in every if sum((rule, task) in self.skills for rule in self.rules) > 1]

    @cached_property
    def whole(self) -> list[str]:
        """The normalizers that are there on every task: only these have a rank over all."""
        return [rule for rule in self.rules if all((rule, task) in self.skills for task in self.tasks)]

    def clear(self, rule: str, task: str, part: str) -> bool:
        """True if a normalizer differs from the baseline on a task: paired over common seeds, p below 0.05."""
        mine, other = (self.skills.get((name, task)) for name in (rule, self.baseline))
        if mine is None or other is None or rule == self.baseline:
            return False
        sides = [skill.near if part == "near" else skill.far for skill in (mine, other)]
        seeds = sorted(set(sides[0]) & set(sides[1]))
        if len(seeds) < 2:
            return False
        effect = paired([sides[1][seed] for seed in seeds], [sides[0][seed] for seed in seeds], "difference")
        return bool(effect.p < CLEAR)

    def standings(self, part: str) -> dict[str, Standing]:
        """The standings of a part, drawn once: table and picture ask for them."""
        return self._standings[part]

    @cached_property
    def _standings(self) -> dict[str, dict[str, Standing]]:
        return {part: self._ranked(part) for part in PARTS}

    def _ranked(self, part: str) -> dict[str, Standing]:
        """The mean rank of each normalizer that is whole, 1 the best; ties share a rank.

        The interval resamples tasks, and within each the seeds of every normalizer: it is that of other tasks like
        these and of other trainings, and is wide with few tasks. A task without skill in this part, because its test
        has no cell there, ranks nobody.
        """
        values = [[self.skills[rule, task].values(part) for rule in self.whole] for task in self.tasks]
        values = [rules for rules in values if not any(math.isnan(value) for seeds in rules for value in seeds)]
        if len(self.whole) < 2 or not values:
            return {}
        rng = np.random.default_rng(int(stream(0, "league").initial_seed()))
        chosen = rng.integers(len(values), size=(DRAWS, len(values)))
        drawn = np.array([[_resampled(seeds, chosen.shape, rng) for seeds in rules] for rules in values])
        # Normalizer, draw, place among the chosen tasks.
        drawn = np.take_along_axis(drawn, chosen[None, None], axis=0)[0]
        low, high = np.quantile(scipy.stats.rankdata(-drawn, axis=0).mean(axis=-1), [0.025, 0.975], axis=-1)
        mean = scipy.stats.rankdata([[-fmean(seeds) for seeds in rules] for rules in values], axis=1).mean(axis=0)
        found = zip(self.whole, mean.tolist(), low.tolist(), high.tolist(), strict=True)
        made = {rule: Standing(*numbers) for rule, *numbers in found}
        return dict(sorted(made.items(), key=lambda item: item[1].mean))


def _resampled(values: Sequence[float], shape: tuple[int, ...], rng: np.random.Generator) -> np.ndarray:
    """Means of values that are drawn with replacement, as many of them as this shape has places."""
    means: np.ndarray = np.asarray(values)[rng.integers(len(values), size=(*shape, len(values)))].mean(axis=-1)
    return means


def gather(runs: Iterable[Run], baseline: str) -> League:
    """Build the league of the finished runs among these; raises ``BadValue`` where no two normalizers share a task."""
    skills: dict[tuple[str, str], Skill] = {}
    for run in runs:
        if not run.finished:
            continue
        found = skills.setdefault((run.spec.attn, run.spec.task), Skill({}, {}))
        for part, value in zip(PARTS, of(run.grid(), tasks.build(run.spec.task), run.spec), strict=True):
            (found.near if part == "near" else found.far)[run.seed] = value
    league = League(skills, baseline)
    require(
        bool(league.tasks), "a league needs two normalizers with finished runs of one task", f"{len(skills)} of them"
    )
    return league


def of(grid: Grid, task: Task, spec: RunSpec) -> tuple[float, float]:
    """Return the skill of a run in training conditions, and the mean over the cells of the task's summary.

    Formula: (t - v) / (t - e), v the headline error, t that of the best trivial reference in that cell and e that of
        the best reference of all; at least ``WORST``, where answers were no numbers too

    Facets, axes of which training has met every value, are averaged. NaN both where the grid leaves training conditions
    out: all cells of the summary keep to them in every other axis. Raises ``BadValue`` where the task has no trivial
    reference.
    """
    if not task.trivial:
        raise BadValue(f"{task.name} names no trivial reference, against which skill could be told.")
    if left_out(grid, task, spec):
        return math.nan, math.nan
    here = task.pinned(training_cell(task, spec))
    axis = task.summary.axis
    places = sorted({value for value in grid.values(axis) if _counts(task, value, here[axis])})
    far = [_skill(grid, task, {**here, axis: place}) for place in places]
    return _skill(grid, task, here), fmean(far) if far else math.nan


def _counts(task: Task, value: float, trained: float) -> bool:
    """True if a place along the summary's axis is in its mean; that of training is not: it is the other number."""
    summary = task.summary
    if summary.kind == "range":
        return summary.low <= value <= summary.high and value != trained
    return value > trained if summary.kind == "beyond" else value != trained


def _skill(grid: Grid, task: Task, cell: Mapping[str, float]) -> float:
    cells = grid.where(metric=task.headline, **cell)
    ours = _error(cells, model_name(grid))
    trivial = min(_error(cells, f"reference:{name}") for name in task.trivial)
    names = [name for name in cells.values("attn") if name.startswith("reference:")]
    best = min(_error(cells, name) for name in names)
    if not math.isfinite(ours):
        return WORST
    return max(WORST, (trivial - ours) / (trivial - best)) if trivial > best else math.nan


def _error(cells: Grid, name: str) -> float:
    return fmean(float(value) for value in cells.where(attn=name).frame["value"])


def table(league: League, missing: int) -> list[str]:
    """Return the standings and the skills as lines of Markdown; ``missing`` counts the runs that are not there."""
    seeds = sorted({len(skill.near) for skill in league.skills.values()})
    counts = f"{seeds[0]}" if len(seeds) == 1 else f"{seeds[0]} to {seeds[-1]}"
    text = [
        f"{len(league.rules)} normalizers, {len(league.tasks)} tasks, training seeds of each: {counts}; runs that are "
        f"missing: {missing}. Skill: 0 is the best trivial reference of the task, 1 its best reference of all, in the "
        f"same cell; what is below {WORST:g} counts as {WORST:g}. In training conditions, and the mean beyond them "
        "along the axis of the task's summary.",
    ]
    for part in PARTS:
        standings = league.standings(part)
        text += ["", f"### Mean rank {WORDS[part]}", ""]
        if not standings:
            text.append("No two normalizers are there on every task: nothing can be ranked over all.")
            continue
        text += md.head(["normalizer", "mean rank", "95 % of the bootstrap"])
        text += [
            md.row([f"`{rule}`", f"{each.mean:.2f}", f"{each.low:.2f} to {each.high:.2f}"])
            for rule, each in standings.items()
        ]
    if left := [rule for rule in league.rules if rule not in league.whole]:
        text += ["", f"Without a rank, because a task is missing: {', '.join(f'`{rule}`' for rule in left)}."]
    for part in PARTS:
        text += ["", f"### Skill {WORDS[part]}", "", *md.head(["normalizer", *(f"`{task}`" for task in league.tasks)])]
        for rule in league.rules:
            text.append(md.row([f"`{rule}`", *(_cell(league, rule, task, part) for task in league.tasks)]))
    if league.baseline in league.rules:
        text += ["", f"\\* differs from `{league.baseline}`: p below {CLEAR:g}, paired over seeds, of this cell alone."]
    return text


def _cell(league: League, rule: str, task: str, part: str) -> str:
    skill = league.skills.get((rule, task))
    if skill is None:
        return "missing"
    mean = fmean(skill.values(part))
    return "not tested" if math.isnan(mean) else f"{mean:.2f}{'*' * league.clear(rule, task, part)}"


def rows(league: League) -> Iterator[dict[str, Any]]:
    """Yield every skill: normalizer, task, part, seed and value."""
    for (rule, task), skill in league.skills.items():
        for part, values in (("near", skill.near), ("far", skill.far)):
            for seed, value in values.items():
                yield {"attn": rule, "task": task, "part": part, "seed": seed, "skill": f"{value:.6g}"}


def listed(league: League) -> str:
    """Return every skill as CSV."""
    return csv_text(["attn", "task", "part", "seed", "skill"], rows(league))
