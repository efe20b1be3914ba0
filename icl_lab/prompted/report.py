"""Report of a study: its headline along one axis of the grid, beside the task's references."""

import math
from collections import Counter
from statistics import fmean

from icl_lab import markdown as md
from icl_lab.analyses import page
from icl_lab.grid import Grid
from icl_lab.prompted.measurement import ROUNDED, UNANSWERED, UNPARSABLE, Measurements, measured
from icl_lab.prompted.record import Record
from icl_lab.prompted.study import PromptedStudy
from icl_lab.tables import csv_text

MILLION = 1e6


def money(tokens_in: float, tokens_out: float, price: tuple[float, float]) -> float:
    """Returns the price of so many tokens, at a price for a million read and a million written."""
    return (tokens_in * price[0] + tokens_out * price[1]) / MILLION


def make_report(
    study: PromptedStudy, record: Record, price: tuple[float, float] | None, command: str
) -> tuple[list[str], dict[str, str | bytes]]:
    """Measures a study; returns the lines of its table, and the other files of its folder."""
    found, name, spec = measured(study, record), study.options.name, study.spec
    grid = Grid.of(found.rows, study.axes, task=spec.task, preset=spec.preset, spec=study.hash, seed=0)
    lines = [f"# {name} on {spec.task}", "", _options(study, found), ""]
    for digits in study.digits:
        several = len(study.digits) > 1
        tag = f", {digits} decimal{'s' * (digits != 1)}" if several else ""
        lines += [*_table(study, grid.where(digits=digits) if several else grid, tag), ""]
    lines += [line for note in _notes(study, found, price) for line in (note, "")]
    told = "A language model that reads the test prompts of trained models as text."
    options = list(page.asked(study.recorded_options))
    return lines, {
        "grid.csv": grid.csv(),
        "answers.csv": csv_text(list(found.answers[0]), found.answers),
        "record.jsonl": record.lines({question.key for question in study.questions()}),
        **({"errors.safetensors": found.errors.encoded()} if found.errors.cells else {}),
        "report.html": page.document(lines[0].removeprefix("# "), told, "", options, lines[1:], {}, command),
    }


def _table(study: PromptedStudy, grid: Grid, tag: str) -> list[str]:
    """The headline along one axis, other axes as in training or the nearest to it, facets averaged."""
    task, name = study.task, study.options.name
    # The axis of the task's lines, or another one that has more than one value.
    order = [task.line_axis, *task.heat_map, *task.axes["full"]]
    axis = next((axis for axis in order if len(grid.values(axis)) > 1), order[0])
    places = grid.values(axis)
    fixed = {
        other: min(grid.values(other), key=lambda value: abs(value - trained))
        for other, trained in study.training.items()
        if other not in (axis, *task.facets)
    }
    averaged = [f", mean over {facet}" for facet in task.facets if facet != axis]
    words = [*(f", {other}={value:g}" for other, value in fixed.items()), *averaged]
    lines = [f"{task.metric_label(task.headline)} ({task.headline}){''.join(words)}{tag}:", ""]
    rows = []
    here = grid.where(**fixed)
    values, errors = here.by("attn", "metric", axis), here.by("attn", "metric", axis, column="stderr")
    for who in here.where(metric=task.headline).values("attn"):
        cells = [(values[who, task.headline, place], errors[who, task.headline, place]) for place in places]
        shown = [md.short(fmean(value)) for value, _ in cells]
        if who == name:
            noise = [math.hypot(*error) / len(error) for _, error in cells]
            shown = [f"{text} ± {md.short(e)}" if e == e else text for text, e in zip(shown, noise, strict=True)]
        rows.append([f"`{who}`", *shown])
    for metric in (f"{study.prefix}{kind}" for kind in (UNPARSABLE, UNANSWERED)):
        if metric in grid.values("metric"):
            # A cell in which every answer came has no share.
            shares = [fmean(values.get((name, metric, place), [0.0])) for place in places]
            rows.append([f"{metric.removeprefix(study.prefix)}, of `{name}`", *map("{:.0%}".format, shares)])
    return lines + md.table(["", *(f"{axis}={place:g}" for place in places)], rows)


def _options(study: PromptedStudy, found: Measurements) -> str:
    """The sentences above the table: number of answers, format, sampling."""
    options, cells = study.options, len(study.cells)
    asked = "one answer of a prompt, drawn evenly from those that the metric averages"
    if options.every_answer:
        asked = "every answer of a prompt, one at a time"
    elif study.speech.last:
        asked = "the last answer of a prompt"
    return (
        f"{len(found.answers):,} answers: {cells} cell{'s' * (cells != 1)}, {options.prompts} prompts in each (the "
        f"first of those that trained models meet) at temperature {options.temperature:g}. Format {options.form}, "
        f"numbers with {' or '.join(map(str, study.digits))} decimals"
        f"{'' if options.instruct else ', no instruction'}; asked is {asked}."
    )


def _notes(study: PromptedStudy, found: Measurements, price: tuple[float, float] | None) -> list[str]:
    zero = "count as the answer 0, the trivial one: a number would have to be made up"
    wrong = "count as wrong" if study.task.rates else zero
    notes = [f"{found.count(UNPARSABLE):,} of {len(found.answers):,} answers could not be read; they {wrong}."]
    if unanswered := found.count(UNANSWERED):
        notes.append(f"{unanswered:,} answers never came; they {wrong}, and no message of theirs was read.")
    if cut := sum(reply.finish == "length" for reply in found.replies):
        notes.append(f"{cut:,} answers were cut short by the limit of tokens (--answer-tokens).")
    if models := Counter(reply.model for reply in found.replies):
        named = (f"{md.code(name or 'no name')} ({count:,})" for name, count in models.items())
        notes.append(f"Answered as {md.listed(named)}.")
    read, wrote = (sum(getattr(reply, part) for reply in found.replies) for part in ("read", "wrote"))
    estimated = any(reply.estimated for reply in found.replies)
    counted = "estimated by us in part" if estimated else "as the server counted"
    cost = f" At the price given: {money(read, wrote, price):.4g}." if price else ""
    notes.append(f"Tokens: {read:,} read, {wrote:,} written ({counted}).{cost}")
    notes.append(
        "± is the standard error over the prompts of a cell. The prompts say nothing of other wordings: another format "
        "or instruction is another measurement."
    )
    if any(ROUNDED in row["attn"] for row in found.rows):
        notes.append(f"References marked{ROUNDED} read the numbers with the decimals that were sent.")
    return notes
