"""Report of a study: the metrics of trained models on the same prompts, from answers, and their table."""

import math
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any

import torch
from torch import Tensor

from icl_lab.analyses import publish
from icl_lab.base import markdown as md
from icl_lab.base.grid import Grid
from icl_lab.base.tables import csv_text
from icl_lab.extras.prompted import batch
from icl_lab.extras.prompted.batch import Reply
from icl_lab.extras.prompted.question import PromptQuestion
from icl_lab.extras.prompted.study import Cell, PromptedStudy, shift_of
from icl_lab.runs.measure import Errors, judged, summary
from icl_lab.tasks.base import Prompt

UNPARSABLE = "unparsable"  # the share of a prompt's answers that could not be read, and counted as wrong
UNANSWERED = "unanswered"  # the share that never came, where these count as wrong too
ROUNDED = " (rounded)"  # a reference that reads the numbers as they are written
LONGEST = 200  # characters of an answer in ``answers.csv``


@dataclass
class Measurements:
    """Results of a study: rows of the grid, and a line for each answer."""

    errors: Errors  # contribution of each prompt to the headline
    rows: list[dict[str, Any]] = field(default_factory=list)
    answers: list[dict[str, Any]] = field(default_factory=list)

    def count(self, read: str) -> int:
        """Return the number of answers that were ``UNPARSABLE`` or ``UNANSWERED``."""
        return sum(line["read"] == read for line in self.answers)


def make_report(
    study: PromptedStudy, replies: Mapping[str, Reply], options: Mapping[str, Any], command: str
) -> tuple[list[str], dict[str, str | bytes]]:
    """Measure a study; return the lines of its table, and the other files of its folder."""
    found, model, spec = measured(study, replies), study.options.model, study.spec
    grid = Grid.of(found.rows, study.axes, task=spec.task, preset=spec.preset, spec=study.hash, seed=0)
    lines = [f"# {model} on {spec.task}", "", _options(study, found), ""]
    for digits in study.digits:
        several = len(study.digits) > 1
        tag = f", {digits} decimal{'s' * (digits != 1)}" if several else ""
        lines += [*_table(study, grid.where(digits=digits) if several else grid, tag), ""]
    lines += [line for note in _notes(study, found, replies) for line in (note, "")]
    about = "A language model that reads the test prompts of trained models as text."
    shown = list(publish.asked(options))
    return lines, {
        "grid.csv": grid.csv(),
        "answers.csv": csv_text(list(found.answers[0]), found.answers),
        "answers.jsonl": batch.kept(replies),
        **({"errors.safetensors": found.errors.encoded()} if found.errors.cells else {}),
        "report.html": publish.document(lines[0].removeprefix("# "), about, "", shown, lines[1:], {}, command),
    }


def measured(study: PromptedStudy, replies: Mapping[str, Reply]) -> Measurements:
    """Measure the answers of a study, by the keys of its questions.

    A question without an answer counts as wrong, and in ``unanswered``: who calls this has decided so.
    """
    found, task, name = Measurements(Errors(study.axes)), study.task, study.options.name
    for cell in study.cells:
        prompt, labels = study.drawn(cell), {axis: cell[axis] for axis in study.axes}
        # Outputs, (b t c); which of them were asked for, and which count as wrong, (b t).
        shape = prompt.targets.shape
        outputs, asked = torch.zeros(*shape, task.outputs), torch.zeros(shape, dtype=torch.bool)
        wrong = {kind: torch.zeros(shape, dtype=torch.bool) for kind in (UNPARSABLE, UNANSWERED)}
        for question in study.questions_of(cell):
            reply, read = replies.get(question.key), UNANSWERED
            at = (question.prompt, question.token)
            asked[at] = True
            if reply is not None:
                value = study.speech.outputs(answer_text(question, reply), task.outputs)
                read = UNPARSABLE if value is None else "yes"
                if value is not None:
                    outputs[at] = value
            if read in wrong:
                wrong[read][at] = True
            text = " ".join(reply.said.split()) if reply else ""
            said = text if len(text) <= LONGEST else f"{text[:LONGEST]}..."
            asked_of = {"prompt": question.prompt, "token": question.token}
            found.answers.append(cell | asked_of | {"said": said, "truth": question.truth, "read": read})
        views = _views(study, cell, prompt, outputs, asked, wrong[UNPARSABLE] | wrong[UNANSWERED])
        for metric, values in views.items():
            row = {"attn": name, **labels, "metric": metric}
            found.rows.append(row | summary(values, median=metric in task.medians))
            if metric == task.headline:
                found.errors.add(labels, values)
        for kind, places in wrong.items():
            if kind == UNPARSABLE or places.any():
                share = places.sum(1) / asked.sum(1)
                row = {"attn": name, **labels, "metric": f"{study.prefix}{kind}"}
                found.rows.append(row | summary(share.double()))
        found.rows += _references(study, cell, prompt, labels)
    return found


