"""Base class of analyses: one question to trained models, asked the same way of every one of them.

A subclass is a frozen dataclass, announced by ``@registry.add("name")`` in a file of its own. Its fields are its
options: on the command line, behind ``make name ARGS=...``, and under ``[options]`` in an experiment's file. It says
what to measure in one model, how to show what was found, and which number a claim is about. The rest is the same for
all: labels and CSV files are here, ``asking.py`` trains what is missing and asks, ``publish.py`` writes the folder.
"""

import dataclasses
import math
import typing
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from statistics import fmean
from typing import Any, ClassVar, Self

import msgspec
from matplotlib.figure import Figure

from icl_lab import tasks
from icl_lab.analyses import options, prompts, registry
from icl_lab.analyses.options import option as option  # analyses find all they need here
from icl_lab.comparison.given import Array
from icl_lab.comparison.statistics import Scale
from icl_lab.errors import BadValue, UnknownOption
from icl_lab.files import present
from icl_lab.grid import Grid
from icl_lab.model.gpt2 import GPT2
from icl_lab.pipeline import subject
from icl_lab.runs.measure import Subject, TestSpec, draw
from icl_lab.runs.run import Run
from icl_lab.runs.session import Lab
from icl_lab.runs.spec import RunSpec
from icl_lab.runs.summary import training_cell
from icl_lab.tasks.base import Prompt, Task

Row = Mapping[str, Any]
SHIFTS = "shifts"  # in ``Analysis.grids``: every axis of the task's test grid


@dataclass(frozen=True)
class Trained:
    """One trained model as an analysis meets it."""

    label: str  # what its rows are called in the column attn: the rule, or the variant of an experiment
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
        length = int(here.pop("length"))
        test = TestSpec(prompts=count, axes={"length": [float(length)]}, draws=self.spec.test.draws)
        return draw(self.task.balanced, length, test, here)

    def subjects(self) -> dict[str, Subject]:
        """Returns the model and, beside the first model only, the task's reference predictors, which are no models."""
        found = {self.label: subject(self.model, self.task, self.lab.device)}
        if self.first:
            found |= {f"reference:{name}": Subject(predict) for name, predict in self.task.references().items()}
        return found

    def labelled(self, rows: Iterable[Row]) -> list[dict[str, Any]]:
        """Returns rows with the labels of the run; a row that names its own label, such as ``attn``, keeps it."""
        return [{**self.run.labels, "attn": self.label, **row} for row in rows]


@dataclass(frozen=True)
class Found:
    """Result of an analysis: labelled grids by name, over all models that were asked."""

    spec: RunSpec
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
        return [int(seed) for seed in self.first.where(attn=self.rules[0]).values("seed")]


