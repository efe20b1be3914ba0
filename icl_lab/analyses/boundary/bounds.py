"""Numbers of all models: the boundary values B of their curves, the clip sweep that B predicts, and the bound C.

C is set by the final norm and the read-out; the largest answers and the errors that C leaves are kept with it.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import fmean
from typing import Any

import numpy as np
import torch

from icl_lab import tasks
from icl_lab.analyses.boundary.curves import CLASSES, Line
from icl_lab.analyses.findings import Findings, Row, StoredGrids, TrainedModel, cell, known, known_median
from icl_lab.base.grid import Grid, model_name
from icl_lab.base.rng import stream
from icl_lab.comparison.clip import ClipFit, clip_errors, clip_fit, scored_targets
from icl_lab.comparison.statistics import Effect, paired
from icl_lab.comparison.study import Labels
from icl_lab.model.gpt2 import GPT2
from icl_lab.runs.floor import exact_within_bound
from icl_lab.runs.measure import TEST_SEED
from icl_lab.runs.run import Run
from icl_lab.runs.spec import RunSpec
from icl_lab.runs.summary import training_cell
from icl_lab.tasks.base import Prompt, Task
from icl_lab.tasks.capabilities import HasLines, Rescalable
from icl_lab.training.loop import drawn

SIDES = (-1, 1)
AXES = ("slope", "intercept", "scale")
Model = Mapping[str, Mapping[float, float]]  # metric of ``answer_bounds`` -> spread of functions -> value
GRID = "answers"
REACHED = "reached"  # the metric of claims that is a share; the others are compared as ratios
CLAIMED = {  # metrics of claims: one of ``answer_bounds`` at the spread SHOWN, and what it is divided by
    "answer-bound": ("bound", ""),
    REACHED: ("largest", "bound"),
    "bound-over-rms": ("bound", "label-rms"),
    "bound-over-largest": ("bound", "largest-label"),
    "bound-over-possible": ("bound", "largest-possible"),
    "labels-beyond": ("labels-beyond", ""),
}
SPREADS = (1.0, 2.0, 3.0, 5.0, 7.0, 10.0, 30.0, 100.0, 1000.0)  # of functions, in multiples of training's
PROMPTS, EXAMPLES = 512, 40
SHOWN = 10.0  # the spread whose shares the table names


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
        """Return the root mean square of log(predicted / measured) over the far cells; NaN where B is unknown."""
        if math.isnan(bound):
            return math.nan
        logs = [
            math.log(p / m)
            for s, p, m in zip(self.sigmas, self.predicted[bound], self.measured, strict=True)
            if s >= self.start and p > 0
        ]
        return math.sqrt(sum(each**2 for each in logs) / len(logs)) if logs else math.nan


def sweep_cells(run: Run) -> list[Row]:
    """Return the cells of a run's stored grid that its sweep goes through, as rows; none where no cell is far."""
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
    """Return the errors that bounds predict with those of ``sweep_cells`` of a seed; None without such cells.

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
    fixed = {name: value for name, value in training_cell(tasks.build(spec.task), spec).items() if name != axis}
    try:
        there = grid.where(attn=model_name(grid), **fixed)
    except KeyError:  # the test grid leaves the training condition out
        return []
    return [{**fixed, axis: float(sigma)} for sigma in sorted(there.values(axis))]


@dataclass(frozen=True)
class Bounds(Findings):
    """The grids ``boundary`` (axes: slope, intercept, scale, side) and ``curves`` (target in the place of the side).

    ``measured`` holds cells of the runs' own tests.
    """

    @cached_property
    def sweeps(self) -> list[tuple[Sweep, float, float]]:
        """The clip sweep of each run with the predictions of its B and clip B, and these two.

        A run that was asked before its test was kept with the answers has none: its grid may be another training's now.
        """
        sweeps = []
        for rule in self.rules if "measured" in self.grids else ():
            for place, seed in enumerate(self.seeds_of(rule)):
                pair = self.typical(rule, place), self.typical(rule, place, "clip")
                if sweep := sweep_of(rule, seed, self.specs[rule], self["measured"], pair):
                    sweeps.append((sweep, *pair))
        return sweeps

    @property
    def lines(self) -> list[Line]:
        """The functions and contexts, in the order that they were asked for."""
        rows = self.first.frame[list(AXES)].drop_duplicates().itertuples(index=False)
        return [Line(*map(float, row)) for row in rows]

    @property
    def plain(self) -> list[Line]:
        """Rows with contexts nearest to training."""
        nearest = min((line.scale for line in self.lines), key=lambda scale: abs(math.log(scale)))
        return [line for line in self.lines if line.scale == nearest]

    @property
    def reach(self) -> float:
        """The end of the range of true values."""
        return float(self.first.where(metric="reach").frame["value"].iloc[0])

    @property
    def contexts(self) -> int:
        """The contexts behind each curve."""
        return int(self.first.frame["count"].iloc[0])

    def values(self, rule: str, line: Line, side: int, metric: str) -> list[float]:
        """Return a metric of one side of a curve, one number a seed."""
        return self._table.get((rule, line.slope, line.intercept, line.scale, float(side), metric), [])

    @cached_property
    def _table(self) -> dict[tuple[object, ...], list[float]]:
        parts = self.first.frame.groupby(["attn", *AXES, "side", "metric"], sort=False)["value"]
        return {tuple(where): [float(value) for value in part] for where, part in parts}

    def kinds(self, rule: str, line: Line, side: int) -> list[str]:
        """Return the class of one side of a curve, one a seed."""
        return [CLASSES[int(code)] for code in self.values(rule, line, side, "class")]

    def typical(self, rule: str, place: int, metric: str = "bound") -> float:
        """Return the median of a bound over slopes and both sides, in plain contexts, of the seed at a place.

        NaN where no curve of that seed has one.
        """
        return known_median(self.values(rule, line, side, metric)[place] for line in self.plain for side in SIDES)

    def both(self, rule: str, slope: float, scale: float) -> list[float]:
        """Return the bound of each seed, the mean of both sides; of the one that has a bound, where one has none."""
        line = Line(slope, self.lines[0].intercept, scale)
        pairs = zip(*(self.values(rule, line, side, "bound") for side in SIDES), strict=True)
        return [fmean(known(pair) or [math.nan]) for pair in pairs]

    def growth(self, rule: str) -> list[tuple[float, float, int]]:
        """Return, for each seed, the exponents of B in the slope and in the scale of the context, and how many B.

        Formula: log B = alpha log |a| + gamma log scale + a constant for each side, by least squares, over the curves
        that have a B. Alpha is 0 where the output is bounded, 1 where the input or the slope is; gamma is 1 where the
        bound follows the examples (as the nearest neighbour's does).
        NaN where fewer than two slopes, or scales, have a B.
        """
        frame = self.first.where(attn=rule, metric="bound", intercept=self.lines[0].intercept).frame
        made = []
        for seed in self.seeds_of(rule):
            own = frame[(frame["seed"] == seed) & (frame["value"] > 0)]
            x, c = np.log(own["slope"].abs().to_numpy(float)), np.log(own["scale"].to_numpy(float))
            side = own["side"].to_numpy(float)
            columns = [column for column in (x, c) if len(column) and np.ptp(column) > 0]
            inputs = np.stack([*columns, side == 1, side == -1], axis=1).astype(float) if len(own) else np.empty((0, 2))
            fitted = iter(np.linalg.lstsq(inputs, np.log(own["value"].to_numpy(float)), rcond=None)[0])
            alpha, gamma = (float(next(fitted)) if len(v) and np.ptp(v) > 0 else math.nan for v in (x, c))
            made.append((alpha, gamma, len(own)))
        return made


def mean(values: Sequence[float]) -> Effect | None:
    """Return the mean over training seeds with Student's interval; None unless every seed has a number."""
    there = values and not any(map(math.isnan, values))
    return paired([0.0] * len(values), values, "difference") if there else None


@torch.no_grad()
def answer_bounds(trained: TrainedModel) -> list[Row]:
    """Rows of the grid: the bound, the largest distance of an answer from its centre, and errors at each spread.

    Metrics: ``bound`` C, ``largest`` max |answer - c| so far, ``error`` of the model, ``floor`` of the exact answers
    clipped to the bound, ``rescaled`` of the model with labels rescaled, and the labels of its training
    (``training_labels``). No rows without a finite bound, and none where prompts are rescaled already.
    """
    model, task = trained.model, trained.task
    centre, bound = (float(value[0]) for value in model.answer_bound())
    if model.rescaling is not None or not task.numeric or bound == float("inf"):
        return []
    rows, largest = list[Row](), 0.0
    labels = training_labels(trained.run.spec, trained.run.seed, bound)
    for spread in SPREADS:
        shift = {task.summary.axis: spread * task.training[task.summary.axis]}
        prompt = task.sample(stream(TEST_SEED, "bound"), PROMPTS, EXAMPLES, **shift)
        answers = _answers(model, task, prompt)
        largest = max(largest, float((answers - centre).abs().max()))
        numbers = {"bound": bound, "largest": largest, "error": _error(task, answers, prompt)}
        nearest = exact_within_bound(model, task)
        if nearest is not None:
            numbers["floor"] = _error(task, nearest(prompt), prompt)
        if isinstance(task, Rescalable) and "labels" in task.rescales:
            model.rescaling = task.rescaling("labels")
            numbers["rescaled"] = _error(task, _answers(model, task, prompt), prompt)
            model.rescaling = None
        if spread == SHOWN:  # one number a model, at the spread whose numbers claims read
            numbers |= labels
        where = {"attn": trained.label, "spread": spread}
        rows += [cell(metric, float(f"{value:.6g}"), PROMPTS, **where) for metric, value in numbers.items()]
    return rows


def training_labels(spec: RunSpec, seed: int, bound: float) -> dict[str, float]:
    """Numbers of the labels that a run was trained on, whose prompts are drawn again from its seed.

    ``labels``: how many there are; ``largest-label``: the largest in size; ``label-rms``: their root mean square under
    the training law; ``labels-beyond``: expected number beyond ``bound`` (``labels`` times ``share_beyond``);
    ``largest-possible``: the least upper bound of the law, left out where it is infinite. Empty without lines.
    """
    task = tasks.build(spec.task)
    if not isinstance(task, HasLines):
        return {}
    count, largest = 0, 0.0
    for step in range(spec.train.steps):
        asked = drawn(task, spec.train, seed, step).targets[:, task.answers]
        count, largest = count + asked.numel(), max(largest, float(asked.abs().max()))
    shift, limit = spec.train.shift, task.largest_label(**spec.train.shift)
    found = {"labels": float(count), "largest-label": largest, "label-rms": task.label_rms(**shift)}
    found["labels-beyond"] = count * task.share_beyond(bound, **shift)
    return found | ({"largest-possible": limit} if math.isfinite(limit) else {})


def _answers(model: GPT2, task: Task, prompt: Prompt) -> torch.Tensor:
    device = model.read_in.weight.device
    return torch.cat([model(piece.tokens.to(device)).cpu() for piece in prompt.pieces(128)])


def _error(task: Task, outputs: torch.Tensor, prompt: Prompt) -> float:
    return float(task.views(task.errors(outputs, prompt), prompt)[task.headline].mean())


def kept(found: StoredGrids) -> dict[str, dict[int, Model]]:
    """Label -> seed -> metric -> spread -> value; empty of a model without a bound, or of which nothing is kept."""
    made: dict[Any, Any] = {label: {seed: {} for seed in found.seeds_of(label)} for label in found.rules}
    grid = found.grids.get(GRID)
    for (label, seed, metric, spread), (value,) in grid.by("attn", "seed", "metric", "spread").items() if grid else ():
        made[label][seed].setdefault(metric, {})[spread] = value
    return made


def bounded(found: StoredGrids) -> dict[str, list[Model]]:
    """The numbers of each model that has a bound, by label, one a seed: what the picture draws."""
    made = {label: [numbers for numbers in seeds.values() if numbers] for label, seeds in kept(found).items()}
    return {label: numbers for label, numbers in made.items() if numbers}


def bound_and_largest(model: Model) -> tuple[float, float]:
    """C of a model, and its largest answer B."""
    return model["bound"][SHOWN], max(model["largest"].values())


def claimed(rows: Grid, metric: str) -> float:
    """Number of a claim, of a metric in ``CLAIMED``, from the rows of a model; a logarithm but for ``reached``.

    Raises ``KeyError`` where it is not kept, and where it has no logarithm.
    """
    values = {name: value for (name, spread), (value,) in rows.by("metric", "spread").items() if spread == SHOWN}
    values["largest"] = max(rows.by("metric").get(("largest",), [math.nan]))
    over, under = CLAIMED[metric]
    if missing := {over, under} - {*values, ""}:
        raise KeyError(f"'{metric}' needs {missing.pop()}, which is not kept")
    number = values[over] / values.get(under, 1.0)
    if metric == REACHED:
        return number
    if number <= 0:
        raise KeyError(f"'{metric}' is {number:g}, of which there is no ratio")
    return math.log(number)
