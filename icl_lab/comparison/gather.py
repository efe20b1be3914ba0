"""Finished runs side by side: a study, and the folder that it is published in."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from icl_lab.comparison.page import Section
    from icl_lab.comparison.study import Study
    from icl_lab.runs.store import Run


def gather(groups: Mapping[str, Sequence["Run"]], baseline: str) -> "Study":
    """Builds the study of finished runs, one group of seeds a rule; raises ``BadValue`` where they do not fit."""
    from icl_lab import tasks
    from icl_lab.comparison.study import Study
    from icl_lab.runs import summary

    read = {name: [run.measured() for run in runs] for name, runs in groups.items()}
    grids = {name: [grid for grid, _ in found] for name, found in read.items()}
    kept = {name: [errors for _, errors in found] for name, found in read.items()}
    # Intervals that include the prompts for some rules and not for others could not be compared.
    known = {name: [each for each in errors if each is not None] for name, errors in kept.items()}
    complete = all(len(known[name]) == len(grids[name]) for name in groups)
    spec = next(iter(groups[baseline])).spec
    task = tasks.build(spec.task)
    return Study(task, grids, baseline, summary.training_cell(task, spec), known if complete else {})


def publish(
    study: "Study",
    runs: Sequence["Run"],
    folder: Path,
    command: str,
    sections: Sequence["Section"] = (),
    title: str = "",
) -> tuple[str, list[str]]:
    """Writes table, tidy comparison, figures, page and what is needed to build them again (``study.json``).

    ``runs`` stand in the order of the study: all seeds of its first rule, then those of the next. Returns the table as
    text and the names of the files.
    """
    from icl_lab.comparison import page
    from icl_lab.comparison.record import NAME, Record
    from icl_lab.comparison.study import compare, tidy
    from icl_lab.files import publish_folder as save
    from icl_lab.runs import environment

    spec, seeds = runs[0].spec, study.seeds
    groups = {name: list(runs[at * seeds : (at + 1) * seeds]) for at, name in enumerate(study.grids)}
    facts = page.facts_of(groups)
    text, drawn = page.markdown(study, spec, command, sections, title), page.pictures(study, facts)
    commits = sorted({str(run.env()["commit"]) for run in runs})
    origin = f"{environment.origin()} Runs: {len(runs)}, trained at commit {', '.join(commits)}."
    tables = {"comparison.csv": tidy(study, compare(study)), "table.md": text}
    record = Record.of(groups, study.baseline, command, title)
    written = save(folder, {**tables, NAME: record.text()}, {name: picture.wide for name, picture in drawn.items()})
    # The page last: it says of the whole study where it comes from.
    report = page.html(study, spec, drawn, command, origin, sections, title, facts=facts, files=tables)
    return text, written + save(folder, {"report.html": report}, {})
