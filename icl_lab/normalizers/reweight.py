"""Re-weighting: keys with no more than the uniform share lose it all, and a power sharpens the rest."""

import torch
from torch import Tensor

from icl_lab.base.errors import BadValue
from icl_lab.base.registry import require
from icl_lab.normalizers import wrappers
from icl_lab.normalizers.base import Normalizer, Scored, Site, Wrapper, count, extra, ratio, uniform_tolerance

MOST = 100_000  # as p: a power of a number that rounding left above 1 overflows
FIRST = 3  # rows that see no more keys than this keep all of them


@wrappers.add("reweight")
class Reweight(Wrapper, Scored):
    """Keeps what a normalizer gives above the uniform share 1/n, raised to a power p.

    Formula: w_j = y_j / sum_i y_i, y_j = relu(n a_j - o)^p, a the normalizer's weights, o = 1 (0 where n <= 3)
    Paper: Softplus Attention with Re-weighting 2025, arXiv 2501.13428, Section 2.3

    y is divided by its largest entry before the power: y^15 overflows from 370 up, and where y is small no constant
    added to the sum is small enough. A row that is uniform, up to rounding, has y = 0 and stays as it is.
    """

    def __init__(self, site: Site, rule: Normalizer, *, p: int = 3) -> None:
        super().__init__(rule)
        require(1 <= p <= MOST, f"p must be >= 1 and at most {MOST:,}", p)
        if not rule.sums_to_one:
            raise BadValue("re-weighting keeps what is above the uniform share 1/n, so it needs rows that sum to 1.")
        self.p, self.non_negative, self.finishes, self.reads_tokens = p, True, False, "no"

    def rows(self, q: Tensor, k: Tensor, visible: Tensor, bias: Tensor | None = None) -> Tensor:
        # The normalizer is asked in single precision too: a power of 15 would read meaning into digits that a half
        # lacks.
        a = self.rule.weights(q, k, visible, **extra(self.rule, bias, None))
        n = count(visible).to(a.dtype).unsqueeze(-1)
        o = (n > FIRST).to(a.dtype)
        # y of the largest weight; the power is taken of y / peak, which is at most 1.
        peak = n * a.detach().amax(-1, keepdim=True) - o
        uniform = peak < uniform_tolerance(a.dtype)
        peak = peak.masked_fill(uniform, torch.inf)
        y = torch.addcmul(-o / peak, a, n / peak).relu() ** self.p
        return torch.addcmul(ratio(y, y.sum(-1, keepdim=True)), a, uniform.to(a.dtype))
