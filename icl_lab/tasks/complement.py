"""The set complement: which symbols have not come yet?"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor
from torch.nn import functional as F

from icl_lab.base.registry import require
from icl_lab.tasks import registry
from icl_lab.tasks.base import Axes, Label, Mark, Predictor, Prompt, Task
from icl_lab.tasks.declared import mixed_curriculum
from icl_lab.tasks.symbols import nats, told

MOST = 4096  # symbols: every answer has a probability of each
LONGEST = 24  # tokens of the tests


@registry.add("complement")
@dataclass(frozen=True, kw_only=True)
class Complement(Task):
    """Give all symbols that have not come yet the same probability, and the others none.

    Formula: t_1 .. t_s all different -> p_i = 1 / (v - s) for i not among them, else 0; divergence from p in nats
    Paper: the set complement of Zsamboki et al. 2025, arXiv 2510.08341

    Of v ``symbols`` a prompt names some, each once, in an order drawn evenly; it is answered after each token. Training
    minimises the divergence from p. With ``labels=next`` it is the cross-entropy of the symbol that comes next, one of
    those that have not come: least at p too, but noisy, and models of preset nano do not learn it. ``length`` counts
    tokens, up to 8 in training and less than v in tests. The axis ``repeats`` is how many times in succession each
    symbol is written, 1 in training: more change no answer but the share of attention that falls on each. The
    definition is the paper's, as its abstract and a review give it; the paper itself could not be read, so that sizes
    and ``repeats`` are ours.

    Metrics are in nats, the divergence of the answers from p: of the ``last`` answer, and the mean over all (``all``);
    ``invalid`` is the probability that the last answer leaves to symbols that have come.
    """

    roles: ClassVar[int] = 1
    headline: ClassVar[str] = "last"
    trivial: ClassVar[tuple[str, ...]] = ("uniform",)
    beside: ClassVar[tuple[str, ...]] = ("last", "all")
    heat_map: ClassVar[tuple[str, str]] = ("repeats", "length")
    usual: ClassVar[Mapping[str, str]] = mixed_curriculum(2, 8, 1, positions="none")  # a set has no order
    axis_labels: ClassVar[Mapping[str, Label]] = {"repeats": Label("times that a symbol stands in a row", "repeats")}
    metric_labels: ClassVar[Mapping[str, str]] = {
        "last": "divergence from the even law of absent symbols in nats, last answer",
        "all": "divergence from the even law of absent symbols in nats, all answers",
        "invalid": "probability of symbols that have come, last answer",
    }
    axes: ClassVar[Mapping[str, Axes]] = {
        "full": {"repeats": (1, 2, 3), "length": (4, 8, 12, 16, 20, LONGEST)},
        "thin": {"repeats": (1, 2), "length": (4, 8, 16, LONGEST)},
        "tiny": {"repeats": (1, 2), "length": (8, 16)},
    }
    prefixes: ClassVar[bool] = True

    symbols: int = 32
    labels: Literal["even", "next"] = "even"

    def __post_init__(self) -> None:
        bound = f"symbols must be above {LONGEST}, the longest test, and at most {MOST:,}"
        require(LONGEST < self.symbols <= MOST, bound, self.symbols)

    @property
    def vocabulary(self) -> int:  # type: ignore[override]
        return self.symbols

    @property
    def outputs(self) -> int:  # type: ignore[override]
        """A logit for each symbol."""
        return self.symbols

    def check_length(self, length: int, **shift: float) -> None:
        """A symbol that has not come must be left."""
        super().check_length(length)
        (repeats,) = self.sigmas(shift)
        require(repeats >= 1 and repeats == int(repeats), "repeats must be a whole number of 1 or more", f"{repeats:g}")
        require(length < self.symbols * repeats, f"symbols={self.symbols} leave none after so many tokens", length)

    def sample(self, rng: torch.Generator, prompts: int, length: int, **shift: float) -> Prompt:
        """Draw orders of all symbols; repeats stretch them."""
        self.check_length(length, **shift)
        repeats = int(self.sigmas(shift)[0])
        order = torch.rand(prompts, self.symbols, generator=rng).argsort(1)
        turn = torch.arange(length) // repeats
        return Prompt(order[:, turn], order[:, turn + 1].float(), torch.ones(prompts, length, dtype=torch.bool))

    def loss(self, outputs: Tensor, prompt: Prompt) -> Tensor:
        """The mean divergence from p, or cross-entropy of the symbol that comes next, in nats."""
        return (nats if self.labels == "next" else _divergence)(outputs, prompt).mean()

    def errors(self, outputs: Tensor, prompt: Prompt) -> Tensor:
        """Divergences from p in nats, (b t), in double precision: that of a right answer is 0."""
        return _divergence(outputs.double(), prompt)

    def views(self, errors: Tensor, prompt: Prompt, **shift: float) -> dict[str, Tensor]:
        return {"last": errors[:, -1], "all": errors.mean(1)}

    def confidence(self, outputs: Tensor, prompt: Prompt) -> dict[str, Tensor]:
        """Probability on symbols that have come, of the last answer."""
        come = _come(prompt.tokens, self.symbols)[:, -1]
        return {"invalid": torch.where(come, outputs[:, -1].softmax(1), 0).sum(1)}

    def references(self) -> dict[str, Predictor]:
        """All symbols alike, all but the last one alike, and all that have not come alike, which is right."""
        return {
            "uniform": lambda prompt: torch.zeros(*prompt.tokens.shape, self.symbols),
            "not-the-last": lambda prompt: -told(prompt.tokens, self.symbols),
            "exact-rule": lambda prompt: -1e3 * _come(prompt.tokens, self.symbols).float(),
        }

    def marks(self, prompt: Prompt) -> list[Mark]:
        """Symbols are s1, s2 .."""
        return [Mark("token", t, f"s{token + 1}") for t, token in enumerate(prompt.tokens[0].tolist(), 1)]

    def words(self, outputs: Tensor, prompt: Prompt, t: int) -> tuple[str, str]:
        """Number of symbols that the answer leaves out (less than half an even share), and of those that have come."""
        left_out = int((outputs[0, t].softmax(0) < 0.5 / self.symbols).sum())
        return f"{left_out} have come", f"{int(_come(prompt.tokens[:1], self.symbols)[0, t].sum())} have come"


def _divergence(outputs: Tensor, prompt: Prompt) -> Tensor:
    """Outputs (b t v) -> -log(v - s) - the mean of log q over the symbols that have not come, (b t)."""
    absent = ~_come(prompt.tokens, outputs.shape[2])
    left = absent.sum(2).to(outputs.dtype)
    return -left.log() - torch.where(absent, outputs.log_softmax(2), 0).sum(2) / left


def _come(tokens: Tensor, symbols: int) -> Tensor:
    """Which symbols have come up to each token, (b t v)."""
    return F.one_hot(tokens, symbols).cumsum(1) > 0
