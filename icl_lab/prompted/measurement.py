"""Measurement: the metrics of trained models on the same prompts, with their references, from answers in a record."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from icl_lab.prompted.parser import parse
from icl_lab.prompted.question import GridCell, PromptQuestion
from icl_lab.prompted.record import Record, Reply
from icl_lab.prompted.study import PromptedStudy, single
from icl_lab.runs.measure import Errors, judged, summary
from icl_lab.tasks.base import Prompt, Task

UNPARSABLE = "unparsable"  # the share of a prompt's answers that could not be read, and counted as wrong
UNANSWERED = "unanswered"  # the share that never came, where these count as wrong too
ROUNDED = " (rounded)"  # a reference that reads the numbers as they are written
LONGEST = 200  # characters of an answer in ``answers.csv``


@dataclass(frozen=True)
class ReadAnswer:
    """One answer: its question and token, its text, its outputs (c), or why it counts as wrong unread (``wrong``)."""

    question: PromptQuestion
    token: int
    said: str = ""
    outputs: Tensor | None = None
    wrong: str = ""


@dataclass
class Measurements:
    """Results of a study: rows of the grid, a line for each answer, and the replies that they were read from."""

    errors: Errors  # contribution of each prompt to the headline
    rows: list[dict[str, Any]] = field(default_factory=list)
    answers: list[dict[str, Any]] = field(default_factory=list)
    replies: list[Reply] = field(default_factory=list)

    @property
    def asked(self) -> int:
        """Number of answers that were asked for."""
        return len(self.answers)

    @property
    def unparsable(self) -> int:
        """Number of answers that could not be read."""
        return sum(line["read"] == UNPARSABLE for line in self.answers)

    @property
    def unanswered(self) -> int:
        """Number of answers that never came."""
        return sum(line["read"] == UNANSWERED for line in self.answers)


def measured(study: PromptedStudy, record: Record) -> Measurements:
    """Measures the answers of a record.

    A question without an answer counts as wrong, and in ``unanswered``: who calls this has decided so.
    """
    found, task, name = Measurements(Errors(study.axes)), study.task, study.options.name
    for cell in study.cells:
        prompt, written = study.drawn(cell), study.writer(cell.digits).number
        questions = list(study.questions_of(cell))
        found.replies += [reply for question in questions if (reply := record.answer(question))]
        # Outputs (s b t c) of every sample; which of them were asked for, and which count as wrong, (s b t).
        shape = (study.options.samples, *prompt.targets.shape)
        outputs, asked = torch.zeros(*shape, task.outputs), torch.zeros(shape, dtype=torch.bool)
        wrong = {kind: torch.zeros(shape, dtype=torch.bool) for kind in (UNPARSABLE, UNANSWERED)}
        for answer in _answers(study, record, questions, study.asked(cell, prompt)):
            at = (answer.question.sample, answer.question.prompt, answer.token)
            asked[at] = True
            if answer.outputs is not None:
                outputs[at] = answer.outputs
            else:
                wrong[answer.wrong][at] = True
            found.answers.append(_line(study, answer, prompt, written))
        labels = cell.labels(len(study.digits) > 1)
        views = _views(study, cell, prompt, outputs, asked, wrong[UNPARSABLE] | wrong[UNANSWERED])
        for metric, values in views.items():
            if metric.startswith(cell.prefix):
                row = {"attn": name, **labels, "metric": metric}
                found.rows.append(row | summary(values, median=metric in task.medians))
            if metric == task.headline and metric.startswith(cell.prefix):
                found.errors.add(labels, values)
        for kind, places in wrong.items():
            if kind == UNPARSABLE or places.any():
                share = places.sum((0, 2)) / asked.sum((0, 2))
                found.rows.append({"attn": name, **labels, "metric": f"{cell.prefix}{kind}"} | summary(share.double()))
        found.rows += _references(study, cell, prompt, labels)
    return found


def _answers(
    study: PromptedStudy, record: Record, questions: Sequence[PromptQuestion], asked: Sequence[Sequence[int]]
) -> Iterator[ReadAnswer]:
    """Yields every answer that the questions of a cell ask for; ``asked`` are the tokens of each prompt."""
    for question in questions:
        reply = record.answer(question)
        tokens = asked[question.prompt] if question.listed else [question.token]
        parts = parse(question, reply.said, reply.scores) if reply else None
        if reply is None or parts is None:
            said, wrong = (reply.said, UNPARSABLE) if reply else ("", UNANSWERED)
            yield from (ReadAnswer(question, token, said, wrong=wrong) for token in tokens)
            continue
        for token, part in zip(tokens, parts, strict=True):
            yield ReadAnswer(question, token, reply.said, study.speech.outputs(part, study.task.outputs))


def _views(
    study: PromptedStudy, cell: GridCell, prompt: Prompt, outputs: Tensor, asked: Tensor, wrong: Tensor
) -> dict[str, Tensor]:
    """Outputs (s b t c) of s samples -> the metrics that these answers settle, each prompt's mean over the samples."""
    suite, shift = study.suites[cell.prefix], dict(cell.shift)
    kept = _settled(suite, prompt, asked[0], shift)
    means = study.speech.means if not study.speech.last else ()
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
    """The metrics that depend on no answer but those that were asked for."""
    errors = suite.errors(torch.zeros(*prompt.targets.shape, suite.outputs), prompt)
    there = _columns(prompt, errors, asked)
    low, high = (
        suite.views(torch.where(errors.isnan(), errors, torch.where(there, 0.0, fill)), prompt, **shift)
        for fill in (0.0, 1.0)
    )
    return {name for name in low if torch.equal(low[name].nan_to_num(-1), high[name].nan_to_num(-1))}


