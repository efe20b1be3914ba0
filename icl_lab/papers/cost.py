"""What one more seed of a claim costs: measured on the runs that are there."""

import math
from collections.abc import Sequence
from statistics import median

from icl_lab.papers.experiment import Claim, Experiment
from icl_lab.runs.spec import RunSpec
from icl_lab.runs.store import Run, Store


def seconds(experiment: Experiment, claim: Claim, store: Store, preset: str, settings: Sequence[str]) -> float:
    """Returns the seconds of training for one more seed of both sides of a claim; NaN where no run tells.

    A specification that both sides share is trained once, and counts once.
    """
    variants = [experiment.variant(side.of) for side in (claim.left, claim.right)]
    if None in variants and experiment.analysis != "compare":
        variants = list(experiment.variants)  # sides that an analysis names itself
    specs = {spec.hash: spec for spec in (experiment.spec(v, preset, settings) for v in variants if v is not None)}
    return sum(of_run(store, spec) for spec in specs.values()) if specs else math.nan


def of_run(store: Store, spec: RunSpec) -> float:
    """Returns the seconds that a training of this kind took, the median over its runs; NaN without any."""
    found = [taken for seed in store.seeds(spec) if (taken := _taken(store.run(spec, seed), spec)) is not None]
    return median(found) if found else math.nan


def _taken(run: Run, spec: RunSpec) -> float | None:
    """Seconds of the whole training, from those of the steps that were timed; None where that is not known."""
    if not (run.finished or run.trained):
        return None
    env = run.env()
    timed, stacked = env.get("steps_timed", 0), env.get("stacked", 1)
    return env["seconds"] / timed * spec.train.steps / stacked if timed else None
