"""Base class of all analyses, generic in what they measure in one model, what a folder keeps, and what they find.

Most analyses make grids and inherit from ``Analysis`` of ``frame.py``, which does most of this for them.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Self, TypeVar

from icl_lab import tasks
from icl_lab.analyses import options
from icl_lab.analyses.findings import TrainedModel
from icl_lab.comparison.given import Array
from icl_lab.comparison.statistics import Scale
from icl_lab.errors import BadValue
from icl_lab.runs.run import Run
from icl_lab.runs.spec import RunSpec
from icl_lab.runs.summary import training_cell
from icl_lab.tasks.base import Task

if TYPE_CHECKING:
    from matplotlib.figure import Figure

M = TypeVar("M")  # what is measured in one model
S = TypeVar("S")  # what is read from the folder of an analysis, of which claims are judged
F = TypeVar("F")  # what is found in all models, of which tables and figures are made
Cells = Mapping[str, Sequence[float]]  # an axis -> the values that a claim names


class AnalysisOf(ABC, Generic[M, S, F]):
    """A question to trained models. Subclasses are frozen dataclasses; their fields are their options.

    Claims in ``experiments/*.toml`` are about its numbers; ``value`` is all that one has to have. There ``of`` is a
    label or a reference, ``metric`` is empty for the usual one, ``seed`` a training seed.
    """

    grids: ClassVar[Mapping[str, Sequence[str]]]  # each grid that it makes (a CSV file) -> the axes of the grid
    title: ClassVar[str]  # of its figures and its page, after task and preset
    usual_rules: ClassVar[Sequence[str]] = ()  # asked where the command names none
    usual_task: ClassVar[str] = ""  # asked where the command names none; empty: that of all commands
    most: ClassVar[int | None] = None  # runs that it takes at most
    reads_grids: ClassVar[bool] = False  # whether the runs have to be tested as well as trained
    reads_models: ClassVar[bool] = True  # False: a model is loaded, or trained, only where it is asked for
    trains: ClassVar[bool] = True  # False: normalizers are asked without a model; a run is a normalizer and a seed
    kinds: ClassVar[Sequence[str]] = ("png", "svg")  # what its figures are published as
    of_errors: ClassVar[bool] = False  # whether claims are about errors: compared as ratios where these span decades
    error_metrics: ClassVar[Sequence[str]] = ()  # metrics of claims that are errors of models and references alike
    version: ClassVar[int] = 1  # of studies from before records held the hash of the code, which tells versions apart

    def __post_init__(self) -> None:
        options.check(self)

    @property
    def tag(self) -> str:
        """Suffix of its usual folder after analysis, task and preset; a hash of all that is asked follows."""
        return ""

    def check(self, spec: RunSpec) -> None:
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
    def measure(self, trained: TrainedModel) -> M:
        """Asks one model."""

    @abstractmethod
    def collect(self, answers: Sequence[tuple[TrainedModel, M]]) -> F:
        """Puts together what was measured in all models."""

    @abstractmethod
    def table(self, found: F) -> list[str]:
        """Returns what was found as lines of Markdown."""

    @abstractmethod
    def figures(self, found: F, title: str) -> "Mapping[str, Figure]":
        """Draws what was found; the first figure is the one to open."""

    def finding(self, found: F) -> str:
        """Returns one sentence that says what was found; empty where an analysis has none."""
        return ""

    @abstractmethod
    def files(self, found: F) -> dict[str, str | bytes]:
        """Returns the files that hold the numbers, by name."""

    @abstractmethod
    def read(self, folder: Path) -> S | None:
        """Reads what ``files`` wrote, as far as it is kept; None where that is not there."""

    @abstractmethod
    def again(self, folder: Path, specs: Mapping[str, RunSpec]) -> F | None:
        """Returns what ``collect`` had made of runs with these specifications, one a label, from its folder.

        None where the folder does not hold all of that.
        """

    def scale_of(self, task: Task, metric: str) -> Scale:
        """Returns how a metric of claims (empty: the usual one) is compared; ``value`` is a mean logarithm for ratios.

        Unless an analysis tells its metrics apart, all of them are compared alike (``of_errors``).
        """
        return "log-ratio" if self.of_errors and task.log_scale else "difference"

    def span(self, task: Task, metric: str) -> float:
        """Returns the largest difference of two values of a metric (empty: the usual one): 1 of rates and shares."""
        return task.worst if self.of_errors else math.inf

    def subjects(self, variants: Sequence[str]) -> Sequence[str]:
        """Returns what a claim may be about, beside references: the variants of the experiment."""
        return variants

    def seeds(self, found: S) -> list[int]:
        """Returns the training seeds that claims can be judged over."""
        return []

    def value(self, found: S, of: str, cells: Cells, metric: str, seed: int) -> float:
        """Returns the number that a claim is about: a metric of a subject over cells, for a seed.

        Where it is compared as a ratio (``scale_of``) it is a mean logarithm. Raises ``KeyError`` with a sentence where
        there is no such number.
        """
        raise BadValue(f"claims cannot be judged by the analysis {type(self).__name__.lower()}.")

    def on_resamples(self, found: S, of: str, cells: Cells, metric: str, seed: int) -> Array | None:
        """Returns ``value`` on the prompts that were asked and on resamples of them, (1 + resamples).

        These are the same for all models (``statistics.resampled`` with seed 0). None where what single prompts add is
        not kept; ``prompts_error`` may tell more then.
        """
        return None

    def prompts_error(self, found: S, of: str, cells: Cells, metric: str, seed: int) -> float:
        """Returns the most that the standard error of ``value`` over the prompts can be; NaN where it is not known."""
        return math.nan


AnyAnalysis = AnalysisOf[Any, Any, Any]  # for code that asks whatever analysis is named


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
