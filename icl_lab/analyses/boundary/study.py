"""Boundary values of trained models: from runs to curves and detected bounds, over slopes, contexts and seeds."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import median
from typing import Any

import numpy as np

from icl_lab import tasks
from icl_lab.analyses.boundary import clip, detector
from icl_lab.analyses.boundary.extrapolation import EXAMPLES, Line, extrapolate, truths
from icl_lab.comparison.statistics import Effect, paired
from icl_lab.errors import BadValue, Stopped
from icl_lab.grid import Grid
from icl_lab.registry import require
from icl_lab.runs.measure import Subject
from icl_lab.runs.session import Lab
from icl_lab.runs.spec import RunSpec
from icl_lab.runs.store import Run
from icl_lab.sweep import load_or_train, subject
from icl_lab.tasks.linear import Linear

REACH = 40.0  # the usual range of true values, for training y of root mean square 1.41
LEAST = 6  # a range must be at least so many root mean squares
SIDES = (-1, 1)
AXES = ["slope", "intercept", "scale"]


@dataclass(frozen=True)
class Boundaries:
    """Grids of finished runs and references: curves (axes: slope, intercept, scale, target) and what was detected.

    ``found`` has a side of each curve (-1, 1) as its last axis; its metrics are the fields of
    ``analyses.boundary.Boundary``, intervals as ``-low`` and ``-high``, the class as its place in ``CLASSES``, and
    ``far``, the median answer at the farthest query.
    """

    curves: Grid
    found: Grid

    @property
    def rules(self) -> list[str]:
        """The rules, in the order that they were asked for."""
        return [name for name in self.found.values("attn") if not name.startswith("reference:")]

    @property
    def references(self) -> list[str]:
        """The reference predictors."""
        return [name for name in self.found.values("attn") if name.startswith("reference:")]

    @property
    def lines(self) -> list[Line]:
        """The functions and contexts, in the order that they were asked for."""
        rows = self.found.frame[AXES].drop_duplicates().itertuples(index=False)
        return [Line(*map(float, row)) for row in rows]

    @property
    def plain(self) -> list[Line]:
        """Those with contexts nearest to training."""
        nearest = min((line.scale for line in self.lines), key=lambda scale: abs(math.log(scale)))
        return [line for line in self.lines if line.scale == nearest]

    def seeds(self, rule: str) -> list[int]:
        """The training seeds of a rule."""
        return list(self.found.where(attn=rule).values("seed"))

    def values(self, rule: str, line: Line, side: int, metric: str) -> list[float]:
        """A metric of one side of a curve, one number a seed."""
        return self._table.get((rule, line.slope, line.intercept, line.scale, float(side), metric), [])

    @cached_property
    def _table(self) -> dict[tuple[Any, ...], list[float]]:
        parts = self.found.frame.groupby(["attn", *AXES, "side", "metric"], sort=False)["value"]
        return {tuple(where): [float(value) for value in part] for where, part in parts}

    def kinds(self, rule: str, line: Line, side: int) -> list[str]:
        """The class of one side of a curve, one a seed."""
        return [detector.CLASSES[int(code)] for code in self.values(rule, line, side, "class")]

    def over_seeds(self, rule: str, line: Line, side: int, metric: str) -> Effect | None:
        """The mean of a metric over training seeds with Student's interval; None unless every seed has it."""
        values = self.values(rule, line, side, metric)
        return None if any(map(math.isnan, values)) else paired([0.0] * len(values), values, "difference")

    def typical(self, rule: str, place: int, metric: str = "bound") -> float:
        """The median of a bound over slopes and both sides, in plain contexts, of the seed at a place; NaN: none."""
        values = [self.values(rule, line, side, metric)[place] for line in self.plain for side in SIDES]
        known = [value for value in values if not math.isnan(value)]
        return median(known) if known else math.nan

    def growth(self, rule: str) -> list[tuple[float, float, int]]:
        """For each seed: the exponents of B in the slope and in the scale of the context, and the bounds behind them.

        Formula: log B = alpha log |a| + gamma log scale + a constant for each side, by least squares, over the curves
        that have a B. Alpha is 0 where the output is bounded, 1 where the input or the slope is; gamma is 1 where the
        bound follows the examples (as the nearest neighbour's does).
        NaN where fewer than two slopes, or scales, have a B.
        """
        frame = self.found.where(attn=rule, metric="bound", intercept=self.lines[0].intercept).frame
        made = []
        for seed in self.seeds(rule):
            own = frame[(frame["seed"] == seed) & (frame["value"] > 0)]
            x, c = np.log(own["slope"].abs().to_numpy(float)), np.log(own["scale"].to_numpy(float))
            side = own["side"].to_numpy(float)
            columns = [column for column in (x, c) if len(column) and np.ptp(column) > 0]
            inputs = np.stack([*columns, side == 1, side == -1], axis=1).astype(float) if len(own) else np.empty((0, 2))
            fitted = iter(np.linalg.lstsq(inputs, np.log(own["value"].to_numpy(float)), rcond=None)[0])
            alpha, gamma = (float(next(fitted)) if len(v) and np.ptp(v) > 0 else math.nan for v in (x, c))
            made.append((alpha, gamma, len(own)))
        return made


