"""Is every number so far positive? Is some?"""

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import torch
from torch import Tensor
from torch.nn import functional as F

from icl_lab.base.errors import BadValue
from icl_lab.base.rescale import FIRST, Rescale, Rescaling, by_largest
from icl_lab.tasks import registry
from icl_lab.tasks.base import Axes, Label, Mark, Predictor, Prompt, Task, plain
from icl_lab.tasks.capabilities import Rescalable, SingleNumbers, TypedPrompts
from icl_lab.tasks.drawing import NORMAL_RANGE, by_class, interleave, published_inputs
from icl_lab.tasks.wording import number_marks


@dataclass(frozen=True, kw_only=True)
class Quantifier(SingleNumbers, TypedPrompts, Rescalable):
    """The running truth value of a quantified sentence about the numbers so far, answered by one logit after each.

    ``balance=none`` draws x ~ N(0, sigma^2), as the paper does: beyond a few numbers the answer is all but constant.
    ``balance=half`` decides half of the prompts at an index uniform on 1 .. L and leaves the others undecided, so that
    a constant answer is right half of the time at every length. ``labels=hidden`` shows 0 in place of the labels, and
    with ``balance=half`` just one number decides, so that the whole context must be read.

    Metrics are error rates, index counted from 0: ``any`` scores a prompt as wrong if an answer at index >= 3 is (the
    published score), ``last`` scores the last answer, ``position`` the share of wrong answers at index >= 3.
    ``balanced-`` in front means the mean over the two classes on ``balance=half`` draws (for any and last the class is
    the final truth value, for position each answer's own).
    """

    sentence: ClassVar[str]  # about the numbers so far, in words
    decisive: ClassVar[int]  # the sign of a number that decides the sentence for good: -1 for every, +1 for some
    headline: ClassVar[str] = "balanced-last"
    trivial: ClassVar[tuple[str, ...]] = ("always-false", "always-true")
    beside: ClassVar[tuple[str, ...]] = ("balanced-last", "any", "last")
    answers: ClassVar[slice] = slice(None, None, 2)
    scored_from: ClassVar[int] = 3
    worst: ClassVar[float] = 1.0
    compared_along: ClassVar[str] = "sigma"
    axis_labels: ClassVar[Mapping[str, Label]] = {"sigma": Label("σ of numbers", "σ")}
    metric_labels: ClassVar[Mapping[str, str]] = {
        "any": "error rate, any answer after 3 examples or more",
        "last": "error rate, last answer",
        "position": "error rate of an answer after 3 examples or more",
        "balanced-any": "balanced error rate, any answer after 3 examples or more",
        "balanced-last": "balanced error rate, last answer",
        "balanced-position": "balanced error rate of an answer after 3 examples or more",
        "flip-with": "answers flipped, deviant with the truth",
        "flip-against": "answers flipped, deviant against the truth",
        "as-largest": "last answers that are the sign of the largest number",
    }
    deviants: ClassVar[Sequence[float]] = (1, 3, 10, 30, 100, 300, 1000)
    heat_map: ClassVar[tuple[str, str]] = ("sigma", "length")
    rescales: ClassVar[tuple[Rescale, ...]] = ("inputs",)
    equivariant: ClassVar[str] = "exact-rule"
    axes: ClassVar[Mapping[str, Axes]] = {
        "full": {"sigma": range(1, 31), "length": range(10, 201, 10)},
        "thin": {"sigma": (1, 3, 10, 30), "length": (10, 20, 40, 80, 120, 200)},
        "tiny": {"sigma": (1, 10), "length": (10, 20, 40)},
    }

    balance: Literal["none", "half"] = "none"
    labels: Literal["shown", "hidden"] = "shown"

    def rescaling(self, part: Rescale, first: int = FIRST) -> Rescaling:
        super().rescaling(part, first)  # refuses other parts
        return by_largest

    @property
    def prefixes(self) -> bool:  # type: ignore[override]
        """Balanced prompts are balanced over their own length, so a shorter one is not the start of a longer."""
        return self.balance == "none"

    @abstractmethod
    def truth(self, x: Tensor) -> Tensor:
        """X (b L) -> the truth value of the sentence about x_1 .. x_i, (b L) bool."""

    def sample(self, rng: torch.Generator, prompts: int, length: int, **shift: float) -> Prompt:
        """Draw numbers and their running truth; sigma stretches the numbers and changes no truth value."""
        (sigma,) = self.sigmas(shift)
        z = torch.randn(prompts, length, generator=rng)
        return self._prompt(sigma * (z if self.balance == "none" else self._balanced(z, rng)))

    def published(self, length: int, **shift: float) -> Prompt:
        """The 64 prompts of the script, times sigma; it balances none."""
        if self.balance != "none":
            raise BadValue("the published evaluation set is not balanced; use balance=none with it.")
        (sigma,) = self.sigmas(shift)
        return self._prompt(sigma * published_inputs(64, length))

    def _prompt(self, x: Tensor) -> Prompt:
        truth = self.truth(x).float()
        shown = 2 * truth - 1 if self.labels == "shown" else torch.zeros_like(truth)
        after_x = torch.arange(2 * x.shape[1]) % 2 == 0
        targets = truth.repeat_interleave(2, dim=1)
        return Prompt(interleave(x, shown).unsqueeze(-1), targets, after_x.expand(len(x), -1))

    def loss(self, outputs: Tensor, prompt: Prompt) -> Tensor:
        """The mean cross-entropy in nats over all answers, the first included."""
        return F.binary_cross_entropy_with_logits(outputs[:, self.answers, 0], prompt.targets[:, self.answers])

    def errors(self, outputs: Tensor, prompt: Prompt) -> Tensor:
        return ((outputs[:, self.answers, 0] > 0) != (prompt.targets[:, self.answers] > 0)).to(outputs.dtype)

    def views(self, errors: Tensor, prompt: Prompt, **shift: float) -> dict[str, Tensor]:
        late = errors[:, 3:]
        any_wrong, last = late.amax(1), errors[:, -1]
        plain = {"any": any_wrong, "last": last, "position": late.mean(1)}
        if self.balance == "none":
            return plain
        final, each = prompt.targets[:, -1] > 0, prompt.targets[:, self.answers][:, 3:] > 0
        return {
            **plain,
            "balanced-any": by_class(any_wrong, final),
            "balanced-last": by_class(last, final),
            "balanced-position": torch.stack([_mean_where(late, each), _mean_where(late, ~each)], dim=1),
        }

    def deviate(self, prompt: Prompt, at: Sequence[int], factor: float) -> Prompt:
        """Signs stay, and so does every label."""
        tokens = prompt.tokens.clone()
        tokens[:, [self.roles * index for index in at]] *= factor
        return Prompt(tokens, prompt.targets, prompt.scored)

    def disturbed(self, before: Tensor, after: Tensor, prompt: Prompt, at: Sequence[int]) -> dict[str, Tensor]:
        """``balanced-last`` is the error of the last answer; a flip is a last answer that the deviant changed.

        ``flip-with`` counts the prompts in which the sign of the first deviant says what the truth at the end is,
        ``flip-against`` those in which it says the opposite: a positive number after a violator, for ``every``.
        """
        last, flip = after[:, -1], (after[:, -1] != before[:, -1]).to(after.dtype)
        against = self.misleads(prompt, min(at))
        return {
            "balanced-last": by_class(last, prompt.targets[:, -1] > 0),
            "flip-with": flip.where(~against, torch.nan),
            "flip-against": flip.where(against, torch.nan),
        }

    def misleads(self, prompt: Prompt, at: int) -> Tensor:
        """Its sign and the truth differ: a positive number after a violator, for ``every``."""
        return (prompt.tokens[:, self.roles * at, 0] > 0) != (prompt.targets[:, -1] > 0)

    def agreement(self, outputs: Tensor, prompt: Prompt) -> dict[str, Tensor]:
        """``as-largest``: the last answer is the sign of the number of largest absolute value.

        What arXiv 2508.14685 says that answers follow where one number is far larger than the others.
        """
        rule = self.references()["sign-of-largest"](prompt)
        said, told = (each[:, self.answers][:, -1, 0] > 0 for each in (outputs, rule))
        return {"as-largest": (said == told).to(outputs.dtype)}

    def singly(self, prompt: Prompt) -> Prompt:
        return self._prompt(prompt.tokens[:, :: self.roles, 0].reshape(-1, 1))

    def prompt_of(self, numbers: Sequence[float], **parameters: float) -> Prompt:
        """The running truth follows from the numbers, whatever ``balance`` would draw."""
        prompt = self._prompt(torch.tensor([list(numbers)]))
        return prompt.first(prompt.tokens.shape[1] - 1)

    def marks(self, prompt: Prompt) -> list[Mark]:
        """Labels read True and False, as in Figure 2 of the paper."""
        marks = number_marks(self, prompt)
        hidden = self.labels == "hidden"
        words = {1.0: "True", -1.0: "False", 0.0: "hidden"}
        return [
            replace(mark, text=words[mark.value or 0.0], quiet=hidden) if mark.role == "y" else mark for mark in marks
        ]

    def words(self, outputs: Tensor, prompt: Prompt, t: int) -> tuple[str, str]:
        logit = outputs[0, t, 0].item()
        return f"{logit > 0} (logit {plain(logit)})", str(prompt.targets[0, t].item() > 0)

    def reach(self, **shift: float) -> dict[str, float]:
        (sigma,) = self.sigmas(shift)
        return {"x": NORMAL_RANGE * sigma}

    def suites(self) -> dict[str, Task]:
        """The task's own prompts; natural draws hold too few true prompts to balance, so they get a second set."""
        return {"": self} if self.balance == "half" else {"": self, "balanced-": replace(self, balance="half")}

    def references(self) -> dict[str, Predictor]:
        return {
            "always-false": lambda prompt: torch.full_like(prompt.tokens, -1.0),
            "always-true": lambda prompt: torch.ones_like(prompt.tokens),
            "copy-previous": self._copy_previous,
            "sign-of-largest": _answers(_largest),
            "sign-of-current": _answers(lambda x: x),
            "exact-rule": _answers(lambda x: self.truth(x).to(x.dtype) - 0.5),
        }

    def _balanced(self, z: Tensor, rng: torch.Generator) -> Tensor:
        prompts, length = z.shape
        decided = torch.rand(prompts, 1, generator=rng) < 0.5
        at = torch.randint(length, (prompts, 1), generator=rng)
        index = torch.arange(length)
        harmless, decisive = -self.decisive * z.abs(), self.decisive * z.abs()
        after = z if self.labels == "shown" else harmless
        return torch.where(~decided | (index < at), harmless, torch.where(index == at, decisive, after))

    def _copy_previous(self, prompt: Prompt) -> Tensor:
        """The label shown last; before the first, the truth about no numbers (every: true, some: false)."""
        shown = prompt.tokens[:, 1::2, 0]
        first = torch.full_like(shown[:, :1], -self.decisive)
        return interleave(torch.cat((first, shown[:, :-1]), dim=1), shown).unsqueeze(-1)