class Analysis(ABC):
    """A question to trained models. Subclasses are frozen dataclasses; their fields are their options."""

    def __post_init__(self) -> None:
        options.check(self)

    grids: ClassVar[Mapping[str, Sequence[str]]]  # each grid that it makes (a CSV file) -> the axes of the grid
    title: ClassVar[str]  # of its figures and its page, after task and preset
    usual_rules: ClassVar[Sequence[str]] = ()  # asked where the command names none
    usual_task: ClassVar[str] = ""  # asked where the command names none; empty: that of all commands
    most: ClassVar[int | None] = None  # runs that it takes at most
    reads_grids: ClassVar[bool] = False  # whether the runs have to be tested as well as trained
    reads_models: ClassVar[bool] = True  # False: a model is loaded, or trained, only where it is asked for
    trains: ClassVar[bool] = True  # False: rules are asked without a model; of a run only rule and seed mean something
    kinds: ClassVar[Sequence[str]] = ("png", "svg")  # what its figures are published as
    version: ClassVar[int] = 1  # raised when it finds other numbers than before in the same model: they are not mixed

    @property
    def tag(self) -> str:
        """Suffix of its usual folder after analysis, task and preset; a hash of all that is asked follows."""
        return ""

    def check(self, spec: RunSpec) -> None:  # noqa: B027
        """Raises ``BadValue`` where the question makes no sense for a run; asked before anything is trained."""

    def prepared(self, runs: Sequence[Run]) -> Self:
        """Returns the analysis with the options filled in whose default hangs on the runs.

        Raises ``BadValue`` where these runs cannot be asked together; called before anything is trained.
        """
        return self

    def lacking(self, runs: Sequence[Run]) -> list[Run]:
        """Returns the runs that have to be finished before it can ask; those that are finished may be among them."""
        return list(runs) if self.trains else []

    def asks(self, spec: RunSpec) -> list[tuple[int, int]]:
        """Returns the sets of prompts that it draws: how many, of how many examples; their memory is estimated first.

        Unless it says otherwise: as many as its option ``prompts`` says, as long as in training conditions.
        """
        count = getattr(self, "prompts", 0)
        return [(count, int(training_cell(tasks.build(spec.task), spec)["length"]))] if count else []

    def beyond(self, spec: RunSpec) -> bool:
        """True if all that it asks lies beyond training, so that a model must have learned its task to be judged.

        Unless it says otherwise only what the cells of a claim name does.
        """
        return False

    @abstractmethod
    def measure(self, trained: Trained) -> Any:
        """Asks one model: returns the rows of each grid by its name, without the labels of the run."""

    def collect(self, answers: Sequence[tuple[Trained, Any]]) -> Any:
        """Puts the rows of all models into labelled grids; a grid without rows is left out."""
        first = answers[0][0]
        shifts = [axis for axis in first.cell if axis != "length"]
        grids = {}
        for name, axes in self.grids.items():
            rows = [row for trained, rows in answers for row in trained.labelled(rows.get(name, ()))]
            if rows:
                grids[name] = Grid.of(rows, [a for axis in axes for a in (shifts if axis == SHIFTS else [axis])])
        return self.completed(Found(first.spec, grids), {trained.label: trained.spec for trained, _ in answers})

    def completed(self, found: Found, specs: Mapping[str, RunSpec]) -> Any:
        """Adds what follows from the grids and the specification of each label: nothing, unless it says otherwise."""
        return found

    @abstractmethod
    def table(self, found: Any) -> list[str]:
        """Returns what was found as lines of Markdown."""

    @abstractmethod
    def figures(self, found: Any, title: str) -> Mapping[str, Figure]:
        """Draws what was found; the first figure is the one to open."""

    def finding(self, found: Any) -> str:
        """Returns one sentence that says what was found; empty where an analysis has none."""
        return ""

    def files(self, found: Any) -> dict[str, str | bytes]:
        """Returns the files that hold the numbers, by name."""
        return {f"{name}.csv": grid.csv() for name, grid in found.grids.items()}

    def read(self, folder: Path) -> Any:
        """Reads what ``files`` wrote, as far as it is kept; None where the grid that is named first is not there."""
        paths = {name: path for name in self.grids if (path := present(folder / f"{name}.csv"))}
        if next(iter(self.grids)) not in paths:
            return None
        return Stored({name: Grid.read(path) for name, path in paths.items()})

    def again(self, folder: Path, specs: Mapping[str, RunSpec]) -> Any:
        """Returns what ``collect`` had made of runs with these specifications, one a label, from its folder.

        None where the folder does not hold all of that.
        """
        found = self.read(folder)
        if not isinstance(found, Stored):
            return found
        return self.completed(Found(next(iter(specs.values())), found.grids), specs) if self.whole(found) else None

    def whole(self, found: "Stored") -> bool:
        """True if what was kept is all that ``collect`` had made; of a grid without rows there is no file."""
        return type(self).collect is Analysis.collect

    def log_scale(self, task: Task) -> bool:
        """True if the quantities of claims span decades, so that they are compared as ratios."""
        return False

    def scale_of(self, task: Task, metric: str) -> Scale:
        """Scale of a metric of claims (empty: the usual one); ``value`` is a mean logarithm for ratios.

        Unless an analysis tells its metrics apart, all of them are compared alike (``log_scale``).
        """
        return "log-ratio" if self.log_scale(task) else "difference"

    def subjects(self, variants: Sequence[str]) -> Sequence[str]:
        """Returns what a claim may be about, beside references: the variants of the experiment."""
        return variants

    def seeds(self, found: Any) -> list[int]:
        """Returns the training seeds that claims can be judged over."""
        return list(found.seeds)

    def value(self, found: Any, of: str, cells: Mapping[str, Sequence[float]], metric: str, seed: int) -> float:
        """Returns the number that a claim is about: a metric (or the usual one) of a subject over cells, for a seed.

        Where it is compared as a ratio (``scale_of``) it is a mean logarithm. Raises ``KeyError`` with a sentence where
        there is no such number.
        """
        if (chosen := self.cells_of(found, of, cells, metric, seed)) is None:
            raise BadValue(f"claims cannot be judged by the analysis {type(self).__name__.lower()}.")
        values = [float(value) for value in chosen.frame["value"]]
        return fmean(map(math.log, values) if self._as_ratio(chosen, metric) else values)

    def cells_of(
        self, found: Any, of: str, cells: Mapping[str, Sequence[float]], metric: str, seed: int
    ) -> Grid | None:
        """Returns the cells that ``value`` is the mean of; None where it is something else."""
        return None

    def on_resamples(
        self, found: Any, of: str, cells: Mapping[str, Sequence[float]], metric: str, seed: int
    ) -> Array | None:
        """Returns ``value`` on the prompts that were asked and on resamples of them, (1 + resamples).

        These are the same for all models (``statistics.resampled`` with seed 0). None where what single prompts add is
        not kept; ``prompts_error`` may tell more then.
        """
        chosen = self.cells_of(found, of, cells, metric, seed)
        if chosen is None or "prompts" not in found.grids:
            return None
        return prompts.on_resamples(found["prompts"], chosen, logarithm=self._as_ratio(chosen, metric))

    def prompts_error(self, found: Any, of: str, cells: Mapping[str, Sequence[float]], metric: str, seed: int) -> float:
        """Returns the most that the standard error of ``value`` over the prompts can be; NaN where it is not known."""
        chosen = self.cells_of(found, of, cells, metric, seed)
        return math.nan if chosen is None else chosen.mean_error(logarithm=self._as_ratio(chosen, metric))

    def _as_ratio(self, chosen: Grid, metric: str) -> bool:
        return self.scale_of(tasks.build(chosen.values("task")[0]), metric) == "log-ratio"


