"""Claims against stored results: what each experiment says, and what was seen at this scale."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import Any

import msgspec

from icl_lab import tasks
from icl_lab.analyses import earlier, frame
from icl_lab.analyses import publish as publishing
from icl_lab.analyses.earlier import Earlier
from icl_lab.comparison import outside
from icl_lab.comparison.gather import gather
from icl_lab.comparison.gather import publish as publish_study
from icl_lab.comparison.outside import Outside
from icl_lab.comparison.page import Row, Section, Table, markdown_rows
from icl_lab.errors import BadValue, Undefined
from icl_lab.figures.base import writer
from icl_lab.papers import cost, gate, quantities, verdicts
from icl_lab.papers import experiment as experiments
from icl_lab.papers.experiment import Claim, Experiment
from icl_lab.papers.verdicts import Finding
from icl_lab.runs import size, study_folder
from icl_lab.runs.presets import PRESETS
from icl_lab.runs.run import Run
from icl_lab.runs.session import Lab
from icl_lab.runs.store import Store
from icl_lab.runs.study_folder import StudyRecord


def groups(
    experiment: Experiment, store: Store, preset: str, seeds: int, settings: Sequence[str]
) -> dict[str, list[Run]]:
    """Returns the runs of each variant, seeds 0 to ``seeds`` - 1, finished or not."""
    specs = {variant.name: experiment.spec(variant, preset, settings) for variant in experiment.variants}
    rules = {variant.name: quantities.rule(variant) for variant in experiment.variants}
    return {name: [store.run(spec, seed, rules[name]) for seed in range(seeds)] for name, spec in specs.items()}


@dataclass(frozen=True)
class Order:
    """An experiment as it was asked for: its file, the preset, further settings, whether to move doubtful rows.

    ``beside`` are models that were not trained here, shown on the page.
    """

    name: str
    preset: str
    settings: Sequence[str] = ()
    overlay: bool = False
    beside: Sequence[Outside] = ()


def record(experiment: Experiment, order: Order, members: Mapping[str, Sequence[Run]], command: str) -> StudyRecord:
    """Describes the study that an experiment with these runs is."""
    analysis = experiment.question()
    if analysis is not None:
        made = publishing.record(experiment.analysis, frame.checked(analysis, members), members, command)
        return msgspec.structs.replace(made, source=experiment.sha256)
    options = {
        "baseline": experiment.baseline,
        "title": f"{experiment.title} ({experiment.paper})",
        "experiment": order.name,
        "settings": list(order.settings),
        "overlay": order.overlay,
        **outside.options(order.beside),
    }
    return msgspec.structs.replace(StudyRecord.of("experiment", options, members, command), source=experiment.sha256)


def rebuild(
    made: StudyRecord, members: Mapping[str, Sequence[Run]], lab: Lab, place: Path, files: Path
) -> Sequence[str]:
    """Judges the claims of a comparison of an experiment anew and writes its page; returns the names of the files."""
    options = made.options
    beside = outside.again(options, made.runs[0].task)
    order = Order(options["experiment"], made.runs[0].preset, options["settings"], options["overlay"], beside)
    whole = experiments.load(order.name, files)  # which may have changed since
    asked = experiments.only(whole, [name for name in members if whole.variant(name) is not None])
    publish(asked, order, members, replace(lab, command=made.command), place)
    return publishing.written(place)


def redraw(known: StudyRecord, kept: Path, lab: Lab, place: Path, files: Path) -> Sequence[str]:
    """Judges the claims of an experiment's analysis anew, draws its figures and writes its page, in ``place``.

    From the numbers that its folder ``kept`` holds; no model is asked. Returns the names of the files. Raises
    ``BadValue`` where the experiment's file has changed since, or where numbers are not kept.
    """
    study_folder.verify(kept, pictures=False)
    refused = BadValue(f"{kept} cannot be drawn from what it holds; repeat its command: {known.command}")
    named = [name for name in experiments.names(files) if experiments.load(name, files).sha256 == known.source]
    if not named:
        raise refused
    made, first = experiments.only(experiments.load(named[0], files), {run.label for run in known.runs}), known.runs[0]
    seeds = max(member.seed for member in known.runs) + 1
    members = groups(made, lab.store, first.preset, seeds, ())
    order, analysis = Order(named[0], first.preset), made.question()
    if analysis is None or record(made, order, members, known.command).hash != known.hash:
        raise refused
    analysis = frame.checked(analysis, members)
    found = analysis.again(kept, {label: runs[0].spec for label, runs in members.items()})
    if found is None:
        raise refused
    _publish_analysis(known, made, order, analysis, found, members, lab, place)
    return publishing.written(place)


def folder(experiment_name: str, store: Store, preset: str) -> Path:
    """Returns the folder that the claims of an experiment are read from: of those there are, the one of most runs.

    Before runs counts the version of the analysis (``Analysis.version``): what an earlier one found is not asked for.
    """
    usual = store.root / "experiments" / f"{Path(experiment_name).stem}-{preset}"
    there = [usual, *sorted(usual.parent.glob(f"{usual.name}-{'[0-9a-f]' * 6}"))]
    found = {place: study for place in there if (study := study_folder.read(place))}
    sizes = {place: (study.options.get("version", 1), len(study.runs)) for place, study in found.items()}
    return max(sizes, key=lambda place: sizes[place], default=usual)


def destination(experiment_name: str, store: Store, preset: str, study: StudyRecord) -> Path:
    """Returns the folder that an experiment is published in; one that holds another study is left as it is."""
    usual = store.root / "experiments" / f"{Path(experiment_name).stem}-{preset}"
    return usual if study_folder.free(usual, study) else usual.with_name(f"{usual.name}-{study.hash}")


def findings(
    experiment: Experiment,
    store: Store,
    preset: str,
    place: Path,
    settings: Sequence[str] = (),
    found: Any = None,
    costs: cost.Costs | None = None,
) -> list[Finding]:
    """Judges every claim from what is finished, over the training seeds that both of its sides have; trains nothing.

    What an analysis found is read from the folder ``place``, unless it is at hand as ``found``. Who asks of many
    experiments hands on what it knows of their ``costs``.
    """
    analysis, costs = experiment.question(), costs or cost.Costs(store, preset)
    if analysis is not None and found is None:
        found = quantities.stored(analysis, place)
    judged, finished = [], quantities.Finished(experiment, store, preset, settings)
    for claim in experiment.claims:
        if analysis is None:
            source = quantities.from_grids(finished, claim)
        else:
            source = quantities.from_analysis(analysis, found, claim, quantities.scale(experiment, claim))
        if not source.seeds:
            judged.append(Finding(claim, "not run", note=finished.lacking(claim)))
            continue
        try:
            left, right = (
                [source.read(side, claim.metric, seed) for seed in source.seeds] for side in (claim.left, claim.right)
            )
        except Undefined as reason:
            judged.append(Finding(claim, "nothing to judge", note=str(reason.args[0])))
            continue
        except KeyError as reason:  # the preset's test grid has no such cell
            judged.append(Finding(claim, "not run", note=str(reason.args[0])))
            continue
        scale = quantities.scale(experiment, claim)
        if scale == "log-ratio":
            left, right = ([math.exp(value) for value in values] for values in (left, right))
        lacks, hours = gate.unlearned(finished, claim, source.seeds), costs.seed(finished, claim) / 3600
        judged.append(
            verdicts.judge(claim, source.seeds, left, right, scale, source.noise, source.resolution, lacks, hours)
        )
    return judged


def stored(
    name: str, files: Path, store: Store, preset: str, costs: cost.Costs | None = None
) -> tuple[Experiment, list[str], list[Finding]]:
    """Returns an experiment as it fits a preset, what was left out and why, and its claims judged by what is there."""
    made, left_out = experiments.fitting(experiments.load(name, files), preset)
    found = findings(made, store, preset, store.study(folder(name, store, preset)), costs=costs)
    return made, [*left_out, *remarks(name, made, store, preset)], found


def remarks(name: str, experiment: Experiment, store: Store, preset: str) -> list[str]:
    """Says, where it is so, that what is stored of an experiment was made from another version of its file."""
    place = store.study(folder(name, store, preset))
    study = study_folder.read(place)
    if study is None or study.source in ("", experiment.sha256):
        return []
    return [f"{place} was made from another version of {name}.toml (sha256 {study.source[:8]})."]


def claims_section(found: Sequence[Finding], preset: str) -> Section:
    """The claims with their verdicts, for a page or a file."""
    rows = [
        Row(
            [
                f.claim.statement,
                f.claim.where,
                f.claim.published,
                f.words,
                f.verdict.upper() if f.found else f.verdict,
                f.outlook,
            ]
        )
        for f in found
    ]
    head = ["claim", "where", "published", f"here, at {preset}", "verdict at this scale", "what would decide it"]
    note = f"Left over right, as the claim names them, over the training seeds that both have. {verdicts.RULE}"
    scales = list(dict.fromkeys(f"Published at: {f.claim.scale}." for f in found if f.claim.scale))
    return Section("Claims", Table(head, rows, words=True), [note, *scales])


def printed_section(experiment: Experiment, ours: Mapping[str, Mapping[float, float]], overlay: bool) -> Section | None:
    """Our numbers and the printed ones, row by row; the doubts about the printed ones below."""
    theirs = experiments.printed(experiment, overlay)
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
    notes = [experiment.conditions, *experiments.doubts(experiment)]
    return Section("Beside the printed numbers", Table(head, rows), notes)


def asked_before(
    experiment: Experiment, order: Order, members: Mapping[str, Sequence[Run]], lab: Lab
) -> Earlier | None:
    """Returns what is stored of an experiment's analysis with some of these runs; None where that is nothing."""
    analysis = experiment.question()
    if analysis is None:
        return None
    place = lab.store.study(folder(order.name, lab.store, order.preset))
    study = record(experiment, order, members, lab.command)
    return earlier.find(study, analysis, place, lab.say)


