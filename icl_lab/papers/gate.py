"""Whether the models of a claim have learned their task: before anything far from training is judged."""

from collections.abc import Mapping, Sequence
from statistics import median

from icl_lab import tasks
from icl_lab.papers.experiment import Claim, Experiment, Quantity
from icl_lab.runs import summary
from icl_lab.runs.spec import RunSpec
from icl_lab.runs.store import Store
from icl_lab.tasks.base import Task

GATE = 0.25  # of the error of the best reference that reads no example


def unlearned(
    experiment: Experiment, claim: Claim, store: Store, preset: str, settings: Sequence[str], seeds: Sequence[int]
) -> str:
    """Returns which side of a claim has not learned its task, and why; nothing where both have, or none is far out.

    Formula: the median over training seeds of error / error of the best trivial reference, in training conditions, is
    at least ``GATE``. Runs without a grid say nothing.
    """
    if claim.ungated:
        return ""
    for side in (claim.left, claim.right):
        variant = experiment.variant(side.of)
        if variant is None:
            continue
        spec = experiment.spec(variant, preset, settings)
        task = tasks.build(spec.task)
        if not _far(side, task, spec):
            continue
        shares = [share for seed in seeds if (share := _share(store, spec, seed, task)) is not None]
        if shares and median(shares) >= GATE:
            return (
                f"{side.of} has not learned its task: in training conditions it errs {median(shares):.2g} times as "
                f"much as the best trivial reference"
            )
    return ""


def _far(side: Quantity, task: Task, spec: RunSpec) -> bool:
    """Whether the cells of a side lie outside training conditions; cells of an analysis' own axes do."""
    here = summary.training_cell(task, spec)
    return any(axis not in here or value != here[axis] for axis, values in side.cells.items() for value in values)


def _share(store: Store, spec: RunSpec, seed: int, task: Task) -> float | None:
    run = store.run(spec, seed)
    if not run.finished:
        return None
    values: Mapping[str, float] = summary.at_home([run.grid()], task, spec)
    trivial = [values[f"reference:{name}"] for name in task.trivial if f"reference:{name}" in values]
    return values[run.name] / min(trivial) if trivial and min(trivial) > 0 else None
