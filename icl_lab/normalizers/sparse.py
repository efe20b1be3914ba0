"""Sparse normalizers: sparsemax, alpha-entmax, and entmax with scores that grow with the number of keys."""

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from icl_lab.errors import BadValue
from icl_lab.names import require
from icl_lab.normalizers import registry
from icl_lab.normalizers.base import Scored, Site, count, scores, veil


@registry.add("sparsemax")
class Sparsemax(Scored):
    """The Euclidean projection of the scores onto the simplex: distant keys get exactly 0.

    Formula: w_j = max(z_j - tau, 0), tau such that sum_j w_j = 1
    Paper: Martins & Astudillo 2016, arXiv 1602.02068

    A key without weight gets no gradient either.
    """

    def __init__(self, site: Site) -> None:
        super().__init__()

    def rows(self, q: Tensor, k: Tensor, visible: Tensor) -> Tensor:
        return entmax(scores(q, k), visible, 2.0)


@registry.add("entmax")
class Entmax(Scored):
    """Between softmax and sparsemax: zeros for distant keys, and a smooth descent towards them.

    Formula: w_j = max((alpha - 1) z_j - tau, 0)^(1 / (alpha - 1)), tau such that sum_j w_j = 1
    Paper: Peters et al. 2019, arXiv 1905.05702

    Exact at alpha = 1.5 and 2 (sparsemax), by bisection elsewhere. The limit alpha = 1 is softmax.
    """

    def __init__(self, site: Site, *, alpha: float = 1.5) -> None:
        super().__init__()
        if alpha == 1:
            raise BadValue("alpha = 1 is softmax: choose 'softmax', or an alpha above 1.")
        require(alpha > 1, "alpha must be > 1", alpha)
        self.alpha = alpha

    def rows(self, q: Tensor, k: Tensor, visible: Tensor) -> Tensor:
        return entmax(scores(q, k), visible, self.alpha)


@registry.add("asentmax")
class ASEntmax(Scored):
    """Adaptive-scalable entmax: 1.5-entmax of scores that grow by a learned power of a logarithm of the length.

    Formula: w = entmax_1.5(c_n z), c_n = 1 + beta (log(n + 1))^gamma
    Paper: Long-Context Generalization with Sparse Attention 2025, arXiv 2506.16640

    beta and gamma belong to a head, as in the published code's mode "learn"; there they are drawn (beta uniformly from
    0.1 to 1, gamma normally around 0), here they start at the middles of as many equal parts of 0.1 .. 1 as there are
    heads, and at 0. The paper's own variant reads them off the token, which this seam does not see.
    """

    learned = ("beta", "gamma")

    def __init__(self, site: Site) -> None:
        super().__init__()
        middles = (torch.arange(site.heads, dtype=torch.float64) + 0.5) / site.heads
        self.beta = nn.Parameter((0.1 + 0.9 * middles).float())
        self.gamma = nn.Parameter(torch.zeros(site.heads))

    def rows(self, q: Tensor, k: Tensor, visible: Tensor) -> Tensor:
        n = count(visible).to(q.dtype)
        c = 1 + self.beta.unsqueeze(-1) * (n + 1).log() ** self.gamma.unsqueeze(-1)
        return entmax(scores(q * c.unsqueeze(-1), k), visible, 1.5)


def entmax(z: Tensor, visible: Tensor, alpha: float) -> Tensor:
    """alpha-entmax over the visible keys, in single precision or better; a row that sees nothing gets zeros."""
    # The package sorts or bisects; it knows neither a row of minus infinities nor half precision (NaN there).
    blind = ~visible.any(-1, keepdim=True)
    w: Tensor = _exact(alpha)(z + veil(visible | blind, z.dtype))
    return w * visible


def _exact(alpha: float) -> Callable[[Tensor], Any]:
    # Imported when first used: the command line starts without it.
    from entmax import entmax15, entmax_bisect, sparsemax

    if alpha == 1.5:
        return lambda z: entmax15(z, dim=-1)
    if alpha == 2:
        return lambda z: sparsemax(z, dim=-1)
    return lambda z: entmax_bisect(z, alpha, dim=-1, n_iter=_steps(z.dtype))


def _steps(dtype: torch.dtype) -> int:
    """Halvings after which a bracket of width 1 is down to the digits of ``dtype``, and a few more."""
    return 4 - round(math.log2(torch.finfo(dtype).eps))
