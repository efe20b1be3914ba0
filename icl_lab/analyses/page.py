"""The page of an analysis: its finding, set-up, figures and tables in one file that opens from disk."""

import base64
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import groupby

from icl_lab import markdown as md
from icl_lab.analyses.frame import AnyAnalysis
from icl_lab.analyses.runner import Groups
from icl_lab.comparison.page import Row, Section, Table
from icl_lab.comparison.page.html import render
from icl_lab.parts.option_values import in_words
from icl_lab.runs import environment
from icl_lab.runs.spec import RunSpec
from icl_lab.runs.study_folder import StudyRecord


def titled(analysis: AnyAnalysis, spec: RunSpec) -> str:
    """Returns the title of figures and pages: the task and the preset of trained models, and what was asked."""
    return f"{spec.task}, {spec.preset}: {analysis.title}" if analysis.trains else analysis.title


def page(
    study: StudyRecord,
    analysis: AnyAnalysis,
    groups: Groups,
    finding: str,
    lines: Sequence[str],
    figures: Mapping[str, bytes],
) -> str:
    """Returns the page; ``lines`` are the analysis' table in Markdown, figures are PNG.

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
    """Returns a page of lines of Markdown and PNG figures, with a box of what was asked."""
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
    """Yields the options of a study as they are written in that box."""
    for name, value in options.items():
        yield name.replace("_", " ").capitalize(), in_words(value) or "the usual"


def sections(lines: Iterable[str]) -> list[Section]:
    """Reads Markdown as sections: a heading or a table begins one, and paragraphs stand above its table.

    >>> (section,) = sections(["Of two.", "", "| a |", "| --- |", "| 1 |"])
    >>> section.notes, section.table.head, len(section.table.rows)
    (['Of two.'], ['a'], 1)
    """
    found = [Section("", Table([]), [])]
    for is_row, part in groupby((line for line in lines if line), key=lambda line: line.startswith("| ")):
        if is_row:
            head, _, *rows = (md.cells(line) for line in part)
            found[-1] = replace(found[-1], table=Table(head, [_row(cells) for cells in rows]))
            continue
        for line in part:
            if line.startswith("#"):
                found.append(Section(line.lstrip("# "), Table([]), []))
            else:
                if found[-1].table.head:
                    found.append(Section("", Table([]), []))
                found[-1] = replace(found[-1], notes=[*found[-1].notes, line.removeprefix("* ").replace("`", "")])
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
