"""The numbers that claims are about: read from the grids of finished runs, or from what an analysis found."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np

from icl_lab import normalizers, tasks
from icl_lab.analyses.frame import Analysis
from icl_lab.comparison.statistics import Array, Evaluation, Scale, evaluation, resampled
from icl_lab.errors import LabError
from icl_lab.grid import Grid, model_name
from icl_lab.papers.experiment import Claim, Experiment, Quantity, Variant, combinations
from icl_lab.runs import study_folder, summary
from icl_lab.runs.measure import Errors
from icl_lab.runs.store import Store
from icl_lab.tasks.base import Task

Read = Callable[[Quantity, str, int], float]  # a quantity, a metric (or ""), a seed -> the value, or its mean logarithm


@dataclass(frozen=True)
class Source:
    """Where the two sides of a claim are read: the training seeds that both have, their values, the luck of prompts.

    ``noise`` returns how far left - right, over the first so many seeds, hangs on the test prompts; None where errors
    of single prompts are not kept, as in what analyses found.
    """

    read: Read
    seeds: list[int]
    noise: Callable[[int], Evaluation | None] = lambda seeds: None


def scale(experiment: Experiment) -> Scale:
    """Ratios where the quantities of the experiment span decades, differences where they do not."""
    task, analysis = tasks.build(experiment.task), experiment.question()
    decades = task.log_scale if analysis is None else analysis.log_scale(task)
    return "log-ratio" if decades else "difference"


def rule(variant: Variant) -> str:
    """The rule that stands in the trained model when it is tested, by its one spelling; empty for its own."""
    return normalizers.canonical(variant.swap) if variant.swap else ""


def from_grids(experiment: Experiment, store: Store, preset: str, settings: Sequence[str], claim: Claim) -> Source:
    """Reads the two sides of a claim from the grids of finished runs; no seeds where nothing is there."""
    sides = (claim.left, claim.right)
    training: dict[str, float] = {}
    grids: dict[tuple[str, int], Grid] = {}
    errors: dict[tuple[str, int], Errors | None] = {}
    common: set[int] | None = None
    for side in sides:
        # A reference is the same in every run: it is read beside the baseline.
        variant = experiment.variant(side.of) or experiment.variant(experiment.baseline)
        if variant is None:
            raise LabError(f"'{side.of}' is no variant of this experiment.")
        spec = experiment.spec(variant, preset, settings)
        runs = [store.run(spec, seed, rule(variant)) for seed in store.seeds(spec)]
        there = {run.seed for run in runs if run.finished}
        common = there if common is None else common & there
        for run in runs:
            if run.finished:
                grids[side.of, run.seed], errors[side.of, run.seed] = run.measured()
        training = training or summary.training_cell(tasks.build(experiment.task), spec)
    task = tasks.build(experiment.task)

    def read(side: Quantity, metric: str, seed: int) -> float:
        grid = grids[side.of, seed]
        name = side.of if side.of.startswith("reference:") else model_name(grid)
        cells = combinations(side.cells, {axis: value for axis, value in training.items() if axis not in task.facets})
        found = [grid.where(attn=name, metric=metric or task.headline, **cell).frame["value"] for cell in cells]
        return _mean([value for values in found for value in values], task.log_scale)

    seeds = sorted(common or ())

    def noise(count: int) -> Evaluation | None:
        # Errors of single prompts are kept of the headline, and not of references.
        kept = [
            [errors.get((side.of, seed)) for seed in seeds[:count]] for side in sides if experiment.variant(side.of)
        ]
        known = [[each for each in of if each is not None] for of in kept]
        if claim.metric not in ("", task.headline) or [len(of) for of in known] != [count, count]:
            return None
        left, right = (_resampled(side, of, training, task) for side, of in zip(sides, known, strict=True))
        return evaluation(left - right, scale(experiment))

    return Source(read, seeds, noise)


def _resampled(side: Quantity, errors: Sequence[Errors], training: Mapping[str, float], task: Task) -> Array:
    """A side's value on resampled prompts, the mean over training seeds, (1 + resamples)."""
    cells = combinations(side.cells, {axis: value for axis, value in training.items() if axis not in task.facets})
    rows = np.stack([[kept.at(cell).numpy() for cell in cells] for kept in errors])
    means = resampled(rows, seed=0)
    return np.asarray((np.log(means) if task.log_scale else means).mean(axis=(1, 2)))


def from_analysis(analysis: Analysis, found: Any) -> Source:
    """Reads both sides of a claim from what an analysis found."""

    def read(side: Quantity, metric: str, seed: int) -> float:
        return analysis.value(found, side.of, side.cells, metric, seed)

    return Source(read, analysis.seeds(found))


def from_folder(analysis: Analysis, folder: Path) -> Source:
    """Reads both sides of a claim from the folder of an analysis; no seeds where nothing is there.

    Raises ``RunFailed`` where a file of the folder is damaged or was edited.
    """
    study_folder.verify(folder)
    found = analysis.read(folder) if folder.exists() else None
    return Source(lambda side, metric, seed: math.nan, []) if found is None else from_analysis(analysis, found)


def _mean(values: Sequence[float], decades: bool) -> float:
    return fmean(math.log(value) for value in values) if decades else fmean(values)
