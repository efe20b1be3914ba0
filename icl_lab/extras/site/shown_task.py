"""A task as pages need it: its axes and metrics in words, which are drawn first, what training was."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from icl_lab import tasks
from icl_lab.base.errors import LabError
from icl_lab.base.grid import Grid
from icl_lab.runs.spec import RunSpec
from icl_lab.runs.summary import left_out, training_cell


@dataclass(frozen=True)
class ShownTask:
    """A task as the pages see it; of a task that is not here, what its grid says by itself."""

    headline: str
    log: bool
    down: str
    across: str
    along: str  # the axis of curves
    axis_words: Mapping[str, str]
    metric_words: Mapping[str, str]
    training: Mapping[str, float]
    missing: str = ""  # why the task is not here
    left_out: str = ""  # which training conditions the grid leaves out

    @classmethod
    def of(cls, spec: RunSpec, grid: Grid) -> "ShownTask":
        """Return the task of a finished run."""
        axes, metrics = grid.axes, [str(metric) for metric in grid.values("metric")]
        first, last = axes[0], axes[-1]
        bare = cls(metrics[0], False, first, last, last, {a: a for a in axes}, {m: m for m in metrics}, {})
        try:
            task = tasks.build(spec.task)
        except LabError as reason:
            return replace(bare, missing=str(reason))
        (down, across), along = task.heat_map, task.line_axis
        if not {down, across, along} <= set(axes):
            return bare
        return cls(
            headline=task.headline,
            log=task.log_scale,
            down=down,
            across=across,
            along=along,
            axis_words={axis: task.axis_label(axis).words for axis in axes},
            metric_words={metric: task.metric_label(metric) for metric in metrics},
            training=training_cell(task, spec),
            left_out=left_out(grid, task, spec),
        )

    def script_data(self, axes: Mapping[str, Sequence[float]]) -> dict[str, Any]:
        """Return what the scripts read; ``at`` is for each axis the place of the value of training, or the nearest."""
        at = {
            axis: min(range(len(values)), key=lambda i: abs(values[i] - self.training.get(axis, values[0])))
            for axis, values in axes.items()
        }
        drawn = {name: getattr(self, name) for name in ("headline", "log", "down", "across", "along")}
        return {**drawn, "at": at, "trained": {axis: value for axis, value in self.training.items() if axis in axes}}
