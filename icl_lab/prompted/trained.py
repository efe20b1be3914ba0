"""Trained models compared with a prompted one: finished runs of a normalizer, on the prompts that both met."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from torch import Tensor

from icl_lab.comparison.statistics import Effect, Scale, evaluation_interval, paired
from icl_lab.errors import BadValue
from icl_lab.figures.base import short
from icl_lab.prompted.slice import Slice
from icl_lab.runs.measure import Errors
from icl_lab.runs.run import Run
from icl_lab.runs.spec import resolve
from icl_lab.runs.store import Store


@dataclass(frozen=True)
class TrainedRuns:
    """Finished runs of one normalizer along the axis: the headline by seed, and effects where prompts are paired."""

    attn: str
    seeds: int
    values: Mapping[float, list[float]]
    effects: Mapping[float, Effect]

    def cell(self, place: float) -> str:
        """The mean over seeds with their standard deviation; empty where the cell was not tested."""
        values = self.values.get(place, [])
        if not values:
            return ""
        mean = short(float(np.mean(values)))
        return f"{mean} (sd {short(float(np.std(values, ddof=1)))})" if len(values) > 1 else mean

    def versus(self, place: float) -> str:
        """The prompted model against this normalizer: a ratio or a difference with its interval."""
        effect = self.effects.get(place)
        if effect is None:
            return ""
        ratio = effect.scale == "log-ratio"
        middle, low, high = effect.ratio if ratio else (effect.effect, effect.low, effect.high)
        return f"{'x ' if ratio else ''}{short(middle)} [{short(low)}, {short(high)}]"


def runs_of(store: Store, task: str, attn: str, preset: str) -> list[Run]:
    """Returns the finished runs of a normalizer at a preset; raises ``BadValue`` where there is none."""
    spec = resolve(task, attn, preset)
    found = [run for seed in store.seeds(spec) if (run := store.run(spec, seed)).finished and not run.diverged]
    if not found:
        raise BadValue(
            f"--against {attn}: no finished run of {task} at preset {preset} is stored here; train one: icl-lab sweep "
            f"--task {task} --attn {attn} --preset {preset}."
        )
    return found


def trained(runs: Sequence[Run], part: Slice, ours: Errors) -> TrainedRuns:
    """Reads the runs of one normalizer; ``ours`` are the contributions of each prompt of the prompted model."""
    study, values, effects = part.study, dict[float, list[float]](), dict[float, Effect]()
    task, grids = study.task, [run.measured() for run in runs]
    kept = [errors for _, errors in grids if errors is not None]
    # Beginnings of one longest prompt are other draws than those of another.
    drawn_alike = runs[0].spec.test.lengths[-1] == study.test.lengths[-1]
    met = drawn_alike or not any(suite.prefixes for suite in study.suites.values())
    paired_here = met and len(study.digits) == 1 and len(kept) == len(runs)
    for place in part.places:
        cell = {**part.fixed, part.axis: place}
        try:
            values[place] = [
                float(grid.where(attn=run.name, metric=task.headline, **cell).frame["value"].mean(skipna=False))
                for run, (grid, _) in zip(runs, grids, strict=True)
            ]
        except KeyError:  # a cell that the runs were not tested in stays empty
            continue
        if paired_here and (effect := _effect(kept, cell, ours.at(cell), task.log_scale)):
            effects[place] = effect
    return TrainedRuns(runs[0].spec.attn, len(runs), values, effects)


def _effect(kept: Sequence[Errors], cell: Mapping[str, float], ours: Tensor, log: bool) -> Effect | None:
    """The prompted model against a normalizer on the prompts that both met; None where there is no interval."""
    theirs = np.stack([errors.at(cell).double().numpy() for errors in kept])
    both = min(theirs.shape[1], len(ours))
    if both < 2:
        return None
    a, b = theirs[:, :both], np.tile(ours[:both].double().numpy(), (len(kept), 1))
    if not (np.isfinite(a).all() and np.isfinite(b).all()) or (log and min(a.mean(1).min(), b.mean(1).min()) <= 0):
        return None
    scale: Scale = "log-ratio" if log else "difference"
    try:
        noise = evaluation_interval(a, b, seed=0, scale=scale)
    except BadValue:  # a resample without any error has no logarithm
        return None
    effect = paired(a.mean(1), b.mean(1), scale).widened(noise)
    return None if math.isnan(effect.effect) else effect
