"""A finished run in words: its grid in brief, and how far it is from the repository's run of the same seed."""

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from icl_lab import tasks
from icl_lab.base import markdown as md
from icl_lab.base.errors import RunFailed
from icl_lab.base.grid import Grid, model_name
from icl_lab.base.markdown import short
from icl_lab.base.terms import explained
from icl_lab.runs.measure import NOT_FINITE
from icl_lab.runs.run import Run
from icl_lab.runs.run_files import RunFiles
from icl_lab.runs.spec import RunSpec
from icl_lab.tasks.base import Task

REPEATS_DIFFER = (
    "Another machine or library rounds differently, and training amplifies rounding; so one seed moves, and what holds "
    "is what several seeds agree on (--seeds 3)."
)
NO_NUMBERS = "not learned: in training conditions its answers are no finite numbers"
GATE = 0.25  # of the way from the best reference of all to the best that reads no example: from here on, not learned
REFERENCE = "reference:"  # before the name of a predictor that is not a model


def training_cell(task: Task, spec: RunSpec) -> dict[str, float]:
    """The cell of training: every sigma at 1 (or its ``train.shift``), and the longest test length that it has seen."""
    seen = [length for length in spec.test.lengths if length <= spec.train.curriculum.stop]
    return {**task.training, **spec.train.shift, "length": float(max(seen or spec.test.lengths[:1]))}


def left_out(grid: Grid, task: Task, spec: RunSpec) -> str:
    """Return which training conditions the grid has no cell of, in words; nothing where it has one.

    Such a model is measured under a shift only: its error there does not say whether it has learned its task.
    """
    cell = task.pinned(training_cell(task, spec))
    lacking = {axis: value for axis, value in cell.items() if value not in grid.values(axis)}
    there = {axis: ", ".join(f"{value:g}" for value in grid.values(axis)) for axis in lacking}
    return "; ".join(f"trained at {axis}={value:g}, tested at {there[axis]}" for axis, value in lacking.items())


def home(grid: Grid, task: Task, spec: RunSpec) -> str:
    """Say which cell ``errors_in_distribution`` reads: training conditions, or the nearest to them in the grid."""
    lacking = left_out(grid, task, spec)
    return f"in the nearest cell to training conditions ({lacking})" if lacking else "in training conditions"


def brief(grid: Grid, task: Task, spec: RunSpec) -> str:
    """Return the headline metric as a small table, and its value in training conditions, with the references."""
    here = training_cell(task, spec)
    ours = shown_cells(grid, task, here)
    rows, columns = task.heat_map
    table = ours.table(rows, columns)
    lines = [f"{task.metric_label(task.headline)}: {rows} down, {columns} across{fixed_axes(grid, task, here)}"]
    lines += ["", *_map(table.index, table.columns, [map(short, row) for row in table.to_numpy()])]
    nearest = _present(grid, here)
    lines += ["", f"{home(grid, task, spec)} ({', '.join(f'{axis}={value:g}' for axis, value in nearest.items())}):"]
    cells = grid.where(metric=task.headline, **nearest)
    for name in cells.values("attn"):
        cell = cells.where(attn=name).frame.iloc[0]
        lines.append(f"  {name:28} {cell['value']:.3g} ± {cell['stderr']:.2g}")
    lost = sum(metric.endswith(NOT_FINITE) for metric in grid.where(attn=model_name(grid)).frame["metric"])
    if lost:
        lines += ["", f"{lost} cells have answers that are no finite numbers; they count as wrong."]
    lines[1:1] = filter(None, [explained("\n".join(lines))])
    return "\n".join(lines)


def spread(grids: Sequence[Grid], task: Task, spec: RunSpec) -> str:
    """Return the headline metric of several training seeds as a small table: their mean and standard deviation.

    Formula: mean over s, and sqrt(sum (x - mean)^2 / (s - 1)), of the s seeds' values in each cell
    """
    here = training_cell(task, spec)
    rows, columns = task.heat_map
    tables = [shown_cells(grid, task, here).table(rows, columns) for grid in grids]
    values = np.stack([table.to_numpy() for table in tables])
    with np.errstate(invalid="ignore"):  # a model without finite answers has no spread
        mean, sd = values.mean(axis=0), values.std(axis=0, ddof=1)
    cells = [[f"{short(m)} ± {short(s)}" for m, s in zip(*row, strict=True)] for row in zip(mean, sd, strict=True)]
    head = f"{task.metric_label(task.headline)}: {rows} down, {columns} across{fixed_axes(grids[0], task, here)}"
    return "\n".join([head, "", *_map(tables[0].index, tables[0].columns, cells)])


