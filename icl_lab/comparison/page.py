"""A comparison in words and pictures: one table, the curves, the maps, and one page that holds them all."""

import base64
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import jinja2
from matplotlib.figure import Figure

from icl_lab import markdown as md
from icl_lab.comparison.statistics import COVERAGE, ONE_SEED, wilson
from icl_lab.comparison.study import Labels, Study, clip_model
from icl_lab.figures import lines, maps
from icl_lab.figures.base import encode, short
from icl_lab.runs.spec import RunSpec

PROMPTS = {
    True: "Intervals include the luck of the test prompts, which all models share (a paired bootstrap over prompts, "
    "added in quadrature); p values are those of the seeds on these prompts.",
    False: "Intervals and p values are for these test prompts: the luck of their draw is not included.",
}


@dataclass(frozen=True)
class Row:
    """A rule or a reference: its cells as text, and which of them are clearly the best of their column."""

    cells: list[str]
    best: frozenset[int] = frozenset()
    reference: bool = False


@dataclass(frozen=True)
class Table:
    """Rules by their declared summary, then the references."""

    head: list[str]
    rows: list[Row] = field(default_factory=list)
    note: str = ""
    words: bool = False  # cells hold sentences


@dataclass(frozen=True)
class Section:
    """A further table under a heading of its own, with notes below it."""

    title: str
    table: Table
    notes: Sequence[str] = ()


def table(study: Study, spec: RunSpec) -> Table:
    """Returns the means over seeds along the shift; the best of a column only where the seeds exclude a draw.

    Rules whose rows span decades carry the clip model that explains them best, so that a rule which is barely better
    than clipping looks it.
    """
    axis, line = _axis(study), study.line(_axis(study))
    clips, log = study.task.clip is not None, study.task.log_scale
    best = [_clear_best(study, cell) for cell in line]
    summary = {rule: _mean(study.summary(rule)) for rule in study.grids}
    rows = []
    for rule in sorted(summary, key=lambda rule: (math.isnan(summary[rule]), summary[rule])):
        cells = [rule, *(_shown(study, rule, cell) for cell in line), _number(summary[rule])]
        if clips:
            clip = clip_model(study, rule, spec.test)
            cells.append(f"{clip.bound:g} ({clip.residual:.2f})" if clip else "")
        rows.append(Row(cells, frozenset(place for place, winner in enumerate(best, 1) if winner == rule)))
    for name in study.references():
        values = [short(study.reference(name, cell)) for cell in line]
        rows.append(Row([name, *values, *[""] * (1 + clips)], reference=True))
    head = ["rule", *(f"{axis} {cell[axis]:g}" for cell in line), "summary", *["clip B (residual)"] * clips]
    note = f"Summary: {_summary(study)}. Bold: smaller than the next beyond the spread of the seeds."
    if not log:
        note += " In brackets: Wilson's 95 % interval of the rate for as many prompts as one seed was tested on."
    return Table(head, rows, note)


def markdown(study: Study, spec: RunSpec, command: str, sections: Sequence[Section] = (), title: str = "") -> str:
    """Returns the tables as Markdown."""
    made = table(study, spec)
    text = [f"## {title}", ""] if title else []
    text += [conditions(study, spec), "", *markdown_rows(made), "", made.note]
    for section in sections:
        text += [
            "",
            f"### {section.title}",
            "",
            *markdown_rows(section.table),
            "",
            *(f"* {note}" for note in section.notes),
        ]
    return "\n".join([*text, "", f"Made by `{command}`.", ""])


def markdown_rows(made: Table) -> list[str]:
    """Returns a table as the lines of a Markdown table."""
    text = md.head(made.head)
    for row in made.rows:
        name, *cells = row.cells
        marked = [f"**{cell}**" if place in row.best else cell for place, cell in enumerate(cells, 1)]
        text.append(md.row([name if row.reference or made.words else f"`{name}`", *marked]))
    return text


def conditions(study: Study, spec: RunSpec) -> str:
    """Says in one sentence what was measured, where and how often."""
    fixed = _fixed(study)
    seeds = f"{study.seeds} training seed{'s' * (study.seeds > 1)}"
    return f"{_words(study)}, {fixed}; {seeds}, preset {spec.preset}, baseline {study.baseline}."


