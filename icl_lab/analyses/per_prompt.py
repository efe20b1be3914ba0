"""Contribution of each prompt to the numbers of an analysis: kept as rows of a grid, and resampled for claims."""

from collections.abc import Mapping

import numpy as np
from torch import Tensor

from icl_lab.analyses.findings import Row
from icl_lab.comparison.given import Array
from icl_lab.comparison.statistics import resampled
from icl_lab.grid import Grid
from icl_lab.runs.measure import influences

SEEDS = 5  # the prompts of the first training seeds are kept and stand for those of all: tables stay small
DIGITS = 5  # of what is kept


def rows(seed: int, where: Row, metrics: Mapping[str, Tensor]) -> list[Row]:
    """Metrics, (b) or (b g), NaN where a prompt does not count -> rows of the grid ``prompts``, one a prompt.

    The mean over the rows of a metric is the value of its cell. None from the sixth training seed on.
    """
    if seed >= SEEDS:
        return []
    return [
        {**where, "prompt": prompt, "metric": metric, "value": float(f"{value:.{DIGITS}g}"), "stderr": None, "count": 1}
        for metric, values in metrics.items()
        for prompt, value in enumerate(influences(values).tolist())
    ]


def on_resamples(prompts: Grid, cells: Grid, *, logarithm: bool = False) -> Array | None:
    """The mean of some cells, or of their logarithms, on the prompts asked and on resamples, (1 + resamples).

    None where the prompts of one of them are not kept.
    """
    labels = ["attn", "seed", "metric", *(axis for axis in prompts.axes if axis != "prompt")]
    kept = prompts.by(*labels)
    chosen = list(dict.fromkeys(cells.frame[labels].itertuples(index=False, name=None)))
    if any(cell not in kept for cell in chosen):
        return None
    means = resampled([kept[cell] for cell in chosen], seed=0)
    return np.asarray((np.log(means) if logarithm else means).mean(axis=1))
