"""The cells that claims name: axes that there are, finite values, and no more than can be read."""

import math
from collections.abc import Mapping, Sequence

from icl_lab import tasks
from icl_lab.analyses.frame import SHIFTS, Analysis
from icl_lab.errors import BadValue, UnknownName

MOST = 10_000  # cells of one quantity: whole test grids have some hundreds


def axes(task: str, analysis: Analysis | None) -> set[str]:
    """Returns the axes of the numbers that claims are about: of the test grid, or of what an analysis measures."""
    shifts = set(tasks.build(task).axes["full"])
    if analysis is None:
        return shifts
    named = {axis for grid in analysis.grids.values() for axis in grid}
    return named - {SHIFTS} | (shifts if SHIFTS in named else set())


def check(cells: Mapping[str, Sequence[float]], known: set[str], where: str) -> None:
    """Raises ``UnknownName`` on an axis that is none of ``known``, ``BadValue`` unless values are finite, each once."""
    for axis, values in cells.items():
        if axis not in known:
            raise UnknownName("axis", axis, known, f"({where})")
        if not values or not all(map(math.isfinite, values)):
            raise BadValue(f"{where}: the values of {axis} are one or more finite numbers, got {values}.")
        if len(set(values)) < len(values):
            raise BadValue(f"{where}: each value of {axis} is named once, got {values}.")
    if (count := math.prod(map(len, cells.values()))) > MOST:
        raise BadValue(f"{where}: {count:,} cells are more than the {MOST:,} that a claim may be about.")


def combinations(cells: Mapping[str, Sequence[float]], training: Mapping[str, float]) -> list[dict[str, float]]:
    """Returns every combination of the named values, all other axes as in training."""
    found = [dict(training)]
    for axis, values in cells.items():
        found = [{**cell, axis: value} for cell in found for value in values]
    return found
