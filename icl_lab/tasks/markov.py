"""A different Markov chain in each prompt: which symbol comes next?"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from scipy.special import gammaincinv
from torch import Tensor
from torch.nn import functional as F

from icl_lab.base.registry import require
from icl_lab.tasks import registry
from icl_lab.tasks.base import Axes, Label, Mark, Predictor, Prompt, Summary, Task
from icl_lab.tasks.symbols import nats

MOST = 256  # states
TAIL = 4  # the tail is the last quarter of a prompt
LEAST_SHARE = 1e-30  # of a row: below it a gamma variate cannot be divided by


@registry.add("markov")
@dataclass(frozen=True, kw_only=True)
class Markov(Task):
    """Which symbol comes next in a Markov chain that has to be learned from the prompt itself?

    Formula: P(x_(t+1) = j | x_t = i) = P_ij, row i ~ Dirichlet(a, .., a) drawn anew for each prompt; cross-entropy
    Paper: Edelman et al. 2024, arXiv 2402.11004

    ``k`` is the number of states, and a the axis ``concentration``, 1 in training: rows even on the simplex; larger
    ones are nearer to a fair die, smaller ones to a certain step. The first symbol is even. ``length`` counts tokens;
    each but the last of the chain is asked for its successor.

    Metrics are in nats: ``nats``, the mean cross-entropy, and ``regret``, what of it is above that of the Bayes answer
    to this concentration, of which a true symbol says (c_ij + a) / (c_i + k a) after c_ij of c_i steps: its mean is the
    divergence of the answers from the Bayes answers, 0 at best. ``tail`` is the regret of the last quarter. States are
    alike before they are drawn, so that no class is rarer than another.
    """

    roles: ClassVar[int] = 1
    headline: ClassVar[str] = "regret"
    trivial: ClassVar[tuple[str, ...]] = ("uniform",)
    beside: ClassVar[tuple[str, ...]] = ("regret", "tail", "nats")
    summary: ClassVar[Summary] = Summary()
    heat_map: ClassVar[tuple[str, str]] = ("concentration", "length")
    usual: ClassVar[Mapping[str, str]] = {
        "train.curriculum.start": "100",
        "train.curriculum.stop": "100",
        "model.positions": "rotary",
    }
    axis_labels: ClassVar[Mapping[str, Label]] = {"concentration": Label("concentration of the rows", "a")}
    metric_labels: ClassVar[Mapping[str, str]] = {
        "nats": "cross-entropy of a symbol in nats",
        "regret": "cross-entropy above that of the Bayes answer, in nats",
        "tail": "cross-entropy above that of the Bayes answer, in nats, last quarter",
    }
    axes: ClassVar[Mapping[str, Axes]] = {
        "full": {"concentration": (0.1, 0.3, 1, 3, 10), "length": (50, 100, 200, 400, 800)},
        "thin": {"concentration": (0.3, 1, 3), "length": (50, 100, 200, 400)},
        "tiny": {"concentration": (0.3, 1), "length": (50, 100)},
    }
    prefixes: ClassVar[bool] = True

    k: int = 3

    def __post_init__(self) -> None:
        require(2 <= self.k <= MOST, f"k must be at least 2 and at most {MOST} states", self.k)

    @property
    def vocabulary(self) -> int:  # type: ignore[override]
        return self.k

    @property
    def outputs(self) -> int:  # type: ignore[override]
        """A logit for each state."""
        return self.k

    def sample(self, rng: torch.Generator, prompts: int, length: int, **shift: float) -> Prompt:
        """Draw chains; every concentration reads the same uniform numbers."""
        self.check_length(length, **shift)
        (concentration,) = self.sigmas(shift)
        rows = dirichlet(torch.rand(prompts, self.k, self.k, generator=rng, dtype=torch.float64), concentration)
        state = torch.randint(self.k, (prompts,), generator=rng)
        steps = torch.rand(prompts, length, generator=rng, dtype=torch.float64)
        bounds = rows.cumsum(2)[..., :-1].contiguous()  # the last symbol has the rest
        chain, all_prompts = [state], torch.arange(prompts)
        for step in steps.unbind(1):
            state = (step.unsqueeze(1) >= bounds[all_prompts, state]).sum(1)
            chain.append(state)
        whole = torch.stack(chain, 1)
        scored = torch.ones(prompts, length, dtype=torch.bool)
        return Prompt(whole[:, :-1].contiguous(), whole[:, 1:].float(), scored)

    def loss(self, outputs: Tensor, prompt: Prompt) -> Tensor:
        """The mean cross-entropy in nats over all tokens."""
        return self.errors(outputs, prompt).mean()

    def errors(self, outputs: Tensor, prompt: Prompt) -> Tensor:
        """The cross-entropy of each token in nats, (b t)."""
        return nats(outputs, prompt)

    def views(self, errors: Tensor, prompt: Prompt, **shift: float) -> dict[str, Tensor]:
        (concentration,) = self.sigmas(shift)
        regret = errors - nats(bayes(prompt.tokens, self.k, concentration), prompt)
        tail = regret[:, -max(1, regret.shape[1] // TAIL) :]
        return {"regret": regret.mean(1), "tail": tail.mean(1), "nats": errors.mean(1)}

    def references(self) -> dict[str, Predictor]:
        """All symbols alike; the shares of the symbols so far; the steps from this symbol so far, the Bayes answer.

        Both that count begin with one of each, which is the prior of training; they do not know of another.
        """
        return {
            "uniform": lambda prompt: torch.zeros(*prompt.tokens.shape, self.k),
            "unigram": lambda prompt: unigram(prompt.tokens, self.k),
            "bayes": lambda prompt: bayes(prompt.tokens, self.k),
        }

    def marks(self, prompt: Prompt) -> list[Mark]:
        """States are s1, s2 .."""
        return [Mark("x", t, f"s{token + 1}") for t, token in enumerate(prompt.tokens[0].tolist(), 1)]

    def words(self, outputs: Tensor, prompt: Prompt, t: int) -> tuple[str, str]:
        share = outputs[0, t].softmax(0).max().item()
        return f"s{int(outputs[0, t].argmax()) + 1} ({share:.0%})", f"s{int(prompt.targets[0, t]) + 1}"


def dirichlet(uniform: Tensor, concentration: float) -> Tensor:
    """Uniform numbers (... k) -> draws of Dirichlet(a, .., a), (... k), which grow with the numbers whatever a is.

    Gamma variates by the inverse of their distribution, divided by their sum.
    """
    drawn = torch.from_numpy(np.asarray(gammaincinv(concentration, uniform.numpy())))
    drawn = drawn.clamp(min=LEAST_SHARE)
    return drawn / drawn.sum(-1, keepdim=True)


def bayes(tokens: Tensor, k: int, concentration: float = 1.0) -> Tensor:
    """Logits (b t k) of the posterior predictive: (c_ij + a) / (c_i + k a), c_ij the steps from i to j up to here."""
    here = F.one_hot(tokens, k).double()
    steps = torch.zeros(*tokens.shape, k, k, dtype=torch.float64, device=tokens.device)
    steps[:, 1:] = here[:, :-1].unsqueeze(3) * here[:, 1:].unsqueeze(2)
    counts = steps.cumsum(1).gather(2, tokens.view(*tokens.shape, 1, 1).expand(-1, -1, 1, k)).squeeze(2)
    shares = (counts + concentration) / (counts.sum(2, keepdim=True) + k * concentration)
    return shares.log().float()


def unigram(tokens: Tensor, k: int) -> Tensor:
    """Logits (b t k) of the shares of the symbols up to here: (c_j + 1) / (t + k)."""
    counts = F.one_hot(tokens, k).cumsum(1).double()
    return ((counts + 1) / (counts.sum(2, keepdim=True) + k)).log().float()
