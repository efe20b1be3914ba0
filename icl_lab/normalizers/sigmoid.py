"""Sigmoid attention: each key is weighed by itself."""

import math
from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional as F

from icl_lab.normalizers import registry
from icl_lab.normalizers.base import RowWise, Site, additive_mask, count, scores, softmax


@registry.add("sigmoid")
class Sigmoid(RowWise):
    """A sigmoid of each score in place of a softmax over all.

    Formula: w_j = sigmoid(z_j - b), b = 0, log T (``bias=train``, T the tokens of a training prompt) or log n
        (``bias=visible``); with ``l1=yes`` divided by its sum
    Paper: Ramapuram et al. 2024, arXiv 2409.04431

    The published bias is a constant, the logarithm of the training length, so rows do not depend on how long the prompt
    goes on. Without a bias a row weighs about n/2 before training. The division is a softmax of log sigmoid: the sum of
    a row of very negative scores is not representable, its logarithm is.
    """

    def __init__(self, site: Site, *, bias: Literal["none", "train", "visible"] = "none", l1: bool = False) -> None:
        super().__init__()
        self.bias, self.l1 = bias, l1
        self.log_train = math.log(site.train_tokens)
        self.sums_to_one = l1

    def rows(self, q: Tensor, k: Tensor, visible: Tensor, bias: Tensor | None = None) -> Tensor:
        z, lower = scores(q, k, bias), self._bias(visible, q.dtype)
        if self.l1:
            return softmax(F.logsigmoid(z - lower), visible)
        # sigmoid(-inf) is exactly 0 with slope 0: bias and mask are one small matrix, added in one pass.
        return (z + (additive_mask(visible, z.dtype) - lower)).sigmoid()

    def _bias(self, visible: Tensor, dtype: torch.dtype) -> Tensor:
        """Return b of each row, (t 1)."""
        n = count(visible).to(dtype).unsqueeze(-1)
        if self.bias == "visible":
            return n.log()
        return torch.full_like(n, self.log_train if self.bias == "train" else 0.0)
