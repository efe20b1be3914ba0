"""The plain average, and heads that divide the work among several normalizers."""

from typing import ClassVar

import torch
from torch import Tensor, nn

from icl_lab.base.registry import require
from icl_lab.normalizers import registry
from icl_lab.normalizers.base import Normalizer, Site, mean, uniform, upcast


@registry.add("average")
class Average(Normalizer):
    """Every visible key has the same weight; queries and keys are not read.

    Formula: w_j = 1 / n
    Paper: Naim et al. 2025, arXiv 2508.14685, Appendix C

    A bias of the scores is read as little as the scores are.
    """

    row_wise = True

    def __init__(self, site: Site) -> None:
        super().__init__()

    def weights(
        self, q: Tensor, k: Tensor, visible: Tensor, bias: Tensor | None = None, x: Tensor | None = None
    ) -> Tensor:
        return uniform(visible, upcast(q).dtype).to(q.dtype).expand(*q.shape[:2], -1, -1)

    def attend(
        self, q: Tensor, k: Tensor, v: Tensor, visible: Tensor, bias: Tensor | None = None, x: Tensor | None = None
    ) -> Tensor:
        return mean(v, visible)


class ByHeads(Normalizer):
    """Base class of normalizers that give each of ``PARTS`` the same number of heads, in order."""

    PARTS: ClassVar[tuple[str, ...]]

    def __init__(self, site: Site) -> None:
        super().__init__()
        count = len(self.PARTS)
        require(site.heads % count == 0, f"the number of heads must be a multiple of {count}", site.heads)
        part = Site(site.heads // count, site.head_dim, site.train_tokens)
        self.parts = nn.ModuleList(registry.build(normalizer, part) for normalizer in self.PARTS)
        self.row_wise = all(part.row_wise for part in self.parts)

    def weights(
        self, q: Tensor, k: Tensor, visible: Tensor, bias: Tensor | None = None, x: Tensor | None = None
    ) -> Tensor:
        return self._by_heads("weights", visible, bias, q, k)

    def attend(
        self, q: Tensor, k: Tensor, v: Tensor, visible: Tensor, bias: Tensor | None = None, x: Tensor | None = None
    ) -> Tensor:
        return self._by_heads("attend", visible, bias, q, k, v)

    def _by_heads(self, method: str, visible: Tensor, bias: Tensor | None, *tensors: Tensor) -> Tensor:
        """Apply each part to its share of the heads (b h t d), in order, and concatenate the results."""
        heads, count = tensors[0].shape[1], len(self.parts)
        biases = [None] * count if bias is None else bias.expand(*bias.shape[:-3], heads, -1, -1).chunk(count, -3)
        shares = zip(*(x.chunk(count, dim=1) for x in tensors), strict=True)
        found = zip(self.parts, shares, biases, strict=True)
        return torch.cat([getattr(part, method)(*share, visible, own) for part, share, own in found], 1)


@registry.add("soft-avg")
class SoftAvg(ByHeads):
    """The first half of the heads softmax, the second half the plain average.

    Formula: w = softmax(z) in heads 1 .. h/2, w_j = 1 / n in the others
    Paper: Naim et al. 2025, arXiv 2508.14685, Appendix C (SOFT/AVG)

    The paper does not say which half. The queries and keys of the averaging heads have no use and get no gradient.
    """

    PARTS = ("softmax", "average")


@registry.add("four-functions")
class FourFunctions(ByHeads):
    """A quarter of the heads each: tanh of the score, the plain average, relu, and the square.

    Formula: w_j = phi(z_j) / sum_i |phi(z_i)| with phi = tanh, 1, relu, square, a quarter of the heads each
    Paper: Naim et al. 2025, arXiv 2508.14685, Appendix C

    The paper does not say how its functions are normalised; they become weights here by the sum of absolute values, and
    a row without any stays 0.
    """

    PARTS = ("l1:phi=tanh", "average", "l1:phi=relu", "l1:phi=square")
    sums_to_one = False
    non_negative = False
