"""Errors of normalizers and references along one axis, as a picture and in words."""

from collections.abc import Callable

from matplotlib.figure import Figure

from icl_lab import tasks
from icl_lab.analyses.frame import Findings
from icl_lab.figures import lines
from icl_lab.figures.base import writer


def error_writer(found: Findings) -> Callable[[float], str]:
    """Returns what writes an error of the task as its tables do."""
    task = tasks.build(found.spec.task)
    return writer(task.log_scale, task.rates)


def picture(found: Findings, name: str, column: str, *, axis: str, title: str, mark: float) -> Figure:
    """Draws the grid of this name over one of its axes, which is called ``axis``; ``mark`` is a place to be dotted."""
    grid, task = found[name], tasks.build(found.spec.task)
    where = grid.values(column)
    rules = {rule: [list(grid.where(attn=rule, **{column: at}).frame["value"]) for at in where] for rule in found.rules}
    references = {
        reference.removeprefix("reference:"): [found.mean(name, attn=reference, **{column: at}) for at in where]
        for reference in found.references
    }
    label = task.metric_label(task.headline)
    return lines.rivals(where, rules, references, axis=axis, title=title, label=label, log=task.log_scale, mark=mark)
