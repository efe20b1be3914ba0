"""Habits of the heads of finished runs: one labelled grid over layer, head, place and shift."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from icl_lab import markdown as md
from icl_lab import tasks
from icl_lab.analyses import head_rows as analysis
from icl_lab.errors import BadValue
from icl_lab.figures import heads as pictures
from icl_lab.figures.base import short
from icl_lab.files import publish_folder as save
from icl_lab.grid import Grid
from icl_lab.runs.measure import TestSpec, draw
from icl_lab.runs.session import Lab
from icl_lab.runs.spec import RunSpec
from icl_lab.runs.store import Run
from icl_lab.runs.summary import training_cell
from icl_lab.sweep import load_or_train

SHOWN = ("entropy", "largest", "first", "itself", "previous", "answers")
WORDS = {
    "entropy": "entropy / log n",
    "largest": "largest weight",
    "first": "mass on the first token",
    "itself": "mass on the token itself",
    "previous": "mass on the token before",
    "answers": "mass on answers",
}


@dataclass(frozen=True)
class Habits:
    """The grid (axes: the task's shifts, length, layer, head, index), and the cell of training."""

    grid: Grid
    training: dict[str, float]

    @property
    def rules(self) -> list[str]:
        """The rules, in the order that they were asked for."""
        return list(self.grid.values("attn"))

    def lines(self, rule: str, metric: str) -> list[list[tuple[float, float]]]:
        """In training conditions, for each head of each seed: (index, value)."""
        return self.grid.where(attn=rule, metric=metric, **self.training).lines("index", "seed", "layer", "head")


def check(spec: RunSpec) -> None:
    """Raises ``BadValue`` where nothing attends."""
    if not spec.model.attention:
        raise BadValue("a model without attention has no heads to look at.")


def gather(groups: Mapping[str, Sequence[Run]], lab: Lab, prompts: int) -> Habits:
    """Looks at the heads of the models of each name, in training conditions and along each axis of the shift grid."""
    rows: list[dict[str, Any]] = []
    runs = [(name, run) for name, seeds in groups.items() for run in seeds]
    first = runs[0][1].spec
    here = training_cell(tasks.build(first.task), first)
    for number, (name, run) in enumerate(runs):
        spec, task = run.spec, tasks.build(run.spec.task)
        model = load_or_train(run, lab)
        who = {**run.labels, "attn": name}
        suite = task.balanced
        for cell in cells(spec, here):
            length = int(cell["length"])
            shift = {axis: value for axis, value in cell.items() if axis != "length"}
            prompt = draw(suite, length, TestSpec(prompts=prompts, axes={"length": [float(length)]}), shift)
            asked = range(suite.tokens(length))[suite.answers]
            indices = analysis.spread_out(len(asked)) if suite.prefixes else [len(asked)]
            places = {index: asked[index - 1] for index in indices}
            found = analysis.habits(model, prompt, places, task.roles, lab.device, cell)
            rows += [{**who, **row} for row in found]
        lab.tick("models", number + 1, len(runs), name)
    return Habits(Grid.of(rows, [*here, "layer", "head", "index"]), here)


def cells(spec: RunSpec, here: Mapping[str, float]) -> list[dict[str, float]]:
    """The cell of training, then those that differ from it along one axis."""
    found = [dict(here)]
    for axis, values in spec.test.axes.items():
        found += [{**here, axis: value} for value in values if value != here[axis]]
    return found


def markdown(found: Habits, spec: RunSpec, command: str) -> str:
    """Returns the median head of each rule in training conditions, and at the ends of every shift."""
    text = [
        f"Task {spec.task}, preset {spec.preset}: medians over the heads of all seeds, at the last place of a prompt."
    ]
    axes = [axis for axis in found.training if len(found.grid.values(axis)) > 1]
    metrics = [metric for metric in WORDS if metric in found.grid.values("metric")]
    text += ["", *md.head(["rule", "where", *(WORDS[metric] for metric in metrics)])]
    for rule in found.rules:
        places = [("as in training", found.training)]
        for axis in axes:
            places += [
                (f"{axis} {value:g}", {**found.training, axis: value})
                for value in (min(found.grid.values(axis)), max(found.grid.values(axis)))
                if value != found.training[axis]
            ]
        for words, cell in places:
            shown = [short(_last(found.grid.where(attn=rule, metric=metric, **cell))) for metric in metrics]
            text.append(md.row([f"`{rule}`", words, *shown]))
    return "\n".join([*text, "", f"Made by `{command}`.", ""])


def publish(found: Habits, spec: RunSpec, folder: Path, command: str) -> tuple[str, list[str]]:
    """Writes the grid, a table and the figure; returns the table as text and the names of the files."""
    text = markdown(found, spec, command)
    files = {"heads.csv": found.grid.csv(), "table.md": text}
    drawn = figure(found, f"{spec.task}, {spec.preset}: what heads look at, as in training")
    return text, save(folder, files, {"heads": drawn})


def figure(found: Habits, title: str) -> Figure:
    """Draws some of the statistics over the place in the prompt, every head a thin line."""
    there = [metric for metric in SHOWN if metric in found.grid.values("metric")]
    panels = {WORDS[metric]: {rule: found.lines(rule, metric) for rule in found.rules} for metric in there}
    return pictures.curves(panels, title=title, across="answer of the prompt, from 1", scales={})


def _last(grid: Grid) -> float:
    frame = grid.frame[grid.frame["index"] == grid.frame["index"].max()]
    return float(frame["value"].median())
