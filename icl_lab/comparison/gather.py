"""Finished runs side by side: a study, and the folder that it is published in."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from icl_lab import tasks
from icl_lab.base.progress import Tick, silent
from icl_lab.comparison import page, rates, rescaled
from icl_lab.comparison.page import Section
from icl_lab.comparison.study import PairedGrids, compare, tidy
from icl_lab.runs import environment, provenance, study_folder, summary
from icl_lab.runs.run import Run
from icl_lab.runs.store import Store
from icl_lab.runs.study_folder import StudyRecord


def gather(groups: Mapping[str, Sequence[Run]], baseline: str, tuned_in: Store | None = None) -> PairedGrids:
    """Build the study of finished runs, one group of seeds a normalizer; raises ``BadValue`` where they do not fit.

    ``tuned_in`` is the store with the learning-rate curves of runs at own rates.
    """
    read = {name: [run.measured() for run in runs] for name, runs in groups.items()}
    grids = {name: [grid for grid, _ in found] for name, found in read.items()}
    kept = {name: [errors for _, errors in found] for name, found in read.items()}
    # Intervals that include the prompts for some normalizers and not for others could not be compared.
    known = {name: [each for each in errors if each is not None] for name, errors in kept.items()}
    complete = all(len(known[name]) == len(grids[name]) for name in groups)
    spec = next(iter(groups[baseline])).spec
    task = tasks.build(spec.task)
    # A comparison that has the rescaled tests among its normalizers needs no line of them.
    among_rules = any(run.spec.test.rescale != "none" for runs in groups.values() for run in runs)
    lines = {} if among_rules else rescaled.tested(groups[baseline])
    errors = known if complete else {}
    reasons = {name: summary.unlearned(grids[name], task, runs[0].spec) for name, runs in groups.items()}
    not_learned = {name: reason for name, reason in reasons.items() if reason}
    here, specs = summary.training_cell(task, spec), {name: runs[0].spec for name, runs in groups.items()}
    curves = {} if tuned_in is None else rates.curves_of(specs, tuned_in)
    said = rates.words(specs, None if tuned_in is None else curves)
    return PairedGrids(task, grids, baseline, here, errors, lines, not_learned, said, curves)


def described(
    groups: Mapping[str, Sequence[Run]],
    baseline: str,
    command: str,
    title: str = "",
    kind: str = "compare",
    *,
    own: bool = False,
) -> StudyRecord:
    """Describe a comparison of these runs, finished or not; ``own``: each normalizer at its own learning rates."""
    options = {"baseline": baseline, "title": title} | ({"rates": "own"} if own else {})
    return StudyRecord.of(kind, options, groups, command)


def publish(
    study: PairedGrids,
    groups: Mapping[str, Sequence[Run]],
    folder: Path,
    made: StudyRecord,
    sections: Sequence[Section] = (),
    tick: Tick = silent,
    show: Callable[[str], object] = lambda text: None,
) -> tuple[str, list[str]]:
    """Write table, tidy comparison, figures and page, and then the record of the study, which seals them.

    ``tick`` is called with the progress, and ``show`` before figures are drawn, which take longest: with the text, or,
    without ``sections``, with its main table.
    Returns the table as text and the names of the files.
    """
    runs = [run for seeds in groups.values() for run in seeds]
    claims = bool(sections)
    sections = [*sections, *page.divergences(groups), *page.tuning(study)]
    spec, command, title = runs[0].spec, made.command, str(made.options.get("title", ""))
    facts = page.facts_of(groups)
    drawn = page.pictures(study, facts)
    steps, stage = len(drawn) + 2, "writing the comparison"
    tick(stage, 0, steps, "table")
    other_code = provenance.words(runs)
    text = page.markdown(study, spec, command, sections, title) + (f"\n{other_code}\n" if other_code else "")
    show(text if claims else page.brief(study, spec))
    origin = f"{environment.origin()} {trained_on([run.env() for run in runs])} {other_code}".rstrip()
    tables = {"comparison.csv": tidy(study, compare(study)), "table.md": text}
    pngs = dict[str, bytes]()
    for done, (name, picture) in enumerate(drawn.items(), 1):
        tick(stage, done, steps, name)
        pngs[f"{name}.png"] = picture.wide_png
    tick(stage, steps - 1, steps, "page")
    report = page.html(study, spec, drawn, command, origin, sections, title, facts=facts, files=tables)
    figures = {name: picture.wide for name, picture in drawn.items()}
    written = study_folder.publish(made, folder, {**tables, "report.html": report, **pngs}, figures, ["svg"])
    tick(stage, steps, steps, "")
    return text, written


def trained_on(known: Sequence[Mapping[str, Any]]) -> str:
    """Say what the runs of a study were trained with, from their environments: commits, and threads that differ."""
    commits = sorted({str(env["commit"]) for env in known})
    said = f"Runs: {len(known)}, trained at commit {', '.join(commits)}."
    threads = sorted({int(env["threads"]) for env in known if "threads" in env})
    if len(threads) > 1:  # sums are rounded in another order, and training amplifies rounding
        said += f" They were trained on {' or '.join(map(str, threads))} CPU threads, whose bits differ."
    read = {(name, str(sha)) for env in known for name, sha in env.get("reads", {}).items()}
    for name in sorted({name for name, _ in read}):
        shas = sorted(sha[:12] for other, sha in read if other == name)
        what = "versions, which must not be compared" if len(shas) > 1 else "version"
        said += f" They read {name}, {what} {' and '.join(shas)}."
    return said
