"""One bit of memory, written, read and left alone: which bit was written last?"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from icl_lab.base.registry import require
from icl_lab.tasks import registry
from icl_lab.tasks.base import Axes, Label, Mark, Predictor, Prompt
from icl_lab.tasks.declared import mixed_curriculum
from icl_lab.tasks.symbols import SymbolAnswers, latest, mean_where, told

WRITE, READ, IGNORE, ZERO = range(4)  # and one, the token after zero
WORDS = ("w", "r", "i", "0", "1")


@registry.add("flip-flop")
@dataclass(frozen=True, kw_only=True)
class FlipFlop(SymbolAnswers):
    """Flip-flop language: which bit was written last, wherever one is read?

    Formula: w 1 i 0 r 1 w 0 .. r 0; instructions i.i.d., P(i) = p, P(w) = P(r) = (1 - p) / 2; cross-entropy at r
    Paper: Liu et al. 2023, arXiv 2306.00946

    Instructions and bits take turns. The first instruction is w, the last r; after w and i stands a fair coin, after r
    the bit that was written last. ``length`` counts instructions, so that a prompt has 2 length tokens: 256 are the 512
    of the paper. The axis ``ignored`` is P(i) in percent: 80 in training, 98 and 10 in the paper's tests.

    Metrics are error rates: of a read bit (``error``), of a whole prompt (``any``), and ``balanced-error``, the mean
    over reads before which the bit to be answered stood, and reads before which the other stood, so that copying the
    last bit errs in half of them. ``cross-entropy`` is in nats.
    """

    vocabulary: ClassVar[int] = 5
    outputs: ClassVar[int] = 2
    roles: ClassVar[int] = 2
    least: ClassVar[int] = 2
    trivial: ClassVar[tuple[str, ...]] = ("always-zero", "copy-previous")
    beside: ClassVar[tuple[str, ...]] = ("error", "any", "balanced-error")
    heat_map: ClassVar[tuple[str, str]] = ("length", "ignored")
    axis_labels: ClassVar[Mapping[str, Label]] = {"ignored": Label("ignored instructions in percent", "p_i")}
    metric_labels: ClassVar[Mapping[str, str]] = {
        "error": "error rate of a read bit",
        "any": "error rate, any read bit of a prompt",
        "balanced-error": "error rate of a read bit, mean over reads after the same and after the other bit",
        "cross-entropy": "cross-entropy of a read bit in nats",
    }
    usual: ClassVar[Mapping[str, str]] = mixed_curriculum(8, 64, 4, positions="rotary")
    training: ClassVar[dict[str, float]] = {"ignored": 80.0}
    axes: ClassVar[Mapping[str, Axes]] = {
        "full": {"ignored": (10, 50, 80, 90, 98), "length": (32, 64, 128, 256, 512)},
        "thin": {"ignored": (10, 80, 98), "length": (32, 64, 128, 256)},
        "tiny": {"ignored": (10, 80, 98), "length": (32, 64)},
    }

    def check_length(self, length: int, **shift: float) -> None:
        """A write and a read must fit, and no more than all others can be ignored."""
        super().check_length(length)
        (ignored,) = self.sigmas(shift)
        require(ignored <= 100, "ignored is a percentage, at most 100", f"{ignored:g}")

    def sample(self, rng: torch.Generator, prompts: int, length: int, **shift: float) -> Prompt:
        """Draw instructions and bits; more ignored instructions take the place of the same reads and writes."""
        self.check_length(length, **shift)
        (ignored,) = self.sigmas(shift)
        heeded, written, coins = torch.rand(3, prompts, length, generator=rng)
        instructions = torch.where(written < 0.5, WRITE, READ).masked_fill(100 * heeded < ignored, IGNORE)
        instructions[:, 0], instructions[:, -1] = WRITE, READ
        bits = (coins < 0.5).long()
        bits = torch.where(instructions == READ, bits.gather(1, _last_write(instructions)), bits)
        tokens = torch.stack((instructions, ZERO + bits), 2).flatten(1)
        reads = (instructions == READ).repeat_interleave(2, 1) & (torch.arange(2 * length) % 2 == 0)
        return Prompt(tokens, bits.repeat_interleave(2, 1).float(), reads)

    def views(self, errors: Tensor, prompt: Prompt, **shift: float) -> dict[str, Tensor]:
        same = (_previous(prompt.tokens) - ZERO) == prompt.targets.long()
        classes = [mean_where(errors, same), mean_where(errors, ~same)]
        return {**super().views(errors, prompt), "balanced-error": torch.stack(classes, 1)}

    def references(self) -> dict[str, Predictor]:
        """A constant, the bit that stood last, and the automaton of two states, which is right."""
        return {
            "always-zero": _answer(lambda tokens: torch.full_like(tokens, ZERO)),
            "copy-previous": _answer(_previous),
            "exact-rule": _answer(_automaton),
        }

    def marks(self, prompt: Prompt) -> list[Mark]:
        """Ignored instructions and their bits are quiet."""
        tokens = prompt.tokens[0].tolist()
        roles = ("instruction", "bit")
        return [
            Mark(roles[t % 2], t // 2 + 1, WORDS[token], quiet=tokens[t - t % 2] == IGNORE)
            for t, token in enumerate(tokens)
        ]

    def words(self, outputs: Tensor, prompt: Prompt, t: int) -> tuple[str, str]:
        return str(int(outputs[0, t].argmax())), str(int(prompt.targets[0, t]))


def _last_write(instructions: Tensor) -> Tensor:
    """The index of the last write up to each instruction, (b L); the first is one."""
    return latest(instructions == WRITE)


def _previous(tokens: Tensor) -> Tensor:
    """The token before each, (b t); zero before the first."""
    return torch.cat((torch.full_like(tokens[:, :1], ZERO), tokens[:, :-1]), 1)


def _automaton(tokens: Tensor) -> Tensor:
    """The bit token behind the last write before each instruction, (b t)."""
    state, states = torch.full_like(tokens[:, 0], ZERO), []
    for before, token in zip(_previous(tokens).unbind(1), tokens.unbind(1), strict=True):
        state = torch.where(before == WRITE, token, state)
        states.append(state)
    return torch.stack(states, 1)


def _answer(rule: Callable[[Tensor], Tensor]) -> Predictor:
    """Let a normalizer on the tokens, (b t) -> the token of a bit (b t), answer a prompt."""
    return lambda prompt: told(rule(prompt.tokens) - ZERO, 2)
