"""One trained model as an analysis meets it, and the labelled grids that are found in all of them."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import fmean, median

from icl_lab import tasks
from icl_lab.grid import Grid
from icl_lab.model.gpt2 import GPT2
from icl_lab.pipeline import subject
from icl_lab.runs.measure import Subject, TestSpec, draw
from icl_lab.runs.run import Run
from icl_lab.runs.session import Lab
from icl_lab.runs.spec import RunSpec, change, check
from icl_lab.runs.summary import training_cell
from icl_lab.tasks.base import Prompt, Task

Row = Mapping[str, object]  # a column of a grid -> its value
Rows = Mapping[str, Sequence[Row]]  # a grid's name -> its rows
Curves = list[list[tuple[float, float]]]  # of one normalizer, each a list of points


def cell(metric: str, value: float | None, count: int = 1, **where: object) -> Row:
    """Returns a row of a grid whose value has no standard error."""
    return {**where, "metric": metric, "value": value, "stderr": None, "count": count}


@dataclass(frozen=True)
class TrainedModel:
    """One trained model as an analysis meets it."""

    label: str  # what its rows are called in the column attn: the normalizer, or the variant of an experiment
    run: Run
    load: Callable[[], GPT2]  # called once, and only by an analysis that reads the model
    task: Task
    lab: Lab
    first: bool  # of all models that are asked: what is the same for all is measured beside this one
    tick: Callable[[int, int], object]  # done, total: progress within this model

    @cached_property
    def model(self) -> GPT2:
        """The model as it is tested, trained where it is missing."""
        return self.load()

    @property
    def spec(self) -> RunSpec:
        """The specification of the run."""
        return self.run.spec

    @property
    def cell(self) -> dict[str, float]:
        """The cell of training conditions: each axis of the test grid, length included."""
        return training_cell(self.task, self.spec)

    def prompts(self, count: int, cell: Mapping[str, float] | None = None) -> Prompt:
        """Draws test prompts of a cell (of training conditions unless named), the same for every model of the task.

        They come from the test set with balanced classes, where there is one.
        """
        here = dict(self.cell if cell is None else cell)
        return drawn(self.spec, count, int(here.pop("length")), here)

    def subjects(self) -> dict[str, Subject]:
        """Returns the model and, beside the first model only, the task's reference predictors, which are no models."""
        found = {self.label: subject(self.model, self.task, self.lab.device)}
        if self.first:
            found |= {f"reference:{name}": Subject(predict) for name, predict in self.task.references().items()}
        return found

    def labelled(self, rows: Iterable[Row]) -> list[Row]:
        """Returns rows with the labels of the run; a row that names its own label, such as ``attn``, keeps it."""
        return [{**self.run.labels, "attn": self.label, **row} for row in rows]


def drawn(spec: RunSpec, count: int, length: int, shift: Mapping[str, float]) -> Prompt:
    """Draws test prompts of a run's task, balanced where they can be."""
    test = TestSpec(prompts=count, axes={"length": [float(length)]}, draws=spec.test.draws)
    return draw(tasks.build(spec.task).balanced, length, test, shift)


def check_lengths(spec: RunSpec, lengths: Iterable[int]) -> None:
    """Raises ``BadValue`` where the task, or the position code, has no prompts of one of these lengths."""
    check(change(spec, {"test.axes.length": [float(length) for length in lengths]}), tasks.build(spec.task))


def check_drawn(spec: RunSpec, length: int) -> None:
    """Raises ``BadValue`` where a prompt of this length cannot be drawn, or the position code has none so long."""
    check_lengths(spec, [length])
    drawn(spec, 1, length, {})


def known(values: Iterable[float]) -> list[float]:
    """Returns the values that are not NaN."""
    return [value for value in values if not math.isnan(value)]


def known_median(values: Iterable[float]) -> float:
    """Returns the median of the values that are not NaN; NaN where there is none."""
    return median(known(values) or [math.nan])


@dataclass(frozen=True)
class StoredGrids:
    """Labelled grids by name, over all models that were asked, as the folder of an analysis keeps them."""

    grids: Mapping[str, Grid]

    def __getitem__(self, name: str) -> Grid:
        return self.grids[name]

    @property
    def first(self) -> Grid:
        """The grid that the analysis names first."""
        return next(iter(self.grids.values()))

    @property
    def rules(self) -> list[str]:
        """The labels of the models, in the order that they were asked for."""
        return [name for name in self.first.values("attn") if not name.startswith("reference:")]

    @property
    def references(self) -> list[str]:
        """The reference predictors."""
        return [name for name in self.first.values("attn") if name.startswith("reference:")]

    @property
    def seeds(self) -> list[int]:
        """The training seeds of the first label."""
        return self.seeds_of(self.rules[0])

    def seeds_of(self, rule: str) -> list[int]:
        """Returns the training seeds of a label."""
        return [int(seed) for seed in self.first.where(attn=rule).values("seed")]

    def curves_by_rule(self, name: str, along: str, *by: str, **where: object) -> dict[str, Curves]:
        """Returns curves of each normalizer in some cells of a grid: (along, value), one for each value of ``by``."""
        return {rule: self[name].where(attn=rule, **where).lines(along, *by) for rule in self.rules}

    def mean(self, name: str, **where: object) -> float:
        """Returns the mean of cells of a grid, over seeds and whatever else is left."""
        return fmean(float(value) for value in self[name].where(**where).frame["value"])

    def own(self, name: str, of: str, seed: int) -> Grid:
        """Returns the rows of a label and seed in a grid; a reference was asked once, beside the first model."""
        rows = self[name].where(attn=of)
        return rows if of.startswith("reference:") else rows.where(seed=seed)


@dataclass(frozen=True)
class Findings(StoredGrids):
    """The same with the specification of the first run."""

    spec: RunSpec
