"""The finished runs of an experiment at one scale: their numbers, and what models have learned."""

import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from functools import lru_cache
from statistics import median
from typing import Any

import msgspec
from msgspec.structs import replace

from icl_lab import tasks
from icl_lab.base import foreign
from icl_lab.base.errors import LabError
from icl_lab.base.grid import Grid
from icl_lab.claims import experiment as experiments
from icl_lab.claims import registration
from icl_lab.claims.schema import PRINTED, Claim, Experiment, Quantity, Variant
from icl_lab.runs import provenance, summary
from icl_lab.runs.measure import Errors, Subject, TestSpec, measure
from icl_lab.runs.run import Run
from icl_lab.runs.spec import RunSpec
from icl_lab.runs.store import Store

ENVIRONMENT = "env.json"  # of a run


class Finished:
    """The finished runs of an experiment at one scale, each read once."""

    def __init__(self, experiment: Experiment, store: Store, preset: str, settings: Sequence[str] = ()) -> None:
        self.experiment, self.store, self.preset = experiment, store, preset
        self.specs = experiments.specs(experiment, store, preset, settings)
        self.task = tasks.build(experiment.task)
        self._read: dict[tuple[str, int, str], tuple[Grid, Errors | None]] = {}
        self._in_distribution: dict[tuple[str, int], dict[str, float]] = {}

    def variant(self, of: str) -> Variant:
        """Return the variant of that name, or whose printed row is named.

        For a reference, the same in every run, it is the baseline that it is measured with.
        """
        name = of.removeprefix(PRINTED)
        found = self.experiment.variant(name) or self.experiment.variant(self.experiment.baseline)
        if found is None:
            raise LabError(f"'{of}' is no variant of this experiment.")
        return found

    def spec(self, of: str) -> RunSpec:
        """Return the specification of a variant."""
        return self.specs[self.variant(of).name]

    def tested(self, of: str) -> tuple[str, str]:
        """Return the hash of a variant's specification, and the normalizer put in for its test (empty: its own)."""
        return self.spec(of).hash, self.variant(of).tested_with

    def variants_for(self, claims: Iterable[Claim]) -> list[str]:
        """Return the variants that have to be asked before claims can be judged, in the order of the file.

        In grids references come with the baseline; an analysis asks them with the first variant, and so needs it
        always, and with it the baseline. Of one whose claims are about something else than variants it is all of them.
        """
        sides = {side.of for claim in claims for side in (claim.left, claim.right)}
        wanted = {self.variant(of).name for of in sides}
        if self.experiment.question() is not None:
            wanted |= {next(iter(self.specs)), self.experiment.baseline}
            if any(self.experiment.variant(of) is None and not of.startswith("reference:") for of in sides):
                wanted.update(self.specs)
        return [name for name in self.specs if name in wanted]

    def seeds(self, of: str) -> set[int]:
        """Return the training seeds of which a variant has a finished run; without any, those of the baseline."""
        spec, swap = self.spec(of), self.variant(of).tested_with
        return {seed for seed in self.store.seeds(spec) if self.store.run(spec, seed, swap).finished}

    def seeds_of_both(self, claim: Claim) -> list[int]:
        """Return the training seeds of which both sides of a claim have a finished run, ascending."""
        return sorted(self.seeds(claim.left.of) & self.seeds(claim.right.of))

    def before_registration(self, claim: Claim, seeds: Sequence[int]) -> list[int]:
        """Return the seeds of which both sides of a claim were trained before it was registered.

        A training that was repeated since, of the same specification and seed, gives the same numbers as the first.
        """
        since = self.experiment.registered.get(registration.digest(claim))
        if since is None or not self._trains:
            return []
        ends = {seed: [self._first_finished(run) for run in self._trainings(claim, seed)] for seed in seeds}
        return [seed for seed, times in ends.items() if times and all(times) and max(map(_moment, times)) < since]

    def trained_since(self, claim: Claim, seeds: Sequence[int], moment: datetime) -> bool:
        """True if the trainings of all seeds of both sides first ended after a moment, as far as that is known."""
        times = [self._first_finished(run) for seed in seeds for run in self._trainings(claim, seed)]
        return bool(times) and all(times) and min(map(_moment, times)) > moment

    def models(self, claim: Claim) -> str:
        """One model or two: whether both sides are the same training; empty where a side is none."""
        sides = [self.experiment.variant(side.of) for side in (claim.left, claim.right)]
        if not self._trains or any(side is None for side in sides):
            return ""
        left, right = (self.spec(side.of).training for side in (claim.left, claim.right))
        return "one model" if left == right else "two models"

    def untrained(self, claim: Claim) -> str:
        """Return which side is asked beyond its training length with learned positions; nothing where none is.

        Their rows are untrained there: the numbers are about random starts, not about a normalizer.
        """
        for side in (claim.left, claim.right):
            if claim.ungated or not self._trains or self.experiment.variant(side.of) is None:
                continue
            spec = self.spec(side.of)
            positions, stop = spec.test.positions or spec.model.positions, spec.train.curriculum.stop
            lengths = [length for length in side.cells.get("length", ()) if length > stop]
            if lengths and positions.partition(":")[0] == "learned":
                return f"learned positions of {side.of} are untrained beyond a length of {stop}"
        return ""

    def blocks(self, claim: Claim, seeds: Sequence[int]) -> list[int]:
        """Return the block of each seed, numbered: commit and class of machine of the trainings of both sides.

        Empty where nothing is trained, or where the environment of a run is not known.
        """
        if not self._trains:
            return []
        found = [tuple(_origin(run.env()) for run in self._trainings(claim, seed)) for seed in seeds]
        known = all(block and all(all(part) for part in block) for block in found)
        numbers = {block: number for number, block in enumerate(dict.fromkeys(found))}
        return [numbers[block] for block in found] if known else []

    def changed(self, claim: Claim, seeds: Sequence[int]) -> list[str]:
        """Return the differences of the code and versions of both sides' runs from those of now (``provenance``)."""
        runs = [run for seed in seeds for run in self._trainings(claim, seed)] if self._trains else []
        return sorted({difference.kind for _, difference in provenance.changed(runs)})

    @property
    def _trains(self) -> bool:
        question = self.experiment.question()
        return question is None or question.trains

    def _trainings(self, claim: Claim, seed: int) -> list[Run]:
        """Trainings of a seed of both sides, as far as they are trained models."""
        sides = dict.fromkeys(side.of for side in (claim.left, claim.right))
        runs = [self.tested_by(of, seed) for of in sides if self.experiment.variant(of) is not None]
        return [run for run in runs if run.recorded]

    def _first_finished(self, run: Run) -> str:
        """Time at which a training of this specification and seed first ended; empty where it is not known."""
        held = None if self.store.archive is None else self.store.archive.run(run.key)
        versions = [json.loads(foreign.shallow(env)) for env in held.versions(ENVIRONMENT)] if held is not None else []
        times = [str(env["finished"]) for env in (*versions, run.env()) if env.get("finished")]
        return min(times, key=_moment, default="")

    def measured(self, of: str, seed: int) -> tuple[Grid, Errors | None]:
        """Return the grid of a run and what each prompt adds to it, where that is kept."""
        return self._measured(self.spec(of), seed, self.variant(of).tested_with)

    def errors_of_reference(self, of: str, cells: Sequence[Mapping[str, float]]) -> Errors:
        """Return what each prompt adds to the headline of a reference in cells of the test: measured now, not kept."""
        spec = self.spec(of)
        asked = {axis: {cell[axis] for cell in cells if axis in cell} for axis in spec.test.axes}
        # The lengths stay as they are: prompts of the others may be cut from those of the greatest.
        axes = {axis: sorted(asked[axis]) or values for axis, values in spec.test.axes.items() if axis != "length"}
        test = replace(spec.test, axes=spec.test.axes | axes)
        return _errors_of_reference(spec.task, of.partition(":")[2], msgspec.json.encode(test))

    def errors_in_distribution(self, of: str, seed: int) -> Mapping[str, float]:
        """Return the errors in training conditions of a trained model, with its own normalizer, and of the references.

        A model that a claim reads with another position code is asked with that of its training, where it was tested
        with both: another code may cost what it has learned. Empty where the model has no grid, or one that leaves
        training conditions out.
        """
        run = self.tested_by(of, seed)
        key = (run.spec.hash, seed)
        if key not in self._in_distribution and run.finished:
            grid = self._measured(run.spec, seed, "")[0]
            known = not summary.left_out(grid, self.task, run.spec)
            self._in_distribution[key] = summary.errors_in_distribution([grid], self.task, run.spec) if known else {}
        return self._in_distribution.get(key, {})

    def why_unknown(self, of: str, seeds: Iterable[int]) -> str:
        """Return why no model of these seeds has an error in training conditions, in words; nothing if it does.

        As a grid of theirs says: no seed has one, or which training conditions the first leaves out.
        """
        run = next((run for seed in seeds if (run := self.tested_by(of, seed)).finished), None)
        if run is None:
            return "not tested"
        return summary.left_out(self._measured(run.spec, run.seed, "")[0], self.task, run.spec)

    def tested_by(self, of: str, seed: int) -> Run:
        """The run, finished or not, whose test shows what a model has learned: with its own normalizer.

        And with the position code of its training, where there is such a test.
        """
        spec = self.spec(of)
        if spec.test.positions:
            plain = self.store.run(replace(spec, test=replace(spec.test, positions="")), seed)
            if plain.finished:
                return plain
        return self.store.run(spec, seed)

    def _measured(self, spec: RunSpec, seed: int, swap: str) -> tuple[Grid, Errors | None]:
        key = (spec.hash, seed, swap)
        if key not in self._read:
            self._read[key] = self.store.run(spec, seed, swap).measured()
        return self._read[key]


