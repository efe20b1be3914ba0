"""What the pages need to know of a task: its axes and metrics in words, which are drawn first, what training was."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from icl_lab import tasks
from icl_lab.errors import LabError
from icl_lab.grid import Grid
from icl_lab.runs.spec import RunSpec
from icl_lab.runs.summary import left_out, training_cell


@dataclass(frozen=True)
class Subject:
    """A task as the pages see it; of a task that is not here, what its grid says by itself."""

    headline: str
    log: bool
    rates: bool
    down: str
    across: str
    along: str  # the axis of curves
    axis_words: Mapping[str, str]
    metric_words: Mapping[str, str]
    training: Mapping[str, float]
    missing: str = ""  # why the task is not here
    left_out: str = ""  # which training conditions the grid leaves out

    @classmethod
    def of(cls, spec: RunSpec, grid: Grid) -> "Subject":
        """Returns the task of a finished run."""
        try:
            task = tasks.build(spec.task)
        except LabError as reason:
            return cls._bare(spec, grid, str(reason))
        (down, across), axes = task.heat_map, grid.axes
        if not {down, across, task.line_axis} <= set(axes):
            return cls._bare(spec, grid, "")
        return cls(
            headline=task.headline,
            log=task.log_scale,
            rates=task.rates,
            down=down,
            across=across,
            along=task.line_axis,
            axis_words={axis: task.axis_label(axis).words for axis in axes},
            metric_words={str(metric): task.metric_label(str(metric)) for metric in grid.values("metric")},
            training=training_cell(task, spec),
            left_out=left_out(grid, task, spec),
        )

    @classmethod
    def _bare(cls, spec: RunSpec, grid: Grid, missing: str) -> "Subject":
        axes = grid.axes
        metrics = [str(metric) for metric in grid.values("metric")]
        return cls(
            headline=metrics[0],
            log=False,
            rates=False,
            down=axes[0],
            across=axes[-1],
            along=axes[-1],
            axis_words={axis: axis for axis in axes},
            metric_words={metric: metric for metric in metrics},
            training={},
            missing=missing,
        )

    def told(self, axes: Mapping[str, Sequence[float]]) -> dict[str, Any]:
        """Returns what the scripts read; ``at`` is for each axis the place of the value of training, or the nearest."""
        at = {
            axis: min(range(len(values)), key=lambda i: abs(values[i] - self.training.get(axis, values[0])))
            for axis, values in axes.items()
        }
        return {
            "headline": self.headline,
            "log": self.log,
            "rates": self.rates,
            "down": self.down,
            "across": self.across,
            "along": self.along,
            "at": at,
            "trained": {axis: value for axis, value in self.training.items() if axis in axes},
        }
