"""Both sides of a claim as one table: a row for each side and training seed, with all that a verdict is read from.

A side is a variant of an experiment, a reference predictor or a printed row, in the cells that the claim names. Its
numbers come from the grids of finished runs (``Sides``) or from what an analysis measured (``AnalysisSides``).
"""

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from functools import lru_cache
from itertools import product
from pathlib import Path
from statistics import fmean
from typing import Any, Literal, NamedTuple

import msgspec
import numpy as np
from msgspec.structs import replace

from icl_lab import tasks
from icl_lab.analyses.frame import AnyAnalysis
from icl_lab.base import foreign
from icl_lab.base.errors import LabError, Undefined
from icl_lab.base.grid import Grid, mean_error, model_name
from icl_lab.claims import experiment as experiments
from icl_lab.claims import folders, printed
from icl_lab.claims.schema import PRINTED, Claim, Experiment, Quantity, Variant
from icl_lab.comparison.given import Array
from icl_lab.comparison.statistics import Scale, resampled
from icl_lab.comparison.verdict import State
from icl_lab.runs import provenance, summary
from icl_lab.runs.measure import Errors, Subject, TestSpec, measure
from icl_lab.runs.run import Run
from icl_lab.runs.spec import RunSpec
from icl_lab.runs.store import Store
from icl_lab.runs.summary import REFERENCE

PART = 4  # a rate of an analysis is measured on a quarter of its prompts at the least
Cells = list[dict[str, float]]  # labels of cells by axis


class Training(NamedTuple):
    """Training behind a side for one seed; of a reference and of a printed row nothing is known."""

    share: float | None = None  # normalized error in training conditions (``summary.has_learned``); None: not known
    first: datetime | None = None  # time at which it first ended; None: not known
    origin: tuple[str, str] | None = None  # commit and class of machine; None: nothing was trained
    code: tuple[str, ...] = ()  # kinds of code and versions that differ from those of now


class Value(NamedTuple):
    """A side of a claim for one training seed."""

    value: float = math.nan  # mean over the claim's cells, of the logarithm where ratios are compared
    error: float = math.nan  # most that its standard error over prompts can be, where a side keeps no single ones
    resamples: Array | None = None  # of the prompts: the value on each, (1 + resamples,); None where none are kept
    closed: State | None = None  # without a value, the state of a claim that reads it: not run, or nothing to judge
    why: str = ""  # reason for the state
    training: Training = Training()


Column = dict[int, Value]  # a side by training seed
Table = tuple[Column, Column]  # left and right


