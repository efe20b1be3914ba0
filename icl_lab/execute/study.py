"""From runs to the folder of a study: a comparison, or an analysis of models. The one way, whoever asks."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec

from icl_lab import normalizers, pipeline
from icl_lab.analyses import earlier_studies, registry, runner
from icl_lab.analyses import publish as answers
from icl_lab.analyses.frame import AnyAnalysis
from icl_lab.base.errors import BadValue, Unfinished
from icl_lab.base.markdown import listed
from icl_lab.comparison import ablations, rescaled
from icl_lab.comparison.gather import described, gather, publish
from icl_lab.execute.complete import check_asked, complete
from icl_lab.execute.plan import RunPlan
from icl_lab.execute.where import Where
from icl_lab.runs import reuse, study_folder
from icl_lab.runs.evidence.archive import own_studies
from icl_lab.runs.lock import Say
from icl_lab.runs.manifest import WEIGHTS
from icl_lab.runs.run import Run
from icl_lab.runs.session import Lab
from icl_lab.runs.store import by_rule
from icl_lab.runs.study_folder import Member, StudyRecord


@dataclass(frozen=True)
class Made:
    """A study in its folder: result, table as text, names of files, and the analysis."""

    found: Any
    text: str
    folder: Path
    files: Sequence[str]
    asked: Any = None


def compare(runs: Sequence[Run], lab: Lab, baseline: str, where: Where, *, own: bool = False) -> Made:
    """Compare the normalizers of runs with one of them, paired over seeds; train missing runs.

    ``own``: the runs are at the best learning rates of each normalizer's curve.

    Raises ``BadValue`` before any training where there is nothing to compare, or no such model, and ``Unfinished``
    where runs are left.
    """
    rules = list(dict.fromkeys(run.spec.attn for run in runs))
    if len(rules) < 2:
        raise BadValue(f"a comparison needs at least two different normalizers, got {', '.join(rules) or 'none'}.")
    chosen = normalizers.canonical(baseline)
    if chosen not in rules:
        raise BadValue(f"The baseline '{baseline}' is not among {', '.join(rules)}.")
    groups = by_rule(runs)
    return _compared(described(groups, chosen, lab.command, own=own), groups, lab, where, own=own)


def _compared(
    record: StudyRecord, groups: Mapping[str, Sequence[Run]], lab: Lab, where: Where, *, own: bool = False
) -> Made:
    """Finish the runs of a comparison, also with rescaled prompts, or of an ablation, and publish it."""
    baseline = str(record.options["baseline"])
    folder = study_folder.place(record, own_studies(lab.store.root), where.name, force=where.force)
    if not complete([run for runs in groups.values() for run in runs], lab, where):
        raise Unfinished(folder)
    if record.kind == "compare":
        test_rescaled(groups[baseline], lab)
    study = gather(groups, baseline, lab.store if own else None)
    text, files = publish(study, groups, folder, record, tick=lab.tick, show=lab.show)
    lab.tracked.study(folder, text)
    return Made(study, text, folder, files)


def test_rescaled(runs: Sequence[Run], lab: Lab) -> None:
    """Test models of a comparison's baseline with rescaled prompts, where all of their weights are there."""
    others = rescaled.runs_of(runs)
    if all(run.finished or reuse.has_model(run) for run in others):
        for run in others:
            pipeline.sweep(run.spec, run.seed, lab)


def complete_for(analysis: AnyAnalysis | None, runs: Sequence[Run], lab: Lab, where: Where, *, tested: bool) -> bool:
    """Finish runs so that they can be asked; return whether all are finished.

    ``tested`` says whether they are tested: to compare their grids (without an analysis), for an analysis that reads
    grids, or because it must be known whether models have learned their task. For that alone each model is tested with
    its own normalizer, whatever is swapped in when it is asked. An analysis that reads models wants their weights too,
    which the evidence keeps of few.
    """
    if analysis is not None and tested and not analysis.reads_grids:
        runs = list({run.folder: run.swapped("") for run in runs}.values())
    return complete(runs, lab, where, tested=tested, models=analysis is not None and analysis.reads_models)


