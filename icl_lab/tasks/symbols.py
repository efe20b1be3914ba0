"""Helpers of tasks whose tokens and answers are symbols: one logit for each."""

import torch
from torch import Tensor
from torch.nn import functional as F

from icl_lab.tasks.base import Predictor, Prompt


def nats(outputs: Tensor, prompt: Prompt) -> Tensor:
    """Outputs (b t c) -> the cross-entropy of each token's wanted symbol in nats, (b t).

    Rows of logits, not columns: a token's loss then has the same bits whatever the length of its prompt.
    """
    wanted = prompt.targets.long()
    return F.cross_entropy(outputs.flatten(0, 1), wanted.flatten(), reduction="none").view(wanted.shape)


def wrong(outputs: Tensor, prompt: Prompt) -> Tensor:
    """Outputs (b t c) -> 1 where the largest logit is not that of the wanted symbol, NaN where none is, (b t)."""
    return prompt.blank((outputs.argmax(2) != prompt.targets.long()).to(outputs.dtype))


def mean_where(values: Tensor, chosen: Tensor) -> Tensor:
    """Values (b t), NaN where nothing is wanted -> their mean over the chosen (b t) of each prompt, NaN where none is.

    Infinite where a chosen value is.
    """
    return values.where(chosen, torch.nan).nanmean(1)


def told(answers: Tensor, kinds: int) -> Tensor:
    """Symbols (b t) -> logits (b t c) that leave no doubt of them; a symbol below 0 gets no logit."""
    return 1e3 * F.one_hot(answers.clamp(min=0), kinds).float() * (answers >= 0).unsqueeze(2)


def whim(kinds: int) -> Predictor:
    """Returns the predictor that answers a fixed symbol in each prompt, another from prompt to prompt: chance."""

    def predict(prompt: Prompt) -> Tensor:
        fixed = torch.arange(len(prompt.tokens), device=prompt.tokens.device) * 7919 % kinds
        return told(fixed.unsqueeze(1).expand(-1, prompt.tokens.shape[1]), kinds) / 1e3

    return predict
