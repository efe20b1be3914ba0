"""Numbers of the findings: the cells of a metric, the best head, heads that saturate."""

import math
from dataclasses import replace

import numpy as np

from icl_lab.analyses.findings import known
from icl_lab.analyses.frame import ANY, Metric, StoredGrids
from icl_lab.analyses.saturation.measure import AGAINST, ALL, BY_LAYER, FROM_LAYER, METRICS, NORMS
from icl_lab.base.grid import Grid
from icl_lab.comparison.given import Array

# The first metric of ``Stretchable.disturbed``, of numbers and of classes: patches undo it.
HARM = ("mse", "balanced-last")
PATCHED = "patched"  # of single prompts: that error with the attention of all heads put back
BEFORE, AFTER = 0.5, 0.9  # a head saturates where its largest weight climbs from below the one to above the other
# On the number: heads are ranked by it.
WEIGHTS = {"deviant": METRICS["deviant"], AGAINST: f"{METRICS['deviant']}, against the truth"}
# Of heads, apart from the mean over all of them.
WHICH = {"last": "last layer, mean", "last-best": "last layer, best head", "best": "any layer, best head"}
SUMMARIES = {f"{weight}-{which}": (weight, which) for weight in WEIGHTS for which in WHICH}
AT = ("factor",)  # what claims name
SQUARED = Metric("errors", AT, kind="error")  # which "nothing" is no error of
TOGETHER, AFTER_LAYER = {"layer": [ALL]}, ("layer",)  # parts put back in all layers, and after the last one
CLAIMED = {
    "recovered": Metric("patches", AT, usual={**TOGETHER, "head": [ALL]}, constants=True),
    **dict.fromkeys(METRICS, Metric("heads", AT, constants=True)),
    **dict.fromkeys(("largest", "distance", *WEIGHTS, *SUMMARIES), Metric("heads", AT, kind="share", constants=True)),
    **{f"{kind}-healed": Metric("stream", AT, usual=TOGETHER, constants=True) for kind in BY_LAYER},
    **{f"{kind}-healed": Metric("stream", AT, last=AFTER_LAYER, constants=True) for kind in FROM_LAYER},
    **{f"{part}-norm": Metric("stream", AT, last=AFTER_LAYER, constants=True) for part in NORMS},
    **dict.fromkeys(("mse", "last"), SQUARED),
    ANY: replace(SQUARED, constants=True),
}


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


def heads_named(cells: Grid, which: str) -> Grid:
    """The cells of the heads of a name in ``WHICH``: those of the last layer, or one of each model at each factor."""
    frame = cells.frame
    if which != "best":
        frame = frame[frame["layer"] == frame["layer"].max()]
    if which != "last":
        frame = frame.sort_values(["value", "layer", "head"]).groupby(["attn", "seed", "factor"]).tail(1)
    return Grid(frame)


def whole(found: StoredGrids, rule: str, factor: float, metric: str) -> list[float]:
    """A metric of patches or of the stream, in the cells that it has where none is named: one number a seed."""
    declared = CLAIMED[metric]
    own = found[declared.grid].where(attn=rule, factor=factor, metric=metric, **declared.usual)
    return list(own.where(**{axis: max(own.values(axis)) for axis in declared.last}).frame["value"])


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
