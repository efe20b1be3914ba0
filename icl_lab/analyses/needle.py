"""Which heads look at the needle: its score in every layer and head, and how trials end.

After Section 3.4 of Nakanishi 2025, arXiv 2501.19399.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from icl_lab.analyses.observe import attention_rows, shares
from icl_lab.model.gpt2 import GPT2
from icl_lab.tasks.base import Prompt
from icl_lab.tasks.needle import Needle

OUTCOMES = ("wrong", "first only", "all right")


@dataclass(frozen=True)
class Retrieval:
    """Needle scores (b l h), and each trial's outcome (b): 0 wrong, 1 the first symbol only, 2 all right."""

    scores: Tensor
    outcomes: Tensor

    @property
    def heads(self) -> Tensor:
        """The mean score of each head over the trials, (l h)."""
        return self.scores.mean(0)

    @property
    def best(self) -> Tensor:
        """The score of the best head in each trial, (b)."""
        return self.scores.amax((1, 2))


def retrieve(model: GPT2, task: Needle, prompt: Prompt, device: torch.device) -> Retrieval:
    """Scores every head on every prompt.

    The needle score of a head is the share of its attention that falls on the needle's value symbols, read at the token
    where the first symbol of the answer is wanted. Signed weights count by their size.
    """
    scores, outcomes = [], []
    for look in attention_rows(model, prompt, task.asking(prompt.tokens.shape[1]), device):
        where = task.values(look.prompt)[:, None, None].expand(*look.weights.shape[:3], -1)
        scores.append(shares(look.weights).gather(3, where).sum(3))
        right = task.errors(look.outputs, look.prompt) == 0
        outcomes.append(torch.where(right.all(1), 2, right[:, 0].long()))
    return Retrieval(torch.cat(scores), torch.cat(outcomes))
