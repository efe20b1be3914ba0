"""Cheap checks that the files of a run's folder belong to that run, made whenever it is read for a comparison.

They find files that were copied, cut or edited, but not every altered digit: a headline cell must be the mean of its
errors, and other metrics have nothing to be held against.
"""

import math
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from icl_lab.base.errors import RunFailed
from icl_lab.base.grid import Grid
from icl_lab.runs.manifest import WAY_OUT
from icl_lab.runs.measure import NOT_FINITE, Errors, TestSpec
from icl_lab.runs.spec import RunSpec

CLOSE = 1e-5  # relative: errors are float32, cells have eight digits


def folder(spec: RunSpec, place: Path) -> None:
    """Raise ``RunFailed`` where a specification is not the one that ``<preset>-<hash>/seed-K`` is named for."""
    named = place.parent.name
    if named != f"{spec.preset}-{spec.hash}":
        raise RunFailed(
            f"{place / 'spec.json'} is not the specification that its folder is named for: it makes "
            f"{spec.preset}-{spec.hash}, the folder says {named}; move the folder away."
        )


def labels(grid: Grid, told: Mapping[str, Any], test: TestSpec, path: Path) -> None:
    """Raise ``RunFailed`` unless every row carries the run's labels and no cell of the test is missing or doubled."""
    columns = {name: grid.frame[name].tolist() for name in (*told, "metric")}
    own = [not str(name).startswith("reference:") for name in columns["attn"]]
    for name, value in told.items():
        # The rows of references bear their own names, and all other labels of the run.
        found = {label for label, mine in zip(columns[name], own, strict=True) if mine or name != "attn"}
        for other in found - {value}:
            raise RunFailed(f"{path} is of another run: {name} is {other}, not {value}; {WAY_OUT}.")
    cells = math.prod(len(values) for values in test.axes.values())
    # A cell is marked as not finite only where it is.
    counts = Counter(
        pair for pair in zip(columns["attn"], columns["metric"], strict=True) if not pair[1].endswith(NOT_FINITE)
    )
    if not any(own) or set(counts.values()) != {cells}:
        raise RunFailed(f"{path} is cut short or has rows twice: each metric has {cells} cells; {WAY_OUT}.")


def means(grid: Grid, errors: Errors, model: str, metric: str, path: Path, *, all_cells: bool) -> None:
    """Raise ``RunFailed`` where a cell of the headline metric is not the mean over its prompts' errors.

    With ``all_cells`` also where a cell has none (the evidence keeps those of some).
    """
    rows, known, axes = grid.where(attn=model, metric=metric).frame, errors.means(), grid.axes
    for *cell, value in rows[[*axes, "value"]].itertuples(index=False, name=None):
        at = dict(zip(axes, cell, strict=True))
        mean = known.get(tuple(at.get(axis, math.nan) for axis in errors.axes))
        if mean is None and not all_cells:
            continue
        if mean is None:
            raise RunFailed(f"{path} has a cell without errors beside it: no cell {at} was measured; {WAY_OUT}.")
        if not math.isclose(mean, value, rel_tol=CLOSE, abs_tol=1e-12) and not math.isnan(value):
            where = ", ".join(f"{axis}={label:g}" for axis, label in at.items())
            raise RunFailed(
                f"{path} does not agree with errors.safetensors at {where}: {value:.8g} and {mean:.8g}; {WAY_OUT}."
            )
