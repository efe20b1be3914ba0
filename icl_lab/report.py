"""A finished run in words and pictures."""

from collections.abc import Mapping

from matplotlib.figure import Figure

from icl_lab.compare import Study, clip_model, model_name
from icl_lab.figures import lines as draw
from icl_lab.figures import maps
from icl_lab.figures.base import short
from icl_lab.grid import Grid
from icl_lab.spec import RunSpec
from icl_lab.statistics import paired
from icl_lab.tasks.base import Task

WORDS = {
    "mse-code": "mean squared error (index ≥ 3)",
    "balanced-last": "balanced error rate, last answer",
}


def home(task: Task, spec: RunSpec) -> dict[str, float]:
    """The cell of training: every sigma at 1, and the longest test length that training has seen."""
    seen = [length for length in spec.test.lengths if length <= spec.train.curriculum.stop]
    return {**task.home, "length": float(max(seen or spec.test.lengths[:1]))}


def brief(grid: Grid, task: Task, spec: RunSpec) -> str:
    """Returns the headline metric as a small table, and its value in training conditions beside the references."""
    here = home(task, spec)
    ours = _picture(grid, task, here)
    rows, columns = task.heat_map
    table = ours.table(rows, columns)
    lines = [f"{WORDS.get(task.headline, task.headline)}: {rows} down, {columns} across{_fixed(task, here)}"]
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
    return "\n".join(lines)


def heat_map(grid: Grid, task: Task, spec: RunSpec) -> Figure:
    """Draws the headline metric of a run over the task's two main axes."""
    here = home(task, spec)
    rows, columns = task.heat_map
    return maps.heat_map(
        _picture(grid, task, here),
        rows,
        columns,
        title=f"{spec.task}, {model_name(grid)}, {spec.preset}{_fixed(task, here)}",
        label=WORDS.get(task.headline, task.headline),
        log=task.log_scale,
        home=here,
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


def table(study: Study, spec: RunSpec) -> str:
    """Returns a comparison as a Markdown table: rules by their declared summary, then the references.

    The smallest error of a column is bold only where its interval over seeds excludes equality with the next.
    """
    axis = study.task.heat_map[1] if study.task.log_scale else study.task.heat_map[0]
    line = study.line(axis)
    summary = {rule: sum(study.summary(rule)) / study.seeds for rule in study.grids}
    means = {rule: [sum(study.values(rule, cell)) / study.seeds for cell in line] for rule in summary}
    best = [_clear_best(study, cell) for cell in line]
    fixed = ", ".join(f"{name} {value:g}" for name, value in study.home.items() if name != axis)
    clips = study.task.log_scale
    lines = [
        f"{WORDS.get(study.metric, study.metric)}, {fixed}; {study.seeds} training seed{'s' * (study.seeds > 1)}, "
        f"preset {spec.preset}. Summary: {SUMMARIES[clips]}.",
        "",
        "| "
        + " | ".join(["rule", *(f"{axis} {cell[axis]:g}" for cell in line), "summary", *["clip B (residual)"] * clips])
        + " |",
        "| " + " | ".join(["---"] * (len(line) + 2 + clips)) + " |",
    ]
    for rule in sorted(summary, key=lambda rule: summary[rule]):
        cells = [f"**{short(v)}**" if b == rule else short(v) for v, b in zip(means[rule], best, strict=True)]
        if clips:
            clip = clip_model(study, rule, spec.test)
            cells += [f"{summary[rule]:.2f}", f"{clip.bound:g} ({clip.residual:.2f})"]
        else:
            cells += [f"{summary[rule]:.3f}"]
        lines.append(f"| `{rule}` | " + " | ".join(cells) + " |")
    for name in study.references():
        cells = [short(study.reference(name, cell)) for cell in line] + [""] * (1 + clips)
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def curves(study: Study) -> Figure:
    """Draws the headline metric of every rule along the shift, over its seeds, with the references."""
    axis = study.task.heat_map[1] if study.task.log_scale else study.task.heat_map[0]
    line = study.line(axis)
    where = [cell[axis] for cell in line]
    rules = {rule: [study.values(rule, cell) for cell in line] for rule in study.grids}
    references = {name: [study.reference(name, cell) for cell in line] for name in study.references()}
    fixed = ", ".join(f"{name} {value:g}" for name, value in study.home.items() if name != axis)
    return draw.rivals(
        where,
        rules,
        references,
        axis=axis,
        title=fixed,
        label=WORDS.get(study.metric, study.metric),
        log=study.task.log_scale,
    )


SUMMARIES = {
    True: "mean log error over sigma_f 2 to 10; clip B fits sigma_f 4 to 10 best",
    False: "mean error over the lengths beyond training",
}


def _clear_best(study: Study, cell: Mapping[str, float]) -> str:
    """The rule with the smallest mean error in a cell, if it is smaller than the next beyond the seeds' spread."""
    values = {rule: study.values(rule, dict(cell)) for rule in study.grids}
    first, second = sorted(values, key=lambda rule: sum(values[rule]))[:2]
    if not all(value > 0 for rule in (first, second) for value in values[rule]):
        return ""
    return first if paired(values[second], values[first], study.scale).clear else ""
