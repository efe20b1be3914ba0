"""Analyses that make grids: one question to trained models, asked the same way of every one of them.

A subclass is a frozen dataclass, announced by ``@registry.add("name")`` in a file of its own. Its fields are its
options: on the command line, behind ``make name ARGS=...``, and under ``[options]`` in an experiment's file. It says
what to measure in one model, how to show what was found, and which number a claim is about. The rest is the same for
all: labels and CSV files are here, ``runner.py`` trains what is missing and asks, ``publish.py`` writes the folder.
"""

import dataclasses
import math
import typing
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import ClassVar, Generic, TypeVar

import msgspec

from icl_lab import tasks
from icl_lab.analyses import per_prompt, registry
from icl_lab.analyses.base import AnalysisOf as AnalysisOf  # analyses find all they need here
from icl_lab.analyses.base import AnyAnalysis as AnyAnalysis
from icl_lab.analyses.base import Cells as Cells
from icl_lab.analyses.base import constant as constant
from icl_lab.analyses.findings import Curves as Curves
from icl_lab.analyses.findings import Findings as Findings
from icl_lab.analyses.findings import Row as Row
from icl_lab.analyses.findings import Rows as Rows
from icl_lab.analyses.findings import StoredGrids as StoredGrids
from icl_lab.analyses.findings import TrainedModel as TrainedModel
from icl_lab.analyses.options import option as option
from icl_lab.comparison.given import Array
from icl_lab.errors import BadValue, UnknownOption
from icl_lab.files import present
from icl_lab.grid import Grid
from icl_lab.runs.spec import RunSpec

G = TypeVar("G", bound=Findings)
SHIFTS = "shifts"  # in ``Analysis.grids``: every axis of the task's test grid


class GridAnalysis(AnalysisOf[Rows, StoredGrids, G], Generic[G]):
    """An analysis whose numbers are labelled grids, and what else follows from them (G)."""

    needed: ClassVar[Sequence[str]] = ()  # grids that its tables and figures read, beside the first

    @abstractmethod
    def measure(self, trained: TrainedModel) -> Rows:
        """Asks one model: returns the rows of each grid by its name, without the labels of the run."""

    def collect(self, answers: Sequence[tuple[TrainedModel, Rows]]) -> G:
        """Puts the rows of all models into labelled grids; a grid without rows is left out."""
        first = answers[0][0]
        shifts = [axis for axis in first.cell if axis != "length"]
        grids = {}
        for name, axes in self.grids.items():
            rows = [row for trained, rows in answers for row in trained.labelled(rows.get(name, ()))]
            if rows:
                grids[name] = Grid.of(rows, [a for axis in axes for a in (shifts if axis == SHIFTS else [axis])])
        return self.completed(Findings(grids, first.spec), {trained.label: trained.spec for trained, _ in answers})

    @abstractmethod
    def completed(self, found: Findings, specs: Mapping[str, RunSpec]) -> G:
        """Adds what follows from the grids and the specification of each label."""

    def files(self, found: G) -> dict[str, str | bytes]:
        """Returns each grid as CSV."""
        return {f"{name}.csv": grid.csv() for name, grid in found.grids.items()}

    def read(self, folder: Path) -> StoredGrids | None:
        """Reads what ``files`` wrote, as far as it is kept; None where the grid that is named first is not there."""
        paths = {name: path for name in self.grids if (path := present(folder / f"{name}.csv"))}
        if next(iter(self.grids)) not in paths:
            return None
        return StoredGrids({name: Grid.read(path) for name, path in paths.items()})

    def again(self, folder: Path, specs: Mapping[str, RunSpec]) -> G | None:
        found = self.read(folder)
        if found is None or not self.whole(found):
            return None
        return self.completed(Findings(found.grids, next(iter(specs.values()))), specs)

    def whole(self, found: StoredGrids) -> bool:
        """True if what was kept is all that ``collect`` had made; of a grid without rows there is no file."""
        return type(self).collect is GridAnalysis.collect and self.shows(found)

    def shows(self, found: StoredGrids) -> bool:
        """True if what was kept suffices for tables and figures; claims may need less."""
        return set(self.needed) <= set(found.grids)

    def seeds(self, found: StoredGrids) -> list[int]:
        return list(found.seeds)

    def cells_of(self, found: StoredGrids, of: str, cells: Cells, metric: str, seed: int) -> Grid | None:
        """Returns the cells that ``value`` is the mean of; None where it is something else."""
        return None

    def value(self, found: StoredGrids, of: str, cells: Cells, metric: str, seed: int) -> float:
        """The mean of the cells of ``cells_of``, or their mean logarithm."""
        if (chosen := self.cells_of(found, of, cells, metric, seed)) is None:
            return super().value(found, of, cells, metric, seed)
        values = [float(value) for value in chosen.frame["value"]]
        return fmean(map(math.log, values) if self._as_ratio(chosen, metric) else values)

    def on_resamples(self, found: StoredGrids, of: str, cells: Cells, metric: str, seed: int) -> Array | None:
        """The same mean on resamples of the prompts, where the grid ``prompts`` is kept."""
        chosen = self.cells_of(found, of, cells, metric, seed)
        if chosen is None or "prompts" not in found.grids:
            return None
        return per_prompt.on_resamples(found["prompts"], chosen, logarithm=self._as_ratio(chosen, metric))

    def prompts_error(self, found: StoredGrids, of: str, cells: Cells, metric: str, seed: int) -> float:
        """The mean standard error of the cells, or that of their logarithms."""
        chosen = self.cells_of(found, of, cells, metric, seed)
        return math.nan if chosen is None else chosen.mean_error(logarithm=self._as_ratio(chosen, metric))

    def _as_ratio(self, chosen: Grid, metric: str) -> bool:
        return self.scale_of(tasks.build(chosen.values("task")[0]), metric) == "log-ratio"


class Analysis(GridAnalysis[Findings]):
    """An analysis whose findings are its grids, as those of nearly all are."""

    def completed(self, found: Findings, specs: Mapping[str, RunSpec]) -> Findings:
        return found


def build(name: str, options: Mapping[str, object]) -> AnyAnalysis:
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
    made: AnyAnalysis = part(**values)
    return made
