"""Grids and histories as arrays for the browser."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from icl_lab.base.grid import Grid, model_name
from icl_lab.base.learned import places
from icl_lab.extras.site.shown_task import ShownTask
from icl_lab.runs.measure import NOT_FINITE

MOST_ROWS = 200  # of a history
MOST_LEARNED = 16  # learned parameters whose curves are drawn
NOT_DRAWN = ("length", "rate")  # columns of a history
DIGITS, ERROR_DIGITS = 4, 2

Number = float | str | None  # as JSON holds it: None for NaN, "inf" or "-inf" for infinities


def arrays(grid: Grid, subject: ShownTask) -> dict[str, Any]:
    """Return axes, metrics, predictors (the model first) and their values, flat in the order of the axes.

    Cells that are not there are None; infinite ones are the text "inf". ``lost`` lists, for each metric, the cells in
    which answers of the model were no finite numbers.
    """
    frame, axes = grid.frame, grid.axes
    values = {axis: sorted(map(float, grid.values(axis))) for axis in axes}
    shape = [len(values[axis]) for axis in axes]
    # A grid without rows has no axis values either: then there is no cell.
    places = [np.searchsorted(values[axis], frame[axis].to_numpy(dtype=float)) for axis in axes]
    flat = np.ravel_multi_index(places, shape) if len(frame) else np.empty(0, dtype=int)
    model, who = model_name(grid), [str(name) for name in grid.values("attn")]
    marked = [str(metric) for metric in grid.values("metric") if str(metric).endswith(NOT_FINITE)]
    metrics = [str(metric) for metric in grid.values("metric") if str(metric) not in marked]
    attn, metric, value, stderr = (frame[column].to_numpy() for column in ("attn", "metric", "value", "stderr"))
    found: dict[str, dict[str, Any]] = {}
    for name in [model, *(each for each in who if each != model)]:
        for each in metrics:
            rows = (attn == name) & (metric == each)
            if rows.any():
                part = {"v": _spread(value[rows], flat[rows], shape, DIGITS)}
                if name == model:
                    part["e"] = _spread(stderr[rows], flat[rows], shape, ERROR_DIGITS)
                found.setdefault(name, {})[each] = part
    lost = {each: sorted(set(flat[(attn == model) & (metric == _suite(each, marked))].tolist())) for each in metrics}
    return {
        "axes": [{"name": axis, "label": subject.axis_words[axis], "values": values[axis]} for axis in axes],
        "metrics": [{"name": each, "label": subject.metric_words[each]} for each in metrics],
        "model": model,
        "who": list(found),
        "values": found,
        "lost": {each: cells for each, cells in lost.items() if cells},
    }


def _suite(metric: str, marked: Sequence[str]) -> str:
    """The mark of the test set that a metric belongs to: the one with the longest prefix of it."""
    fits = [mark for mark in marked if metric.startswith(mark.removesuffix(NOT_FINITE))]
    return max(fits, key=len, default="")


def _spread(values: np.ndarray, flat: np.ndarray, shape: Sequence[int], digits: int) -> list[Number]:
    spread = np.full(math.prod(shape), np.nan)
    spread[flat] = values
    return [number(value, digits) for value in spread.tolist()]


def number(value: float, digits: int = DIGITS) -> Number:
    """Return a number with ``digits`` digits, as JSON holds it: None for NaN, "inf" or "-inf" for infinities.

    >>> number(0.123456789), number(float("nan")), number(float("-inf"))
    (0.1235, None, '-inf')
    """
    if math.isnan(value):
        return None
    return str(value) if math.isinf(value) else float(f"{value:.{digits}g}")


def together(grids: Mapping[int, Mapping[str, Any]]) -> dict[str, Any]:
    """Join the arrays of several seeds, which share axes and metrics: of each predictor's metric one list per seed.

    What is the same in all seeds, such as a reference, stands once.
    """
    first, *_ = grids.values()
    seeds = [seed for seed, grid in grids.items() if grid["axes"] == first["axes"]]
    same = [grids[seed] for seed in seeds]
    values = {
        who: {
            metric: {part: _once([_of(grid, who, metric, part) for grid in same]) for part in parts}
            for metric, parts in metrics.items()
        }
        for who, metrics in first["values"].items()
    }
    lost = {str(seed): grids[seed]["lost"] for seed in seeds if grids[seed]["lost"]}
    shared = {name: first[name] for name in ("axes", "metrics", "model", "who")}
    return {**shared, "seeds": seeds, "values": values, "lost": lost}


def _of(grid: Mapping[str, Any], who: str, metric: str, part: str) -> list[Number]:
    found: list[Number] = grid["values"].get(who, {}).get(metric, {}).get(part, [])
    return found


def _once(lists: list[list[Number]]) -> list[list[Number]]:
    return lists[:1] if all(each == lists[0] for each in lists) else lists


def in_training(told: Mapping[str, Any], subject: ShownTask) -> float | None:
    """Return the headline of the model in the cell of training, or the nearest one; None where it was not measured."""
    at = subject.script_data({axis["name"]: axis["values"] for axis in told["axes"]})["at"]
    flat = 0
    for axis in told["axes"]:
        flat = flat * len(axis["values"]) + at[axis["name"]]
    part = told["values"][told["model"]].get(subject.headline, {"v": [None]})
    value = part["v"][flat] if flat < len(part["v"]) else None
    return None if value is None else float(value)


def training(history: Sequence[dict[str, float]]) -> dict[str, Any]:
    """Return the columns of a history that are drawn, thinned to ``MOST_ROWS`` rows, the last one always there."""
    stride = max(1, -(-len(history) // MOST_ROWS))
    rows = history[(len(history) - 1) % stride :: stride]
    columns = [name for name in dict.fromkeys(name for row in rows for name in row) if name not in NOT_DRAWN]
    columns = columns[: MOST_LEARNED + len(("step", "loss"))]
    return {name: [number(row.get(name, math.nan)) for row in rows] for name in columns}


def learned(history: Sequence[dict[str, float]]) -> list[tuple[str, list[str], list[tuple[str, list[str]]]]]:
    """Return (parameter, its heads, rows of (layer, value of each head)) of the parameters learned at the end."""
    last = history[-1] if history else {}
    found: dict[str, dict[str, dict[str, float]]] = {}
    for key, (name, layer, head) in places(last):
        found.setdefault(name, {}).setdefault(str(layer), {})[str(head)] = last[key]
    made = []
    for parameter, layers in found.items():
        heads = list(dict.fromkeys(head for values in layers.values() for head in values))
        rows = [
            (layer, [f"{values[head]:.4g}" if head in values else "" for head in heads])
            for layer, values in layers.items()
        ]
        made.append((parameter, heads, rows))
    return made
