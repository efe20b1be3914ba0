"""Base of all analyses: one question to trained models, asked the same way of every one of them.

A subclass of ``Analysis`` is a frozen dataclass, announced by ``@registry.add("name")``. Its fields are its options: on
the command line, behind ``make name ARGS=...``, and under ``[options]`` in an experiment's file. It measures one model
as rows of grids, and makes the table, the figures and the finding from the grids of all; ``metrics`` declares which
cells a claim reads. ``runner.py`` trains missing models and asks, ``publish.py`` writes the folder.
"""

import dataclasses
import math
import types
import typing
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from itertools import product
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Literal, Self, TypeVar, cast

import msgspec
import numpy as np

from icl_lab import tasks
from icl_lab.analyses import registry
from icl_lab.analyses.findings import Curves as Curves  # plugins find all they need here
from icl_lab.analyses.findings import Findings as Findings
from icl_lab.analyses.findings import Row as Row
from icl_lab.analyses.findings import Rows as Rows
from icl_lab.analyses.findings import StoredGrids as StoredGrids
from icl_lab.analyses.findings import TrainedModel as TrainedModel
from icl_lab.analyses.findings import known
from icl_lab.base.errors import BadValue, Undefined, UnknownOption
from icl_lab.base.files import present
from icl_lab.base.grid import Grid
from icl_lab.base.option_values import GREATEST
from icl_lab.comparison.given import Array
from icl_lab.comparison.statistics import RESAMPLES, Scale
from icl_lab.runs.run import Run
from icl_lab.runs.spec import RunSpec
from icl_lab.runs.summary import training_cell
from icl_lab.tasks.base import Task

if TYPE_CHECKING:
    from matplotlib.figure import Figure

M = TypeVar("M")  # measured in one model
S = TypeVar("S")  # read from the folder of an analysis; claims are judged from it
F = TypeVar("F")  # findings in all models, from which tables and figures follow
Cells = Mapping[str, Sequence[float]]  # an axis -> the values that a claim names
SHIFTS = "shifts"  # in ``Analysis.grids``: every axis of the task's test grid
WHOLES = 1_000_000  # the greatest whole number of an option that names no other bound
VALUES = 1000  # of one option: each is measured by itself
ANY = "*"  # in ``AnalysisOf.metrics``: every metric that is not named


@dataclasses.dataclass(frozen=True)
class Metric:
    """A metric of claims: which cells of which grid its value is the mean of, and how two values are compared.

    ``number``: differences; ``share``: those of shares and rates, 1 at most; ``error``: ratios where errors of the task
    span decades; ``change``: differences of two errors; ``ratio``: ratios, so that the value is a mean logarithm;
    ``logarithm``: ratios of cells that hold logarithms.
    """

    grid: str = ""  # empty: of an analysis that keeps no grids
    named: Sequence[str] = ()  # axes whose values a claim has to name
    last: Sequence[str] = ()  # axes at their greatest value where a claim does not name them
    usual: Cells = dataclasses.field(default_factory=dict)  # values of further axes where a claim does not name them
    kind: Literal["number", "share", "error", "change", "ratio", "logarithm"] = "number"
    constants: bool = False  # whether a claim may name a number as its subject: reference:0.25
    mean: bool = True  # False: ``value`` computes it in another way
    baselines: bool = False  # whether it is an error of models and references alike, which models have to beat


def option(
    default: Any,
    help: str,
    *,
    least: float | None = None,
    most: float | None = None,
    names: Sequence[str] = (),
    later: bool = False,
) -> Any:
    """Declare a field that is an option: its default, its help, its least and greatest value, and further names.

    One that came ``later`` is not recorded where it has its default: studies from before it ask the same question.
    """
    about = {"help": help, "least": least, "most": most, "names": tuple(names), "later": later}
    return dataclasses.field(default=default, metadata=about)


def kind_of(hint: object) -> tuple[type, bool]:
    """Return the type of one value of an option, and whether there may be several.

    >>> kind_of(tuple[float, ...]), kind_of(int | None)
    ((<class 'float'>, True), (<class 'int'>, False))
    """
    if typing.get_origin(hint) is tuple:
        return typing.get_args(hint)[0], True
    if typing.get_origin(hint) in (types.UnionType, typing.Union):
        return next(kind for kind in typing.get_args(hint) if kind is not type(None)), False
    return cast(type, hint), False


def bounds(field: "dataclasses.Field[Any]", kind: type) -> tuple[float, float]:
    """Return the least and the greatest value of an option of numbers, those of its kind where it names none."""
    usual = (-WHOLES, WHOLES) if kind is int else (-GREATEST, GREATEST)
    own = (field.metadata.get(name) for name in ("least", "most"))
    least, most = (bound if declared is None else declared for declared, bound in zip(own, usual, strict=True))
    return least, most


