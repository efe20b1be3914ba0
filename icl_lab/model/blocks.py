"""One layer of a model: attention by a normalizer, then an MLP, each on a normalised residual stream."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from icl_lab.base.errors import BadValue
from icl_lab.model.spec import Norm
from icl_lab.normalizers.base import Normalizer, extra, scores, upcast

Turn = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]  # q, k (b h t d) -> the same, turned by a position code
# Is handed each activation with its name, in the order in which they are computed; what it returns is used onwards.
See = Callable[[str, Tensor], Tensor]


def unseen(name: str, x: Tensor) -> Tensor:
    """Leave every activation as it is."""
    return x


@dataclass(frozen=True)
class Shape:
    """Shape of a block: width, heads, family, and which parts are on."""

    width: int
    heads: int
    llama: bool = False
    mlp: bool = True
    norm: Norm = "layer"
    qk_norm: bool = False


def norm(kind: Norm, width: int) -> nn.Module:
    """Fresh norm over the last dimension: gain 1, no shift, epsilon 1e-5."""
    if kind == "none":
        return nn.Identity()
    return nn.RMSNorm(width, eps=1e-5) if kind == "rms" else nn.LayerNorm(width)


def no_autocast(x: Tensor) -> torch.autocast:
    """Switch autocast off where ``x`` lies: what comes in is computed in the precision that it has."""
    return torch.autocast(x.device.type, enabled=False)


class Block(nn.Module):
    """x + attention(norm x), then x + mlp(norm x); a part that is off is left out with its norm."""

    def __init__(self, shape: Shape, rule: Normalizer | None) -> None:
        super().__init__()
        self.attention = Attention(shape, rule) if rule is not None else None
        self.before_attention = norm(shape.norm, shape.width) if rule is not None else None
        self.mlp = (SwiGLU(shape.width) if shape.llama else MLP(shape.width)) if shape.mlp else None
        self.before_mlp = norm(shape.norm, shape.width) if shape.mlp else None

    def forward(
        self, x: Tensor, visible: Tensor, turn: Turn, see: See, answers: slice, bias: Tensor | None = None
    ) -> Tensor:
        """x (b t d), visible (t t), bias (h t t) or none -> (b t d), of which only the ``answers`` are returned."""
        x = see("before", x)
        if self.attention is not None and self.before_attention is not None:
            x = x + see("attention", self.attention(self.before_attention(x), visible, turn, see, bias))
        x = x[:, answers]
        if self.mlp is not None and self.before_mlp is not None:
            x = x + see("mlp", self.mlp(self.before_mlp(x)))
        return see("after", x)


class Attention(nn.Module):
    """Multi-head attention with the weights of a normalizer; ``qk_norm`` bounds scores by norms of queries and keys."""

    def __init__(self, shape: Shape, rule: Normalizer) -> None:
        super().__init__()
        self.heads = shape.heads
        self.qkv = nn.Linear(shape.width, 3 * shape.width, bias=not shape.llama)
        self.project = nn.Linear(shape.width, shape.width, bias=not shape.llama)
        self.rule = rule
        d = shape.width // shape.heads
        self.norm_q, self.norm_k = (nn.RMSNorm(d, eps=1e-5) if shape.qk_norm else nn.Identity() for _ in range(2))

    def forward(self, x: Tensor, visible: Tensor, turn: Turn, see: See, bias: Tensor | None) -> Tensor:
        """x (b t d), visible (t t), bias of the scores (h t t) or none -> (b t d)."""
        b, t, d = x.shape
        # In three parts first: then a gradient is put together in one pass, and unbind would take two.
        q, k, v = (part.view(b, t, self.heads, -1).transpose(1, 2) for part in self.qkv(x).chunk(3, -1))
        q, k = turn(self.norm_q(q), self.norm_k(k))
        q, k, v = see("q", q), see("k", k), see("v", v)
        if x.device.type == "cpu" and torch.is_autocast_enabled("cpu"):
            q, k, v = upcast(q), upcast(k), upcast(v)  # attention in bfloat16 takes torch six times as long, backwards
        # A normalizer widens what it must; autocast would narrow the scores again, in the middle of its formula.
        with no_autocast(x):
            more = extra(self.rule, bias, x)
            other = None if see is unseen else self._replaced(see, q, k, visible, bias, x)
            if other is None:
                o = self.rule.attend(q, k, v, visible, **more)
            else:
                o = self.rule.output(other @ v, **extra(self.rule, None, x))
            o = see("heads", o)
        return cast(Tensor, self.project(o.transpose(1, 2).reshape(b, t, d)))

    def _replaced(
        self, see: See, q: Tensor, k: Tensor, visible: Tensor, bias: Tensor | None, x: Tensor
    ) -> Tensor | None:
        """Weights (b h t t) in the place of the normalizer's own; none where neither they nor the scores change."""
        own = self.rule.weights(q, k, visible, **extra(self.rule, bias, x))
        z = scores(q, k, bias)
        given = see("scores", z)
        made = own if given is z else self._of_scores(given, q, k, visible, x)
        used = see("weights", made)
        return None if used is own else used

    def _of_scores(self, z: Tensor, q: Tensor, k: Tensor, visible: Tensor, x: Tensor) -> Tensor:
        """Weights that the normalizer gives to scores z (b h t t): those of a query of zeros, z being added.

        Raises ``BadValue`` for a normalizer whose weights depend on more than scores, tested on a small example.
        """
        weights = self.rule.weights
        if self.rule.takes_bias:
            small_q, small_k, x_1 = F.normalize(q[:1], dim=-1), F.normalize(k[:1], dim=-1), x[:1]
            own = weights(small_q, small_k, visible, **extra(self.rule, None, x_1))
            added = extra(self.rule, scores(small_q, small_k), x_1)
            if torch.allclose(own, weights(0 * small_q, small_k, visible, **added), rtol=1e-3, atol=1e-6):
                return weights(0 * q, k, visible, **extra(self.rule, z, x))
        raise BadValue(f"{self.rule.title} makes its weights of more than these scores: patch q, k or weights instead.")


class MLP(nn.Module):
    """Two layers, four times as wide in between.

    Formula: W2 gelu(W1 x + b1) + b2, gelu the tanh form (Hendrycks & Gimpel 2016, arXiv 1606.08415)
    """

    def __init__(self, d: int) -> None:
        super().__init__()
        self.widen = nn.Linear(d, 4 * d)
        self.project = nn.Linear(4 * d, d)

    def forward(self, x: Tensor) -> Tensor:
        """x (b t d) -> (b t d)."""
        return cast(Tensor, self.project(F.gelu(self.widen(x), approximate="tanh")))


class SwiGLU(nn.Module):
    """A gated layer, 8/3 as wide in between (to the next 8), which has as many weights as four times without a gate.

    Formula: W2 (silu(G x) * W1 x)
    Paper: Shazeer 2020, arXiv 2002.05202
    """

    def __init__(self, d: int) -> None:
        super().__init__()
        wide = -(-8 * d // 24) * 8
        self.gate = nn.Linear(d, wide, bias=False)
        self.widen = nn.Linear(d, wide, bias=False)
        self.project = nn.Linear(wide, d, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """x (b t d) -> (b t d)."""
        return cast(Tensor, self.project(F.silu(self.gate(x)) * self.widen(x)))
