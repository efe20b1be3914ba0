"""Which seeds to spend next: on the claims that the least computing decides."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from icl_lab.analyses.earlier import Earlier
from icl_lab.comparison.sequential import SPENT
from icl_lab.papers import experiment as experiments
from icl_lab.papers import study
from icl_lab.papers.cost import Costs
from icl_lab.papers.finished import Finished
from icl_lab.papers.schema import Claim, Experiment
from icl_lab.papers.verdicts import LIKELY, Finding
from icl_lab.runs import reuse
from icl_lab.runs.run import Run

OPEN = ("inconclusive", "one seed", "not run")
FIRST = min(SPENT)
FIRST_DECIDES = 0.4  # of claims: 141 of the 356, at all scales, that the ledger of November 2026 has looked at


@dataclass(frozen=True)
class Step:
    """What brings open claims of one experiment to their next look."""

    experiment: str
    claims: tuple[str, ...]  # the open claims that are looked at then
    variants: tuple[str, ...]  # that they hang on
    seeds: int  # that they have then
    runs: tuple[Run, ...]  # that are missing
    seconds: float  # of these runs on one core, trainings and tests; NaN where no run tells
    worth: float  # claims that one hour of one core is expected to decide


def step(
    name: str,
    finished: Finished,
    findings: Sequence[Finding],
    costs: Costs,
    before: Callable[[Experiment], Earlier | None] = lambda asked: None,
) -> Step | None:
    """Returns the next step of an experiment; None where nothing is open, or nothing open can be decided.

    A claim is worth the more the fewer hours a verdict costs, those that are spent in vain among them (``Prospect``);
    one without three seeds has a first look ahead, which decides ``FIRST_DECIDES`` of all. One that 64 seeds decide
    with a chance below ``LIKELY``, because the effect or the luck of the test prompts is in the way, is left. An
    analysis is asked of the variants that these claims hang on; models that it has asked ``before`` are not needed
    again.
    """
    chances = [chance for found in findings if (chance := _chance(finished, found, costs)) is not None]
    if not chances:
        return None
    seeds = min(chance.seeds for chance in chances)  # the next look of the claims that have fewest
    now = [chance for chance in chances if chance.seeds == seeds]
    variants = finished.variants_for(chance.claim for chance in now)
    asked = experiments.only(finished.experiment, variants)
    runs = {run.place: run for run in _missing(finished, variants, seeds, before(asked))}
    statements = tuple(chance.claim.statement for chance in now)
    if not runs:  # what there is has not been looked at: an analysis was not asked again
        return Step(name, statements, tuple(variants), seeds, (), 0.0, math.inf)
    # One training, however many rules are swapped in after it, and in however many ways it is tested.
    left = (run for run in runs.values() if not reuse.there(run))
    trainings = {run.training: run.spec for run in left}
    taken = sum(map(costs.training, trainings.values()))
    if finished.experiment.tested:
        taken += sum(costs.test(run.spec) for run in runs.values() if not run.finished)
    worth = sum(1 / chance.hours if chance.hours else math.inf for chance in now)
    return Step(name, statements, tuple(variants), seeds, tuple(runs.values()), taken, worth)


@dataclass(frozen=True)
class _Chance:
    """An open claim: its next look, and the hours of one core that a verdict is expected to cost."""

    claim: Claim
    seeds: int
    hours: float


def _chance(finished: Finished, found: Finding, costs: Costs) -> _Chance | None:
    if found.verdict not in OPEN or found.note:  # a note: the test grid has no such cell
        return None
    have = _have(finished, found)
    after = next((look for look in SPENT if look > len(found.seeds)), math.inf)
    if not math.isfinite(after) or (have >= FIRST and found.prospect.chance < LIKELY):
        return None
    # Seeds may be there that were not looked at, where an analysis was not asked again.
    price = (FIRST - have) / FIRST_DECIDES if have < FIRST else found.prospect.price - (have - len(found.seeds))
    hours = max(0.0, price) * costs.seed(finished, found.claim) / 3600
    return _Chance(found.claim, int(after) + len(found.passed) + len(found.suggested_by), hours)


def _have(finished: Finished, found: Finding) -> int:
    """The seeds that all runs of a claim have by now, looked at or not."""
    if finished.experiment.question() is None:
        return len(set(finished.seeds_of_both(found.claim)) - set(found.suggested_by))
    return len(found.seeds)


def _missing(finished: Finished, variants: Sequence[str], seeds: int, before: Earlier | None) -> list[Run]:
    """The runs of variants that a look at so many seeds lacks; for an analysis, those without a model or its test."""
    experiment, store = finished.experiment, finished.store
    rules = {name: finished.variant(name).tested_with for name in variants}
    members = {
        name: [store.run(finished.specs[name], seed, swap) for seed in range(seeds)] for name, swap in rules.items()
    }
    analysis = experiment.question()
    loads = analysis is not None and analysis.reads_models

    def ready(run: Run) -> bool:
        model = run.trained or bool(run.diverged) or (run.finished and not loads)
        return model and (run.finished or not experiment.tested)

    return [run for run in study.lacking(experiment, members, before) if not ready(run)]
