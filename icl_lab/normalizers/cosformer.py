"""cosFormer: a product of rectified queries and keys, fading with distance."""

import math
from typing import Literal

import torch
from torch import Tensor

from icl_lab.base.registry import require
from icl_lab.normalizers import registry
from icl_lab.normalizers.base import Scored, Site, l1, places


@registry.add("cosformer")
class CosFormer(Scored):
    """A product of rectified queries and keys times a cosine of their distance, divided by its sum.

    Formula: w_ij = a_ij / sum_j |a_ij|, a_ij = relu(q_i).relu(k_j) cos(pi/2 (i - j) / M)
    Paper: cosFormer 2022, arXiv 2202.08791

    The published code takes the length of the current prompt for M (``horizon=current``): then a row changes when the
    prompt goes on. Tokens that no row sees (padding) count neither there nor as distance. A fixed M does not have that
    fault, but a key farther than M gets a negative weight; the sum is one of absolute values, equal to the published
    sum up to M, because beyond it the plain one crosses 0. A factor 1/sqrt(d) is left out, since the division would
    cancel it. A row whose products are all 0 stays 0.
    """

    sums_to_one = False
    ordered = True

    def __init__(self, site: Site, *, horizon: int | Literal["current"] = 512) -> None:
        super().__init__()
        require(horizon == "current" or horizon >= 1, "horizon must be >= 1, or 'current'", horizon)
        self.horizon = horizon
        self.non_negative = horizon == "current"
        self.prefix_consistent = self.row_wise = horizon != "current"  # which all rows together say

    # There are no scores that a position code could add to.
    def rows(self, q: Tensor, k: Tensor, visible: Tensor) -> Tensor:  # type: ignore[override]
        turn: float | Tensor  # the angle of a distance of one token
        if self.horizon == "current":
            queries, keys, length = _among_seen(visible)
            turn = (math.pi / 2 / length.double()).to(q.dtype)
        else:
            queries, keys = places(visible), torch.arange(k.shape[-2], device=k.device)
            turn = math.pi / 2 / self.horizon
        angles = ((place.to(q.dtype) * turn).unsqueeze(-1) for place in (queries, keys))
        # cos(x - y) = cos x cos y + sin x sin y: the distance costs twice the head width and no pass over the matrix.
        q, k = (
            torch.cat([x * angle.cos(), x * angle.sin()], -1)
            for x, angle in zip((q.relu(), k.relu()), angles, strict=True)
        )
        # Up to M no cosine is negative.
        signed = self.horizon != "current" and (torch.compiler.is_exporting() or self.horizon < k.shape[-2])
        return l1((q @ k.transpose(-1, -2)) * visible, signed=signed)


def _among_seen(visible: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Places of queries and keys among the keys that any row sees, (t) or (b 1 t), and the number of those keys."""
    seen = visible.any(-2)
    keys = (seen.cumsum(-1) - 1).clamp(min=0)
    at = places(visible)
    queries = keys if at.shape[-1] == keys.shape[-1] else keys.gather(-1, at)
    return queries, keys, seen.sum(-1, keepdim=True).clamp(min=1)
