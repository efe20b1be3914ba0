"""Measurement: answers read from text, and the metrics of trained models on the same prompts, with their references.

Answers are read strictly: a model that reasons before it answers, that gives two numbers, or a number with a unit, has
not answered in the form that was asked for. A lenient parser scores its own guesses.
"""

import csv
import io
import math
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from icl_lab.prompted.question import Cell, Question, Sent
from icl_lab.prompted.record import Record
from icl_lab.prompted.speech import sure
from icl_lab.prompted.study import Study, single
from icl_lab.runs.measure import Errors, judged, summary
from icl_lab.tasks.base import Prompt, Task

UNPARSABLE = "unparsable"  # the share of a prompt's answers that could not be read, and counted as wrong
UNANSWERED = "unanswered"  # the share that never came, where these count as wrong too
ROUNDED = " (rounded)"  # a reference that reads the numbers as they are written

# ``answer: ..``, ``#Answer: ..``, ``the answer is ..``, ``y = ..``
LABEL = re.compile(
    r"(?:#\s*)?(?:(?:the\s+)?(?:final\s+)?(?:answer|output|result|y)\s*(?:is\s*:?|[:=])\s*)", re.IGNORECASE
)
NUMBER = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]+)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
WRAPS = ("```", "**", "`", "$", '"', "'")
MINUS = "\u2212"  # the minus of print


def number(text: str) -> float | None:
    """Returns the one number that a text is; None where it is anything else, or no finite number.

    A sign, decimals after a point, an exponent, a minus of print, a label in front and a full stop behind are read;
    thousands set apart, fractions, units and ranges are not.

    >>> number("answer: 3.2."), number("−1"), number("1e3"), number("1,000"), number("1/2"), number("2 or 3")
    (3.2, -1.0, 1000.0, None, None, None)
    """
    bare = _bare(text).replace(MINUS, "-")
    for form in (bare, bare.removesuffix(".")):
        if NUMBER.fullmatch(form):
            value = float(form)
            return value if math.isfinite(value) else None
    return None


def choice(text: str, choices: Sequence[str]) -> str | None:
    """Returns the one choice that a text is, whatever its case; None where it is anything else.

    >>> choice(" true.", ["False", "True"]), choice("True, because", ["False", "True"])
    ('True', None)
    """
    bare = _bare(text)
    for form in (bare, bare.removesuffix(".")):
        if form in choices:
            return form
        found = [each for each in choices if each.casefold() == form.casefold()]
        if len(found) == 1:
            return found[0]
    return None


def listed(text: str, choices: Sequence[str], length: int) -> list[str] | None:
    """Returns the choices of a list in square brackets; None unless all are choices and there are ``length`` of them.

    >>> listed("#Answer: [True, false]", ["False", "True"], 2)
    ['True', 'False']
    """
    bare = _bare(text).removesuffix(".")
    if not (bare.startswith("[") and bare.endswith("]")):
        return None
    found = [each for part in bare[1:-1].split(",") if (each := choice(part, choices)) is not None]
    return found if len(found) == length == bare.count(",") + 1 else None


def first_part(text: str, sent: Sent) -> str:
    """Returns the answer up to its stop text, which not every server heeds; blanks before it do not count."""
    begun = text.lstrip()
    for stop in sent.stop:
        begun = begun.partition(stop)[0]
    return begun


def _bare(text: str) -> str:
    """A text without the label in front, and without the signs of typesetting around it."""
    bare, before = text.strip(), None
    while bare != before:
        before = bare
        if label := LABEL.match(bare):
            bare = bare[label.end() :].strip()
        for wrap in WRAPS:
            if len(bare) > 2 * len(wrap) and bare.startswith(wrap) and bare.endswith(wrap):
                bare = bare[len(wrap) : -len(wrap)].strip()
    return bare


def read(question: Question, said: str, scores: Sequence[float]) -> list[Tensor] | None:
    """Returns an answer as tensors, one for each that was wanted: scores of choices or one number; None unparsable."""
    if scores:
        return [torch.tensor(scores)]
    text, choices = first_part(said, question.sent), question.choices
    if choices:
        one = choice(text, choices)
        named = listed(text, choices, question.wants) if question.listed else one and [one]
        return [sure(choices, each) for each in named] if named else None
    value = number(text)
    # The largest numbers are infinite in the precision of outputs.
    return None if value is None or torch.tensor(value).isinf() else [torch.tensor([value])]


