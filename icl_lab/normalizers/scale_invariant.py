"""Scale-invariant attention: as much attention for each octave of distance."""

import torch
from torch import Tensor

from icl_lab.base.registry import require
from icl_lab.normalizers import registry
from icl_lab.normalizers.base import RowWise, Site, places, scores, softmax

LEAST = 1e-30  # of tau


@registry.add("scale-invariant")
class ScaleInvariant(RowWise):
    """Softmax of scores that spread and sink with distance, so that near and far share attention at every length.

    Formula: w_ij = softmax_j(a_t z_ij + m_t), t = i - j, a_t = sqrt(1 + 2 log(1 + t/tau)), m_t = -2 log(1 + t/tau)
    Paper: Scale-invariant attention 2025, arXiv 2505.17083
    """

    ordered = True
    one_sided = True

    def __init__(self, site: Site, *, tau: float = 10.0) -> None:
        super().__init__()
        require(tau > 0, "tau must be > 0", tau)
        require(tau >= LEAST, f"tau must be at least {LEAST:g}, or the distance over tau overflows", tau)
        self.tau = tau

    def rows(self, q: Tensor, k: Tensor, visible: Tensor, bias: Tensor | None = None) -> Tensor:
        z = scores(q, k, bias)
        keys = torch.arange(k.shape[-2], dtype=z.dtype, device=z.device)
        # A key that stands later, where a mask shows one, is at distance 0.
        octaves = 2 * ((places(visible).to(z.dtype).unsqueeze(-1) - keys).clamp(min=0) / self.tau).log1p()
        return softmax(torch.addcmul(-octaves, z, (1 + octaves).sqrt()), visible)
