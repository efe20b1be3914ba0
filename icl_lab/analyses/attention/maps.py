"""Whole attention maps of a trained model, of one prompt or as the mean over many of one layout."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from icl_lab.analyses.observe import watchable
from icl_lab.model.gpt2 import GPT2
from icl_lab.tasks.base import Prompt


@dataclass(frozen=True)
class Maps:
    """Means over the prompts of weights, their spread and scores, each (l h r t), and all outputs (b t c).

    Layers l and heads h are those asked for; rows r are the last queries, against all t keys. Keys that a row does not
    see have weight 0 and a score that means nothing. The spread is the standard deviation over the prompts.
    """

    weights: Tensor
    spread: Tensor
    scores: Tensor
    outputs: Tensor

    @property
    def first(self) -> int:
        """The token of the first row."""
        return self.weights.shape[3] - self.weights.shape[2]


@torch.no_grad()
def maps(
    model: GPT2, prompt: Prompt, layers: Sequence[int], heads: Sequence[int], last: int, device: torch.device
) -> Maps:
    """Watches a model read prompts, as many at once as memory allows; the ``last`` rows of each map, on the CPU.

    With one prompt the weights are the model's own, to the last bit.
    """
    b, t = prompt.tokens.shape[:2]
    first = max(0, t - last)
    weights, squares, scores = torch.zeros(3, len(layers), len(heads), t - first, t, dtype=torch.float64)

    def see(layer: int, w: Tensor, z: Tensor) -> None:
        if layer in layers:
            at = layers.index(layer)
            # A device may have no double precision: bring first, upcast then.
            w, z = (part[:, list(heads), first:].cpu().double() for part in (w, z))
            weights[at] += w.sum(0) / b
            squares[at] += w.square().sum(0) / b
            scores[at] += z.sum(0) / b

    outputs = [model(piece.tokens.to(device), watch=see).cpu() for piece in watchable(model, prompt)]
    spread = (squares - weights.square()).clamp(min=0).sqrt()
    return Maps(weights.float(), spread.float(), scores.float(), torch.cat(outputs))
