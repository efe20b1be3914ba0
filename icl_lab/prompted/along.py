"""One line of a grid: the axis of a table, the cells along it, and what was printed there."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from icl_lab import published
from icl_lab.grid import Grid
from icl_lab.prompted.beside import Beside
from icl_lab.prompted.question import Plan
from icl_lab.tasks.base import Printed

FAR = 0.1  # of a value of an axis: a printed column farther off is not beside ours
Shown = Callable[[str, str, float], tuple[float, float]]  # name, metric, place -> value, standard error


@dataclass(frozen=True)
class Facts:
    """What the sentences of a report are about: who was asked, how, and at what price a million tokens."""

    name: str
    model: str
    asked: Mapping[str, Any]
    training: Mapping[str, float]
    price: tuple[float, float] | None = None
    beside: Sequence[Beside] = field(default=())


def axis_of(plan: Plan, grid: Grid) -> str:
    """The axis of the table: that of the task's lines, or another one that has more than one value."""
    order = [plan.task.line_axis, *plan.task.heat_map, *plan.task.axes["full"]]
    return next((axis for axis in order if len(grid.values(axis)) > 1), order[0])


def nearest(grid: Grid, training: Mapping[str, float]) -> dict[str, float]:
    """The cell of training, the nearest one where it was not asked about."""
    return {axis: min(grid.values(axis), key=lambda there: abs(there - value)) for axis, value in training.items()}


def line_of(plan: Plan, grid: Grid, axis: str, training: Mapping[str, float], digits: int) -> Shown:
    """Returns what finds the value and its standard error along an axis; facets are averaged."""
    here = {name: value for name, value in nearest(grid, training).items() if name not in (axis, *plan.task.facets)}
    if len(plan.digits) > 1:
        here["digits"] = float(digits)

    def shown(name: str, metric: str, value: float) -> tuple[float, float]:
        frame = grid.where(attn=name, metric=metric, **{**here, axis: value}).frame
        count = len(frame)
        error = float((frame["stderr"] ** 2).sum(skipna=False)) ** 0.5 / count
        return float(frame["value"].mean(skipna=False)), error

    return shown


def names_of(grid: Grid, metric: str) -> list[str]:
    """The names that have a metric: the model, then the references."""
    return [str(name) for name in grid.where(metric=metric).values("attn")]


def fixed_words(plan: Plan, grid: Grid, axis: str, training: Mapping[str, float]) -> str:
    """Where the other axes stand, in words."""
    others = {a: v for a, v in nearest(grid, training).items() if a not in (axis, *plan.task.facets)}
    averaged = [f"mean over {facet}" for facet in plan.task.facets if facet != axis]
    said = [*(f"{name}={value:g}" for name, value in others.items()), *averaged]
    return f", {', '.join(said)}" if said else ""


def printed_at(told: Printed, value: float) -> float | None:
    """The published number at a value of its axis; None where nothing was printed there."""
    rows = published.load(told.table).where(**told.where)
    return next((row[told.value].number for row in rows if abs(row[told.column].number - value) < FAR), None)


def decimals(digits: int) -> str:
    """So many decimals, in words."""
    return f"{digits} decimal{'s' * (digits != 1)}"
