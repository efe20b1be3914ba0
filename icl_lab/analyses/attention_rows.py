"""The attention of a trained model at one token: its weights and scores in every layer and head.

Normalizers may give weights of either sign; everything that needs a distribution uses ``shares``.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from icl_lab.analyses.findings import Row
from icl_lab.model.gpt2 import GPT2
from icl_lab.runs.measure import fitting, summary
from icl_lab.tasks.base import Prompt


@dataclass(frozen=True)
class AttentionRow:
    """Some prompts, the model's outputs (b t c), and what one token attends to: weights and scores (b l h t)."""

    prompt: Prompt
    outputs: Tensor
    weights: Tensor
    scores: Tensor


def watchable(model: GPT2, prompt: Prompt) -> Iterator[Prompt]:
    """Yield the prompts in pieces that leave room for weights and scores next to a forward pass."""
    return fitting(prompt, lambda t: 2 * model.bytes_a_prompt(t))


@torch.no_grad()
def attention_rows(model: GPT2, prompt: Prompt, row: int, device: torch.device) -> Iterator[AttentionRow]:
    """Yield what token ``row`` (from 0) attends to, for as many prompts at once as memory allows.

    t is the number of keys that it sees, row + 1. All tensors are on the CPU.
    """
    for piece in watchable(model, prompt):
        weights: list[Tensor] = []
        scores: list[Tensor] = []

        def see(
            layer: int, w: Tensor, z: Tensor, weights: list[Tensor] = weights, scores: list[Tensor] = scores
        ) -> None:
            weights.append(w[:, :, row, : row + 1].cpu())
            scores.append(z[:, :, row, : row + 1].cpu())

        outputs = model(piece.tokens.to(device), watch=see).cpu()
        yield AttentionRow(piece, outputs, torch.stack(weights, 1), torch.stack(scores, 1))


def shares(weights: Tensor) -> Tensor:
    """Weights (... t) of any sign -> |w| / sum |w|, which for a normalizer that averages are the weights themselves."""
    sizes = weights.double().abs()
    return sizes / sizes.sum(-1, keepdim=True).clamp(min=1e-300)


def on_places(p: Tensor) -> dict[str, Tensor]:
    """Shares of the last of n keys, (... n), on the first token, on the token itself and on the one before."""
    before = p[..., -2] if p.shape[-1] > 1 else torch.zeros_like(p[..., 0])
    return {"first": p[..., 0], "itself": p[..., -1], "previous": before}


def entropy(weights: Tensor) -> Tensor:
    """Weights (... t) -> the entropy of their shares in nats, (...)."""
    found: Tensor = torch.special.entr(shares(weights)).sum(-1)
    return found


def statistics(weights: Tensor, roles: int = 1) -> dict[str, Tensor]:
    """The weights that the last of n keys gives, (... n), to their statistics, each (...). Signed ones count by size.

    ``largest`` weight; ``top-2`` and ``top-5`` sums; ``entropy`` / log n; ``effective`` keys exp(entropy); the weight
    on the ``first`` token (a sink), on the token ``itself`` and on the ``previous`` one; the share of keys whose weight
    is ``negative``; and, where an example has two tokens, the weight on ``numbers`` (x) and on ``answers`` (y). One
    visible key has entropy 0.
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
        **on_places(p),
        "negative": (weights < 0).double().mean(-1),
    }
    if roles == 2:
        found |= {"numbers": p[..., ::2].sum(-1), "answers": p[..., 1::2].sum(-1)}
    return found


def head_rows(metrics: Mapping[str, Tensor], where: Row) -> list[Row]:
    """Metrics (b l h) -> a row of a grid for each metric, layer and head: the mean over the prompts, its error."""
    return [
        {**where, "layer": layer, "head": head, "metric": metric} | summary(values[:, layer, head])
        for metric, values in metrics.items()
        for layer, head in np.ndindex(*values.shape[1:])
    ]
