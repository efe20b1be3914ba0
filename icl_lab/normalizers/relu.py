"""Rectified scores, divided by something."""

from typing import Literal

from torch import Tensor

from icl_lab.normalizers import registry
from icl_lab.normalizers.base import RowWise, Site, count, l1, scores, times


@registry.add("relu")
class Relu(RowWise):
    """Rectified scores over a length: the training length, the keys seen, their sum, or the root of half their number.

    Formula: w_j = relu(z_j) / D, D = T (``train``), n (``visible``), sum_i relu(z_i) (``l1``) or sqrt(n / 2) (``root``)
    Paper: Wortsman et al. 2023, arXiv 2309.08586 (train, visible); Li et al. 2022, arXiv 2202.00980 (l1);
        Shen et al. 2023, arXiv 2302.06461 (root)

    Wortsman et al. divide by the length of an image; in a decoder that is either the constant of training or the number
    of keys the row sees. Shen et al. add a learned scale and two losses; here the scale is 1 and there are none. A row
    without a positive score has no weights and no gradient: before training that is every second first row.
    """

    sums_to_one = False

    def __init__(self, site: Site, *, divide: Literal["train", "visible", "l1", "root"] = "train") -> None:
        super().__init__()
        self.divide, self.train_tokens = divide, site.train_tokens

    def rows(self, q: Tensor, k: Tensor, visible: Tensor, bias: Tensor | None = None) -> Tensor:
        if self.divide == "l1":
            return l1(scores(q, k, bias).relu() * visible, signed=False)
        # relu(z / D) = relu(z) / D for D > 0, so the division is one of the query.
        divisor = self._divisor(visible, q)
        return scores(q / divisor, k, times(bias, 1 / divisor)).relu() * visible

    def _divisor(self, visible: Tensor, q: Tensor) -> Tensor:
        """Return D of each row, (t 1)."""
        n = count(visible).to(q.dtype).unsqueeze(-1)
        if self.divide == "train":
            return n.new_full(n.shape, self.train_tokens)
        return n if self.divide == "visible" else (n / 2).sqrt()
