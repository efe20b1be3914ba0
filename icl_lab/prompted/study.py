"""A study of one prompted model: the test prompts of a grid of cells, and a question for each answer that is asked for.

The prompts are those that trained models meet, drawn by the same address (``runs.measure.draw``): the first so many of
each cell.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any, Literal

import torch

from icl_lab import tasks
from icl_lab.errors import BadValue
from icl_lab.language.disk import OnDisk
from icl_lab.prompted.formats import Writer, named
from icl_lab.prompted.question import ALL, GridCell, PromptQuestion
from icl_lab.prompted.speech import speech
from icl_lab.registry import Choice, filename
from icl_lab.rng import stream
from icl_lab.runs.measure import TEST_SEED, TestSpec, draw
from icl_lab.runs.spec import resolve
from icl_lab.runs.summary import training_cell
from icl_lab.tasks.base import Prompt

RECORDS = "prompted"  # the folder of records
DIGITS = 2  # decimals of numbers, where the command does not say
SINGLE, LISTED = 16, 6  # tokens of an answer by itself, and of each answer of a list


@dataclass(frozen=True)
class PromptedOptions:
    """Options of a study; ``server`` is the address, or a fingerprint of the weights of a model on disk."""

    task: str
    model: str
    engine: Literal["openai", "transformers"] = "openai"
    server: str = ""
    preset: str = "lite"
    settings: Sequence[str] = ()
    shots: Sequence[int] = ()
    prompts: int = 64
    form: str = ""
    digits: Sequence[int] = ()
    samples: int = 1
    temperature: float = 0.0
    answer_tokens: int = 0
    every_answer: bool = False
    all_sets: bool = False
    instruct: bool = True
    attn: str = ""
    body: Mapping[str, Any] = field(default_factory=dict)

    @property
    def short(self) -> str:
        """The model's name, or that of its folder or file."""
        return self.model if self.engine == "openai" else OnDisk(Path(self.model)).name

    @property
    def name(self) -> str:
        """The model in the column ``attn``."""
        return f"prompted:{self.short}" + (f"->{self.attn}" if self.attn else "")