def lacking(experiment: Experiment, members: Mapping[str, Sequence[Run]], before: Earlier | None) -> list[Run]:
    """Returns the runs that have to be finished first; a model that was asked before is needed no more.

    Those that are finished may be among them.
    """
    wanted = experiment.lacking([run for runs in members.values() for run in runs])
    known = {
        run.place
        for label, runs in members.items()
        for run in runs
        if before is not None and before.asked(label, run) and (run.finished or not experiment.tested)
    }
    return [run for run in wanted if run.place not in known]


def publish(
    experiment: Experiment,
    order: Order,
    members: Mapping[str, Sequence[Run]],
    lab: Lab,
    place: Path,
    before: Earlier | None = None,
) -> str:
    """Writes what an experiment found with the printed numbers and the claims; returns it as text.

    Of an analysis, models that were asked ``before`` are not asked again.
    """
    made, analysis = record(experiment, order, members, lab.command), experiment.question()
    if analysis is not None:
        analysis = frame.checked(analysis, members)
        if before is None:
            found = frame.ask(analysis, members, lab)
        else:
            found = frame.ask(analysis, members, lab, before.rows)
            made = msgspec.structs.replace(made, asked=before.commits(made))
        return _publish_analysis(made, experiment, order, analysis, found, members, lab, place)
    study = gather(members, experiment.baseline, order.beside)
    judged = findings(experiment, lab.store, order.preset, place, order.settings)
    sections = [claims_section(judged, order.preset)]
    if experiment.printed is not None:
        axis = experiment.printed.axis
        line = study.line(axis)
        ours = {name: {cell[axis]: fmean(study.values(name, cell)) for cell in line} for name in members}
        beside = printed_section(experiment, ours, order.overlay)
        sections = [beside, *sections] if beside else sections
    return publish_study(study, members, place, made, sections)[0]


