"""Helpers of tasks whose tokens and answers are symbols: one logit for each."""

from collections.abc import Mapping
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn import functional as F

from icl_lab.tasks.base import Mark, Predictor, Prompt, Task


def nats(outputs: Tensor, prompt: Prompt) -> Tensor:
    """Outputs (b t c) -> the cross-entropy of each token's wanted symbol in nats, (b t)."""
    return cross_entropy(outputs, prompt.targets.long())


def cross_entropy(logits: Tensor, symbols: Tensor) -> Tensor:
    """Logits (b t c) and the target symbols (b t) -> the cross-entropy of each in nats, (b t).

    Rows of logits, not columns: a token's loss then has the same bits whatever the length of its prompt.
    """
    return F.cross_entropy(logits.flatten(0, 1), symbols.flatten(), reduction="none").view(symbols.shape)


def latest(chosen: Tensor) -> Tensor:
    """Tokens that are chosen, (b t) bool -> the index of the last one up to each token, (b t); 0 before the first."""
    index = torch.arange(chosen.shape[1], device=chosen.device)
    return torch.where(chosen, index, 0).cummax(1).values


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
    """Return the predictor that answers a fixed symbol in each prompt, another from prompt to prompt: chance."""

    def predict(prompt: Prompt) -> Tensor:
        fixed = torch.arange(len(prompt.tokens), device=prompt.tokens.device) * 7919 % kinds
        return told(fixed.unsqueeze(1).expand(-1, prompt.tokens.shape[1]), kinds) / 1e3

    return predict


class SymbolAnswers(Task):
    """Tasks that answer each scored token by a symbol, and are scored by the rate of wrong ones.

    A subclass draws prompts whose targets are the symbols wanted, from 0, and names its references.
    """

    roles: ClassVar[int] = 1
    worst: ClassVar[float] = 1.0
    headline: ClassVar[str] = "error"
    trivial: ClassVar[tuple[str, ...]] = ("chance",)
    beside: ClassVar[tuple[str, ...]] = ("error", "any")
    metric_labels: ClassVar[Mapping[str, str]] = {
        "error": "error rate of a symbol",
        "any": "error rate, any symbol of a prompt",
        "cross-entropy": "cross-entropy of a symbol in nats",
    }

    symbols: int  # of an option, where the vocabulary is not fixed

    @property
    def vocabulary(self) -> int:  # type: ignore[override]
        """The symbols, each of which may be a token."""
        return self.symbols

    def loss(self, outputs: Tensor, prompt: Prompt) -> Tensor:
        """The mean cross-entropy of a symbol in nats."""
        return prompt.mean(nats(outputs, prompt))

    def errors(self, outputs: Tensor, prompt: Prompt) -> Tensor:
        """1 at a wrong symbol, else 0, (b t); NaN where none is wanted."""
        return wrong(outputs, prompt)

    def views(self, errors: Tensor, prompt: Prompt, **shift: float) -> dict[str, Tensor]:
        """The share of wrong symbols of each prompt, and whether there is one."""
        return {"error": errors.nanmean(1), "any": errors.nan_to_num(0).amax(1)}

    def confidence(self, outputs: Tensor, prompt: Prompt) -> dict[str, Tensor]:
        """The cross-entropy in nats, the mean over the symbols of a prompt."""
        return {"cross-entropy": prompt.blank(nats(outputs, prompt)).nanmean(1)}

    def marks(self, prompt: Prompt) -> list[Mark]:
        """Tokens as they are spelled; where a symbol is wanted, a query."""
        asked = prompt.scored[0].tolist()
        tokens = enumerate(prompt.tokens[0].tolist())
        return [Mark("query" if asked[t] else "token", t + 1, self.spelled(token)) for t, token in tokens]

    def words(self, outputs: Tensor, prompt: Prompt, t: int) -> tuple[str, str]:
        """The answer and the truth as symbols."""
        return f"s{int(outputs[0, t].argmax()) + 1}", f"s{int(prompt.targets[0, t]) + 1}"

    def spelled(self, token: int) -> str:
        """Return a token as it is written."""
        return f"s{token + 1}"
