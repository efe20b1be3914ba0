"""An experiment as a study: its runs, earlier results, and its folder with the claims judged."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean

import msgspec

from icl_lab import tasks
from icl_lab.analyses import earlier_studies, frame, runner
from icl_lab.analyses import publish as publishing
from icl_lab.analyses.earlier_studies import EarlierStudies
from icl_lab.base.errors import BadValue
from icl_lab.claims import experiment as experiments
from icl_lab.claims import folders, judge, ledger, printed
from icl_lab.claims.folders import Answers
from icl_lab.claims.ledger import Finding
from icl_lab.claims.schema import Experiment
from icl_lab.claims.sides import AnalysisSides, Sides
from icl_lab.comparison.gather import gather
from icl_lab.comparison.gather import publish as publish_study
from icl_lab.comparison.page import Row, Section, Table, markdown_rows
from icl_lab.figures.base import writer
from icl_lab.runs import study_folder
from icl_lab.runs.run import Run
from icl_lab.runs.session import Lab
from icl_lab.runs.store import Store
from icl_lab.runs.study_folder import StudyRecord


def groups(
    experiment: Experiment, store: Store, preset: str, seeds: int, settings: Sequence[str]
) -> dict[str, list[Run]]:
    """Return the runs of each variant, seeds 0 to ``seeds`` - 1, finished or not."""
    specs = experiments.specs(experiment, store, preset, settings)
    rules = {variant.name: variant.tested_with for variant in experiment.variants}
    return {name: [store.run(spec, seed, rules[name]) for seed in range(seeds)] for name, spec in specs.items()}


@dataclass(frozen=True)
class Order:
    """An experiment as it was asked for: its file, the preset, further settings, whether to move doubtful rows."""

    name: str
    preset: str
    settings: Sequence[str] = ()
    overlay: bool = False


def record(experiment: Experiment, order: Order, members: Mapping[str, Sequence[Run]], command: str) -> StudyRecord:
    """Describe the study that an experiment with these runs is."""
    analysis = experiment.question()
    if analysis is not None:
        made = publishing.record(experiment.analysis, runner.checked(analysis, members), members, command)
        return msgspec.structs.replace(made, source=experiment.sha256)
    options = {
        "baseline": experiment.baseline,
        "title": f"{experiment.title} ({experiment.paper})",
        "experiment": order.name,
        "settings": list(order.settings),
        "overlay": order.overlay,
    }
    return msgspec.structs.replace(StudyRecord.of("experiment", options, members, command), source=experiment.sha256)


def destination(experiment_name: str, store: Store, preset: str, study: StudyRecord) -> Path:
    """Return the folder that an experiment is published in; one that holds another study is left as it is.

    One that holds a part of it, such as fewer seeds of the same variants, becomes the whole. A study of some variants
    does not replace the repository's of all, which it would hide.
    """
    usual = folders.usual(experiment_name, store, preset)
    places = sorted(usual.parent.glob(folders.others(usual)))
    present = None if usual.exists() else study_folder.read(store.study(usual))
    if present is None or {member.label for member in present.runs} <= {member.label for member in study.runs}:
        places.insert(0, usual)
    own = usual.with_name(f"{usual.name}-{study.hash}")
    return next((place for place in places if study_folder.free(place, study)), own)


def asked_before(
    experiment: Experiment, order: Order, members: Mapping[str, Sequence[Run]], lab: Lab
) -> EarlierStudies | None:
    """Return the stored results of an experiment's analysis with some of these runs; None where nothing is stored."""
    analysis = experiment.question()
    if analysis is None:
        return None
    study = record(experiment, order, members, lab.command)
    return earlier_studies.find(study, analysis, folders.of(order.name, lab.store, order.preset), lab.say)


def lacking(experiment: Experiment, members: Mapping[str, Sequence[Run]], before: EarlierStudies | None) -> list[Run]:
    """Return the runs that have to be finished first; a model that was asked before is needed no more.

    Those that are finished may be among them.
    """
    wanted = experiment.lacking([run for runs in members.values() for run in runs])
    return wanted if before is None else before.unasked(wanted, members, experiment.read_from_tests)


def publish(
    experiment: Experiment,
    order: Order,
    members: Mapping[str, Sequence[Run]],
    lab: Lab,
    place: Path,
    before: EarlierStudies | None = None,
) -> str:
    """Write what an experiment found with the printed numbers and the claims; returns it as text.

    Of an analysis, models that were asked ``before`` are not asked again.
    """
    made, analysis = record(experiment, order, members, lab.command), experiment.question()
    if analysis is not None:
        analysis = runner.checked(analysis, members)
        if before is None:
            found = runner.ask(analysis, members, lab)
        else:
            found = runner.ask(analysis, members, lab, before.rows)
            made = msgspec.structs.replace(made, asked=before.commits(made))
        return _publish_analysis(made, experiment, order, analysis, found, members, lab, place)
    study = gather(members, experiment.baseline, lab.store if experiment.rates == "own" else None)
    judged = judge.findings(Sides(experiment, lab.store, order.preset, order.settings))
    shown = [_claims_section(experiment, judged, order.preset)]
    if experiment.printed is not None:
        axis = experiment.printed.axis
        line = study.line(axis)
        ours = {name: {cell[axis]: fmean(study.values(name, cell)) for cell in line} for name in members}
        beside = _beside_printed(experiment, ours, order.overlay)
        shown = [beside, *shown] if beside else shown
    return publish_study(study, members, place, made, shown, lab.tick, lab.show)[0]


