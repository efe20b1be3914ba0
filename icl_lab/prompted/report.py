"""Report of a study: a table along one axis of the grid, with references and trained models, notes, files."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from icl_lab import markdown as md
from icl_lab import published
from icl_lab.analyses import page
from icl_lab.figures.base import encode, short
from icl_lab.grid import Grid
from icl_lab.prompted.measurement import ROUNDED, UNANSWERED, UNPARSABLE, Measurements, measured
from icl_lab.prompted.pictures import figures
from icl_lab.prompted.record import Record
from icl_lab.prompted.slice import Slice
from icl_lab.prompted.study import PromptedStudy
from icl_lab.prompted.trained import TrainedRuns, trained
from icl_lab.runs.run import Run
from icl_lab.tables import csv_text

MILLION = 1e6


def money(tokens_in: float, tokens_out: float, price: tuple[float, float]) -> float:
    """Returns the price of so many tokens, at a price for a million read and a million written."""
    return (tokens_in * price[0] + tokens_out * price[1]) / MILLION


def table(part: Slice, found: Measurements, others: Sequence[TrainedRuns], price: tuple[float, float] | None) -> str:
    """Returns the report as Markdown: options, the headline along the axis, trained models, notes."""
    study, task, name = part.study, part.study.task, part.study.options.name
    lines = [f"# {name} on {study.spec.task}", "", _options(study, found), ""]
    for digits in study.digits:
        lines += [f"{task.metric_label(task.headline)} ({task.headline}){part.words}{part.tag(digits)}:", ""]
        lines += md.head(["", *(f"{part.axis}={place:g}" for place in part.places)])
        for each in part.names():
            values = part.along(each, task.headline, digits)
            cells = (f"{short(v)} ± {short(e)}" if each == name and e == e else short(v) for v, e in values)
            lines.append(md.row([f"`{each}`", *cells]))
            if each == name:
                lines += _shares(part, digits)
        for other in others:
            seeds = f"{other.seeds} seed{'s' * (other.seeds != 1)}"
            lines.append(md.row([f"`{other.attn}`, {seeds}", *map(other.cell, part.places)]))
            if other.effects:
                lines.append(md.row([f"{name} against `{other.attn}`", *map(other.versus, part.places)]))
        if study.speech.printed and (numbers := part.printed()):
            shown = ("" if math.isnan(number) else f"{short(number)} *" for number in numbers)
            lines.append(md.row([f"{study.speech.printed.label}, as printed *", *shown]))
        lines.append("")
    notes = _notes(study, found, price)
    if others:
        notes.append(
            "Trained normalizers: mean over seeds, from their own grids. Against them: the ratio or difference on the "
            "prompts that both met, with its 95 % interval (paired bootstrap over prompts, widened by the seeds)."
        )
    return "\n".join([*lines, *(text for note in [*notes, *_printed_notes(study)] for text in (note, "")), ""])


def _shares(part: Slice, digits: int) -> list[str]:
    """Rows of the answers that could not be read, or never came; a cell in which every answer came has no share."""
    there = part.grid.values("metric")
    shares = {
        kind: part.along(part.study.options.name, f"{part.study.prefix}{kind}", digits)
        for kind in (UNPARSABLE, UNANSWERED)
        if f"{part.study.prefix}{kind}" in there
    }
    return [
        md.row([f"- of them {kind}", *("0%" if math.isnan(value) else f"{value:.0%}" for value, _ in values)])
        for kind, values in shares.items()
    ]


def _options(study: PromptedStudy, found: Measurements) -> str:
    """The sentences above the table: number of answers, format, sampling."""
    ask, cells = study.options, len(study.cells)
    if study.lists:
        asked = "all answers of a prompt at once, as a list"
    elif ask.every_answer:
        asked = "every answer of a prompt, one at a time"
    elif study.speech.last:
        asked = "the last answer of a prompt"
    else:
        asked = "one answer of a prompt, drawn evenly from those that the metric averages"
    return (
        f"{found.asked:,} answers: {cells} cell{'s' * (cells != 1)}, {ask.prompts} prompts in each (the first of those "
        f"that trained models meet), {ask.samples} sample{'s' * (ask.samples > 1)} at temperature {ask.temperature:g}. "
        f"Format {study.form.name}, numbers with {' or '.join(map(str, study.digits))} decimals"
        f"{'' if ask.instruct else ', no instruction'}; asked is {asked}."
    )


def _notes(study: PromptedStudy, found: Measurements, price: tuple[float, float] | None) -> list[str]:
    zero = "count as the answer 0, the trivial one: a number would have to be made up"
    wrong = "count as wrong" if study.task.rates else zero
    notes = [f"{found.unparsable:,} of {found.asked:,} answers could not be read; they {wrong}."]
    if found.unanswered:
        notes.append(f"{found.unanswered:,} answers never came; they {wrong}, and no message of theirs was read.")
    if cut := sum(reply.finish == "length" for reply in found.replies):
        notes.append(f"{cut:,} answers were cut short by the limit of tokens (--answer-tokens).")
    if models := Counter(reply.model for reply in found.replies):
        named = (f"{md.code(name or 'no name')} ({count:,})" for name, count in models.items())
        notes.append(f"Answered as {md.listed(named)}.")
    read, wrote = (sum(getattr(reply, part) for reply in found.replies) for part in ("read", "wrote"))
    who = "the server" if study.options.engine == "openai" else "the tokenizer"
    estimated = any(reply.estimated for reply in found.replies)
    counted = "estimated by us in part" if estimated else f"as {who} counted"
    cost = f" At the price given: {money(read, wrote, price):.4g}." if price else ""
    notes.append(f"Tokens: {read:,} read, {wrote:,} written ({counted}).{cost}")
    notes.append(
        "± is the standard error over the prompts of a cell. The prompts say nothing of other wordings: another format "
        "or instruction is another measurement."
    )
    if any(ROUNDED in row["attn"] for row in found.rows):
        notes.append(f"References marked{ROUNDED} read the numbers with the decimals that were sent.")
    return notes


def _printed_notes(study: PromptedStudy) -> list[str]:
    """Source and footnotes of the published row."""
    printed = study.speech.printed
    if not printed:
        return []
    table = published.load(printed.table)
    source = table.source
    said = [note.text for row in table.where(**printed.where) for note in table.footnotes(row, printed.value)]
    remarks = [note.text for note in table.remarks if not note.columns]
    return [
        f"Printed: {source.paper}, {source.table} ({source.link}); {source.conditions}.",
        *(f"- {text}" for text in [*dict.fromkeys(said), *remarks]),
    ]


@dataclass(frozen=True)
class Report:
    """Results of a study: its text, files and figures."""

    text: str
    files: dict[str, str | bytes]
    figures: dict[str, Any]


def make_report(
    study: PromptedStudy,
    record: Record,
    runs: Mapping[str, Sequence[Run]],
    price: tuple[float, float] | None,
    command: str,
) -> Report:
    """Measures a study and reports it with trained models (``runs`` by normalizer)."""
    found, name = measured(study, record), study.options.name
    spec = study.spec
    grid = Grid.of(found.rows, study.axes, task=spec.task, preset=spec.preset, spec=study.hash, seed=0)
    part = Slice(study, grid)
    others = [trained(of, part, found.errors) for of in runs.values()]
    text = table(part, found, others, price) + f"\nMade by `{command}`.\n"
    drawn = figures(part, others)
    files: dict[str, str | bytes] = {
        "grid.csv": grid.csv(),
        "answers.csv": csv_text(list(found.answers[0]), found.answers),
        "record.jsonl": record.lines({question.key for question in study.questions()}),
        **({"errors.safetensors": found.errors.encoded()} if found.errors.cells else {}),
        "table.md": text,
        "report.html": page.document(
            f"{name} on {spec.task}",
            "A language model that reads the test prompts of trained models as text.",
            "",
            list(page.asked(study.recorded_options)),
            text.partition("\n")[2].splitlines()[:-1],
            {each: encode(figure, "png") for each, figure in drawn.items()},
            command,
        ),
    }
    return Report(text, files, drawn)