class AnalysisOf(ABC, Generic[M, S, F]):
    """A question to trained models, generic in its measurements (M), stored numbers (S) and findings (F).

    Most analyses make grids and inherit from ``Analysis``. Claims in ``experiments/*.toml`` are about its numbers;
    there ``of`` is a label or a reference, ``metric`` is empty for the usual one, ``seed`` a training seed.
    """

    registered: ClassVar[str] = ""  # the name, which ``registry.add`` fills in
    grids: ClassVar[Mapping[str, Sequence[str]]]  # each grid that it makes (a CSV file) -> the axes of the grid
    title: ClassVar[str]  # of its figures and its page, after task and preset
    usual_rules: ClassVar[Sequence[str]] = ()  # asked where the command names none
    usual_task: ClassVar[str] = ""  # asked where the command names none; empty: that of all commands
    most: ClassVar[int | None] = None  # runs that it takes at most
    reads_grids: ClassVar[bool] = False  # whether the runs have to be tested as well as trained
    reads_models: ClassVar[bool] = True  # False: a model is loaded, or trained, only where it is asked for
    trains: ClassVar[bool] = True  # False: normalizers are asked without a model; a run is a normalizer and a seed
    kinds: ClassVar[Sequence[str]] = ("png", "svg")  # formats of its published figures
    metrics: ClassVar[Mapping[str, Metric]] = {}  # of claims, the usual one first
    version: ClassVar[int] = 1  # of studies from before records held the hash of the code, which tells versions apart

    def __post_init__(self) -> None:
        """Raise ``BadValue`` where an option has too many values, or one out of its bounds."""
        hints = typing.get_type_hints(type(self))
        for field in dataclasses.fields(cast(Any, self)):
            value = getattr(self, field.name)
            if isinstance(value, tuple) and len(value) > VALUES:
                raise BadValue(f"{field.name} takes at most {VALUES} values, got {len(value):,}.")
            for number in value if isinstance(value, tuple) else (value,):
                if isinstance(number, float) and not math.isfinite(number):
                    raise BadValue(f"{field.name} must be finite, got {number:g}.")
                if isinstance(number, int | float) and not isinstance(number, bool):
                    least, most = bounds(field, kind_of(hints[field.name])[0])
                    if number < least:
                        raise BadValue(f"{field.name} must be at least {least:g}, got {_plain(number)}.")
                    if number > most:
                        raise BadValue(f"{field.name} must be at most {_plain(most)}, got {_plain(number)}.")

    @property
    def name(self) -> str:
        """The name under which the analysis is registered."""
        return self.registered or type(self).__name__

    @property
    def tag(self) -> str:
        """Suffix of its usual folder after analysis, task and preset; a hash of all that is asked follows."""
        return ""

    def check(self, spec: RunSpec) -> None:
        """Raise ``BadValue`` where the question makes no sense for a run; called before anything is trained."""

    def prepared(self, runs: Sequence[Run]) -> Self:
        """Return the analysis with the options filled in whose default depends on the runs.

        Raises ``BadValue`` where these runs cannot be asked together; called before anything is trained.
        """
        return self

    def lacking(self, runs: Sequence[Run]) -> list[Run]:
        """Return the runs that have to be finished before it can ask; those that are finished may be among them."""
        return list(runs) if self.trains else []

    def asks(self, spec: RunSpec) -> list[tuple[int, int]]:
        """Return count and length of each set of prompts that it draws; their memory is estimated first.

        By default one set: its option ``prompts``, of the length of training conditions.
        """
        count = getattr(self, "prompts", 0)
        return [(count, int(training_cell(tasks.build(spec.task), spec)["length"]))] if count else []

    def beyond(self, spec: RunSpec) -> bool:
        """True if all that it asks is beyond training, so that a model must have learned its task to be judged.

        By default only the cells of a claim say so.
        """
        return False

    @abstractmethod
    def measure(self, trained: TrainedModel) -> M:
        """Ask one model."""

    @abstractmethod
    def collect(self, answers: Sequence[tuple[TrainedModel, M]]) -> F:
        """Put together the measurements of all models."""

    @abstractmethod
    def table(self, found: F) -> list[str]:
        """Return the findings as lines of Markdown."""

    @abstractmethod
    def figures(self, found: F, title: str) -> "Mapping[str, Figure]":
        """Draw the findings; the first figure is the one to open."""

    def finding(self, found: F) -> str:
        """Return the findings in one sentence; empty where an analysis has none."""
        return ""

    @abstractmethod
    def files(self, found: F) -> dict[str, str | bytes]:
        """Return the files that hold the numbers, by name."""

    @abstractmethod
    def read(self, folder: Path) -> S | None:
        """Read the files that ``files`` named, as far as they are kept; None where they are not there."""

    @abstractmethod
    def again(self, folder: Path, specs: Mapping[str, RunSpec]) -> F | None:
        """Return from its folder the findings of runs with these specifications, one per label.

        None where the folder does not hold all of that.
        """

    def metric(self, name: str) -> Metric:
        """Return the declaration of a metric (empty: the usual one); one that is not declared is a plain number."""
        declared = self.metrics.get(name or next(iter(self.metrics), ""))
        return declared or self.metrics.get(ANY, Metric())

    def scale_of(self, task: Task, metric: str) -> Scale:
        """Return the scale on which claims compare a metric; ``value`` is a mean logarithm for ratios."""
        kind = self.metric(metric).kind
        ratio = task.log_scale if kind == "error" else kind in ("ratio", "logarithm")
        return "log-ratio" if ratio else "difference"

    def span(self, task: Task, metric: str) -> float:
        """Return the largest difference of two values of a metric: 1 of rates and shares."""
        return {"share": 1.0, "error": task.worst, "change": 2 * task.worst}.get(self.metric(metric).kind, math.inf)

    def subjects(self, variants: Sequence[str]) -> Sequence[str]:
        """Return the subjects of claims other than references: the variants of the experiment."""
        return variants

    def seeds(self, found: S) -> list[int]:
        """Return the training seeds that claims can be judged over."""
        return []

    def value(self, found: S, of: str, cells: Cells, metric: str, seed: int) -> float:
        """Return the number that a claim is about: a metric of a subject over cells, for a seed.

        Where it is compared as a ratio (``scale_of``) it is a mean logarithm. Raises ``KeyError`` with a sentence where
        there is no such number.
        """
        raise BadValue(f"claims cannot be judged by the analysis {type(self).__name__.lower()}.")

    def on_resamples(self, found: S, of: str, cells: Cells, metric: str, seed: int) -> Array | None:
        """Return ``value`` on the prompts that were asked and on resamples of them, (1 + resamples).

        These are the same for all models (``statistics.resampled`` with seed 0). None where the contributions of single
        prompts are not kept; ``prompts_error`` may be known then.
        """
        return None

    def prompts_error(self, found: S, of: str, cells: Cells, metric: str, seed: int) -> float:
        """Return the most that the standard error of ``value`` over the prompts can be; NaN where it is not known."""
        return math.nan