def analyse(question: str, analysis: AnyAnalysis, runs: Sequence[Run], lab: Lab, where: Where) -> Made:
    """Run the analysis of that name on the models of runs; train missing runs and repeat nothing.

    Models that were asked before, and have not been trained again since, are not asked again, unless ``where.force``.

    Raises ``Unfinished`` where runs are left.
    """
    groups = runner.labels(runs)
    check_asked(analysis, runs, lab)
    analysis = runner.checked(analysis, groups)
    study = answers.record(question, analysis, groups, lab.command)
    place = study_folder.place(study, own_studies(lab.store.root), where.name, analysis.tag, where.force)
    before, lacking = None if where.force else asked_before(study, analysis, groups, lab), analysis.lacking(runs)
    if before is not None:
        tell_before(before.folders(study), lab.say, "--force")
        lacking = before.unasked(lacking, groups, analysis.reads_grids)
        study = msgspec.structs.replace(study, asked=before.commits(study))
    if not complete_for(analysis, lacking, lab, replace(where, retrain=False), tested=analysis.reads_grids):
        raise Unfinished(place)
    found = runner.ask(analysis, groups, lab, *([before.rows] if before is not None else []))
    text = answers.publish(study, analysis, found, groups, place, show=lab.show)
    lab.tracked.study(place, text)
    return Made(found, text, place, answers.written(place), analysis)


def asked_before(
    study: StudyRecord, analysis: AnyAnalysis, groups: runner.Groups, lab: Lab
) -> earlier_studies.EarlierStudies | None:
    """Return the stored answers of models to this question; None where there are none.

    A study in which a model stands that was trained or tested again since is none of them, nor is one of the
    repository's that holds a run of the user's own. An analysis from outside may have been edited: it asks again.
    """
    if registry.source(study.kind) is not None:
        return None
    runs = {Member.of(label, run): run for label, group in groups.items() for run in group}
    mine = own_studies(lab.store.root)
    places = [*lab.store.studies(mine, "*/"), *lab.store.studies(mine / "experiments", "*/")]

    def current(place: Path, known: StudyRecord) -> bool:
        made = (place / study_folder.RECORD).stat().st_mtime if place.is_relative_to(mine) else 0.0
        return all(_written(runs[member]) <= made for member in known.runs if member in runs)

    return earlier_studies.find(study, analysis, places, lab.say, current)


def _written(run: Run) -> float:
    """When the weights or the test of an own run were last written; 0 of a run without."""
    files = (run.folder / WEIGHTS, run.place / "grid.csv")
    return max((file.stat().st_mtime for file in files if file.exists()), default=0.0)


def tell_before(folders: Sequence[Path], say: Say, way_out: str) -> None:
    """Say which folders numbers of models that were asked before are taken from, and by which option they are not."""
    if folders:
        say(f"what was asked before is taken from {listed(map(str, folders))}; {way_out} asks again.")


def ablate(plan: RunPlan, lab: Lab, where: Where) -> Made:
    """Leave one part of a model out at a time, and compare with the whole. Raises ``Unfinished`` where runs are left.

    Raises ``BadValue`` where several normalizers are asked for.
    """
    whole, *others = replace(plan, seeds=[0]).runs(lab.store)
    if others:
        raise BadValue("an ablation is of one normalizer: give --attn once.")
    specs = ablations.ablations(whole.spec, tuple(plan.changes))
    groups = {part: [lab.store.run(spec, seed) for seed in plan.seeds] for part, spec in specs.items()}
    title = f"{whole.spec.task}, {whole.spec.attn}: one part less"
    return _compared(described(groups, ablations.WHOLE, lab.command, title, "ablate"), groups, lab, where)
