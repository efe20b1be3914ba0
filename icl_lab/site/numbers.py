"""The grid of a run as arrays for the browser, and as the small picture beside its name."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from icl_lab.grid import Grid, model_name
from icl_lab.learned import places
from icl_lab.runs.at_work import thinned
from icl_lab.runs.measure import NOT_FINITE
from icl_lab.site.subject import Subject

LEVELS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
MISSING, WITHOUT_END = ".", "!"  # in the small picture: no cell, and an infinite error
MOST_ROWS = 400  # of a history


def arrays(grid: Grid, subject: Subject) -> dict[str, Any]:
    """Returns axes, metrics, predictors (the model first) and their values, flat in the order of the axes.

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
    attn, metric = frame["attn"].to_numpy(), frame["metric"].to_numpy()
    found: dict[str, dict[str, Any]] = {}
    for name in [model, *(each for each in who if each != model)]:
        for each in metrics:
            rows = (attn == name) & (metric == each)
            if rows.any():
                part = {"v": _spread(frame["value"].to_numpy()[rows], flat[rows], shape, 5)}
                if name == model:
                    part["e"] = _spread(frame["stderr"].to_numpy()[rows], flat[rows], shape, 2)
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


def _spread(values: np.ndarray, flat: np.ndarray, shape: Sequence[int], digits: int) -> list[float | str | None]:
    spread = np.full(math.prod(shape), np.nan)
    spread[flat] = values
    return [number(value, digits) for value in spread.tolist()]


def number(value: float, digits: int = 5) -> float | str | None:
    """Returns a number with so many digits as JSON holds it: None for NaN, "inf" or "-inf" for what has no end.

    >>> number(0.123456789), number(float("nan")), number(float("-inf"))
    (0.12346, None, '-inf')
    """
    if math.isnan(value):
        return None
    return str(value) if math.isinf(value) else float(f"{value:.{digits}g}")


def thumbnail(told: dict[str, Any], subject: Subject) -> str:
    """Returns the headline over the two main axes as ``width:levels``, a letter a cell, the top row first.

    The letters go from the least value of the picture to its greatest, by logarithms where the task asks for it.
    """
    names = [axis["name"] for axis in told["axes"]]
    part = told["values"][told["model"]].get(subject.headline)
    if part is None or subject.down == subject.across:
        return ""
    lengths = [len(axis["values"]) for axis in told["axes"]]
    cells = np.array([math.nan if v is None else float(v) for v in part["v"]]).reshape(lengths)
    at = subject.told({axis["name"]: axis["values"] for axis in told["axes"]})["at"]
    index = tuple(slice(None) if name in (subject.down, subject.across) else at[name] for name in names)
    table = cells[index]
    if names.index(subject.down) > names.index(subject.across):
        table = table.T
    with np.errstate(divide="ignore", invalid="ignore"):
        scaled = np.log(table) if subject.log else table
    known = scaled[np.isfinite(scaled)]
    low, span = (known.min(), np.ptp(known) or 1.0) if len(known) else (0.0, 1.0)
    letters = [_letter(value, low, span) for value in scaled[::-1].ravel().tolist()]
    return f"{table.shape[1]}:{''.join(letters)}"


def _letter(value: float, low: float, span: float) -> str:
    if math.isnan(value):
        return MISSING
    if math.isinf(value):
        return WITHOUT_END if value > 0 else LEVELS[0]
    return LEVELS[round((value - low) / span * (len(LEVELS) - 1))]


def training(history: Sequence[dict[str, float]]) -> dict[str, Any]:
    """Returns the columns of a history, thinned to at most ``MOST_ROWS`` rows, the last one always there."""
    rows = thinned(history, MOST_ROWS)
    columns = dict.fromkeys(name for row in rows for name in row)
    return {name: [number(row.get(name, math.nan)) for row in rows] for name in columns}


def learned(history: Sequence[dict[str, float]]) -> list[tuple[str, list[str], list[tuple[str, list[str]]]]]:
    """Returns (parameter, its heads, rows of (layer, value of each head)) of what the rules had learned at the end."""
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
