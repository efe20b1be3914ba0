"""Attention maps of one or two trained models on one prompt: from finished runs to frames."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from icl_lab import tasks
from icl_lab.analyses.attention.maps import Maps, maps
from icl_lab.analyses.attention.prompt import Asked, fits
from icl_lab.analyses.fadings import parameters
from icl_lab.errors import BadValue
from icl_lab.registry import filename
from icl_lab.rng import stream
from icl_lab.runs.measure import TEST_SEED
from icl_lab.runs.session import Lab
from icl_lab.runs.spec import RunSpec
from icl_lab.runs.store import Run
from icl_lab.sweep import load_or_train
from icl_lab.tasks.base import Answer, Mark, Task

CELLS = 4_000_000  # of all maps of a page: more make it slow to open and to draw
TOKENS = 128  # the longest prompts of which a page holds the mean over prompts
THIS = "prompt"  # the frame of the prompt itself; the others are called after the axis along which they lie


@dataclass(frozen=True)
class Window:
    """Which layers and heads are shown, and how many queries, counted from the end (none: all)."""

    layers: list[int]
    heads: list[int]
    last: int | None = None

    def rows(self, t: int) -> int:
        """The queries that are shown of ``t`` tokens."""
        return min(self.last or t, t)

    def cells(self, t: int) -> int:
        """The cells of all maps of a prompt of ``t`` tokens, hidden ones included."""
        return len(self.layers) * len(self.heads) * self.rows(t) * t


@dataclass(frozen=True)
class Frame:
    """Tokens in words and the maps of each run; of one prompt, or the mean over prompts at a value of an axis."""

    axis: str
    value: float
    marks: list[Mark]
    maps: list[Maps]


@dataclass(frozen=True)
class Shown:
    """A run: its name on the page, the hash of its weights, what its rule learned, and its answers to the prompt."""

    name: str
    run: Run
    sha: str
    learned: list[dict[str, Any]]
    answers: list[Answer]


@dataclass(frozen=True)
class Attention:
    """One or two runs of one task on one prompt, in the frames that the window allows; ``means`` prompts a mean."""

    asked: Asked
    window: Window
    runs: list[Shown]
    frames: list[Frame]
    means: int
    notes: list[str] = field(default_factory=list)

    @property
    def spec(self) -> RunSpec:
        """The specification of the first run."""
        return self.runs[0].run.spec

    @property
    def task(self) -> Task:
        """The task that all runs share."""
        return tasks.build(self.spec.task)


def window(runs: Sequence[Run], asked: Asked, layers: str = "", heads: str = "", last: int | None = None) -> Window:
    """Returns what will be shown of these runs; raises ``BadValue`` on what cannot be, before anything is trained."""
    if len(runs) > 2:
        raise BadValue(f"a page holds one run, or two side by side, got {len(runs)}.")
    first = runs[0].spec
    for run in runs:
        if not run.spec.model.attention:
            raise BadValue(f"{run.name} is a model without attention: it has no maps.")
        if run.spec.task != first.task:
            raise BadValue(f"two runs side by side read one prompt, got the tasks {first.task} and {run.spec.task}.")
        if (run.spec.model.layers, run.spec.model.heads) != (first.model.layers, first.model.heads):
            shapes = " and ".join(f"{each.spec.model.layers} x {each.spec.model.heads}" for each in runs)
            raise BadValue(f"two runs side by side need the same layers x heads, got {shapes}.")
        fits(run.spec, tasks.build(run.spec.task), asked.length)
    t = asked.prompt.tokens.shape[1]
    made = Window(_chosen("layer", layers, first.model.layers), _chosen("head", heads, first.model.heads), last)
    if (cells := len(runs) * made.cells(t)) > CELLS:
        raise BadValue(
            f"{cells:,} cells are more than the {CELLS:,} that a page holds; show fewer: --layers 0 or --heads 0,1 "
            f"(now {len(made.layers)} x {len(made.heads)}), or --last 32 for the last queries (now {made.rows(t)})."
        )
    return made


def look(runs: Sequence[Run], lab: Lab, asked: Asked, shown: Window, means: int) -> Attention:
    """Lets the models read the prompt, and the prompts of the means (0: none); trains what is not there."""
    spec, task = runs[0].spec, tasks.build(runs[0].spec.task)
    room = CELLS - len(runs) * shown.cells(asked.prompt.tokens.shape[1])
    planned = list(_planned(runs, task, asked)) if means else []
    while planned and sum(len(runs) * shown.cells(_cut(task, length)) for _, _, length, _ in planned) > room:
        planned = [plan for plan in planned if plan[0] != planned[-1][0]]  # one axis less
    frames = [Frame(THIS, 0.0, task.marks(asked.prompt), [])]
    task.answered(torch.zeros(*asked.prompt.targets.shape, task.outputs), asked.prompt)  # says now if it has no words
    frames += [Frame(axis, value, [], []) for axis, value, _, _ in planned]
    seen = []
    for number, (name, run) in enumerate(zip(_names(runs), runs, strict=True)):
        model = load_or_train(run, lab)

        def watch(prompt: Any, model: Any = model) -> Maps:
            rows = shown.rows(prompt.tokens.shape[1])
            return maps(model, prompt, shown.layers, shown.heads, rows, lab.device)

        frames[0].maps.append(watch(asked.prompt))
        answers = task.answered(frames[0].maps[-1].outputs, asked.prompt)
        seen.append(Shown(name, run, str(run.env()["model_sha256"]), parameters(model), answers))
        for done, (frame, (_, _, length, shift)) in enumerate(zip(frames[1:], planned, strict=True)):
            suite = task.balanced
            prompt = suite.sample(stream(TEST_SEED, "attention", "means", length), means, length, **shift)
            prompt = prompt.first(_cut(task, length))
            frame.marks[:] = [Mark(mark.role, mark.index, "", None, mark.quiet) for mark in suite.marks(prompt)]
            frame.maps.append(watch(prompt))
            lab.tick("attention", number * len(planned) + done + 1, len(runs) * len(planned), name)
    notes = [f"Trained on prompts of up to {spec.train.longest} examples; this one has {asked.length}."]
    if means and not planned:
        notes.append("Means over prompts are left out: with them the page would hold too many cells.")
    return Attention(asked, shown, seen, frames, means, notes)


def folder_name(runs: Sequence[Run], asked: Asked) -> str:
    """Returns the usual folder: task, preset, rules and prompt, and seeds that are not 0."""
    spec = runs[0].spec
    rules = [filename(run.name) + f"-seed-{run.seed}" * (run.seed > 0) for run in runs]
    return "-".join(["attention", filename(spec.task), spec.preset, *rules, asked.slug])


def _planned(runs: Sequence[Run], task: Task, asked: Asked) -> Iterator[tuple[str, float, int, dict[str, float]]]:
    """The means over prompts: axis, value, examples and shift; along every axis that has two values or more."""
    for axis, values in task.axes["thin"].items():
        lengths = [int(value) if axis == "length" else asked.length for value in values]
        plans = [
            (axis, float(value), length, task.training | ({} if axis == "length" else {axis: float(value)}))
            for value, length in zip(values, lengths, strict=True)
            if task.tokens(length) <= TOKENS and all(_fits(run.spec, task, length) for run in runs)
        ]
        # Four steps of a slider say as much as ten, and the page stays light.
        few = sorted({round(step * (len(plans) - 1) / 3) for step in range(4)}) if plans else []
        if len(few) > 1:
            yield from (plans[place] for place in few)


def _fits(spec: RunSpec, task: Task, length: int) -> bool:
    try:
        fits(spec, task, length)
    except BadValue:
        return False
    return True


def _cut(task: Task, length: int) -> int:
    """Tokens up to the last question of a prompt."""
    return range(task.tokens(length))[task.answers][-1] + 1


def _chosen(what: str, text: str, count: int) -> list[int]:
    """Reads ``0,2`` as numbers of layers or heads; all of them from an empty text."""
    words = [word.strip() for word in text.split(",")] if text.strip() else [str(number) for number in range(count)]
    for word in words:
        if not (word.isdecimal() and int(word) < count):
            raise BadValue(f"there is no {what} '{word}': {what}s are counted from 0 to {count - 1}.")
    return sorted({int(word) for word in words})


def _names(runs: Sequence[Run]) -> list[str]:
    """The rules; where two runs share one, with what tells them apart."""
    names = [run.name for run in runs]
    if len(set(names)) < len(runs):
        names = [f"{run.name} seed {run.seed}" for run in runs]
    if len(set(names)) < len(runs):
        names = [f"{run.name} {run.spec.preset}-{run.spec.hash} seed {run.seed}" for run in runs]
    return names
