"""Figures of a study: its headline over two axes and along one, with references and trained models."""

import math
from collections.abc import Sequence

from matplotlib.figure import Figure

from icl_lab.figures import lines as curves
from icl_lab.figures import maps
from icl_lab.prompted.measurement import ROUNDED
from icl_lab.prompted.slice import Slice
from icl_lab.prompted.trained import TrainedRuns
from icl_lab.runs import summary


def figures(part: Slice, others: Sequence[TrainedRuns]) -> dict[str, Figure]:
    """Draws the headline over the task's two main axes, a map for each number of decimals, and along the axis."""
    study, task, name = part.study, part.study.task, part.study.options.name
    down, across = task.heat_map
    drawn, label = dict[str, Figure](), task.metric_label(task.headline)
    for digits in study.digits:
        cells, here = part.grid.where(**part.of(digits)), study.training
        words = f"{summary.fixed_axes(cells, task, here)}{part.tag(digits)}"
        drawn[f"heat-map-digits-{digits}" if part.of(digits) else "heat-map"] = maps.heat_map(
            summary.shown_cells(cells, task, here),
            down,
            across,
            title=f"{study.spec.task}, {name}, {study.form.name}{words}",
            label=label,
            log=task.log_scale,
            training=here,
            names=task.axis_words,
        )
    if len(part.places) < 2:
        return drawn
    models, references = dict[str, list[list[float]]](), dict[str, list[float]]()
    for digits in study.digits:
        for each in part.names():
            values = [value for value, _ in part.along(each, task.headline, digits)]
            if each == name:
                models[f"{name}{part.tag(digits)}"] = [[value] for value in values]
            elif ROUNDED not in each:
                references[each.removeprefix("reference:")] = values
    for other in others:
        if all(other.values.get(place) for place in part.places):
            models[other.attn] = [other.values[place] for place in part.places]
    numbers = part.printed()
    if study.speech.printed and numbers and not any(map(math.isnan, numbers)):
        references[f"{study.speech.printed.label} (printed)"] = numbers
    drawn["line"] = curves.rivals(
        part.places,
        models,
        references,
        axis=task.axis_words.get(part.axis, part.axis),
        title=f"{study.spec.task}{part.words}",
        label=label,
        log=task.log_scale,
    )
    return drawn
