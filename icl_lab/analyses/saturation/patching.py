"""Activation patching: the attention of the undisturbed prompt put in the place of the disturbed one, head by head.

The part of the error that goes away is what the attention pattern caused; what stays came by another way (values,
norms). For the method see arXiv 2309.16042.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from icl_lab.model.gpt2 import GPT2
from icl_lab.runs.measure import judged, summary
from icl_lab.tasks.base import Prompt
from icl_lab.tasks.capabilities import Stretchable

Row = dict[str, Any]
ALL = -1  # the layer or the head of a row: all of them at once


@torch.no_grad()
def patch(
    model: GPT2, task: Stretchable, undisturbed: Prompt, at: int, factor: float, device: torch.device
) -> tuple[list[Row], Tensor]:
    """Returns the share of the added error that patching heads recovers, and what is left of it in each prompt.

    Formula: recovered = (E - E_patched) / (E - E_undisturbed), E the first metric of ``Stretchable.disturbed``

    A row for each ``layer`` and ``head``, for all heads of a layer, and for all heads (``ALL``). 1: without the
    deviant's error; 0: patching changes nothing; below 0: it makes the error greater; NaN: the deviant changed none.
    What is left is the error with all heads patched, (b) or (b g).
    """
    disturbed = task.deviate(undisturbed, [at], factor)
    kept: dict[int, Tensor] = {}

    def keep(layer: int, weights: Tensor, scores: Tensor) -> None:
        kept[layer] = weights

    before = judged(task, model(undisturbed.tokens.to(device), keep).cpu(), undisturbed)

    def errors(prompt: Prompt, watch: Callable[[int, Tensor, Tensor], Tensor | None] | None = None) -> Tensor:
        after = judged(task, model(prompt.tokens.to(device), watch).cpu(), prompt)
        return next(iter(task.disturbed(before, after, prompt, [at]).values()))

    without, spoiled = (summary(errors(prompt))["value"] for prompt in (undisturbed, disturbed))
    layers, heads = len(kept), kept[0].shape[1]
    single = [(layer, head) for layer in range(layers) for head in range(heads)]
    rows: list[Row] = []
    for layer, head in [*single, *((layer, ALL) for layer in range(layers)), (ALL, ALL)]:

        def replace(there: int, weights: Tensor, scores: Tensor, layer: int = layer, head: int = head) -> Tensor | None:
            if layer not in (ALL, there):
                return None
            if head == ALL:
                return kept[there]
            patched = weights.clone()
            patched[:, head] = kept[there][:, head]
            return patched

        patched = errors(disturbed, replace)
        left = summary(patched)["value"]
        share = (spoiled - left) / (spoiled - without) if spoiled != without else float("nan")
        row = {"layer": layer, "head": head, "factor": factor, "metric": "recovered", "value": share}
        rows.append({**row, "stderr": None, "count": len(undisturbed.tokens)})
    return rows, patched  # all heads came last
