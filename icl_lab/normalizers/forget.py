"""Forgetting attention: each token says how much of what came before it is to be forgotten."""

from collections.abc import Mapping

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from icl_lab.normalizers import registry
from icl_lab.normalizers.base import Normalizer, Site, below_peak, is_causal, linear_map, scores, softmax, upcast
from icl_lab.normalizers.starts import normal


@registry.add("forget")
class Forget(Normalizer):
    """Softmax in which every token's forget gate, a sigmoid of the token, weakens all keys before it.

    Formula: w_ij = softmax_j(z_ij + sum_{j < l <= i} log f_l), f_l = sigmoid(W x_l + b), one for each head
    Paper: Forgetting Transformer 2025, arXiv 2503.02130, Section 3

    x is the token as the queries read it. The sum goes over the tokens after j that row i sees. W starts N(0, 0.02)
    and b at 0, as in the public code, W from a fixed address: the same for every seed of a training. The paper needs
    no other position code; its block "Pro" (output gate, norms, shifts of keys and values) is left out, the gate being
    ``forget+gated:per=channel``.
    """

    ordered = True
    one_sided = True
    row_wise = True
    reads_tokens = "weights"
    learned = ("b",)
    maps: Mapping[str, str] = {"w": "width"}

    def __init__(self, site: Site) -> None:
        super().__init__()
        self.w = normal(site, "forget", "w", site.heads, site.token_width)
        self.b = nn.Parameter(torch.zeros(site.heads))

    def weights(
        self, q: Tensor, k: Tensor, visible: Tensor, bias: Tensor | None = None, x: Tensor | None = None
    ) -> Tensor:
        kept = F.logsigmoid(linear_map(upcast(self.tokens(x, k)), self.w, self.b)).transpose(-1, -2)  # log f, (b h t)
        z = below_peak(scores(upcast(q), upcast(k), bias), visible)  # large scores would round the gates away
        return softmax(z + _since(kept, visible), visible).to(q.dtype)


def _since(kept: Tensor, visible: Tensor) -> Tensor:
    """log f (b h t) -> the sum of those after key j that row i sees, (b h t t)."""
    if is_causal(visible):
        total = kept.cumsum(-1)
        return total.unsqueeze(-1) - total.unsqueeze(-2)
    seen = kept.unsqueeze(-2) * visible
    return seen.sum(-1, keepdim=True) - seen.cumsum(-1)
