"""Cost of one more seed of a claim: measured on the runs that are there, else by counting operations."""

import math
from functools import cached_property
from itertools import groupby
from statistics import median

from icl_lab.claims.schema import Claim
from icl_lab.claims.sides import Sides
from icl_lab.runs import estimate
from icl_lab.runs.run import Run
from icl_lab.runs.spec import RunSpec
from icl_lab.runs.store import Store


class Costs:
    """The seconds that trainings and tests take at one scale; each specification is looked up once."""

    def __init__(self, store: Store, preset: str) -> None:
        self._store, self._preset = store, preset
        self._trainings: dict[str, float] = {}
        self._tests: dict[str, float] = {}
        self._paces: dict[str, float] = {}

    def training(self, spec: RunSpec) -> float:
        """Return the seconds of a training, the median of its like; NaN where unknown.

        One without a stored run takes its operations at the median pace of its task's runs at the scale.
        """
        if spec.hash not in self._trainings:
            taken = of_run(self._store, spec)
            operations = estimate.training_operations(spec) if math.isnan(taken) else 0.0
            self._trainings[spec.hash] = operations * self._pace(spec.task) if math.isnan(taken) else taken
        return self._trainings[spec.hash]

    def test(self, spec: RunSpec) -> float:
        """Return the seconds of a test: its operations at the pace of trainings; NaN where unknown."""
        if spec.hash not in self._tests:
            self._tests[spec.hash] = estimate.test_operations(spec) * self._pace(spec.task)
        return self._tests[spec.hash]

    def seed(self, sides: Sides, claim: Claim) -> float:
        """Return the seconds for one more seed of both sides of a claim; NaN where unknown."""
        return sum(map(self.training, needed(sides, claim))) + sum(map(self.test, tests(sides, claim)))

    def _pace(self, task: str) -> float:
        """Seconds of one operation, the median over the runs of a task at the scale; NaN where there are none.

        Other tasks are not looked at: their files, or the packages that they need, may not be here.
        """
        if task not in self._paces:
            taken = ((run, seconds_of(run, run.spec)) for run in self._runs.get(task, ()))
            known = [seconds / estimate.training_operations(run.spec) for run, seconds in taken if seconds is not None]
            self._paces[task] = median(known) if known else math.nan
        return self._paces[task]

    @cached_property
    def _runs(self) -> dict[str, list[Run]]:
        """Runs at the scale by their task."""
        runs = sorted(self._store.runs(lambda _: None, self._preset), key=lambda run: run.spec.task)
        return {task: list(group) for task, group in groupby(runs, key=lambda run: run.spec.task)}


def needed(sides: Sides, claim: Claim) -> list[RunSpec]:
    """Return what must be trained for a claim: each training once.

    Of specifications that differ in nothing but their test it is one that has runs, where there is any.
    """
    if not sides.trains:
        return []
    specs = [sides.specs[name] for name in sides.variants_for([claim])]
    known_last = sorted(specs, key=lambda spec: bool(sides.store.seeds(spec)))
    return list({spec.training.hash: spec for spec in known_last}.values())


def tests(sides: Sides, claim: Claim) -> list[RunSpec]:
    """Return the tests that a claim reads, each normalizer in a model once.

    Of an analysis that reads no grid its models with their own normalizers, so that it is known whether they have
    learned.
    """
    experiment = sides.experiment
    if not experiment.tested:
        return []
    names = sides.variants_for([claim])
    rules = {of: sides.variant(of).tested_with if experiment.read_from_tests else "" for of in names}
    found = {(sides.spec(of).hash, rule): sides.spec(of) for of, rule in rules.items()}
    return list(found.values())


def of_run(store: Store, spec: RunSpec) -> float:
    """Return the seconds that a training of this kind took, the median over its runs; NaN without any."""
    found = [taken for seed in store.seeds(spec) if (taken := seconds_of(store.run(spec, seed), spec)) is not None]
    return median(found) if found else math.nan


def seconds_of(run: Run, spec: RunSpec) -> float | None:
    """Seconds of the whole training, from those of the steps that were timed; None where that is not known."""
    if not (run.finished or run.trained):
        return None
    env = run.env()
    timed, stacked = env.get("steps_timed", 0), env.get("stacked", 1)
    if timed < spec.train.steps / 2:  # what a training that was taken up again did at its end says little of the whole
        return None
    return float(env["seconds"] / timed * spec.train.steps / stacked)
