"""Several keys, each queried once more: which value was paired with it?"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from icl_lab.base.registry import require
from icl_lab.tasks import registry
from icl_lab.tasks.base import Axes, Label, Mark, Predictor, Prompt
from icl_lab.tasks.declared import mixed_curriculum
from icl_lab.tasks.symbols import SymbolAnswers, mean_where, told, whim

MOST = 100_000  # symbols


@registry.add("recall")
@dataclass(frozen=True, kw_only=True)
class Recall(SymbolAnswers):
    """Multi-query associative recall: which value was paired with each key that is named once more?

    Formula: k_1 v_1 .. k_D v_D .. k_2 . . k_D .. -> v_2, v_D, ..; P(gap g) ~ g^(power - 1); cross-entropy of a value
    Paper: Zoology, Arora et al. 2023, arXiv 2312.04927, and its public code

    Symbols are 0 .. V - 1 (``symbols`` is V): keys 1 .. V/2 - 1 and values V/2 .. V - 1, all of a prompt different. D
    pairs stand first, and each key is named once in the rest, at an even place: the gaps, counted in places of two
    tokens from 1, are drawn without repetition with P(g) proportional to g^(power - 1). All other tokens are drawn
    evenly from the symbols that are none of the D keys: the paper's code draws them from all symbols, where a key could
    seem to be asked for again. With V = 8, a prompt of D = 2 could read ``1 5 3 4 | 3 7 2 6 1 0``, where the answers
    are 4 after 3 and 5 after 1.

    Which pair is asked soonest is chance here. In the paper's code it is, more often than not, the one that stands
    first: gaps belong to the pairs in the order in which they are drawn (``law=zoology``; without updates). The law of
    a gap by itself, over all pairs, is the same.

    With ``updates=u``, u keys are bound a second time, to another value, anywhere among the pairs, and the last binding
    counts. ``length`` counts tokens. Training has ``pairs`` (D) at 4, or twice the updates, and mixes lengths. The
    paper has 8,192 symbols; more of them, or updates, are learned later: models of preset nano learn 20 symbols.

    Metrics are error rates: of an answer (``error``), of a whole prompt (``any``), and with ``updates`` of the mean
    over keys bound twice and keys bound once (``balanced-error``); ``cross-entropy`` is in nats.
    """

    trivial: ClassVar[tuple[str, ...]] = ("chance", "most-recent")
    heat_map: ClassVar[tuple[str, str]] = ("length", "pairs")
    axis_labels: ClassVar[Mapping[str, Label]] = {"pairs": Label("keys to be remembered", "D")}
    metric_labels: ClassVar[Mapping[str, str]] = {
        "error": "error rate of an answer",
        "any": "error rate, any answer of a prompt",
        "balanced-error": "error rate of an answer, mean over keys bound twice and once",
        "cross-entropy": "cross-entropy of an answer in nats",
    }

    symbols: int = 20
    updates: int = 0
    power: float = 0.01
    law: Literal["even", "zoology"] = "even"

    def __post_init__(self) -> None:
        bound = f"symbols must be even, at least 8 and at most {MOST:,}"
        require(8 <= self.symbols <= MOST and self.symbols % 2 == 0, bound, self.symbols)
        require(0 <= self.updates <= MOST, f"updates must be at least 0 and at most {MOST:,}", self.updates)
        require(0 < self.power <= 1, "power must be above 0 and at most 1 (1: all gaps alike)", f"{self.power:g}")
        if self.law == "zoology":
            require(self.updates == 0, "law=zoology knows no updates", self.updates)

    @property
    def unit(self) -> int:
        """The pairs of a training prompt."""
        return max(4, 2 * self.updates)

    @property
    def axes(self) -> Mapping[str, Axes]:  # type: ignore[override]
        """The pairs of training and up to twice as many, and lengths that hold them."""
        one = self.unit
        pairs = (one, (3 * one - self.updates) // 2, 2 * one - self.updates)
        lengths = tuple(8 * one * k for k in (1, 2, 4, 8, 16))
        return {
            "full": {"pairs": pairs, "length": lengths},
            "thin": {"pairs": pairs, "length": lengths[:4]},
            "tiny": {"pairs": pairs[:2], "length": lengths[:2]},
        }

    @property
    def usual(self) -> Mapping[str, str]:  # type: ignore[override]
        """Mixed lengths from the least, and learned positions: those of the pairs never change.

        With rotary positions, models of preset nano learn to name some value of the prompt, and not whose it is.
        """
        return mixed_curriculum(
            4 * self.unit + 2 * self.updates, 8 * self.unit, self.unit, positions=f"learned:rows={128 * self.unit}"
        )

    @property
    def half(self) -> int:
        """The least value; the keys are 1 to one less."""
        return self.symbols // 2

    @property
    def outputs(self) -> int:  # type: ignore[override]
        """A logit for each value."""
        return self.half

    @property
    def training(self) -> dict[str, float]:
        return {"pairs": float(self.unit)}

    def check_length(self, length: int, **shift: float) -> None:
        """Pairs and updates, and a place of two tokens for each question, must fit, with symbols for all of them."""
        (pairs,) = self.sigmas(shift)
        require(pairs >= 1 and pairs == int(pairs), "pairs must be a whole number of 1 or more", f"{pairs:g}")
        require(self.updates < pairs, f"pairs must be more than updates={self.updates}", f"{pairs:g}")
        room = min(self.half - 1, self.half - self.updates)
        require(pairs <= room, f"symbols={self.symbols} name keys and values of up to {room} pairs", f"{pairs:g}")
        least = 4 * int(pairs) + 2 * self.updates
        require(length >= least, f"{pairs:g} pairs and their questions need {least} tokens or more", length)

    def sample(self, rng: torch.Generator, prompts: int, length: int, **shift: float) -> Prompt:
        """Draw bindings, gaps and the rest; fewer pairs use a part of the draws."""
        self.check_length(length, **shift)
        pairs, half = int(self.sigmas(shift)[0]), self.half
        bound = pairs + self.updates
        keys = 1 + torch.rand(prompts, half - 1, generator=rng).argsort(1)
        values = torch.rand(prompts, half, generator=rng).argsort(1)
        order = torch.rand(prompts, half, generator=rng)[:, :bound].argsort(1)
        race = -torch.rand(prompts, length // 2, generator=rng).log()
        rest = torch.rand(prompts, length, generator=rng)
        if self.law == "zoology":
            order = order.sort(1).values  # gaps stand in the order of draws, and so do the pairs
        which = torch.cat((torch.arange(pairs), torch.arange(self.updates)))[order]  # the key of each binding
        same = which.unsqueeze(1) == torch.arange(pairs).unsqueeze(1)
        last = torch.where(same, torch.arange(bound), -1).amax(2)  # the binding that counts, of each key
        # Exponential clocks of these rates ring in the order of draws without repetition.
        space = length // 2 - bound
        gaps = (race[:, :space] / torch.arange(1, space + 1) ** (self.power - 1)).argsort(1)[:, :pairs]
        places = 2 * (bound + gaps)
        others = torch.cat((torch.zeros_like(keys[:, :1]), keys[:, pairs:], half + values), 1)
        tokens = others.gather(1, (rest * others.shape[1]).long().clamp(max=others.shape[1] - 1))
        tokens[:, : 2 * bound] = torch.stack((keys.gather(1, which), half + values[:, :bound]), 2).flatten(1)
        tokens = tokens.scatter(1, places, keys[:, :pairs])
        targets = torch.zeros(prompts, length).scatter(1, places, values.gather(1, last).float())
        return Prompt(tokens, targets, torch.zeros_like(tokens, dtype=torch.bool).scatter(1, places, True))

    def views(self, errors: Tensor, prompt: Prompt, **shift: float) -> dict[str, Tensor]:
        found = super().views(errors, prompt)
        if not self.updates:
            return found
        named = prompt.tokens[:, : 2 * (int(self.sigmas(shift)[0]) + self.updates) : 2]
        twice = (prompt.tokens.unsqueeze(2) == named.unsqueeze(1)).sum(2) == 2
        classes = [mean_where(errors, twice), mean_where(errors, ~twice)]
        return {**found, "balanced-error": torch.stack(classes, 1)}

    def references(self) -> dict[str, Predictor]:
        """Chance; the value read last; the first value that a key had; and the last, which is right."""
        return {
            "chance": whim(self.half),
            "most-recent": self._answer(self._latest),
            "first-binding": self._answer(lambda tokens: self._beside(tokens, first=True)),
            "exact-rule": self._answer(self._beside),
        }

    def _answer(self, rule: Callable[[Tensor], Tensor]) -> Predictor:
        """A predictor from a rule on tokens, (b t) -> tokens (b t); a token that is not a value counts as no answer."""
        return lambda prompt: told(rule(prompt.tokens) - self.half, self.half)

    def _latest(self, tokens: Tensor) -> Tensor:
        """The last value before each token, (b t)."""
        places = torch.where(tokens >= self.half, torch.arange(tokens.shape[1], device=tokens.device), 0)
        return tokens.gather(1, places.cummax(1).values)

    def _beside(self, tokens: Tensor, *, first: bool = False) -> Tensor:
        """Token after the last (or first) earlier occurrence of each token, (b t); 0 where there is none."""
        at = torch.arange(tokens.shape[1], device=tokens.device)
        before = (tokens.unsqueeze(2) == tokens.unsqueeze(1)) & (at < at.unsqueeze(1))
        place = before.int().argmax(2) if first else torch.where(before, at, -1).amax(2)
        followed = tokens.gather(1, (place + 1).clamp(min=0, max=tokens.shape[1] - 1))
        return followed.where(before.any(2), 0)

    def marks(self, prompt: Prompt) -> list[Mark]:
        """Keys K1 .., values v1 .., and 0; what follows the first question and asks nothing is quiet."""
        asked = prompt.scored[0].tolist()
        start = asked.index(True) if any(asked) else len(asked)
        return [
            Mark("query" if asked[t] else "token", t + 1, self.spelled(token), quiet=t > start and not asked[t])
            for t, token in enumerate(prompt.tokens[0].tolist())
        ]

    def words(self, outputs: Tensor, prompt: Prompt, t: int) -> tuple[str, str]:
        answers = (int(outputs[0, t].argmax()), int(prompt.targets[0, t]))
        return self.spelled(self.half + answers[0]), self.spelled(self.half + answers[1])

    def spelled(self, token: int) -> str:
        """Return a token as it is written."""
        return f"v{token - self.half + 1}" if token >= self.half else f"K{token}" if token else "0"