class Sides:
    """The variants of an experiment at one scale, and both sides of its claims as their grids hold them."""

    trains = True  # whether claims are about trained models
    skips = False  # whether seeds without a value are passed over, or leave nothing to judge

    def __init__(self, experiment: Experiment, store: Store, preset: str, settings: Sequence[str] = ()) -> None:
        self.experiment, self.store, self.preset = experiment, store, preset
        self.specs = experiments.specs(experiment, store, preset, settings)
        self.task = tasks.build(experiment.task)
        self._variants = {variant.name: variant for variant in experiment.variants}
        self._tests: dict[tuple[str, int, str], tuple[Grid, Errors | None]] = {}
        self._seeds: dict[tuple[str, str], set[int]] = {}
        self._values: dict[tuple[object, ...], Value] = {}
        self._trainings: dict[tuple[str, int], Training] = {}

    # What was trained and tested.

    def variant(self, of: str) -> Variant:
        """Return the variant of that name, or whose printed row is named; of a reference the baseline."""
        variant = self._variants.get(of.removeprefix(PRINTED)) or self._variants.get(self.experiment.baseline)
        if variant is None:
            raise LabError(f"'{of}' is no variant of this experiment.")
        return variant

    def spec(self, of: str) -> RunSpec:
        """Return the specification of a variant."""
        return self.specs[self.variant(of).name]

    def test(self, of: str) -> tuple[str, str]:
        """Return the hash of a variant's specification, and the normalizer put in for its test (empty: its own)."""
        return self.spec(of).hash, self.variant(of).tested_with

    def is_model(self, of: str) -> bool:
        """True if a side is a trained model: no reference, no printed row, no normalizer without a model."""
        return self.trains and of in self._variants

    def models(self, claim: Claim) -> Literal["", "one model", "two models"]:
        """Return whether both sides are the same training or two; empty where a side is no model."""
        left, right = claim.left.of, claim.right.of
        if not (self.is_model(left) and self.is_model(right)):
            return ""
        return "one model" if self.spec(left).training == self.spec(right).training else "two models"

    def variants_for(self, claims: Iterable[Claim]) -> list[str]:
        """Return the variants that must be tested before claims can be judged, in the order of the file.

        References come with the baseline.
        """
        named = {self.variant(side.of).name for claim in claims for side in (claim.left, claim.right)}
        return [name for name in self.specs if name in named]

    def seeds(self, of: str) -> set[int]:
        """Return the training seeds of which a variant has a finished test; of a reference, those of the baseline."""
        spec, swap = self.spec(of), self.variant(of).tested_with
        if (spec.hash, swap) not in self._seeds:
            runs = [self.store.run(spec, seed, swap) for seed in self.store.seeds(spec)]
            self._seeds[spec.hash, swap] = {run.seed for run in runs if run.finished}
        return self._seeds[spec.hash, swap]

    def measured(self, of: str, seed: int) -> tuple[Grid, Errors | None]:
        """Return the grid of a test, and what each prompt adds to its headline, where that is kept."""
        return self._measured(self.spec(of), seed, self.variant(of).tested_with)

    def trained(self, of: str, seed: int) -> Run:
        """Return the run whose test says what a model has learned: with its own normalizer and position code.

        Where there is no test with the code of its training, it is that with the code that the claim names.
        """
        spec = self.spec(of)
        run = self.store.run(spec, seed)
        if spec.test.positions:
            plain = self.store.run(replace(spec, test=replace(spec.test, positions="")), seed)
            return plain if plain.finished else run
        return run

    def errors_in_training_conditions(self, of: str, seed: int) -> Mapping[str, float]:
        """Return the errors of a model there, and of the references; empty without a grid that has these cells."""
        run = self.trained(of, seed)
        grid = self._measured(run.spec, seed, "")[0] if run.finished else None
        if grid is None or summary.left_out(grid, self.task, run.spec):
            return {}
        return summary.errors_in_distribution([grid], self.task, run.spec)

    def why_not_known(self, of: str, seeds: Iterable[int]) -> str:
        """Say why it is not known whether a model learned its task: not tested, or not in training conditions."""
        run = next((run for seed in seeds if (run := self.trained(of, seed)).finished), None)
        if run is None:
            return "not tested"
        return summary.left_out(self._measured(run.spec, run.seed, "")[0], self.task, run.spec)

    def _measured(self, spec: RunSpec, seed: int, swap: str) -> tuple[Grid, Errors | None]:
        key = (spec.hash, seed, swap)
        if key not in self._tests:
            self._tests[key] = self.store.run(spec, seed, swap).measured()
        return self._tests[key]

    # How a claim compares.

    def scale(self, claim: Claim) -> Scale:
        """Ratios where errors span decades, differences where they do not."""
        return "log-ratio" if self.task.log_scale else "difference"

    def span(self, claim: Claim) -> float:
        """Return the largest difference that two values can have: 1 of rates and shares."""
        return self.task.span(claim.metric or self.task.headline)

    def prompts(self, claim: Claim) -> int:
        """Return how many prompts each model was asked, at the least; 0 where none, so that they add no error."""
        return 1

    def step(self, claim: Claim, table: Table) -> float:
        """Return the smallest step of a rate: one prompt of those in a cell."""
        return 1 / float(self.measured(claim.left.of, next(iter(table[0])))[0].frame["count"].max())

    def far(self, side: Quantity) -> bool:
        """True if the cells of a side lie outside training conditions."""
        here = summary.training_cell(self.task, self.spec(side.of))
        return any(here.get(axis) != value for axis, values in side.cells.items() for value in values)

    def compares_errors(self, claim: Claim) -> bool:
        """True if both sides are errors of models away from training, which a trivial reference could beat."""
        sides = (claim.left, claim.right)
        return claim.metric in ("", self.task.headline) and all(self.is_model(s.of) and self.far(s) for s in sides)

    def reference(self, claim: Claim, side: Quantity, name: str, seed: int) -> float:
        """Return the value of a reference in the cells of a side, on its prompts; infinity where it is not stored."""
        try:
            return self._value(claim, side, f"{REFERENCE}{name}", self._cells(claim, side), seed)
        except KeyError:
            return math.inf

    def folder(self, claim: Claim) -> str:
        """Return the name of the study that a claim is read from; empty where it is read from grids."""
        return ""

    # The table.

    def table(self, claim: Claim) -> Table:
        """Return both sides of a claim: of two models all seeds of each, else the seeds that both have."""
        seeds_of = self._seeds_of(claim)
        both = seeds_of[0] & seeds_of[1]
        sides = (claim.left, claim.right)
        alone = self.models(claim) == "two models" and not self.skips  # an analysis asks all its models alike
        left, right = (
            self.values(claim, side, sorted(own if alone else both)) for side, own in zip(sides, seeds_of, strict=True)
        )
        kept = ({seed for seed, value in column.items() if value.resamples is not None} for column in (left, right))
        paired = set.intersection(*kept) if self.prompts(claim) else left.keys() | right.keys()
        for column, side in zip((left, right), sides, strict=True):
            cells = self._cells(claim, side)
            for seed, value in column.items():
                if seed not in paired and value.closed is None:
                    column[seed] = value._replace(error=self._error(claim, side, cells, seed))
        return left, right

    def _seeds_of(self, claim: Claim) -> tuple[set[int], set[int]]:
        return self.seeds(claim.left.of), self.seeds(claim.right.of)

    def _cells(self, claim: Claim, side: Quantity) -> Cells:
        return combinations(side.cells, self.task.pinned(summary.training_cell(self.task, self.spec(claim.left.of))))

    def values(self, claim: Claim, side: Quantity, seeds: Sequence[int]) -> Column:
        """Return a side by training seed; claims share sides, so that each is read once."""
        if not seeds:
            return {}
        cells = self._cells(claim, side)
        key = (self.folder(claim), side.of, claim.metric, json.dumps([side.cells, cells]))
        for seed in seeds:
            if (*key, seed) not in self._values:
                value = self._measurement(claim, side, cells, seed)
                self._values[*key, seed] = value._replace(training=self._training(side.of, seed))
        return {seed: self._values[*key, seed] for seed in seeds}

    def _measurement(self, claim: Claim, side: Quantity, cells: Cells, seed: int) -> Value:
        try:
            value = self._value(claim, side, side.of, cells, seed)
            return Value(value, resamples=self._resamples(claim, side, cells, seed))
        except Undefined as reason:
            return Value(closed=State.NOTHING_TO_JUDGE, why=str(reason.args[0]))
        except KeyError as reason:  # the preset's test grid has no such cell
            return Value(closed=State.NOT_RUN, why=str(reason.args[0]))

    def _value(self, claim: Claim, side: Quantity, of: str, cells: Cells, seed: int) -> float:
        """Mean of a predictor over cells of the side's grid.

        Raises ``KeyError`` where the grid lacks a cell, and ``Undefined`` where a value has no logarithm.
        """
        if side.constant is not None:
            return self._mean([side.constant])
        if of.startswith(PRINTED):
            return self._mean(printed.numbers(self.experiment, side))
        return self._mean(self._column(claim, side, of, cells, seed, "value"))

    def _error(self, claim: Claim, side: Quantity, cells: Cells, seed: int) -> float:
        """Most that the standard error of a value over prompts can be; printed numbers are taken as they stand."""
        if side.constant is not None or side.of.startswith(PRINTED):
            return 0.0
        values, errors = (self._column(claim, side, side.of, cells, seed, name) for name in ("value", "stderr"))
        return mean_error(values, errors, logarithm=self.task.log_scale)

    def _column(self, claim: Claim, side: Quantity, of: str, cells: Cells, seed: int, column: str) -> list[float]:
        grid = self.measured(side.of, seed)[0]
        name = of if of.startswith(REFERENCE) else model_name(grid)
        which = {"attn": name, "metric": claim.metric or self.task.headline}
        return grid.values_at([{**which, **cell} for cell in cells], column)

    def _mean(self, values: Sequence[float]) -> float:
        if self.task.log_scale and min(values) <= 0:  # printed with too few digits
            raise Undefined("a number of 0 has no logarithm, so that no ratio can be taken")
        return fmean(map(math.log, values)) if self.task.log_scale else fmean(values)

    def _resamples(self, claim: Claim, side: Quantity, cells: Cells, seed: int) -> Array | None:
        if side.of.startswith(PRINTED) or claim.metric not in ("", self.task.headline):
            return None
        if side.constant is not None:
            return np.asarray(self._mean([side.constant]))
        errors = (
            errors_of_reference(self.spec(side.of), side.of.removeprefix(REFERENCE), cells)
            if side.of.startswith(REFERENCE)
            else self.measured(side.of, seed)[1]
        )
        if errors is None or not errors.keeps(cells):
            return None
        means = resampled(np.stack([errors.at(cell).numpy() for cell in cells]), seed=0)
        return np.asarray((np.log(means) if self.task.log_scale else means).mean(axis=1))

    def _training(self, of: str, seed: int) -> Training:
        if not self.is_model(of):
            return Training()
        if (of, seed) not in self._trainings:
            run, errors = self.trained(of, seed), self.errors_in_training_conditions(of, seed)
            share = summary.normalized_error(errors, run.spec.attn, self.task) if errors else None
            about = Training(share)
            if run.recorded:
                held = None if self.store.archive is None else self.store.archive.run(run.key)
                texts = () if held is None else held.versions("env.json")
                env = run.env()
                first = first_end([env, *(json.loads(foreign.shallow(text)) for text in texts)])
                code = {difference.kind for _, difference in provenance.changed([run])}
                about = Training(share, first, (env.get("commit", ""), env.get("machine", "")), tuple(code))
            self._trainings[of, seed] = about
        return self._trainings[of, seed]


