"""Answers to grids: the metrics of trained models, on the same prompts, with the references of the task beside them."""

import csv
import io
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from icl_lab.grid import Grid
from icl_lab.prompted import parser
from icl_lab.prompted.question import Cell, Plan, Question
from icl_lab.prompted.record import Record, Reply
from icl_lab.runs.measure import Errors, judged, summary
from icl_lab.tasks.base import Prompt, Task, sure

UNPARSABLE = "unparsable"  # the share of a prompt's answers that could not be read, and counted as wrong
UNANSWERED = "unanswered"  # the share that never came, where these count as wrong too
ROUNDED = " (rounded)"  # a reference that reads the numbers as they are written


@dataclass(frozen=True)
class Heard:
    """One answer: where it belongs, what was said, its outputs (c), and why it counts as wrong unread (empty: read)."""

    question: Question
    token: int
    sample: int
    said: str
    outputs: Tensor | None
    wrong: str = ""


@dataclass
class Found:
    """What was measured: rows of the grid, a line for each answer, and counts for the table."""

    rows: list[dict[str, Any]] = field(default_factory=list)
    answers: list[dict[str, Any]] = field(default_factory=list)
    asked: int = 0
    unparsable: int = 0
    unanswered: int = 0
    cut: int = 0
    errors: Errors = field(default_factory=lambda: Errors([]))  # what each prompt adds to the headline
    models: dict[str, int] = field(default_factory=dict)
    read: int = 0
    wrote: int = 0
    estimated: bool = False


def measured(plan: Plan, record: Record, name: str) -> Found:
    """Measures what a record holds of a plan; ``name`` is that of the model in the column ``attn``.

    A question without an answer counts as wrong, and in ``unanswered``: who calls this has decided so.
    """
    found, several = Found(errors=Errors(plan.axes)), len(plan.digits) > 1
    for cell in plan.cells:
        suite, prompt, writer = plan.suites[cell.prefix], plan.drawn(cell), plan.writer(cell.digits)
        shape = (plan.samples, *prompt.targets.shape)
        outputs, asked = torch.zeros(*shape, plan.task.outputs), torch.zeros(shape, dtype=torch.bool)
        wrong = {kind: torch.zeros(shape, dtype=torch.bool) for kind in (UNPARSABLE, UNANSWERED)}
        for heard in _heard(plan, record, cell, prompt, found):
            at = (heard.sample, heard.question.prompt, heard.token)
            asked[at] = True
            if heard.outputs is not None:
                outputs[at] = heard.outputs
            else:
                wrong[heard.wrong][at] = True
            found.answers.append(_told(plan, heard, prompt, writer.number, cell))
        labels = cell.labels(several)
        spoiled = wrong[UNPARSABLE] | wrong[UNANSWERED]
        views = _views(plan, suite, prompt, outputs, asked, spoiled, dict(cell.shift))
        for metric, values in views.items():
            if metric.startswith(cell.prefix):
                row = {"attn": name, **labels, "metric": metric}
                found.rows.append(row | summary(values, median=metric in plan.task.medians))
            if metric == plan.task.headline and metric.startswith(cell.prefix):
                found.errors.add(labels, values)
        for kind, places in wrong.items():
            if kind == UNPARSABLE or places.any():
                share = places.sum((0, 2)) / asked.sum((0, 2))
                found.rows.append({"attn": name, **labels, "metric": f"{cell.prefix}{kind}"} | summary(share.double()))
        found.rows += _references(plan, cell, prompt, labels)
    return found


def grid(plan: Plan, found: Found, **who: Any) -> Grid:
    """Returns the rows as a grid with the columns of every other; ``who`` fills task, preset, spec and seed."""
    return Grid.of(found.rows, plan.axes, **who)


