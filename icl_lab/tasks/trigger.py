"""One token that asks for a mean, among many that ask for nothing: the task for which softmax needs a sink."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from icl_lab.base.errors import BadValue
from icl_lab.tasks import registry
from icl_lab.tasks.base import Axes, Label, Mark, Predictor, Prompt, Task, plain
from icl_lab.tasks.declared import mixed_curriculum
from icl_lab.tasks.wording import number_words

BEFORE = 2  # tokens before the first that can be the trigger: the first token, and one number


@registry.add("trigger")
@dataclass(frozen=True, kw_only=True)
class Trigger(Task):
    """At one token the mean of the numbers before it is wanted, at all others 0.

    Formula: x_t = (1[t = 0], 1[t = tau], u_t), u ~ N(0, 1); wanted at tau: the mean of u_1 .. u_(tau - 1), else 0
    Paper: after Ran-Milo 2026, arXiv 2603.11487

    Attention that sums to 1 has to rest somewhere where nothing is wanted: on the first token, whose number is 0; how
    much it rests there is the metric ``first`` of the analysis ``heads``. The last token of a prompt is never the
    trigger, so that heads are looked at where nothing is wanted. An MLP can switch the answer off without a sink: the
    setting of the paper is ``model.layers=1``, ``model.mlp=no``. ``length`` counts tokens; the axis ``depth`` is where
    the trigger stands, in percent of the places that it can have. Training draws it evenly. The law of u is not the
    paper's but ours.

    Metrics are squared errors: ``at-trigger``, times the numbers that are averaged, so that answering 0 scores 1 at
    every depth and length; ``elsewhere``, the mean over the tokens at which 0 is wanted; and ``balanced-error``, the
    mean of the two, which training minimises: answering 0 everywhere scores 1/2.
    """

    roles: ClassVar[int] = 1
    width: ClassVar[int] = 3
    least: ClassVar[int] = 4
    headline: ClassVar[str] = "balanced-error"
    trivial: ClassVar[tuple[str, ...]] = ("zero",)
    beside: ClassVar[tuple[str, ...]] = ("balanced-error", "at-trigger", "elsewhere")
    facets: ClassVar[tuple[str, ...]] = ("depth",)
    heat_map: ClassVar[tuple[str, str]] = ("length", "depth")
    usual: ClassVar[Mapping[str, str]] = mixed_curriculum(4, 16, 1, positions="none")
    axis_labels: ClassVar[Mapping[str, Label]] = {"depth": Label("depth of the trigger in percent", "depth")}
    metric_labels: ClassVar[Mapping[str, str]] = {
        "balanced-error": "squared error, mean of at the trigger and elsewhere (0 scores 1/2)",
        "at-trigger": "squared error at the trigger (0 scores 1)",
        "elsewhere": "squared error where 0 is wanted",
    }
    training: ClassVar[dict[str, float]] = {"depth": 50.0}  # the middle: training draws every depth alike
    axes: ClassVar[Mapping[str, Axes]] = {
        "full": {"depth": (10, 30, 50, 70, 90), "length": (8, 16, 32, 64, 128)},
        "thin": {"depth": (10, 50, 90), "length": (8, 16, 32, 64)},
        "tiny": {"depth": (10, 50, 90), "length": (16, 32)},
    }

    def check_length(self, length: int, **shift: float) -> None:
        """The first token, a number, the trigger and a token after it must fit; it stands within the prompt."""
        super().check_length(length)
        (depth,) = self.sigmas(shift)
        if depth > 100:
            raise BadValue(f"depth is a percentage, at most 100, got {depth:g}.")

    def sample(self, rng: torch.Generator, prompts: int, length: int, **shift: float) -> Prompt:
        """Draw numbers and the trigger's place; a shift of depth moves it and draws nothing anew."""
        self.check_length(length, **shift)
        u = torch.randn(prompts, length, generator=rng)
        place = torch.rand(prompts, 1, generator=rng)
        if "depth" in shift:
            place = torch.full((prompts, 1), shift["depth"] / 100)
        choices = length - BEFORE - 1
        tau = BEFORE + (place * choices).long().clamp(max=choices - 1)
        index = torch.arange(length)
        u[:, 0] = 0
        here = index == tau
        tokens = torch.stack(((index == 0).expand(prompts, -1).float(), here.float(), u), 2)
        mean = (u.cumsum(1) - u) / (index - 1).clamp(min=1)
        return Prompt(tokens, torch.where(here, mean, 0.0), torch.ones(prompts, length, dtype=torch.bool))

    def loss(self, outputs: Tensor, prompt: Prompt) -> Tensor:
        """The mean of both kinds of error, as in ``balanced-error``."""
        errors, here = self.errors(outputs, prompt), _triggered(prompt)
        weights = torch.where(here, 1.0, 1.0 / (here.shape[1] - 1))
        return (errors * weights).sum(1).mean() / 2

    def errors(self, outputs: Tensor, prompt: Prompt) -> Tensor:
        """Squared errors, (b t); at the trigger times the numbers that are averaged."""
        averaged = torch.arange(prompt.targets.shape[1], device=prompt.targets.device) - 1
        missed = (outputs[..., 0] - prompt.targets).square()
        return torch.where(_triggered(prompt), averaged * missed, missed)

    def views(self, errors: Tensor, prompt: Prompt, **shift: float) -> dict[str, Tensor]:
        here = _triggered(prompt)
        at, elsewhere = (errors.where(chosen, 0).sum(1) for chosen in (here, ~here))
        elsewhere = elsewhere / (here.shape[1] - 1)
        return {"balanced-error": (at + elsewhere) / 2, "at-trigger": at, "elsewhere": elsewhere}

    def references(self) -> dict[str, Predictor]:
        """0 everywhere; the mean so far everywhere, as if each token were the trigger; and the exact normalizer."""
        return {
            "zero": lambda prompt: torch.zeros_like(prompt.tokens[..., :1]),
            "always-mean": lambda prompt: _mean(prompt.tokens).unsqueeze(2),
            "exact-rule": lambda prompt: (_mean(prompt.tokens) * prompt.tokens[..., 1]).unsqueeze(2),
        }

    def marks(self, prompt: Prompt) -> list[Mark]:
        """The first token and the trigger by name, all with their numbers."""
        found = []
        for t, (first, here, u) in enumerate(prompt.tokens[0].tolist()):
            role = "first" if first else "trigger" if here else "u"
            found.append(Mark(role, t, "" if first else plain(u), u))
        return found

    def words(self, outputs: Tensor, prompt: Prompt, t: int) -> tuple[str, str]:
        return number_words(outputs, prompt, t)


def _triggered(prompt: Prompt) -> Tensor:
    """Which token of each prompt is the trigger, (b t)."""
    return prompt.tokens[..., 1] > 0


def _mean(tokens: Tensor) -> Tensor:
    """The mean of the numbers before each token, the first one's left out, (b t); 0 where there are none."""
    u = tokens[..., 2]
    known = torch.arange(u.shape[1], device=u.device) - 1
    return (u.cumsum(1) - u) / known.clamp(min=1)
