"""Threshold differential attention: cosines above a threshold that rises with the number of keys."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from icl_lab.base.registry import require
from icl_lab.normalizers import registry
from icl_lab.normalizers.base import RowWise, Site, clamped, count

LEAST = 1e-6  # a norm below this is none: a zero query would send gradients of 1/eps otherwise
MOST = 100.0  # as p and as the start of beta


@registry.add("threshold")
class Threshold(RowWise):
    """Powers of cosines above the largest that chance gives among n keys, less a share of the same of other channels.

    Formula: w = a(q1, k1) - clip(lam, 0, 1) a(q2, k2) of the halves of d channels each, or a(q, k) with
        ``differential=no``; a_j(q, k) = relu(cos(q, k_j) - beta sqrt(2 log n / d))^p
    Paper: Threshold Differential Attention 2026, arXiv 2601.12145, and its public code

    The largest of n cosines of random directions in many dimensions is about sqrt(2 log n / d), so that the number of
    keys that pass by chance does not grow with the prompt. Rows have no sum to keep and may be empty. lam starts at 0.5
    as in the examples of the public code, beta at 0.5 where these have 1: below about 64 channels no cosine reaches
    that threshold, and what nothing passes learns nothing. Both belong to a head here, and to a layer there. The halves
    are the even and the odd channels, as in ``differential``.
    """

    sums_to_one = False
    learned: tuple[str, ...] = ("beta", "lam")

    def __init__(self, site: Site, *, p: float = 2.0, beta: float = 0.5, differential: bool = True) -> None:
        super().__init__()
        require(1 <= p <= MOST, f"p must be >= 1 and at most {MOST:g}", p)
        require(0 <= beta <= MOST, f"beta must be >= 0 and at most {MOST:g}", beta)
        require(
            not differential or site.head_dim % 2 == 0,
            "the width of a head must be even, for two halves",
            site.head_dim,
        )
        self.p, self.non_negative = p, not differential
        self.beta = nn.Parameter(torch.full((site.heads,), beta))
        self.lam = nn.Parameter(torch.full((site.heads,), 0.5)) if differential else None
        self.learned = ("beta", "lam") if differential else ("beta",)

    def rows(self, q: Tensor, k: Tensor, visible: Tensor, bias: Tensor | None = None) -> Tensor:
        if self.lam is None:
            return self._above(q, k, visible, bias)
        first, second = (self._above(q[..., half::2], k[..., half::2], visible, bias) for half in (0, 1))
        return first - clamped(self.lam.to(q.dtype), 0, 1).view(-1, 1, 1) * second

    def _above(self, q: Tensor, k: Tensor, visible: Tensor, bias: Tensor | None) -> Tensor:
        d = q.shape[-1]
        q, k = (F.normalize(x, dim=-1, eps=LEAST) for x in (q, k))
        chance = (2 * count(visible).to(q.dtype).log() / d).sqrt().unsqueeze(-1)
        z = q @ k.transpose(-1, -2)  # the cosine is the score
        z = z if bias is None else z + bias
        return (z - self.beta.to(q.dtype).view(-1, 1, 1) * chance).relu() ** self.p * visible
