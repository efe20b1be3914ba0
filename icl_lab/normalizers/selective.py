"""Selective attention: a token can tell the tokens after it not to look at one before it."""

import torch
from torch import Tensor

from icl_lab.base.errors import BadValue
from icl_lab.normalizers import registry
from icl_lab.normalizers.base import Scored, Site, is_causal, scores, softmax


@registry.add("selective")
class Selective(Scored):
    """Softmax of scores less what the tokens in between hold against a key, by their positive scores in the first head.

    Formula: w_ij = softmax_j(z_ij - F_ij), F_ij = sum_{j < l < i} relu(z_lj of the first head)
    Paper: Selective Attention Improves Transformer 2024, arXiv 2410.02703, Section 3

    Nothing is learned. No token holds anything against itself, nor, with ``first=yes``, against the first token that
    it sees: in the paper that is <BOS>, here the first number of a prompt. ``first=no`` leaves that exception out. F
    counts tokens l that row i sees and that see j; all heads share it, the first one included.
    """

    ordered = True
    one_sided = True

    def __init__(self, site: Site, *, first: bool = True) -> None:
        super().__init__()
        self.first = first

    def rows(self, q: Tensor, k: Tensor, visible: Tensor, bias: Tensor | None = None) -> Tensor:
        if visible.shape[-2] != visible.shape[-1]:
            raise BadValue(
                "selective reads the queries of all tokens that a row sees, and a KV cache keeps only keys and values:"
                " take use_cache=False."
            )
        z = scores(q, k, bias)
        against = z[:, :1].relu() * self._able(visible)
        # Of the tokens before each row, as far as it sees them.
        held = against.cumsum(-2) - against if is_causal(visible) else visible.tril(-1).to(z.dtype) @ against
        return softmax(z - held, visible)

    def _able(self, visible: Tensor) -> Tensor:
        """Which token (row) can hold something against which, as large as the mask."""
        t = visible.shape[-1]
        able = visible & ~torch.eye(t, dtype=torch.bool, device=visible.device)
        return able & (visible.cumsum(-1) > 1) if self.first else able
