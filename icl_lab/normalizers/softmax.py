"""Softmax, and softmax at a fixed temperature."""

import torch
from torch import Tensor

from icl_lab.base.registry import require
from icl_lab.normalizers import registry
from icl_lab.normalizers.base import ScaledQuery, Site

LEAST = 1e-20  # of tau


@registry.add("softmax")
class Softmax(ScaledQuery):
    """The baseline: exponentials of the scores, divided by their sum.

    Formula: w_j = exp(z_j) / sum_i exp(z_i)
    Paper: Vaswani et al. 2017, arXiv 1706.03762, Eq. 1
    """

    def __init__(self, site: Site) -> None:
        super().__init__()

    def scale(self, n: Tensor) -> Tensor:
        return torch.ones_like(n)


@registry.add("temperature")
class Temperature(ScaledQuery):
    """Softmax of scores divided by a constant temperature tau, on top of 1/sqrt(d).

    Formula: w = softmax(z / tau)
    Paper: Naim et al. 2025, arXiv 2508.14685, Appendix C; Hinton et al. 2015, arXiv 1503.02531

    The paper does not say whether tau multiplies or divides, nor whether 1/sqrt(d) stays. Dividing is the only reading
    that fits its motive (less saturation). W_Q can absorb tau: only the start and the learning rate differ.
    """

    def __init__(self, site: Site, *, tau: float = 5.0) -> None:
        super().__init__()
        require(tau > 0, "tau must be > 0", tau)
        require(tau >= LEAST, f"tau must be at least {LEAST:g}, or a score over tau overflows", tau)
        self.tau = tau

    def scale(self, n: Tensor) -> Tensor:
        return torch.full_like(n, 1 / self.tau)