def _columns(prompt: Prompt, errors: Tensor, places: Tensor) -> Tensor:
    """Tokens (b t) -> the form of errors: as they are, or a column for each scored token."""
    return places if errors.shape == places.shape else places[prompt.scored].view(errors.shape)


def _references(
    study: PromptedStudy, cell: GridCell, prompt: Prompt, labels: Mapping[str, float]
) -> Iterator[dict[str, Any]]:
    """Yields the rows of the task's references on all answers of the prompts, as in every grid.

    Those that read the prompt stand there a second time, reading the numbers as they are written: no reader of the text
    can know more.
    """
    suite, task, tokens = study.suites[cell.prefix], study.task, prompt.tokens
    if tokens.is_floating_point():
        tokens = tokens.double().round(decimals=cell.digits).to(tokens.dtype)
    rounded = Prompt(tokens, prompt.targets, prompt.scored)
    twice = not torch.equal(tokens, prompt.tokens)
    for name, predict in task.references().items():
        reads = [("", prompt), (ROUNDED, rounded)] if twice and name not in task.trivial else [("", prompt)]
        for tag, seen in reads:
            views = suite.views(judged(suite, predict(seen), prompt), prompt, **dict(cell.shift))
            for metric, values in views.items():
                if metric in (task.beside or (task.headline,)) and metric.startswith(cell.prefix):
                    row = {"attn": f"reference:{name}{tag}", **labels, "metric": metric}
                    yield row | summary(values, median=metric in task.medians)


def _line(study: PromptedStudy, answer: ReadAnswer, prompt: Prompt, written: Callable[[float], str]) -> dict[str, Any]:
    """An answer as a line of ``answers.csv``."""
    question, said = answer.question, " ".join(answer.said.split())
    return {
        **({"set": question.cell.prefix} if len(study.suites) > 1 else {}),
        **question.cell.labels(True),
        "prompt": question.prompt,
        "token": answer.token,
        "sample": question.sample,
        "said": said if len(said) <= LONGEST else f"{said[:LONGEST]}...",
        "truth": study.speech.right(single(prompt, question.prompt), answer.token, written),
        "read": answer.wrong or "yes",
    }
