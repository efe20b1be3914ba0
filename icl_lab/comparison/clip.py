"""Errors of the right answer cut to a bound, and the bound that explains a row of errors best."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from icl_lab.base.errors import BadValue
from icl_lab.base.registry import require
from icl_lab.comparison.given import Array, finite, listed
from icl_lab.comparison.study import Labels, PairedGrids
from icl_lab.runs.measure import TestSpec, draw
from icl_lab.tasks.base import Prompt, Task

BOUND_STEP = 0.25  # between the bounds that are tried; the published alignment was made in these steps


@dataclass(frozen=True)
class ClipFit:
    """The clip model nearest to a row of errors."""

    bound: float
    residual: float  # root mean square of log(clip model / row)
    fitted: tuple[float, ...]  # the clip model's error in each cell of the row
    edge: bool  # the best bound is the first or the last that was tried: no minimum was found


def clip_errors(targets: Sequence[ArrayLike], bounds: ArrayLike) -> Array:
    """The squared error of the right answer cut to +-B, (cell bound). targets: the true y of each cell.

    Formula: mean (max(|y| - B, 0))^2
    """
    tries = finite("bounds", bounds)
    table = np.empty((len(targets), len(tries)))
    for cell, wanted in enumerate(targets):
        size = np.sort(np.abs(finite("targets", wanted)), axis=None)[::-1]
        # Sums over the largest 0, 1, 2, ... values: every bound is then three numbers, not a pass over all targets.
        first, second = (np.concatenate(([0.0], np.cumsum(power))) for power in (size, size**2))
        above = len(size) - np.searchsorted(size[::-1], tries, side="right")
        table[cell] = (second[above] - 2 * tries * first[above] + tries**2 * above) / len(size)
    return np.maximum(table, 0)


def clip_fit(targets: Sequence[ArrayLike], errors: ArrayLike, bounds: ArrayLike | None = None) -> ClipFit:
    """Find the bound B whose clip model explains a row best. targets: the true y behind each cell of the row.

    Formula: B minimising sqrt(mean over cells of log(mean (max(|y| - B, 0))^2 / mse)^2), in steps of 0.25
    """
    row = np.log(finite("errors", errors, positive=True))
    require(len(row) == len(targets), f"{len(row)} errors need as many sets of targets", len(targets))
    if bounds is None:
        top = max(float(np.abs(finite("targets", y)).max()) for y in targets)
        require(top > BOUND_STEP, f"targets must go beyond the smallest bound {BOUND_STEP}", top)
        bounds = np.arange(BOUND_STEP, top, BOUND_STEP)
    tries = finite("bounds", bounds)
    table = clip_errors(targets, tries)
    with np.errstate(divide="ignore"):  # a bound that no target of a cell reaches: error 0, infinitely far
        residuals = np.sqrt(np.mean((np.log(table) - row[:, None]) ** 2, axis=0))
    best = int(np.argmin(residuals))
    require(bool(np.isfinite(residuals[best])), "a bound must be below the largest target of every cell", listed(tries))
    fitted = tuple(float(value) for value in table[:, best])
    return ClipFit(float(tries[best]), float(residuals[best]), fitted, best in (0, len(tries) - 1))


def clip_model(study: PairedGrids, rule: str, test: TestSpec) -> ClipFit | None:
    """The bound B for which ``clip(y, -B, B)`` explains a row along the clip axis best, on the same prompts.

    A normalizer that scores no better than a clip has learned the line and bounded it (arXiv 2508.14685, Table 1). Near
    the training distribution the error is that of learning, not of a bound: ``Task.clip`` says from where it is judged.
    None where the task declares no clip axis, fewer than two such cells exist, or an error is not finite.
    """
    clip = study.task.clip
    line = [cell for cell in study.line(clip.axis) if cell[clip.axis] >= clip.start] if clip else []
    if len(line) < 2:
        return None
    targets = [scored_targets(study.task, test, cell) for cell in line]
    errors = [sum(study.values(rule, cell)) / study.seeds for cell in line]
    return clip_fit(targets, errors) if np.isfinite(errors).all() else None


def scored_targets(task: Task, test: TestSpec, cell: Labels) -> np.ndarray:
    """Return the true answers behind a cell of the headline, on the prompts that measured it.

    Raises ``BadValue`` where the task declares no clip axis.
    """
    shift = {axis: value for axis, value in cell.items() if axis != "length"}
    prompt = draw(task, test.lengths[-1], test, shift).first(task.tokens(int(cell["length"])))
    return clip_targets(task, prompt)


def clip_targets(task: Task, prompt: Prompt) -> np.ndarray:
    """Return the true answers behind the headline, (b q); raises ``BadValue`` where ``Task.clip`` is None."""
    if task.clip is None:
        raise BadValue(f"{task.name} has no answers that could be cut at a bound; take linear.")
    return np.asarray(prompt.targets[:, task.answers][:, task.scored_from :].numpy())
