"""Stick-breaking attention: the nearest key takes its share first, the next a share of the rest."""

import math
from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional as F

from icl_lab.normalizers import registry
from icl_lab.normalizers.base import Normalizer, Site, places, scores, upcast


@registry.add("stick-breaking")
class StickBreaking(Normalizer):
    """Each earlier key, nearest first, takes a sigmoid's share of what the nearer ones left.

    Formula: w_ij = sigmoid(z_ij) prod_{j < k < i} (1 - sigmoid(z_ik)) for j < i; what remains goes to the token itself
        (``remainder=self``) or to none (``none``)
    Paper: Stick-breaking attention 2024, arXiv 2410.17980

    Order takes the place of positions. Products are sums of logarithms. A row that does not see its own token has no
    place for the remainder.
    """

    ordered = True
    one_sided = True
    row_wise = True

    def __init__(self, site: Site, *, remainder: Literal["self", "none"] = "self") -> None:
        super().__init__()
        self.remainder = remainder
        self.sums_to_one = remainder == "self"

    def weights(
        self, q: Tensor, k: Tensor, visible: Tensor, bias: Tensor | None = None, x: Tensor | None = None
    ) -> Tensor:
        taken, rest = self._break(q, k, visible, bias)
        square = visible.shape[-2] == visible.shape[-1]
        own = torch.diag_embed(rest) if square else rest.unsqueeze(-1) * _own(visible)
        return (taken.flip(-1) + own).to(q.dtype)

    def attend(
        self, q: Tensor, k: Tensor, v: Tensor, visible: Tensor, bias: Tensor | None = None, x: Tensor | None = None
    ) -> Tensor:
        if visible.shape[-2] != visible.shape[-1] or self.block_rows(q, k, visible):
            return super().attend(q, k, v, visible, bias)
        taken, rest = self._break(q, k, visible, bias)
        return taken.to(v.dtype) @ v.flip(-2) + (rest.unsqueeze(-1) * v).to(v.dtype)

    def _break(self, q: Tensor, k: Tensor, visible: Tensor, bias: Tensor | None) -> tuple[Tensor, Tensor]:
        """Weights of the earlier keys, last key first (b h t_q t_k), and of the token itself (b h t_q)."""
        if visible.shape[-2] == visible.shape[-1]:
            earlier, itself = visible.tril(-1).flip(-1), visible.diagonal(dim1=-2, dim2=-1)
        else:
            own = _own(visible)
            earlier, itself = (visible & ~own).flip(-1), (visible & own).any(-1)
        # Keys from last to first: then what the nearer ones left is a plain running sum of log(1 - sigmoid(z)).
        z = scores(upcast(q), upcast(k).flip(-2), None if bias is None else bias.flip(-1))
        kept = F.logsigmoid(-z) * earlier
        left = kept.cumsum(-1)
        # log sigmoid(z) = z + log(1 - sigmoid(z)). The share comes out of what was left one key before.
        hidden = torch.zeros(earlier.shape, dtype=z.dtype, device=z.device).masked_fill(~earlier, -math.inf)
        taken = (z + kept + F.pad(left[..., :-1], (1, 0)) + hidden).exp()
        rest = left[..., -1].exp() * itself * (self.remainder == "self")
        return taken, rest


def _own(visible: Tensor) -> Tensor:
    """True if a key is the row's own token, as large as the mask (b 1 t_q t_k): all others that it sees are earlier."""
    return torch.arange(visible.shape[-1], device=visible.device) == places(visible).unsqueeze(-1)
