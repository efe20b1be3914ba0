"""Muon: torch's optimizer, matrices of one shape done together, in the arithmetic that the device is fast in."""

from collections import defaultdict
from collections.abc import Sequence
from functools import cache

import torch
from torch import Tensor

EPS = 1e-7  # the norm of a matrix counts as at least this: torch's default


class Muon(torch.optim.Muon):
    """``torch.optim.Muon``, several times as fast.

    Formula, for g the gradient of an (m n) matrix theta: B <- 0.95 B + 0.05 g; theta <- (1 - rate decay) theta -
    0.2 sqrt(max(m, n)) rate O(0.05 g + 0.95 B), with O as in ``orthogonal`` (Jordan 2024,
    https://kellerjordan.github.io/posts/muon/; the factor: Liu et al., arXiv 2502.16982)

    Matrices of one shape and factor are done together, where torch takes one after another. torch computes O in
    bfloat16. A GPU, and a CPU with AMX, do so faster than in float32. Other CPUs have no instructions for it, and there
    that takes ten times as long as in float32: more than all the rest of a step of a small model. There products of
    bfloat16 numbers are summed in float32 and then rounded, which is the same but for rounding.

    The rate may be a tensor of one element, which a recorded step reads anew each time; torch's own step refuses one.
    ``factors`` multiply the step of each matrix, in order (none: 1).
    """

    def __init__(self, matrices: Sequence[Tensor], decay: float, factors: Sequence[float] = ()) -> None:
        super().__init__(matrices, weight_decay=decay, eps=EPS, adjust_lr_fn="match_rms_adamw")
        self.factors = dict(zip(matrices, factors, strict=True)) if factors else {}

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """Move every matrix that has a gradient."""
        (group,) = self.param_groups
        rate: float | Tensor = group["lr"]
        alike = defaultdict[tuple[torch.Size, float], list[Tensor]](list)
        for p in group["params"]:
            if p.grad is not None:
                alike[p.shape, self.factors.get(p, 1.0)].append(p)
                if "momentum_buffer" not in self.state[p]:
                    self.state[p]["momentum_buffer"] = torch.zeros_like(p)
        for (shape, own), matrices in alike.items():
            gradients = [p.grad for p in matrices if p.grad is not None]
            means = [self.state[p]["momentum_buffer"] for p in matrices]
            torch._foreach_lerp_(means, gradients, 1 - group["momentum"])
            ahead = torch.stack(torch._foreach_lerp(gradients, means, group["momentum"]))
            optim = orthogonal(ahead, group["ns_coefficients"], group["ns_steps"]).unbind()
            torch._foreach_mul_(matrices, 1 - rate * group["weight_decay"])
            factor = -0.2 * max(shape) ** 0.5 * rate * own
            if isinstance(factor, Tensor):  # ``alpha`` would be read, and a recording would keep the number of today
                torch._foreach_add_(matrices, torch._foreach_mul(optim, factor))
            else:
                torch._foreach_add_(matrices, optim, alpha=factor)


def orthogonal(matrices: Tensor, coefficients: Sequence[float], steps: int) -> Tensor:
    """Return (k m n) matrices with all singular values near 1 and the directions of those given, (k m n).

    Formula: X <- X / |X|, |X| the root of its sum of squares; then ``steps`` times A = X X^T and
    X <- a X + (b A + c A A) X, for a, b, c = ``coefficients``. Every result is rounded to bfloat16.
    """
    a, b, c = coefficients
    rounded = Tensor.bfloat16 if matrices.device.type != "cpu" or has_amx() else _rounded
    tall = matrices.shape[-2] > matrices.shape[-1]
    x = rounded(matrices.mT if tall else matrices)
    x = rounded(x / rounded(torch.linalg.matrix_norm(x, keepdim=True)).clamp(min=EPS))
    for _ in range(steps):
        gram = rounded(x @ x.mT)
        update = rounded(torch.baddbmm(gram, gram, gram, beta=b, alpha=c))
        x = rounded(torch.baddbmm(x, update, x, beta=a))
    return (x.mT if tall else x).float()


@cache
def has_amx() -> bool:
    """True on a processor that multiplies matrices of bfloat16 by dedicated instructions (Intel's AMX)."""
    # torch 2.9 has no public function for it.
    capabilities: dict[str, object] = getattr(torch.cpu, "get_capabilities", dict)()
    return bool(capabilities.get("amx_bf16"))


def _rounded(x: Tensor) -> Tensor:
    return x.bfloat16().float()