def _publish_analysis(
    made: StudyRecord,
    experiment: Experiment,
    order: Order,
    analysis: frame.Analysis,
    found: Any,
    members: Mapping[str, Sequence[Run]],
    lab: Lab,
    place: Path,
) -> str:
    judged = findings(experiment, lab.store, order.preset, place, order.settings, found)
    section = claims_section(judged, order.preset)
    notes = [f"* {note}" for note in (*section.notes, experiment.conditions)]
    ledger = ["", f"### {section.title}", "", *markdown_rows(section.table), "", *notes, ""]
    return publishing.publish(made, analysis, found, members, place, "\n".join(ledger))


def card(name: str, experiment: Experiment, store: Store) -> list[str]:
    """The lines of one experiment for ``list``: what it is, its cost at each preset, and what is finished."""
    lines, question = [name, f"    {experiment.title}", f"    {experiment.paper}"], experiment.question()
    if question is not None and not question.trains:
        return [*lines, "    trains nothing: rules are asked without a model"]
    for preset in PRESETS:
        try:
            finished, there, operations = state(experiment, store, preset)
        except BadValue as reason:  # not every variant fits every size
            lines.append(f"    {preset:6} not at this size: {reason}")
            continue
        lines.append(f"    {preset:6} {finished} of {there} runs finished, {operations:.0e} operations a seed of all")
    return lines


def state(experiment: Experiment, store: Store, preset: str) -> tuple[int, int, float]:
    """Returns how many variants have a finished run, how many there are, and the operations of one seed of all."""
    finished, operations = 0, 0.0
    for variant in experiment.variants:
        spec = experiment.spec(variant, preset)
        finished += store.run(spec, 0, quantities.rule(variant)).finished
        operations += size.trained(spec) + size.tested(spec)
    return finished, len(experiment.variants), operations


def text(name: str, experiment: Experiment, found: Sequence[Finding]) -> list[str]:
    """The ledger's lines of one experiment, for the terminal."""
    lines = [f"{name}: {experiment.title}"]
    for finding in found:
        lines.append(f"  {finding.verdict.upper():17}{_say(finding.claim)}")
        if finding.words:
            lines.append(f"  {'':17}here {finding.words}{_beside(finding.claim)}")
        if finding.outlook:
            lines.append(f"  {'':17}{finding.outlook} would decide it")
    return lines


def _say(claim: Claim) -> str:
    return f"{claim.statement} ({claim.where})"


def _beside(claim: Claim) -> str:
    return f"; published {claim.published}" if claim.published else ""