class PromptedStudy:
    """The questions of a study, checked before anything is asked.

    ``test`` is the grid that trained models are tested on: prompts that are beginnings of longer ones are cut from its
    longest. ``lengths`` are those that are asked about, ``suites`` the test sets, a prefix -> the task that draws it.
    Raises ``LabError`` where the task has no words, or a cell cannot be drawn.
    """

    def __init__(self, ask: PromptedOptions) -> None:
        for setting in ask.settings:
            if not setting.strip().startswith("test.axes."):
                raise BadValue(
                    f"--set {setting}: of a prompted model only the cells can be set, such as test.axes.NAME=1,2."
                )
        Choice.parse(ask.task)
        self.options = ask
        self.spec = resolve(ask.task, "softmax", ask.preset, ask.settings)
        self.task = task = tasks.build(self.spec.task)
        self.speech = speech(task)
        self.form = named(ask.form or ("chat" if ask.engine == "openai" else "plain"))
        # All answers of a prompt are asked for at once, as a list.
        self.lists = self.form.lists and bool(self.speech.lists)
        self.test = TestSpec(prompts=ask.prompts, axes=self.spec.test.axes)
        trained = training_cell(task, self.spec)
        self.lengths = sorted(set(ask.shots or [int(trained["length"])]))
        self.training = trained | {"length": float(self.lengths[-1])} if ask.shots else trained
        self.digits = sorted(set(ask.digits or [DIGITS]))
        # The test set of the headline: the longest prefix wins, for every name begins with the empty one.
        self.prefix = max((each for each in task.suites() if task.headline.startswith(each)), key=len)
        self.suites = task.suites() if ask.all_sets else {self.prefix: task.suites()[self.prefix]}
        self.answer_tokens = ask.answer_tokens or (LISTED if self.lists else SINGLE)
        self._check_lengths()

    def _check_lengths(self) -> None:
        longest = self.test.lengths[-1]
        for length in self.lengths:
            if length <= self.task.scored_from:
                raise BadValue(f"--shots must be above {self.task.scored_from} for this task, got {length}.")
            if length > longest and any(suite.prefixes for suite in self.suites.values()):
                raise BadValue(
                    f"--shots {length} is more than the {longest} examples of the longest test prompt, whose "
                    f"beginnings are asked about; set test.axes.length=...,{length} too."
                )
            for shift in self.test.shifts():
                self.task.check_length(length, **shift)

    @property
    def identity(self) -> dict[str, Any]:
        """Everything but the question that an answer depends on: a record is of one identity."""
        ask = self.options
        return {
            "task": self.spec.task,
            "model": ask.short,
            "engine": ask.engine,
            "server": ask.server,
            "format": self.form.name,
            "instruct": ask.instruct,
            "temperature": ask.temperature,
            "answer_tokens": self.answer_tokens,
            "attn": ask.attn,
            "body": dict(ask.body),
        }

    @property
    def hash(self) -> str:
        """Eight hexadecimal digits of the identity: the column ``spec`` of the grid."""
        return sha256(json.dumps(self.identity, sort_keys=True).encode()).hexdigest()[:8]

    @property
    def recorded_options(self) -> dict[str, Any]:
        """Options as the study's folder keeps them."""
        return self.identity | {
            "preset": self.spec.preset,
            "axes": {name: list(values) for name, values in self.spec.test.axes.items() if name != "length"},
            "drawn_at": self.test.lengths[-1],
            "shots": list(self.lengths),
            "digits": list(self.digits),
            "prompts": self.options.prompts,
            "samples": self.options.samples,
            "every_answer": self.options.every_answer,
            "sets": list(self.suites),
        }

    @property
    def usual_name(self) -> str:
        """Beginning of the name of the study's folder."""
        model = self.options.short.strip("/").rpartition("/")[2] or "model"
        return filename(f"prompted-{self.spec.task}-{model}").replace(" ", "-")[:120]

    def record(self, results: Path) -> Path:
        """Returns the file of the answers below a results folder: one for all studies of this identity."""
        model = filename(self.options.short).replace(" ", "-")[:80]
        return results / RECORDS / f"{model}-{filename(self.spec.task)}-{self.hash}.jsonl"

    @property
    def cells(self) -> list[GridCell]:
        """All cells, in the order of the grid."""
        return [
            GridCell(prefix, tuple(shift.items()), length, digits)
            for digits in self.digits
            for shift in self.test.shifts()
            for prefix in self.suites
            for length in self.lengths
        ]

    @property
    def axes(self) -> list[str]:
        """The axes of the grid, ``digits`` among them where there are several."""
        shifts = [axis for axis in self.test.axes if axis != "length"]
        return [*(["digits"] if len(self.digits) > 1 else []), *shifts, "length"]

    def drawn(self, cell: GridCell) -> Prompt:
        """Returns the test prompts of a cell."""
        suite, shift = self.suites[cell.prefix], dict(cell.shift)
        if not suite.prefixes:
            return draw(suite, cell.length, self.test, shift).take(self.options.prompts)
        whole = draw(suite, self.test.lengths[-1], self.test, shift)
        return whole.first(suite.tokens(cell.length)).take(self.options.prompts)

    def writer(self, digits: int) -> Writer:
        """Returns the writer of prompts; worked examples are drawn as in training and end with their last answer."""
        bare, examples = Writer(self.speech, self.form, digits), []
        for number in range(self.form.worked):
            rng = stream(TEST_SEED, "prompted", "worked", number)
            prompt = self.task.balanced.sample(rng, 1, self.speech.worked)
            examples.append(bare.example(prompt, int(prompt.scored[0].nonzero().max())))
        return Writer(self.speech, self.form, digits, self.options.instruct, examples)

    def asked(self, cell: GridCell, prompt: Prompt) -> list[list[int]]:
        """Returns the tokens whose answers are asked for, prompt by prompt.

        All that are scored, or one: the last, or where the headline is a mean over answers one that is drawn evenly
        from those that count in it, by the address (length, number of the prompt), whatever the shift.
        """
        found = []
        for number, scored in enumerate(prompt.scored):
            tokens = scored.nonzero().flatten().tolist()
            if not (self.options.every_answer or self.lists):
                counted = tokens[self.task.scored_from :]
                rng = stream(TEST_SEED, "prompted", "asked", cell.length, number)
                drawn = counted[int(torch.randint(len(counted), (), generator=rng))]
                tokens = [tokens[-1] if self.speech.last else drawn]
            found.append(tokens)
        return found

    def questions_of(self, cell: GridCell) -> Iterator[PromptQuestion]:
        """Yields the questions of a cell, prompt by prompt."""
        prompt, writer, choices = self.drawn(cell), self.writer(cell.digits), self.speech.choices
        for number, tokens in enumerate(self.asked(cell, prompt)):
            one = single(prompt, number)
            for sample in range(self.options.samples):
                if self.lists:
                    yield PromptQuestion(cell, number, ALL, sample, writer.sent(one, tokens[-1]), choices, len(tokens))
                    continue
                for token in tokens:
                    yield PromptQuestion(cell, number, token, sample, writer.sent(one, token), choices)

    def questions(self) -> list[PromptQuestion]:
        """Returns every question, cell by cell."""
        return [question for cell in self.cells for question in self.questions_of(cell)]

    def estimate(self, questions: Sequence[PromptQuestion]) -> tuple[int, int]:
        """Estimates the tokens that are read and at most written for questions, without a tokenizer."""
        sent = sum(question.sent.about_tokens for question in questions)
        return sent, sum(question.count * self.answer_tokens for question in questions)


def single(prompt: Prompt, number: int) -> Prompt:
    """Returns one prompt of a batch, as a batch of one."""
    return Prompt(*(part[number : number + 1] for part in (prompt.tokens, prompt.targets, prompt.scored)))
