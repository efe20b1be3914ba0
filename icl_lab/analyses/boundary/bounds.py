"""Boundary values of all curves: by normalizer, line and side, over training seeds, and how they grow."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import fmean

import numpy as np

from icl_lab.analyses.boundary import detector
from icl_lab.analyses.boundary.clip_sweep import Sweep
from icl_lab.analyses.boundary.curves import Line
from icl_lab.analyses.findings import Findings, known, known_median
from icl_lab.comparison.statistics import Effect, paired

SIDES = (-1, 1)
AXES = ("slope", "intercept", "scale")


@dataclass(frozen=True)
class Bounds(Findings):
    """The grids ``boundary`` (axes: slope, intercept, scale, side) and ``curves`` (target in the place of the side).

    ``measured`` holds cells of the runs' own tests, ``sweeps`` the clip sweep through them of each run, with the B and
    the clip B of its curves.
    """

    sweeps: Sequence[tuple[Sweep, float, float]] = ()

    @property
    def lines(self) -> list[Line]:
        """The functions and contexts, in the order that they were asked for."""
        rows = self.first.frame[list(AXES)].drop_duplicates().itertuples(index=False)
        return [Line(*map(float, row)) for row in rows]

    @property
    def plain(self) -> list[Line]:
        """Rows with contexts nearest to training."""
        nearest = min((line.scale for line in self.lines), key=lambda scale: abs(math.log(scale)))
        return [line for line in self.lines if line.scale == nearest]

    @property
    def reach(self) -> float:
        """The end of the range of true values."""
        return float(self.first.where(metric="reach").frame["value"].iloc[0])

    @property
    def contexts(self) -> int:
        """The contexts behind each curve."""
        return int(self.first.frame["count"].iloc[0])

    def values(self, rule: str, line: Line, side: int, metric: str) -> list[float]:
        """Returns a metric of one side of a curve, one number a seed."""
        return self._table.get((rule, line.slope, line.intercept, line.scale, float(side), metric), [])

    @cached_property
    def _table(self) -> dict[tuple[object, ...], list[float]]:
        parts = self.first.frame.groupby(["attn", *AXES, "side", "metric"], sort=False)["value"]
        return {tuple(where): [float(value) for value in part] for where, part in parts}

    def kinds(self, rule: str, line: Line, side: int) -> list[str]:
        """Returns the class of one side of a curve, one a seed."""
        return [detector.CLASSES[int(code)] for code in self.values(rule, line, side, "class")]

    def typical(self, rule: str, place: int, metric: str = "bound") -> float:
        """Returns the median of a bound over slopes and both sides, in plain contexts, of the seed at a place.

        NaN where no curve of that seed has one.
        """
        return known_median(self.values(rule, line, side, metric)[place] for line in self.plain for side in SIDES)

    def both(self, rule: str, slope: float, scale: float) -> list[float]:
        """Returns the bound of each seed, the mean of both sides; of the one that has a bound, where one has none."""
        line = Line(slope, self.lines[0].intercept, scale)
        pairs = zip(*(self.values(rule, line, side, "bound") for side in SIDES), strict=True)
        return [fmean(known(pair) or [math.nan]) for pair in pairs]

    def growth(self, rule: str) -> list[tuple[float, float, int]]:
        """Returns, for each seed, the exponents of B in the slope and in the scale of the context, and how many B.

        Formula: log B = alpha log |a| + gamma log scale + a constant for each side, by least squares, over the curves
        that have a B. Alpha is 0 where the output is bounded, 1 where the input or the slope is; gamma is 1 where the
        bound follows the examples (as the nearest neighbour's does).
        NaN where fewer than two slopes, or scales, have a B.
        """
        frame = self.first.where(attn=rule, metric="bound", intercept=self.lines[0].intercept).frame
        made = []
        for seed in self.seeds_of(rule):
            own = frame[(frame["seed"] == seed) & (frame["value"] > 0)]
            x, c = np.log(own["slope"].abs().to_numpy(float)), np.log(own["scale"].to_numpy(float))
            side = own["side"].to_numpy(float)
            columns = [column for column in (x, c) if len(column) and np.ptp(column) > 0]
            inputs = np.stack([*columns, side == 1, side == -1], axis=1).astype(float) if len(own) else np.empty((0, 2))
            fitted = iter(np.linalg.lstsq(inputs, np.log(own["value"].to_numpy(float)), rcond=None)[0])
            alpha, gamma = (float(next(fitted)) if len(v) and np.ptp(v) > 0 else math.nan for v in (x, c))
            made.append((alpha, gamma, len(own)))
        return made


def mean(values: Sequence[float]) -> Effect | None:
    """Returns the mean over training seeds with Student's interval; None unless every seed has a number."""
    there = values and not any(map(math.isnan, values))
    return paired([0.0] * len(values), values, "difference") if there else None