def answer_text(question: PromptQuestion, reply: Reply) -> str:
    """Return the answer; that to a text that is to be gone on with ends with its line, whether or not it stopped."""
    text = reply.said.lstrip()
    return text.partition("\n")[0] if "prompt" in question.body else text


def _views(
    study: PromptedStudy, cell: Cell, prompt: Prompt, outputs: Tensor, asked: Tensor, wrong: Tensor
) -> dict[str, Tensor]:
    """Outputs (b t c) -> the metrics that these answers settle, and the means over answers that they estimate."""
    suite, shift = study.suite, shift_of(cell)
    errors = suite.errors(outputs, prompt)
    there, bad = (_columns(prompt, errors, part) for part in (asked, wrong))
    # A metric is settled if it is equal whether all answers that were not asked for are right or wrong.
    right, spoilt = (
        suite.views(torch.where(errors.isnan(), errors, torch.where(there, 0.0, fill)), prompt, **shift)
        for fill in (0.0, 1.0)
    )
    settled = {name for name in right if torch.equal(right[name].nan_to_num(-1), spoilt[name].nan_to_num(-1))}
    if suite.rates:
        errors = errors.where(~bad, suite.worst)  # answers that are numbers were read as 0, which is not set here
    # The mean of the answers that were asked stands for the mean of all: they were drawn evenly.
    gap = ~there & ~errors.isnan()
    mean = errors.where(there, torch.nan).nanmean(1, keepdim=True)
    views = suite.views(torch.where(gap, mean, errors), prompt, **shift)
    metrics = settled if study.speech.last else {*settled, *study.speech.means}
    return {name: v for name, v in views.items() if name in metrics and name.startswith(study.prefix)}


def _columns(prompt: Prompt, errors: Tensor, places: Tensor) -> Tensor:
    """Tokens (b t) -> the form of errors: as they are, or a column for each scored token."""
    return places if errors.shape == places.shape else places[prompt.scored].view(errors.shape)


def _references(study: PromptedStudy, cell: Cell, prompt: Prompt, labels: dict[str, float]) -> Iterator[dict[str, Any]]:
    """Yield the rows of the task's references on all answers of the prompts, as in every grid.

    Those that read the prompt stand there a second time, reading the numbers as they are written: no reader of the text
    can know more.
    """
    suite, task, tokens = study.suite, study.task, prompt.tokens
    if tokens.is_floating_point():
        tokens = tokens.double().round(decimals=int(cell["digits"])).to(tokens.dtype)
    rounded = Prompt(tokens, prompt.targets, prompt.scored)
    twice = not torch.equal(tokens, prompt.tokens)
    for name, predict in task.references().items():
        reads = [("", prompt), (ROUNDED, rounded)] if twice and name not in task.trivial else [("", prompt)]
        for tag, seen in reads:
            views = suite.views(judged(suite, predict(seen), prompt), prompt, **shift_of(cell))
            for metric, values in views.items():
                if metric in (task.beside or (task.headline,)) and metric.startswith(study.prefix):
                    row = {"attn": f"reference:{name}{tag}", **labels, "metric": metric}
                    yield row | summary(values, median=metric in task.medians)


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


def _notes(study: PromptedStudy, found: Measurements, replies: Mapping[str, Reply]) -> list[str]:
    zero = "count as the answer 0, the trivial one: a number would have to be made up"
    wrong = "count as wrong" if study.task.rates else zero
    notes = [f"{found.count(UNPARSABLE):,} of {len(found.answers):,} answers could not be read; they {wrong}."]
    if unanswered := found.count(UNANSWERED):
        notes.append(f"{unanswered:,} answers never came; they {wrong}, and no message of theirs was read.")
    if cut := sum(reply.finish == "length" for reply in replies.values()):
        notes.append(f"{cut:,} answers were cut short by the limit of tokens (--answer-tokens).")
    if models := Counter(reply.model for reply in replies.values()):
        named = (f"{md.code(name or 'no name')} ({count:,})" for name, count in sorted(models.items()))
        notes.append(f"Answered as {md.listed(named)}.")
    notes.append(
        "± is the standard error over the prompts of a cell. The prompts say nothing of other wordings: another format "
        "or instruction is another measurement."
    )
    if any(ROUNDED in row["attn"] for row in found.rows):
        notes.append(f"References marked{ROUNDED} read the numbers with the decimals that were sent.")
    return notes
