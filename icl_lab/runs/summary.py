"""A finished run in words and pictures."""

from collections.abc import Mapping

from matplotlib.figure import Figure

from icl_lab.figures import maps
from icl_lab.figures.base import short
from icl_lab.grid import Grid, model_name
from icl_lab.runs.measure import NOT_FINITE
from icl_lab.runs.spec import RunSpec
from icl_lab.tasks.base import Task


def training_cell(task: Task, spec: RunSpec) -> dict[str, float]:
    """The cell of training: every sigma at 1 (or its ``train.shift``), and the longest test length that it has seen."""
    seen = [length for length in spec.test.lengths if length <= spec.train.curriculum.stop]
    return {**task.training, **spec.train.shift, "length": float(max(seen or spec.test.lengths[:1]))}


def brief(grid: Grid, task: Task, spec: RunSpec) -> str:
    """Returns the headline metric as a small table, and its value in training conditions beside the references."""
    here = training_cell(task, spec)
    ours = _picture(grid, task, here)
    rows, columns = task.heat_map
    table = ours.table(rows, columns)
    lines = [f"{task.metric_label(task.headline)}: {rows} down, {columns} across{_fixed(task, here)}"]
    lines.append(" " * 8 + "".join(f"{value:>9g}" for value in table.columns))
    lines += [
        f"{name:>8g}" + "".join(f"{short(value):>9}" for value in row)
        for name, row in zip(table.index, table.to_numpy(), strict=True)
    ]
    lines += ["", f"in training conditions ({', '.join(f'{axis}={value:g}' for axis, value in here.items())}):"]
    cells = grid.where(metric=task.headline, **_present(grid, here))
    for name in cells.values("attn"):
        cell = cells.where(attn=name).frame.iloc[0]
        lines.append(f"  {name:28} {cell['value']:.3g} ± {cell['stderr']:.2g}")
    lost = sum(metric.endswith(NOT_FINITE) for metric in grid.where(attn=model_name(grid)).frame["metric"])
    if lost:
        lines += ["", f"{lost} cells have answers that are no finite numbers; they count as wrong."]
    return "\n".join(lines)


def heat_map(grid: Grid, task: Task, spec: RunSpec) -> Figure:
    """Draws the headline metric of a run over the task's two main axes."""
    here = training_cell(task, spec)
    rows, columns = task.heat_map
    return maps.heat_map(
        _picture(grid, task, here),
        rows,
        columns,
        title=f"{spec.task}, {model_name(grid)}, {spec.preset}{_fixed(task, here)}",
        label=task.metric_label(task.headline),
        log=task.log_scale,
        training=here,
    )


def _picture(grid: Grid, task: Task, here: Mapping[str, float]) -> Grid:
    others = {axis: value for axis, value in here.items() if axis not in task.heat_map}
    return grid.where(attn=model_name(grid), metric=task.headline, **_present(grid, others))


def _present(grid: Grid, labels: Mapping[str, float]) -> dict[str, float]:
    """Where the grid leaves training conditions out, its nearest value stands for them."""
    return {axis: min(grid.values(axis), key=lambda there: abs(there - value)) for axis, value in labels.items()}


def _fixed(task: Task, here: Mapping[str, float]) -> str:
    others = [f"{axis} {value:g}" for axis, value in here.items() if axis not in task.heat_map]
    return f", {', '.join(others)}" if others else ""
