"""Synthetic tasks of mechanistic architecture design, except recall: copying, compression, fuzzy recall, memory."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from itertools import groupby, takewhile
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn import functional as F

from icl_lab.base.registry import require
from icl_lab.base.rng import stream
from icl_lab.tasks import registry
from icl_lab.tasks.base import Axes, Label, Predictor, Prompt, Summary
from icl_lab.tasks.declared import mixed_curriculum
from icl_lab.tasks.symbols import SymbolAnswers, cross_entropy, latest, told, whim

MOST = 100_000  # symbols
MOST_OF_GROUPS = 1000  # where all are shuffled for each group
MOTIF = 3  # tokens of a key or a value at most


@registry.add("selective-copy")
@dataclass(frozen=True, kw_only=True)
class SelectiveCopy(SymbolAnswers):
    """Copy the symbols that stand among blanks, in their order.

    Formula: s_1 . . s_2 . s_3 . . s_n c . . . -> s_1 .. s_n at the last n tokens; cross-entropy of a symbol
    Paper: MAD, Poli et al. 2024, arXiv 2403.17844, and its public code

    Of V tokens (``symbols`` is V) two are the blank and the sign c to copy, all others symbols, drawn evenly. Each
    blank of the first part stands before a symbol drawn evenly, so that the last symbol is next to c. ``length`` counts
    all tokens; the axis ``copied`` is n, 4 in training. The paper's is ``train.shift.copied=16`` at a length of 256.

    Metrics are error rates: of a symbol (``error``), of a whole prompt (``any``); ``cross-entropy`` is in nats.
    """

    heat_map: ClassVar[tuple[str, str]] = ("length", "copied")
    trivial: ClassVar[tuple[str, ...]] = ("chance", "most-recent")
    usual: ClassVar[Mapping[str, str]] = mixed_curriculum(12, 48, 4, positions="rotary")
    axis_labels: ClassVar[Mapping[str, Label]] = {"copied": Label("symbols to be copied", "n")}
    training: ClassVar[dict[str, float]] = {"copied": 4.0}
    axes: ClassVar[Mapping[str, Axes]] = {
        "full": {"copied": (2, 4, 8, 16), "length": (48, 96, 192, 384)},
        "thin": {"copied": (2, 4, 8), "length": (24, 48, 96, 192)},
        "tiny": {"copied": (4, 8), "length": (24, 48)},
    }

    symbols: int = 16

    def __post_init__(self) -> None:
        require(4 <= self.symbols <= MOST, f"symbols must be at least 4 and at most {MOST:,}", self.symbols)

    @property
    def outputs(self) -> int:  # type: ignore[override]
        """A logit for each symbol: the first token that is none is the blank, the next the sign to copy."""
        return self.symbols - 2

    def check_length(self, length: int, **shift: float) -> None:
        """The symbols, the sign to copy, and a blank for each symbol must fit."""
        (copied,) = self.sigmas(shift)
        require(copied >= 1 and copied == int(copied), "copied must be a whole number of 1 or more", f"{copied:g}")
        require(length > 2 * copied, f"{copied:g} symbols and their copies need {2 * copied + 1:g} tokens", length)

    def sample(self, rng: torch.Generator, prompts: int, length: int, **shift: float) -> Prompt:
        """Draw symbols and places of blanks; fewer symbols are the first of the same."""
        self.check_length(length, **shift)
        n = int(self.sigmas(shift)[0])
        symbols = torch.randint(self.outputs, (prompts, length), generator=rng)[:, :n]
        before = (torch.rand(prompts, length, generator=rng)[:, : length - 2 * n - 1] * n).long()
        each = torch.arange(n)
        places = each + (before.unsqueeze(2) <= each).sum(1)
        tokens = torch.full((prompts, length), self.outputs).scatter(1, places, symbols)
        tokens[:, -n - 1] = self.outputs + 1
        targets, scored = torch.zeros(prompts, length), torch.zeros(prompts, length, dtype=torch.bool)
        targets[:, -n:], scored[:, -n:] = symbols.float(), True
        return Prompt(tokens, targets, scored)

    def references(self) -> dict[str, Predictor]:
        """Chance, the symbol read last, and the symbols in their order, which is right."""
        return {
            "chance": whim(self.outputs),
            "most-recent": lambda prompt: told(self._latest(prompt.tokens), self.outputs),
            "exact-rule": lambda prompt: told(self._ordered(prompt.tokens), self.outputs),
        }

    def _latest(self, tokens: Tensor) -> Tensor:
        return tokens.gather(1, latest(tokens < self.outputs)).clamp(max=self.outputs - 1)

    def _ordered(self, tokens: Tensor) -> Tensor:
        """At the j-th token after the sign to copy the j-th symbol, (b t)."""
        first = (tokens >= self.outputs).long().argsort(dim=1, stable=True)
        sign = (tokens == self.outputs + 1).long().argmax(1, keepdim=True)
        asked = (torch.arange(tokens.shape[1], device=tokens.device) - sign - 1).clamp(min=0)
        return tokens.gather(1, first.gather(1, asked)).clamp(max=self.outputs - 1)

    def spelled(self, token: int) -> str:
        return {self.outputs: ".", self.outputs + 1: "copy"}.get(token, super().spelled(token))


@registry.add("compression")
@dataclass(frozen=True, kw_only=True)
class Compression(SymbolAnswers):
    """Put all symbols of a prompt into the answer at its last token.

    Formula: s_1 .. s_(L - 1) c -> s_1 .. s_(L - 1), all at c; cross-entropy of a symbol
    Paper: MAD, Poli et al. 2024, arXiv 2403.17844, and its public code

    Of V tokens (``symbols`` is V) one is the sign c, all others symbols, drawn evenly. Outputs at c are logits of every
    symbol at each of 31 ``places``: the paper's code has a further network there, which reads the state at c and the
    code of a place; here the linear read-out has to do. ``length`` counts tokens, and is at most places + 1, in
    training too. The axis ``distinct`` is how many different symbols are drawn from, V - 1 in training.

    Metrics are error rates: of a symbol (``error``), of a whole prompt (``any``); ``cross-entropy`` is in nats.
    """

    summary: ClassVar[Summary] = Summary("length", "mean")
    heat_map: ClassVar[tuple[str, str]] = ("length", "distinct")
    answers: ClassVar[slice] = slice(-1, None)
    least: ClassVar[int] = 2
    axis_labels: ClassVar[Mapping[str, Label]] = {"distinct": Label("different symbols", "distinct")}

    symbols: int = 16
    places: int = 31

    def __post_init__(self) -> None:
        require(5 <= self.symbols <= MOST, f"symbols must be at least 5 and at most {MOST:,}", self.symbols)
        require(7 <= self.places <= 1000, "places must be at least 7 and at most 1,000", self.places)

    @property
    def axes(self) -> Mapping[str, Axes]:  # type: ignore[override]
        """All symbols or a third of them, and lengths up to the most."""
        kinds, most = (self.kinds // 3 + 1, self.kinds), self.places + 1
        lengths = (most // 4, most // 2, most)
        return {
            "full": {"distinct": (2, *kinds), "length": lengths},
            "thin": {"distinct": kinds, "length": lengths},
            "tiny": {"distinct": kinds, "length": lengths[:2]},
        }

    @property
    def usual(self) -> Mapping[str, str]:  # type: ignore[override]
        most = self.places + 1
        return mixed_curriculum(most // 4, most, most // 8, positions=f"learned:rows={most}")

    @property
    def kinds(self) -> int:
        """The symbols."""
        return self.symbols - 1

    @property
    def outputs(self) -> int:  # type: ignore[override]
        """A logit for each symbol of each place."""
        return self.places * self.kinds

    @property
    def training(self) -> dict[str, float]:
        return {"distinct": float(self.kinds)}

    def check_length(self, length: int, **shift: float) -> None:
        """No more symbols than places, and no more kinds than there are."""
        super().check_length(length)
        (kinds,) = self.sigmas(shift)
        require(length <= self.places + 1, f"places={self.places} hold prompts of up to {self.places + 1}", length)
        fits = 1 <= kinds <= self.kinds and kinds == int(kinds)
        require(fits, f"distinct must be a whole number from 1 to {self.kinds}", f"{kinds:g}")

    def sample(self, rng: torch.Generator, prompts: int, length: int, **shift: float) -> Prompt:
        """Draw symbols; fewer kinds round the same numbers to fewer."""
        self.check_length(length, **shift)
        (kinds,) = self.sigmas(shift)
        tokens = (torch.rand(prompts, length, generator=rng) * kinds).long()
        tokens[:, -1] = self.kinds
        scored = (torch.arange(length) == length - 1).expand(prompts, -1)
        return Prompt(tokens, tokens.float(), scored)

    def loss(self, outputs: Tensor, prompt: Prompt) -> Tensor:
        return self._nats(outputs, prompt).mean()

    def errors(self, outputs: Tensor, prompt: Prompt) -> Tensor:
        """The share of wrong symbols, (b 1)."""
        return (self._logits(outputs, prompt).argmax(2) != prompt.tokens[:, :-1]).to(outputs.dtype).mean(1, True)

    def views(self, errors: Tensor, prompt: Prompt, **shift: float) -> dict[str, Tensor]:
        return {"error": errors[:, 0], "any": (errors[:, 0] > 0).to(errors.dtype)}

    def confidence(self, outputs: Tensor, prompt: Prompt) -> dict[str, Tensor]:
        return {"cross-entropy": self._nats(outputs, prompt).mean(1)}

    def _logits(self, outputs: Tensor, prompt: Prompt) -> Tensor:
        """Outputs (b t c) -> logits of the symbols before c, (b t-1 kinds)."""
        return outputs[:, -1].view(-1, self.places, self.kinds)[:, : prompt.tokens.shape[1] - 1]

    def _nats(self, outputs: Tensor, prompt: Prompt) -> Tensor:
        return cross_entropy(self._logits(outputs, prompt), prompt.tokens[:, :-1])

    def references(self) -> dict[str, Predictor]:
        """One symbol in every place, and the symbols, which is right."""
        return {
            "chance": self._answer(self._whim),
            "exact-rule": self._answer(lambda tokens: tokens[:, :-1]),
        }

    def _whim(self, tokens: Tensor) -> Tensor:
        fixed = torch.arange(len(tokens), device=tokens.device) % self.kinds
        return fixed.unsqueeze(1).expand(-1, tokens.shape[1] - 1)

    def _answer(self, rule: Callable[[Tensor], Tensor]) -> Predictor:
        """Let a rule on the tokens, (b t) -> symbols (b t-1), answer a prompt at its last token."""

        def predict(prompt: Prompt) -> Tensor:
            logits = told(rule(prompt.tokens), self.kinds)
            whole = F.pad(logits.flatten(1), (0, self.outputs - logits[0].numel()))
            return F.pad(whole.unsqueeze(1), (0, 0, prompt.tokens.shape[1] - 1, 0))

        return predict

    def words(self, outputs: Tensor, prompt: Prompt, t: int) -> tuple[str, str]:
        """The first symbols of both."""
        rows = (self._logits(outputs, prompt)[0].argmax(1)[:3].tolist(), prompt.tokens[0, :-1][:3].tolist())
        shown = [" ".join(map(self.spelled, row)) for row in rows]
        return shown[0], shown[1]

    def spelled(self, token: int) -> str:
        return "compress" if token == self.kinds else super().spelled(token)


@registry.add("fuzzy-recall")
@dataclass(frozen=True, kw_only=True)
class FuzzyRecall(SymbolAnswers):
    """Recall of the value of a key, where keys and values are groups of one to three tokens.

    Formula: k_1 v_1 k_2 v_2 .. q k_j -> v_j, token by token; cross-entropy of a token of the value
    Paper: MAD, Poli et al. 2024, arXiv 2403.17844, and its public code

    Of V tokens (``symbols`` is V) two are a filler and the sign q; the lower half of the others are keys' tokens, the
    upper half values'. No token comes twice in a group. A key that comes again has the same value. Fillers stand first,
    so that the answer ends the prompt; of its tokens the right ones before are read. ``length`` counts tokens. The axis
    ``key_tokens`` is the tokens of every key: training draws 1 to 3 for each, and a cell of 3, the paper's test, stands
    for it. The paper's baseline asks for keys that come again in the middle too; here the question is one.

    The pair that is asked for is any of those that fit, alike. The paper's code draws a place instead, and puts the
    pair there: on average at 0.47 of a test prompt of 48 tokens, here at 0.42, and one prompt in 14 ends before it and
    asks for a key that it has not shown. It stops adding pairs earlier: 4.0 fillers of these 48 tokens, here 3.0.

    Metrics are error rates: of a token (``error``), of a whole value (``any``); ``cross-entropy`` is in nats.
    """

    trivial: ClassVar[tuple[str, ...]] = ("chance", "most-recent")
    facets: ClassVar[tuple[str, ...]] = ("key_tokens",)
    heat_map: ClassVar[tuple[str, str]] = ("length", "key_tokens")
    least: ClassVar[int] = 4 * MOTIF
    usual: ClassVar[Mapping[str, str]] = mixed_curriculum(12, 48, 4, positions="rotary")
    axis_labels: ClassVar[Mapping[str, Label]] = {"key_tokens": Label("tokens of a key", "k")}
    training: ClassVar[dict[str, float]] = {"key_tokens": float(MOTIF)}
    axes: ClassVar[Mapping[str, Axes]] = {
        "full": {"key_tokens": (1, 2, 3), "length": (24, 48, 96, 192, 384)},
        "thin": {"key_tokens": (1, 2, 3), "length": (24, 48, 96, 192)},
        "tiny": {"key_tokens": (1, 3), "length": (24, 48)},
    }

    symbols: int = 16

    def __post_init__(self) -> None:
        bound = f"symbols must be even, at least 8 and at most {MOST_OF_GROUPS:,}"
        require(8 <= self.symbols <= MOST_OF_GROUPS and self.symbols % 2 == 0, bound, self.symbols)

    @property
    def outputs(self) -> int:  # type: ignore[override]
        """A logit for each token of values; keys have as many, then come the filler and the sign q."""
        return self.symbols // 2 - 1

    def check_length(self, length: int, **shift: float) -> None:
        super().check_length(length)
        (key,) = self.sigmas(shift)
        require(key in range(1, MOTIF + 1), f"key_tokens must be a whole number from 1 to {MOTIF}", f"{key:g}")

    def sample(self, rng: torch.Generator, prompts: int, length: int, **shift: float) -> Prompt:
        """Draw the largest number of pairs that fits, and the pair that is queried."""
        self.check_length(length, **shift)
        n, pairs, slot = self.outputs, length // 2, torch.arange(2 * MOTIF)
        groups = torch.rand(prompts, pairs, 2, n, generator=rng).argsort(3)[..., :MOTIF]
        sizes = torch.randint(1, MOTIF + 1, (prompts, pairs, 2), generator=rng)
        asked = torch.rand(prompts, generator=rng)
        if "key_tokens" in shift:
            sizes[..., 0] = int(shift["key_tokens"])
        used = slot % MOTIF < sizes.repeat_interleave(MOTIF, 2)  # which of the tokens of a pair it has
        names = torch.where(used[..., :MOTIF], groups[:, :, 0] + 1, 0) @ (n + 1) ** torch.arange(MOTIF)
        first = (names.unsqueeze(2) == names.unsqueeze(1)).int().argmax(2)  # the first pair with this key
        row = torch.arange(prompts)
        for part in (groups, sizes):  # a key that comes again has its first value
            part[:, :, 1] = part[row.unsqueeze(1), first, 1]
        flat = (groups + n * torch.tensor([0, 1]).view(2, 1)).flatten(2)
        used = slot % MOTIF < sizes.repeat_interleave(MOTIF, 2)
        # Room is left for the longest question, whichever pair is asked for.
        fits = sizes.sum(2).cumsum(1) <= length - 2 * MOTIF
        chosen = (asked * fits.sum(1)).long()
        sign = torch.full((prompts, 1), 2 * n + 1)
        whole = torch.cat((flat.flatten(1), sign, flat[row, chosen]), 1)
        kept = torch.cat(((used & fits.unsqueeze(2)).flatten(1), sign > 0, used[row, chosen]), 1)
        # From the right; the last token of the value is the answer to the prompt, and no token of it.
        places = length + 1 - kept.flip(1).long().cumsum(1).flip(1)
        tokens = torch.full((prompts, length + 2), 2 * n)
        tokens.scatter_(1, torch.where(kept, places, length + 1), whole)
        scored = torch.arange(length) >= length - sizes[row, chosen, 1].unsqueeze(1)
        targets = torch.where(scored, tokens[:, 1 : length + 1] - n, 0).float()
        return Prompt(tokens[:, :length].contiguous(), targets, scored)

    def references(self) -> dict[str, Predictor]:
        """Chance, the value token read last, and the value paired with the key, which is right."""
        return {
            "chance": whim(self.outputs),
            "most-recent": lambda prompt: told(self._latest(prompt.tokens), self.outputs),
            "exact-rule": lambda prompt: told(self._recalled(prompt.tokens), self.outputs),
        }

    def _latest(self, tokens: Tensor) -> Tensor:
        values = (tokens >= self.outputs) & (tokens < 2 * self.outputs)
        return (tokens.gather(1, latest(values)) - self.outputs).clamp(0, self.outputs - 1)

    def _recalled(self, tokens: Tensor) -> Tensor:
        """The tokens of the value at the end of each prompt, (b t)."""
        answers, n = torch.zeros_like(tokens), self.outputs
        for b, prompt in enumerate(tokens.tolist()):
            sign = prompt.index(2 * n + 1)
            shown = (token for token in prompt[:sign] if token < 2 * n)
            runs = [tuple(run) for _, run in groupby(shown, lambda token: token < n)]
            known = dict(zip(runs[::2], runs[1::2], strict=True))
            key = tuple(takewhile(lambda token: token < n, prompt[sign + 1 :]))
            value = known[key]
            start = sign + len(key)
            answers[b, start : start + len(value)] = torch.tensor(value) - n
        return answers

    def spelled(self, token: int) -> str:
        n = self.outputs
        return f"k{token + 1}" if token < n else f"v{token - n + 1}" if token < 2 * n else ".q"[token - 2 * n]


@registry.add("memorization")
@dataclass(frozen=True, kw_only=True)
class Memorization(SymbolAnswers):
    """Memory in the weights: each key has one value in all prompts, which none of them shows.

    Formula: k_1 ? k_2 ? .. -> v(k_1) at the first ?, v(k_2) at the next ..; v fixed; cross-entropy of a value
    Paper: MAD, Poli et al. 2024, arXiv 2403.17844, and its public code

    Of V tokens (``symbols`` is V) one is the sign ?, half of the others are keys, and as many values. Which value a key
    has is drawn once, a different one for each, the same in every run. Keys of a prompt are drawn evenly. ``length``
    counts keys. The axis ``named`` is from how many of the keys prompts draw, in percent: 100 in training.

    Metrics are error rates: of a value (``error``), of a whole prompt (``any``); ``cross-entropy`` is in nats.
    """

    roles: ClassVar[int] = 2
    answers: ClassVar[slice] = slice(1, None, 2)
    summary: ClassVar[Summary] = Summary("length", "mean")
    heat_map: ClassVar[tuple[str, str]] = ("length", "named")
    axis_labels: ClassVar[Mapping[str, Label]] = {"named": Label("keys that are asked for in percent", "named")}
    usual: ClassVar[Mapping[str, str]] = {
        "train.curriculum.start": "16",
        "train.curriculum.stop": "16",
        "model.positions": "rotary",
    }
    training: ClassVar[dict[str, float]] = {"named": 100.0}
    axes: ClassVar[Mapping[str, Axes]] = {
        "full": {"named": (1, 10, 50, 100), "length": (8, 16, 32, 64)},
        "thin": {"named": (10, 100), "length": (8, 16, 32)},
        "tiny": {"named": (10, 100), "length": (8, 16)},
    }
    prefixes: ClassVar[bool] = True
    suffixes: ClassVar[bool] = True

    symbols: int = 256

    def __post_init__(self) -> None:
        require(5 <= self.symbols <= MOST, f"symbols must be at least 5 and at most {MOST:,}", self.symbols)

    @property
    def outputs(self) -> int:  # type: ignore[override]
        """A logit for each value."""
        return (self.symbols - 1) // 2

    def check_length(self, length: int, **shift: float) -> None:
        super().check_length(length)
        (named,) = self.sigmas(shift)
        require(named <= 100, "named is a percentage, at most 100", f"{named:g}")

    def sample(self, rng: torch.Generator, prompts: int, length: int, **shift: float) -> Prompt:
        """Draw keys; where fewer are named, the same numbers name the first of them."""
        self.check_length(length, **shift)
        (named,) = self.sigmas(shift)
        keys = (torch.rand(prompts, length, generator=rng) * max(1, round(self.outputs * named / 100))).long()
        tokens = torch.stack((keys, torch.full_like(keys, self.symbols - 1)), 2).flatten(1)
        scored = (torch.arange(2 * length) % 2 == 1).expand(prompts, -1)
        return Prompt(tokens, _values(self.outputs)[keys].repeat_interleave(2, 1).float(), scored)

    def errors(self, outputs: Tensor, prompt: Prompt) -> Tensor:
        """1 at a wrong value, else 0, (b L)."""
        return super().errors(outputs, prompt)[:, self.answers]

    def references(self) -> dict[str, Predictor]:
        """Chance, and the fixed values, which is right."""
        return {"chance": whim(self.outputs), "exact-rule": self._remembered}

    def _remembered(self, prompt: Prompt) -> Tensor:
        before = F.pad(prompt.tokens, (1, 0))[:, :-1].clamp(max=self.outputs - 1)
        return told(_values(self.outputs).to(before.device)[before], self.outputs)

    def spelled(self, token: int) -> str:
        return f"K{token + 1}" if token < self.outputs else "?"


@lru_cache(maxsize=8)
def _values(keys: int) -> Tensor:
    """The value of each key, (keys). Kept, and not to be written to."""
    return torch.rand(keys, generator=stream(0, "memorization")).argsort()