def _map(down: Iterable[Any], across: Iterable[Any], cells: Sequence[Iterable[str]]) -> list[str]:
    rows = [[f"{value:g}", *row] for value, row in zip(down, cells, strict=True)]
    return md.table(["", *(f"{value:g}" for value in across)], rows)


def errors_in_distribution(grids: Sequence[Grid], task: Task, spec: RunSpec) -> dict[str, float]:
    """Return the headline metric in training conditions, the mean over seeds, of the normalizer and references.

    Where training has met every value of an axis (a facet of the task), the mean over its values. Where the grid leaves
    training conditions out, the values of the nearest cell: ``home`` says which it is.
    """
    here = task.pinned(training_cell(task, spec))
    joined = Grid.join(grids)
    frame = joined.where(metric=task.headline, **_present(joined, here)).frame
    return {str(name): float(value) for name, value in frame.groupby("attn", sort=False)["value"].mean().items()}


def unlearned(grids: Sequence[Grid], task: Task, spec: RunSpec) -> str:
    """Return why a normalizer counts as not learned, over its training seeds; nothing where it counts as learned.

    Formula: the median over seeds of ``normalized_error``, in training conditions, is at least ``GATE``. A grid without
    training conditions does not tell: nothing is returned (``left_out`` says which it lacks).
    """
    if left_out(grids[0], task, spec):
        return ""
    name = model_name(grids[0])
    found = [normalized_error(errors_in_distribution([grid], task, spec), name, task) for grid in grids]
    known = [error for error in found if error is not None]
    if not known or has_learned(known):
        return ""
    if math.isinf(_middle(known)):
        return NO_NUMBERS
    trivial, others = _references(errors_in_distribution(grids, task, spec), task)
    reads_none, best = (min(each, key=each.__getitem__, default="") for each in (trivial, others))
    least = f"{best}, {others[best]:.2g}" if others else "0"
    # That of the median seed, like the share of the way: a mean next to a median would contradict it.
    error = _middle([errors_in_distribution([grid], task, spec)[name] for grid in grids])
    median = f"median error of {len(grids)} seeds" if len(grids) > 1 else "error"
    return (
        f"not learned: {median} {error:.3g} in training conditions, {_middle(known):.0%} of the way from the best "
        f"reference ({least}) to the best that reads no example ({reads_none}, {trivial[reads_none]:.3g}); learned is "
        f"below {GATE:.0%}"
    )


def trivial_error(grid: Grid, task: Task, spec: RunSpec) -> float:
    """Return the error, in training conditions, of the best reference that reads no example; NaN without one."""
    trivial, _ = _references(errors_in_distribution([grid], task, spec), task)
    return min(trivial.values(), default=math.nan)


def normalized_error(values: Mapping[str, float], name: str, task: Task) -> float | None:
    """Error on the scale of the task's references: 0 is the best of all, 1 the best trivial one; None unknown.

    Formula: (v - e) / (t - e), v the error of ``name``, t that of the best trivial reference, e that of the best of
    all: 0 where one is exact, and the floor that a loss has where none is.
    """
    trivial, others = _references(values, task)
    best, reads_none = min(others.values(), default=0.0), min(trivial.values(), default=math.nan)
    return (values[name] - best) / (reads_none - best) if reads_none > best else None


def has_learned(normalized: Sequence[float]) -> bool:
    """True if the median of normalized errors over training seeds is below ``GATE``; False for NaN."""
    return _middle(normalized) < GATE


def _middle(normalized: Sequence[float]) -> float:
    """The median; a seed whose error is NaN counts as the worst."""
    return statistics.median([math.inf if math.isnan(error) else error for error in normalized])


def _references(values: Mapping[str, float], task: Task) -> tuple[dict[str, float], dict[str, float]]:
    """Errors of the references that no example helps, and of all others, by name."""
    named = {name.removeprefix(REFERENCE): v for name, v in values.items() if name.startswith(REFERENCE)}
    trivial = {name: named[name] for name in task.trivial if name in named}
    return trivial, {name: value for name, value in named.items() if name not in task.trivial}