def _origin(env: Mapping[str, Any]) -> tuple[str, str]:
    """Commit and class of machine of a training."""
    return env.get("commit", ""), env.get("machine", "")


def _moment(time: str) -> datetime:
    """A time as environments hold it; one without a zone is UTC."""
    read = datetime.fromisoformat(time)
    return read if read.tzinfo else read.replace(tzinfo=UTC)


@lru_cache(maxsize=64)  # of experiments at several scales it is often the same
def _errors_of_reference(task_choice: str, name: str, test: bytes) -> Errors:
    """Contribution of each prompt of a test, a ``TestSpec`` as JSON, to the headline of a reference."""
    task = tasks.build(task_choice)
    predict = task.references()[name]
    return measure({name: Subject(predict)}, task, msgspec.json.decode(test, type=TestSpec)).errors


def unlearned(finished: Finished, claim: Claim, seeds: Sequence[int]) -> str:
    """Return which side of a claim has not learned its task, and why; nothing where both have, or none is far out.

    Formula: ``summary.has_learned``, of the normalized errors in training conditions. Runs without a grid, or whose
    grid leaves training conditions out, say nothing.
    """
    if claim.ungated:
        return ""
    for side in (claim.left, claim.right):
        if finished.experiment.variant(side.of) is None or not far(side, finished):
            continue
        shares = _shares(finished, side.of, seeds)
        if shares and not summary.has_learned(shares):
            return (
                f"{side.of} has not learned its task: in training conditions it errs {median(shares):.2g} times as "
                "much as the best trivial reference, counted from the best of all"
            )
    return ""


