"""Softmax divided by another norm than the sum of its weights."""

from torch import Tensor

from icl_lab.base.errors import BadValue
from icl_lab.base.registry import require
from icl_lab.normalizers import registry
from icl_lab.normalizers.base import RowWise, Site, additive_mask, below_peak, scores, unveiled

LEAST, MOST = 0.1, 100.0  # as p: below, weights underflow; above, the largest is 1 to every digit


@registry.add("p-softmax")
class PSoftmax(RowWise):
    """Exponentials divided by their p-norm: with p = 2 the variance of what a row returns does not fall with its keys.

    Formula: w_j = e^(z_j) / (sum_i e^(p z_i))^(1/p)
    Paper: Attention Normalizes the Wrong Norm 2025 (a blog post, with code)

    Uncorrelated values of variance 1 have a weighted sum of variance ||w||_2^2, which softmax lets fall as 1/n in an
    even row. Such a row of p = 2 sums to sqrt(n). p = 1 is softmax, and a large p divides by the largest weight.
    """

    sums_to_one = False

    def __init__(self, site: Site, *, p: float = 2.0) -> None:
        super().__init__()
        if p == 1:
            raise BadValue("p = 1 is softmax: choose 'softmax', or another p.")
        require(LEAST <= p <= MOST, f"p must be at least {LEAST:g} and at most {MOST:g}", p)
        self.p = p

    def rows(self, q: Tensor, k: Tensor, visible: Tensor, bias: Tensor | None = None) -> Tensor:
        z = below_peak(scores(q, k, bias), visible) + additive_mask(unveiled(visible), q.dtype)
        return (z - (self.p * z).logsumexp(-1, keepdim=True) / self.p).exp() * visible
