"""Folder of an analysis: its numbers as CSV, its table, its figures, its page, and the record of the study."""

import base64
import dataclasses
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import groupby
from pathlib import Path

from msgspec.structs import replace

from icl_lab.analyses import frame, registry
from icl_lab.analyses.frame import AnalysisOf, AnyAnalysis, F, M, S
from icl_lab.analyses.runner import Groups
from icl_lab.base import markdown as md
from icl_lab.base import terms
from icl_lab.base.errors import RunFailed
from icl_lab.base.files import checkout_hint, sha256
from icl_lab.base.option_values import in_words
from icl_lab.comparison.page import Row, Section, Table
from icl_lab.comparison.page.html import render
from icl_lab.figures.base import encode
from icl_lab.runs import environment, provenance, study_folder
from icl_lab.runs.run import Run
from icl_lab.runs.spec import RunSpec
from icl_lab.runs.store import Store
from icl_lab.runs.study_folder import StudyRecord

TEXT, ORIGIN = "table.md", "Made by "
NUMBER = re.compile(r"(?<![\w.])-?\d+(?:\.\d+)?(?:e-?\d+)?")


def options(analysis: AnyAnalysis) -> dict[str, object]:
    """Return the options of an analysis with their values, and its version.

    Those that came later are left out where they have their default, and so is a version that is the first.
    """
    fields = dataclasses.fields(analysis)  # type: ignore[arg-type]
    values = {field.name: getattr(analysis, field.name) for field in fields}
    usual = {field.name for field in fields if field.metadata.get("later") and values[field.name] == field.default}
    known = {name: value for name, value in values.items() if name not in usual}
    return known if analysis.version == 1 else {**known, "version": analysis.version}


def record(name: str, analysis: AnyAnalysis, groups: Groups, command: str) -> StudyRecord:
    """Describe the study that an analysis of these runs is."""
    made = replace(StudyRecord.of(name, options(analysis), groups, command), code=code(name))
    if analysis.trains:
        return made
    return replace(made, runs=[replace(member, task="rules", preset="", spec="") for member in made.runs])


def code(name: str) -> str:
    """Return the hash of the code of an analysis; empty for one that is not registered."""
    return registry.record(name)["sha256"] if name in registry.names() else ""


def head(analysis: AnyAnalysis, spec: RunSpec, groups: Groups) -> str:
    """Return the line above every table: the task, the preset, and over how many training seeds."""
    seeds = max(len(runs) for runs in groups.values())
    lost = [f"{label}, seed {run.seed}" for label, runs in groups.items() for run in runs if run.diverged]
    left = f" Left out, because the training diverged: {'; '.join(lost)}." if lost else ""
    if not analysis.trains:
        return f"Normalizers without a model, {seeds} draw{'s' * (seeds > 1)}."
    return f"Task {spec.task}, preset {spec.preset}, {seeds} training seed{'s' * (seeds > 1)}.{left}"


def text(above: str, finding: str, table: Sequence[str], command: str, more: str = "") -> str:
    """Return the findings as Markdown: the line above, the finding, the tables, the command."""
    lines = [above, "", *([finding, ""] if finding else [])]
    return "\n".join([*lines, *table, "", f"{ORIGIN}{md.code(command)}.", ""]) + more


def _shown(analysis: AnalysisOf[M, S, F], found: F) -> tuple[str, list[str]]:
    """The finding and the tables, with the terms that they hold explained above these."""
    finding, table = analysis.finding(found), analysis.table(found)
    said = terms.explained("\n".join([finding, *table]))
    return finding, [said, "", *table] if said else table