AnyAnalysis = AnalysisOf[Any, Any, Any]  # for code that asks whatever analysis is named


class Analysis(AnalysisOf[Rows, StoredGrids, Findings]):
    """An analysis whose numbers are labelled grids, from which its findings follow."""

    findings: ClassVar[type[Findings]] = Findings  # with the numbers that follow from the grids
    needed: ClassVar[Sequence[str]] = ()  # grids that its tables and figures read, apart from the first
    undefined: ClassVar[str] = ""  # reason why cells may be NaN: they are left out, or nothing is left

    @abstractmethod
    def measure(self, trained: TrainedModel) -> Rows:
        """Ask one model; return the rows of each grid by its name, without the labels of the run."""

    def collect(self, answers: Sequence[tuple[TrainedModel, Rows]]) -> Findings:
        """Put the rows of all models into labelled grids; a grid without rows is left out."""
        first = answers[0][0]
        shifts = [axis for axis in first.cell if axis != "length"]
        grids = {}
        for name, axes in self.grids.items():
            rows = [row for trained, rows in answers for row in trained.labelled(rows.get(name, ()))]
            if rows:
                grids[name] = Grid.of(rows, [a for axis in axes for a in (shifts if axis == SHIFTS else [axis])])
        return self.findings(grids, {trained.label: trained.spec for trained, _ in answers})

    def files(self, found: Findings) -> dict[str, str | bytes]:
        """Return each grid as CSV."""
        return {f"{name}.csv": grid.csv() for name, grid in found.grids.items()}

    def read(self, folder: Path) -> StoredGrids | None:
        """Read the grids that are kept; None where the grid that is named first is not there."""
        paths = {name: path for name in self.grids if (path := present(folder / f"{name}.csv"))}
        if next(iter(self.grids)) not in paths:
            return None
        return StoredGrids({name: Grid.read(path) for name, path in paths.items()})

    def again(self, folder: Path, specs: Mapping[str, RunSpec]) -> Findings | None:
        """Return the findings from the stored grids; a grid without rows has no file."""
        found = self.read(folder)
        if found is None or type(self).collect is not Analysis.collect or not self.shows(found):
            return None
        return self.findings(found.grids, specs)

    def shows(self, found: StoredGrids) -> bool:
        """True if the stored grids suffice for tables and figures; claims may need less."""
        return set(self.needed) <= set(found.grids)

    def seeds(self, found: StoredGrids) -> list[int]:
        return list(found.seeds)

    def rows_of(self, found: StoredGrids, of: str, metric: str, seed: int) -> Grid:
        """Return the rows of a subject in the grid of a metric; raises ``KeyError`` without such a metric or grid."""
        if metric not in self.metrics and ANY not in self.metrics:
            there = f"there {'is' if len(self.metrics) == 1 else 'are'} {', '.join(self.metrics)}"
            raise KeyError(f"{self.name} has no metric '{metric}'; {there}")
        if (grid := self.metric(metric).grid) not in found.grids:
            raise KeyError(f"'{metric}' stands in {grid}.csv, which is not there")
        return found.own(grid, of, seed)

    def cells_of(self, found: StoredGrids, of: str, cells: Cells, metric: str, seed: int) -> Grid | None:
        """Return the cells that ``value`` is the mean of, as ``metrics`` declares; None where it is not a mean.

        Raises ``KeyError`` with a sentence for an axis that is missing, and for a value that no cell has.
        """
        metric = metric or next(iter(self.metrics), "")
        declared = self.metric(metric)
        if not self.metrics or not declared.mean:
            return None
        own = self.rows_of(found, of, metric, seed).where(metric=metric)
        for axis in declared.named:
            if axis not in cells:
                example = f"cells = {{ {axis} = [{own.values(axis)[-1]:g}] }}"
                raise KeyError(f"a claim about '{metric}' names its {axis}: {example}")
        chosen = {axis: [max(own.values(axis))] for axis in declared.last} | dict(declared.usual) | dict(cells)
        return Grid.join(own.where(**dict(zip(chosen, values, strict=True))) for values in product(*chosen.values()))

    def value(self, found: StoredGrids, of: str, cells: Cells, metric: str, seed: int) -> float:
        """Return the mean of ``cells_of``, or the mean logarithm; of a number the number."""
        if (number := self._constant(of, metric)) is not None:
            return number
        if (chosen := self.cells_of(found, of, cells, metric, seed)) is None:
            return super().value(found, of, cells, metric, seed)
        values = [float(value) for value in chosen.frame["value"]]
        if self.undefined and not (values := known(values)):
            raise Undefined(self.undefined)
        return fmean(map(math.log, values) if self._as_ratio(chosen, metric) else values)

    def on_resamples(self, found: StoredGrids, of: str, cells: Cells, metric: str, seed: int) -> Array | None:
        """Return the same mean on resamples of the prompts, where the grid ``prompts`` is kept."""
        if (number := self._constant(of, metric)) is not None:
            return np.full(1 + RESAMPLES, number)
        chosen = self.cells_of(found, of, cells, metric, seed)
        return None if chosen is None else found.on_resamples(chosen, logarithm=self._as_ratio(chosen, metric))

    def prompts_error(self, found: StoredGrids, of: str, cells: Cells, metric: str, seed: int) -> float:
        """Return the mean standard error of the cells, or that of their logarithms; 0 of a number."""
        if self._constant(of, metric) is not None:
            return 0.0
        chosen = self.cells_of(found, of, cells, metric, seed)
        return math.nan if chosen is None else chosen.mean_error(logarithm=self._as_ratio(chosen, metric))

    def _constant(self, of: str, metric: str) -> float | None:
        """The number that a claim names as its subject, or its logarithm; None of another subject."""
        declared = self.metric(metric)
        number = constant(of) if declared.constants else None
        return number if number is None or declared.kind != "ratio" else math.log(number)

    def _as_ratio(self, chosen: Grid, metric: str) -> bool:
        task = tasks.build(chosen.values("task")[0])
        return self.scale_of(task, metric) == "log-ratio" and self.metric(metric).kind != "logarithm"


def build(name: str, options: Mapping[str, object]) -> AnyAnalysis:
    """Build an analysis from options as a file holds them: numbers, texts and lists.

    Raises ``UnknownName``, ``UnknownOption`` or ``BadValue`` with the value asked and those that exist.
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
    analysis: AnyAnalysis = part(**values)
    return analysis


def constant(of: str) -> float | None:
    """Return the number that a claim names as its subject, such as ``reference:0.25``; None for another subject.

    ``reference:nothing`` is 0. Raises ``KeyError`` for another reference.
    """
    kind, _, text = of.partition(":")
    if kind != "reference":
        return None
    try:
        return float("0" if text == "nothing" else text)
    except ValueError:
        raise KeyError(f"'{of}' is no number; a bound is named as reference:0.25") from None


def _plain(value: float) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:g}"
