"""Which item ranks highest? And its counterpart: the mean of all items. Sharp attention for one, flat for the other."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn import functional as F

from icl_lab.base.registry import require
from icl_lab.tasks import registry
from icl_lab.tasks.base import Axes, Label, Mark, Predictor, Prompt, Task, plain
from icl_lab.tasks.declared import mixed_curriculum
from icl_lab.tasks.symbols import nats, told, whim, wrong

MOST = 100_000  # classes
LENGTHS: Mapping[str, tuple[int, ...]] = {
    "full": (16, 32, 64, 128, 256, 512, 1024),
    "thin": (16, 64, 256, 1024),
    "tiny": (16, 32),
}
USUAL: Mapping[str, str] = mixed_curriculum(4, 16, 1, positions="none")  # a set has no order


@registry.add("maximum")
@dataclass(frozen=True, kw_only=True)
class Maximum(Task):
    """Which class has the item of the highest priority so far?

    Formula: items (rho_i, class_i one-hot), rho ~ sigma U(0, 1), classes even -> class of the greatest rho so far
    Paper: after the max retrieval of Velickovic et al. 2024, arXiv 2410.01104

    Training has up to 16 items, tests have many more. With priorities 0.3 0.9 0.4 of the classes a, b and c the answers
    are a, b, b. ``length`` counts items, each a token; the axis ``sigma`` stretches the priorities, which changes no
    answer. The paper asks once, by a further token; here every item is one, so that one pass tests all lengths.

    Metrics are error rates, of the ``last`` answer and the mean over all (``all``); ``cross-entropy`` is that of the
    last answer in nats. All ``classes`` are alike frequent: a constant answer errs in 1 - 1/classes.
    """

    roles: ClassVar[int] = 1
    worst: ClassVar[float] = 1.0
    headline: ClassVar[str] = "last"
    trivial: ClassVar[tuple[str, ...]] = ("chance", "most-recent")
    beside: ClassVar[tuple[str, ...]] = ("last", "all")
    heat_map: ClassVar[tuple[str, str]] = ("sigma", "length")
    usual: ClassVar[Mapping[str, str]] = USUAL
    axis_labels: ClassVar[Mapping[str, Label]] = {"sigma": Label("range of the priorities", "σ")}
    metric_labels: ClassVar[Mapping[str, str]] = {
        "last": "error rate, last answer",
        "all": "error rate of an answer",
        "cross-entropy": "cross-entropy of the last answer in nats",
    }
    axes: ClassVar[Mapping[str, Axes]] = {
        "full": {"sigma": (0.5, 1, 2, 4), "length": LENGTHS["full"]},
        "thin": {"sigma": (0.5, 1, 2), "length": LENGTHS["thin"]},
        "tiny": {"sigma": (1, 2), "length": LENGTHS["tiny"]},
    }
    prefixes: ClassVar[bool] = True

    classes: int = 10

    def __post_init__(self) -> None:
        require(2 <= self.classes <= MOST, f"classes must be at least 2 and at most {MOST:,}", self.classes)

    @property
    def width(self) -> int:  # type: ignore[override]
        """The priority, and the class one-hot."""
        return 1 + self.classes

    @property
    def outputs(self) -> int:  # type: ignore[override]
        """A logit for each class."""
        return self.classes

    def sample(self, rng: torch.Generator, prompts: int, length: int, **shift: float) -> Prompt:
        """Draw items; sigma stretches their priorities."""
        (sigma,) = self.sigmas(shift)
        priority = sigma * torch.rand(prompts, length, generator=rng)
        kind = torch.randint(self.classes, (prompts, length), generator=rng)
        tokens = torch.cat((priority.unsqueeze(2), F.one_hot(kind, self.classes).float()), 2)
        wanted = kind.gather(1, priority.cummax(1).indices).float()
        return Prompt(tokens, wanted, torch.ones(prompts, length, dtype=torch.bool))

    def loss(self, outputs: Tensor, prompt: Prompt) -> Tensor:
        """The mean cross-entropy in nats over all answers."""
        return nats(outputs, prompt).mean()

    def errors(self, outputs: Tensor, prompt: Prompt) -> Tensor:
        return wrong(outputs, prompt)

    def views(self, errors: Tensor, prompt: Prompt, **shift: float) -> dict[str, Tensor]:
        return {"last": errors[:, -1], "all": errors.mean(1)}

    def confidence(self, outputs: Tensor, prompt: Prompt) -> dict[str, Tensor]:
        """The cross-entropy of the last answer in nats."""
        return {"cross-entropy": nats(outputs, prompt)[:, -1]}

    def references(self) -> dict[str, Predictor]:
        """Chance, the class of the last item, the most frequent class, and that of the highest priority."""
        return {
            "chance": whim(self.classes),
            "most-recent": lambda prompt: prompt.tokens[..., 1:],
            "most-frequent": lambda prompt: prompt.tokens[..., 1:].cumsum(1),
            "exact-rule": self._exact,
        }

    def _exact(self, prompt: Prompt) -> Tensor:
        places = prompt.tokens[..., 0].cummax(1).indices
        return told(prompt.tokens[..., 1:].argmax(2).gather(1, places), self.classes)

    def marks(self, prompt: Prompt) -> list[Mark]:
        """Class and priority of each item."""
        found = []
        for t, token in enumerate(prompt.tokens[0], 1):
            found.append(Mark("item", t, f"c{int(token[1:].argmax()) + 1} {plain(token[0].item())}", token[0].item()))
        return found

    def words(self, outputs: Tensor, prompt: Prompt, t: int) -> tuple[str, str]:
        return f"c{int(outputs[0, t].argmax()) + 1}", f"c{int(prompt.targets[0, t]) + 1}"


@registry.add("mean-value")
@dataclass(frozen=True, kw_only=True)
class MeanValue(Task):
    """Mean of the numbers so far.

    Formula: x_i = m + sigma z_i, m ~ N(0, 1) one a prompt, z ~ N(0, 1) -> (x_1 + .. + x_i) / i; squared error
    Paper: none; the counterpart of the max retrieval of Velickovic et al. 2024, arXiv 2410.01104

    With numbers 1 3 2 the answers are 1 2 2. Every number counts alike, so that flat attention answers exactly at any
    length. The number m of a prompt keeps answers from shrinking with the length. ``length`` counts numbers, each a
    token; the axis ``sigma`` is their spread around m.

    Metrics are squared errors, of the ``last`` answer and the mean over ``all``. Answering 0 scores 1 + sigma^2 / L.
    """

    roles: ClassVar[int] = 1
    headline: ClassVar[str] = "last"
    log_scale: ClassVar[bool] = True
    trivial: ClassVar[tuple[str, ...]] = ("zero",)
    beside: ClassVar[tuple[str, ...]] = ("last", "all")
    heat_map: ClassVar[tuple[str, str]] = ("sigma", "length")
    usual: ClassVar[Mapping[str, str]] = USUAL
    axis_labels: ClassVar[Mapping[str, Label]] = {"sigma": Label("σ of numbers around the mean", "σ")}
    metric_labels: ClassVar[Mapping[str, str]] = {
        "last": "squared error, last answer",
        "all": "squared error, all answers",
    }
    axes: ClassVar[Mapping[str, Axes]] = {
        "full": {"sigma": (0.5, 1, 2, 3, 5), "length": LENGTHS["full"]},
        "thin": {"sigma": (0.5, 1, 2), "length": LENGTHS["thin"]},
        "tiny": {"sigma": (1, 2), "length": LENGTHS["tiny"]},
    }
    prefixes: ClassVar[bool] = True

    def sample(self, rng: torch.Generator, prompts: int, length: int, **shift: float) -> Prompt:
        """Draw numbers; sigma stretches them away from the number of their prompt."""
        (sigma,) = self.sigmas(shift)
        x = torch.randn(prompts, 1, generator=rng) + sigma * torch.randn(prompts, length, generator=rng)
        return Prompt(x.unsqueeze(2), running_mean(x), torch.ones(prompts, length, dtype=torch.bool))

    def loss(self, outputs: Tensor, prompt: Prompt) -> Tensor:
        """The mean squared error over all answers."""
        return self.errors(outputs, prompt).mean()

    def errors(self, outputs: Tensor, prompt: Prompt) -> Tensor:
        return (outputs[..., 0] - prompt.targets).square()

    def views(self, errors: Tensor, prompt: Prompt, **shift: float) -> dict[str, Tensor]:
        return {"last": errors[:, -1], "all": errors.mean(1)}

    def references(self) -> dict[str, Predictor]:
        """0, the last number, the greatest number (the sharpest mean that there is), and the mean."""
        return {
            "zero": lambda prompt: torch.zeros_like(prompt.tokens),
            "most-recent": lambda prompt: prompt.tokens,
            "greatest": lambda prompt: prompt.tokens.cummax(1).values,
            "exact-rule": _each(running_mean),
        }


def running_mean(x: Tensor) -> Tensor:
    """The mean of the numbers up to each, (b L) -> (b L), added up in double precision."""
    return (x.double().cumsum(1) / torch.arange(1, x.shape[1] + 1, device=x.device)).to(x)


def _each(rule: Callable[[Tensor], Tensor]) -> Predictor:
    return lambda prompt: rule(prompt.tokens[..., 0]).unsqueeze(2)
