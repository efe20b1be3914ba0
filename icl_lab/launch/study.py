"""From runs to the folder of a study: a comparison, or an analysis of models. The one way, whoever asks."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from icl_lab import normalizers, pipeline
from icl_lab.analyses import publish as answers
from icl_lab.analyses import runner
from icl_lab.analyses.frame import AnyAnalysis
from icl_lab.comparison import ablations, outside, rescaled
from icl_lab.comparison.gather import described, gather, publish
from icl_lab.comparison.sentences import sentence
from icl_lab.errors import BadValue, Unfinished
from icl_lab.evidence.archive import own_studies
from icl_lab.launch.complete import check_asked, complete, tell_evidence
from icl_lab.launch.plan import RunPlan
from icl_lab.launch.where import Where
from icl_lab.runs import reuse, study_folder
from icl_lab.runs.run import Run
from icl_lab.runs.session import Lab
from icl_lab.runs.store import by_rule


@dataclass(frozen=True)
class Made:
    """A study in its folder: what was found, its table as text, the names of its files, and the analysis that asked."""

    found: Any
    text: str
    folder: Path
    files: Sequence[str]
    asked: Any = None


def compare(runs: Sequence[Run], lab: Lab, baseline: str, where: Where) -> Made:
    """Compares the normalizers of runs with one of them, paired over seeds; trains what is missing.

    Raises ``BadValue`` before anything is trained where there is nothing to compare, or no such model, and
    ``Unfinished`` where runs are left.
    """
    rules = list(dict.fromkeys(run.spec.attn for run in runs))
    if len(rules) < 2:
        raise BadValue(f"a comparison needs at least two different normalizers, got {', '.join(rules) or 'none'}.")
    chosen = normalizers.canonical(baseline)
    if chosen not in rules:
        raise BadValue(f"The baseline '{baseline}' is not among {', '.join(rules)}.")
    groups = by_rule(runs)
    others = outside.read(where.neighbours, runs[0].spec.task)
    made = described(groups, chosen, lab.command, outside=others)
    folder = study_folder.place(made, own_studies(lab.store.root), where.name, force=where.force)
    if not complete(runs, lab, where):
        raise Unfinished(folder)
    test_rescaled(groups[chosen], lab)
    study = gather(groups, chosen, others)
    text, files = publish(study, groups, folder, made, tick=lab.tick, show=lab.show)
    lab.tracked.study(folder, f"{sentence(study)}\n\n{text}")
    return Made(study, text, folder, files)


def test_rescaled(runs: Sequence[Run], lab: Lab) -> None:
    """Tests models of a comparison's baseline with rescaled prompts, where all of their weights are there."""
    others = rescaled.runs_of(runs)
    if all(run.finished or reuse.there(run) for run in others):
        for run in others:
            pipeline.sweep(run.spec, run.seed, lab)


def stages(
    runs: Sequence[Run], analysis: AnyAnalysis | None, tested: bool, *, force: bool = False
) -> list[tuple[Sequence[Run], bool]]:
    """Returns what has to be done with runs before they can be asked: which of them, and whether they are tested too.

    ``tested`` says whether they are at all: to compare their grids (without an analysis), for an analysis that reads
    grids, or because it must be known whether models have learned their task. For that alone each model is tested with
    its own normalizer, whatever is swapped in when it is asked. Models of runs that are finished, but whose weights are
    not kept, are trained first, by as many at once as was ordered; with ``force`` everything is done afresh anyway.
    """
    if analysis is None or not tested:
        return [(runs, tested)]
    trained_first = analysis.reads_models and not force
    bare = [run for run in runs if run.finished and not run.trained] if trained_first else []
    asked = runs if analysis.reads_grids else list({run.folder: run.swapped("") for run in runs}.values())
    return [*([(bare, False)] if bare else []), (asked, True)]


def analyse(question: str, analysis: AnyAnalysis, runs: Sequence[Run], lab: Lab, where: Where) -> Made:
    """Asks the models of runs the question of that name; trains what is missing, and repeats nothing.

    Raises ``Unfinished`` where runs are left.
    """
    if not analysis.reads_grids:  # where tests are read as well, `complete` says so
        tell_evidence([run for run in runs if run.trained], lab.say)
    groups = runner.labels(runs)
    check_asked(analysis, runs, lab)
    analysis = runner.checked(analysis, groups)
    study = answers.record(question, analysis, groups, lab.command)
    place = study_folder.place(study, own_studies(lab.store.root), where.name, analysis.tag, where.force)
    todo = stages(analysis.lacking(runs), analysis, analysis.reads_grids)
    once = replace(where, force=False)
    done = [complete(stage, lab, once, tested=tested) for stage, tested in todo]  # each, though some is left to others
    if not all(done):
        raise Unfinished(place)
    found = runner.ask(analysis, groups, lab)
    text = answers.publish(study, analysis, found, groups, place, show=lab.show)
    lab.tracked.study(place, text)
    return Made(found, text, place, answers.written(place), analysis)


def ablate(plan: RunPlan, lab: Lab, where: Where) -> Made:
    """Leaves one part of a model out at a time, and compares with the whole. Raises ``Unfinished`` where runs are left.

    Raises ``BadValue`` where several normalizers are asked for.
    """
    whole, *others = replace(plan, seeds=[0]).runs(lab.store)
    if others:
        raise BadValue("an ablation is of one normalizer: give --attn once.")
    specs = ablations.ablations(whole.spec, tuple(plan.changes))
    groups = {part: [lab.store.run(spec, seed) for seed in plan.seeds] for part, spec in specs.items()}
    title = f"{whole.spec.task}, {whole.spec.attn}: one part less"
    made = described(groups, ablations.WHOLE, lab.command, title, "ablate")
    folder = study_folder.place(made, own_studies(lab.store.root), where.name, force=where.force)
    if not complete([run for runs in groups.values() for run in runs], lab, where):
        raise Unfinished(folder)
    study = gather(groups, ablations.WHOLE)
    text, files = publish(study, groups, folder, made, tick=lab.tick, show=lab.show)
    lab.tracked.study(folder, text)
    return Made(study, text, folder, files)
