"""Sparse normalizers: sparsemax, alpha-entmax, and entmax with scores that grow with the number of keys."""

import math
from typing import Any, cast

import torch
from torch import Tensor, nn

from icl_lab.errors import BadValue
from icl_lab.normalizers import registry
from icl_lab.normalizers.base import Scored, Site, additive_mask, count, scores, times
from icl_lab.registry import require

STEPS = 100  # of Newton's method; it takes about ten, and up to a hundred where alpha is close to 1


@registry.add("sparsemax")
class Sparsemax(Scored):
    """The Euclidean projection of the scores onto the simplex: distant keys get exactly 0.

    Formula: w_j = max(z_j - tau, 0), tau such that sum_j w_j = 1
    Paper: Martins & Astudillo 2016, arXiv 1602.02068

    A key without weight gets no gradient either.
    """

    def __init__(self, site: Site) -> None:
        super().__init__()

    def rows(self, q: Tensor, k: Tensor, visible: Tensor, bias: Tensor | None = None) -> Tensor:
        return entmax(scores(q, k, bias), visible, 2.0)


@registry.add("entmax")
class Entmax(Scored):
    """Between softmax and sparsemax: zeros for distant keys, and a smooth descent towards them.

    Formula: w_j = max((alpha - 1) z_j - tau, 0)^(1 / (alpha - 1)), tau such that sum_j w_j = 1
    Paper: Peters et al. 2019, arXiv 1905.05702

    The limit alpha = 1 is softmax, alpha = 2 is sparsemax.
    """

    def __init__(self, site: Site, *, alpha: float = 1.5) -> None:
        super().__init__()
        if alpha == 1:
            raise BadValue("alpha = 1 is softmax: choose 'softmax', or an alpha above 1.")
        require(alpha > 1, "alpha must be > 1", alpha)
        self.alpha = alpha
        self.stackable = alpha <= 2  # the bisection of the package cannot be mapped

    def rows(self, q: Tensor, k: Tensor, visible: Tensor, bias: Tensor | None = None) -> Tensor:
        return entmax(scores(q, k, bias), visible, self.alpha)


@registry.add("asentmax")
class ASEntmax(Scored):
    """Adaptive-scalable entmax: 1.5-entmax of scores that grow by a learned power of a logarithm of the length.

    Formula: w = entmax_1.5(c_n z), c_n = 1 + beta (log(n + 1))^gamma
    Paper: Long-Context Generalization with Sparse Attention 2025, arXiv 2506.16640

    beta and gamma belong to a head, as in the published code's mode "learn"; there they are drawn (beta uniformly from
    0.1 to 1, gamma normally around 0), here they start at the middles of as many equal parts of 0.1 .. 1 as there are
    heads, and at 0. The paper's own variant reads them off the token, which is left out here.
    """

    learned = ("beta", "gamma")

    def __init__(self, site: Site) -> None:
        super().__init__()
        middles = (torch.arange(site.heads, dtype=torch.float64) + 0.5) / site.heads
        self.beta = nn.Parameter((0.1 + 0.9 * middles).float())
        self.gamma = nn.Parameter(torch.zeros(site.heads))

    def rows(self, q: Tensor, k: Tensor, visible: Tensor, bias: Tensor | None = None) -> Tensor:
        n = count(visible).to(q.dtype)
        c = 1 + self.beta.unsqueeze(-1) * (n + 1).log() ** self.gamma.unsqueeze(-1)
        c = c.unsqueeze(-1)
        return entmax(scores(q * c, k, times(bias, c)), visible, 1.5)


def entmax(z: Tensor, visible: Tensor, alpha: float) -> Tensor:
    """alpha-entmax over the visible keys, in single precision or better; a row that sees nothing gets zeros."""
    # A row of minus infinities has no threshold; such a row is computed as if it saw everything, and then hidden.
    blind = ~visible.any(-1, keepdim=True)
    seen = z + additive_mask(visible | blind, z.dtype)
    # An exported graph cannot look at its numbers, as Newton's method does to stop; halving takes a fixed number of
    # steps.
    newton = alpha <= 2 and not torch.compiler.is_exporting()
    w: Tensor = Projection.apply(seen, alpha)[0] if newton else _bisected(seen, alpha)  # type: ignore[no-untyped-call]
    return w * visible


class Projection(torch.autograd.Function):
    """Entmax for 1 < alpha <= 2, its threshold found by Newton's method.

    Formula: f(tau) = sum_j relu((alpha - 1) z_j - tau)^p - 1 = 0, p = 1 / (alpha - 1)

    f is convex and falls, so that from the left, tau = max (alpha - 1) z - 1, every step goes towards the root and none
    beyond it. A handful of passes over the scores is several times faster than to sort them.
    """

    @staticmethod
    def forward(z: Tensor, alpha: float) -> tuple[Tensor]:
        """Scores (.. t), hidden ones minus infinity -> weights (.. t)."""
        p = 1 / (alpha - 1)
        x = (z - z.amax(-1, keepdim=True)).mul_(alpha - 1)
        tau = torch.full_like(x[..., :1], -1.0)
        for _ in range(STEPS):
            r = (x - tau).clamp_(min=0)
            slope = p * _power(r, p - 1).sum(-1, keepdim=True)
            step = (_power(r, p).sum(-1, keepdim=True) - 1).div_(slope).clamp_(min=0)
            tau += step
            if step.max() <= 2 * torch.finfo(z.dtype).eps:
                break
        w = _power((x - tau).clamp_(min=0), p)
        w /= w.sum(-1, keepdim=True)
        return (w,)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, float], output: tuple[Tensor]) -> None:
        ctx.save_for_backward(*output)
        ctx.alpha = inputs[1]

    @staticmethod
    def backward(ctx: Any, slope: Tensor) -> tuple[Tensor, None]:
        """dw_j / dz_i = s_j (delta_ij - s_i / sum s), s = w^(2 - alpha) on the support (arXiv 1905.05702)."""
        (w,) = ctx.saved_tensors
        s = _power(w, 2 - ctx.alpha)
        return s * (slope - (s * slope).sum(-1, keepdim=True) / s.sum(-1, keepdim=True)), None

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int, None], z: Tensor, alpha: float) -> Any:
        """Row by row: a stack is a larger tensor."""
        return Projection.apply(z.movedim(in_dims[0], 0), alpha), (0,)  # type: ignore[no-untyped-call]


def _power(r: Tensor, p: float) -> Tensor:
    """r^p for r >= 0, where 0^0 is 0: a key without weight has no slope."""
    if p == 0:
        return (r > 0).to(r.dtype)
    if p == 0.5:
        return r.sqrt()
    return r if p == 1 else r * r if p == 2 else r**p


def _bisected(z: Tensor, alpha: float) -> Tensor:
    # Imported when first used: the command line starts without it.
    from entmax import entmax_bisect

    # Beyond alpha = 2 the sum is not convex in tau, and Newton may jump past the root. A bracket of width 1 is halved
    # down to the digits of the numbers, and a few times more.
    halvings = 4 - round(math.log2(torch.finfo(z.dtype).eps))
    return cast(Tensor, entmax_bisect(z, alpha, dim=-1, n_iter=halvings))
