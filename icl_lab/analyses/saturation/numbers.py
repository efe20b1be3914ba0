"""Numbers of the findings: the cells of a metric, the best head, heads that saturate."""

import math

import numpy as np

from icl_lab.analyses.findings import StoredGrids, factors_of, known
from icl_lab.analyses.frame import Cells
from icl_lab.analyses.saturation.measure import AGAINST, ALL, BY_LAYER, METRICS
from icl_lab.base.grid import Grid
from icl_lab.comparison.given import Array

# The first metric of ``Stretchable.disturbed``, of numbers and of classes: patches undo it.
HARM = ("mse", "balanced-last")
RATES = (*HARM[1:], "last", "flip-with", "flip-against", "as-largest")  # of answers, where these are classes
PATCHED = "patched"  # of single prompts: that error with the attention of all heads put back
SQUARED = ("mse", "last")  # errors that are squared where the task's headline spans decades
BEFORE, AFTER = 0.5, 0.9  # a head saturates where its largest weight climbs from below the one to above the other
# On the number: heads are ranked by it.
WEIGHTS = {"deviant": METRICS["deviant"], AGAINST: f"{METRICS['deviant']}, against the truth"}
# Of heads, apart from the mean over all of them.
WHICH = {"last": "last layer, mean", "last-best": "last layer, best head", "best": "any layer, best head"}
SUMMARIES = {f"{weight}-{which}": (weight, which) for weight in WEIGHTS for which in WHICH}


def error_metric(found: StoredGrids) -> str:
    """The error that is shown: the mean squared one after the deviant, or else that of the last answer."""
    return "mse" if "mse" in found["errors"].values("metric") else "last"


def weights(found: StoredGrids) -> list[str]:
    """Return the ``WEIGHTS`` that were measured; heads are drawn by the last."""
    return [weight for weight in WEIGHTS if weight in found["heads"].values("metric")] or ["deviant"]


def saturation_point(factors: tuple[float, ...], largest: tuple[float, ...]) -> float:
    """The smallest factor at which a head's largest weight is above 0.9, if it is below 0.5 at the first; else NaN."""
    above = (factor for factor, weight in zip(factors, largest, strict=True) if weight > AFTER)
    return next(above, math.nan) if largest[0] < BEFORE else math.nan


def saturating(found: StoredGrids, rule: str) -> tuple[list[float], int]:
    """The factors from 1 up at which heads of a normalizer saturate, over all seeds, and the number of heads."""
    lines = found["heads"].where(attn=rule, metric="largest").lines("factor", "seed", "layer", "head")
    points = [saturation_point(*zip(*(at for at in line if at[0] >= 1), strict=True)) for line in lines]
    return known(points), len(points)


def heads_named(found: StoredGrids, rule: str, seed: int, factor: float, metric: str) -> Grid:
    """The cells of the heads that one of ``SUMMARIES`` names: those of the last layer, or a single one."""
    weight, which = SUMMARIES[metric]
    frame = found["heads"].where(attn=rule, seed=seed, factor=factor, metric=weight).frame
    if which != "best":
        frame = frame[frame["layer"] == frame["layer"].max()]
    if which != "last":
        frame = frame.sort_values(["value", "layer", "head"]).tail(1)
    return Grid(frame)


def whole(found: StoredGrids, rule: str, factor: float, metric: str) -> list[float]:
    """A metric of patches or of the stream, in the cells that it has where none is named: one number a seed."""
    name, where = place(found, metric)
    return list(found[name].where(attn=rule, factor=factor, metric=metric, **where).frame["value"])


def place(found: StoredGrids, metric: str) -> tuple[str, Cells]:
    """The grid of a metric, and the layers and heads that it is about where none is named."""
    if metric == "recovered":
        return "patches", {"layer": [ALL], "head": [ALL]}
    if metric in (*METRICS, AGAINST):
        return "heads", {}
    if not metric.endswith(("-healed", "-norm")):
        return "errors", {}
    together = metric in {f"{kind}-healed" for kind in BY_LAYER}
    last = found["stream"].values("layer") if "stream" in found.grids else [ALL]
    return "stream", {"layer": [ALL if together else max(last)]}


def cells_of(found: StoredGrids, of: str, cells: Cells, metric: str, seed: int) -> Grid:
    """The cells that a quantity is the mean of; raises ``KeyError`` with a sentence where there are none."""
    factors = factors_of(cells)
    if metric in SUMMARIES:
        for axis in sorted({"layer", "head"} & set(cells)):
            raise KeyError(f"'{metric}' names its heads itself; leave out the {axis} of the cells")
        return Grid.join(heads_named(found, of, seed, factor, metric) for factor in factors)
    name, where = place(found, metric)
    if name not in found.grids:
        raise KeyError(f"'{metric}' stands in {name}.csv, which is not there")
    return found[name].where(attn=of, seed=seed, metric=metric, **{**where, **cells, "factor": factors})


def recovered_on_resamples(found: StoredGrids, cells: Grid) -> Array | None:
    """The mean share that patching recovers on the prompts asked and on resamples of them, (1 + resamples).

    ``cells`` are rows of ``patches``. None where they are not of all heads, and where single prompts are not kept.
    """
    if "prompts" not in found.grids or set(cells.frame["layer"]) | set(cells.frame["head"]) != {ALL}:
        return None
    shares, harm = [], next(metric for metric in HARM if metric in found["prompts"].values("metric"))
    for attn, seed, factor in cells.frame[["attn", "seed", "factor"]].itertuples(index=False, name=None):
        drawn = [
            found.on_resamples(Grid.of([{"attn": attn, "seed": seed, "factor": at, "metric": metric}], ["factor"]))
            for at, metric in ((1.0, harm), (factor, harm), (factor, PATCHED))
        ]
        if any(each is None for each in drawn):
            return None
        calm, spoiled, left = map(np.asarray, drawn)
        with np.errstate(divide="ignore", invalid="ignore"):
            shares.append((spoiled - left) / (spoiled - calm))
    # As in the value a factor that changed no answer is left out; where no factor did, a resample takes the value.
    mean = np.ma.masked_invalid(shares).mean(axis=0)
    return np.asarray(mean.filled(mean[0]))
