"""Numbers read from what was found: curves of heads, the best head, and the quantities that claims are about."""

import math

import numpy as np

from icl_lab.analyses import per_prompt
from icl_lab.analyses.factors import factors_of
from icl_lab.analyses.findings import StoredGrids, known
from icl_lab.analyses.frame import Cells
from icl_lab.analyses.saturation.attention import AGAINST, METRICS, saturation_point
from icl_lab.analyses.saturation.patching import ALL, BY_LAYER
from icl_lab.comparison.given import Array
from icl_lab.errors import Undefined
from icl_lab.grid import Grid

NOTHING = "reference:nothing"  # of claims: that something is more than nothing
# The first metric of ``Stretchable.disturbed``, of numbers and of classes: what patches undo.
HARM = ("mse", "balanced-last")
RATES = (*HARM[1:], "last", "flip-with", "flip-against", "as-largest")  # of answers, where these are classes
PATCHED = "patched"  # of single prompts: that error with the attention of all heads put back
SQUARED = ("mse", "last")  # errors that are squared where the task's headline spans decades
# On the number: what heads are ranked by.
WEIGHTS = {"deviant": METRICS["deviant"], AGAINST: f"{METRICS['deviant']}, against the truth"}
# Of heads, beside the mean over all of them.
WHICH = {"last": "last layer, mean", "last-best": "last layer, best head", "best": "any layer, best head"}
SUMMARIES = {f"{weight}-{which}": (weight, which) for weight in WEIGHTS for which in WHICH}


def error_metric(found: StoredGrids) -> str:
    """The error that is shown: the mean squared one after the deviant, or else that of the last answer."""
    return "mse" if "mse" in found["errors"].values("metric") else "last"


def squared(found: StoredGrids, metric: str) -> bool:
    """True if a metric is a squared error, which spans decades."""
    return metric in SQUARED and "errors" in found.grids and "mse" in found["errors"].values("metric")


def saturating(found: StoredGrids, rule: str) -> tuple[list[float], int]:
    """The factors at which heads of a normalizer saturate, over all seeds, and the number of heads."""
    lines = found["heads"].where(attn=rule, metric="largest").lines("factor", "seed", "layer", "head")
    largest = [[point for point in line if point[0] >= 1] for line in lines]
    points = [saturation_point(*zip(*line, strict=True)) for line in largest]
    return known(points), len(points)


def recovered(found: StoredGrids, rule: str, factor: float) -> list[float]:
    """The share of the added error that patching all heads recovers, one number a seed."""
    return list(found["patches"].where(attn=rule, factor=factor, layer=ALL, head=ALL).frame["value"])


def best_head(
    found: StoredGrids, rule: str, seed: int, factor: float, last: bool, weight: str = "deviant"
) -> tuple[str, float]:
    """The head with the largest mean weight on the stretched number, as ``layer.head``, and that weight.

    Of the last layer only, if ``last``; ``weight`` is one of ``WEIGHTS``.
    """
    best = _named(found, rule, seed, factor, f"{weight}-{'last-best' if last else 'best'}").frame.iloc[0]
    return f"{best['layer']:g}.{best['head']:g}", float(best["value"])


def summarised(found: StoredGrids, rule: str, seed: int, factor: float, metric: str) -> float:
    """The weight on the stretched number in the heads that one of ``SUMMARIES`` names."""
    return float(_named(found, rule, seed, factor, metric).frame["value"].mean())


def _named(found: StoredGrids, rule: str, seed: int, factor: float, metric: str) -> Grid:
    """The cells of the heads that one of ``SUMMARIES`` names: those of the last layer, or a single one."""
    weight, which = SUMMARIES[metric]
    frame = found["heads"].where(attn=rule, seed=seed, factor=factor, metric=weight).frame
    if which != "best":
        frame = frame[frame["layer"] == frame["layer"].max()]
    if which != "last":
        frame = frame.sort_values(["value", "layer", "head"]).tail(1)
    return Grid(frame)