class AnalysisSides(Sides):
    """The same table from what an analysis measured: of its stored studies the one with most seeds of a claim."""

    skips = True

    def __init__(
        self,
        experiment: Experiment,
        store: Store,
        preset: str,
        settings: Sequence[str] = (),
        measured: folders.Answers | None = None,
    ) -> None:
        """``measured`` is what the analysis has just measured; else the experiment's studies are read."""
        super().__init__(experiment, store, preset, settings)
        self.analysis: AnyAnalysis = experiment.question()  # type: ignore[assignment]  # not None, by ``sides_of``
        self.trains = self.analysis.trains
        self._measured_now = measured
        places = folders.of(experiment.name, store, preset) if measured is None else []
        self.studies = folders.Studies(self, self.analysis, places)

    def variants_for(self, claims: Iterable[Claim]) -> list[str]:
        """Return the variants that must be asked: also the first one, which references come with, and the baseline.

        Of claims about something else than variants it is all of them.
        """
        claims = list(claims)
        others = (side.of for claim in claims for side in (claim.left, claim.right) if side.of not in self._variants)
        if any(not of.startswith(REFERENCE) for of in others):
            return list(self.specs)
        named = {*super().variants_for(claims), next(iter(self.specs)), self.experiment.baseline}
        return [name for name in self.specs if name in named]

    def scale(self, claim: Claim) -> Scale:
        """Ratios or differences, as the analysis says."""
        return self.analysis.scale_of(self.task, claim.metric)

    def span(self, claim: Claim) -> float:
        """Return the largest difference that two values can have."""
        return self.analysis.span(self.task, claim.metric)

    def prompts(self, claim: Claim) -> int:
        """Return the smallest set of prompts that the analysis asks; 0 where models are asked none."""
        return min((count for count, _ in self.analysis.asks(self.spec(claim.left.of))), default=0)

    def step(self, claim: Claim, table: Table) -> float:
        """Return the smallest step of a rate, where all seeds differ by the same; values that spread show their own.

        It is known to one prompt of those that it was measured on, taken to be a quarter of the analysis' prompts.
        """
        prompts, gaps = self.prompts(claim), {table[0][seed].value - table[1][seed].value for seed in table[0]}
        return PART / prompts if prompts and len(gaps) == 1 else 0.0

    def far(self, side: Quantity) -> bool:
        """True if the cells of a side lie outside training conditions, or all that the analysis asks."""
        return super().far(side) or self.analysis.beyond(self.spec(side.of))

    def compares_errors(self, claim: Claim) -> bool:
        """True if both sides are errors of models, which a trivial reference could beat."""
        sides = (claim.left, claim.right)
        return self.analysis.metric(claim.metric).baselines and all(self.is_model(side.of) for side in sides)

    def folder(self, claim: Claim) -> str:
        """Return the name of the study that a claim is read from; empty where none is stored."""
        place = self.studies.place(claim)
        return place.name if place else ""

    def _seeds_of(self, claim: Claim) -> tuple[set[int], set[int]]:
        answers = self._answers(claim)
        seeds = set() if answers is None else set(self.analysis.seeds(answers))
        return seeds, seeds

    def _answers(self, claim: Claim) -> folders.Answers | None:
        return self.studies.read(self.studies.place(claim)) if self._measured_now is None else self._measured_now

    def _value(self, claim: Claim, side: Quantity, of: str, cells: Cells, seed: int) -> float:
        return self.analysis.value(self._answers(claim), of, side.cells, claim.metric, seed)

    def _error(self, claim: Claim, side: Quantity, cells: Cells, seed: int) -> float:
        return self.analysis.prompts_error(self._answers(claim), side.of, side.cells, claim.metric, seed)

    def _resamples(self, claim: Claim, side: Quantity, cells: Cells, seed: int) -> Array | None:
        return self.analysis.on_resamples(self._answers(claim), side.of, side.cells, claim.metric, seed)


