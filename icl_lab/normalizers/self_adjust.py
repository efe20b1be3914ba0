"""Self-adjust softmax: softmax weights multiplied by the scores themselves."""

from typing import Literal

from torch import Tensor

from icl_lab.normalizers import registry
from icl_lab.normalizers.base import RowWise, Site, additive_mask, ratio, scores, softmax


@registry.add("sa-softmax")
class SASoftmax(RowWise):
    """Softmax weights multiplied by where each score stands between the row's smallest and largest.

    Formula: w_j = f(z_j) softmax(z)_j; f = (z - lo) / (hi - lo) with lo = min(0, min z), hi = max(0, max z) (variant
        3); the same with lo = min z, hi = max z (2); z - min z (1); z (0)
    Paper: Self-Adjust Softmax 2025, arXiv 2502.18277

    Smallest and largest of the visible keys; 0/0 is 0, so under variant 2 a row of equal scores has no weights, and
    under variant 3 a first row has weight 1 or 0 by the sign of its score. Nothing is normalised afterwards.
    """

    sums_to_one = False

    def __init__(self, site: Site, *, variant: Literal[0, 1, 2, 3] = 3) -> None:
        super().__init__()
        self.variant = variant
        self.non_negative = variant != 0

    def rows(self, q: Tensor, k: Tensor, visible: Tensor, bias: Tensor | None = None) -> Tensor:
        z = scores(q, k, bias)
        p = softmax(z, visible)
        if self.variant == 0:
            return z * p
        low, high = _ends(z, visible, zero=self.variant == 3)
        above = (z - low) * p
        return above if self.variant == 1 else ratio(above, high - low)


def _ends(z: Tensor, visible: Tensor, *, zero: bool) -> tuple[Tensor, Tensor]:
    """The smallest and the largest visible score of each row (b h t 1), with 0 among them if ``zero``."""
    if zero:
        z = z * visible
        return z.amin(-1, keepdim=True).clamp(max=0), z.amax(-1, keepdim=True).clamp(min=0)
    # A row that sees nothing has neither and reads all: an infinity would outlive its zero weights, as NaN.
    far = additive_mask(visible | ~visible.any(-1, keepdim=True), z.dtype)
    return (z - far).amin(-1, keepdim=True), (z + far).amax(-1, keepdim=True)
