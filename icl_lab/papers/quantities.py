"""The numbers that claims are about: read from the grids of finished runs, or from what an analysis found."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property, lru_cache
from itertools import islice
from pathlib import Path
from statistics import fmean
from typing import Any

import msgspec
import numpy as np
from msgspec.structs import replace
from scipy.special import ndtri

from icl_lab import normalizers, tasks
from icl_lab.analyses.frame import Analysis
from icl_lab.comparison import outside
from icl_lab.comparison.given import Array
from icl_lab.comparison.outside import Outside
from icl_lab.comparison.statistics import Evaluation, Scale, evaluation, resampled
from icl_lab.errors import LabError, Undefined
from icl_lab.grid import Grid, mean_error, model_name
from icl_lab.papers import printed
from icl_lab.papers.cells import combinations
from icl_lab.papers.schema import PRINTED, PROMPTED, Claim, Experiment, Quantity, Variant
from icl_lab.runs import study_folder, summary
from icl_lab.runs.measure import Errors, Subject, TestSpec, measure
from icl_lab.runs.spec import RunSpec
from icl_lab.runs.store import Store

Read = Callable[[Quantity, str, int], float]  # a quantity, a metric (or ""), a seed -> the value, or its mean logarithm
CONFIDENCE = 0.95  # of what hangs on the prompts
PART = 4  # of the prompts of an analysis, one in so many is counted at the least


@dataclass(frozen=True)
class Source:
    """Where the two sides of a claim are read: the training seeds that both have, their values, the luck of prompts.

    ``silent`` are seeds in which a side has no value, and why: they are none of ``seeds``.

    ``noise`` returns how far left - right, over the first so many seeds, hangs on the test prompts; None where what
    single prompts add is not kept. ``bound`` returns how far it hangs on them at most; None where that is not known.
    """

    read: Read
    seeds: list[int]
    noise: Callable[[int], Evaluation | None] = lambda seeds: None
    bound: Callable[[int], Evaluation | None] = lambda seeds: None
    resolution: float = 0.0  # of a rate: one prompt in those of a cell
    silent: Mapping[int, str] = field(default_factory=dict)


def scale(experiment: Experiment, claim: Claim) -> Scale:
    """Ratios where the quantities of a claim span decades, differences where they do not."""
    task, analysis = tasks.build(experiment.task), experiment.question()
    if analysis is None:
        return "log-ratio" if task.log_scale else "difference"
    return analysis.scale_of(task, claim.metric)


def rule(variant: Variant) -> str:
    """The rule that stands in the trained model when it is tested, by its one spelling; empty for its own."""
    return normalizers.canonical(variant.swap) if variant.swap else ""


class Finished:
    """The finished runs of an experiment at one scale, each read once."""

    def __init__(self, experiment: Experiment, store: Store, preset: str, settings: Sequence[str] = ()) -> None:
        self.experiment, self.store = experiment, store
        self.specs = {variant.name: experiment.spec(variant, preset, settings) for variant in experiment.variants}
        self.task = tasks.build(experiment.task)
        self._read: dict[tuple[str, int, str], tuple[Grid, Errors | None]] = {}
        self._homes: dict[tuple[str, int], dict[str, float]] = {}

    def variant(self, of: str) -> Variant:
        """Returns the variant of that name, or whose printed row is named.

        For a reference, the same in every run, it is the baseline beside which it is.
        """
        name = of.removeprefix(PRINTED)
        found = self.experiment.variant(name) or self.experiment.variant(self.experiment.baseline)
        if found is None:
            raise LabError(f"'{of}' is no variant of this experiment.")
        return found

    def spec(self, of: str) -> RunSpec:
        """Returns the specification of a variant."""
        return self.specs[self.variant(of).name]

    def variants_for(self, claims: Iterable[Claim]) -> list[str]:
        """Returns the variants that have to be asked before claims can be judged, in the order of the file.

        In grids references stand beside the baseline; an analysis asks them beside the first variant, and so needs it
        always, and with it the baseline. Of one whose claims are about something else than variants it is all of them.
        """
        sides = {side.of for claim in claims for side in (claim.left, claim.right)}
        wanted = {self.variant(of).name for of in sides}
        if self.experiment.question() is not None:
            wanted |= {next(iter(self.specs)), self.experiment.baseline}
            if any(self.experiment.variant(of) is None and not of.startswith("reference:") for of in sides):
                wanted.update(self.specs)
        return [name for name in self.specs if name in wanted]

    @cached_property
    def prompted(self) -> dict[str, Outside]:
        """The prompted models of the task that are stored."""
        return outside.stored(self.store.root, next(iter(self.specs.values())).task)

    def seeds(self, of: str) -> set[int]:
        """Returns the training seeds of which a variant has a finished run; of what has none, those of the baseline."""
        if of.startswith(PROMPTED) and of not in self.prompted:
            return set()
        spec, swap = self.spec(of), rule(self.variant(of))
        return {seed for seed in self.store.seeds(spec) if self.store.run(spec, seed, swap).finished}

    def measured(self, of: str, seed: int) -> tuple[Grid, Errors | None]:
        """Returns the grid of a run and what each prompt adds to it, where that is kept."""
        return self._measured(self.spec(of), seed, rule(self.variant(of)))

    def lacking(self, claim: Claim) -> str:
        """Says which prompted model of a claim is not stored; empty where there is none to wait for."""
        asked = [side.of for side in (claim.left, claim.right) if side.of.startswith(PROMPTED)]
        return "; ".join(
            f"no study of {of} is stored here (icl-lab prompted)" for of in asked if of not in self.prompted
        )

    def errors(self, of: str, seed: int) -> Errors | None:
        """Returns what each prompt adds to the headline of a variant or a prompted model, where that is kept."""
        return self.prompted[of].errors if of.startswith(PROMPTED) else self.measured(of, seed)[1]

    def errors_of_reference(self, of: str, cells: Sequence[Mapping[str, float]]) -> Errors:
        """Returns what each prompt adds to the headline of a reference in cells of the test: measured now, not kept."""
        spec = self.spec(of)
        asked = {axis: {cell[axis] for cell in cells if axis in cell} for axis in spec.test.axes}
        # The lengths stay as they are: prompts of the others may be cut from those of the greatest.
        axes = {axis: sorted(asked[axis]) or values for axis, values in spec.test.axes.items() if axis != "length"}
        test = replace(spec.test, axes=spec.test.axes | axes)
        return _errors_of_reference(spec.task, of.partition(":")[2], msgspec.json.encode(test))

    def fixed(self, of: str) -> Mapping[str, float]:
        """Returns the labels that stand beside those of the task's own axes."""
        return self.prompted[of].fixed if of.startswith(PROMPTED) else {}

    def at_home(self, of: str, seed: int) -> Mapping[str, float]:
        """Returns the errors in training conditions of a trained model, with its own rule, and of the references.

        A model that a claim reads with another position code is asked with that of its training, where it was tested
        with both: another code may cost what it has learned. Empty where the model has no grid, or one that leaves
        training conditions out.
        """
        spec = self.spec(of)
        if spec.test.positions:
            plain = replace(spec, test=replace(spec.test, positions=""))
            spec = plain if self.store.run(plain, seed).finished else spec
        key = (spec.hash, seed)
        if key not in self._homes and self.store.run(spec, seed).finished:
            grid = self._measured(spec, seed, "")[0]
            known = not summary.left_out(grid, self.task, spec)
            self._homes[key] = summary.at_home([grid], self.task, spec) if known else {}
        return self._homes.get(key, {})

    def left_out(self, of: str, seed: int) -> str:
        """Returns which training conditions the grid of a model leaves out, in words; nothing without a grid."""
        if not (run := self.store.run(self.spec(of), seed)).finished:
            return ""
        return summary.left_out(self._measured(run.spec, seed, "")[0], self.task, run.spec)

    def _measured(self, spec: RunSpec, seed: int, swap: str) -> tuple[Grid, Errors | None]:
        key = (spec.hash, seed, swap)
        if key not in self._read:
            self._read[key] = self.store.run(spec, seed, swap).measured()
        return self._read[key]


