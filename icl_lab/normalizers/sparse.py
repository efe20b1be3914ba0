"""Sparse normalizers: sparsemax, alpha-entmax, and entmax with scores that grow with the number of keys."""

import math
import warnings
from typing import Any

import torch
from torch import Tensor, nn

from icl_lab.base.errors import BadValue
from icl_lab.base.registry import require
from icl_lab.normalizers import registry
from icl_lab.normalizers.base import RowWise, Site, additive_mask, count, scores, times, unveiled
from icl_lab.normalizers.second_order import differentiated_again, refuse_forward_twice

STEPS = 100  # of Newton's method, at most; it takes about ten
TOLERANCE = 1e-5  # of its last step, beyond which an end is missing
HALVINGS = 56  # of an interval of length 1, down to the digits of double precision
NARROW = (1.5, 2.0)  # values of alpha whose powers single precision bears
LEARNED = (1.01, 2.0)  # values between which an alpha is learned, as in the package of its authors
LEAST, MOST = 1 + 1e-6, 10.0  # of alpha: nearer to 1 its digits are lost, farther up slopes overflow


@registry.add("sparsemax")
class Sparsemax(RowWise):
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
class Entmax(RowWise):
    """Between softmax and sparsemax: zeros for distant keys, and a smooth descent towards them.

    Formula: w_j = max((alpha - 1) z_j - tau, 0)^(1 / (alpha - 1)), tau such that sum_j w_j = 1
    Paper: Peters et al. 2019, arXiv 1905.05702; Correia et al. 2019, arXiv 1909.00015 (a learned alpha)

    The limit alpha = 1 is softmax, alpha = 2 is sparsemax. Alpha is at least 1.000001 and at most 10. At 1.5 and 2 the
    threshold is found in the precision of the scores, elsewhere in double precision. With ``learn=yes`` each head
    learns an alpha between 1.01 and 2, which starts at ``alpha``.
    """

    def __init__(self, site: Site, *, alpha: float = 1.5, learn: bool = False) -> None:
        super().__init__()
        if alpha == 1:
            raise BadValue("alpha = 1 is softmax: choose 'softmax', or an alpha above 1.")
        require(alpha > 1, "alpha must be > 1", alpha)
        require(LEAST <= alpha <= MOST, f"alpha must be at least 1.000001 and at most {MOST:g}", alpha)
        self.fixed, self.raw, self.learned = alpha, None, ()
        if learn:
            low, high = LEARNED
            require(low < alpha < high, f"a learned alpha must start above {low:g} and below {high:g}", alpha)
            start = math.log((alpha - low) / (high - alpha))
            self.raw, self.learned = nn.Parameter(torch.full((site.heads,), start)), ("alpha",)

    @property
    def alpha(self) -> Tensor | float:
        """Alpha: of all heads, or (h) where it is learned."""
        low, high = LEARNED
        return self.fixed if self.raw is None else low + (high - low) * self.raw.sigmoid()

    def rows(self, q: Tensor, k: Tensor, visible: Tensor, bias: Tensor | None = None) -> Tensor:
        z, alpha = scores(q, k, bias), self.alpha
        return entmax(z, visible, alpha) if isinstance(alpha, float) else entmax_of_heads(z, visible, alpha)


@registry.add("asentmax")
class ASEntmax(RowWise):
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
        c = c.to(q.dtype).unsqueeze(-1)
        return entmax(scores(q * c, k, times(bias, c)), visible, 1.5)


def entmax(z: Tensor, visible: Tensor, alpha: float) -> Tensor:
    """alpha-entmax over the visible keys, in single precision or better; a row that sees nothing gets zeros."""
    # A row of minus infinities has no threshold; such a row is computed as if it saw everything, and then hidden.
    seen = z + additive_mask(unveiled(visible), z.dtype)
    # An exported graph cannot look at its numbers, as Newton's method does to stop; halving takes a fixed number of
    # steps.
    if torch.compiler.is_exporting():
        return _halved(seen, alpha) * visible
    w: Tensor = Projection.apply(seen, alpha)[0]  # type: ignore[no-untyped-call]
    return w * visible


def entmax_of_heads(z: Tensor, visible: Tensor, alpha: Tensor) -> Tensor:
    """alpha-entmax of scores (b h t_q t_k) with an alpha for each head, (h), that gets a gradient.

    The threshold is halved down to, without gradients. Two steps of Newton's method from the root leave it where it is
    and have its first and second derivatives, by the scores and by alpha: one step errs in the second.
    """
    seen = unveiled(visible)
    a = (alpha.double() - 1).view(-1, 1, 1)
    peak = (z.detach() + additive_mask(seen, z.dtype)).amax(-1, keepdim=True)
    # Hidden scores are finite, and below any threshold: an infinite one would make NaN of the slope of alpha.
    x = torch.where(seen, (z - peak).double() * a, -2.0)
    with torch.no_grad():
        tau, high = torch.full_like(x[..., :1], -1.0), torch.zeros_like(x[..., :1])
        for _ in range(HALVINGS):
            middle = (tau + high) / 2
            tau, high = _halves(tau, middle, high, _lifted(x - middle, 1 / a).sum(-1, keepdim=True) > 1)
    for _ in range(2):
        slope = _lifted(x - tau, 1 / a - 1).sum(-1, keepdim=True) / a
        tau = tau + (_lifted(x - tau, 1 / a).sum(-1, keepdim=True) - 1) / slope
    w = _lifted(x - tau, 1 / a)
    return (w / w.sum(-1, keepdim=True)).to(z.dtype) * visible


