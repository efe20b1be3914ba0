"""LSSA: the softplus of a cosine that is stretched by the number of keys."""

import math

from torch import Tensor
from torch.nn import functional as F

from icl_lab.normalizers import registry
from icl_lab.normalizers.base import RowWise, Site, count, softmax


@registry.add("lssa")
class LSSA(RowWise):
    """Length-scaled softplus attention: softplus of the cosine of query and key, stretched by log d log n.

    Formula: w_j = softplus(log d log n cos(q, k_j)) / sum_i softplus(log d log n cos(q, k_i))
    Paper: Softplus Attention with Re-weighting 2025, arXiv 2501.13428, Section 2.2

    d is the head width; scores have no factor 1/sqrt(d). One matching key among orthogonal ones gets little: the peaks
    are the work of the wrapper ``reweight`` (``lssa+reweight:p=15`` is the paper's LSSAR). Written as a softmax of a
    logarithm: the softplus of a row of opposed keys adds up to less than any constant one might add to a sum.
    """

    LEAST = 1e-6  # a norm below this is none: a zero query would send gradients of 1/eps otherwise

    def __init__(self, site: Site) -> None:
        super().__init__()

    def rows(self, q: Tensor, k: Tensor, visible: Tensor, bias: Tensor | None = None) -> Tensor:
        stretch = math.log(q.shape[-1]) * count(visible).to(q.dtype).log()
        q, k = (F.normalize(x, dim=-1, eps=self.LEAST) for x in (q, k))
        # A cosine times log d log n stays far from where softplus underflows (-87): its logarithm exists.
        z = (q * stretch.unsqueeze(-1)) @ k.transpose(-1, -2)
        if bias is not None:  # the cosine is the score
            z = z + bias * stretch.unsqueeze(-1)
        return softmax(F.softplus(z).log(), visible)
