"""Rescaling: divide the numbers of a prompt by a size seen in its own context, and multiply the answers back.

A control for every comparison far from training. It needs no training and is causal: an answer depends on nothing that
comes after it. Scales only divide (s >= 1), so that prompts no larger than those of training stay nearly as they are.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
from torch import Tensor

Rescale = Literal["none", "labels", "inputs", "both"]
FIRST = 3  # examples whose size is taken: the first answer that the headline of linear counts comes after three


class Rescaled(NamedTuple):
    """Tokens (b t w) divided by scales, and the factor (b t 1) by which each answer is multiplied.

    Before token ``start`` the scale is not known: an answer there is that to the tokens before ``start`` as they are.
    """

    tokens: Tensor
    factor: Tensor
    start: int


Rescaling = Callable[[Tensor], Rescaled]  # tokens (b t w) -> the same, rescaled


@dataclass(frozen=True)
class PairRescaling:
    """Rescaling of prompts x_1 y_1 x_2 y_2 ..: labels, inputs or both by the root mean square of the first examples.

    Formula: s = max(1, sqrt(mean over i <= first of v_i^2)), v the labels (or all numbers of the inputs); v / s is read

    Answers are multiplied by the scale of labels. A scale that is not finite is taken as 1. The first ``padding``
    columns of an input hold none of its numbers and do not count.
    """

    part: Rescale
    first: int = FIRST
    padding: int = 0

    def __call__(self, tokens: Tensor) -> Rescaled:
        """Tokens (b t w) -> tokens divided by their scale, and the factor of the answers."""
        inputs, labels = (tokens[:, role : 2 * self.first : 2] for role in (0, 1))
        one = tokens.new_ones(len(tokens), 1, 1)
        of_inputs = _scale(inputs[..., self.padding :]) if self.part in ("inputs", "both") else one
        # A label is the first number of its token; the others are 0.
        of_labels = _scale(labels[..., :1]) if self.part in ("labels", "both") else one
        is_input = (torch.arange(tokens.shape[1], device=tokens.device) % 2 == 0).view(1, -1, 1)
        factor = of_labels.expand(-1, tokens.shape[1], 1)
        return Rescaled(tokens / torch.where(is_input, of_inputs, of_labels), factor, 2 * self.first)


def by_largest(tokens: Tensor) -> Rescaled:
    """Divide each input of x_1 y_1 x_2 y_2 .. (b t 1) by the largest size so far, its own included.

    Formula: s_i = max(1, max over j <= i of |x_j|); x_i / s_i is read, which has the sign of x_i
    """
    largest = tokens.abs()[:, ::2].nan_to_num(0, 0, 0).cummax(1).values.clamp_min(1)
    scaled = tokens.clone()
    scaled[:, ::2] = tokens[:, ::2] / largest
    return Rescaled(scaled, tokens.new_ones(len(tokens), tokens.shape[1], 1), 0)


def _scale(values: Tensor) -> Tensor:
    """Root mean square of each prompt's values (b n w), at least 1, shape (b 1 1); 1 where it is not finite."""
    # Divided by the largest first: squares of numbers above 1e19 overflow single precision.
    largest = values.abs().amax((1, 2), keepdim=True).clamp_min(1)
    size = largest * (values / largest).square().mean((1, 2), keepdim=True).sqrt()
    return torch.where(size.isfinite(), size, 1).clamp_min(1)