def sides_of(experiment: Experiment, store: Store, preset: str, settings: Sequence[str] = ()) -> Sides:
    """Return both sides of an experiment's claims at a preset: of grids, or of what its analysis measured."""
    return (Sides if experiment.question() is None else AnalysisSides)(experiment, store, preset, settings)


def combinations(cells: Mapping[str, Sequence[float]], training: Mapping[str, float]) -> Cells:
    """Return every combination of the named values, all other axes as in training."""
    return [{**training, **dict(zip(cells, values, strict=True))} for values in product(*cells.values())]


def errors_of_reference(spec: RunSpec, name: str, cells: Cells) -> Errors:
    """Return what each prompt adds to the headline of a reference in cells of a test: measured now, not kept."""
    asked = {axis: {cell[axis] for cell in cells if axis in cell} for axis in spec.test.axes}
    # The lengths stay as they are: prompts of the others may be cut from those of the greatest.
    axes = {axis: sorted(asked[axis]) or values for axis, values in spec.test.axes.items() if axis != "length"}
    test = replace(spec.test, axes=spec.test.axes | axes)
    return _errors_of_reference(spec.task, name, msgspec.json.encode(test))


@lru_cache(maxsize=64)  # of experiments at several scales it is often the same
def _errors_of_reference(task_choice: str, name: str, test: bytes) -> Errors:
    task = tasks.build(task_choice)
    return measure({name: Subject(task.references()[name])}, task, msgspec.json.decode(test, type=TestSpec)).errors


