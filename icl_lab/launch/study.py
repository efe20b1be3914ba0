"""From runs to the folder of a study: a comparison, or an analysis of models. The one way, whoever asks."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from icl_lab.errors import BadValue
from icl_lab.launch.complete import check_asked

if TYPE_CHECKING:
    from icl_lab.analyses.frame import AnyAnalysis
    from icl_lab.comparison.study import Study
    from icl_lab.runs.run import Run
    from icl_lab.runs.session import Lab

Finish = Callable[[Sequence["Run"], bool], bool]  # runs, whether tested -> whether all are there


@dataclass(frozen=True)
class Made:
    """A study in its folder: what was found, its table as text, the names of its files, and the analysis that asked."""

    found: Any
    text: str
    folder: Path
    files: Sequence[str]
    asked: Any = None


def compare(
    runs: Sequence["Run"],
    lab: "Lab",
    baseline: str,
    finish: Finish,
    *,
    name: str = "",
    force: bool = False,
    beside: Sequence[str | Path] = (),
) -> Made | None:
    """Compares the rules of runs with one of them, paired over seeds; None where ``finish`` left runs to others.

    ``beside`` are folders of prompted models, which become lines of the table and of the curves.

    Raises ``BadValue`` before anything is trained where there is nothing to compare, or no such model.
    """
    from icl_lab import normalizers
    from icl_lab.comparison import outside
    from icl_lab.comparison.gather import described, gather, publish
    from icl_lab.evidence.archive import own_studies
    from icl_lab.runs import study_folder
    from icl_lab.runs.store import by_rule

    rules = list(dict.fromkeys(run.spec.attn for run in runs))
    if len(rules) < 2:
        raise BadValue(f"a comparison needs at least two different normalizers, got {', '.join(rules) or 'none'}.")
    chosen = normalizers.canonical(baseline)
    if chosen not in rules:
        raise BadValue(f"The baseline '{baseline}' is not among {', '.join(rules)}.")
    groups = by_rule(runs)
    others = outside.read(beside, runs[0].spec.task)
    made = described(groups, chosen, lab.command, outside=others)
    folder = study_folder.place(made, own_studies(lab.store.root), name, force=force)
    if not finish(runs, True):
        return None
    test_rescaled(groups[chosen], lab)
    study: Study = gather(groups, chosen, others)
    text, files = publish(study, groups, folder, made)
    return Made(study, text, folder, files)


def test_rescaled(runs: "Sequence[Run]", lab: "Lab") -> None:
    """Tests models of a comparison's baseline with rescaled prompts, where all of their weights are there."""
    from icl_lab import pipeline
    from icl_lab.comparison import rescaled
    from icl_lab.runs import reuse

    others = rescaled.runs_of(runs)
    if all(run.finished or reuse.there(run) for run in others):
        for run in others:
            pipeline.sweep(run.spec, run.seed, lab)


def stages(
    runs: "Sequence[Run]", analysis: "AnyAnalysis | None", tested: bool, *, force: bool = False
) -> "list[tuple[Sequence[Run], bool]]":
    """Returns what has to be done with runs before they can be asked: which of them, and whether they are tested too.

    ``tested`` says whether they are at all: to compare their grids (without an analysis), for an analysis that reads
    grids, or because it must be known whether models have learned their task. For that alone each model is tested with
    its own rule, whatever is swapped in when it is asked. Models of runs that are finished, but whose weights are not
    kept, are trained first, by as many at once as was ordered; with ``force`` everything is done afresh anyway.
    """
    if analysis is None or not tested:
        return [(runs, tested)]
    trained_first = analysis.reads_models and not force
    bare = [run for run in runs if run.finished and not run.trained] if trained_first else []
    asked = runs if analysis.reads_grids else list({run.folder: run.swapped("") for run in runs}.values())
    return [*([(bare, False)] if bare else []), (asked, True)]


def analyse(
    question: str,
    analysis: "AnyAnalysis",
    runs: Sequence["Run"],
    lab: "Lab",
    finish: Finish,
    *,
    name: str = "",
    force: bool = False,
    unfinished: Callable[[Path], object] = lambda place: None,
) -> Made | None:
    """Asks the models of runs the question of that name; None where ``finish`` left runs to others.

    ``unfinished`` is then told where the study would have been written.
    """
    from icl_lab.analyses import publish, runner
    from icl_lab.evidence.archive import own_studies
    from icl_lab.runs import study_folder

    groups = runner.labels(runs)
    check_asked(analysis, runs, lab)
    analysis = runner.checked(analysis, groups)
    study = publish.record(question, analysis, groups, lab.command)
    place = study_folder.place(study, own_studies(lab.store.root), name, analysis.tag, force)
    todo = stages(analysis.lacking(runs), analysis, analysis.reads_grids)
    done = [finish(*stage) for stage in todo]  # each, though some is left to others
    if not all(done):
        unfinished(place)
        return None
    found = runner.ask(analysis, groups, lab)
    text = publish.publish(study, analysis, found, groups, place)
    return Made(found, text, place, publish.written(place), analysis)