def _lifted(r: Tensor, p: Tensor) -> Tensor:
    """r^p where r > 0, elsewhere 0 without a slope."""
    positive = r > 0
    return torch.where(positive, r, 1.0) ** p * positive


def _halves(low: Tensor, middle: Tensor, high: Tensor, above: Tensor) -> tuple[Tensor, Tensor]:
    """Half of each interval: the upper one where the value at its middle is ``above`` the root."""
    return torch.where(above, middle, low), torch.where(above, high, middle)


class Projection(torch.autograd.Function):
    """Entmax by its threshold, with its slopes in closed form.

    Formula: dw_j / dz_i = s_j (delta_ij - s_i / sum s), s = w^(2 - alpha) on the support (arXiv 1905.05702)
    """

    @staticmethod
    def forward(z: Tensor, alpha: float) -> tuple[Tensor]:
        """Scores (.. t), hidden ones minus infinity -> weights (.. t)."""
        if not z.numel():
            return (torch.zeros_like(z),)
        return (_newton(z, alpha) if alpha <= 2 else _halved(z, alpha),)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, float], output: tuple[Tensor]) -> None:
        ctx.save_for_backward(*output)
        ctx.save_for_forward(*output)
        ctx.alpha = inputs[1]

    @staticmethod
    def backward(ctx: Any, slope: Tensor) -> tuple[Tensor, None]:
        (w,) = ctx.saved_tensors
        return _along(w, slope, ctx.alpha), None

    @staticmethod
    def jvp(ctx: Any, along: Tensor, _: None) -> tuple[Tensor]:
        refuse_forward_twice()
        (w,) = ctx.saved_tensors
        return (_along(w, along, ctx.alpha),)

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int, None], z: Tensor, alpha: float) -> Any:
        """Map row by row: the mapped axis becomes the first."""
        return Projection.apply(z.movedim(in_dims[0], 0), alpha), (0,)  # type: ignore[no-untyped-call]


def _along(w: Tensor, direction: Tensor, alpha: float) -> Tensor:
    """The derivative of the weights ``w`` times a direction; it is symmetric, so forward and backward are one."""
    if alpha > 2 or differentiated_again(w):  # a power below 0, or the slope of one below 1: infinite at weight 0
        none = w == 0
        wide = w.double() if alpha > 2 else w  # a small weight has a steep slope
        s = _power(wide.masked_fill(none, 1), 2 - alpha).masked_fill(none, 0)
    else:
        s = _power(w, 2 - alpha)
    return (s * (direction - (s * direction).sum(-1, keepdim=True) / s.sum(-1, keepdim=True))).to(direction.dtype)


def _newton(z: Tensor, alpha: float) -> Tensor:
    """Entmax for 1 < alpha <= 2, its threshold found by Newton's method.

    Formula: f(tau) = sum_j relu((alpha - 1) z_j - tau)^p - 1 = 0, p = 1 / (alpha - 1)

    f is convex and falls, so that from the left, tau = max (alpha - 1) z - 1, every step goes towards the root and none
    beyond it. A handful of passes over the scores is several times faster than to sort them.
    """
    p = 1 / (alpha - 1)
    wide = z if alpha in NARROW else z.double()
    x = (wide - wide.amax(-1, keepdim=True)).mul_(alpha - 1)
    tau = torch.full_like(x[..., :1], -1.0)
    for _ in range(STEPS):
        r = (x - tau).clamp_(min=0)
        slope = p * _power(r, p - 1).sum(-1, keepdim=True)
        step = (_power(r, p).sum(-1, keepdim=True) - 1).div_(slope).clamp_(min=0)
        tau += step
        if step.max() <= 2 * torch.finfo(x.dtype).eps:
            break
    else:
        if step.max() > TOLERANCE:  # False where scores are NaN: a training says that itself
            words = f"entmax of alpha = {alpha:g}: a threshold still moves by {step.max():.2g} after {STEPS} steps"
            warnings.warn(words, stacklevel=2)
    w = _power((x - tau).clamp_(min=0), p)
    w /= w.sum(-1, keepdim=True)
    return w.to(z.dtype)


def _halved(z: Tensor, alpha: float) -> Tensor:
    """Entmax for any alpha, by halving the interval 0 .. 1 in which the largest weight u must lie.

    Formula: sum_j relu((alpha - 1) (z_j - max z) + u^(alpha - 1))^p = 1, p = 1 / (alpha - 1)

    The sum grows with u. Beyond alpha = 2 it is not convex, and Newton may jump past the root; the threshold itself,
    -u^(alpha - 1), may be too small to be halved down to.
    """
    p = 1 / (alpha - 1)
    wide = z.double()
    x = (wide - wide.amax(-1, keepdim=True)) * (alpha - 1)
    low = torch.zeros_like(x[..., :1])
    high = low + 1
    for _ in range(HALVINGS):
        u = (low + high) / 2
        above = _power((x + _power(u, alpha - 1)).clamp(min=0), p).sum(-1, keepdim=True) > 1
        low, high = _halves(low, u, high, ~above)
    w = _power((x + _power(high, alpha - 1)).clamp(min=0), p)
    return (w / w.sum(-1, keepdim=True)).to(z.dtype)


def _power(r: Tensor, p: float) -> Tensor:
    """r^p for r >= 0, where 0^0 is 0: a key without weight has no slope."""
    if p == 0:
        return (r > 0).to(r.dtype)
    if p == 0.5:
        return r.sqrt()
    return r if p == 1 else r * r if p == 2 else r**p
