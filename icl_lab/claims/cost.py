"""Cost of one more seed of a claim: measured on the runs that are there, else by counting operations."""

import math
from collections.abc import Callable
from statistics import median

from icl_lab.claims.finished import Finished
from icl_lab.claims.schema import Claim
from icl_lab.runs import estimate
from icl_lab.runs.run import Run
from icl_lab.runs.spec import RunSpec
from icl_lab.runs.store import Store


class Costs:
    """The seconds that trainings and tests take at one scale; each kind of training is looked up once."""

    def __init__(self, store: Store, preset: str) -> None:
        self._store, self._preset = store, preset
        self._known: dict[str, float] = {}
        self._paces: dict[str, float] = {}

    def training(self, spec: RunSpec) -> float:
        """Return the seconds of a training, the median of its like; NaN where unknown.

        One without a stored run takes its operations at the median pace of its task's runs at the scale.
        """
        if spec.hash not in self._known:
            taken = of_run(self._store, spec)
            self._known[spec.hash] = self._at_pace(estimate.training_operations, spec) if math.isnan(taken) else taken
        return self._known[spec.hash]

    def test(self, spec: RunSpec) -> float:
        """Return the seconds of a test: its operations at the pace of trainings; NaN where unknown."""
        return self._at_pace(estimate.test_operations, spec)

    def seed(self, finished: Finished, claim: Claim) -> float:
        """Return the seconds for one more seed of both sides of a claim; NaN where unknown."""
        return sum(map(self.training, needed(finished, claim))) + sum(map(self.test, tests(finished, claim)))

    def _at_pace(self, operations: Callable[[RunSpec], float], spec: RunSpec) -> float:
        if spec.task not in self._paces:
            self._paces[spec.task] = pace(self._store, self._preset, spec.task)
        return operations(spec) * self._paces[spec.task]


def pace(store: Store, preset: str, task: str) -> float:
    """Return the seconds of one operation, the median over the runs of a task at a scale; NaN where there are none.

    Other tasks are not looked at: their files, or the packages that they need, may not be here.
    """
    found = [
        seconds / estimate.training_operations(run.spec)
        for run in store.runs(lambda _: None, preset)
        if run.spec.task == task and (seconds := _taken(run, run.spec)) is not None
    ]
    return median(found) if found else math.nan


def needed(finished: Finished, claim: Claim) -> list[RunSpec]:
    """Return what must be trained for a claim: each training once.

    Of specifications that differ in nothing but their test it is one that has runs, where there is any.
    """
    analysis = finished.experiment.question()
    if analysis is not None and not analysis.trains:
        return []
    specs = [finished.specs[name] for name in finished.variants_for([claim])]
    known_last = sorted(specs, key=lambda spec: bool(finished.store.seeds(spec)))
    return list({spec.training.hash: spec for spec in known_last}.values())


def tests(finished: Finished, claim: Claim) -> list[RunSpec]:
    """Return the tests that a claim reads, each normalizer in a model once.

    Of an analysis that reads no grid its models with their own normalizers, so that it is known whether they have
    learned.
    """
    experiment = finished.experiment
    if not experiment.tested:
        return []
    names = finished.variants_for([claim])
    rules = {of: finished.variant(of).tested_with if experiment.read_from_tests else "" for of in names}
    found = {(finished.spec(of).hash, rule): finished.spec(of) for of, rule in rules.items()}
    return list(found.values())


def of_run(store: Store, spec: RunSpec) -> float:
    """Return the seconds that a training of this kind took, the median over its runs; NaN without any."""
    found = [taken for seed in store.seeds(spec) if (taken := _taken(store.run(spec, seed), spec)) is not None]
    return median(found) if found else math.nan


def _taken(run: Run, spec: RunSpec) -> float | None:
    """Seconds of the whole training, from those of the steps that were timed; None where that is not known."""
    if not (run.finished or run.trained):
        return None
    env = run.env()
    timed, stacked = env.get("steps_timed", 0), env.get("stacked", 1)
    if timed < spec.train.steps / 2:  # what a training that was taken up again did at its end says little of the whole
        return None
    return float(env["seconds"] / timed * spec.train.steps / stacked)
