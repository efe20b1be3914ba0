"""Softmax over the largest scores alone."""

import math

import torch
from torch import Tensor
from torch.nn import functional as F

from icl_lab.base.registry import require
from icl_lab.normalizers import registry
from icl_lab.normalizers.base import RowWise, Site, additive_mask, scores, softmax

MOST = 1_000_000  # keys


@registry.add("top-k")
class TopK(RowWise):
    """Softmax over the k keys of the largest scores; all others get exactly 0.

    Formula: w_j = exp(z_j) / sum_i exp(z_i) over the k largest z
    Paper: Gupta et al. 2021, arXiv 2106.06899

    Keys that tie with the k-th are kept as well, so that no order among them is needed. Which keys are kept has no
    gradient. A row that sees k keys or fewer is softmax.
    """

    def __init__(self, site: Site, *, k: int = 8) -> None:
        super().__init__()
        require(1 <= k <= MOST, f"k must be >= 1 and at most {MOST:,}", k)
        self.k = k

    def rows(self, q: Tensor, k: Tensor, visible: Tensor, bias: Tensor | None = None) -> Tensor:
        z = scores(q, k, bias)
        if not torch.compiler.is_exporting() and z.shape[-1] <= self.k:
            return softmax(z, visible)
        seen = z.detach() + additive_mask(visible, z.dtype)
        if torch.compiler.is_exporting():  # a graph for every length: hidden keys make each row long enough
            seen = F.pad(seen, (0, self.k), value=-math.inf)
        least = seen.topk(self.k, dim=-1).values[..., -1:]
        return softmax(z, visible & (seen[..., : z.shape[-1]] >= least))