def first_end(environments: Iterable[Mapping[str, Any]]) -> datetime | None:
    """Return the time at which a training first ended, by the environments of it and its repetitions.

    One that was repeated gives the same numbers. None where it is not known; a time without a zone is UTC.
    """
    times = [datetime.fromisoformat(str(env["finished"])) for env in environments if env.get("finished")]
    return min((time if time.tzinfo else time.replace(tzinfo=UTC) for time in times), default=None)


def claimed(files: Path, presets: Iterable[str], store: Store) -> Mapping[tuple[str, str], Cells]:
    """Return, for each test of the experiments of a folder at these presets, the cells whose single prompts are read.

    A test is the hash of a specification, and the normalizer put in for it.
    Errors of single prompts are kept of the headline only, and of models.
    """
    cells = dict[tuple[str, str], Cells]()
    for preset, name in product(presets, experiments.names(files)):
        experiment = experiments.fitting(experiments.load(name, files), preset, curves=store)[0]
        if experiment.question() is not None or not experiment.variants:
            continue
        read = Sides(experiment, store, preset)
        for claim in experiment.claims:
            for side in (claim.left, claim.right):
                if read.is_model(side.of):
                    headline = claim.metric in ("", read.task.headline)
                    test = read.spec(side.of).hash, read.variant(side.of).tested_with
                    cells.setdefault(test, []).extend(read._cells(claim, side) if headline else ())
    return cells
