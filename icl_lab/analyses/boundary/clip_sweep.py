"""The clip sweep: the errors that a boundary value alone predicts over a shift of the labels, beside those measured."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from icl_lab import markdown as md
from icl_lab import tasks
from icl_lab.analyses.findings import Row, known
from icl_lab.comparison.clip import ClipFit, clip_errors, clip_fit, scored_targets
from icl_lab.comparison.study import Labels
from icl_lab.figures.base import short
from icl_lab.grid import Grid, model_name
from icl_lab.runs import summary
from icl_lab.runs.run import Run
from icl_lab.runs.spec import RunSpec


@dataclass(frozen=True)
class Sweep:
    """One run along an axis, everything else as in training: measured errors, and those of right answers cut at +-B."""

    rule: str
    seed: int
    axis: str
    start: float  # values of the axis from here on are judged: nearer, the error is that of learning, not of a bound
    sigmas: tuple[float, ...]  # the values of the axis
    measured: tuple[float, ...]
    predicted: Mapping[float, tuple[float, ...]]  # B -> errors
    zero: tuple[float, ...]  # errors of answering 0
    best: ClipFit | None  # the B that fits the far cells best; None where there are fewer than two

    def residual(self, bound: float) -> float:
        """Returns the root mean square of log(predicted / measured) over the far cells; NaN where B is unknown."""
        if math.isnan(bound):
            return math.nan
        logs = [
            math.log(p / m)
            for s, p, m in zip(self.sigmas, self.predicted[bound], self.measured, strict=True)
            if s >= self.start and p > 0
        ]
        return math.sqrt(sum(each**2 for each in logs) / len(logs)) if logs else math.nan


def measured(run: Run) -> list[Row]:
    """Returns the cells of a run's stored grid that its sweep goes through, as rows; none where no cell is far."""
    spec, grid, task = run.spec, run.grid(), tasks.build(run.spec.task)
    if task.clip is None:
        return []
    cells = _line(spec, grid, task.clip.axis)
    if not any(cell[task.clip.axis] >= task.clip.start for cell in cells):
        return []
    own = grid.where(attn=model_name(grid), metric=task.headline)
    kept = ("metric", "value", "stderr", "count")
    return [{**cell, **{name: row[name] for name in kept}} for cell in cells for row in own.where(**cell).rows()]


def sweep_of(rule: str, seed: int, spec: RunSpec, found: Grid, bounds: Sequence[float]) -> Sweep | None:
    """Sets what bounds predict beside what ``measured`` found of a seed of a normalizer; None where that is nothing.

    Formula: mean (max(|y| - B, 0))^2 over the true y of each cell
    """
    task = tasks.build(spec.task)
    rows = Grid(found.frame[(found.frame["attn"] == rule) & (found.frame["seed"] == seed)]).rows()
    if task.clip is None or not rows:
        return None
    axis, start = task.clip.axis, task.clip.start
    cells = [{name: float(row[name]) for name in found.axes} for row in rows]
    errors = [float(row["value"]) for row in rows]
    targets = [scored_targets(task, spec.test, cell) for cell in cells]
    cuts = known(dict.fromkeys(bounds))
    table = clip_errors(targets, [0.0, *cuts])
    far = [place for place, cell in enumerate(cells) if cell[axis] >= start]
    fit = clip_fit([targets[i] for i in far], [errors[i] for i in far]) if len(far) > 1 else None
    zero, *predicted = [tuple(float(value) for value in column) for column in table.T]
    where = tuple(cell[axis] for cell in cells)
    cut = dict(zip(cuts, predicted, strict=True))
    return Sweep(rule, seed, axis, start, where, tuple(errors), cut, zero, fit)


def _line(spec: RunSpec, grid: Grid, axis: str) -> list[Labels]:
    fixed = {name: value for name, value in summary.training_cell(tasks.build(spec.task), spec).items() if name != axis}
    try:
        there = grid.where(attn=model_name(grid), **fixed)
    except KeyError:  # the test grid leaves the training condition out
        return []
    return [{**fixed, axis: float(sigma)} for sigma in sorted(there.values(axis))]


def table(sweeps: Sequence[tuple[Sweep, float, float]]) -> list[str]:
    """Returns a table: each run's B and clip B from its curves, and the B that fits its sweep, with residuals."""
    head = ["normalizer", "seed", "B of the curves", "residual", "clip B of the curves", "residual", "B of the sweep"]
    rows = md.head([*head, "residual"])
    for sweep, bound, clip in sweeps:
        best = sweep.best
        cells = [f"`{sweep.rule}`", str(sweep.seed), _cell(bound), _cell(sweep.residual(bound)), _cell(clip)]
        cells += [_cell(sweep.residual(clip)), _cell(best.bound if best else math.nan)]
        rows.append(md.row([*cells, _cell(best.residual if best else math.nan)]))
    return rows


def _cell(value: float) -> str:
    return "" if math.isnan(value) else short(value)
