"""Time to quality: minutes of training until a model is good, by the recipes of the presets and the published one."""

import math
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch

from benchmarks.rows import Bench, Measurement
from icl_lab import tasks
from icl_lab.base.errors import Stopped
from icl_lab.pipeline import subject
from icl_lab.runs.measure import TestSpec
from icl_lab.runs.measure import measure as cells
from icl_lab.runs.spec import RunSpec, resolve
from icl_lab.runs.summary import training_cell
from icl_lab.training.loop import Progress, train

FIRST, BOUT = 0.5, 5.0  # seconds of training between two looks: a tenth of what went before, within these bounds
PROMPTS = 1024
# The same small model by each recipe: a preset, and what makes its model that of lite.
RECIPES: dict[str, tuple[str, list[str]]] = {
    "nano recipe": ("nano", []),
    "lite2 recipe": ("lite2", []),
    "lite recipe": ("lite", []),
    "paper recipe": ("small", ["model.layers=2"]),
}
# Which recipe is how much sooner there than which.
PAIRS = (("nano recipe", "lite recipe"), ("lite2 recipe", "lite recipe"), ("lite recipe", "paper recipe"))


@dataclass(frozen=True)
class Goal:
    """Goal of a training: every metric of a task whose name begins so, at most ``bar``, in training conditions."""

    task: str
    metrics: str
    bar: float

    def __str__(self) -> str:
        return f"{self.task}, {self.metrics} <= {self.bar:g}"


GOALS = (
    Goal("linear", "mse-code", 0.01),
    Goal("every:balance=half", "balanced-", 0.01),
    Goal("needle", "exact", 0.01),
)


class Attempt:
    """One training of the small model by a recipe, in bouts, each taken up where the last one stopped.

    ``worst`` is what the last look found, ``seconds`` the time of training up to it, ``before`` up to the look before.
    """

    def __init__(self, goal: Goal, spec: RunSpec, device: torch.device) -> None:
        self.goal, self.spec, self.device = goal, spec, device
        self.task = tasks.build(goal.task)
        self.model = spec.untrained(self.task, 0).to(device)
        self.progress, self.over = Progress(), False
        self.seconds, self.before, self.worst = 0.0, 0.0, math.inf

    @property
    def good(self) -> bool:
        """True if the last look found it good."""
        return self.worst <= self.goal.bar

    def bout(self, seconds: float) -> None:
        """Train for so long, or to the end, and look; the look costs no time of training."""
        began, kept = time.monotonic(), list[Progress]()

        def late() -> bool:
            return time.monotonic() - began >= seconds

        try:
            train(self.model, self.task, self.spec.train, 0, self.progress, keep=kept.append, stopping=late)
            self.over = True
        except Stopped:
            self.progress = kept[-1]
        self.before, self.seconds = self.seconds, self.seconds + time.monotonic() - began
        self.worst = self.look()

    def look(self) -> float:
        """The worst of the goal's metrics on test prompts in training conditions."""
        here = training_cell(self.task, self.spec) | dict.fromkeys(self.task.facets, 50.0)
        test = TestSpec(prompts=PROMPTS, axes={axis: [value] for axis, value in here.items()})
        rows = cells({"model": subject(self.model, self.task, self.device)}, self.task, test).cells
        return max(float(row["value"]) for row in rows if row["metric"].startswith(self.goal.metrics))


def quality(bench: Bench) -> Iterator[Measurement]:
    """Yield, for each goal, the minutes of each recipe and their ratio, or bounds of them where time ran out.

    The recipes train in turns, a few seconds each, so that a busy machine is busy for both.
    """
    cap = 60 * bench.minutes
    for goal in GOALS:
        attempts = {
            name: Attempt(goal, resolve(goal.task, "softmax", preset, settings), bench.device)
            for name, (preset, settings) in RECIPES.items()
        }
        while going := [a for a in attempts.values() if not (a.good or a.over or a.seconds >= cap)]:
            for attempt in going:
                attempt.bout(min(BOUT, max(FIRST, attempt.seconds / 10), cap - attempt.seconds))
            done = min(cap, max(attempt.seconds for attempt in attempts.values()))
            bench.tick(bench.part, int(done), int(cap) + 1, str(goal))
        for name, attempt in attempts.items():
            yield minutes(name, attempt, bench)
        for quick, slow in PAIRS:
            yield sooner(quick, slow, attempts[quick], attempts[slow], bench)
    bench.tick(bench.part, int(cap) + 1, int(cap) + 1, "")


def minutes(name: str, attempt: Attempt, bench: Bench) -> Measurement:
    """Time of one recipe; it became good between ``low`` and ``high``, or not at all within the time it had."""
    steps = attempt.spec.train.steps if attempt.over else attempt.progress.step
    note = f"{steps} steps, at {attempt.worst:.3g}"
    row = bench.row(f"{attempt.goal}: {name}", "", attempt.seconds / 60, "minutes", seconds=attempt.seconds, note=note)
    if attempt.good:
        return replace(row, low=attempt.before / 60, high=attempt.seconds / 60)
    return replace(row, bound=">=", note=f"{note}, not there{' when it ended' if attempt.over else ''}")


def sooner(name: str, other: str, first: Attempt, second: Attempt, bench: Bench) -> Measurement:
    """Speed-up of the first recipe: a bound where only it was good, and nothing where it was not."""
    ratio = second.seconds / first.seconds
    row = bench.row(f"{first.goal}: {name}", other, ratio, "x as soon", seconds=first.seconds)
    if not first.good:
        return replace(row, ratio=math.nan, note=f"no ratio: the {name} had too little time (--minutes)")
    if not second.good:
        return replace(row, bound=">=")
    if not first.before:  # good at its first look: nobody knows since when
        return replace(row, bound=">=", ratio=second.before / first.seconds)
    return replace(row, low=second.before / first.seconds, high=second.seconds / first.before)
