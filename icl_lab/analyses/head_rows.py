"""What heads usually look at: statistics of their attention at several places of a prompt, under every shift."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from icl_lab.analyses.observe import entropy, shares, watchable
from icl_lab.model.gpt2 import GPT2
from icl_lab.runs.measure import summary
from icl_lab.tasks.base import Prompt

Row = dict[str, Any]


def statistics(weights: Tensor, roles: int) -> dict[str, Tensor]:
    """The row of the last of n keys, (... n), to its statistics, each (...). Signed weights count by their size.

    ``largest`` weight; ``top-2`` and ``top-5`` mass; ``entropy`` / log n; ``effective`` keys exp(entropy); the mass on
    the ``first`` token (a sink), on the token ``itself`` and on the ``previous`` one; and, where an example has two
    tokens, on ``numbers`` (x) and on ``answers`` (y). One visible key has entropy 0.
    """
    p = shares(weights)
    n = p.shape[-1]
    spread = entropy(weights)
    top = p.topk(min(5, n), dim=-1).values
    found = {
        "largest": top[..., 0],
        "top-2": top[..., :2].sum(-1),
        "top-5": top.sum(-1),
        "entropy": spread / math.log(n) if n > 1 else spread,
        "effective": spread.exp(),
        "first": p[..., 0],
        "itself": p[..., -1],
        "previous": p[..., -2] if n > 1 else torch.zeros_like(p[..., 0]),
    }
    if roles == 2:
        found |= {"numbers": p[..., ::2].sum(-1), "answers": p[..., 1::2].sum(-1)}
    return found


@torch.no_grad()
def habits(
    model: GPT2, prompt: Prompt, places: Mapping[int, int], roles: int, device: torch.device, where: Row
) -> list[Row]:
    """Measures the rows of some tokens in every layer and head; ``places`` maps an index of the grid to its token."""
    found: dict[tuple[int, int, str], list[Tensor]] = {}

    def see(layer: int, weights: Tensor, scores: Tensor) -> None:
        for index, token in places.items():
            for metric, values in statistics(weights[:, :, token, : token + 1].cpu(), roles).items():
                found.setdefault((layer, index, metric), []).append(values)

    for piece in watchable(model, prompt):
        model(piece.tokens.to(device), see)
    rows: list[Row] = []
    for (layer, index, metric), pieces in found.items():
        values = torch.cat(pieces)
        place = {**where, "layer": layer, "index": index, "metric": metric}
        rows += [{**place, "head": head, **summary(column)} for head, column in enumerate(values.unbind(1))]
    return rows


def spread_out(length: int, places: int = 6) -> Sequence[int]:
    """Numbers of answers from the first to the last, logarithmically: heads change most where prompts begin."""
    return sorted({round(value) for value in np.geomspace(1, length, places).tolist()})