def redrawn(folder: Path, specs: Mapping[str, RunSpec], store: Store) -> str:
    """Return the text of a stored study drawn anew from its tables; empty where these lack a number that it has.

    The text below the tables, verdicts on claims among it, stays as it was judged. ``specs`` are known specifications
    by their hash. Raises ``RunFailed`` where a table is damaged, and where the text was edited below its tables.
    """
    study = study_folder.read(folder)
    if study is None or study.kind not in registry.names() or not all(member.spec in specs for member in study.runs):
        return ""
    analysis = frame.build(study.kind, {name: value for name, value in study.options.items() if name != "version"})
    groups: dict[str, list[Run]] = {}
    for member in study.runs:
        groups.setdefault(member.label, []).append(store.run(specs[member.spec], member.seed, member.swap))
    study_folder.verify(folder, pictures=False)
    found = analysis.again(folder, {label: runs[0].spec for label, runs in groups.items()})
    if found is None:
        return ""
    finding, table = _shown(analysis, found)
    path = folder / TEXT
    old = path.read_text()
    drawn = text(head(analysis, groups[study.runs[0].label][0].spec, groups), finding, table, study.command)
    new = drawn.partition(f"\n{ORIGIN}")[0] + "".join(old.partition(f"\n{ORIGIN}")[1:])
    if study_folder.as_written(path, study):
        return new if numbers_stay(old, new) else ""
    if sha256(new.encode()) != study.files[TEXT]:
        raise RunFailed(f"{path} is damaged or edited; {checkout_hint(path)}")
    return new


def numbers_stay(old: str, new: str) -> bool:
    """Return True if a new text keeps each row and list item of an old one, in order: name and signed numbers of cells.

    The new text may have more rows and cells. Heads of tables do not count.
    """
    later = iter(_rows(new))
    return all(any(_within(row, other) for other in later) for row in _rows(old))


def _rows(text: str) -> list[list[str]]:
    rows = re.findall(r"^[|*] .*", re.sub(r"^\| .*\n(?=\| ---)", "", text, flags=re.MULTILINE), re.MULTILINE)
    plain = (row.replace("−", "-").replace("`", "").lstrip("* ").partition(" | ") for row in rows)
    return [[name if bar else "", *NUMBER.findall(rest if bar else name)] for name, bar, rest in plain]


def _within(row: Sequence[str], other: Sequence[str]) -> bool:
    later = iter(other)
    return all(part in later for part in row)


def publish(
    study: StudyRecord,
    analysis: AnalysisOf[M, S, F],
    found: F,
    groups: Groups,
    folder: Path,
    more: str = "",
    show: Callable[[str], object] = lambda text: None,
) -> str:
    """Write numbers, tables, figures and the record of the study, the record last; return the tables as text.

    ``show`` gets these before figures are drawn, which takes longest, with the finding last: a terminal scrolls.
    """
    spec = next(iter(groups.values()))[0].spec
    finding, table = _shown(analysis, found)
    before = f"{len(study.asked)} of its models were asked by earlier commands; `study.json` names the commits."
    more = f"\n{before}\n{more}" if study.asked else more
    if analysis.trains and (other_code := provenance.words([run for runs in groups.values() for run in runs])):
        more = f"\n{other_code}\n{more}"
    above = head(analysis, spec, groups)
    printed = text(above, finding, table, study.command, more)
    show("\n".join([text(above, "", table, study.command, more), *filter(None, [finding])]))
    figures = analysis.figures(found, titled(analysis, spec))
    pngs = {name: encode(figure, "png") for name, figure in figures.items()}
    files: dict[str, str | bytes] = {**analysis.files(found), TEXT: printed}
    if not any(name.endswith(".html") for name in files):  # the analysis makes its page
        files["report.html"] = page(study, analysis, groups, finding, [*table, *more.splitlines()], pngs)
    files |= {f"{name}.png": data for name, data in pngs.items() if "png" in analysis.kinds}
    study_folder.publish(study, folder, files, figures, [kind for kind in analysis.kinds if kind != "png"])
    return printed


def written(folder: Path) -> Sequence[str]:
    """Return the names of the files in a folder, sorted."""
    return sorted(path.name for path in folder.iterdir() if path.is_file() and not path.name.startswith("."))