def unlearned_counts(finished: Finished, claim: Claim, seeds: Sequence[int]) -> str:
    """Return how many tested models of each side have not learned the task, in words; empty where all have.

    The median says nothing about them, and an effect over seeds of which some have learned is one of two kinds mixed.
    Where no model was tested in training conditions it is not known, and said.
    """
    counts: list[str] = []
    unknown: dict[str, list[str]] = {}  # why -> which sides
    for of in dict.fromkeys(side.of for side in (claim.left, claim.right)):
        if finished.experiment.variant(of) is None:
            continue
        shares = _shares(finished, of, seeds)
        if lost := sum(not summary.has_learned([share]) for share in shares):
            counts.append(f"{lost} of {len(shares)} of {of}")
        if not shares and not claim.ungated and (reason := _unknown(finished, of, seeds)):
            unknown.setdefault(reason, []).append(of)
    counted = [f"tested models that have not learned: {', '.join(counts)}"] if counts else []
    named = {why: " and ".join(f"'{of}'" for of in sides) for why, sides in unknown.items()}
    unsure = [f"not known whether {sides} learned the task: {why}" for why, sides in named.items()]
    return "; ".join(counted + unsure)


def far(side: Quantity, finished: Finished) -> bool:
    """True if the cells of a side lie outside training conditions; cells of an analysis' own axes do, or all of it."""
    spec = finished.spec(side.of)
    here = summary.training_cell(finished.task, spec)
    if any(axis not in here or value != here[axis] for axis, values in side.cells.items() for value in values):
        return True
    asked = finished.experiment.question()
    return asked is not None and asked.beyond(spec)


def _unknown(finished: Finished, of: str, seeds: Sequence[int]) -> str:
    """Why it is not known of any of these seeds; empty where it is, and where a task has nothing to tell it by."""
    question = finished.experiment.question()
    trained = question is None or question.trains
    return finished.why_unknown(of, seeds) if seeds and trained and finished.task.trivial else ""


def _shares(finished: Finished, of: str, seeds: Sequence[int]) -> list[float]:
    """Normalised training error per seed; seeds without a grid are skipped."""
    return [share for seed in seeds if (share := _share(finished, of, seed)) is not None]


def _share(finished: Finished, of: str, seed: int) -> float | None:
    values = finished.errors_in_distribution(of, seed)
    return summary.normalized_error(values, finished.spec(of).attn, finished.task) if values else None
