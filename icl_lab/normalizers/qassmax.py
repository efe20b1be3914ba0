"""Query-aware scalable softmax: small networks read the number of keys and the query, and stretch the query."""

from collections.abc import Mapping
from functools import partial
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from icl_lab.base.registry import require
from icl_lab.normalizers import registry
from icl_lab.normalizers.base import Normalizer, Site, count, linear_map, upcast
from icl_lab.normalizers.starts import linear

WIDEST = 4096


@registry.add("qassmax")
class QASSMax(Normalizer):
    """Softmax of queries times a learned function of log n and a gate that the query itself sets.

    Formula: w = softmax(q'.k / sqrt(d)), q' = q B(log n) (1 + tanh G(q)), B and G networks of one hidden layer of gelu
    Paper: TabICLv2 2026, arXiv 2602.11139; as in the public code of tabicl

    ``per=channel`` (that of the published models) gives each channel of a head its own factor, ``per=head`` one to all.
    B has a value for each head, G is one network for all heads. G ends in zeros, so the gate starts at 1; B starts as
    ``torch.nn.Linear`` does, so that a factor begins near 0 and may be negative, as published. These starts are the
    same for every seed of a training. A position code's bias is added to the stretched scores: the factor of a channel
    has none for a whole score.
    """

    row_wise = True
    maps: Mapping[str, str] = {
        **dict.fromkeys(("base_in", "base_in_bias", "base_out", "base_out_bias"), "own"),
        "gate_in": "query",
        **dict.fromkeys(("gate_in_bias", "gate_out", "gate_bias"), "own"),
    }

    def __init__(self, site: Site, *, per: Literal["channel", "head"] = "channel", hidden: int = 64) -> None:
        super().__init__()
        require(1 <= hidden <= WIDEST, f"hidden must be >= 1 and at most {WIDEST:,}", hidden)
        self.heads, d = site.heads, site.head_dim
        own = d if per == "channel" else 1
        self.softmax: Normalizer = registry.build("softmax", site)
        start = partial(linear, site, "qassmax")
        self.base_in = start("base_in", hidden, 1, inputs=1)
        self.base_in_bias = start("base_in_bias", hidden, inputs=1)
        self.base_out = start("base_out", site.heads * own, hidden, inputs=hidden)
        self.base_out_bias = start("base_out_bias", site.heads * own, inputs=hidden)
        self.gate_in = start("gate_in", hidden, d, inputs=d)
        self.gate_in_bias = start("gate_in_bias", hidden, inputs=d)
        self.gate_out = nn.Parameter(torch.zeros(own, hidden))
        self.gate_bias = nn.Parameter(torch.zeros(own))

    def weights(
        self, q: Tensor, k: Tensor, visible: Tensor, bias: Tensor | None = None, x: Tensor | None = None
    ) -> Tensor:
        return self.softmax.weights(self._stretched(q, visible), upcast(k), visible, bias).to(q.dtype)

    def attend(
        self, q: Tensor, k: Tensor, v: Tensor, visible: Tensor, bias: Tensor | None = None, x: Tensor | None = None
    ) -> Tensor:
        return self.softmax.attend(self._stretched(q, visible).to(q.dtype), k, v, visible, bias)

    def _stretched(self, q: Tensor, visible: Tensor) -> Tensor:
        """Return q' (b h t_q d), in single precision or better."""
        q = upcast(q)
        log_n = count(visible).to(q.dtype).log().unsqueeze(-1)
        hidden = F.gelu(linear_map(log_n, self.base_in, self.base_in_bias))
        base = linear_map(hidden, self.base_out, self.base_out_bias)  # (t h*own) or (b 1 t_q h*own)
        base = base.view(*base.shape[:-1], self.heads, base.shape[-1] // self.heads).transpose(
            -2, -3
        )  # (h t own) or (b 1 h t_q own)
        inner = F.gelu(linear_map(q, self.gate_in, self.gate_in_bias))
        gate: Tensor = 1 + linear_map(inner, self.gate_out, self.gate_bias).tanh()
        return q * (base if base.ndim == 3 else base.squeeze(1)) * gate
