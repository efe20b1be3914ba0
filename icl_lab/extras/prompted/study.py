"""A study of one prompted model: the test prompts of a grid of cells, and a question for each answer that is asked for.

The prompts are those that trained models meet, drawn by the same address (``runs.measure.draw``): the first ones of
each cell.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any

import torch

from icl_lab import tasks
from icl_lab.base.errors import BadValue
from icl_lab.base.registry import filename
from icl_lab.base.rng import stream
from icl_lab.extras.prompted.question import FORMATS, PromptQuestion
from icl_lab.extras.prompted.speech import Number, PromptText, speech
from icl_lab.runs.measure import TEST_SEED, TestSpec, draw
from icl_lab.runs.spec import resolve
from icl_lab.runs.summary import training_cell
from icl_lab.tasks.base import Prompt

Cell = dict[str, float]  # the labels of a cell: ``digits`` (decimals of numbers), each shift, ``length``

DIGITS = 2  # decimals of numbers, where the command does not say
ANSWER_TOKENS = 16


@dataclass(frozen=True)
class PromptedOptions:
    """Options of a study; ``form`` is the format."""

    task: str
    model: str
    preset: str = "lite"
    settings: Sequence[str] = ()
    shots: Sequence[int] = ()
    prompts: int = 64
    form: str = "chat"
    digits: Sequence[int] = ()
    temperature: float = 0.0
    answer_tokens: int = ANSWER_TOKENS
    every_answer: bool = False
    instruct: bool = True
    body: Mapping[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The model in the column ``attn``."""
        return f"reference:prompted:{self.model}"


class PromptedStudy:
    """The questions of a study, checked before anything is asked.

    ``test`` is the grid that trained models are tested on: prompts that are beginnings of longer ones are cut from its
    longest. ``lengths`` are those that are asked about, ``suite`` is the test set of the headline, named by ``prefix``.
    Raises ``LabError`` where the task has no words, or a cell cannot be drawn.
    """

    def __init__(self, options: PromptedOptions) -> None:
        for setting in options.settings:
            if not setting.strip().startswith("test.axes."):
                raise BadValue(
                    f"--set {setting}: of a prompted model only the cells can be set, such as test.axes.NAME=1,2."
                )
        self.options = options
        self.spec = resolve(options.task, "softmax", options.preset, options.settings)
        self.task = task = tasks.build(self.spec.task)
        self.speech = speech(task)
        self.test = TestSpec(prompts=options.prompts, axes=self.spec.test.axes)
        trained = training_cell(task, self.spec)
        self.lengths = sorted(set(options.shots or [int(trained["length"])]))
        self.training = trained | {"length": float(self.lengths[-1])} if options.shots else trained
        self.digits = sorted(set(options.digits or [DIGITS]))
        # The test set of the headline: the longest prefix wins, for every name begins with the empty one.
        self.prefix = max((each for each in task.suites() if task.headline.startswith(each)), key=len)
        self.suite = task.suites()[self.prefix]
        longest = self.test.lengths[-1]
        for length in self.lengths:
            if length <= task.scored_from:
                raise BadValue(f"--shots must be above {task.scored_from} for this task, got {length}.")
            if length > longest and self.suite.prefixes:
                raise BadValue(
                    f"--shots {length} is more than the {longest} examples of the longest test prompt, whose "
                    f"beginnings are asked about; set test.axes.length=...,{length} too."
                )
            for shift in self.test.shifts():
                task.check_length(length, **shift)

    @property
    def identity(self) -> dict[str, Any]:
        """Everything but the question that an answer depends on."""
        options = self.options
        return {
            "task": self.spec.task,
            "model": options.model,
            "format": options.form,
            "instruct": options.instruct,
            "temperature": options.temperature,
            "answer_tokens": options.answer_tokens,
            "body": dict(options.body),
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
            "every_answer": self.options.every_answer,
        }

    @property
    def usual_name(self) -> str:
        """Beginning of the name of the study's folder."""
        model = self.options.model.strip("/").rpartition("/")[2] or "model"
        return filename(f"prompted-{self.spec.task}-{model}").replace(" ", "-")[:120]

    @property
    def cells(self) -> list[Cell]:
        """All cells, in the order of the grid."""
        return [
            {"digits": float(digits), **shift, "length": float(length)}
            for digits in self.digits
            for shift in self.test.shifts()
            for length in self.lengths
        ]

    @property
    def axes(self) -> list[str]:
        """The axes of the grid, ``digits`` among them where there are several."""
        shifts = [axis for axis in self.test.axes if axis != "length"]
        return [*(["digits"] if len(self.digits) > 1 else []), *shifts, "length"]

    def drawn(self, cell: Cell) -> Prompt:
        """Return the test prompts of a cell."""
        length, shift = int(cell["length"]), shift_of(cell)
        if not self.suite.prefixes:
            return draw(self.suite, length, self.test, shift).take(self.options.prompts)
        whole = draw(self.suite, self.test.lengths[-1], self.test, shift)
        return whole.first(self.suite.tokens(length)).take(self.options.prompts)

    def asked(self, cell: Cell, prompt: Prompt) -> list[list[int]]:
        """Return the tokens whose answers are asked for, prompt by prompt.

        All that are scored, or one: the last, or where the headline is a mean over answers one that is drawn evenly
        from those that count in it, by the address (length, number of the prompt), whatever the shift.
        """
        found = []
        for number, scored in enumerate(prompt.scored):
            tokens = scored.nonzero().flatten().tolist()
            if not self.options.every_answer:
                counted = tokens[self.task.scored_from :]
                rng = stream(TEST_SEED, "prompted", "asked", int(cell["length"]), number)
                drawn = counted[int(torch.randint(len(counted), (), generator=rng))]
                tokens = [tokens[-1] if self.speech.last else drawn]
            found.append(tokens)
        return found

    def questions_of(self, cell: Cell) -> Iterator[PromptQuestion]:
        """Yield the questions of a cell, prompt by prompt."""
        prompt, written = self.drawn(cell), writer(cell["digits"])
        place = "_".join(f"{value:.12g}" for value in cell.values())
        for number, (tokens, one) in enumerate(zip(self.asked(cell, prompt), prompt.pieces(1), strict=True)):
            for token in tokens:
                body = self._body(self.speech.tell(one, token, written))
                right = self.speech.right(one, token, written)
                yield PromptQuestion(f"{place}_p{number}_t{token}", number, token, body, right)

    def _body(self, text: PromptText) -> dict[str, Any]:
        """The body of a request; fields of ``body`` replace ours, and None leaves one out."""
        options = self.options
        asked = {"model": options.model, **FORMATS[options.form](self.speech, text, options.instruct)}
        asked |= {"temperature": options.temperature, "max_tokens": options.answer_tokens, **options.body}
        return {name: value for name, value in asked.items() if value is not None}

    def questions(self) -> list[PromptQuestion]:
        """Return every question, cell by cell."""
        return [question for cell in self.cells for question in self.questions_of(cell)]


def shift_of(cell: Cell) -> dict[str, float]:
    """Return the labels of a cell that say how its prompts are drawn."""
    return {axis: value for axis, value in cell.items() if axis not in ("digits", "length")}


def writer(digits: float) -> Number:
    """Return the function that writes a number with ``digits`` decimals; -0.00 keeps its sign."""
    return lambda value: f"{value:.{int(digits)}f}"
