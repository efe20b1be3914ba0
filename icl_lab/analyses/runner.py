"""Run an analysis: load the models of each label, or train those that are missing, and ask one after the other."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TypeVar

from icl_lab import tasks
from icl_lab.analyses.findings import TrainedModel
from icl_lab.analyses.frame import AnalysisOf, AnyAnalysis, F, M, S
from icl_lab.base.errors import BadValue, RunFailed, Stopped
from icl_lab.pipeline import load_or_train
from icl_lab.runs.run import Run
from icl_lab.runs.session import Lab
from icl_lab.runs.summary import training_cell

A = TypeVar("A", bound=AnyAnalysis)
Groups = Mapping[str, Sequence[Run]]  # a label -> the runs of its training seeds


def labels(runs: Sequence[Run]) -> dict[str, list[Run]]:
    """Group runs by their normalizer, in order of appearance; two specifications of one get their hashes."""
    specs: dict[str, list[str]] = {}
    for run in runs:
        known = specs.setdefault(run.name, [])
        if run.spec.hash not in known:
            known.append(run.spec.hash)
    groups: dict[str, list[Run]] = {}
    for run in runs:
        several = len(specs[run.name]) > 1
        groups.setdefault(f"{run.name} {run.spec.preset}-{run.spec.hash}" if several else run.name, []).append(run)
    return groups


def checked(analysis: A, groups: Groups) -> A:
    """Return the analysis prepared for these runs; raises ``BadValue`` where it cannot ask them."""
    runs = [run for seeds in groups.values() for run in seeds]
    if analysis.most is not None and len(runs) > analysis.most:
        raise BadValue(f"{analysis.name} takes at most {analysis.most} runs, got {len(runs)}.")
    for label, seeds in groups.items():
        _once(label, seeds)
    for run in runs:
        analysis.check(run.spec)
        if run.spec.test.draws == "paper":  # what cannot be drawn again is said before anything is trained
            task = tasks.build(run.spec.task)
            here = training_cell(task, run.spec)
            task.published(int(here.pop("length")), **here)
    return analysis.prepared(runs)


def _once(label: str, runs: Sequence[Run]) -> None:
    seen: dict[int, Run] = {}
    for run in runs:
        if (other := seen.setdefault(run.seed, run)) is not run:
            raise BadValue(f"{label}, seed {run.seed}, is there twice: {other.folder} and {run.folder}.")


def ask(
    analysis: AnalysisOf[M, S, F],
    groups: Groups,
    lab: Lab,
    known: Callable[[str, Run], M | None] = lambda label, run: None,
) -> F:
    """Ask the models of each label, trained where missing; prompts that they share are drawn by address.

    Those that are ``known`` are not asked again: their rows join the rest.

    Raises ``BadValue`` where the analysis cannot ask them, and ``Stopped`` between two models when asked to stop.
    """
    analysis = checked(analysis, groups)
    runs = [(label, run) for label, seeds in groups.items() for run in seeds if not run.diverged]
    if not runs:
        raise RunFailed("every training diverged: there is no model to ask.")
    answers = []
    for number, (label, run) in enumerate(runs):

        def tick(done: int, total: int, before: int = number, label: str = label) -> None:
            # In percent of a model, so that the bar does not depend on the steps that an analysis counts.
            if done < total:
                lab.tick(analysis.name, 100 * before + 100 * done // total, 100 * len(runs), label)
            if lab.stopping():
                raise Stopped("stopped; nothing was written, and the models that are trained are kept.")

        load = partial(load_or_train, run, lab)
        trained = TrainedModel(label, run, load, tasks.build(run.spec.task), lab, number == 0, tick)
        found = known(label, run)
        # Here, because the analysis may measure without gradients, and a training needs them.
        if found is None and analysis.reads_models:
            _ = trained.model
        answers.append((trained, analysis.measure(trained) if found is None else found))
        lab.tick(analysis.name, 100 * (number + 1), 100 * len(runs), label)
        tick(1, 1)
    return analysis.collect(answers)
