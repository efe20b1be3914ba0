"""The baseline's models asked with rescaled prompts: an extra line in every comparison, to be beaten."""

from collections.abc import Sequence
from dataclasses import replace

import msgspec

from icl_lab import tasks
from icl_lab.base.grid import Grid, model_name
from icl_lab.runs.evidence.archive import ArchivedRun
from icl_lab.runs.run import Run
from icl_lab.tasks.capabilities import Rescalable

NOTE = (
    "{name}: the same models, asked with {part} divided by the size that they have in the prompt's own first examples "
    "(test.rescale={part}, docs/boundary.md), without training; ± is the standard error over prompts. What "
    "extrapolates has to beat it."
)


def runs_of(runs: Sequence[Run]) -> list[Run]:
    """Return the same trainings with the usual part of their prompts rescaled when tested, finished or not.

    None where the task has no part that can be rescaled, or prompts are rescaled already.
    """
    spec = runs[0].spec
    task = tasks.build(spec.task)
    if (
        not isinstance(task, Rescalable)
        or spec.test.rescale != "none"
        or spec.model.read_in == "scaled"
        or runs[0].swap
    ):
        return []
    test = msgspec.structs.replace(spec.test, rescale=task.rescales[0])
    if test.lengths[0] <= test.rescale_from:
        return []
    other = msgspec.structs.replace(spec, test=test)
    place = runs[0].folder.parent.parent / f"{other.preset}-{other.hash}"
    return [_elsewhere(replace(run, spec=other, folder=place / run.folder.name)) for run in runs]


def _elsewhere(run: Run) -> Run:
    """The same with the archive's copy of it, if any, instead of that of the plain run."""
    return replace(run, copy=replace(run.copy, key=run.key) if isinstance(run.copy, ArchivedRun) else None)


def tested(runs: Sequence[Run]) -> dict[str, Grid]:
    """Return the grid of the rescaled tests of these runs, the mean over seeds, by the part of prompts that was.

    Nothing unless all are finished.
    """
    others = runs_of(runs)
    if not others or not all(run.finished for run in others):
        return {}
    grids = [run.measured()[0] for run in others]
    own = [grid.where(attn=model_name(grid)).frame for grid in grids]
    frame = own[0].copy()
    for column in ("value", "stderr"):
        frame[column] = sum(each[column].to_numpy() for each in own) / len(own)
    return {others[0].spec.test.rescale: Grid(frame)}
