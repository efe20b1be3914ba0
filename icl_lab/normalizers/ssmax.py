"""Scalable softmax and its variants."""

from typing import Literal

import torch
from torch import Tensor, nn

from icl_lab.base.registry import require
from icl_lab.normalizers import registry
from icl_lab.normalizers.base import ScaledQuery, Site


@registry.add("ssmax")
class SSMax(ScaledQuery):
    """Scalable softmax: the scores grow with the logarithm of the number of keys, so that attention does not fade.

    Formula: w = softmax((s log n + b) z)
    Paper: Nakanishi 2025, arXiv 2501.19399

    s is learned for each head and starts at 1, the stated start of the paper's Eq. 3 (for SSMax itself it gives none);
    ``s=swap`` starts at 1 / mean log n over the training length, where the average row is as sharp as under softmax
    (variants e and f). ``bias=yes`` learns b from 0 (variant d), ``learn=no`` fixes s (variant c). n is the number of
    keys the row may see, never the padded length; s may turn negative, as the paper allows.
    """

    learned: tuple[str, ...] = ("s",)

    def __init__(self, site: Site, *, s: float | Literal["swap"] = 1.0, learn: bool = True, bias: bool = False) -> None:
        super().__init__()
        require(learn or not bias, "a bias is learned, so it needs learn=yes", "learn=no,bias=yes")
        start = swap_start(site.train_tokens) if s == "swap" else s
        self.s = nn.Parameter(torch.full((site.heads,), start), requires_grad=learn)
        self.b = nn.Parameter(torch.zeros(site.heads), requires_grad=True) if bias else None
        self.learned = ("s", "b") if bias else ("s",)

    def scale(self, n: Tensor) -> Tensor:
        c = self.s.unsqueeze(-1) * n.log()
        return c if self.b is None else c + self.b.unsqueeze(-1)


def swap_start(train_tokens: int) -> float:
    """1 / mean log n over n = 1 .. train_tokens: 0.168 at 1,024, as the paper prints.

    >>> round(swap_start(1024), 6)
    0.168471
    """
    return float(1 / torch.arange(1, max(train_tokens, 2) + 1, dtype=torch.float64).log().mean())
