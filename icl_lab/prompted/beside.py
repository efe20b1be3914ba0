"""Trained models beside a prompted one: the same cells, and the prompts that both met."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from torch import Tensor

from icl_lab.comparison.statistics import Effect, Scale, evaluation_interval, paired
from icl_lab.errors import BadValue
from icl_lab.figures.base import short
from icl_lab.prompted.question import Plan
from icl_lab.runs.measure import Errors
from icl_lab.runs.run import Run
from icl_lab.runs.spec import RunSpec, resolve
from icl_lab.runs.store import Store

Labels = Mapping[str, float]


@dataclass(frozen=True)
class Beside:
    """The finished runs of one rule, along the axis of the table: its values by seed, and effects where paired."""

    attn: str
    seeds: Sequence[int]
    by_place: Mapping[float, list[float]]
    effects: Mapping[float, Effect] = field(default_factory=dict)

    @property
    def seeds_words(self) -> str:
        """How many trainings stand behind it."""
        return f"{len(self.seeds)} seed{'s' * (len(self.seeds) != 1)}"

    def values(self, place: float) -> list[float]:
        """The headline by seed; empty where that cell was not tested."""
        return self.by_place.get(place, [])

    def cell(self, place: float) -> str:
        """The mean over seeds with their standard deviation."""
        values = self.values(place)
        if not values:
            return ""
        mean = short(float(np.mean(values)))
        return f"{mean} (sd {short(float(np.std(values, ddof=1)))})" if len(values) > 1 else mean

    def versus_words(self, place: float) -> str:
        """The prompted model against this rule: a ratio or a difference with its interval."""
        effect = self.effects.get(place)
        if effect is None:
            return ""
        middle, low, high = effect.ratio if effect.scale == "log-ratio" else (effect.effect, effect.low, effect.high)
        sign = "x " if effect.scale == "log-ratio" else ""
        return f"{sign}{short(middle)} [{short(low)}, {short(high)}]"


def runs_of(store: Store, task: str, attn: str, preset: str) -> list[Run]:
    """Returns the finished runs of a rule at a preset, as it stands; raises ``BadValue`` where there is none."""
    spec: RunSpec = resolve(task, attn, preset)
    found = [run for seed in store.seeds(spec) if (run := store.run(spec, seed)).finished and not run.diverged]
    if not found:
        raise BadValue(
            f"--against {attn}: no finished run of {task} at preset {preset} is stored here; train one: icl-lab sweep "
            f"--task {task} --attn {attn} --preset {preset}."
        )
    return found


def beside(
    runs: Sequence[Run], plan: Plan, axis: str, columns: Sequence[float], here: Labels, ours: Mapping[float, Tensor]
) -> Beside:
    """Reads the runs of one rule along an axis, the other axes as in ``here``, facets averaged.

    ``ours`` holds what each prompt adds to the headline of the prompted model, (b), at a place of the axis.
    """
    task, found, effects = plan.task, dict[float, list[float]](), dict[float, Effect]()
    fixed = {name: value for name, value in here.items() if name not in (axis, *task.facets)}
    measured = [run.measured() for run in runs]
    # Beginnings of one longest prompt are other draws than those of another.
    met = runs[0].spec.test.lengths[-1] == plan.test.lengths[-1] or not any(s.prefixes for s in plan.suites.values())
    for place in columns:
        cell = {**fixed, axis: place}
        try:
            found[place] = [
                float(grid.where(attn=run.name, metric=task.headline, **cell).frame["value"].mean(skipna=False))
                for run, (grid, _) in zip(runs, measured, strict=True)
            ]
        except KeyError:  # a cell that the runs were not tested in stays empty
            continue
        kept = [errors for _, errors in measured if errors is not None]
        if (
            met
            and place in ours
            and len(kept) == len(runs)
            and (effect := _effect(kept, cell, ours[place], task.log_scale))
        ):
            effects[place] = effect
    return Beside(runs[0].spec.attn, [run.seed for run in runs], found, effects)


def _effect(kept: Sequence[Errors], cell: Labels, ours: Tensor, log: bool) -> Effect | None:
    """The prompted model against a rule, on the prompts that both met; None where no interval can be told."""
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
