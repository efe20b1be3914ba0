"""Normalizers against a baseline, cell by cell, paired over training seeds: from finished grids, without training."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from icl_lab.base.errors import BadValue
from icl_lab.base.grid import Grid, model_name
from icl_lab.base.registry import require
from icl_lab.base.tables import csv_text
from icl_lab.comparison.family import Family, place
from icl_lab.comparison.given import Array
from icl_lab.comparison.statistics import Effect, Scale, evaluation, mean_beyond, mean_height, paired, resampled
from icl_lab.runs.measure import Errors
from icl_lab.runs.summary import lost
from icl_lab.tasks.base import Task

if TYPE_CHECKING:
    from icl_lab.comparison.rates import Curve

NOT_FINITE = "an answer was no finite number: the error is infinite, and nothing can be said of its size"
Labels = dict[str, float]
Map = dict[tuple[float, float], float]  # (value down, value across) -> number


@dataclass(frozen=True)
class PairedGrids:
    """The grids of several normalizers, each over the same training seeds, in the same cells.

    ``grids`` holds one grid per seed for each normalizer, references included in each (they are the same in all,
    because every run meets the same prompts). ``training`` is the cell of training. ``errors`` holds what each prompt
    adds, one a seed for each normalizer, where all runs have kept it: intervals then include the variance over prompts.
    ``rescaled`` holds the grid of the baseline's models asked with rescaled prompts, the mean over seeds, by the part
    that was rescaled; nothing where that was not tested. ``not_learned`` says why of the normalizers whose models err
    in training conditions nearly as much as a trivial reference (``summary.unlearned``). ``rates`` says their learning
    rates, and ``curves`` holds the learning-rate curves that own rates were chosen from.
    """

    task: Task
    grids: Mapping[str, Sequence[Grid]]
    baseline: str
    training: Labels
    errors: Mapping[str, Sequence[Errors]] = field(default_factory=dict)
    rescaled: Mapping[str, Grid] = field(default_factory=dict)
    not_learned: Mapping[str, str] = field(default_factory=dict)
    rates: str = ""
    curves: Mapping[str, "Curve"] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.baseline not in self.grids:
            raise BadValue(f"The baseline '{self.baseline}' is not among {', '.join(self.grids)}.")
        first = self.grids[self.baseline]
        for rule, grids in self.grids.items():
            if [grid.values("seed") for grid in grids] != [grid.values("seed") for grid in first]:
                raise BadValue(f"'{rule}' and '{self.baseline}' were not trained with the same seeds.")
            if _cells(grids[0], self.task.headline) != _cells(first[0], self.task.headline):
                raise BadValue(f"'{rule}' and '{self.baseline}' were not measured in the same cells.")

    @property
    def metric(self) -> str:
        """The task's headline metric."""
        return self.task.headline

    @property
    def scale(self) -> Scale:
        """Ratios where the metric spans decades, differences where it is a rate."""
        return "log-ratio" if self.task.log_scale else "difference"

    @property
    def span(self) -> float:
        """The largest difference that there can be: 1 of rates."""
        return math.inf if self.task.log_scale else self.task.span(self.metric)

    @property
    def seeds(self) -> int:
        """Number of training seeds of each normalizer."""
        return len(self.grids[self.baseline])

    def cells(self) -> list[Labels]:
        """The cells that all normalizers were measured in."""
        return _cells(self.grids[self.baseline][0], self.metric)

    def values(self, rule: str, cell: Labels) -> list[float]:
        """The metric of a normalizer in a cell, one number per seed; raises ``BadValue`` where there is a gap (NaN).

        A cell without a label for one of the task's facets is the mean over it.
        """
        values = [self._mean(rule, number, model, cell) for number, model in enumerate(self._models[rule])]
        for seed, value in enumerate(values):
            if math.isnan(value):
                raise BadValue(f"'{rule}', seed {seed}: {self.metric} is not a number at {cell}.")
        return values

    def count(self, cell: Labels) -> int:
        """Number of prompts of a cell, for one seed."""
        grid = self.grids[self.baseline][0]
        cells = grid.where(attn=model_name(grid), metric=self.metric, **cell).frame
        return int(cells["count"].iloc[0])

    def reference(self, name: str, cell: Labels) -> float:
        """The metric of a reference predictor, which is the same in every run."""
        return self._mean(self.baseline, 0, name, cell)

    def rescaled_name(self, part: str) -> str:
        """The name of the line of the baseline's tests with that part of prompts rescaled."""
        return f"{self.baseline}, {part} rescaled"

    def rescaled_at(self, part: str, cell: Labels) -> tuple[float, float]:
        """The metric of these tests in a cell, and its standard error over prompts."""
        rows = self.rescaled[part].where(metric=self.metric, **cell).frame
        error = float((rows["stderr"] ** 2).sum(skipna=False)) ** 0.5 / len(rows)
        return float(rows["value"].mean(skipna=False)), error

    def behind(self, line: Sequence[Labels]) -> dict[str, list[float]]:
        """Background curves: references, and tests with rescaled prompts."""
        return {name: [self.reference(name, cell) for cell in line] for name in self.references()} | {
            self.rescaled_name(part): [self.rescaled_at(part, cell)[0] for cell in line] for part in self.rescaled
        }

    def references(self) -> list[str]:
        """The names of the reference predictors, ``reference:`` in front."""
        return [name for name in self.grids[self.baseline][0].values("attn") if name.startswith("reference:")]

    @cached_property
    def averaged(self) -> dict[str, int]:
        """The facets over which a line is a mean, each with the number of its values."""
        return {facet: len({cell[facet] for cell in self.cells()}) for facet in self.task.facets}

    def line(self, *axes: str) -> list[Labels]:
        """The cells along one axis, or over several: facets left out, everything else as in training."""
        fixed = {a: v for a, v in self.training.items() if a not in (*axes, *self.task.facets)}
        left = [a for a in self.task.facets if a not in axes]
        found = [cell for cell in self.cells() if all(cell[a] == v for a, v in fixed.items())]
        lines = [{a: v for a, v in cell.items() if a not in left} for cell in found]
        return [cell for number, cell in enumerate(lines) if cell not in lines[:number]]

    def _mean(self, rule: str, number: int, name: str, cell: Labels) -> float:
        """Metric of a predictor in the grid of a seed of a normalizer, over the facets that a cell lacks."""
        values = self.grids[rule][number].by("attn", "metric", *cell).get((name, self.metric, *cell.values()), [])
        if len(values) != math.prod(n for facet, n in self.averaged.items() if facet not in cell):
            raise KeyError(f"{len(values)} cells of {name} have {cell}")
        return float(np.mean(values))

    @cached_property
    def _models(self) -> dict[str, list[str]]:
        return {rule: [model_name(grid) for grid in grids] for rule, grids in self.grids.items()}

    def map(self, rule: str) -> Map:
        """The mean over seeds in every cell of the task's two main axes, everything else as in training."""
        return {where: sum(self.values(rule, cell)) / self.seeds for where, cell in self._plane().items()}

    def lost(self, rule: str) -> set[tuple[float, float]]:
        """The cells of that map where a seed has answers that are not finite."""
        found = set[tuple[float, float]]()
        for grid in self.grids[rule]:
            found |= lost(grid, self.task, self.training)
        return found

    def versus(self, rule: str, other: str, cell: Labels) -> Effect:
        """Compare two normalizers in a cell: paired over seeds, widened by the variance over prompts where known."""
        values = self.values(other, cell), self.values(rule, cell)
        if not np.isfinite(values).all():
            return broken(*values, self.scale)
        return self._widened(paired(*values, self.scale), rule, other, [cell]).clipped(self.span)

    def overall(self, rule: str, other: str) -> Effect | None:
        """Compare two by the declared summary; None where the grid does not reach that far, or has gaps."""
        sums = self.summary(other), self.summary(rule)
        if not np.isfinite(sums).all():
            return None
        found = self._widened(paired(*sums, "difference"), rule, other, self.line(self.task.summary.axis))
        return found.clipped(self.span)

    @property
    def others(self) -> list[str]:
        """The normalizers that are compared with the baseline."""
        return [rule for rule in self.grids if rule != self.baseline]

    @cached_property
    def family(self) -> Family:
        """Every normalizer against the baseline in every cell that a table, a map or a file of the comparison shows."""
        cells = self.cells()
        means = [*self.line(self.task.line_axis), *self._plane().values()]  # over a facet, where the task has one
        cells += [cell for number, cell in enumerate(means) if cell not in cells and cell not in means[:number]]
        return Family.of((rule, cell, self.versus(rule, self.baseline, cell)) for rule in self.others for cell in cells)

    @cached_property
    def overalls(self) -> Family:
        """Every normalizer against the baseline by the declared summary, whose cell is empty.

        A separate family: the summary was declared before anything was trained, so that it is one question per
        normalizer, however many cells are compared.
        """
        return Family.of((rule, {}, self.overall(rule, self.baseline)) for rule in self.others)

    @cached_property
    def home(self) -> Labels | None:
        """The cell of training conditions, over facets the mean; None where it was not tested."""
        cell = self.task.pinned(self.training)
        return cell if any(cell.items() <= known.items() for known in self.cells()) else None

    @cached_property
    def homes(self) -> Family:
        """Every normalizer against the baseline in training conditions: declared too, and a separate family."""
        found = [(rule, self.home) for rule in self.others if self.home is not None]
        return Family.of((rule, cell, self.versus(rule, self.baseline, cell)) for rule, cell in found)

    def family_of(self, cell: Labels) -> Family:
        """The family over which p in a cell is corrected; the cell of the declared summary is empty."""
        return self.overalls if not cell else self.homes if cell == self.home else self.family

    def effects(self, rule: str) -> dict[tuple[float, float], tuple[float, bool]]:
        """The effect against the baseline in every cell of the two main axes, and whether it is marked: p corrected.

        A log ratio is given in powers of two, a difference as it is.
        """
        unit = math.log(2) if self.scale == "log-ratio" else 1.0
        return {
            where: (self.family.effects[place(rule, cell)].effect / unit, self.family_of(cell).marked(rule, cell))
            for where, cell in self._plane().items()
        }

    def _widened(self, found: Effect, rule: str, other: str, cells: Sequence[Labels]) -> Effect:
        """Add the variance over test prompts, for one cell or for the summary of a line of cells."""
        # Intervals that include the prompts for some normalizers and not for others could not be compared.
        if not self.errors or not all(errors.keeps(cells) for each in self.errors.values() for errors in each):
            return found
        # Normalizers that were tested on the same prompts share each resample; on another number of prompts they
        # cannot.
        theirs, ours = (
            resampled([[errors.at(cell).numpy() for errors in self.errors[name]] for cell in cells], seed=0)
            for name in (other, rule)
        )  # each (resamples, cells, seeds)
        if self.scale == "log-ratio":
            theirs, ours = np.log(theirs), np.log(ours)
        axis = self.task.summary.axis
        weights = self._weights([cell[axis] for cell in cells]) if len(cells) > 1 else np.ones(1)
        effects = np.einsum("rcs,c->rs", ours - theirs, weights).mean(axis=1)
        return found.widened(evaluation(effects, found.scale))

    def _weights(self, where: Sequence[float]) -> np.ndarray:
        """Weight of each cell of the line in the declared summary, which is linear in (log) errors."""
        return np.array([self._over(where, unit) for unit in np.eye(len(where))])

    def _over(self, where: Sequence[float], heights: Array) -> float:
        """The declared mean of (log) errors at places along its axis."""
        declared = self.task.summary
        if declared.kind == "range":
            return mean_height(where, heights, declared.low, declared.high)
        if declared.kind == "beyond":
            return mean_beyond(where, heights, self.training[declared.axis])
        return float(np.mean(heights))

    @cached_property
    def summarised(self) -> bool:
        """True if the test grid has what the declared summary needs; where it has not, every summary is NaN."""
        declared = self.task.summary
        where = [cell[declared.axis] for cell in self.line(declared.axis)]
        if declared.kind == "range":
            return {declared.low, declared.high} <= set(where)
        return declared.kind == "mean" or max(where) > self.training[declared.axis]

    def _plane(self) -> dict[tuple[float, float], Labels]:
        down, across = self.task.heat_map
        return {(cell[down], cell[across]): cell for cell in self.line(down, across)}

    def summary(self, rule: str) -> list[float]:
        """The one number of each run that the task declares (``Task.summary``), one per seed.

        The other axes are as in training. NaN where the test grid does not reach that far; infinite where an error that
        counts in it is.
        """
        if not self.summarised:
            return [math.nan] * self.seeds
        axis = self.task.summary.axis
        line = self.line(axis)
        columns = np.array([self.values(rule, cell) for cell in line]).T
        where = [cell[axis] for cell in line]
        if self.task.log_scale:
            require(bool((columns > 0).all()), f"{self.metric} must be above 0 to have a logarithm", columns.min())
        heights = np.log(columns) if self.task.log_scale else columns
        return [self._over(where, column) if np.isfinite(column).all() else math.inf for column in heights]