def pictures(study: Study) -> dict[str, tuple[Figure, str]]:
    """Returns the figures by file name, each with what it shows."""
    rows, columns = study.task.heat_map
    found = {
        "curves": (
            curves(study),
            "Each line is the mean over the seeds, each dot one seed, the band all; references dashed and grey.",
        ),
        "maps": (
            maps.side_by_side(
                {rule: study.map(rule) for rule in study.grids},
                rows,
                columns,
                label=_words(study),
                log=study.task.log_scale,
            ),
            "Means over the seeds, one colour scale for all.",
        ),
    }
    effects = {rule: study.effects(rule) for rule in study.grids if rule != study.baseline}
    label = f"log2 (error / {study.baseline})" if study.task.log_scale else f"error - {study.baseline}"
    found["ratios"] = (
        maps.effects(effects, rows, columns, label=label),
        f"Against {study.baseline}: blue is better, red worse. Hatched: the interval does not exclude a draw"
        + (" (of one seed: the interval over prompts, where their errors are kept)." if study.seeds == 1 else "."),
    )
    return found


def curves(study: Study) -> Figure:
    """Draws the headline metric of every rule along the shift, over its seeds, with the references."""
    axis, line = _axis(study), study.line(_axis(study))
    return lines.rivals(
        [cell[axis] for cell in line],
        {rule: [study.values(rule, cell) for cell in line] for rule in study.grids},
        {name: [study.reference(name, cell) for cell in line] for name in study.references()},
        axis=axis,
        title=_fixed(study),
        label=_words(study),
        log=study.task.log_scale,
    )


def html(
    study: Study,
    spec: RunSpec,
    drawn: Mapping[str, tuple[Figure, str]],
    command: str,
    origin: str,
    sections: Sequence[Section] = (),
    title: str = "",
) -> str:
    """Returns one self-contained page: no file beside it, no request to anywhere, readable on a phone."""
    titles = {"curves": "Along the shift", "maps": "Over both axes", "ratios": "Against the baseline"}
    return render(
        "comparison.html",
        title=title or f"{spec.task}: {', '.join(study.grids)}",
        conditions=conditions(study, spec),
        notes=[ONE_SEED.capitalize() + "." if study.seeds == 1 else COVERAGE, PROMPTS[bool(study.errors)]],
        table=table(study, spec),
        sections=sections,
        figures=[
            {"title": titles[name], "caption": caption, "png": base64.b64encode(encode(figure, "png")).decode()}
            for name, (figure, caption) in drawn.items()
        ],
        command=command,
        origin=origin,
    )


def render(template: str, **fields: object) -> str:
    """Returns a page from a file in ``templates``; its fields are written as text, never as markup."""
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("icl_lab"), autoescape=True, undefined=jinja2.StrictUndefined
    )
    return environment.get_template(template).render(**fields)


def _axis(study: Study) -> str:
    """The axis along which rules are set beside each other."""
    return study.task.line_axis


def _fixed(study: Study) -> str:
    """What does not vary along the line, or is averaged over."""
    axis, means = _axis(study), study.averaged
    return ", ".join(
        f"mean over {means[name]} values of {name}" if name in means else f"{name} {value:g}"
        for name, value in study.training.items()
        if name != axis
    )


def _words(study: Study) -> str:
    return study.task.metric_label(study.metric)


def _summary(study: Study) -> str:
    """What the declared summary is, and what the clip model is fitted to."""
    task = study.task
    words = task.summary.words(task.log_scale)
    if task.clip is None:
        return words
    axis, far = task.clip.axis, max(cell[task.clip.axis] for cell in study.cells())
    return f"{words}; clip B fits {axis} {task.clip.start:g} to {far:g} best"


def _shown(study: Study, rule: str, cell: Labels) -> str:
    """The mean over seeds; a rate with the interval that its number of prompts allows: no error in 256 is not 0."""
    mean = _mean(study.values(rule, cell))
    if study.task.log_scale:
        return short(mean)
    count = study.count(cell)
    low, high = wilson(mean * count, count)
    return f"{short(mean)} [{short(low)}, {short(high)}]"


def _clear_best(study: Study, cell: Mapping[str, float]) -> str:
    """The rule with the smallest mean error in a cell, if it is smaller than the next beyond the seeds' spread."""
    values = {rule: study.values(rule, dict(cell)) for rule in study.grids}
    first, second = sorted(values, key=lambda rule: sum(values[rule]))[:2]
    undecided = study.seeds == 1 or (study.scale == "log-ratio" and min(values[first] + values[second]) <= 0)
    return "" if undecided or not study.versus(first, second, dict(cell)).clear else first


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _number(value: float) -> str:
    return "" if math.isnan(value) else f"{value:.3g}"