@lru_cache(maxsize=64)  # of experiments at several scales it is often the same
def _errors_of_reference(task_choice: str, name: str, test: bytes) -> Errors:
    """What each prompt of a test, a ``TestSpec`` as JSON, adds to the headline of a reference."""
    task = tasks.build(task_choice)
    predict = task.references()[name]
    return measure({name: Subject(predict)}, task, msgspec.json.decode(test, type=TestSpec)).errors


def from_grids(finished: Finished, claim: Claim) -> Source:
    """Reads the two sides of a claim from the grids of finished runs; no seeds where nothing is there."""
    sides, task, experiment = (claim.left, claim.right), finished.task, finished.experiment
    training = summary.training_cell(task, finished.spec(claim.left.of))
    seeds = sorted(finished.seeds(claim.left.of) & finished.seeds(claim.right.of))

    def measured(side: Quantity, metric: str, seed: int, column: str = "value") -> list[float]:
        if side.of.startswith(PROMPTED):
            grid = finished.prompted[side.of].grid
            name = str(grid.values("attn")[0])
        else:
            grid, _ = finished.measured(side.of, seed)
            name = side.of if side.of.startswith("reference:") else model_name(grid)
        which = {"attn": name, "metric": metric or task.headline}
        cells = [{**which, **cell} for cell in combinations(side.cells, task.pinned(training))]
        return grid.values_at(cells, column)

    def read(side: Quantity, metric: str, seed: int) -> float:
        told = printed.numbers(experiment, side) if side.of.startswith(PRINTED) else measured(side, metric, seed)
        return _mean(told, task.log_scale)

    def prompts_error(side: Quantity, seed: int) -> float:
        if side.of.startswith(PRINTED):
            return 0.0  # a printed number is taken as it stands
        values, errors = (measured(side, claim.metric, seed, column) for column in ("value", "stderr"))
        return mean_error(values, errors, logarithm=task.log_scale)

    def on_resamples(side: Quantity, seed: int) -> Array | None:
        # Errors of single prompts are kept of the headline only, and not told of printed numbers.
        if claim.metric not in ("", task.headline) or side.of.startswith(PRINTED):
            return None
        cells = combinations(side.cells, task.pinned({**training, **finished.fixed(side.of)}))
        reference = side.of.startswith("reference:")
        kept = finished.errors_of_reference(side.of, cells) if reference else finished.errors(side.of, seed)
        if kept is None:
            return None
        means = resampled(np.stack([kept.at(cell).numpy() for cell in cells]), seed=0)
        return np.asarray((np.log(means) if task.log_scale else means).mean(axis=1))

    noise = _luck(on_resamples, sides, seeds, scale(experiment, claim))
    bound = _most_luck(prompts_error, sides, seeds, scale(experiment, claim))
    if scale(experiment, claim) == "log-ratio" or not seeds:
        return Source(read, seeds, noise, bound)
    counts = finished.measured(claim.left.of, seeds[0])[0].frame["count"]
    return Source(read, seeds, noise, bound, 1 / float(counts.max()))