def lost(grid: Grid, task: Task, here: Mapping[str, float]) -> set[tuple[float, float]]:
    """Return the places of the task's map (down, across) where answers of the model were no finite numbers.

    In the test set of the headline: metrics of another one have another prefix.
    """
    suite = max((prefix for prefix in task.suites() if task.headline.startswith(prefix)), key=len)
    others = {axis: value for axis, value in here.items() if axis not in task.heat_map}
    frame = grid.frame[(grid.frame["metric"] == f"{suite}{NOT_FINITE}") & (grid.frame["attn"] == model_name(grid))]
    for axis, value in _present(grid, others).items():
        frame = frame[frame[axis] == value]
    down, across = task.heat_map
    return set(zip(frame[down], frame[across], strict=True))


def shown_cells(grid: Grid, task: Task, here: Mapping[str, float]) -> Grid:
    """Return the cells of the task's map: the headline of the model, every other axis at its training condition."""
    others = {axis: value for axis, value in here.items() if axis not in task.heat_map}
    return grid.where(attn=model_name(grid), metric=task.headline, **_present(grid, others))


def fixed_axes(grid: Grid, task: Task, here: Mapping[str, float]) -> str:
    """The other axes of a picture or table, with the values that it shows."""
    others = [f"{axis} {value:g}" for axis, value in _present(grid, here).items() if axis not in task.heat_map]
    return f", {', '.join(others)}" if others else ""


def bound_words(run: Run, history: Sequence[Mapping[str, float]] | None = None) -> str:
    """The bound that the final norm and the read-out set on a run's answers, in words."""
    try:
        known = run.answer_bound()
        logged = run.bound(history) if known is None else None
    except RunFailed:
        return "damaged (see icl-lab verify)"
    if known is None and logged is not None:
        return f"outputs bounded by C up to {logged:.4g} (logged at the last step)"
    if known is None:
        return "bound on answers not kept" if run.finished else "not trained yet"
    centre, bound = (value.tolist() for value in known)
    if not math.isfinite(bound[0]):
        return "no bound on answers (no final norm)"
    bounds = [f"{each:.4g} around {middle:.3g}" for middle, each in zip(centre, bound, strict=True)]
    return f"answers bounded by C = {bounds[0]}" if len(bounds) == 1 else f"outputs bounded by C up to {max(bound):.4g}"


def attention_words(history: Sequence[Mapping[str, float]]) -> str:
    """Largest score and entropy of attention that a history logged last, by layer; empty where it has none."""
    last = history[-1] if history else {}
    scores, entropies = (
        ", ".join(f"{value:.3g}" for name, value in last.items() if name.startswith(f"{kind}."))
        for kind in ("score", "entropy")
    )
    return f"largest score by layer {scores}; entropy of attention {entropies} nats" if scores else ""


def repeated(run: Run, other: RunFiles) -> tuple[str, bool] | None:
    """Compare a finished run with another of the same specification and seed: how far apart, in words, and if equal.

    None where that has no grid. Errors that span decades are compared by their ratio, |ours / theirs - 1|; error rates
    by their difference.
    """
    if (data := other.find(run.below("grid.csv"))) is None:
        return None
    task = tasks.build(run.spec.task)
    grids = run.grid(), Grid.read(data.decode())
    ours, theirs = (grid.where(attn=run.name, metric=task.headline) for grid in grids)
    both = ours.frame.merge(theirs.frame, on=ours.axes, suffixes=("", "_there"))
    label = f"{run.name}, seed {run.seed}:"
    if both["value"].equals(both["value_there"]):
        return f"{label} equal in all {len(both)} cells of {task.headline}.", True
    apart = (both["value"] - both["value_there"]).abs()
    if task.log_scale:
        apart = (both["value"] / both["value_there"] - 1).abs()
    farthest = both.iloc[int(apart.argmax())]
    gap = f"{apart.max():.1%}" if task.log_scale and math.isfinite(apart.max()) else f"{apart.max():.3g}"
    where = ", ".join(f"{axis} {farthest[axis]:g}" for axis in ours.axes)
    here = training_cell(task, run.spec)
    try:
        there = f"in training conditions {short(ours.at(**here))} here, {short(theirs.at(**here))} there; "
    except KeyError:  # the test grid leaves training conditions out
        there = ""
    return f"{label} {there}farthest cell {gap} apart ({where}).", False


def _present(grid: Grid, labels: Mapping[str, float]) -> dict[str, float]:
    return {axis: min(grid.values(axis), key=lambda there: abs(there - value)) for axis, value in labels.items()}
