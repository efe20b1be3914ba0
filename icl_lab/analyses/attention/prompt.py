"""One prompt, typed or drawn, and the layers, heads and queries of it that a page shows."""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256

import torch

from icl_lab import tasks
from icl_lab.base.errors import BadValue, UnknownOption
from icl_lab.base.option_values import GREATEST
from icl_lab.base.registry import Choice
from icl_lab.base.rng import stream
from icl_lab.model import positions
from icl_lab.runs.measure import TEST_SEED
from icl_lab.runs.run import Run
from icl_lab.runs.spec import RunSpec
from icl_lab.tasks import wording
from icl_lab.tasks.base import Prompt, Task, plain
from icl_lab.tasks.capabilities import TypedPrompts

READABLE = 20  # examples of a drawn prompt whose tokens a page has room to name
BYTES = 4 * 2**30  # what a forward pass with all its maps may take


@dataclass(frozen=True)
class Asked:
    """One prompt, how many examples it has, where its numbers come from, and which shifts drew it."""

    text: str
    prompt: Prompt
    length: int
    origin: str
    shift: dict[str, float]

    @property
    def brief(self) -> str:
        """The text, cut where it is too long for a line."""
        return self.text if len(self.text) <= 80 else self.text[:79] + "…"

    @property
    def slug(self) -> str:
        """The text as a part of a folder's name: short, and without letters that have a meaning in a shell or path."""
        clean = re.sub(r"[^0-9a-z.,=+-]+", "-", self.text.lower().replace(" ", "")).strip("-.")
        exact = clean == self.text.lower().replace(" ", "").replace(":", "-") and len(clean) <= 48
        # What was cut or replaced is told apart by a hash.
        return clean if exact else f"{clean[:32]}-{sha256(self.text.encode()).hexdigest()[:8]}"


def read(text: str, spec: RunSpec, function: str = "") -> Asked:
    """Read ``1,-2,3,70`` or ``random:sigma=10,length=20,seed=1`` as a prompt of the task of ``spec``.

    Typed numbers are the inputs; labels follow by the task's normalizer, and where a function is needed and none is
    given it is drawn by address from N(0, 1). Raises ``BadValue`` on what is no such text, on a prompt that does not
    fit, on numbers that single precision does not hold, and where the task cannot put its tokens and answers into
    words.
    """
    task = tasks.build(spec.task)
    if text.strip().partition(":")[0] == "random":
        if function:
            raise BadValue(f"a function ({function}) goes with a list of numbers; random draws its own.")
        question = _drawn(text.strip(), spec, task)
    else:
        question = _typed(text, spec, task, function)
    _finite(question.prompt)
    wording.marks(task, question.prompt)
    wording.answered(task, torch.zeros(*question.prompt.tokens.shape[:2], task.outputs), question.prompt)
    return question


def fits(spec: RunSpec, task: Task, length: int) -> None:
    """Raise ``BadValue`` where a prompt of ``length`` examples is too long for the position code, or for memory."""
    t, model = task.tokens(length), spec.model
    name = spec.test.positions or spec.model.positions
    head_dim = model.width // model.heads
    limit = positions.build(name, model.width, head_dim, spec.reading(task).train_tokens).limit
    if limit is not None and t > limit:
        raise BadValue(f"the prompt is too long: {length} examples are {t} tokens, and '{name}' has {limit} places.")
    needs = 20.0 * t * t * model.heads  # weights, scores and what a normalizer makes on the way, in single precision
    if needs > BYTES:
        raise BadValue(
            f"the prompt is too long: maps of {t} tokens need about {needs / 2**30:.0f} GB a layer; take a shorter one."
        )


def _typed(text: str, spec: RunSpec, task: Task, function: str) -> Asked:
    numbers = _numbers(text, "a prompt is a list of numbers such as 1,-2,3,70, or random:sigma=10")
    able = tasks.require(task, TypedPrompts)
    fits(spec, able, len(numbers))
    parameters, how = {}, "typed"
    if able.parameters:
        names = ", ".join(able.parameters)
        if function:
            values = _numbers(function, f"a function of {spec.task} is {len(able.parameters)} numbers ({names})")
        else:
            values = torch.randn(len(able.parameters), generator=stream(TEST_SEED, "function")).tolist()
        if len(values) != len(able.parameters):
            raise BadValue(f"a function of {spec.task} is {len(able.parameters)} numbers ({names}), got '{function}'.")
        parameters = dict(zip(able.parameters, values, strict=True))
        spoken = ", ".join(f"{name} = {plain(value)}" for name, value in parameters.items())
        how = f"inputs typed; {spoken} ({'typed' if function else 'drawn by address, seed 0'})"
    elif function:
        raise BadValue(f"{spec.task} has no function to choose, got '{function}'.")
    prompt = able.prompt_of(numbers, **parameters)
    return Asked(text, prompt, len(numbers), how, {})


