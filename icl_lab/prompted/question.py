"""What is asked: cells of a shift grid, their test prompts, and a question for each answer that is wanted.

The prompts are those that trained models meet, drawn by the same address (``runs.measure.draw``): the first so many of
each cell.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import torch

from icl_lab.errors import BadValue
from icl_lab.prompted.formats import Format, Sent, Writer
from icl_lab.rng import stream
from icl_lab.runs.measure import TEST_SEED, TestSpec, draw
from icl_lab.tasks.base import Prompt, Speech, Task

ALL = 0  # in place of a token: all answers of a prompt, as one list


@dataclass(frozen=True)
class Cell:
    """One cell of the grid: a test set (its prefix), the shift, the examples of a prompt, the decimals of numbers."""

    prefix: str
    shift: tuple[tuple[str, float], ...]
    length: int
    digits: int

    def labels(self, digits: bool) -> dict[str, float]:
        """What a row of the grid says of the cell; ``digits`` where they are an axis."""
        return {**({"digits": float(self.digits)} if digits else {}), **dict(self.shift), "length": float(self.length)}

    @property
    def key(self) -> str:
        """The cell as text."""
        where = ",".join(f"{axis}={value:g}" for axis, value in self.shift)
        return f"{self.prefix}|{where}|length={self.length}|digits={self.digits}"


@dataclass(frozen=True)
class Question:
    """One request: what is sent, and how the answer is read.

    ``prompt`` and ``token`` say which answer of which test prompt is wanted, ``ALL`` answers as one list of ``wants``
    (1: a single answer). ``choices`` are all answers there are; without any it is a number.
    """

    cell: Cell
    prompt: int
    token: int
    sample: int
    sent: Sent
    choices: tuple[str, ...]
    wants: int = 1

    @property
    def listed(self) -> bool:
        """Whether all answers of the prompt are wanted at once."""
        return self.token == ALL and self.wants > 1

    @property
    def key(self) -> str:
        """What finds the answer in a record."""
        at = "all" if self.listed else str(self.token)
        return f"{self.cell.key}|prompt={self.prompt}|token={at}|sample={self.sample}"

    @cached_property
    def sha(self) -> str:
        """The words that are sent, as a hash: the same key with other words is another question."""
        told = json.dumps([self.sent.messages, self.sent.completion, self.sent.stop])
        return hashlib.sha256(told.encode()).hexdigest()[:16]

    @property
    def seed(self) -> int:
        """A number for whoever draws answers: another for each sample."""
        return int(hashlib.sha256(self.key.encode()).hexdigest()[:8], 16)


@dataclass(frozen=True)
class Plan:
    """Which questions are asked of a task.

    ``test`` is the grid that trained models are tested on: prompts that are beginnings of longer ones are cut from its
    longest. ``lengths`` are those that are asked about, ``suites`` the test sets, a prefix -> the task that draws it.
    """

    task: Task
    speech: Speech
    test: TestSpec
    form: Format
    lengths: Sequence[int]
    digits: Sequence[int]
    suites: Mapping[str, Task]
    prompts: int = 64
    samples: int = 1
    every_answer: bool = False
    instruct: bool = True

    def __post_init__(self) -> None:
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
    def cells(self) -> list[Cell]:
        """All cells, in the order of the grid."""
        return [
            Cell(prefix, tuple(shift.items()), length, digits)
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

    def drawn(self, cell: Cell) -> Prompt:
        """Returns the test prompts of a cell."""
        suite, shift = self.suites[cell.prefix], dict(cell.shift)
        if not suite.prefixes:
            return draw(suite, cell.length, self.test, shift).take(self.prompts)
        whole = draw(suite, self.test.lengths[-1], self.test, shift)
        return whole.first(suite.tokens(cell.length)).take(self.prompts)

    def writer(self, digits: int) -> Writer:
        """Returns what writes prompts down, with the worked examples of the format."""
        bare = Writer(self.task, self.speech, self.form, digits, self.instruct)
        made = [bare.example(*self._worked(number)) for number in range(self.form.worked)]
        return Writer(self.task, self.speech, self.form, digits, self.instruct, made)

    def asked(self, cell: Cell, prompt: Prompt) -> list[list[int]]:
        """Returns the tokens whose answers are asked for, prompt by prompt.

        All that are scored, or one: the last, or where the headline is a mean over answers one that is drawn evenly
        from those that count in it, by the address (length, number of the prompt), whatever the shift.
        """
        found = []
        for number, scored in enumerate(prompt.scored):
            tokens = scored.nonzero().flatten().tolist()
            if not (self.every_answer or self.lists):
                counted = tokens[self.task.scored_from :]
                rng = stream(TEST_SEED, "prompted", "asked", cell.length, number)
                tokens = [
                    tokens[-1] if self.speech.last else counted[int(torch.randint(len(counted), (), generator=rng))]
                ]
            found.append(tokens)
        return found

    @property
    def lists(self) -> bool:
        """Whether all answers of a prompt are asked for at once."""
        return Writer(self.task, self.speech, self.form, 0).listed

    def questions(self, cell: Cell) -> Iterator[Question]:
        """Yields the questions of a cell, prompt by prompt."""
        prompt, writer = self.drawn(cell), self.writer(cell.digits)
        for number, tokens in enumerate(self.asked(cell, prompt)):
            one = Prompt(*(part[number : number + 1] for part in (prompt.tokens, prompt.targets, prompt.scored)))
            for sample in range(self.samples):
                if writer.listed:
                    sent = writer.sent(one, tokens[-1])
                    yield Question(cell, number, ALL, sample, sent, self.speech.choices, len(tokens))
                    continue
                for token in tokens:
                    yield Question(cell, number, token, sample, writer.sent(one, token), self.speech.choices)

    def _worked(self, number: int) -> tuple[Prompt, int]:
        """A prompt for a worked example, as in training, and the token of its last answer."""
        suite = self.task.balanced
        prompt = suite.sample(stream(TEST_SEED, "prompted", "worked", number), 1, self.speech.worked)
        return prompt, int(prompt.scored[0].nonzero().max())