def broken(a: Sequence[float], b: Sequence[float], scale: Scale) -> Effect:
    """Return the effect in a cell with an error that is not finite: infinite, against the side that has more of them.

    It has neither interval nor p, so that it is never clear; NaN where both sides have as many.
    """
    lost = [sum(not math.isfinite(value) for value in side) for side in (a, b)]
    effect = math.nan if lost[0] == lost[1] else math.copysign(math.inf, lost[1] - lost[0])
    wins = sum((x > y) + (x == y) / 2 for x, y in zip(a, b, strict=True)) / len(a)
    return Effect(
        scale=scale,
        seeds=len(a),
        effect=effect,
        low=math.nan,
        high=math.nan,
        middle=math.nan,
        wins=wins,
        p_t=math.nan,
        p_flip=math.nan,
        notes=(NOT_FINITE,),
    )


def compare(study: PairedGrids) -> list[dict[str, Any]]:
    """Compare every normalizer with the baseline in every cell, and by the declared summary.

    Returns one row per normalizer and cell, and one per normalizer with an empty cell for the summary. ``p_t`` and
    ``p_flip`` are those of the seeds alone, ``p_widened`` belongs to ``low`` and ``high``; ``p_holm`` is ``p_widened``
    corrected over the ``family`` comparisons of all normalizers in all cells, or of all normalizers by their summary or
    in training conditions.
    """
    rows = []
    for rule in study.others:
        rows += [_row(study, rule, cell, study.metric, study.family_of(cell)) for cell in study.cells()]
        if study.overalls.effect(rule, {}) is not None:
            rows.append(_row(study, rule, {}, "summary", study.overalls))
    return rows


def tidy(study: PairedGrids, rows: Sequence[Mapping[str, Any]]) -> str:
    """Return the rows of ``compare`` as CSV."""
    axes = list(study.cells()[0])
    columns = ["attn", "baseline", *axes, *(name for name in rows[0] if name not in ("attn", "baseline", *axes))]
    return csv_text(columns, rows)


def _row(study: PairedGrids, rule: str, cell: Labels, metric: str, family: Family) -> dict[str, Any]:
    c = family.effects[place(rule, cell)]
    return {
        "attn": rule,
        "baseline": study.baseline,
        **cell,
        "metric": metric,
        "scale": c.scale,
        "seeds": c.seeds,
        "effect": c.effect,
        "low": c.low,
        "high": c.high,
        "iqm": c.middle,
        "wins": c.wins,
        "p_t": c.p_t,
        "p_holm": family.corrected(rule, cell),
        "p_flip": c.p_flip,
        "p_widened": c.p,
        "family": family.size,
    }


def _cells(grid: Grid, metric: str) -> list[Labels]:
    own = grid.where(attn=model_name(grid), metric=metric)
    return [{axis: float(row[axis]) for axis in grid.axes} for row in own.frame.to_dict("records")]