@registry.add("every")
@dataclass(frozen=True, kw_only=True)
class Every(Quantifier):
    """Is every number so far positive?

    Formula: y_i = 1 if x_j > 0 for all j <= i, else 0; shown as +1 and -1; cross-entropy of one logit
    Paper: Naim et al. 2025, arXiv 2508.14685, Figures 2 and 4

    The prompt of the paper's Figure 2 reads 1 True -2 False 3 False 70, that is 1 1 -2 -1 3 -1 70, and False is right.
    """

    sentence: ClassVar[str] = "every number"
    decisive: ClassVar[int] = -1

    def truth(self, x: Tensor) -> Tensor:
        return (x > 0).cummin(1).values


@registry.add("some")
@dataclass(frozen=True, kw_only=True)
class Some(Quantifier):
    """Is some number so far positive?

    Formula: y_i = 1 if x_j > 0 for some j <= i, else 0; shown as +1 and -1; cross-entropy of one logit
    Paper: Naim et al. 2025, arXiv 2508.14685, Figure 5

    A prompt reads -1 False -2 False 3 True -70, that is -1 -1 -2 -1 3 1 -70, and True is right.
    """

    sentence: ClassVar[str] = "at least one number"
    decisive: ClassVar[int] = 1

    def truth(self, x: Tensor) -> Tensor:
        return (x > 0).cummax(1).values


def _largest(x: Tensor) -> Tensor:
    """The number of largest size so far, (b L)."""
    places = x.abs().cummax(1).indices
    return x.gather(1, places)


def _answers(rule: Callable[[Tensor], Tensor]) -> Predictor:
    """Let a normalizer on the numbers, (b L) -> (b L), answer a prompt by its sign."""

    def predict(prompt: Prompt) -> Tensor:
        logits = rule(prompt.tokens[:, ::2, 0])
        return interleave(logits, torch.zeros_like(logits)).unsqueeze(-1)

    return predict


def _mean_where(values: Tensor, chosen: Tensor) -> Tensor:
    """values, chosen (b L) -> (b): the mean over the chosen, NaN where none is."""
    return (values * chosen).sum(1) / chosen.sum(1)
