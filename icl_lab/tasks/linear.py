"""Affine functions of one number, to be inferred from examples."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import ClassVar, Literal

import numpy as np
import torch
from torch import Tensor

from icl_lab.base.errors import BadValue
from icl_lab.base.registry import require
from icl_lab.base.rescale import Rescale
from icl_lab.tasks import estimators, registry
from icl_lab.tasks.base import Axes, Clip, Label, Predictor, Prompt, Summary
from icl_lab.tasks.capabilities import HasLines, Rescalable, Stretchable, TypedPrompts
from icl_lab.tasks.drawing import NORMAL_RANGE, interleave, published_inputs, whole

# |y| of a training prompt exceeds this once in a hundred. law=normal: y given x is N(0, 1 + x^2), x is N(0, 1).
TRAINING_RANGE = 4.19
UNIFORM_RANGE = 3.545  # the same for law=uniform, where |y| is at most 3 + sqrt 3 = 4.73
EDGE = math.sqrt(3)  # a uniform number on [-EDGE, EDGE] has variance 1
NODES = 32  # of a quadrature, on each side of a bend
SMALLEST = 1e-150  # where a length or a width is 0


@registry.add("linear")
@dataclass(frozen=True, kw_only=True)
class Linear(Stretchable, HasLines, TypedPrompts, Rescalable):
    """Regression of y = a x + b, the same a and b for all examples of a prompt.

    Formula: x ~ N(0, sigma_x^2); a, b ~ N(0, sigma_f^2), one draw a prompt; squared error
    Paper: Naim et al. 2025, arXiv 2508.14685, Eq. 2 and Table 1; Garg et al. 2022, arXiv 2208.01066

    ``law=uniform`` draws x, a and b from [-sqrt 3 sigma, sqrt 3 sigma], of the same variance (bounded functions, as in
    arXiv 2502.03503): no label exceeds sqrt 3 sigma_f (sqrt 3 sigma_x + 1). ``spread`` widens training alone: the
    functions of each training prompt are multiplied by a factor drawn log-uniformly from [1, spread].

    With a = 2, b = 1 a prompt reads x_1 y_1 x_2 y_2 ... = 0.5 2 -1 -1 3 7; the model answers after each x.

    Metrics, index counted from 0: ``mse-code`` is the mean over index >= 3, as the published code scores;
    ``mse-eq2`` the sum over index >= 2 divided by all L examples, as the paper's Eq. 2 reads; ``mse-all`` the mean over
    all. ``median-code`` is the median over prompts (each prompt has its own function), ``nmse-code`` divides by
    sigma_f^2 (1 + sigma_x^2), the expected square of y, so that answering 0 scores 1.
    """

    headline: ClassVar[str] = "mse-code"
    trivial: ClassVar[tuple[str, ...]] = ("zero",)
    beside: ClassVar[tuple[str, ...]] = ("mse-code", "median-code")
    answers: ClassVar[slice] = slice(None, None, 2)
    scored_from: ClassVar[int] = 3
    published_length: ClassVar[int | None] = 40  # the published functions were drawn for prompts of 40 points
    published_share: ClassVar[int] = 64
    log_scale: ClassVar[bool] = True
    numeric: ClassVar[bool] = True
    rescales: ClassVar[tuple[Rescale, ...]] = ("labels", "inputs", "both")
    equivariant: ClassVar[str] = "least-squares"
    summary: ClassVar[Summary] = Summary("sigma_f", "range", 2, 10)
    clip: ClassVar[Clip | None] = Clip("sigma_f", 4)
    axis_labels: ClassVar[Mapping[str, Label]] = {
        "sigma_x": Label("σ of inputs", "σ_x"),
        "sigma_f": Label("σ of functions", "σ_f"),
    }
    metric_labels: ClassVar[Mapping[str, str]] = {
        "mse-code": "mean squared error after 3 examples or more",
        "mse-eq2": "squared error as in Eq. 2 (sum over index ≥ 2, over L)",
        "mse-all": "mean squared error (all answers)",
        "median-code": "median squared error after 3 examples or more",
        "nmse-code": "squared error relative to that of answering 0 after 3 examples or more",
        "mse": "mean squared error after the deviant",
    }
    medians: ClassVar[tuple[str, ...]] = ("median-code",)
    deviants: ClassVar[Sequence[float]] = (1, *range(10, 101, 10))
    heat_map: ClassVar[tuple[str, str]] = ("sigma_x", "sigma_f")
    parameters: ClassVar[tuple[str, ...]] = ("a", "b")
    axes: ClassVar[Mapping[str, Axes]] = {
        "full": {"sigma_x": range(1, 11), "sigma_f": range(1, 11), "length": (10, 20, 40, 80)},
        "thin": {"sigma_x": (1, 3, 10), "sigma_f": range(1, 11), "length": (10, 20, 40, 80)},
        "tiny": {"sigma_x": (1, 3, 10), "sigma_f": (1, 2, 10), "length": (10, 20, 40)},
    }
    prefixes: ClassVar[bool] = True
    suffixes: ClassVar[bool] = True

    law: Literal["normal", "uniform"] = "normal"
    spread: float = 1.0

    def __post_init__(self) -> None:
        require(1 <= self.spread <= 1e6, "spread must be from 1 to 1e6", f"{self.spread:g}")

    def sample(self, rng: torch.Generator, prompts: int, length: int, **shift: float) -> Prompt:
        """Draw functions and inputs; sigma_x and sigma_f stretch one set of numbers of variance 1."""
        sigma_x, sigma_f = self.sigmas(shift)
        a, b = sigma_f * self._numbers(rng, 2, prompts, 1)
        return _prompt(sigma_x * self._numbers(rng, prompts, length), a, b)

    def practice(self, rng: torch.Generator, prompts: int, length: int, **shift: float) -> Prompt:
        """Draw training prompts: those of ``sample``, their labels times ``spread``^u with u uniform on [0, 1]."""
        drawn = self.sample(rng, prompts, length, **shift)
        if self.spread == 1:
            return drawn
        factor = self.spread ** torch.rand(prompts, 1, generator=rng)
        x, y = drawn.tokens[:, ::2, 0], drawn.targets[:, ::2] * factor
        return _labelled(x, y)

    def _numbers(self, rng: torch.Generator, *shape: int) -> Tensor:
        """Numbers of mean 0 and variance 1 under ``law``."""
        if self.law == "uniform":
            return EDGE * (2 * torch.rand(shape, generator=rng) - 1)
        return torch.randn(shape, generator=rng)

    def on_line(self, x: Tensor, slope: Tensor | float, intercept: Tensor | float) -> Prompt:
        a, b = (torch.as_tensor(value, dtype=x.dtype, device=x.device) for value in (slope, intercept))
        return _prompt(x, a, b)

    def label_rms(self, **shift: float) -> float:
        """Root mean square of training labels, sigma_f sqrt(1 + sigma_x^2) sqrt((spread^2 - 1) / (2 ln spread))."""
        sigma_x, sigma_f = self.sigmas(shift)
        widened = (self.spread**2 - 1) / (2 * math.log(self.spread)) if self.spread > 1 else 1.0
        return sigma_f * math.sqrt((1 + sigma_x**2) * widened)

    def largest_label(self, **shift: float) -> float:
        """Least upper bound of a training |y|: sqrt 3 sigma_f (sqrt 3 sigma_x + 1) spread, infinite if normal."""
        sigma_x, sigma_f = self.sigmas(shift)
        return EDGE * self.spread * sigma_f * (EDGE * sigma_x + 1) if self.law == "uniform" else math.inf

    def share_beyond(self, size: float, **shift: float) -> float:
        """Return P(|y| > size) of training labels y = a x + b times ``spread``^u, by quadrature over x and u.

        Given x and a factor r, law=normal: 2 Q(size / (r sigma_f sqrt(1 + x^2))). law=uniform: a x and b are uniform up
        to A = sqrt 3 r sigma_f |x| and B = sqrt 3 r sigma_f, so that it is (A + B - size)^2 / (4 A B) where
        |A - B| <= size <= A + B, 1 - size / max(A, B) below that and 0 above.
        """
        sigma_x, sigma_f = self.sigmas(shift)
        nodes = torch.linspace(0, 1, 4001, dtype=torch.float64)
        factors = sigma_f * self.spread ** (nodes[::40] if self.spread > 1 else nodes[:1])
        if self.law == "normal":
            z = 12 * nodes
            beyond = torch.special.erfc(size / (factors[:, None] * torch.sqrt(2 * (1 + (sigma_x * z) ** 2))))
            over_x = torch.trapezoid(beyond * torch.exp(-z.square() / 2) * math.sqrt(2 / math.pi), z)
        else:
            a, b = EDGE * EDGE * sigma_x * factors[:, None] * nodes, EDGE * factors[:, None]
            sloped = (a + b - size).clamp(min=0).square() / (4 * a * b).clamp(min=1e-300)
            flat = 1 - size / torch.maximum(a, b)
            over_x = torch.trapezoid(torch.where(size < (a - b).abs(), flat, sloped), nodes)
        return float(torch.trapezoid(over_x, dx=1 / (len(factors) - 1)) if self.spread > 1 else over_x)

    def published(self, length: int, **shift: float) -> Prompt:
        """100 functions, each on the same 64 prompts: a and b are 200 draws of a generator seeded with sigma_f.

        Raises ``BadValue`` under another law than the published one.
        """
        if self.law != "normal":
            raise BadValue(f"the published functions are normal: law={self.law} has no published evaluation set.")
        sigma_x, sigma_f = self.sigmas(shift)
        functions = sigma_f * torch.randn(200, generator=torch.Generator().manual_seed(whole(sigma_f)))
        a, b = functions.view(2, 100, 1, 1)
        x = sigma_x * published_inputs(self.published_share, length)
        shape = (100, *x.shape)
        return _prompt(*(part.expand(shape).flatten(0, 1) for part in (x, a, b)))

    def loss(self, outputs: Tensor, prompt: Prompt) -> Tensor:
        """The mean squared error over all answers, the first included."""
        return self.errors(outputs, prompt).mean()

    def errors(self, outputs: Tensor, prompt: Prompt) -> Tensor:
        return (outputs[:, self.answers, 0] - prompt.targets[:, self.answers]).square()

    def views(self, errors: Tensor, prompt: Prompt, **shift: float) -> dict[str, Tensor]:
        sigma_x, sigma_f = self.sigmas(shift)
        code = errors[:, 3:].mean(1)
        return {
            "mse-code": code,
            "mse-eq2": errors[:, 2:].sum(1) / errors.shape[1],
            "mse-all": errors.mean(1),
            "median-code": code,
            "nmse-code": code / (sigma_f**2 * (1 + sigma_x**2)),
        }

    def deviate(self, prompt: Prompt, at: Sequence[int], factor: float) -> Prompt:
        x, y = (prompt.tokens[:, role::2, 0].double() for role in (0, 1))
        # The function is determined by two of its points, best by those that are farthest apart.
        ends = torch.stack((x.argmin(1), x.argmax(1)))
        low, high = (torch.stack((x, y)).gather(2, end.expand(2, -1).unsqueeze(2)).squeeze(2) for end in ends)
        a = ((high[1] - low[1]) / (high[0] - low[0])).unsqueeze(1)
        b = low[1].unsqueeze(1) - a * low[0].unsqueeze(1)
        stretch = torch.ones(x.shape[1], dtype=x.dtype)
        stretch[list(at)] = factor
        moved = _prompt((stretch * x).float(), a.float(), b.float())
        # Untouched examples keep their last bit.
        kept = (stretch == 1).repeat_interleave(2)
        return Prompt(
            torch.where(kept.unsqueeze(1), prompt.tokens, moved.tokens),
            torch.where(kept, prompt.targets, moved.targets),
            prompt.scored,
        )

    def disturbed(self, before: Tensor, after: Tensor, prompt: Prompt, at: Sequence[int]) -> dict[str, Tensor]:
        """``mse`` is the mean over the indices from 3 on that come after every deviant.

        Where the last number of the prompt is one of them, it is the error of the answer at it.
        """
        first = min(max(at) + 1, after.shape[1] - 1)
        return {"mse": after[:, max(3, first) :].mean(1)}

    def prompt_of(self, numbers: Sequence[float], **parameters: float) -> Prompt:
        a, b = (torch.tensor([[parameters[name]]]) for name in self.parameters)
        prompt = _prompt(torch.tensor([list(numbers)]), a, b)
        return prompt.first(prompt.tokens.shape[1] - 1)

    def reach(self, **shift: float) -> dict[str, float]:
        """Labels are known where inputs have variance 1 and ``spread`` is 1: their law cannot be stretched."""
        sigma_x, sigma_f = self.sigmas(shift)
        inputs = NORMAL_RANGE if self.law == "normal" else 0.99 * EDGE
        known = sigma_x == 1 and self.spread == 1
        return {"x": inputs * sigma_x} | ({"y": self.training_range * sigma_f} if known else {})

    @property
    def training_range(self) -> float:
        """Size that 99 of 100 labels stay below where every sigma is 1."""
        return TRAINING_RANGE if self.law == "normal" else UNIFORM_RANGE

    def references(self) -> dict[str, Predictor]:
        most = self.training_range
        return {
            "zero": lambda prompt: torch.zeros_like(prompt.tokens),
            "least-squares": _answers(least_squares),
            "bayes": _answers(bayes if self.law == "normal" else partial(bayes_uniform, spread=self.spread)),
            "3-nn": _answers(nearest),
            "clip": _answers(lambda x, y: least_squares(x, y).clamp(-most, most)),
        }


def _prompt(x: Tensor, a: Tensor, b: Tensor) -> Prompt:
    """x (b L), a and b that fit it -> the prompts x_1 y_1 x_2 y_2 ..."""
    return _labelled(x, a * x + b)


def _labelled(x: Tensor, y: Tensor) -> Prompt:
    """Inputs and labels (b L) -> the prompts x_1 y_1 x_2 y_2 ..."""
    after_x = torch.arange(2 * x.shape[1]) % 2 == 0
    return Prompt(interleave(x, y).unsqueeze(-1), y.repeat_interleave(2, dim=1), after_x.expand(len(x), -1))


def least_squares(x: Tensor, y: Tensor) -> Tensor:
    """Least squares with intercept on the examples before each x, (b L) -> (b L); 0 where fewer than two are known."""
    slope, intercept = _line(x, y)
    return torch.where(torch.arange(x.shape[1]) >= 2, slope * x + intercept, 0.0)


def bayes(x: Tensor, y: Tensor) -> Tensor:
    """The posterior mean under the training prior a, b ~ N(0, sigma^2), for every sigma, (b L) -> (b L).

    Without noise it is the line of least norm through the examples: 0 before the first, (1 + x x_1) y_1 / (1 + x_1^2)
    after one, and least squares from then on. Its risk in training is 2, 1, 0, 0, ...
    """
    answer = least_squares(x, y)
    answer[:, 1:2] = ((1 + x[:, 1:2] * x[:, :1]) * y[:, :1] / (1 + x[:, :1].square()))[:, : max(0, x.shape[1] - 1)]
    return answer


def bayes_uniform(x: Tensor, y: Tensor, spread: float = 1.0) -> Tensor:
    """The posterior mean under the training prior a, b uniform on [-sqrt 3 r, sqrt 3 r], (b L) -> (b L).

    0 before the first example, least squares after two. After one, and given r, (a, b) is uniform on the part of the
    line y_1 = a x_1 + b inside the square: a is the middle of [-sqrt 3 r, sqrt 3 r] and of [(y_1 - sqrt 3 r) / x_1,
    (y_1 + sqrt 3 r) / x_1] (in order of size), b = y_1 - a x_1. log r is uniform on [0, log spread], and given y_1 its
    density is proportional to the length of that part over r^2. Where the line misses the largest square, which no
    training prompt does, a is the end that lies nearer.
    """
    answer = least_squares(x, y)
    if x.shape[1] > 1:
        x_1, y_1 = x[:, :1], y[:, :1]
        r, weight = _factors(x_1, y_1, spread)
        ends = [((y_1 + edge * r * x_1.sign()) / x_1).minimum(EDGE * r).maximum(-EDGE * r) for edge in (-EDGE, EDGE)]
        weight = weight * ((ends[1] - ends[0]).abs() / r.square()).clamp(min=SMALLEST)
        middle = (weight / weight.sum(1, keepdim=True) * (ends[0] + ends[1]) / 2).sum(1, keepdim=True)
        answer[:, 1:2] = y_1 + torch.where(x_1 == 0, 0.0, middle) * (x[:, 1:2] - x_1)
    return answer


def _factors(x_1: Tensor, y_1: Tensor, spread: float) -> tuple[Tensor, Tensor]:
    """Factors r (b n) and weights (b n) of a quadrature over log r, from the first square that the line meets.

    Gauss and Legendre on both sides of the r at which the line leaves through another edge, where the integrand bends.
    """
    if spread == 1:
        return torch.ones_like(x_1), torch.ones_like(x_1)
    meets, bends = (y_1.abs() / (EDGE * (1 + sign * x_1.abs()).abs()) for sign in (1, -1))
    low, middle = meets.clamp(1, spread).log(), bends.clamp(1, spread).log()
    nodes, weights = (torch.from_numpy(each) for each in np.polynomial.legendre.leggauss(NODES))
    half = torch.stack((middle - low, math.log(spread) - middle)).clamp(min=SMALLEST) / 2  # (2 b 1)
    logs = torch.stack((low, middle)) + half * (1 + nodes)
    return torch.cat(tuple(logs.exp()), 1), torch.cat(tuple(half * weights), 1)


def nearest(x: Tensor, y: Tensor, neighbours: int = 3) -> Tensor:
    """The mean y of the nearest examples before each x (fewer where fewer are known, 0 before the first)."""
    return estimators.nearest((x.unsqueeze(2) - x.unsqueeze(1)).abs(), y, neighbours)


def _line(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Slope and intercept of the examples before each index, by running means; 0 and the mean where x has no spread."""
    n = torch.arange(x.shape[1], dtype=x.dtype).clamp(min=1)

    def before(values: Tensor) -> Tensor:
        return (values.cumsum(1) - values) / n

    mean_x, mean_y = before(x), before(y)
    spread = before(x * x) - mean_x.square()
    slope = torch.where(spread > 0, (before(x * y) - mean_x * mean_y) / spread, 0.0)
    return slope, mean_y - slope * mean_x


def _answers(rule: Callable[[Tensor, Tensor], Tensor]) -> Predictor:
    """Let a normalizer on the examples, (b L) and (b L) -> (b L), answer a prompt, in double precision on the CPU."""

    def predict(prompt: Prompt) -> Tensor:
        numbers = prompt.tokens[..., 0].double().cpu()
        answers = rule(numbers[:, ::2], numbers[:, 1::2])
        return interleave(answers, torch.zeros_like(answers)).unsqueeze(-1).to(prompt.tokens)

    return predict