def check(groups: Mapping[str, Sequence[Run]], reach: float | None, contexts: int) -> None:
    """Raises ``BadValue`` where there is no line to follow, two runs are alike, or a curve would be short or thin."""
    require(contexts >= detector.FEWEST, f"a curve needs at least {detector.FEWEST} contexts", contexts)
    seen: dict[tuple[str, int], Run] = {}
    for name, run in [(name, run) for name, seeds in groups.items() for run in seeds]:
        _linear(run.spec)
        other = seen.setdefault((name, run.seed), run)
        if other is not run:
            raise BadValue(f"{name}, seed {run.seed}, is there twice: {other.folder} and {run.folder}.")
        least = LEAST * spread(run.spec)
        if reach is not None:
            bound = f"the range must be finite and at least {LEAST} times the spread of training y, {least:.3g}"
            require(least <= reach < math.inf, bound, f"{reach:g}")


def _linear(spec: RunSpec) -> Linear:
    task = tasks.build(spec.task)
    if not isinstance(task, Linear):
        raise BadValue(f"boundary values are those of lines: they are looked for in the task linear, got {spec.task}.")
    return task


def spread(spec: RunSpec) -> float:
    """The root mean square of y in training, sigma_f sqrt(1 + sigma_x^2): 1.41 unless training is wider."""
    sigma = {**tasks.build(spec.task).training, **spec.train.shift}
    return sigma["sigma_f"] * math.sqrt(1 + sigma["sigma_x"] ** 2)


def follow(
    groups: Mapping[str, Sequence[Run]], lab: Lab, lines: Sequence[Line], contexts: int, reach: float | None = None
) -> Boundaries:
    """Asks the models of each name, and the references, for values ever farther out, in contexts that all share."""
    runs = [(name, run) for name, seeds in groups.items() for run in seeds]
    check(groups, reach, contexts)
    end = reach or REACH * max(spread(run.spec) for _, run in runs) / math.sqrt(2)
    truth = truths(end)
    curves: list[dict[str, Any]] = []
    found: list[dict[str, Any]] = []
    done = 0
    for number, (name, run) in enumerate(runs):
        task, spec = _linear(run.spec), run.spec
        model = load_or_train(run, lab)
        subjects = {name: subject(model, task, lab.device)}
        if number == 0:  # the references are the same beside every model
            subjects |= {f"reference:{other}": Subject(rule) for other, rule in task.references().items()}
        examples = min(EXAMPLES, spec.train.longest - 1)
        for who, asked in subjects.items():
            common = {"task": spec.task, "attn": who, "preset": spec.preset, "spec": spec.hash, "seed": run.seed}
            for line in lines:
                answers = extrapolate(asked, task, line, truth, contexts, examples)
                where = {**common, **{axis: getattr(line, axis) for axis in AXES}, "count": contexts}
                if not who.startswith("reference:"):
                    curves += _curve(where, truth, answers)
                found += _found(where, truth, answers, end)
                if lab.stopping():
                    raise Stopped("stopped; nothing was written, and the same command begins anew.")
            done += 1
            lab.tick("boundary", done, len(runs) + len(task.references()), who)
    return Boundaries(Grid.of(curves, [*AXES, "target"]), Grid.of(found, [*AXES, "side"]))


def sweeps(found: Boundaries, groups: Mapping[str, Sequence[Run]]) -> list[tuple[clip.Sweep, float, float]]:
    """Sets the stored sweep of every finished run beside what its own B, and its clip B, predict."""
    made = []
    for rule, runs in groups.items():
        for place, run in enumerate(runs):
            bounds = found.typical(rule, place), found.typical(rule, place, "clip")
            sweep = clip.sweep_of(rule, run, bounds) if run.finished else None
            if sweep is not None:
                made.append((sweep, *bounds))
    return made


def _curve(where: dict[str, Any], truth: np.ndarray, answers: np.ndarray) -> list[dict[str, Any]]:
    """The median answer at every true value, its standard error that of a median of normal numbers."""
    middle, error = np.median(answers, axis=0), math.sqrt(math.pi / 2 / len(answers)) * answers.std(axis=0, ddof=1)
    return [
        {
            **where,
            "target": float(f"{t:.6g}"),
            "metric": "answer",
            "value": float(f"{p:.5g}"),
            "stderr": float(f"{e:.2g}"),
        }
        for t, p, e in zip(truth, middle, error, strict=True)
    ]


def _found(where: dict[str, Any], truth: np.ndarray, answers: np.ndarray, end: float) -> list[dict[str, Any]]:
    """What is detected on either side, one row a metric."""
    rows = []
    for side, (t, curves) in detector.sides(truth, answers).items():
        near = t <= end * (1 + 1e-9)
        each = detector.detect(t[near], curves[:, near])
        numbers = {"class": float(detector.CLASSES.index(each.kind)), "agreement": each.agreement}
        for name in ("onset", "bound", "clip"):
            interval: detector.Interval = getattr(each, name)
            numbers |= {name: interval.value, f"{name}-low": interval.low, f"{name}-high": interval.high}
        numbers |= {name: getattr(each, name) for name in ("tail", "previous", "peak", "exponent", "reach")}
        numbers["far"] = float(np.median(curves[:, -1]))
        rows += [
            {**where, "side": side, "metric": metric, "value": float(f"{value:.6g}"), "stderr": None}
            for metric, value in numbers.items()
        ]
    return rows
