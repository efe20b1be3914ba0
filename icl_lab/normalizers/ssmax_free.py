"""Scalable softmax with a free function of the number of keys."""

from typing import Literal

import torch
from torch import Tensor, nn

from icl_lab.normalizers import registry
from icl_lab.normalizers.base import ScaledQuery, Site


@registry.add("ssmax-free")
class SSMaxFree(ScaledQuery):
    """Softmax whose factor is learned freely for every number of keys: the experiment that led to SSMax.

    Formula: w = softmax((s p_n + b) z)
    Paper: Nakanishi 2025, arXiv 2501.19399, Eq. 3

    All layers and heads share p, one entry for each n of a training prompt, starting at 1; s and b belong to a head and
    start at 1 and 0. The paper does not say what p is beyond the training length: here the law a + b log n fitted to
    the p of that moment (``beyond=fit``), or its last entry (``beyond=clamp``). p -> 2p, s -> s/2 changes nothing, nor
    does p -> p + c, b -> b - sc, so a fitted a and b mean little by themselves.
    """

    learned = ("p", "s", "b")
    shared = ("p",)

    def __init__(self, site: Site, *, beyond: Literal["fit", "clamp"] = "fit") -> None:
        super().__init__()
        self.beyond = beyond
        self.p = nn.Parameter(torch.ones(site.train_tokens))
        self.s = nn.Parameter(torch.ones(site.heads))
        self.b = nn.Parameter(torch.zeros(site.heads))

    def scale(self, n: Tensor) -> Tensor:
        trained = len(self.p)
        p = self.p[n.long().clamp(max=trained) - 1]
        # No row of a prompt this short can see more keys than were trained: spare the fit. With one mask a prompt there
        # may be more keys than rows (a cache).
        if self.beyond == "fit" and (n.ndim > 1 or torch.compiler.is_exporting() or len(n) > trained):
            p = torch.where(n > trained, self._law(n), p)
        return self.s.unsqueeze(-1) * p + self.b.unsqueeze(-1)

    def _law(self, n: Tensor) -> Tensor:
        """The least-squares line of p against log n over 1 .. train_tokens, at ``n``; linear in p, so smooth."""
        x = torch.arange(1, len(self.p) + 1, dtype=self.p.dtype, device=self.p.device).log()
        away = x - x.mean()
        # A single trained length has no slope.
        slope = (away * self.p).sum() / away.square().sum().clamp(min=torch.finfo(x.dtype).tiny)
        return self.p.mean() + slope * (n.to(x.dtype).log() - x.mean())
