"""Differential attention: one softmax less a share of another, so that what both see cancels."""

import math

from torch import Tensor
from torch.nn import functional as F

from icl_lab.base.registry import require
from icl_lab.normalizers import registry
from icl_lab.normalizers.base import Normalizer, Site, upcast
from icl_lab.normalizers.starts import normal

EPSILON = 1e-5  # added to the mean square in the norm


@registry.add("differential")
class Differential(Normalizer):
    """The softmax of one half of each query and key, less a learned share of the softmax of the other half.

    Formula: w = softmax(z1) - lam softmax(z2), lam = exp(a1.b1) - exp(a2.b2) + l0, l0 = 0.8 - 0.6 exp(-0.3 layer),
        z1 = q1.k1 / sqrt(d/2) and z2 of the two halves; then o = (1 - l0) w v / rms(w v) with ``norm=yes``
    Paper: Differential Transformer 2024, arXiv 2410.05258, Section 2

    Layers are counted from 0. a and b are vectors of a layer, drawn from N(0, 0.1) at a fixed address, the same for
    every seed of a training; all heads of the layer share lam. A head here is a head of the paper (which halves their
    number and doubles the width of the values). The halves are the even and the odd channels: with rotary positions a
    pair of channels then stays in one half where the head width is a multiple of 4. The norm has no learned scale, as
    in transformers' DiffLlama. Maps show w, before the norm, and as scores those of both halves together.
    """

    sums_to_one = False
    non_negative = False
    row_wise = True
    learned = ("lam",)
    maps = dict.fromkeys(("a1", "b1", "a2", "b2"), "channels")

    def __init__(self, site: Site, *, norm: bool = True) -> None:
        super().__init__()
        require(site.head_dim % 2 == 0, "the width of a head must be even, for two halves", site.head_dim)
        self.start = 0.8 - 0.6 * math.exp(-0.3 * site.layer)
        self.finishes = norm
        self.softmax: Normalizer = registry.build("softmax", site)
        self.a1, self.b1, self.a2, self.b2 = (
            normal(site, "differential", name, site.head_dim // 2, sd=0.1) for name in self.maps
        )

    @property
    def lam(self) -> Tensor:
        """The share of the second softmax, (1)."""
        return ((self.a1 @ self.b1).exp() - (self.a2 @ self.b2).exp() + self.start).view(1)

    def weights(
        self, q: Tensor, k: Tensor, visible: Tensor, bias: Tensor | None = None, x: Tensor | None = None
    ) -> Tensor:
        first, second = (
            self.softmax.weights(upcast(q[..., half::2]), upcast(k[..., half::2]), visible, bias) for half in (0, 1)
        )
        return (first - self.lam * second).to(q.dtype)

    def attend(
        self, q: Tensor, k: Tensor, v: Tensor, visible: Tensor, bias: Tensor | None = None, x: Tensor | None = None
    ) -> Tensor:
        # Two outputs that nearly cancel: the difference needs the digits.
        first, second = (
            self.softmax.attend(upcast(q[..., half::2]), upcast(k[..., half::2]), upcast(v), visible, bias)
            for half in (0, 1)
        )
        return self.output(first - self.lam * second).to(v.dtype)

    def output(self, o: Tensor, x: Tensor | None = None) -> Tensor:
        if not self.finishes:
            return o
        return ((1 - self.start) * F.rms_norm(upcast(o), o.shape[-1:], eps=EPSILON)).to(o.dtype)
