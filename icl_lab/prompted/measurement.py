"""Measurement: the metrics of trained models on the same prompts, with their references, from answers in a record."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from icl_lab.prompted.question import PromptQuestion
from icl_lab.prompted.record import Record, Reply
from icl_lab.prompted.study import Cell, PromptedStudy, shift_of
from icl_lab.runs.measure import Errors, judged, summary
from icl_lab.tasks.base import Prompt

UNPARSABLE = "unparsable"  # the share of a prompt's answers that could not be read, and counted as wrong
UNANSWERED = "unanswered"  # the share that never came, where these count as wrong too
ROUNDED = " (rounded)"  # a reference that reads the numbers as they are written
LONGEST = 200  # characters of an answer in ``answers.csv``


@dataclass
class Measurements:
    """Results of a study: rows of the grid, a line for each answer, and the replies that they were read from."""

    errors: Errors  # contribution of each prompt to the headline
    rows: list[dict[str, Any]] = field(default_factory=list)
    answers: list[dict[str, Any]] = field(default_factory=list)
    replies: list[Reply] = field(default_factory=list)

    def count(self, read: str) -> int:
        """Returns the number of answers that were ``UNPARSABLE`` or ``UNANSWERED``."""
        return sum(line["read"] == read for line in self.answers)


def measured(study: PromptedStudy, record: Record) -> Measurements:
    """Measures the answers of a record.

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
            reply, read = record.answer(question), UNANSWERED
            at = (question.prompt, question.token)
            asked[at] = True
            if reply is not None:
                found.replies.append(reply)
                value = study.speech.outputs(answer_text(question, reply), task.outputs)
                read = UNPARSABLE if value is None else "yes"
                if value is not None:
                    outputs[at] = value
            if read in wrong:
                wrong[read][at] = True
            text = " ".join(reply.said.split()) if reply else ""
            said = text if len(text) <= LONGEST else f"{text[:LONGEST]}..."
            asked_of = {"prompt": question.prompt, "token": question.token, "sample": 0}
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
    """Returns the answer up to its stop text, which not every server heeds; blanks before it do not count."""
    text = reply.said.lstrip()
    for stop in question.sent.get("stop", []):
        text = text.partition(stop)[0]
    return text


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
    told = settled if study.speech.last else {*settled, *study.speech.means}
    return {name: v for name, v in views.items() if name in told and name.startswith(study.prefix)}


def _columns(prompt: Prompt, errors: Tensor, places: Tensor) -> Tensor:
    """Tokens (b t) -> the form of errors: as they are, or a column for each scored token."""
    return places if errors.shape == places.shape else places[prompt.scored].view(errors.shape)


def _references(study: PromptedStudy, cell: Cell, prompt: Prompt, labels: dict[str, float]) -> Iterator[dict[str, Any]]:
    """Yields the rows of the task's references on all answers of the prompts, as in every grid.

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
