"""Answers far from the examples of f(x) = a x + b: lines, curves, and the detector of their onset and plateau.

Naim et al. 2025, arXiv 2508.14685, Figures 1 and 9, show boundary values ("values that the model fails to exceed during
inference") without a definition. The detector is one, with intervals.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor

from icl_lab import tasks
from icl_lab.analyses.findings import Row
from icl_lab.base.errors import BadValue
from icl_lab.base.registry import require
from icl_lab.base.rng import stream
from icl_lab.comparison.given import Array
from icl_lab.runs.measure import TEST_SEED, Subject, predict_at
from icl_lab.runs.spec import RunSpec
from icl_lab.tasks.capabilities import HasLines

EXAMPLES = 39  # of a context; the query is the next
SIDE = 100  # points on either side of 0
BEYOND, FARTHEST = 6, 1000.0  # points from the end of the range on, in geometric steps

CLASSES = ("none in range", "plateau", "collapse", "sublinear", "unclear")
NONE, PLATEAU, COLLAPSE, SUBLINEAR, UNCLEAR = range(len(CLASSES))

SMOOTH = 5  # points of the moving mean
RUN = 5  # departing points in a row that make an onset
SHARE, ERRORS, SLACK = 0.1, 3.0, 0.25  # a departure is more than these: of |t|, in standard errors, and at least
END = 0.95  # an onset beyond this share of the range is none
SUNK = 0.8  # a tail below this share of the peak has collapsed
FLAT = 0.05  # of the peak: a tail that moves less has stopped
FEWEST = 16  # contexts
RESAMPLES = 400


@dataclass(frozen=True, order=True)
class Line:
    """f(x) = slope x + intercept, with examples whose inputs are N(0, scale^2); training has scale 1."""

    slope: float
    intercept: float = 0.0
    scale: float = 1.0

    def __str__(self) -> str:
        slope = {1.0: "", -1.0: "-"}.get(self.slope, f"{self.slope:g}")
        return f"{slope}x{f' {self.intercept:+g}'.replace('+', '+ ').replace('-', '- ') if self.intercept else ''}"


def lines(slopes: Sequence[float], intercepts: Sequence[float], scales: Sequence[float]) -> list[Line]:
    """Return every combination once.

    Raises ``BadValue`` on a slope of 0, a scale <= 0, a number that is not finite, and an empty list.
    """
    for name, values in (("slopes", slopes), ("intercepts", intercepts), ("scales", scales)):
        require(len(values) > 0, f"{name} must be at least one number", "none")
        require(bool(np.isfinite(values).all()), f"{name} must be finite", ", ".join(f"{v:g}" for v in values))
    require(all(slopes), "a slope must not be 0: the true value would not move", "0")
    require(min(scales) > 0, "scales of the inputs must be > 0", f"{min(scales):g}")
    return [Line(*each) for each in dict.fromkeys(product(slopes, intercepts, scales))]


def spread(spec: RunSpec) -> float:
    """Return the root mean square of y in the training of a run."""
    return tasks.require(tasks.build(spec.task), HasLines).label_rms(**spec.train.shift)


def truths(reach: float) -> Array:
    """The true values to ask for: 100 a side up to ``reach`` and 0 between them, then geometric steps to 1,000."""
    near = np.linspace(-reach, reach, 2 * SIDE + 1)
    far = np.geomspace(reach, FARTHEST, BEYOND + 1)[1:] if reach < FARTHEST else np.empty(0)
    return np.concatenate([-far[::-1], near, far])


def contexts(count: int, examples: int) -> Tensor:
    """Standard normal inputs, (count examples), the same for all models; more contexts keep the first ones."""
    drawn = [torch.randn(examples, generator=stream(TEST_SEED, "boundary", number)) for number in range(count)]
    return torch.stack(drawn)


def largest(line: Line, reach: float) -> float:
    """Return the size that no number of a prompt exceeds: inputs up to 6 standard deviations, queries and labels."""
    far, input_ = max(reach, FARTHEST), 6 * line.scale
    return max(
        far, (far + abs(line.intercept)) / abs(line.slope), input_, abs(line.slope) * input_ + abs(line.intercept)
    )


def extrapolate(
    subject: Subject, task: HasLines, line: Line, truth: Array, count: int, examples: int = EXAMPLES
) -> Array:
    """Answers to the query x = (t - b) / a after ``examples`` examples of f, for each t of ``truth`` (n): (count n)."""
    known = line.scale * contexts(count, examples)
    query = torch.from_numpy((truth - line.intercept) / line.slope).float()
    n = len(query)
    x = torch.cat((known[:, None].expand(-1, n, -1), query[None, :, None].expand(count, -1, 1)), 2).flatten(0, 1)
    prompt = task.on_line(x, line.slope, line.intercept)
    return predict_at(subject, prompt, task.asking(examples + 1), n)[:, 0].double().reshape(count, n).numpy()


def curve(where: Row, truth: Array, answers: Array) -> list[Row]:
    """Answers (contexts n) to the true values (n) -> their medians, with the standard error of a normal median."""
    middle, error = np.median(answers, axis=0), math.sqrt(math.pi / 2 / len(answers)) * answers.std(axis=0, ddof=1)
    return [
        {
            **where,
            "target": float(f"{t:.6g}"),
            "metric": "answer",
            "value": float(f"{p:.5g}"),
            "stderr": float(f"{e:.2g}"),
        }
        for t, p, e in zip(truth, middle, error, strict=True)
    ]


def detected(where: Row, truth: Array, answers: Array, reach: float) -> list[Row]:
    """Answers (contexts n) to the true values (n) -> detected numbers of either side up to ``reach``, a row per metric.

    The metrics are those of ``detect``, and ``far``, the median answer at the farthest query.
    """
    rows = list[Row]()
    for side, (t, curves) in sides(truth, answers).items():
        near = t <= reach * (1 + 1e-9)
        numbers = detect(t[near], curves[:, near]) | {"far": float(np.median(curves[:, -1]))}
        rows += [
            {**where, "side": side, "metric": metric, "value": float(f"{value:.6g}"), "stderr": None}
            for metric, value in numbers.items()
        ]
    return rows


def detect(t: ArrayLike, curves: ArrayLike, seed: int = 0, resamples: int = RESAMPLES) -> dict[str, float]:
    """Classify one side of a curve. t: true values (n), ascending from above 0; curves: answers (contexts n).

    p(t) is the median over contexts, then a moving mean of five points. Its standard error is its standard deviation
    over resampled contexts. Onset: the last t before the first five points in a row with
    |p - t| > max(0.1 t, 3 standard errors, 0.25). Peak: the largest p. Tail and previous: the median of p over the last
    quarter of the range, and over the one before. The class is the first of

    * ``none in range``: the onset is at 95 % of the range or beyond, so that B is only known to be more than the range;
      ``unclear`` instead where the noise would hide a departure of 10 % (median over the last half of the range);
    * ``collapse``: the tail is below 0.8 of the peak, or still sinks, by more than 5 % of the peak from the quarter
      before; B is the peak;
    * ``plateau``: tail and previous differ by at most 5 % of the peak, or nothing is beyond 0.25; B is the tail;
    * ``sublinear``: p still rises at the end of the range, and there is no B. The exponent says how: 0.5 as a root, 1 a
      line of another slope.

    Measured on 30 simulated curves a shape (B = 10, range 40, 100 points; 16 contexts, noise of 0.5 a point and 0.4 a
    context): the most frequent class, the medians of B and of the onset with their standard deviations, and how often
    the interval held 10. The tests hold it to these numbers. ::

        shape          class                 B            onset        held
        clip           plateau 30/30         10.0 ± 0.1   10.8 ± 0.2   30/30
        tanh           plateau 30/30         10.0 ± 0.1   5.6 ± 0.7    29/30
        smooth clip    plateau 30/30         10.0 ± 0.1   8.2 ± 0.5    29/30
        collapse       collapse 30/30        10.0 ± 0.1   10.0 ± 0.3   30/30
        sharp collapse collapse 30/30        9.5 ± 0.1    10.4 ± 0.1   1/30
        log            sublinear 30/30       none         2.8 ± 0.6
        square root    sublinear 30/30       none         2.8 ± 0.3
        identity       none in range 30/30   none         40.0 ± 0.0

    So a peak as sharp as a corner is found half too low: the moving mean shaves it. The largest value of the median
    curve, in place of the tail of a clip, would be 0.4 too high. The intervals are those of the contexts alone. What
    has not been flat for long at the end of the range (a clip with B above 0.65 of it, a tanh above 0.37) cannot be
    distinguished from a rise, and is called sublinear: ask farther out.

    Returns the ``class`` as its place in ``CLASSES``, and the ``agreement``, the share of resampled curves of the same
    class; with percentile intervals over resampled contexts (``-low`` and ``-high``) the ``onset`` (the end of the
    range where the class is none), the ``bound`` B, and the ``clip``, the B for which min(t, B) is nearest to the
    curve; ``tail``, ``previous``, ``peak``, the ``exponent`` of p ~ t^e over the last half of the range, and the
    ``reach``, its end. Sizes all: on the side of t < 0 t and p have their signs turned. NaN where there is none.

    Raises ``BadValue`` on fewer than 16 contexts, fewer than 40 points, and t that do not ascend from above 0.
    """
    x, answers = np.asarray(t, float), np.asarray(curves, float)
    require(answers.ndim == 2 and answers.shape[1:] == x.shape, f"curves are (contexts {x.size})", answers.shape)
    require(len(answers) >= FEWEST, f"a curve needs at least {FEWEST} contexts", len(answers))
    require(x.size >= 40, "a curve needs at least 40 points a side", x.size)
    require(bool(x[0] > 0 and (np.diff(x) > 0).all()), "t must ascend from above 0", f"{x[0]:g}, {x[1]:g} ...")
    if not np.isfinite(answers).all():
        raise BadValue(f"answers must be finite; {int((~np.isfinite(answers)).sum())} are not.")
    drawn = np.random.default_rng(seed).integers(len(answers), size=(resamples, len(answers)))
    p = smooth(np.stack([np.median(answers, axis=0), *(np.median(answers[chosen], axis=0) for chosen in drawn)]))
    error = p[1:].std(axis=0)
    start = onsets(x, p, error)
    late, before = x > 0.75 * x[-1], (x > 0.5 * x[-1]) & (x <= 0.75 * x[-1])
    tail, previous, peak = np.median(p[:, late], axis=1), np.median(p[:, before], axis=1), p.max(axis=1)
    kinds = np.select(
        [
            start >= END * x[-1],
            (peak > SLACK) & ((tail < SUNK * peak) | (previous - tail > FLAT * peak)),
            (np.abs(tail - previous) <= FLAT * peak) | (peak <= SLACK),
        ],
        [NONE, COLLAPSE, PLATEAU],
        SUBLINEAR,
    )
    half = x >= 0.5 * x[-1]
    if np.median(ERRORS * error[half] / x[half]) > SHARE:
        kinds = np.where(kinds == NONE, UNCLEAR, kinds)
    bounds = np.select([kinds == PLATEAU, kinds == COLLAPSE], [tail, peak], np.nan)
    alike = kinds == kinds[0]
    rising = bool((p[0, half] > 0).all())
    return {
        "class": float(kinds[0]),
        "agreement": float(alike[1:].mean()),
        **_interval("onset", start),
        **_interval("bound", np.where(alike, bounds, np.nan)),
        **_interval("clip", clip_bounds(x, p)),
        "tail": float(tail[0]),
        "previous": float(previous[0]),
        "peak": float(peak[0]),
        "exponent": float(np.polyfit(np.log(x[half]), np.log(p[0, half]), 1)[0]) if rising else math.nan,
        "reach": float(x[-1]),
    }


def sides(t: ArrayLike, curves: ArrayLike) -> dict[int, tuple[Array, Array]]:
    """Split curves over both signs of t: -1 and 1 -> (t, curves) as ``detect`` takes them, signs turned for -1."""
    x, answers = np.asarray(t, float), np.asarray(curves, float)
    return {-1: (-x[x < 0][::-1], -answers[:, x < 0][:, ::-1]), 1: (x[x > 0], answers[:, x > 0])}


def smooth(curves: Array) -> Array:
    """Curves (r n) -> their moving mean over ``SMOOTH`` points; fewer at the ends, as many on each side."""
    n = curves.shape[1]
    sums = np.concatenate([np.zeros((len(curves), 1)), np.cumsum(curves, axis=1)], axis=1)
    where = np.arange(n)
    wing = np.minimum(SMOOTH // 2, np.minimum(where, n - 1 - where))
    return np.asarray((sums[:, where + wing + 1] - sums[:, where - wing]) / (2 * wing + 1))


def onsets(t: Array, curves: Array, error: Array) -> Array:
    """The last t before the first ``RUN`` departing points in a row of each curve (r n) -> (r)."""
    allowed = np.maximum(np.maximum(SHARE * t, ERRORS * error), SLACK)
    departs = np.abs(curves - t) > allowed
    runs = np.lib.stride_tricks.sliding_window_view(departs, RUN, axis=1).all(axis=2)
    first = runs.argmax(axis=1)
    return np.where(runs.max(axis=1), np.where(first > 0, t[first - 1], 0.0), t[-1])


def clip_bounds(t: Array, curves: Array) -> Array:
    """The B from 0 to the end of the range that minimises sum (p - min(t, B))^2 of each curve (r n) -> (r)."""
    edges = np.concatenate([[0.0], t])
    n, zero = len(t), np.zeros((len(curves), 1))

    def beyond(values: Array) -> Array:  # sums over the points from each place on
        return np.concatenate([np.cumsum(values[:, ::-1], axis=1)[:, ::-1], zero], axis=1)

    left = np.concatenate([zero, np.cumsum((curves - t) ** 2, axis=1)], axis=1)[:, :n]
    count, first, second = np.arange(n, 0, -1), beyond(curves)[:, :n], beyond(curves**2)[:, :n]
    # Between two neighbouring t the sum is a parabola in B, so its least is known.
    best = np.clip(first / count, edges[:-1], edges[1:])
    cost = left + second - 2 * best * first + count * best**2
    return np.take_along_axis(best, cost.argmin(axis=1)[:, None], axis=1)[:, 0]


def _interval(name: str, values: Array) -> dict[str, float]:
    """The plain value (first), and the middle 95 % of the resampled ones that exist."""
    known = values[1:][~np.isnan(values[1:])]
    there = known.size and not np.isnan(values[0])
    numbers = (values[0], *np.quantile(known, [0.025, 0.975])) if there else (math.nan,) * 3
    return {f"{name}{end}": float(number) for end, number in zip(("", "-low", "-high"), numbers, strict=True)}