@dataclass(frozen=True)
class Stored:
    """Grids read from the folder of an analysis; as ``Found``, without a specification."""

    grids: Mapping[str, Grid]

    __getitem__ = Found.__getitem__
    first = Found.first
    rules = Found.rules
    references = Found.references
    seeds = Found.seeds


def constant(of: str) -> float | None:
    """The number that a claim names in the place of a subject, such as ``reference:0.25``; None for a subject.

    Raises ``KeyError`` for a reference that is no number.
    """
    kind, _, text = of.partition(":")
    if kind != "reference":
        return None
    try:
        return float(text)
    except ValueError:
        raise KeyError(f"'{of}' is no number; a bound is named as reference:0.25") from None


def build(name: str, options: Mapping[str, Any]) -> Analysis:
    """Builds an analysis from options as a file holds them: numbers, texts and lists.

    Raises ``UnknownName``, ``UnknownOption`` or ``BadValue`` with what exists and what was asked.
    """
    part = registry.part(name)
    fields = [field.name for field in dataclasses.fields(part)]
    for key in options:
        if key not in fields:
            raise UnknownOption(f"The analysis '{name}'", key, fields)
    hints, values = typing.get_type_hints(part), {}
    for key, value in options.items():
        try:
            values[key] = msgspec.convert(value, hints[key])
        except msgspec.ValidationError as error:
            raise BadValue(f"The analysis '{name}': {key}: {error}, got {value!r}.") from None
    made: Analysis = part(**values)
    return made