def _drawn(text: str, spec: RunSpec, task: Task) -> Asked:
    shift = {name: _number(name, value) for name, value in Choice.parse(text).options}
    longest = spec.train.longest
    length = _whole("length", shift.pop("length", min(READABLE, longest) if task.roles > 1 else longest))
    seed = _whole("seed", shift.pop("seed", 0), least=0)
    for axis in shift:
        if axis not in task.training:
            raise UnknownOption("A random prompt", axis, [*task.training, "length", "seed"])
    fits(spec, task, length)
    rng = stream(seed, "attention", length)
    prompt = task.sample(rng, 1, length, **shift)
    # Labels after the last question are no part of what is asked.
    prompt = prompt.first(prompt.end)
    shifts = ", ".join(f"{axis} {plain(value)}" for axis, value in (task.training | shift).items())
    return Asked(text, prompt, length, f"drawn by address, seed {seed}: {shifts}, length {length}", shift)


def _finite(prompt: Prompt) -> None:
    size = max(float(part.double().abs().max()) for part in (prompt.tokens, prompt.targets))
    if not size <= GREATEST:
        raise BadValue(
            f"the prompt has numbers or labels as large as {size:.3g}; their squares are only finite in single "
            f"precision up to {GREATEST:g}."
        )


def _numbers(text: str, expected: str) -> list[float]:
    if not text.strip():
        raise BadValue(f"{expected}; got none.")
    return [_number("", word, expected) for word in text.split(",")]


def _number(name: str, text: str, expected: str = "") -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise BadValue(f"{expected or f'{name} is a finite number'}; got '{text.strip()}'.")
    if name and name != "seed" and value <= 0:
        raise BadValue(f"{name} must be > 0, got {text}.")
    return value


def _whole(name: str, value: float, least: int = 1) -> int:
    if value != int(value) or value < least:
        raise BadValue(f"{name} is a whole number from {least} on, got {value:g}.")
    return int(value)


CELLS = 4_000_000  # of all maps of a page: more make it slow to open and to draw


@dataclass(frozen=True)
class Window:
    """Which layers and heads are shown, and how many queries, counted from the end (none: all)."""

    layers: list[int]
    heads: list[int]
    last: int | None = None

    def rows(self, t: int) -> int:
        """Return how many queries are shown of ``t`` tokens."""
        return min(self.last or t, t)

    def cells(self, t: int) -> int:
        """Return the cells of all maps of a prompt of ``t`` tokens, hidden ones included."""
        return len(self.layers) * len(self.heads) * self.rows(t) * t


def choose(runs: Sequence[Run], asked: Asked, layers: str = "", heads: str = "", last: int | None = None) -> Window:
    """Return what will be shown of these runs, ``layers`` and ``heads`` as text such as ``0,2`` (empty: all).

    Raises ``BadValue`` on runs of different tasks or shapes, on a layer or head that is not there, on a prompt too long
    for a run, and on more cells than a page holds.
    """
    first = runs[0].spec
    for run in runs:
        if run.spec.task != first.task:
            raise BadValue(f"two runs side by side read one prompt, got the tasks {first.task} and {run.spec.task}.")
        if (run.spec.model.layers, run.spec.model.heads) != (first.model.layers, first.model.heads):
            shapes = " and ".join(f"{member.spec.model.layers} x {member.spec.model.heads}" for member in runs)
            raise BadValue(f"two runs side by side need the same layers x heads, got {shapes}.")
        if run.spec.model.mask != first.model.mask:
            masks = f"{first.model.mask} and {run.spec.model.mask}"
            raise BadValue(f"two runs side by side need the same mask, got model.mask={masks}.")
        fits(run.spec, tasks.build(run.spec.task), asked.length)
    t = asked.prompt.tokens.shape[1]
    window = Window(chosen("layer", layers, first.model.layers), chosen("head", heads, first.model.heads), last)
    if (cells := len(runs) * window.cells(t)) > CELLS:
        raise BadValue(
            f"{cells:,} cells are more than the {CELLS:,} that a page holds; show fewer: --layers 0 or --heads 0,1 "
            f"(now {len(window.layers)} x {len(window.heads)}), or --last 32 for the last queries "
            f"(now {window.rows(t)})."
        )
    return window


def chosen(what: str, text: str, count: int) -> list[int]:
    """Read ``0,2`` as numbers of layers or heads; all of them from an empty text."""
    words = [word.strip() for word in text.split(",")] if text.strip() else [str(number) for number in range(count)]
    for word in words:
        if not (word.isdecimal() and int(word) < count):
            raise BadValue(f"there is no {what} '{word}': {what}s are counted from 0 to {count - 1}.")
    return sorted({int(word) for word in words})
