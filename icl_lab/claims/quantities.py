"""The numbers that claims are about: read from the grids of finished runs, or from what an analysis found."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import islice
from pathlib import Path
from statistics import fmean

import msgspec
import numpy as np

from icl_lab import tasks
from icl_lab.analyses.frame import AnyAnalysis
from icl_lab.base.errors import Undefined
from icl_lab.base.grid import mean_error, model_name
from icl_lab.claims import experiment as experiments
from icl_lab.claims import printed
from icl_lab.claims.finished import Finished
from icl_lab.claims.folders import Answers
from icl_lab.claims.schema import PRINTED, Claim, Experiment, Quantity
from icl_lab.comparison.given import Array
from icl_lab.comparison.statistics import HALF_WIDTH, Evaluation, Scale, evaluation, resampled
from icl_lab.runs import summary
from icl_lab.runs.spec import RunSpec
from icl_lab.runs.store import Store
from icl_lab.tasks.base import Task

Cells = list[dict[str, float]]
Claimed = Mapping[
    tuple[str, str], Cells
]  # hash of a specification, the normalizer put in for its test -> labels of cells
Read = Callable[[Quantity, str, int], float]  # a quantity, a metric (or ""), a seed -> the value, or its mean logarithm
PART = 4  # of the prompts of an analysis, one in so many is counted at the least


def _unread(side: Quantity, metric: str, seed: int) -> float:
    raise KeyError("no quantity can be read")


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """Evidence on a claim: the training seeds of both sides, one number per seed and side, and their errors.

    ``noise`` returns how far left - right, over the first seeds, depends on the test prompts; None where the errors of
    single prompts are not kept. ``bound`` returns the most that it can be; None where that is unknown. ``unlearned``
    returns why nothing may be judged from the first seeds.
    """

    seeds: Sequence[int]
    scale: Scale
    read: Read = _unread
    left: Sequence[float] = ()
    right: Sequence[float] = ()
    prompted: bool = True  # models were asked test prompts, whose variance has to be in the interval
    noise: Callable[[int], Evaluation | None] = lambda seeds: None
    bound: Callable[[int], Evaluation | None] = lambda seeds: None
    resolution: float = 0.0  # of a rate: one prompt in those of a cell
    span: float = math.inf  # beyond which no difference of the two sides lies: 1 of rates and shares
    undefined: Mapping[int, str] = field(default_factory=dict)  # seeds in which a side has no value, and why
    left_out: Sequence[int] = ()  # seeds whose results suggested the claim
    unlearned: Callable[[int], str] = lambda seeds: ""
    blocks: Sequence[int] = ()  # of each seed, where known
    correlation: float = 0.0  # of seeds within a block
    models: str = ""  # one model or two, whose sides are paired or not (``sequential.PAIRED``)
    later: bool = False  # all seeds were trained since that was chosen

    def values(self, claim: Claim, seeds: Sequence[int]) -> tuple[list[float], list[float]]:
        """Return both sides of a claim, one number per seed; raises ``KeyError`` where a number is not stored."""
        left, right = ([self.read(side, claim.metric, seed) for seed in seeds] for side in (claim.left, claim.right))
        if self.scale == "difference":
            return left, right
        return [math.exp(value) for value in left], [math.exp(value) for value in right]


def scale(experiment: Experiment, claim: Claim) -> Scale:
    """Ratios where the quantities of a claim span decades, differences where they do not."""
    task, analysis = tasks.build(experiment.task), experiment.question()
    if analysis is None:
        return "log-ratio" if task.log_scale else "difference"
    return analysis.scale_of(task, claim.metric)


def source(finished: Finished, claim: Claim, found: Answers | None, left_out: Sequence[int] = ()) -> Evidence:
    """Return where both sides of a claim are read: in grids, or in what its analysis ``found``.

    The seeds ``left_out`` suggested it: they do not judge it.
    """
    analysis = finished.experiment.question()
    if analysis is None:
        return from_grids(finished, claim, left_out)
    # Of several sets of prompts the smallest counts; 0 where models are asked none.
    prompts = min((count for count, _ in analysis.asks(finished.spec(claim.left.of))), default=0)
    compared = scale(finished.experiment, claim)
    read = from_analysis(analysis, found, claim, compared, prompts, left_out)
    return replace(read, span=analysis.span(finished.task, claim.metric)) if compared == "difference" else read


def from_grids(finished: Finished, claim: Claim, left_out: Sequence[int] = ()) -> Evidence:
    """Read the two sides of a claim from the grids of finished runs; no seeds where nothing is there.

    The seeds ``left_out`` suggested it: they do not judge it.
    """
    sides, task, experiment = (claim.left, claim.right), finished.task, finished.experiment
    training = summary.training_cell(task, finished.spec(claim.left.of))
    seeds, left_out = _apart(finished.seeds_of_both(claim), left_out)

    def measured(side: Quantity, metric: str, seed: int, column: str = "value") -> list[float]:
        grid, _ = finished.measured(side.of, seed)
        name = side.of if side.of.startswith("reference:") else model_name(grid)
        which = {"attn": name, "metric": metric or task.headline}
        cells = [{**which, **cell} for cell in combinations(side.cells, task.pinned(training))]
        return grid.values_at(cells, column)

    def read(side: Quantity, metric: str, seed: int) -> float:
        if side.constant is not None:
            return _mean([side.constant], task.log_scale)
        values = printed.numbers(experiment, side) if side.of.startswith(PRINTED) else measured(side, metric, seed)
        return _mean(values, task.log_scale)

    def prompts_error(side: Quantity, seed: int) -> float:
        if side.of.startswith(PRINTED) or side.constant is not None:
            return 0.0  # a printed number is taken as it stands
        values, errors = (measured(side, claim.metric, seed, column) for column in ("value", "stderr"))
        return mean_error(values, errors, logarithm=task.log_scale)

    def on_resamples(side: Quantity, seed: int) -> Array | None:
        cells = cells_of(claim, side, finished.spec(claim.left.of), task)
        if cells is None:
            return None
        if side.constant is not None:
            return np.asarray(read(side, claim.metric, seed))
        reference = side.of.startswith("reference:")
        errors = finished.errors_of_reference(side.of, cells) if reference else finished.measured(side.of, seed)[1]
        if errors is None or not errors.keeps(cells):
            return None
        means = resampled(np.stack([errors.at(cell).numpy() for cell in cells]), seed=0)
        return np.asarray((np.log(means) if task.log_scale else means).mean(axis=1))

    compared = scale(experiment, claim)
    noise = _prompt_variance(on_resamples, sides, seeds, left_out, compared)
    bound = _prompt_variance_bound(prompts_error, sides, seeds, compared)
    resolution = 0.0
    if compared == "difference" and seeds:
        resolution = 1 / float(finished.measured(claim.left.of, seeds[0])[0].frame["count"].max())
    return Evidence(
        read=read,
        seeds=seeds,
        scale=compared,
        noise=noise,
        bound=bound,
        resolution=resolution,
        span=task.span(claim.metric or task.headline) if compared == "difference" else math.inf,
        left_out=left_out,
    )


def reference(finished: Finished, claim: Claim, side: Quantity, name: str, seed: int) -> float:
    """Return the error of a reference predictor in the cells of a side, on the prompts of that side's run.

    Its mean logarithm where ratios are compared; infinity where the run's grid does not hold it.
    """
    cells = cells_of(claim, side, finished.spec(claim.left.of), finished.task)
    grid, _ = finished.measured(side.of, seed)
    which = {"attn": f"reference:{name}", "metric": claim.metric or finished.task.headline}
    try:
        return _mean(grid.values_at([{**which, **cell} for cell in cells or ()]), finished.task.log_scale)
    except KeyError:
        return math.inf


def _apart(seeds: Sequence[int], left_out: Sequence[int]) -> tuple[list[int], list[int]]:
    """Part seeds into those that judge a claim and those that led to it."""
    return [seed for seed in seeds if seed not in left_out], [seed for seed in seeds if seed in left_out]


def _prompt_variance(
    on_resamples: Callable[[Quantity, int], Array | None],
    sides: Sequence[Quantity],
    seeds: Sequence[int],
    left_out: Sequence[int],
    scale: Scale,
) -> Callable[[int], Evaluation | None]:
    """Standard error over prompts of left - right over the first ``seeds`` seeds, from values on resamples.

    ``on_resamples`` returns them for a side and a seed, (1 + resamples), the same resamples for all; None where they
    are not kept. Seeds that keep them stand for those that do not, and for a look without any a later seed or one of
    ``left_out``: the fewer they are, the more it varies with single models, which makes it wider.
    """

    @cache  # a later look asks for the seeds of the earlier ones again
    def gap(seed: int) -> Array | None:
        left, right = (on_resamples(side, seed) for side in sides)
        return None if left is None or right is None else left - right

    def noise(count: int) -> Evaluation | None:
        gaps = [drawn for seed in seeds[:count] if (drawn := gap(seed)) is not None]
        instead = (drawn for seed in (*seeds[count:], *left_out) if (drawn := gap(seed)) is not None)
        gaps = gaps or list(islice(instead, 1))
        return evaluation(np.mean(gaps, axis=0), scale) if gaps else None

    return noise


def _prompt_variance_bound(
    prompts_error: Callable[[Quantity, int], float], sides: Sequence[Quantity], seeds: Sequence[int], scale: Scale
) -> Callable[[int], Evaluation | None]:
    """Bound of the standard error over prompts of left - right, where errors of single prompts are not kept.

    Formula: e = mean over seeds of (e_left + e_right), a standard error; no correlation of sides and seeds makes it
    greater
    """

    @cache
    def error(seed: int) -> float:
        return sum(prompts_error(side, seed) for side in sides)

    def bound(count: int) -> Evaluation | None:
        most = fmean(map(error, seeds[:count]))
        half = HALF_WIDTH * most
        return None if math.isnan(half) else Evaluation(scale=scale, effect=0.0, low=-half, high=half)

    return bound


def from_analysis(
    analysis: AnyAnalysis,
    found: Answers | None,
    claim: Claim,
    scale: Scale,
    prompts: int,
    left_out: Sequence[int] = (),
) -> Evidence:
    """Read both sides of a claim from what an analysis found in that many prompts; no seeds where that is None.

    The seeds ``left_out`` suggested it: they do not judge it.

    What is the same in every seed is a rate, known to one prompt of those that it was measured on and not better. These
    may be a part of the analysis's prompts, and are taken to be a quarter. Values that differ show their own spread.
    """
    known: dict[tuple[bytes, str, int], float] = {}  # read here, and again by who judges

    def read(side: Quantity, metric: str, seed: int) -> float:
        key = msgspec.json.encode(side), metric, seed
        if key not in known:
            known[key] = analysis.value(found, side.of, side.cells, metric, seed)
        return known[key]

    seeds, left_out = _apart([] if found is None else analysis.seeds(found), left_out)
    gaps, undefined = set[float](), dict[int, str]()
    for seed in seeds:
        try:
            gaps.add(read(claim.left, claim.metric, seed) - read(claim.right, claim.metric, seed))
        except Undefined as reason:
            undefined[seed] = str(reason.args[0])
        except KeyError:  # what was found has no such cell, which is said where it is read
            break
    defined = [seed for seed in seeds if seed not in undefined]

    def on_resamples(side: Quantity, seed: int) -> Array | None:
        return analysis.on_resamples(found, side.of, side.cells, claim.metric, seed)

    resolution = PART / prompts if prompts and scale == "difference" and len(gaps) == 1 else 0.0

    def prompts_error(side: Quantity, seed: int) -> float:
        return analysis.prompts_error(found, side.of, side.cells, claim.metric, seed)

    sides = claim.left, claim.right
    noise, bound = (
        _prompt_variance(on_resamples, sides, defined, left_out, scale),
        _prompt_variance_bound(prompts_error, sides, defined, scale),
    )
    return Evidence(
        read=read,
        seeds=defined,
        scale=scale,
        prompted=prompts > 0,
        noise=noise,
        bound=bound,
        resolution=resolution,
        undefined=undefined,
        left_out=left_out,
    )


def _mean(values: Sequence[float], decades: bool) -> float:
    if decades and min(values) <= 0:  # printed with too few digits
        raise Undefined("a number of 0 has no logarithm, so that no ratio can be taken")
    return fmean(math.log(value) for value in values) if decades else fmean(values)


def combinations(cells: Mapping[str, Sequence[float]], training: Mapping[str, float]) -> list[dict[str, float]]:
    """Return every combination of the named values, all other axes as in training."""
    found = [dict(training)]
    for axis, values in cells.items():
        found = [{**cell, axis: value} for cell in found for value in values]
    return found


def cells_of(claim: Claim, side: Quantity, spec: RunSpec, task: Task) -> Cells | None:
    """Labels of the cells of a side whose single prompts an interval needs; None where these are not kept.

    ``spec`` is that of the left side, whose training conditions fill in the axes that the claim leaves out. Errors of
    single prompts are kept of the headline only.
    """
    if claim.metric not in ("", task.headline) or side.of.startswith(PRINTED):
        return None
    return combinations(side.cells, task.pinned(summary.training_cell(task, spec)))


def claimed(files: Path, presets: Iterable[str], store: Store) -> Claimed:
    """Return, for each variant of the experiments of a folder at these presets, the cells that claims read."""
    found = dict[tuple[str, str], Cells]()
    for preset in presets:
        for name in experiments.names(files):
            _collect(experiments.fitting(experiments.load(name, files), preset, curves=store)[0], preset, store, found)
    return found


def _collect(experiment: Experiment, preset: str, store: Store, found: dict[tuple[str, str], Cells]) -> None:
    if experiment.question() is not None:
        return
    task, specs = tasks.build(experiment.task), experiments.specs(experiment, store, preset)
    for claim in experiment.claims:
        first = experiment.variant(claim.left.of.removeprefix(PRINTED)) or experiment.variant(experiment.baseline)
        for side in (claim.left, claim.right):
            variant = experiment.variant(side.of)
            if first is None or variant is None:
                continue
            cells = cells_of(claim, side, specs[first.name], task)
            found.setdefault((specs[variant.name].hash, variant.tested_with), []).extend(cells or [])