def healed(found: StoredGrids, rule: str, factor: float, metric: str) -> list[float]:
    """A metric of the residual stream, one number a seed: of all layers at once, or else of the last layer."""
    grid = found["stream"].where(attn=rule, factor=factor, metric=metric)
    return list(grid.where(layer=_layer(found, metric)).frame["value"])


def quantity(found: StoredGrids, of: str, cells: Cells, metric: str, seed: int) -> float:
    """The mean over the cells of a metric, or its mean logarithm where it is a squared error.

    Raises ``KeyError`` with a sentence where there is no such number.
    """
    metric = metric or "recovered"
    if of == NOTHING:
        if metric in SQUARED:
            raise KeyError(f"'{metric}' has no nothing to be compared with; take a share of it")
        return 0.0
    values = cells_of(found, of, cells, metric, seed).frame["value"]
    if squared(found, metric):
        return float(values.map(math.log).mean())
    value = float(values.mean())
    if math.isnan(value):
        raise Undefined("the growing number changed no answer, so there is nothing to recover")
    return value


def cells_of(found: StoredGrids, of: str, cells: Cells, metric: str, seed: int) -> Grid:
    """The cells that a quantity is the mean of; raises ``KeyError`` with a sentence where there are none."""
    factors = factors_of(cells)
    if metric in SUMMARIES:
        for axis in sorted({"layer", "head"} & set(cells)):
            raise KeyError(f"'{metric}' names its heads itself; leave out the {axis} of the cells")
        return Grid.join(_named(found, of, seed, factor, metric) for factor in factors)
    name = _grid(found, metric)
    if name not in found.grids:
        raise KeyError(f"'{metric}' stands in {name}.csv, which is not there")
    where: Cells = {}
    if name == "patches":
        where = {"layer": [ALL], "head": [ALL]}
    elif name == "stream":
        where = {"layer": [_layer(found, metric)]}
    where = {**where, **cells, "factor": factors}
    return found[name].where(attn=of, seed=seed, metric=metric, **where)


def recovered_on_resamples(found: StoredGrids, cells: Grid) -> Array | None:
    """The mean share that patching recovers on the prompts asked and on resamples of them, (1 + resamples).

    ``cells`` are rows of ``patches``. None where they are not of all heads, and where single prompts are not kept.
    """
    if "prompts" not in found.grids or set(cells.frame["layer"]) | set(cells.frame["head"]) != {ALL}:
        return None
    shares = []
    harm = next(metric for metric in HARM if metric in found["prompts"].values("metric"))
    for attn, seed, factor in cells.frame[["attn", "seed", "factor"]].itertuples(index=False, name=None):
        there = [
            Grid.of([{"attn": attn, "seed": seed, "factor": at, "metric": metric}], ["factor"])
            for at, metric in ((1.0, harm), (factor, harm), (factor, PATCHED))
        ]
        calm, spoiled, left = (per_prompt.on_resamples(found["prompts"], grid) for grid in there)
        if calm is None or spoiled is None or left is None:
            return None
        with np.errstate(divide="ignore", invalid="ignore"):
            shares.append((spoiled - left) / (spoiled - calm))
    # As in the value a factor that changed no answer is left out; where no factor did, a resample takes the value.
    drawn = np.ma.masked_invalid(shares).mean(axis=0)
    return np.asarray(drawn.filled(drawn[0]))


def _grid(found: StoredGrids, metric: str) -> str:
    if metric == "recovered":
        return "patches"
    if metric in (*METRICS, AGAINST):
        return "heads"
    if metric.endswith(("-healed", "-norm")):
        return "stream"
    return "errors"


def _layer(found: StoredGrids, metric: str) -> float:
    """The layer of a metric of the stream that names none: all at once where that is measured, or else the last."""
    whole = {f"{kind}-healed" for kind in BY_LAYER}
    return ALL if metric in whole else max(found["stream"].values("layer"))
