"""A function of each score, divided by the sum of absolute values: softmax taken apart."""

from collections.abc import Callable
from typing import Literal

from torch import Tensor
from torch.nn import functional as F

from icl_lab.normalizers import registry
from icl_lab.normalizers.base import RowWise, Site, l1, scores, softmax

Phi = Literal["relu", "relu2", "relu6", "gelu", "sigmoid", "softplus", "mish", "exp", "tanh", "square", "expressive"]
FAR = -30.0  # below this softplus(z) is exp(z) to every digit kept here


def log_softplus(z: Tensor) -> Tensor:
    """Return log log(1 + e^z), which is z itself far below 0, where softplus underflows."""
    near = z.clamp(min=FAR)
    return F.softplus(near).log() + (z - near)


# Of a positive function the logarithm is given: its share of the sum is a softmax, which neither over- nor underflows.
LOGARITHMS: dict[str, Callable[[Tensor], Tensor]] = {
    "sigmoid": F.logsigmoid,
    "softplus": log_softplus,
    "exp": lambda z: z,
}
FUNCTIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": F.relu,
    "relu2": lambda z: z.relu().square(),
    "relu6": F.relu6,
    "gelu": F.gelu,
    "mish": F.mish,
    "tanh": lambda z: z.tanh(),
    "square": lambda z: z.square(),
    "expressive": lambda z: z.square() / (1 + z.square()),
}


@registry.add("l1")
class L1(RowWise):
    """Any function of the score, divided by the row's sum of its absolute values.

    Formula: w_j = phi(z_j) / sum_i |phi(z_i)|
    Paper: Softplus Attention with Re-weighting 2025, arXiv 2501.13428, Eq. 3 and Table 3;
        Gros 2024, arXiv 2407.18601 (expressive: z^2 / (1 + z^2))

    With exp this is softmax. gelu (the exact one) and mish can be negative: a row of negative scores has weights that
    sum to -1. Where phi can be 0 a row may have no weights at all. tanh and square are the parts of ``four-functions``.
    Expressive attention gives opposed queries and keys as much as parallel ones; the paper squares q.k without the
    1/sqrt(d) of the scores here.
    """

    def __init__(self, site: Site, *, phi: Phi = "relu") -> None:
        super().__init__()
        self.phi = phi
        self.sums_to_one = phi in LOGARITHMS
        self.non_negative = phi not in ("gelu", "mish", "tanh")

    def rows(self, q: Tensor, k: Tensor, visible: Tensor, bias: Tensor | None = None) -> Tensor:
        z = scores(q, k, bias)
        if self.phi in LOGARITHMS:
            return softmax(LOGARITHMS[self.phi](z), visible)
        # Function first, mask after: gelu and mish make NaN of minus infinity, tanh makes -1 of it.
        return l1(FUNCTIONS[self.phi](z) * visible, signed=not self.non_negative)


@registry.add("raw")
class Raw(RowWise):
    """The scores themselves as weights; with ``l1=yes`` divided by the sum of their absolute values.

    Formula: w_j = z_j, or z_j / sum_i |z_i|
    Paper: Softplus Attention with Re-weighting 2025, arXiv 2501.13428, Table 2, I and III

    What is left of softmax without its exponential, and without its division (I) or with it (III). The paper's check
    marks are lost; its text settles which is which. I is linear attention.
    """

    sums_to_one = False
    non_negative = False

    def __init__(self, site: Site, *, l1: bool = False) -> None:
        super().__init__()
        self.l1 = l1

    def rows(self, q: Tensor, k: Tensor, visible: Tensor, bias: Tensor | None = None) -> Tensor:
        z = scores(q, k, bias) * visible
        return l1(z) if self.l1 else z


@registry.add("exp")
class Exp(RowWise):
    """Softmax without its division.

    Formula: w_j = exp(min(z_j, 20))
    Paper: Softplus Attention with Re-weighting 2025, arXiv 2501.13428, Table 2, II

    Nothing can be subtracted before the exponential, since nothing divides it after: scores stop at 20.
    """

    sums_to_one = False
    CEILING = 20.0

    def __init__(self, site: Site) -> None:
        super().__init__()

    def rows(self, q: Tensor, k: Tensor, visible: Tensor, bias: Tensor | None = None) -> Tensor:
        return scores(q, k, bias).clamp(max=self.CEILING).exp() * visible
