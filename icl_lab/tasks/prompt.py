"""Prompts: tokens, targets, and how a token or an answer is written for a reader."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor


@dataclass(frozen=True)
class Prompt:
    """tokens (b t w), or (b t) of whole numbers, are read; targets (b t) are wanted where scored (b t) is true."""

    tokens: Tensor
    targets: Tensor
    scored: Tensor

    def __post_init__(self) -> None:
        if not self.tokens.shape[:2] == self.targets.shape == self.scored.shape:
            shapes = [tuple(x.shape) for x in (self.tokens, self.targets, self.scored)]
            raise ValueError(f"tokens (b t w) or (b t), targets (b t), scored (b t) do not fit: {shapes}")

    def first(self, t: int) -> Self:
        """Return the prompts cut after ``t`` tokens."""
        return type(self)(self.tokens[:, :t], self.targets[:, :t], self.scored[:, :t])

    def last(self, t: int) -> Self:
        """Return the last ``t`` tokens of the prompts."""
        return type(self)(self.tokens[:, -t:], self.targets[:, -t:], self.scored[:, -t:])

    def take(self, b: int) -> Self:
        """Return the first ``b`` prompts."""
        return type(self)(self.tokens[:b], self.targets[:b], self.scored[:b])

    def pieces(self, b: int) -> Iterator[Self]:
        """Yield the prompts in order, at most ``b`` at a time."""
        for start in range(0, len(self.tokens), b):
            parts = (self.tokens, self.targets, self.scored)
            yield type(self)(*(part[start : start + b] for part in parts))

    @property
    def end(self) -> int:
        """The tokens up to the last question of any of the prompts: what stands after it is not asked about."""
        return int(self.scored.any(0).nonzero().max()) + 1

    def to(self, device: torch.device) -> Self:
        """Return the prompts on ``device``."""
        return type(self)(self.tokens.to(device), self.targets.to(device), self.scored.to(device))

    def mean(self, values: Tensor) -> Tensor:
        """Values (b t) -> their mean over the scored tokens of all prompts, a scalar.

        Formula: sum over scored of v / number of scored

        A mask, not an index: it works under ``vmap`` and compiled, where the number of scored tokens is unknown.
        """
        return torch.where(self.scored, values, 0).sum() / self.scored.sum()

    def blank(self, values: Tensor) -> Tensor:
        """Values (b t) -> the same, NaN at tokens that are not scored: errors in the form that ``views`` may take."""
        return values.where(self.scored, torch.nan)


@dataclass(frozen=True)
class Mark:
    """One token of a prompt in words: its role and index (from 1, as in x_1), its text, its number if it has one."""

    role: str
    index: int
    text: str
    value: float | None = None
    quiet: bool = False  # a filler, which pictures grey

    @property
    def label(self) -> str:
        """``x₁ = −2``; the index as a subscript, so that it is not taken for a factor."""
        name = self.role + "".join("₀₁₂₃₄₅₆₇₈₉"[int(digit)] for digit in str(self.index))
        return f"{name} = {self.text}" if self.text else name


@dataclass(frozen=True)
class ScoredAnswer:
    """Answer at a token, with the truth; ``error`` as the task scores it."""

    token: int
    answer: str
    truth: str
    error: float


Predictor = Callable[[Prompt], Tensor]  # prompts -> outputs (b t c)


def plain(value: float) -> str:
    """Return a number in up to four digits, with the minus sign of print."""
    return f"{value:.4g}".replace("-", "−")