def _luck(
    on_resamples: Callable[[Quantity, int], Array | None], sides: Sequence[Quantity], seeds: Sequence[int], scale: Scale
) -> Callable[[int], Evaluation | None]:
    """How far left - right over the first so many seeds hangs on the prompts, from values on resamples of these.

    ``on_resamples`` returns them for a side and a seed, (1 + resamples), the same resamples for all; None where they
    are not kept. Seeds of which they are stand for those of which they are not, a later one for a look without any: the
    fewer they are, the more of the luck of single models is in it, which makes it wider.
    """

    @cache  # a later look asks for the seeds of the earlier ones again
    def gap(seed: int) -> Array | None:
        left, right = (on_resamples(side, seed) for side in sides)
        return None if left is None or right is None else left - right

    def noise(count: int) -> Evaluation | None:
        told = [drawn for seed in seeds[:count] if (drawn := gap(seed)) is not None]
        told = told or list(islice((drawn for seed in seeds[count:] if (drawn := gap(seed)) is not None), 1))
        return evaluation(np.mean(told, axis=0), scale) if told else None

    return noise


def _most_luck(
    prompts_error: Callable[[Quantity, int], float], sides: Sequence[Quantity], seeds: Sequence[int], scale: Scale
) -> Callable[[int], Evaluation | None]:
    """How far left - right over the first so many seeds hangs on the prompts at most, where single ones are not kept.

    Formula: e = mean over seeds of (e_left + e_right), a standard error; no correlation of sides and seeds makes it
    greater
    """

    @cache
    def error(seed: int) -> float:
        return sum(prompts_error(side, seed) for side in sides)

    def bound(count: int) -> Evaluation | None:
        most = fmean(map(error, seeds[:count]))
        half = float(ndtri((1 + CONFIDENCE) / 2)) * most
        return None if math.isnan(half) else Evaluation(scale, 0.0, -half, half, CONFIDENCE)

    return bound


