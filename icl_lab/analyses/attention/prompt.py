"""A prompt as one types it: a list of numbers, or ``random`` with shifts."""

import math
import re
from dataclasses import dataclass
from hashlib import sha256

import torch

from icl_lab import tasks
from icl_lab.errors import BadValue, UnknownOption
from icl_lab.model import positions
from icl_lab.registry import Choice
from icl_lab.rng import stream
from icl_lab.runs.measure import TEST_SEED
from icl_lab.runs.spec import RunSpec
from icl_lab.tasks import wording
from icl_lab.tasks.base import Prompt, Task, plain
from icl_lab.tasks.capabilities import TypedPrompts

READABLE = 20  # examples of a drawn prompt whose tokens a page has room to name
BYTES = 4 * 2**30  # what a forward pass with all its maps may take
LARGEST = 1e15  # of the numbers of a prompt: norms and errors square them in single precision


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
    """Reads ``1,-2,3,70`` or ``random:sigma=10,length=20,seed=1`` as a prompt of the task of ``spec``.

    Typed numbers are the inputs; labels follow by the task's rule, and where a function is needed and none is given it
    is drawn by address from N(0, 1). Raises ``BadValue`` on what is no such text, on a prompt that does not fit, on
    numbers that single precision does not hold, and where the task cannot put its tokens and answers into words.
    """
    task = tasks.build(spec.task)
    if text.strip().partition(":")[0] == "random":
        if function:
            raise BadValue(f"a function ({function}) goes with a list of numbers; random draws its own.")
        asked = _drawn(text.strip(), spec, task)
    else:
        asked = _typed(text, spec, task, function)
    _finite(asked.prompt)
    wording.marks(task, asked.prompt)
    wording.answered(task, torch.zeros(*asked.prompt.tokens.shape[:2], task.outputs), asked.prompt)
    return asked


def fits(spec: RunSpec, task: Task, length: int) -> None:
    """Raises ``BadValue`` where a prompt of ``length`` examples is too long for the position code, or for memory."""
    t, model = task.tokens(length), spec.model
    name = spec.test.positions or spec.model.positions
    head_dim = model.width // model.heads
    limit = positions.build(name, model.width, head_dim, spec.reading(task).train_tokens).limit
    if limit is not None and t > limit:
        raise BadValue(f"the prompt is too long: {length} examples are {t} tokens, and '{name}' has {limit} places.")
    needs = 20.0 * t * t * model.heads  # weights, scores and what a rule makes on the way, in single precision
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
    told = ", ".join(f"{axis} {plain(value)}" for axis, value in (task.training | shift).items())
    return Asked(text, prompt, length, f"drawn by address, seed {seed}: {told}, length {length}", shift)


def _finite(prompt: Prompt) -> None:
    """Raises ``BadValue`` on numbers and labels whose squares a model or a score could not hold."""
    size = max(float(part.double().abs().max()) for part in (prompt.tokens, prompt.targets))
    if not size <= LARGEST:
        raise BadValue(
            f"the prompt has numbers or labels as large as {size:.3g}; their squares are only finite in single "
            f"precision up to {LARGEST:g}."
        )


def _numbers(text: str, wanted: str) -> list[float]:
    if not text.strip():
        raise BadValue(f"{wanted}; got none.")
    return [_number("", word, wanted) for word in text.split(",")]


def _number(name: str, text: str, wanted: str = "") -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise BadValue(f"{wanted or f'{name} is a finite number'}; got '{text.strip()}'.")
    if name and name != "seed" and value <= 0:
        raise BadValue(f"{name} must be > 0, got {text}.")
    return value


def _whole(name: str, value: float, least: int = 1) -> int:
    if value != int(value) or value < least:
        raise BadValue(f"{name} is a whole number from {least} on, got {value:g}.")
    return int(value)
