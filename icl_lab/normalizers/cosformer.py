"""cosFormer: a product of rectified queries and keys, fading with distance."""

import math
from typing import Literal

import torch
from torch import Tensor

from icl_lab.normalizers import registry
from icl_lab.normalizers.base import Scored, Site, l1, places
from icl_lab.registry import require


@registry.add("cosformer")
class CosFormer(Scored):
    """A product of rectified queries and keys times a cosine of their distance, divided by its sum.

    Formula: w_ij = a_ij / sum_j |a_ij|, a_ij = relu(q_i).relu(k_j) cos(pi/2 (i - j) / M)
    Paper: cosFormer 2022, arXiv 2202.08791

    The published code takes the length of the current prompt for M (``horizon=current``): then a row changes when the
    prompt goes on. A fixed M does not have that fault, but a key farther than M gets a negative weight; the sum is one
    of absolute values, equal to the published sum up to M, because beyond it the plain one crosses 0. There is no
    1/sqrt(d), which the division would cancel. A row whose products are all 0 stays 0.
    """

    sums_to_one = False
    ordered = True

    def __init__(self, site: Site, *, horizon: int | Literal["current"] = 512) -> None:
        super().__init__()
        require(horizon == "current" or horizon >= 1, "horizon must be >= 1, or 'current'", horizon)
        self.horizon = horizon
        self.non_negative = horizon == "current"
        self.prefix_consistent = horizon != "current"

    # There are no scores that a position code could add to.
    def rows(self, q: Tensor, k: Tensor, visible: Tensor) -> Tensor:  # type: ignore[override]
        length = k.shape[-2] if self.horizon == "current" else self.horizon
        stand = (places(visible), torch.arange(k.shape[-2], device=k.device))
        angles = (place.to(q.dtype).unsqueeze(-1) * (math.pi / 2 / length) for place in stand)
        # cos(x - y) = cos x cos y + sin x sin y: the distance costs twice the head width and no pass over the matrix.
        q, k = (
            torch.cat([x * angle.cos(), x * angle.sin()], -1)
            for x, angle in zip((q.relu(), k.relu()), angles, strict=True)
        )
        return l1((q @ k.transpose(-1, -2)) * visible, signed=torch.compiler.is_exporting() or length < k.shape[-2])
