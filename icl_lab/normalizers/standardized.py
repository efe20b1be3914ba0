"""Softmax of scores that are divided by their own standard deviation."""

from torch import Tensor

from icl_lab.base.registry import require
from icl_lab.normalizers import registry
from icl_lab.normalizers.base import RowWise, Site, below_peak, count, scores, softmax

LEAST = 1e-3  # standard deviation below which a row counts as even: dividing by less would enlarge rounding
MOST = 1e6


@registry.add("standardized")
class Standardized(RowWise):
    """Softmax of the scores over their standard deviation in the row, where that is below gamma; else over gamma.

    Formula: w = softmax(z / min(sigma, gamma)), sigma^2 = sum_j (z_j - mean z)^2 / n over the visible keys
    Paper: NormSoftmax 2023 (Jiang et al.), with gamma = 1 in units of z (sqrt(d) in those of q.k)

    Flat rows become as sharp as any other and sharp ones stay softmax; a large gamma standardises all of them. A row
    whose scores hardly differ (sigma < 0.001) is divided by 0.001.
    """

    def __init__(self, site: Site, *, gamma: float = 1.0) -> None:
        super().__init__()
        require(LEAST <= gamma <= MOST, f"gamma must be at least {LEAST:g} and at most {MOST:,.0f}", gamma)
        self.gamma = gamma

    def rows(self, q: Tensor, k: Tensor, visible: Tensor, bias: Tensor | None = None) -> Tensor:
        z = below_peak(scores(q, k, bias), visible)
        n = count(visible).to(z.dtype).unsqueeze(-1)
        centred = (z - (z * visible).sum(-1, keepdim=True) / n) * visible
        sigma = (centred.square().sum(-1, keepdim=True) / n).clamp(min=LEAST**2).sqrt()
        return softmax(centred / sigma.clamp(max=self.gamma), visible)
