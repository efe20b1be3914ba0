"""One axis of a study's grid, with everything else held at the conditions of training."""

import math
from dataclasses import dataclass
from functools import cached_property

from icl_lab import published
from icl_lab.grid import Grid
from icl_lab.prompted.study import PromptedStudy

FAR = 0.1  # of a value of an axis: a printed column farther off is of another cell


@dataclass(frozen=True)
class Slice:
    """One axis of a study's grid, the others at the conditions of training, facets averaged."""

    study: PromptedStudy
    grid: Grid

    @cached_property
    def axis(self) -> str:
        """The axis of the task's lines, or another one that has more than one value."""
        task = self.study.task
        order = [task.line_axis, *task.heat_map, *task.axes["full"]]
        return next((axis for axis in order if len(self.grid.values(axis)) > 1), order[0])

    @cached_property
    def places(self) -> list[float]:
        """The values of the axis."""
        return self.grid.values(self.axis)

    @cached_property
    def training(self) -> dict[str, float]:
        """The cell of training, the nearest one where it was not asked about."""
        nearest = {axis: self.grid.values(axis) for axis in self.study.training}
        return {n: min(nearest[n], key=lambda there: abs(there - value)) for n, value in self.study.training.items()}

    @cached_property
    def fixed(self) -> dict[str, float]:
        """The values of all other axes."""
        return {n: v for n, v in self.training.items() if n not in (self.axis, *self.study.task.facets)}

    def names(self) -> list[str]:
        """The names that have the headline: the model, then the references."""
        return [str(name) for name in self.grid.where(metric=self.study.task.headline).values("attn")]

    def along(self, name: str, metric: str, digits: int) -> list[tuple[float, float]]:
        """Returns the value and its standard error at each place; NaN where there is none."""
        labels = {"attn": name, "metric": metric, **self.fixed, **self.of(digits)}
        found = []
        for place in self.places:
            try:
                frame = self.grid.where(**labels, **{self.axis: place}).frame
            except KeyError:
                found.append((math.nan, math.nan))
                continue
            error = float((frame["stderr"] ** 2).sum(skipna=False)) ** 0.5 / len(frame)
            found.append((float(frame["value"].mean(skipna=False)), error))
        return found

    def of(self, digits: int) -> dict[str, float]:
        """The label of so many decimals, where they are an axis."""
        return {"digits": float(digits)} if len(self.study.digits) > 1 else {}

    def tag(self, digits: int) -> str:
        """So many decimals in words, where they are an axis."""
        return f", {digits} decimal{'s' * (digits != 1)}" if self.of(digits) else ""

    @property
    def words(self) -> str:
        """The conditions that are fixed."""
        averaged = [f"mean over {facet}" for facet in self.study.task.facets if facet != self.axis]
        said = [*(f"{name}={value:g}" for name, value in self.fixed.items()), *averaged]
        return f", {', '.join(said)}" if said else ""

    def printed(self) -> list[float]:
        """The published numbers at each place, NaN where nothing was printed; empty for another axis."""
        printed = self.study.speech.printed
        if printed is None or printed.axis != self.axis:
            return []
        rows = published.load(printed.table).where(**printed.where)
        numbers = {row[printed.column].number: row[printed.value].number for row in rows}
        near = ([n for at, n in numbers.items() if abs(at - place) < FAR] for place in self.places)
        return [found[0] if found else math.nan for found in near]
