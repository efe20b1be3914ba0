"""Rules under a deviant number: from finished runs to grids, tables and a figure."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from icl_lab import markdown as md
from icl_lab import published, tasks
from icl_lab.analyses import deviant as analysis
from icl_lab.comparison.statistics import paired
from icl_lab.figures import lines
from icl_lab.figures.base import short
from icl_lab.files import publish_folder as save
from icl_lab.grid import Grid
from icl_lab.runs.measure import Subject, TestSpec
from icl_lab.runs.session import Lab
from icl_lab.runs.spec import RunSpec
from icl_lab.runs.store import Run
from icl_lab.runs.summary import training_cell
from icl_lab.sweep import load_or_train, subject

WORDS = {
    "mse": "mean squared error after the deviant",
    "balanced-last": "balanced error rate, last answer",
    "flip-with": "answers flipped, deviant with the truth",
    "flip-against": "answers flipped, deviant against the truth",
    "recovery": "examples until the error is within twice the undisturbed",
}


@dataclass(frozen=True)
class Disturbance:
    """Grids of finished runs under deviants (axes: position, factor; and position, factor, index)."""

    cells: Grid
    positions: Grid

    @property
    def rules(self) -> list[str]:
        """The rules, in the order that they were asked for."""
        return [name for name in self.cells.values("attn") if not name.startswith("reference:")]

    @property
    def references(self) -> list[str]:
        """The reference predictors."""
        return [name for name in self.cells.values("attn") if name.startswith("reference:")]

    @property
    def factors(self) -> list[float]:
        """The factors, in the order that they were asked for."""
        return self.cells.values("factor")

    @property
    def seeds(self) -> int:
        """How many training seeds each rule has."""
        return len(self.cells.where(attn=self.rules[0]).values("seed"))

    def values(self, name: str, metric: str, factor: float) -> list[float]:
        """The metric of a rule or a reference at a factor, one number a seed."""
        return list(self.cells.where(attn=name, metric=metric, factor=factor).frame["value"])

    def mean(self, name: str, metric: str, factor: float) -> float:
        """The mean over seeds; NaN where a seed has none."""
        values = self.values(name, metric, factor)
        return sum(values) / len(values)


def check(spec: RunSpec, at: Sequence[int]) -> None:
    """Raises ``BadValue`` where the task knows no deviant or has no such index, before anything is trained for it."""
    task = tasks.build(spec.task)
    analysis.check(task, int(training_cell(task, spec)["length"]), at)


def disturb(
    groups: Mapping[str, Sequence[Run]], lab: Lab, at: Sequence[int], factors: Sequence[float], prompts: int
) -> Disturbance:
    """Puts a deviant number before the models of each name, trained where missing, and before the references."""
    runs = [(name, run) for name, seeds in groups.items() for run in seeds]
    cells: list[dict[str, Any]] = []
    positions: list[dict[str, Any]] = []
    for number, (name, run) in enumerate(runs):
        spec, task = run.spec, tasks.build(run.spec.task)
        model = load_or_train(run, lab)
        subjects = {name: subject(model, task, lab.device)}
        if number == 0:  # the references are the same beside every model
            subjects |= {f"reference:{other}": Subject(rule) for other, rule in task.references().items()}
        axes = {axis: [value] for axis, value in training_cell(task, spec).items()}
        test = TestSpec(prompts=prompts, axes=axes, draws=spec.test.draws)
        found = analysis.deviant(subjects, task, test, at=at, factors=factors)
        who = run.labels
        cells += [{**who, **row} for row in found.cells]
        positions += [{**who, **row} for row in found.positions]
        lab.tick("deviants", number + 1, len(runs), name)
    return Disturbance(Grid.of(cells, ["position", "factor"]), Grid.of(positions, ["position", "factor", "index"]))


def markdown(found: Disturbance, task: str, command: str) -> str:
    """Returns a table for each metric: rules down, factors across, means over seeds; then rules against the first."""
    first = found.cells.values("position")[0]
    seeds = f"{found.seeds} training seed{'s' * (found.seeds > 1)}"
    text = [f"Task {task}: the number at index {first:g} multiplied by a factor; {seeds}."]
    for metric in found.cells.values("metric"):
        text += ["", f"### {WORDS[metric].capitalize()}", ""]
        text += md.head(["rule", *(f"x{factor:g}" for factor in found.factors)])
        for name in [*found.rules, *found.references]:
            row = [_cell(found.mean(name, metric, factor)) for factor in found.factors]
            text.append(md.row([f"`{name}`" if name in found.rules else name, *row]))
        if metric == "mse" and first == 0:
            text.append(md.row(["printed (Table 5: 12L8AH, softmax)", *map(_printed, found.factors)]))
        if metric != "recovery" and found.seeds > 1:
            text += [md.row(row) for row in _against(found, metric)]
    return "\n".join([*text, "", f"Made by `{command}`.", ""])


def publish(found: Disturbance, spec: RunSpec, folder: Path, command: str, more: str = "") -> tuple[str, list[str]]:
    """Writes the grids, the tables and the figure; returns the tables as text and the names of the files."""
    text = markdown(found, spec.task, command) + more
    place = found.cells.values("position")[0]
    drawn = figure(found, f"{spec.task}, {spec.preset}: the number at index {place:g} stretched")
    files = {"deviant.csv": found.cells.csv(), "positions.csv": found.positions.csv(), "table.md": text}
    return text, save(folder, files, {"deviant": drawn})


def figure(found: Disturbance, title: str) -> Figure:
    """Draws every metric but the recovery over the factor."""
    panels = {
        WORDS[metric]: (_lines(found, found.rules, metric), _lines(found, found.references, metric), metric == "mse")
        for metric in found.cells.values("metric")
        if metric != "recovery"
    }
    return lines.disturbance(found.factors, panels, title=title)


def _lines(found: Disturbance, names: Sequence[str], metric: str) -> Mapping[str, list[float]]:
    return {name: [found.mean(name, metric, factor) for factor in found.factors] for name in names}


def _against(found: Disturbance, metric: str) -> list[list[str]]:
    """Rows of each rule against the first one: a ratio or a difference, with its interval over seeds."""
    rows = []
    baseline, *others = found.rules
    for name in others:
        cells = []
        for factor in found.factors:
            a, b = found.values(baseline, metric, factor), found.values(name, metric, factor)
            compared = paired(a, b, "log-ratio" if metric == "mse" else "difference")
            effect, low, high = compared.ratio if metric == "mse" else (compared.effect, compared.low, compared.high)
            cells.append(f"{effect:.2g} [{low:.2g}, {high:.2g}]")
        rows.append([f"`{name}` {'/' if metric == 'mse' else '-'} `{baseline}`", *cells])
    return rows


def _printed(factor: float) -> str:
    table = published.load("ssa_table5")
    return next((row["squared_error"].text for row in table.rows if row["sigma"].number == factor), "")


def _cell(value: float) -> str:
    return "not in the prompt" if math.isnan(value) else short(value)
