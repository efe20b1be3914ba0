"""A gate on what a normalizer returns, which the token itself sets."""

from collections.abc import Mapping
from typing import Literal

from torch import Tensor
from torch.nn import functional as F

from icl_lab.base.errors import BadValue
from icl_lab.normalizers import wrappers
from icl_lab.normalizers.base import Normalizer, Site, Wrapper, extra, linear_map, upcast
from icl_lab.normalizers.starts import normal


@wrappers.add("gated")
class Gated(Wrapper):
    """A gate on the output of a normalizer, read off the token, one per head or one per channel.

    Formula: w = the normalizer's own weights, o_i = phi(W x_i) sum_j w_ij v_j, phi = sigmoid or softplus
    Paper: Gated Attention for Large Language Models 2025, arXiv 2505.06708 (sigmoid, on the output of the sum);
        ``phi=softplus`` as in the public code of Laguna 2026

    x is the token as the queries read it. The gate works on the sum of values, so weights are those of the normalizer
    inside, and so are maps and traits: a row that sums to 1 may still leave nothing behind. W has no bias and starts
    N(0, 0.02) from a fixed address, the same for every seed of a training, so a gate starts at sigmoid(0) = 1/2 or
    softplus(0) = log 2. It stands outside all other wrappers.
    """

    maps: Mapping[str, str] = {"w": "width"}

    def __init__(
        self,
        site: Site,
        rule: Normalizer,
        *,
        per: Literal["head", "channel"] = "head",
        phi: Literal["sigmoid", "softplus"] = "sigmoid",
    ) -> None:
        super().__init__(rule)
        if isinstance(rule, Gated):
            raise BadValue("a gate on a gate is one gate with more numbers: take one.")
        self.heads, self.phi, self.finishes = site.heads, phi, True
        gates = site.heads * (site.head_dim if per == "channel" else 1)
        self.w = normal(site, f"gated {per}", "w", gates, site.token_width)
        self.reads_tokens = "weights" if rule.reads_tokens == "weights" else "output"

    def weights(
        self, q: Tensor, k: Tensor, visible: Tensor, bias: Tensor | None = None, x: Tensor | None = None
    ) -> Tensor:
        # The gate does not touch them, so they need the tokens only where the normalizer inside does.
        return self.rule.weights(q, k, visible, **extra(self.rule, bias, x))

    def attend(
        self, q: Tensor, k: Tensor, v: Tensor, visible: Tensor, bias: Tensor | None = None, x: Tensor | None = None
    ) -> Tensor:
        o = self.rule.attend(q, k, v, visible, **extra(self.rule, bias, x))
        return o * self._gate(self.tokens(x), o)

    def output(self, o: Tensor, x: Tensor | None = None) -> Tensor:
        return self.rule.output(o, **extra(self.rule, None, x)) * self._gate(self.tokens(x), o)

    def _gate(self, x: Tensor, o: Tensor) -> Tensor:
        """The tokens x (b t w) -> (b h t 1) or (b h t d), in the type of ``o``."""
        gates = linear_map(upcast(x), self.w)
        gates = gates.view(*gates.shape[:-1], self.heads, gates.shape[-1] // self.heads).transpose(-2, -3)
        return (gates.sigmoid() if self.phi == "sigmoid" else F.softplus(gates)).to(o.dtype)
