"""The finished runs of an experiment at one scale: which there are, what they measured, what models have learned."""

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property, lru_cache

import msgspec
from msgspec.structs import replace

from icl_lab import tasks
from icl_lab.comparison import outside
from icl_lab.comparison.outside import Outside
from icl_lab.errors import LabError
from icl_lab.grid import Grid
from icl_lab.papers.schema import PRINTED, PROMPTED, Claim, Experiment, Variant
from icl_lab.runs import summary
from icl_lab.runs.measure import Errors, Subject, TestSpec, measure
from icl_lab.runs.run import Run
from icl_lab.runs.spec import RunSpec
from icl_lab.runs.store import Store


class Finished:
    """The finished runs of an experiment at one scale, each read once."""

    def __init__(self, experiment: Experiment, store: Store, preset: str, settings: Sequence[str] = ()) -> None:
        self.experiment, self.store = experiment, store
        self.specs = {variant.name: experiment.spec(variant, preset, settings) for variant in experiment.variants}
        self.task = tasks.build(experiment.task)
        self._read: dict[tuple[str, int, str], tuple[Grid, Errors | None]] = {}
        self._in_distribution: dict[tuple[str, int], dict[str, float]] = {}

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

    def tested(self, of: str) -> tuple[str, str]:
        """Returns the hash of a variant's specification, and the rule put in for its test (empty: its own)."""
        return self.spec(of).hash, self.variant(of).tested_with

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
        spec, swap = self.spec(of), self.variant(of).tested_with
        return {seed for seed in self.store.seeds(spec) if self.store.run(spec, seed, swap).finished}

    def seeds_of_both(self, claim: Claim) -> list[int]:
        """Returns the training seeds of which both sides of a claim have a finished run, ascending."""
        return sorted(self.seeds(claim.left.of) & self.seeds(claim.right.of))

    def measured(self, of: str, seed: int) -> tuple[Grid, Errors | None]:
        """Returns the grid of a run and what each prompt adds to it, where that is kept."""
        return self._measured(self.spec(of), seed, self.variant(of).tested_with)

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

    def errors_in_distribution(self, of: str, seed: int) -> Mapping[str, float]:
        """Returns the errors in training conditions of a trained model, with its own rule, and of the references.

        A model that a claim reads with another position code is asked with that of its training, where it was tested
        with both: another code may cost what it has learned. Empty where the model has no grid, or one that leaves
        training conditions out.
        """
        run = self.tested_by(of, seed)
        key = (run.spec.hash, seed)
        if key not in self._in_distribution and run.finished:
            grid = self._measured(run.spec, seed, "")[0]
            known = not summary.left_out(grid, self.task, run.spec)
            self._in_distribution[key] = summary.at_home([grid], self.task, run.spec) if known else {}
        return self._in_distribution.get(key, {})

    def why_unknown(self, of: str, seeds: Iterable[int]) -> str:
        """Returns why no model of these seeds tells what it errs in training conditions, in words; nothing if it does.

        As a grid of theirs says: no seed has one, or which training conditions the first leaves out.
        """
        run = next((run for seed in seeds if (run := self.tested_by(of, seed)).finished), None)
        if run is None:
            return "not tested"
        return summary.left_out(self._measured(run.spec, run.seed, "")[0], self.task, run.spec)

    def tested_by(self, of: str, seed: int) -> Run:
        """The run, finished or not, whose test tells what a model has learned: with its own rule.

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


@lru_cache(maxsize=64)  # of experiments at several scales it is often the same
def _errors_of_reference(task_choice: str, name: str, test: bytes) -> Errors:
    """Contribution of each prompt of a test, a ``TestSpec`` as JSON, to the headline of a reference."""
    task = tasks.build(task_choice)
    predict = task.references()[name]
    return measure({name: Subject(predict)}, task, msgspec.json.decode(test, type=TestSpec)).errors
