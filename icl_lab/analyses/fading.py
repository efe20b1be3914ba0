"""How the attention of a trained model changes with the number of keys: does its largest weight fade?

Softmax over n keys with bounded scores must spread: its largest weight falls as 1/n in the end (arXiv 2410.01104).
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from icl_lab.analyses.observe import attention_rows, entropy, inverse_temperature, shares
from icl_lab.model.gpt2 import GPT2
from icl_lab.runs.measure import TestSpec, draw, summary
from icl_lab.tasks.base import Task

Row = dict[str, Any]
METRICS = ("largest", "entropy", "effective", "temperature")


def fading(
    model: GPT2,
    task: Task,
    lengths: Sequence[int],
    prompts: int,
    device: torch.device,
    tick: Callable[[int, int], object] = lambda done, total: None,
) -> list[Row]:
    """Measures the row at which a prompt is asked last, in every layer and head, at each length.

    Metrics: ``largest`` weight; ``entropy`` / log n; ``effective`` keys, exp(entropy); ``temperature``, the effective
    inverse temperature. n is the number of keys that the row sees. Signed weights count by their size.
    """
    suite = task.balanced
    rows: list[Row] = []
    for done, length in enumerate(lengths):
        prompt = draw(suite, length, TestSpec(prompts=prompts, axes={"length": [float(length)]}), {})
        at = task.asking(length)
        found: dict[str, list[torch.Tensor]] = {metric: [] for metric in METRICS}
        for look in attention_rows(model, prompt, at, device):
            spread = entropy(look.weights)
            found["largest"].append(shares(look.weights).amax(-1))
            found["entropy"].append(spread / math.log(at + 1))
            found["effective"].append(spread.exp())
            found["temperature"].append(inverse_temperature(look.weights, look.scores))
        for metric, pieces in found.items():
            values = torch.cat(pieces)
            for layer, head in np.ndindex(*values.shape[1:]):
                where = {"layer": layer, "head": head, "length": length, "keys": at + 1, "metric": metric}
                rows.append(where | summary(values[:, layer, head]))
        tick(done + 1, len(lengths))
    return rows


def slope(keys: Sequence[float], largest: Sequence[float]) -> float:
    """The slope of log(largest weight) on log n: 0 keeps its focus, -1 fades as fast as a mean does."""
    return float(np.polyfit(np.log(keys), np.log(np.maximum(largest, 1e-300)), 1)[0])
