"""GPT-2's activation, about twice as fast on a CPU as torch's own."""

import math
from typing import Any, cast

import torch
from torch import Tensor
from torch.nn import functional as F

from icl_lab.normalizers.second_order import differentiated_again, refuse_forward_twice

C1 = 2 * math.sqrt(2 / math.pi)
C3 = 0.044715 * C1
PIECE = 2**17  # numbers at a time: what is needed in between stays in the cache
# A sigmoid up to this counts as 0, as the tanh of torch's kernel does below -9. Else trained models, many of whose
# units are far below 0, send gradients of 1e-40 on, and a processor multiplies numbers below 1e-38 by microcode: a
# step of width 256 then takes twice as long.
LEAST = 1e-20


def gelu_new(x: Tensor) -> Tensor:
    """The tanh approximation of the Gaussian error linear unit, with its gradient; any shape.

    Formula: x / 2 (1 + tanh(c (x + 0.044715 x^3))) = x sigmoid(2 c (x + 0.044715 x^3)), c = sqrt(2 / pi)
    Source: Hendrycks & Gimpel 2016, arXiv 1606.08415; the name is that of Hugging Face transformers

    Below -7.8 activation and gradient are 0; the formula gives less than 2e-18 there. Differentiable as often as torch's own.
    """
    if x.device.type != "cpu" or torch.compiler.is_compiling():  # a compiler fuses it with what stands around
        return F.gelu(x, approximate="tanh")
    if not (x.requires_grad and torch.is_grad_enabled()):
        return x * F.threshold_((x * x).mul_(C3).add_(C1).mul_(x).sigmoid_(), LEAST, 0)
    y: Tensor = Swish.apply(x)[0]  # type: ignore[no-untyped-call]
    return y


class Swish(torch.autograd.Function):
    """The sigmoid form. torch's kernel computes the tanh twice, and a CPU spends a fifth of a training step there.

    The slope is computed on the way forward, a piece at a time: of all that is needed in between, nothing as large as
    x is made, and nothing but the slope is kept.
    """

    @staticmethod
    def forward(x: Tensor) -> tuple[Tensor, Tensor]:
        """Returns the activation and its slope."""
        y, slope = torch.empty_like(x, memory_format=torch.contiguous_format), torch.empty(x.shape, dtype=x.dtype)
        parts = zip(*(torch.split(whole.view(-1), PIECE) for whole in (x.contiguous(), y, slope)), strict=True)
        between = torch.empty(min(PIECE, x.numel()), dtype=x.dtype)
        for x_, y_, slope_ in parts:
            s = torch.mul(x_, x_, out=between[: len(x_)])
            # d/dx x s(u) = s (1 + x u' (1 - s)), u' = C1 + 3 C3 x^2
            torch.mul(s, 3 * C3, out=slope_).add_(C1).mul_(x_)
            F.threshold_(s.mul_(C3).add_(C1).mul_(x_).sigmoid_(), LEAST, 0)
            slope_.mul_(torch.sub(1, s, out=y_)).add_(1).mul_(s)
            torch.mul(x_, s, out=y_)
        return y, slope

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor], output: tuple[Tensor, Tensor]) -> None:  # noqa: D102
        ctx.save_for_backward(*inputs, output[1])
        ctx.save_for_forward(*inputs)
        ctx.mark_non_differentiable(output[1])

    @staticmethod
    def backward(ctx: Any, slope: Tensor, _: Tensor) -> Tensor:  # noqa: D102
        x, kept = ctx.saved_tensors
        return slope * (_slope(x) if differentiated_again(x) else cast(Tensor, kept))

    @staticmethod
    def jvp(ctx: Any, along: Tensor) -> tuple[Tensor, None]:  # noqa: D102
        refuse_forward_twice()
        (x,) = ctx.saved_tensors
        return along * _slope(x), None

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None], x: Tensor) -> Any:
        """Number by number: a stack is a larger tensor."""
        return Swish.apply(x), (in_dims[0], in_dims[0])  # type: ignore[no-untyped-call]


def _slope(x: Tensor) -> Tensor:
    """d/dx of the activation, by operations that torch differentiates: s (1 + x u' (1 - s)), u' = C1 + 3 C3 x^2."""
    square = x * x
    s = (x * (C1 + C3 * square)).sigmoid()
    return s * (1 + x * (C1 + 3 * C3 * square) * (1 - s))
