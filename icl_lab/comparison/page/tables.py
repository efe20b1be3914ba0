"""The tables of a comparison: means along the shift, the numbers of single seeds, and the same as Markdown."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from icl_lab.base import markdown as md
from icl_lab.base import terms
from icl_lab.base.grid import model_name
from icl_lab.comparison import rescaled
from icl_lab.comparison.clip import clip_model
from icl_lab.comparison.page import words
from icl_lab.comparison.statistics import CLEAR, wilson
from icl_lab.comparison.study import Labels, PairedGrids
from icl_lab.comparison.verdict import State
from icl_lab.figures.base import short, writer
from icl_lab.runs.measure import FLOOR
from icl_lab.runs.run import Run
from icl_lab.runs.spec import RunSpec

BOLD = "Bold: clearly the least of its column."
READING = (
    "p values: every normalizer in every cell is a comparison. Summaries, one a normalizer, are a family of their own, "
    "since they were declared before anything was trained.",
    "Bold: the smallest mean of the column, and its p against each other normalizer, corrected for as many, "
    "is below 0.05.",
)


@dataclass(frozen=True)
class Row:
    """A normalizer or a reference: its cells as text, and which of them are clearly the best of their column."""

    cells: list[str]
    best: frozenset[int] = frozenset()
    reference: bool = False


@dataclass(frozen=True)
class Table:
    """Normalizers by their declared summary, then the references. ``note`` says how to read it, and stands above it."""

    head: list[str]
    rows: list[Row] = field(default_factory=list)
    note: str = ""
    axis: str = ""  # the head of columns that are named for its values begins with it
    words: bool = False  # cells hold sentences


@dataclass(frozen=True)
class Section:
    """A further table under a heading, with notes below it, and ``reading``, which only a page has."""

    title: str
    table: Table
    notes: Sequence[str] = ()
    reading: str = ""


def divergences(groups: Mapping[str, Sequence[Run]]) -> list[Section]:
    """A table of the trainings that diverged, where there are any; their cells are those of a model without answers."""
    rows = [Row([label, str(run.seed), run.diverged]) for label, runs in groups.items() for run in runs if run.diverged]
    note = "They have no model. In every cell their answers count as no finite numbers, and so as wrong."
    return (
        [Section("Trainings that diverged", Table(["normalizer", "seed", "why"], rows, words=True), [note])]
        if rows
        else []
    )


def tuning(study: PairedGrids) -> list[Section]:
    """The learning-rate curves of runs at own rates, as a table of errors over factors of these rates."""
    if not study.curves:
        return []
    from icl_lab.comparison import rates  # few comparisons are at own rates

    made = Table(rates.head(study.curves), [Row(cells) for cells in rates.cells(study.curves)])
    notes = [f"{rates.measure(study.task)}, in training conditions, of tuning seeds; x1 are the rates of these runs."]
    more = [*rates.moved_words(study.curves), *rates.cliff_words(study.curves)]
    return [Section("Learning-rate curves", made, [*notes, *more])]


def table(study: PairedGrids, spec: RunSpec) -> Table:
    """Return the means over seeds along the shift; the best of a column only where it beats every other normalizer.

    Normalizers whose rows span decades carry the clip model that explains them best, so that a normalizer which is
    barely better than clipping looks it.
    """
    axis = words.along(study)
    line = study.line(axis)
    clips, sums, floors = study.task.clip is not None, study.summarised, has_floors(study)
    learned = bool(study.not_learned)  # the column, where there is something to say
    best = [clear_best(study, cell) for cell in line]
    rows, written = [], writer(study.task.log_scale, study.task.rates)
    for rule, summary in summaries(study).items():
        cells = [rule, *(_shown(study, rule, cell) for cell in line), *[words.number(summary)] * sums]
        if clips:
            clip = clip_model(study, rule, spec.test)
            cells.append(f"{clip.bound:g} ({clip.residual:.2f})" if clip else "")
        if floors:
            cells.append(above_floor(study, rule, line[-1]))
        if learned:
            cells.append(str(State.NOT_LEARNED) if rule in study.not_learned else "yes")
        rows.append(Row(cells, frozenset(place for place, winner in enumerate(best, 1) if winner == rule)))
    empty = [""] * (sums + clips + floors + learned)
    for name in study.references():
        values = [written(study.reference(name, cell)) for cell in line]
        rows.append(Row([name, *values, *empty], reference=True))
    for part in study.rescaled:
        found = [study.rescaled_at(part, cell) for cell in line]
        values = [f"{written(value)} ± {short(error)}" for value, error in found]
        rows.append(Row([study.rescaled_name(part), *values, *empty], reference=True))
    head = [
        "normalizer",
        *(words.cell_words(study, cell[axis]) for cell in line),
        *["summary"] * sums,
        *["clip B (residual)"] * clips,
        *["above the floor"] * floors,
        *["learned?"] * learned,
    ]
    note = " ".join(said for said in (words.summary_words(study), words.correction(study), BOLD) if said)
    if floors:
        where = words.cell_words(study, line[-1][axis])
        note += (
            f" Above the floor: the share of the error at {where} that the bound of the model's own final norm and "
            "read-out does not force (docs/boundary.md)."
        )
    if study.task.rates:
        note += " In brackets: Wilson's 95 % interval of the rate for as many prompts as one seed was tested on."
    for part in study.rescaled:
        note += " " + rescaled.NOTE.format(name=study.rescaled_name(part), part=part)
    return Table(head, rows, note, axis)


def has_floors(study: PairedGrids) -> bool:
    """True where the grids of some normalizer know the floor that the bound on its answers sets."""
    return any(FLOOR in grid.values("metric") for grids in study.grids.values() for grid in grids)


def above_floor(study: PairedGrids, rule: str, cell: Labels) -> str:
    """Share of a normalizer's error in a cell that lies above its floor, over seeds; empty where no floor is known.

    Formula: 1 - mean floor / mean error
    """
    try:
        floors = [grid.where(attn=model_name(grid), metric=FLOOR, **cell).frame["value"] for grid in study.grids[rule]]
    except KeyError:
        return ""
    errors = study.values(rule, cell)
    return f"{1 - sum(float(each.iloc[0]) for each in floors) / sum(errors):.0%}"


def summaries(study: PairedGrids) -> dict[str, float]:
    """The mean summary of each normalizer, best first, normalizers without one last."""
    found = {rule: words.mean(study.summary(rule)) for rule in study.grids}
    return dict(sorted(found.items(), key=lambda item: (math.isnan(item[1]), item[1])))


def seeds_table(study: PairedGrids) -> Table:
    """Return one row per normalizer and seed along the shift, in the order of ``table``, the summary (if any) last."""
    axis, sums = words.along(study), study.summarised
    line = study.line(axis)
    names = [int(grid.values("seed")[0]) for grid in study.grids[study.baseline]]
    rows, written = [], writer(study.task.log_scale, study.task.rates)
    for rule in summaries(study):
        columns = zip(names, zip(*(study.values(rule, cell) for cell in line), strict=True), study.summary(rule),
                      strict=True)  # fmt: skip
        for seed, values, summary in columns:
            rows.append(Row([f"{rule}, seed {seed}", *map(written, values), *[words.number(summary)] * sums]))
    head = ["normalizer and seed", *(words.cell_words(study, cell[axis]) for cell in line), *["summary"] * sums]
    return Table(head, rows, "One row a training run: look here before you trust a mean.", axis)


def clear_best(study: PairedGrids, cell: Labels) -> str:
    """The normalizer with the smallest mean in a cell, if it is clearly the best of all in it; else ``""``.

    Formula: p against every other normalizer, times the comparisons of the page, below 0.05 (Bonferroni)
    Bonferroni's correction is at least that of Holm, by which the map hatches: a normalizer is never bold where the map
    hatches it, and another normalizer is never bold where the map shows it clearly behind the baseline.
    """
    values = {rule: study.values(rule, cell) for rule in study.grids}
    first, *others = sorted(values, key=lambda rule: sum(values[rule]))
    if study.seeds == 1 or (study.scale == "log-ratio" and min(min(seeds) for seeds in values.values()) <= 0):
        return ""
    found = [study.versus(first, other, cell) for other in others]
    return first if all(effect.effect < 0 and effect.p * study.family.size < CLEAR for effect in found) else ""


def markdown(study: PairedGrids, spec: RunSpec, command: str, sections: Sequence[Section] = (), title: str = "") -> str:
    """Return the finding and the tables as Markdown."""
    made = table(study, spec)
    text = [f"## {md.escaped(title)}", ""] if title else []
    rows = markdown_rows(made)
    note = f"{made.note} More: docs/comparing.md."
    said = terms.explained("\n".join([words.conditions(study, spec), *rows]))
    text += [words.finding(study), "", words.conditions(study, spec), *filter(None, [said]), "", note, "", *rows]
    for section in sections:
        text += ["", f"### {section.title}", ""]
        if section.table.note:
            text += [section.table.note, ""]
        text += [*markdown_rows(section.table), "", *(f"* {note}" for note in section.notes)]
    single = seeds_table(study)
    if study.seeds > 1:
        text += ["", "### Every seed", "", single.note, "", *markdown_rows(single)]
    return "\n".join([*text, "", f"Made by {md.code(command)}.", ""])


def brief(study: PairedGrids, spec: RunSpec) -> str:
    """Return the conditions, the main table and, last, the finding as Markdown: what a terminal shows."""
    made = table(study, spec)
    return "\n".join([words.conditions(study, spec), "", *markdown_rows(made), "", words.finding(study), ""])


def markdown_rows(made: Table) -> list[str]:
    """Return a table as the lines of a Markdown table."""
    text = md.head(made.head)
    for row in made.rows:
        name, *cells = row.cells
        marked = [f"**{cell}**" if place in row.best else cell for place, cell in enumerate(cells, 1)]
        text.append(md.row([name if row.reference or made.words else f"`{name}`", *marked]))
    return text


def _shown(study: PairedGrids, rule: str, cell: Labels) -> str:
    """The mean over seeds; a rate with the interval that its number of prompts allows: no error in 256 is not 0."""
    value = words.mean(study.values(rule, cell))
    if not study.task.rates:
        return writer(study.task.log_scale, study.task.rates)(value)
    count = study.count(cell)
    low, high = wilson(value * count, count)
    return f"{short(value)} [{short(low)}, {short(high)}]"
