"""Cells whose single-prompt errors claims read: what the evidence keeps of the errors of a run."""

from collections.abc import Iterable, Mapping
from pathlib import Path

from icl_lab import tasks
from icl_lab.errors import BadValue
from icl_lab.papers import experiment as experiments
from icl_lab.papers.cells import combinations
from icl_lab.papers.schema import PRINTED, PROMPTED, Claim, Experiment, Quantity
from icl_lab.runs import summary
from icl_lab.runs.spec import RunSpec
from icl_lab.tasks.base import Task

Cells = list[dict[str, float]]
Claimed = Mapping[tuple[str, str], Cells]  # hash of a specification, the rule put in for its test -> labels of cells


def cells_of(claim: Claim, side: Quantity, spec: RunSpec, task: Task, fixed: Mapping[str, float]) -> Cells | None:
    """Labels of the cells of a side whose single prompts an interval needs; None where these are not kept or told.

    ``spec`` is that of the left side, whose training conditions fill in the axes that the claim leaves out. Errors of
    single prompts are kept of the headline only.
    """
    if claim.metric not in ("", task.headline) or side.of.startswith(PRINTED):
        return None
    return combinations(side.cells, task.pinned({**summary.training_cell(task, spec), **fixed}))


def claimed(files: Path, presets: Iterable[str]) -> Claimed:
    """Returns, for each variant of the experiments of a folder at these presets, the cells that claims read."""
    found = dict[tuple[str, str], Cells]()
    for preset in presets:
        for name in experiments.names(files):
            _collect(experiments.load(name, files), preset, found)
    return found


def _collect(experiment: Experiment, preset: str, found: dict[tuple[str, str], Cells]) -> None:
    if experiment.question() is not None:
        return
    task = tasks.build(experiment.task)
    for claim in experiment.claims:
        first = experiment.variant(claim.left.of.removeprefix(PRINTED)) or experiment.variant(experiment.baseline)
        for side in (claim.left, claim.right):
            variant = experiment.variant(side.of)
            if first is None or variant is None or side.of.startswith(PROMPTED):
                continue
            try:
                spec, left = (experiment.spec(each, preset) for each in (variant, first))
            except BadValue:  # a variant that does not fit the preset
                continue
            cells = cells_of(claim, side, left, task, {})
            found.setdefault((spec.hash, variant.tested_with), []).extend(cells or [])
