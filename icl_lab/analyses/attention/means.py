"""The means over prompts that a page shows beside one prompt, along the axes of the test grid."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from icl_lab import tasks
from icl_lab.analyses.attention import window
from icl_lab.analyses.attention.prompt import Asked, fits
from icl_lab.analyses.attention.window import Window
from icl_lab.errors import BadValue
from icl_lab.rng import stream
from icl_lab.runs.measure import TEST_SEED
from icl_lab.runs.run import Run
from icl_lab.runs.spec import RunSpec
from icl_lab.tasks import wording
from icl_lab.tasks.base import Mark, Prompt, Task

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
    """Returns the means along every axis that has two values or more; fewer axes where a page has no room for all."""
    task = tasks.build(runs[0].spec.task)
    room = window.CELLS - len(runs) * shown.cells(asked.prompt.tokens.shape[1])
    plans = list(_along(runs, task, asked))
    while plans and sum(len(runs) * shown.cells(tokens(task, plan.length)) for plan in plans) > room:
        plans = [plan for plan in plans if plan.axis != plans[-1].axis]
    return plans


def prompts(task: Task, plan: Plan, count: int) -> Prompt:
    """Draws the prompts of a mean by address, the same for all models, up to their last question."""
    suite = task.balanced
    drawn = suite.sample(stream(TEST_SEED, "attention", "means", plan.length), count, plan.length, **plan.shift)
    return drawn.first(tokens(task, plan.length))


def roles(task: Task, prompt: Prompt) -> list[Mark]:
    """Returns the tokens by role and index, without the numbers of any one prompt."""
    return [Mark(mark.role, mark.index, "", None, mark.quiet) for mark in wording.marks(task.balanced, prompt)]


def tokens(task: Task, length: int) -> int:
    """Returns the tokens of a prompt of ``length`` examples up to its last question."""
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