def _publish_analysis(
    made: StudyRecord,
    experiment: Experiment,
    order: Order,
    analysis: frame.AnyAnalysis,
    found: Answers,
    members: Mapping[str, Sequence[Run]],
    lab: Lab,
    place: Path,
) -> str:
    judged = judge.findings(AnalysisSides(experiment, lab.store, order.preset, order.settings, found))
    section = _claims_section(experiment, judged, order.preset)
    notes = [f"* {note}" for note in (*section.notes, experiment.conditions)]
    lines = ["", f"### {section.title}", "", *markdown_rows(section.table), "", *notes, ""]
    return publishing.publish(made, analysis, found, members, place, "\n".join(lines), lab.show)


def rebuild(
    made: StudyRecord, members: Mapping[str, Sequence[Run]], lab: Lab, place: Path, files: Path
) -> Sequence[str]:
    """Judge the claims of a comparison of an experiment anew and writes its page; returns the names of the files."""
    options = made.options
    order = Order(options["experiment"], made.runs[0].preset, options["settings"], options["overlay"])
    whole = experiments.load(order.name, files)  # which may have changed since
    asked = experiments.only(whole, [name for name in members if whole.variant(name) is not None])
    publish(asked, order, members, replace(lab, command=made.command), place)
    return publishing.written(place)


def redraw(known: StudyRecord, source: Path, lab: Lab, place: Path, files: Path) -> Sequence[str]:
    """Judge the claims of an experiment's analysis anew, draws its figures and writes its page, in ``place``.

    From the numbers that its folder ``source`` holds; no model is asked. Returns the names of the files. Raises
    ``BadValue`` where the experiment's file has changed since, or where numbers are not kept.
    """
    study_folder.verify(source, pictures=False)
    refused = BadValue(f"{source} cannot be drawn from what it holds; repeat its command: {known.command}")
    named = [name for name in experiments.names(files) if experiments.load(name, files).sha256 == known.source]
    if not named:
        raise refused
    made, first = experiments.only(experiments.load(named[0], files), {run.label for run in known.runs}), known.runs[0]
    seeds = max(member.seed for member in known.runs) + 1
    members = groups(made, lab.store, first.preset, seeds, ())
    order, analysis = Order(named[0], first.preset), made.question()
    if analysis is None or record(made, order, members, known.command).hash != known.hash:
        raise refused
    analysis = runner.checked(analysis, members)
    found = analysis.again(source, {label: runs[0].spec for label, runs in members.items()})
    if found is None:
        raise refused
    _publish_analysis(known, made, order, analysis, found, members, lab, place)
    return publishing.written(place)


def _claims_section(made: Experiment, found: Sequence[Finding], preset: str) -> Section:
    """The claims with their verdicts, for a page or a file."""
    rows = list[Row]()
    for claim, each in zip(made.claims, found, strict=True):
        ours = "; ".join(filter(None, (each.words, each.confidence_words)))
        theirs = each.printed_words or claim.published
        rows.append(Row([claim.statement, claim.where, theirs, ours, each.marked, each.outlook]))
    head = ["claim", "where", "printed", f"ours, at {preset}", "verdict at this scale", "what would decide it"]
    note = (
        "The first named to the second, over the training seeds that both have: below (a ratio below 1, a "
        "difference below 0) is less error on the left. Each interval is one of the cells that the claim names, and "
        "holds at every look while seeds are added, so that it is wider than one of 95 %. How verdicts are made: "
        "docs/findings.md."
    )
    scales = list(dict.fromkeys(f"Published at: {claim.scale}." for claim in made.claims if claim.scale))
    return Section("Claims", Table(head, rows, words=True), [note, *scales], ledger.EXPLAINED)


def _beside_printed(experiment: Experiment, ours: Mapping[str, Mapping[float, float]], overlay: bool) -> Section | None:
    """Our numbers and the printed ones, row by row; the doubts about the printed ones below."""
    theirs = printed.rows(experiment, overlay)
    if not theirs or experiment.printed is None:
        return None
    known = {at for cells in ours.values() for at in cells}
    columns = sorted(known & {at for cells in theirs.values() for at in cells})
    task = tasks.build(experiment.task)
    rows, written = [], writer(task.log_scale, task.rates)
    for name, cells in theirs.items():
        if name in ours:
            rows.append(Row([name, "here", *(written(ours[name][at]) for at in columns)]))
        rows.append(Row([name, "printed", *(cells.get(at, "") for at in columns)], reference=True))
    head = ["", "", *(f"{experiment.printed.axis} {at:g}" for at in columns)]
    notes = [experiment.conditions, *printed.doubts(experiment)]
    return Section("Beside the printed numbers", Table(head, rows), notes)
