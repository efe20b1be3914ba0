"""Attention maps of trained models: of one prompt, as means over prompts, and all of them as a page shows them."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from icl_lab import tasks
from icl_lab.analyses.attention.live import Exported
from icl_lab.analyses.attention.prompt import CELLS, Asked, Window, fits
from icl_lab.analyses.attention_rows import watchable
from icl_lab.base.errors import BadValue
from icl_lab.base.rng import stream
from icl_lab.model.gpt2 import GPT2
from icl_lab.runs.measure import TEST_SEED
from icl_lab.runs.run import Run
from icl_lab.runs.spec import RunSpec
from icl_lab.tasks import wording
from icl_lab.tasks.base import Mark, Prompt, ScoredAnswer, Task


@dataclass(frozen=True)
class Maps:
    """Means over the prompts of weights, their spread and scores, each (l h r t), and all outputs (b t c).

    Layers l and heads h are those asked for; rows r are the last queries, against all t keys. Keys that a row does not
    see have weight 0 and a score that means nothing. The spread is the standard deviation over the prompts. ``full``:
    every row sees all keys, not only those up to its own token.
    """

    weights: Tensor
    spread: Tensor
    scores: Tensor
    outputs: Tensor
    full: bool = False

    @property
    def visible(self) -> Tensor:
        """Mask of the keys that each row sees, (r t) bool."""
        cells = torch.ones(self.weights.shape[2:], dtype=torch.bool)
        return cells if self.full else cells.tril(self.first)

    @property
    def first(self) -> int:
        """The token of the first row."""
        return self.weights.shape[3] - self.weights.shape[2]


@torch.no_grad()
def attention_maps(
    model: GPT2, prompt: Prompt, layers: Sequence[int], heads: Sequence[int], last: int, device: torch.device
) -> Maps:
    """Watch a model read prompts, as many at once as memory allows; the ``last`` rows of each map, on the CPU.

    With one prompt the weights are the model's own, to the last bit.
    """
    b, t = prompt.tokens.shape[:2]
    first = max(0, t - last)
    weights, squares, scores = torch.zeros(3, len(layers), len(heads), t - first, t, dtype=torch.float64)

    def see(layer: int, w: Tensor, z: Tensor) -> None:
        if layer in layers:
            at = layers.index(layer)
            # A device may have no double precision: bring first, upcast then.
            w, z = (part[:, list(heads), first:].cpu().double() for part in (w, z))
            weights[at] += w.sum(0) / b
            squares[at] += w.square().sum(0) / b
            scores[at] += z.sum(0) / b

    outputs = [model(piece.tokens.to(device), watch=see).cpu() for piece in watchable(model, prompt)]
    spread = (squares - weights.square()).clamp(min=0).sqrt()
    return Maps(weights.float(), spread.float(), scores.float(), torch.cat(outputs), model.spec.mask == "full")


TOKENS = 128  # the longest prompts of which a page holds the mean over prompts
MOST = 10_000  # prompts of a mean: their spread is known to one part in a hundred long before
STEPS = 4  # values of an axis at most: they say as much on a slider as ten, and the page stays light


@dataclass(frozen=True)
class Plan:
    """A mean over prompts of ``length`` examples, drawn with ``shift``, at a value of an axis."""

    axis: str
    value: float
    length: int
    shift: dict[str, float]


def planned(runs: Sequence[Run], asked: Asked, shown: Window) -> list[Plan]:
    """Return the means along every axis that has two values or more; fewer axes where a page has no room for all."""
    task = tasks.build(runs[0].spec.task)
    room = CELLS - len(runs) * shown.cells(asked.prompt.tokens.shape[1])
    plans = list(_along(runs, task, asked))
    while plans and sum(len(runs) * shown.cells(tokens_asked(task, plan.length)) for plan in plans) > room:
        plans = [plan for plan in plans if plan.axis != plans[-1].axis]
    return plans


def mean_prompts(task: Task, plan: Plan, count: int) -> Prompt:
    """Draw the prompts of a mean by address, the same for all models, up to their last question."""
    suite = task.balanced
    drawn = suite.sample(stream(TEST_SEED, "attention", "means", plan.length), count, plan.length, **plan.shift)
    return drawn.first(tokens_asked(task, plan.length))


def mean_marks(task: Task, prompt: Prompt) -> list[Mark]:
    """Return the tokens by role and index, without the numbers of any one prompt."""
    return [Mark(mark.role, mark.index, "", None, mark.quiet) for mark in wording.marks(task.balanced, prompt)]


def tokens_asked(task: Task, length: int) -> int:
    """Return the tokens of a prompt of ``length`` examples up to its last question."""
    return task.sample(stream(TEST_SEED, "attention", "end"), 16, length).end


def _along(runs: Sequence[Run], task: Task, asked: Asked) -> Iterator[Plan]:
    for axis, values in task.axes["thin"].items():
        lengths = [int(value) if axis == "length" else asked.length for value in values]
        plans = [
            Plan(axis, float(value), length, task.training | ({} if axis == "length" else {axis: float(value)}))
            for value, length in zip(values, lengths, strict=True)
            if task.tokens(length) <= TOKENS and all(_fits(run.spec, task, length) for run in runs)
        ]
        few = sorted({round(step * (len(plans) - 1) / (STEPS - 1)) for step in range(STEPS)}) if plans else []
        if len(few) > 1:
            yield from (plans[place] for place in few)


def _fits(spec: RunSpec, task: Task, length: int) -> bool:
    try:
        fits(spec, task, length)
    except BadValue:
        return False
    return True


THIS = "prompt"  # the frame of the prompt itself; the others are called after the axis along which they lie


@dataclass(frozen=True)
class Reading:
    """Maps of one model on the prompt, its answers, and the roles and maps of each mean."""

    maps: Maps
    answers: list[ScoredAnswer]
    means: list[tuple[list[Mark], Maps]]
    learned: dict[tuple[str, int], list[float]]  # the numbers of a layer's normalizer, by name and layer
    live: Exported | str = ""  # the model, for a page that computes; or why there is none


@dataclass(frozen=True)
class Frame:
    """Tokens in words and the maps of each run; of one prompt, or the mean over prompts at a value of an axis."""

    axis: str
    value: float
    marks: list[Mark]
    maps: list[Maps]


@dataclass(frozen=True)
class ShownModel:
    """A model: its name on the page, its normalizer and seed, what the foot of the page says, what it learned.

    And its answers to the prompt.
    """

    name: str
    attn: str
    seed: int
    card: list[tuple[str, str]]
    learned: dict[tuple[str, int], list[float]]
    answers: list[ScoredAnswer]


@dataclass(frozen=True)
class Seen:
    """One or two models on one prompt, in the frames that the window allows; ``means`` prompts a mean.

    ``subject`` is what the title names: a task, a text. ``axes`` says what the axes of the frames are called, ``reach``
    how large the numbers of training are, by role. ``live`` is what the page computes with, if it does.
    """

    asked: Asked
    window: Window
    runs: list[ShownModel]
    frames: list[Frame]
    means: int
    notes: list[str] = field(default_factory=list)
    command: str = ""  # what the user typed
    subject: str = ""
    axes: Mapping[str, str] = field(default_factory=dict)
    reach: Mapping[str, float] = field(default_factory=dict)
    live: dict[str, object] | None = None
    image: tuple[Tensor, tuple[int, int]] | None = None  # what the prompt shows (h w c), and its rows and columns


def names(runs: Sequence[Run]) -> list[str]:
    """Return the normalizers; where two runs share one, with what distinguishes them."""
    found = [run.name for run in runs]
    if len(set(found)) < len(runs):
        found = [f"{run.name} seed {run.seed}" for run in runs]
    if len(set(found)) < len(runs):
        found = [f"{run.name} {run.spec.preset}-{run.spec.hash} seed {run.seed}" for run in runs]
    return found
