"""Factors on the scores that need no training: they can be swapped in after it."""

import math
from typing import Literal

import torch
from torch import Tensor

from icl_lab.base.registry import require
from icl_lab.normalizers import registry
from icl_lab.normalizers.base import RowWise, ScaledQuery, Site, scores, softmax

POWERS = 10.0  # of a logarithm, at most


@registry.add("log-n")
class LogN(ScaledQuery):
    """Softmax with scores that grow by the logarithm of the number of keys, but only beyond the training length.

    Formula: w = softmax(max(1, log n / log T)^power z), T the tokens of a training prompt
    Paper: Su 2021; as in the public code of Qwen; Hayase & Karakida 2026, arXiv 2605.12697 (powers of the logarithm)

    Rows within the training length stay exactly softmax, which makes this the honest normalizer to swap in after
    training. Which power keeps attention from fading depends on how many scores lie near the largest.
    """

    def __init__(self, site: Site, *, power: float = 1.0) -> None:
        super().__init__()
        require(0 < power <= POWERS, f"power must be > 0 (at 0 it is softmax) and at most {POWERS:g}", power)
        # A training prompt of one token has log T = 0.
        self.log_train, self.power = math.log(max(site.train_tokens, 2)), power

    def scale(self, n: Tensor) -> Tensor:
        return (n.log() / self.log_train).clamp(min=1) ** self.power


@registry.add("llama4")
class Llama4(ScaledQuery):
    """Softmax with scores that grow by a step with each training length that the keys fill.

    Formula: w = softmax((1 + beta log(1 + floor(n / T))) z), T the tokens of a training prompt; floor((n - 1) / T) with
        ``variant=ministral3``
    Paper: Llama 4 and Ministral 3, 2025, as in the public code of transformers

    Rows shorter than T stay exactly softmax (of length T, too, with ``ministral3``, which counts positions from 0).
    ``length=8192`` sets T, as Llama 4 does. The published models scale only some layers this way; here it is all.
    """

    def __init__(
        self,
        site: Site,
        *,
        beta: float = 0.1,
        variant: Literal["llama4", "ministral3"] = "llama4",
        length: int | Literal["train"] = "train",
    ) -> None:
        super().__init__()
        require(beta > 0, "beta must be > 0 (at 0 it is softmax)", beta)
        require(length == "train" or length >= 1, "length must be >= 1, or 'train'", length)
        self.beta, self.before = beta, int(variant == "ministral3")
        self.length = site.train_tokens if length == "train" else length

    def scale(self, n: Tensor) -> Tensor:
        return 1 + self.beta * ((n - self.before) / self.length).floor().log1p()


@registry.add("adaptive-temperature")
class AdaptiveTemperature(RowWise):
    """Softmax, sharpened where its own entropy is high.

    Formula: w = softmax(beta z), beta = max(1, -0.037 H^4 + 0.481 H^3 - 2.3 H^2 + 4.917 H - 1.791), H the entropy of
        softmax(z) in nats
    Paper: softmax is not enough (for sharp size generalisation) 2024, arXiv 2410.01104

    The paper sets beta = 1 up to H = 0.5; the polynomial is below 1 there anyway. It falls below 1 again above 5.94
    nats: no sharpening with more than about 380 equal keys, and never more than 2.42. Highest power first.
    """

    POWERS = (-0.037, 0.481, -2.3, 4.917, -1.791)

    def __init__(self, site: Site) -> None:
        super().__init__()

    def rows(self, q: Tensor, k: Tensor, visible: Tensor, bias: Tensor | None = None) -> Tensor:
        z = scores(q, k, bias)
        p = softmax(z, visible)
        # A weight that underflows to 0 has p log p = 0, but its logarithm would be infinite.
        entropy = -(p * p.clamp(min=torch.finfo(p.dtype).tiny).log()).sum(-1, keepdim=True)
        beta = torch.zeros_like(entropy)
        for power in self.POWERS:
            beta = beta * entropy + power
        return softmax(beta.clamp(min=1) * z, visible)