def from_analysis(analysis: Analysis, found: Any, claim: Claim, scale: Scale, prompts: int) -> Source:
    """Reads both sides of a claim from what an analysis found in so many prompts; no seeds where that is None.

    What is the same in every seed is a rate, known to one prompt of those that it was measured on and not better. These
    may be a part of the analysis's prompts, and are taken to be a quarter. What differs is told by its differences.
    """
    known: dict[tuple[bytes, str, int], float] = {}  # read here, and again by who judges

    def read(side: Quantity, metric: str, seed: int) -> float:
        key = msgspec.json.encode(side), metric, seed
        if key not in known:
            known[key] = analysis.value(found, side.of, side.cells, metric, seed)
        return known[key]

    seeds = [] if found is None else analysis.seeds(found)
    gaps, silent = set[float](), dict[int, str]()
    for seed in seeds:
        try:
            gaps.add(read(claim.left, claim.metric, seed) - read(claim.right, claim.metric, seed))
        except Undefined as reason:
            silent[seed] = str(reason.args[0])
        except KeyError:  # what was found has no such cell, which is said where it is read
            break
    told = [seed for seed in seeds if seed not in silent]

    def on_resamples(side: Quantity, seed: int) -> Array | None:
        return analysis.on_resamples(found, side.of, side.cells, claim.metric, seed)

    resolution = PART / prompts if prompts and scale == "difference" and len(gaps) == 1 else 0.0

    def prompts_error(side: Quantity, seed: int) -> float:
        return analysis.prompts_error(found, side.of, side.cells, claim.metric, seed)

    sides = claim.left, claim.right
    noise, bound = _luck(on_resamples, sides, told, scale), _most_luck(prompts_error, sides, told, scale)
    return Source(read, told, noise, bound, resolution, silent)


def stored(analysis: Analysis, folder: Path) -> Any:
    """Returns what an analysis found, as it is kept in its folder; None where nothing is there.

    Raises ``RunFailed`` where a file of the folder is damaged or was edited.
    """
    if not folder.exists():
        return None
    study_folder.verify(folder, pictures=False)
    return analysis.read(folder)


def _mean(values: Sequence[float], decades: bool) -> float:
    if decades and min(values) <= 0:  # printed with too few digits
        raise Undefined("a number of 0 has no logarithm, so that no ratio can be taken")
    return fmean(math.log(value) for value in values) if decades else fmean(values)
