"""Paired statistics over training seeds: intervals and tests, and one number for a row of cells.

Everywhere a is the baseline, b the normalizer compared with it, and both are errors: an effect below 0 speaks for b.
What is missing or impossible is an error or a NaN with its reason in ``notes``, never a value left out in silence.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Literal

import numpy as np
import scipy
from numpy.typing import ArrayLike
from scipy.special import ndtri, stdtr, stdtrit

from icl_lab.base.registry import require
from icl_lab.comparison.given import Array, finite, listed
from icl_lab.comparison.widening import half_width, p_value

Scale = Literal["log-ratio", "difference"]

MARGIN: Mapping[Scale, float] = {"log-ratio": math.log(1.25), "difference": 0.05}  # effects within are of no account
RESAMPLES = 2000  # of the prompts
HALF_WIDTH = float(ndtri(0.975))  # of the interval of an ``Evaluation``, in standard errors
CLEAR = 0.05  # a p below this, corrected over its family, is called a difference
FLIP_SEEDS = 8  # the sign-flip test is given from here on: its smallest p is 2 / 2^seeds
EXACT_FLIPS = 20  # all 2^seeds sign patterns up to here, random ones beyond
FLIP_DRAWS = 100_000

ONE_SEED = "one seed: how much training differs from seed to seed is unknown, and no interval or p here includes it"
FEW_SEEDS = f"no sign-flip test: with fewer than {FLIP_SEEDS} seeds it cannot reach a small p"
SAME_STEP = "all seeds differ by the same amount: their spread says nothing, so no interval over seeds and no t test"
# Measured over 200,000 simulated studies at 3, 5 and 10 seeds; the tests hold ``paired`` to these numbers.
COVERAGE = (
    "The 95 % interval over seeds holds the true effect in 95 to 97 % of simulated studies where the log ratio has "
    "heavy but even tails (Student's t with 3 or 5 degrees of freedom, Laplace), and in 96 to 98 % where one run in "
    "ten fails under both normalizers. Where one run in ten fails under one only, in 93, 91 and 86 % at 3, 5 "
    "and 10 seeds: look at the single runs."
)


@dataclass(frozen=True, kw_only=True)
class Effect:
    """b against a over the training seeds that both ran; what cannot be computed is NaN, its reason in ``notes``.

    ``low`` and ``high`` are the printed interval, over the seeds and, once ``widened``, the prompts too; ``p`` is its p
    value, ``p_t`` that of the seeds alone.
    """

    scale: Scale
    seeds: int
    effect: float  # mean over seeds of log(b / a), or of b - a
    low: float
    high: float
    middle: float  # interquartile mean of the same differences
    wins: float  # share of the seeds in which b errs less, a tie counting half: the probability of improvement
    p_t: float  # paired t test
    p_flip: float  # exact sign-flip test
    notes: tuple[str, ...] = ()
    seeds_error: float = math.nan  # standard error over the seeds; NaN where unknown
    prompts_error: tuple[float, float] = (math.nan, math.nan)  # that of the prompts below and above; NaN: unknown
    freedom: float = math.nan  # degrees of freedom of ``seeds_error``; NaN: seeds - 1, at least 1

    @property
    def degrees(self) -> float:
        """Degrees of freedom of the standard error over seeds."""
        return max(self.seeds - 1, 1) if math.isnan(self.freedom) else self.freedom

    @property
    def clear(self) -> bool:
        """True if there is an interval and 0 is outside it: of this comparison by itself, not corrected for others."""
        return self.low > 0 or self.high < 0

    def interval(self, confidence: float = 0.95) -> tuple[float, float]:
        """The interval at another confidence: at 0.95 it is ``low`` and ``high``, but for the rounding of floats.

        Formula: effect -+ sqrt((t(v) s)^2 + (z e)^2), v the degrees of freedom (k - 1 of k pairs), s and e the standard
        errors of seeds and prompts (see ``widening``); below and above each with its own e.
        """
        _confident(confidence)
        seeds, *prompts = np.nan_to_num([self.seeds_error, *self.prompts_error])
        if math.isnan(self.seeds_error) and math.isnan(self.prompts_error[0]):
            return math.nan, math.nan
        below, above = half_width(1 - confidence, seeds, self.degrees, prompts)
        return self.effect - float(below), self.effect + float(above)

    @cached_property
    def p(self) -> float:
        """The p value of the interval: at confidence 1 - p it would just touch 0; NaN without an interval.

        Below 0.05 exactly where the 95 % interval excludes 0, up to the rounding of floats (twelve digits of p). Of
        seeds alone it is ``p_t``; with one seed, or seeds that differ by the same amount, it is that of the prompts.
        """
        if math.isnan(self.seeds_error) and math.isnan(self.prompts_error[0]):
            return math.nan
        seeds, *prompts = np.nan_to_num([self.seeds_error, *self.prompts_error])
        towards = prompts[0] if self.effect > 0 else prompts[1]
        return float(p_value(self.effect, seeds, self.degrees, towards))

    @property
    def ratio(self) -> tuple[float, float, float]:
        """The effect and its interval as ratios b / a; only a log ratio has them."""
        require(self.scale == "log-ratio", "a ratio needs scale log-ratio", self.scale)
        with np.errstate(over="ignore"):  # two wild seeds can have an interval that no float holds: infinity says it
            effect, low, high = np.exp([self.effect, self.low, self.high])
        return float(effect), float(low), float(high)

    @property
    def shown(self) -> tuple[float, float, float]:
        """The effect and its interval as a page shows them: ratios of what spans decades, else differences."""
        return self.ratio if self.scale == "log-ratio" else (self.effect, self.low, self.high)

    def clipped(self, span: float) -> "Effect":
        """End the interval at -span and span, beyond which no difference lies: 1 of two rates.

        Tests of direction, and of a size within a margin below the span, are unchanged.
        """
        return replace(self, low=max(self.low, -span), high=min(self.high, span)) if self.low < self.high else self

    def widened(self, noise: "Evaluation") -> "Effect":
        """Add the evaluation noise: half widths in quadrature, each side by itself (Zou & Donner 2008).

        For seeds that were all tested on the same prompts, whose noise the spread over seeds cannot show: in simulated
        studies with 64 prompts and 3 to 10 seeds the seeds alone held the truth in 61 to 89 %, widened in 93 to 97 %.
        ``p`` follows; ``p_t`` and ``p_flip`` stay those of the seeds on these prompts.
        """
        require(noise.scale == self.scale, f"evaluation noise must be on the scale {self.scale}", noise.scale)
        below, above = noise.effect - noise.low, noise.high - noise.effect
        seeds = (0.0, 0.0) if math.isnan(self.low) else (self.effect - self.low, self.high - self.effect)
        return replace(
            self,
            low=self.effect - math.hypot(seeds[0], below),
            high=self.effect + math.hypot(seeds[1], above),
            prompts_error=(abs(below) / HALF_WIDTH, abs(above) / HALF_WIDTH),
        )


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """The effect on these trained models, and its 95 % interval over the prompts that were drawn."""

    scale: Scale
    effect: float
    low: float
    high: float


def margin_words(scale: Scale) -> str:
    """The margin of a scale in words: a factor 1.25, or 0.05 in error."""
    return f"a factor {math.exp(MARGIN[scale]):g}" if scale == "log-ratio" else f"{MARGIN[scale]:g} in error"


def within(effect: Effect, margin: float) -> bool:
    """True if the effect is shown to be smaller than a margin, on its own scale: two one-sided tests, each at 5 %.

    Formula: the 90 % interval lies inside -margin .. margin
    Source: Schuirmann 1987. False without an interval. ``MARGIN`` has the margins that are used here.
    """
    require(margin > 0, "a margin must be above 0", margin)
    low, high = effect.interval(0.9)
    return -margin < low and high < margin


def paired(a: ArrayLike, b: ArrayLike, scale: Scale = "log-ratio", confidence: float = 0.95) -> Effect:
    """Compare b with a, one number per seed, paired by position.

    Formula: mean d +- t(k - 1) sd(d) / sqrt(k), d = log b - log a or b - a over k seeds

    Identical runs give effect 0, interval [0, 0] and p = 1. One seed, or differences that are all the same but not 0,
    give no interval and no t test (NaN). How well the interval keeps its promise: ``COVERAGE``.
    """
    _confident(confidence)
    x, y = _pair(a, b, scale)
    require(x.ndim == 1, "seeds are one row of numbers", f"shape {x.shape}")
    d, seeds = y - x, len(x)
    effect, spread, p_t = float(d.mean()), math.nan, math.nan
    notes = [ONE_SEED] if seeds == 1 else []
    if seeds > 1:
        spread = float(d.std(ddof=1) / math.sqrt(seeds))
        # 0.3 - 0.2 and 0.4 - 0.3 are the same difference, up to what their subtraction rounds.
        size = float(max(np.abs(x).max(), np.abs(y).max())) + (scale == "log-ratio")
        rounding = 8 * np.finfo(float).eps * size
        if spread > rounding:
            p_t = float(2 * stdtr(seeds - 1, -abs(effect) / spread))
        elif np.abs(d).max() <= rounding:
            effect, spread, p_t = 0.0, 0.0, 1.0
        else:
            spread, notes = math.nan, [SAME_STEP]
    half = float(stdtrit(max(seeds - 1, 1), (1 + confidence) / 2)) * spread
    if seeds < FLIP_SEEDS:
        notes.append(FEW_SEEDS)
    return Effect(
        scale=scale,
        seeds=seeds,
        effect=effect,
        low=effect - half,
        high=effect + half,
        middle=interquartile_mean(d),
        wins=float(np.mean((d < 0) + 0.5 * (d == 0))),
        p_t=p_t,
        p_flip=sign_flip(d) if seeds >= FLIP_SEEDS else math.nan,
        notes=tuple(notes),
        seeds_error=spread,
    )


def unpaired(a: ArrayLike, b: ArrayLike, scale: Scale = "log-ratio") -> Effect:
    """Compare b with a, one number per seed, as two independent groups of seeds.

    Formula: mean(y) - mean(x) -+ t(v) s, s^2 = sx^2 / m + sy^2 / n, v = s^4 / (sx^4 / (m^2 (m - 1)) + sy^4 / (n^2 (n -
    1))), x and y the logarithms of a and b, or a and b
    Source: Welch 1947, Biometrika 34; Satterthwaite 1946. Where neither side spreads it is as ``paired`` says of the
    seeds that both have.
    """
    x, y = _sides(a, b, scale)
    both = min(len(x), len(y))
    found = paired(np.asarray(a)[:both], np.asarray(b)[:both], scale)
    parts = [float(side.var(ddof=1)) / len(side) if len(side) > 1 else 0.0 for side in (x, y)]
    total = sum(parts)
    if not total > 0:
        return found
    freedom = total**2 / sum(part**2 / (len(side) - 1) for part, side in zip(parts, (x, y), strict=True))
    made = replace(found, effect=float(y.mean() - x.mean()), seeds_error=math.sqrt(total), freedom=freedom)
    low, high = made.interval()
    return replace(made, low=low, high=high)


def resampled(errors: ArrayLike, *, seed: int, resamples: int = RESAMPLES) -> Array:
    """Means over the prompts and over resamples of them, (.. prompts) -> (1 + resamples ..), the plain means first.

    All rows share each resample, so that quantities computed from several of them (a difference, an area) are paired.
    Where several prompts share a function, a prompt here is a function.
    """
    x = np.asarray(errors, dtype=float)
    prompts = x.shape[-1]
    require(prompts > 1, "a bootstrap needs at least 2 prompts", prompts)
    means = draws(seed, prompts, resamples) @ x.reshape(-1, prompts).T / prompts
    return np.concatenate([x.mean(axis=-1)[None], means.reshape(resamples, *x.shape[:-1])])


@lru_cache(maxsize=2)  # a page and a ledger ask for the same draws hundreds of times
def draws(seed: int, prompts: int, resamples: int = RESAMPLES) -> Array:
    """Counts of each prompt in each bootstrap resample, (resamples prompts)."""
    counts = np.random.default_rng(seed).multinomial(prompts, np.full(prompts, 1 / prompts), size=resamples)
    drawn = counts.astype(float)
    drawn.flags.writeable = False
    return drawn


def evaluation(effects: Array, scale: Scale) -> Evaluation:
    """The effect (first) and its percentile interval over the resamples (the rest).

    The plain interval (not BCa) is somewhat narrow below some 50 prompts.
    """
    low, high = np.quantile(effects[1:], [0.025, 0.975])
    return Evaluation(scale=scale, effect=float(effects[0]), low=float(low), high=float(high))


def sign_flip(differences: ArrayLike, seed: int = 0) -> float:
    """Two-sided p of no difference, were each difference as likely with the other sign.

    Formula: share of the 2^k sign patterns s with |sum s d| >= |sum d|; beyond k = 20, (1 + hits) / (1 + draws)
    """
    d = finite("differences", differences)
    slack = 1e-12 * float(np.abs(d).sum())  # a pattern that equals the observed one counts, however it was added up
    bar = abs(float(d.sum())) - slack
    if len(d) > EXACT_FLIPS:
        signs = np.random.default_rng(seed).integers(2, size=(FLIP_DRAWS, len(d)), dtype=np.int8) * 2 - 1
        return float((1 + np.sum(np.abs(signs @ d) >= bar)) / (1 + FLIP_DRAWS))
    sums = np.zeros(1)
    for value in d:
        sums = np.concatenate((sums + value, sums - value))
    return float(np.mean(np.abs(sums) >= bar))


def holm(p_values: ArrayLike) -> Array:
    """Adjust p values for being many, so that one in twenty *families* errs, not one in twenty cells.

    Formula: with p_(1) <= ... <= p_(m), p_(i) becomes the maximum over j <= i of min(1, (m - j + 1) p_(j))
    Source: Holm 1979. NaN stays NaN and does not count in m.
    """
    p = np.array(p_values, dtype=float)
    known = p[~np.isnan(p)]
    require(bool(np.all((known >= 0) & (known <= 1))), "p values are between 0 and 1", known)
    order = np.argsort(known, kind="stable")
    adjusted = np.empty_like(known)
    adjusted[order] = np.minimum(1, np.maximum.accumulate(known[order] * np.arange(len(known), 0, -1)))
    p[~np.isnan(p)] = adjusted
    return p


def wilson(errors: float, count: int, confidence: float = 0.95) -> tuple[float, float]:
    """The interval of a rate: 0 errors in 64 say at most 5.7 %, in 6,400 at most 0.06 %.

    Formula: (p + z^2/2n +- z sqrt(p (1 - p)/n + z^2/4n^2)) / (1 + z^2/n), n = count
    Source: Wilson 1927. The count is of independent things: prompts, not the positions of one prompt.
    """
    _confident(confidence)
    require(count >= 1 and 0 <= errors <= count, f"errors must be between 0 and the count {count}", errors)
    z, p = float(ndtri((1 + confidence) / 2)), errors / count
    half = z * math.sqrt(p * (1 - p) / count + z * z / (4 * count * count))
    scale, centre = 1 + z * z / count, p + z * z / (2 * count)
    # At the ends the two terms are equal on paper; rounding would leave 1e-18 of an impossible rate.
    return (0.0 if errors == 0 else (centre - half) / scale), (1.0 if errors == count else (centre + half) / scale)


def interquartile_mean(values: ArrayLike) -> float:
    """The mean without the smallest and the largest quarter, each rounded down: below 4 values, the mean.

    Source: Agarwal et al. 2021, arXiv 2108.13264
    """
    return float(scipy.stats.trim_mean(finite("values", values), 0.25))


def mean_height(where: ArrayLike, values: ArrayLike, low: float, high: float) -> float:
    """The mean height of a row of values over an axis, from ``low`` to ``high``, both of which must be there.

    Formula: integral of values d axis / (high - low), by trapezoids. Of logarithms compared by difference it is a mean
    log ratio.
    """
    x, y = np.asarray(where, dtype=float), np.asarray(values, dtype=float)
    inside = (x >= low) & (x <= high)
    ends = f"the area from {low:g} to {high:g} needs cells at both ends"
    require({low, high} <= set(x), ends, listed(x[inside]) or "none there")
    x, y = _cells("places", x[inside], y[inside])
    height = finite("values", y)
    return float((np.diff(x) * (height[1:] + height[:-1]) / 2).sum() / (high - low))


def mean_beyond(lengths: ArrayLike, errors: ArrayLike, training_length: float) -> float:
    """The mean error over the tested lengths (or values of another axis) beyond that of training."""
    x, y = _cells("lengths", lengths, errors)
    beyond = x > training_length
    require(
        bool(beyond.any()), f"no tested length is beyond the training length {training_length}", f"only {listed(x)}"
    )
    return float(finite("errors", y[beyond]).mean())


def _sides(a: ArrayLike, b: ArrayLike, scale: Scale) -> tuple[Array, Array]:
    require(scale in ("log-ratio", "difference"), "scale must be log-ratio or difference", scale)
    x, y = (finite(what, values, positive=scale == "log-ratio") for what, values in (("a", a), ("b", b)))
    return (np.log(x), np.log(y)) if scale == "log-ratio" else (x, y)


def _pair(a: ArrayLike, b: ArrayLike, scale: Scale) -> tuple[Array, Array]:
    x, y = _sides(a, b, scale)
    require(x.shape == y.shape, "a pair needs as many numbers on both sides", f"shapes {x.shape} and {y.shape}")
    return x, y


def _cells(what: str, axis: ArrayLike, values: ArrayLike) -> tuple[Array, Array]:
    x, y = finite(what, axis), np.asarray(values, dtype=float)
    require(x.ndim == 1 and x.shape == y.shape, f"{what} and values must be two equal rows", f"{x.shape} and {y.shape}")
    require(len(np.unique(x)) == len(x), f"each of {what} must stand once", listed(x))
    order = np.argsort(x)
    return x[order], y[order]


def _confident(confidence: float) -> None:
    require(0 < confidence < 1, "confidence must be between 0 and 1", confidence)
