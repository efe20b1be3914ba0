"""Normalizers that may attend to nothing: a sink, rectified softmax, and a threshold that learns."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from icl_lab.base.registry import require
from icl_lab.normalizers import registry
from icl_lab.normalizers.base import (
    Normalizer,
    RowWise,
    Site,
    additive_mask,
    count,
    places,
    ratio,
    scores,
    softmax,
    upcast,
)

FARTHEST = 65_536  # distances with a separate bias, at most


@registry.add("sink")
class Sink(Normalizer):
    """Softmax with one more score in the sum, learned for each head, that belongs to no key.

    Formula: w_j = exp(z_j) / (exp(s) + sum_i exp(z_i))
    Paper: the learned logit as in the public code of gpt-oss 2025; ``s=0,learn=no`` is softmax1

    The sink is a key with score s and value 0, and the row's maximum is subtracted from it as from all others: a
    constant 1 added to shifted exponentials is a common bug.
    """

    sums_to_one = False
    row_wise = True
    learned = ("s",)

    def __init__(self, site: Site, *, s: float = 0.0, learn: bool = True) -> None:
        super().__init__()
        self.s = nn.Parameter(torch.full((site.heads,), s), requires_grad=learn)

    def weights(
        self, q: Tensor, k: Tensor, visible: Tensor, bias: Tensor | None = None, x: Tensor | None = None
    ) -> Tensor:
        wide, keys, seen = self._with_sink(q, k, visible)
        z = wide @ keys.transpose(-1, -2) + additive_mask(seen, wide.dtype)
        return (z if bias is None else z + F.pad(bias, (1, 0))).softmax(-1)[..., 1:].to(q.dtype)

    def attend(
        self, q: Tensor, k: Tensor, v: Tensor, visible: Tensor, bias: Tensor | None = None, x: Tensor | None = None
    ) -> Tensor:
        wide, keys, seen = self._with_sink(q, k, visible)
        values = F.pad(v, (0, 1, 1, 0))
        if bias is not None:  # the sink has no position
            seen = (F.pad(bias, (1, 0)) + additive_mask(seen, bias.dtype)).to(v.dtype)
        o = F.scaled_dot_product_attention(wide.to(v.dtype), keys.to(v.dtype), values, attn_mask=seen, scale=1.0)
        return o[..., :-1]

    def _with_sink(self, q: Tensor, k: Tensor, visible: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Queries (b h t d+1), keys (b h t+1 d+1) and mask (t t+1): one more channel, in which the sink's key is s."""
        queries = F.pad(upcast(q) * q.shape[-1] ** -0.5, (0, 1), value=1.0)
        sink = F.pad(self.s.view(1, -1, 1, 1), (q.shape[-1], 0)).expand(q.shape[0], -1, -1, -1)
        return (
            queries,
            torch.cat([sink.to(queries.dtype), F.pad(upcast(k), (0, 1))], -2),
            F.pad(visible, (1, 0), value=True),
        )


@registry.add("softpick")
class Softpick(RowWise):
    """Rectified softmax: only positive scores get weight, and a row may get none.

    Formula: w_j = relu(exp(z_j) - 1) / sum_i |exp(z_i) - 1|
    Paper: Softpick 2025, arXiv 2504.20966

    The score 0 has a meaning here, so a shift by the row's maximum m goes into both terms: exp(z - m) - exp(-m), each
    less 1 to keep the digits of small scores. A row of zeros has no weights and no gradient.
    """

    sums_to_one = False

    def __init__(self, site: Site) -> None:
        super().__init__()

    def rows(self, q: Tensor, k: Tensor, visible: Tensor, bias: Tensor | None = None) -> Tensor:
        # A hidden score becomes 0, the score without weight. Masking later would be too late: exp(z - m) of a hidden
        # score may be infinite, since m is the largest visible one.
        z = scores(q, k, bias) * visible
        # A common factor exp(-m) cancels, so m needs no gradient; 0 at least, or exp(-m) would overflow.
        m = z.detach().amax(-1, keepdim=True).clamp(min=0)
        e = (z - m).expm1() - (-m).expm1()
        return ratio(e.relu(), e.abs().sum(-1, keepdim=True))


@registry.add("elastic")
class Elastic(RowWise):
    """Softmax less a learned multiple of the uniform share, rectified.

    Formula: w_ij = relu(softmax_j(z_ij + a_|i-j|) + tau / n), a = 0 without ``bias``
    Paper: Elastic-Softmax 2026, arXiv 2601.00919

    tau belongs to a head and starts at -1, where a key must get more than the uniform share to keep anything; a first
    row then has no weight at all. With ``bias=m`` each head also learns a number a for each distance 0 .. m - 1, from 0
    on, and has none beyond: the position bias of the paper's Lazy Attention, which takes m = 512.
    """

    sums_to_one = False
    learned = ("tau",)

    def __init__(self, site: Site, *, tau: float = -1.0, learn: bool = True, bias: int = 0) -> None:
        super().__init__()
        require(0 <= bias <= FARTHEST, f"bias must be >= 0 and at most {FARTHEST:,}", bias)
        require(learn or not bias, "a bias is learned, so it needs learn=yes", f"learn=no,bias={bias}")
        self.tau = nn.Parameter(torch.full((site.heads,), tau), requires_grad=learn)
        self.bias = nn.Parameter(torch.zeros(site.heads, bias)) if bias else None
        self.ordered, self.maps = bool(bias), {"bias": "own"} if bias else {}

    def rows(self, q: Tensor, k: Tensor, visible: Tensor, bias: Tensor | None = None) -> Tensor:
        # 0 on hidden keys, where the softmax is 0 as well: relu(0) is the exact 0 they must get.
        share = visible / count(visible).to(q.dtype).unsqueeze(-1)
        z = scores(q, k, bias)
        if self.bias is not None:
            z = z + self._by_distance(self.bias, visible)
        return (softmax(z, visible) + self.tau.view(-1, 1, 1) * share).relu()

    def _by_distance(self, bias: Tensor, visible: Tensor) -> Tensor:
        """The bias of each pair, (h t_q t_k) or (b h t_q t_k)."""
        keys = torch.arange(visible.shape[-1], device=visible.device)
        distance = (places(visible).unsqueeze(-1) - keys).abs().clamp(max=bias.shape[1])
        found = F.pad(bias, (0, 1))[:, distance]
        return found if distance.ndim == 2 else found.squeeze(2).transpose(0, 1)