def titled(analysis: AnyAnalysis, spec: RunSpec) -> str:
    """Return the title of figures and pages: task and preset of trained models, and the title of the analysis."""
    return f"{spec.task}, {spec.preset}: {analysis.title}" if analysis.trains else analysis.title


def page(
    study: StudyRecord,
    analysis: AnyAnalysis,
    groups: Groups,
    finding: str,
    lines: Sequence[str],
    figures: Mapping[str, bytes],
) -> str:
    """Return the page; ``lines`` are the analysis' table in Markdown, figures are PNG.

    Everything is written as text, never markup.
    """
    title = titled(analysis, next(iter(groups.values()))[0].spec)
    question = (type(analysis).__doc__ or "").partition("\n")[0]
    return document(title, question, finding, list(_setup(study, analysis, groups)), lines, figures, study.command)


def document(
    title: str,
    question: str,
    finding: str,
    setup: Sequence[tuple[str, str]],
    lines: Iterable[str],
    figures: Mapping[str, bytes],
    command: str,
) -> str:
    """Return a page of lines of Markdown and PNG figures, with a box of the options."""
    return render(
        "analysis.html",
        title=title,
        question=question,
        finding=finding.replace("`", ""),
        setup=setup,
        figures=[
            {"anchor": f"figure-{name}", "title": name.capitalize(), "caption": title, "wide": data, "narrow": data}
            for name, data in ((name, base64.b64encode(png).decode()) for name, png in figures.items())
        ],
        sections=sections(lines),
        command=command,
        origin=environment.origin(),
    )


def asked(options: Mapping[str, object]) -> Iterable[tuple[str, str]]:
    """Yield the options of a study as they are written in that box."""
    for name, value in options.items():
        yield name.replace("_", " ").capitalize(), in_words(value) or "the usual"


def sections(lines: Iterable[str]) -> list[Section]:
    """Read Markdown as sections: a heading or a table begins one, and paragraphs stand above its table.

    >>> (section,) = sections(["Of two.", "", "| a |", "| --- |", "| 1 |"])
    >>> section.notes, section.table.head, len(section.table.rows)
    (['Of two.'], ['a'], 1)
    """
    found = [Section("", Table([]), [])]
    for is_row, part in groupby((line for line in lines if line), key=lambda line: line.startswith("| ")):
        if is_row:
            head, _, *rows = (md.cells(line) for line in part)
            found[-1] = dataclasses.replace(found[-1], table=Table(head, [_row(cells) for cells in rows]))
            continue
        for line in part:
            if line.startswith("#"):
                found.append(Section(line.lstrip("# "), Table([]), []))
            else:
                if found[-1].table.head:
                    found.append(Section("", Table([]), []))
                note = line.removeprefix("* ").replace("`", "")
                found[-1] = dataclasses.replace(found[-1], notes=[*found[-1].notes, note])
        if found[-1].table.head:
            found.append(Section("", Table([]), []))
    return [each for each in found if each.table.head or each.notes]


def _row(cells: list[str]) -> Row:
    name = cells[0]
    return Row([cell.replace("`", "").replace("**", "") for cell in cells], reference=name.startswith("reference:"))


def _setup(study: StudyRecord, analysis: AnyAnalysis, groups: Groups) -> Iterable[tuple[str, str]]:
    first = next(iter(groups.values()))
    spec, seeds = first[0].spec, ", ".join(str(run.seed) for run in first)
    if analysis.trains:
        yield "Task", spec.task
    yield "Normalizers", ", ".join(groups)
    if analysis.trains:
        yield "Training seeds", seeds
        yield "Model", f"{spec.model.layers} layers, {spec.model.heads} heads, width {spec.model.width}"
        examples = f"up to {spec.train.longest} examples"
        yield "Training", f"{spec.train.steps:,} steps of {spec.train.batch} prompts, {examples}"
    else:
        yield "Draws", seeds
    yield from asked(study.options)