def answers(found: Found) -> str:
    """Returns a line for each answer, as CSV."""
    text = io.StringIO()
    writer = csv.DictWriter(text, list(found.answers[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(found.answers)
    return text.getvalue()


def read(question: Question, said: str, scores: Sequence[float]) -> list[Tensor] | None:
    """Returns what an answer says, a tensor of scores or of one number for each that was wanted; None unparsable."""
    if scores:
        return [torch.tensor(scores)]
    text = parser.first_part(said, question.sent)
    if question.listed:
        named = parser.listed(text, question.choices, question.wants)
        return None if named is None else [sure(question.choices, each) for each in named]
    if question.choices:
        one = parser.choice(text, question.choices)
        return None if one is None else [sure(question.choices, one)]
    value = parser.number(text)
    return None if value is None or math.isinf(_single(value)) else [torch.tensor([value])]


def _single(value: float) -> float:
    """A number in the precision of outputs, where the largest ones are infinite."""
    return float(torch.tensor(value))


def _heard(plan: Plan, record: Record, cell: Cell, prompt: Prompt, found: Found) -> Iterator[Heard]:
    """Yields every answer that is wanted of a cell, and counts what the table tells."""
    tokens = plan.asked(cell, prompt)
    for question in plan.questions(cell):
        reply = record.answer(question)
        wanted = tokens[question.prompt] if question.listed else [question.token]
        found.asked += len(wanted)
        if reply is None:
            found.unanswered += len(wanted)
            yield from (Heard(question, token, question.sample, "", None, UNANSWERED) for token in wanted)
            continue
        _count(found, reply)
        parts = read(question, reply.said, reply.scores)
        if parts is None:
            found.unparsable += len(wanted)
            yield from (Heard(question, token, question.sample, reply.said, None, UNPARSABLE) for token in wanted)
            continue
        for token, part in zip(wanted, parts, strict=True):
            yield Heard(question, token, question.sample, reply.said, plan.task.heard(part))


def _count(found: Found, reply: Reply) -> None:
    found.models[reply.model] = found.models.get(reply.model, 0) + 1
    found.read, found.wrote = found.read + reply.read, found.wrote + reply.wrote
    found.cut += reply.finish == "length"
    found.estimated |= reply.estimated


def _views(
    plan: Plan, suite: Task, prompt: Prompt, outputs: Tensor, asked: Tensor, wrong: Tensor, shift: Mapping[str, float]
) -> dict[str, Tensor]:
    """Outputs (s b t c) of s samples -> the metrics that these answers settle, each prompt's mean over the samples."""
    kept = _settled(suite, prompt, asked[0], shift)
    means = plan.speech.means if not plan.speech.last else ()
    found: dict[str, list[Tensor]] = {}
    for each, there, bad in zip(outputs, asked, wrong, strict=True):
        errors = suite.errors(each, prompt)
        there, bad = (_columns(prompt, errors, part) for part in (there, bad))
        if suite.rates:
            errors = errors.where(~bad, suite.worst)  # answers that are numbers were read as 0, which is not set here
        views = suite.views(errors, prompt, **shift)
        # The mean of the answers that were asked stands for the mean of all: they were drawn evenly.
        gap = ~there & ~errors.isnan()
        mean = errors.where(there, torch.nan).nanmean(1, keepdim=True)
        estimated = suite.views(torch.where(gap, mean, errors), prompt, **shift)
        for name, values in views.items():
            if name in kept:
                found.setdefault(name, []).append(values)
            elif name in means:
                found.setdefault(name, []).append(estimated[name])
    return {name: torch.stack(values).mean(0) for name, values in found.items()}


def _settled(suite: Task, prompt: Prompt, asked: Tensor, shift: Mapping[str, float]) -> set[str]:
    """The metrics that hang on no answer but those that were asked for: these may be told."""
    errors = suite.errors(torch.zeros(*prompt.targets.shape, suite.outputs), prompt)
    there = _columns(prompt, errors, asked)
    low, high = (
        suite.views(torch.where(errors.isnan(), errors, torch.where(there, 0.0, fill)), prompt, **shift)
        for fill in (0.0, 1.0)
    )
    return {name for name in low if torch.equal(low[name].nan_to_num(-1), high[name].nan_to_num(-1))}


def _columns(prompt: Prompt, errors: Tensor, places: Tensor) -> Tensor:
    """Tokens (b t) -> the form of errors: as they are, or a column for each scored token."""
    if errors.shape == places.shape:
        return places
    return places[prompt.scored].view(errors.shape)


def _references(plan: Plan, cell: Cell, prompt: Prompt, labels: Mapping[str, float]) -> Iterator[dict[str, Any]]:
    """Yields the rows of the task's references on all answers of the prompts, as in every grid.

    Those that read the prompt stand there a second time, reading the numbers as they are written: no reader of the text
    can know more.
    """
    suite, task = plan.suites[cell.prefix], plan.task
    rounded = Prompt(_rounded(prompt.tokens, cell.digits), prompt.targets, prompt.scored)
    twice = not torch.equal(rounded.tokens, prompt.tokens)
    for name, predict in task.references().items():
        reads = [("", prompt), (ROUNDED, rounded)] if twice and name not in task.trivial else [("", prompt)]
        for tag, seen in reads:
            views = suite.views(judged(suite, predict(seen), prompt), prompt, **dict(cell.shift))
            for metric, values in views.items():
                if metric in (task.beside or (task.headline,)) and metric.startswith(cell.prefix):
                    row = {"attn": f"reference:{name}{tag}", **labels, "metric": metric}
                    yield row | summary(values, median=metric in task.medians)


def _rounded(tokens: Tensor, digits: int) -> Tensor:
    """Numbers with so many decimals; tokens that are whole numbers stay."""
    return tokens.double().round(decimals=digits).to(tokens.dtype) if tokens.is_floating_point() else tokens


def _told(plan: Plan, heard: Heard, prompt: Prompt, number: Any, cell: Cell) -> dict[str, Any]:
    """An answer as a line: where, what was said, the truth."""
    index = heard.question.prompt
    one = Prompt(*(part[index : index + 1] for part in (prompt.tokens, prompt.targets, prompt.scored)))
    said = " ".join(heard.said.split())
    return {
        **({"set": cell.prefix} if len(plan.suites) > 1 else {}),
        **cell.labels(True),
        "prompt": index,
        "token": heard.token,
        "sample": heard.sample,
        "said": said if len(said) <= 200 else f"{said[:200]}...",
        "truth": plan.task.right(one, heard.token, number),
        "read": heard.wrong or "yes",
    }
