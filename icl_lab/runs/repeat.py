"""A run done again: the user's own grid beside the repository's, of the same specification and seed."""

import math

from icl_lab import tasks
from icl_lab.evidence.layer import Layer
from icl_lab.figures.base import short
from icl_lab.grid import Grid
from icl_lab.runs import summary
from icl_lab.runs.run import Run
from icl_lab.tasks.base import Task

WHY = (
    "Another machine or library rounds differently, and training amplifies rounding; so one seed moves, and what holds "
    "is what several seeds agree on (--seeds 3)."
)


def lines(run: Run, layer: Layer) -> list[str]:
    """Says whether a finished run equals the one in the evidence, or how far apart they are; nothing where it has none.

    Errors that span decades are compared by their ratio, |ours / theirs - 1|; error rates by their difference.
    """
    kept, name = layer.run(run.key), (run.place / "grid.csv").relative_to(run.folder).as_posix()
    if kept is None or name not in kept:
        return []
    task = tasks.build(run.spec.task)
    ours, theirs = (grid.where(attn=run.name, metric=task.headline) for grid in (run.grid(), _read(kept.read(name))))
    both = ours.frame.merge(theirs.frame, on=ours.axes, suffixes=("", "_there"))
    label = f"beside the repository's run of the same specification and seed ({run.name}, seed {run.seed}):"
    if both["value"].equals(both["value_there"]):
        return [f"{label} equal in all {len(both)} cells of {task.headline}."]
    apart = (both["value"] - both["value_there"]).abs()
    if task.log_scale:
        apart = (both["value"] / both["value_there"] - 1).abs()
    farthest = both.iloc[int(apart.argmax())]
    gap = f"{apart.max():.1%}" if task.log_scale and math.isfinite(apart.max()) else f"{apart.max():.3g}"
    where = ", ".join(f"{axis} {farthest[axis]:g}" for axis in ours.axes)
    return [f"{label} {_training(run, task, ours, theirs)}farthest cell {gap} apart ({where}).", WHY]


def _read(data: bytes) -> Grid:
    return Grid.read(data.decode())


def _training(run: Run, task: Task, ours: Grid, theirs: Grid) -> str:
    here = summary.training_cell(task, run.spec)
    try:
        one, other = ours.at(**here), theirs.at(**here)
    except KeyError:  # the test grid leaves training conditions out
        return ""
    return f"in training conditions {short(one)} here, {short(other)} there; "
