"""Talking heads: the weights of a head are a mixture of those of all heads."""

from collections.abc import Mapping

import torch
from torch import Tensor

from icl_lab.normalizers import wrappers
from icl_lab.normalizers.base import Normalizer, Site, Wrapper, extra
from icl_lab.normalizers.starts import normal


@wrappers.add("talking-heads")
class TalkingHeads(Wrapper):
    """Mixes the weights of a normalizer over the heads of a layer by a learned matrix.

    Formula: w_h = sum_g M_hg a_g, a_g the normalizer's weights in head g
    Paper: Shazeer et al. 2020, arXiv 2003.02436, the projection after the softmax

    The paper mixes scores as well, before the softmax. That is not done here: most normalizers read queries and keys,
    not scores alone, and have none to mix. The matrix starts N(0, 1 / sqrt(heads)), drawn at a fixed address.
    """

    maps: Mapping[str, str] = {"m": "heads"}

    def __init__(self, site: Site, rule: Normalizer) -> None:
        super().__init__(rule)
        self.sums_to_one = self.non_negative = False
        self.m = normal(site, "talking-heads", "m", site.heads, site.heads, sd=site.heads**-0.5)

    def weights(
        self, q: Tensor, k: Tensor, visible: Tensor, bias: Tensor | None = None, x: Tensor | None = None
    ) -> Tensor:
        a = self.rule.weights(q, k, visible, **extra(self.rule, bias, x))
        return torch.einsum("hg,bgqk->bhqk", self.m.to(a.dtype), a)

    def output(self, o: Tensor, x: Tensor | None = None) -> Tensor:
        return self.rule.output(o, **extra(self.rule, None, x))
