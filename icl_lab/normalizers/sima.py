"""SimA: attention without softmax, by queries and keys divided by their l1 norms."""

from typing import Literal

from torch import Tensor
from torch.nn import functional as F

from icl_lab.base.errors import BadValue
from icl_lab.normalizers import registry
from icl_lab.normalizers.base import Scored, Site

LEAST = 1e-6  # a norm below this is none


@registry.add("sima")
class SimA(Scored):
    """Products of queries and keys that are normalised instead of the weights.

    Formula: w_ij = sum_c q_ic k_jc / (A_ic B_ic), A_ic = sum_t |q_tc| and B_ic = sum_t |k_tc| over the tokens that
        row i sees; ``axis=feature``: w_ij = (q_i / |q_i|_1).(k_j / |k_j|_1)
    Paper: SimA 2022, arXiv 2206.08898

    The published norms run over all tokens of each channel, so a causal mask on top would leave the future in them.
    Here each row has its own, over its visible tokens; the last row equals the published normalizer. Weights have
    either sign and sum to anything, about 1/n of softmax's size. A factor 1/sqrt(d) is left out, since the norms would
    cancel it.
    """

    sums_to_one = False
    non_negative = False

    def __init__(self, site: Site, *, axis: Literal["tokens", "feature"] = "tokens") -> None:
        super().__init__()
        self.axis, self.row_wise = axis, axis == "feature"

    # There are no scores that a position code could add to.
    def rows(self, q: Tensor, k: Tensor, visible: Tensor) -> Tensor:  # type: ignore[override]
        if self.axis == "feature":
            q, k = (F.normalize(x, p=1.0, dim=-1, eps=LEAST) for x in (q, k))
        else:
            if visible.shape[-2] != visible.shape[-1]:
                raise BadValue(
                    "sima reads the queries of all tokens that a row sees, and a KV cache keeps only keys and values:"
                    " take use_cache=False, or sima:axis=feature."
                )
            seen = visible.to(q.dtype)
            # Both norms belong to the row, so both divide its query, and the keys stay as they are.
            q = q / (seen @ q.abs()).clamp(min=LEAST) / (seen @ k.abs()).clamp(min=LEAST)
        return (q @ k.transpose(-1, -2)) * visible
