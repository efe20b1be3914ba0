"""Softmax with the wrong sign, and softmax centred at 0: weights that need not be positive."""

from torch import Tensor

from icl_lab.normalizers import registry
from icl_lab.normalizers.base import Normalizer, Site, count, mean, ratio, uniform, uniform_tolerance, upcast

FIRST = 3  # rows that see no more keys than this stay softmax


@registry.add("inverse")
class Inverse(Normalizer):
    """Softmax with the sign turned.

    Formula: w = -softmax(z)
    Paper: Softplus Attention with Re-weighting 2025, arXiv 2501.13428, Table 1

    The value matrix absorbs the sign, so the two normalizers span the same functions: a control, not a rival.
    """

    sums_to_one = False
    non_negative = False
    row_wise = True

    def __init__(self, site: Site) -> None:
        super().__init__()
        self.softmax: Normalizer = registry.build("softmax", site)

    def weights(
        self, q: Tensor, k: Tensor, visible: Tensor, bias: Tensor | None = None, x: Tensor | None = None
    ) -> Tensor:
        return -self.softmax.weights(q, k, visible, bias)

    def attend(
        self, q: Tensor, k: Tensor, v: Tensor, visible: Tensor, bias: Tensor | None = None, x: Tensor | None = None
    ) -> Tensor:
        return -self.softmax.attend(q, k, v, visible, bias)


@registry.add("recentred")
class Recentred(Normalizer):
    """Softmax minus its mean, so that a row sums to 0.

    Formula: w_j = softmax(z)_j - 1/n where n > 3, softmax(z)_j elsewhere; with ``l1=yes`` divided by its sum of
        absolute values
    Paper: Softplus Attention with Re-weighting 2025, arXiv 2501.13428, Table 1 and footnote 1

    The mean is one over visible keys, or hidden ones would weigh -1/L. Divided, a uniform row is 0/0 and stays 0; what
    is uniform up to rounding counts as uniform, since the division would make rounding errors into weights.
    """

    sums_to_one = False
    non_negative = False
    row_wise = True

    def __init__(self, site: Site, *, l1: bool = False) -> None:
        super().__init__()
        self.softmax: Normalizer = registry.build("softmax", site)
        self.l1 = l1

    def weights(
        self, q: Tensor, k: Tensor, visible: Tensor, bias: Tensor | None = None, x: Tensor | None = None
    ) -> Tensor:
        wide = upcast(q)
        w = self.softmax.weights(wide, upcast(k), visible, bias) - uniform(visible, wide.dtype) * _late(visible)
        if self.l1:
            w = ratio(w, w.abs().sum(-1, keepdim=True), uniform_tolerance(w.dtype))
        return w.to(q.dtype)

    def attend(
        self, q: Tensor, k: Tensor, v: Tensor, visible: Tensor, bias: Tensor | None = None, x: Tensor | None = None
    ) -> Tensor:
        if self.l1:
            return super().attend(q, k, v, visible, bias)
        return self.softmax.attend(q, k, v, visible, bias) - mean(v, visible) * _late(visible)


def _late(visible: Tensor) -> Tensor:
    """True if a row sees more keys than the first three rows do, (t 1)."""
    return (count(visible) > FIRST).unsqueeze(-1)