@dataclass(frozen=True)
class Heard:
    """One answer: where it belongs, its text, its outputs (c), or why it counts as wrong unread (``wrong``)."""

    question: Question
    token: int
    said: str = ""
    outputs: Tensor | None = None
    wrong: str = ""


@dataclass
class Found:
    """Results of a study: rows of the grid, a line for each answer, and counts for the report."""

    errors: Errors  # contribution of each prompt to the headline
    rows: list[dict[str, Any]] = field(default_factory=list)
    answers: list[dict[str, Any]] = field(default_factory=list)
    asked: int = 0
    unparsable: int = 0
    unanswered: int = 0
    cut: int = 0
    models: Counter[str] = field(default_factory=Counter)
    read: int = 0
    wrote: int = 0
    estimated: bool = False

    def csv(self) -> str:
        """Returns a line for each answer."""
        text = io.StringIO()
        writer = csv.DictWriter(text, list(self.answers[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(self.answers)
        return text.getvalue()


def measured(study: Study, record: Record) -> Found:
    """Measures the answers of a record.

    A question without an answer counts as wrong, and in ``unanswered``: who calls this has decided so.
    """
    found, task, name = Found(Errors(study.axes)), study.task, study.ask.name
    for cell in study.cells:
        prompt, written = study.drawn(cell), study.writer(cell.digits).number
        shape = (study.ask.samples, *prompt.targets.shape)
        outputs, asked = torch.zeros(*shape, task.outputs), torch.zeros(shape, dtype=torch.bool)
        wrong = {kind: torch.zeros(shape, dtype=torch.bool) for kind in (UNPARSABLE, UNANSWERED)}
        for heard in _heard(study, record, cell, prompt, found):
            at = (heard.question.sample, heard.question.prompt, heard.token)
            asked[at] = True
            if heard.outputs is not None:
                outputs[at] = heard.outputs
            else:
                wrong[heard.wrong][at] = True
            found.answers.append(_line(study, heard, prompt, written))
        labels = cell.labels(len(study.digits) > 1)
        spoiled = wrong[UNPARSABLE] | wrong[UNANSWERED]
        for metric, values in _views(study, cell, prompt, outputs, asked, spoiled).items():
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


def _heard(study: Study, record: Record, cell: Cell, prompt: Prompt, found: Found) -> Iterator[Heard]:
    """Yields every answer that is wanted of a cell, and counts for the report."""
    tokens = study.asked(cell, prompt)
    for question in study.questions_of(cell):
        reply = record.answer(question)
        wanted = tokens[question.prompt] if question.listed else [question.token]
        found.asked += len(wanted)
        if reply is None:
            found.unanswered += len(wanted)
            yield from (Heard(question, token, wrong=UNANSWERED) for token in wanted)
            continue
        found.models[reply.model] += 1
        found.read, found.wrote = found.read + reply.read, found.wrote + reply.wrote
        found.cut += reply.finish == "length"
        found.estimated |= reply.estimated
        parts = read(question, reply.said, reply.scores)
        if parts is None:
            found.unparsable += len(wanted)
            yield from (Heard(question, token, reply.said, wrong=UNPARSABLE) for token in wanted)
            continue
        for token, part in zip(wanted, parts, strict=True):
            yield Heard(question, token, reply.said, study.speech.outputs(part, study.task.outputs))


def _views(
    study: Study, cell: Cell, prompt: Prompt, outputs: Tensor, asked: Tensor, wrong: Tensor
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


def _references(study: Study, cell: Cell, prompt: Prompt, labels: Mapping[str, float]) -> Iterator[dict[str, Any]]:
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


def _line(study: Study, heard: Heard, prompt: Prompt, written: Callable[[float], str]) -> dict[str, Any]:
    """An answer as a line of ``answers.csv``."""
    question, said = heard.question, " ".join(heard.said.split())
    return {
        **({"set": question.cell.prefix} if len(study.suites) > 1 else {}),
        **question.cell.labels(True),
        "prompt": question.prompt,
        "token": heard.token,
        "sample": question.sample,
        "said": said if len(said) <= 200 else f"{said[:200]}...",
        "truth": study.speech.right(single(prompt, question.prompt), heard.token, written),
        "read": heard.wrong or "yes",
    }
