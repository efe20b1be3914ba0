"""Scaled signed averaging."""

import math
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from icl_lab.base.registry import require
from icl_lab.normalizers import registry
from icl_lab.normalizers.base import Site, WarpedScore, softplus_inverse
from icl_lab.normalizers.second_order import differentiated_again, refuse_forward_twice


@registry.add("ssa")
class SSA(WarpedScore):
    """Scaled signed averaging: a power of the score in place of its exponential.

    Formula: w_j proportional to (1 + b|z_j|)^(n sgn z_j), that is softmax(n sgn(z) log(1 + b|z|))
    Paper: Naim, Bhar, Bolte, Asher 2025, arXiv 2508.14685

    n >= 1 and b > 0 start at 1.5 and 1, one of each a head (``per=layer``: one a layer). ``learn=n`` fixes b,
    ``learn=b`` fixes n, ``learn=no`` both. Written as the softmax of a warped score, because the power overflows where
    its logarithm does not. Here n is an exponent, not a length.

    ``form`` is how n and b follow from the learned r and s: ``softplus`` (n = 1 + softplus(r), b = softplus(s)) or
    ``exp`` (n = e^r, b = e^s, so that n may fall below 1).

    The authors' public code (omyokun/SSA, commit fe5f83b) starts elsewhere than the paper: one n = e^0.4 and one b = e
    a layer, in exponential form, in its GPT-2 (``ssa:n=1.4918247,b=e,per=layer,form=exp``), and b = 0.8 fixed in its
    Nemotron (``ssa:b=0.8,learn=n,per=layer``). What was read there besides: docs/boundary.md, "The public code".
    """

    learned = ("n", "b")

    def __init__(
        self,
        site: Site,
        *,
        n: float = 1.5,
        b: float | Literal["e"] = 1.0,
        learn: bool | Literal["n", "b"] = True,
        per: Literal["head", "layer"] = "head",
        form: Literal["softplus", "exp"] = "softplus",
    ) -> None:
        super().__init__()
        b = math.e if b == "e" else b
        learn_n, learn_b = learn in (True, "n"), learn in (True, "b")
        require(b > 0, "b must be > 0", b)
        self.exponential = form == "exp"
        if self.exponential:
            require(n > 0, "n must be > 0", n)
            raw_n, raw_b = math.log(n), math.log(b)
        else:
            require(n >= 1, "n must be >= 1", n)
            require(n > 1 or not learn_n, "n must be > 1 while it is learned (its raw value at 1 is minus infinity)", n)
            raw_n, raw_b = softplus_inverse(n - 1), softplus_inverse(b)
        size = site.heads if per == "head" else 1
        self.raw_n = nn.Parameter(torch.full((size,), raw_n), requires_grad=learn_n)
        self.raw_b = nn.Parameter(torch.full((size,), raw_b), requires_grad=learn_b)

    @property
    def n(self) -> Tensor:
        """Exponent, (h) or (1)."""
        return self.raw_n.exp() if self.exponential else 1 + F.softplus(self.raw_n)

    @property
    def b(self) -> Tensor:
        """Slope inside the logarithm, (h) or (1)."""
        return self.raw_b.exp() if self.exponential else F.softplus(self.raw_b)

    def warp(self, z: Tensor, n: Tensor) -> Tensor:
        n, b = self.n.view(-1, 1, 1), self.b.view(-1, 1, 1)
        if torch.compiler.is_exporting():  # ONNX has no copysign
            return n * _parts(z, n, b)[1]
        power = CompiledPower if torch.compiler.is_compiling() else Power
        warped: Tensor = power.apply(z, n, b)[0]  # type: ignore[no-untyped-call]
        return warped


class CompiledPower(torch.autograd.Function):
    """g = n sgn(z) log(1 + b|z|), its slopes in closed form: an eighth of a training step less than autograd takes.

    Formula: dg/dz = n b / (1 + b|z|), dg/dn = g / n, dg/db = n z / (1 + b|z|)

    |z| and sgn z have no slope at 0, but g has: n b, so a head whose scores all start at 0 learns.
    """

    @staticmethod
    def forward(z: Tensor, n: Tensor, b: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """z (.. h t t), n and b (h 1 1) or (1 1 1) -> g, 1 + b|z| and g / n, of the shape of z."""
        u = z.abs().mul_(b)
        signed = torch.log1p(u).copysign_(z)
        return signed * n, u.add_(1), signed

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor, Tensor], output: tuple[Tensor, Tensor, Tensor]) -> None:
        _, u, signed = output
        ctx.save_for_backward(*inputs, u, signed)
        ctx.mark_non_differentiable(u, signed)
        if not torch.compiler.is_compiling():  # which leaves them out by itself, and does not know these words
            ctx.save_for_forward(*inputs)
            ctx.set_materialize_grads(False)  # two matrices of zeros, for slopes that nobody reads

    @staticmethod
    def backward(ctx: Any, slope: Tensor | None, *_: None) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        if slope is None:  # no requested gradient depends on these scores
            return None, None, None
        z, n, b, u, signed = ctx.saved_tensors
        again = differentiated_again(z, n, b)
        if again:
            u, signed = _parts(z, n, b)
        share = slope / u
        for_n = (slope * signed).sum_to_size(n.shape) if ctx.needs_input_grad[1] else None
        for_b = (share * z).sum_to_size(b.shape) * n if ctx.needs_input_grad[2] else None
        return share * (n * b) if again else share.mul_(n * b), for_n, for_b


class Power(CompiledPower):
    """The same with a forward derivative and a normalizer for stacks, which torch.compile does not know."""

    @staticmethod
    def jvp(ctx: Any, along_z: Tensor | None, along_n: Tensor | None, along_b: Tensor | None) -> Any:
        """The change of g along changes of z, n and b."""
        refuse_forward_twice()
        z, n, b = ctx.saved_tensors
        u, signed = _parts(z, n, b)
        found = torch.zeros_like(z)
        for along, slope in ((along_z, n * b / u), (along_n, signed), (along_b, n * z / u)):
            if along is not None:
                found = found + along * slope
        return found, None, None

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None, ...], z: Tensor, n: Tensor, b: Tensor) -> Any:
        """The mapped axis becomes the first: z (s .. h t t), n and b (s 1 .. h 1 1)."""
        parts = zip((z, n, b), in_dims, strict=True)
        z, n, b = (
            part.expand(info.batch_size, *part.shape) if at is None else part.movedim(at, 0) for part, at in parts
        )
        n, b = (part.view(len(part), *[1] * (z.ndim - part.ndim), *part.shape[1:]) for part in (n, b))
        return Power.apply(z, n, b), (0, 0, 0)  # type: ignore[no-untyped-call]


def _parts(z: Tensor, n: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """1 + b|z| and g / n, by operations that can be differentiated, g / n with its slope b at z = 0."""
    up, down = z.clamp(min=0), (-z).clamp(min=0)  # clamp has slope 1 at its bound, unlike |z|
    return 1 + b * z.abs(), torch.where(z >= 0, torch.log1p(b * up), -torch.log1p(b * down))
