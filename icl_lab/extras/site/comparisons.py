"""Tables of an experiment's variants against its baseline, cell by cell along one axis, with intervals over seeds."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any

from icl_lab.base import markdown as md
from icl_lab.base.errors import BadValue
from icl_lab.claims.ledger import LARGEST
from icl_lab.claims.sides import Sides
from icl_lab.comparison import rates
from icl_lab.comparison.page import Row, Section, Table
from icl_lab.comparison.statistics import Effect
from icl_lab.comparison.study import PairedGrids
from icl_lab.extras.site.names import address
from icl_lab.figures.base import short
from icl_lab.runs import summary

MOST_CURVES = 8  # beyond, curves with bands hide each other, and only the table is readable


@dataclass(frozen=True)
class Comparison:
    """Variants of an experiment at one scale and its baseline: one row per cell of ``axis``, one column each."""

    experiment: str
    preset: str
    baseline: str
    metric: str
    ratio: bool
    axis: str
    places: Sequence[float]
    errors: Sequence[float]  # of the baseline, mean over seeds
    seeds: int  # of the baseline
    columns: Sequence[tuple[str, int, Sequence[Effect]]]  # a variant, its seeds, an effect a cell
    curves: Mapping[str, rates.Curve] = field(default_factory=dict)  # of learning rates, where each variant has its own
    measure: str = ""  # their error

    @property
    def id(self) -> str:
        """The name of its data."""
        return address(f"comparison {self.experiment} {self.preset}")

    @property
    def rows(self) -> list[list[str]]:
        """The table in words."""
        return [
            [f"{place:g}", short(error), *(md.interval(*effects[row].shown) for _, _, effects in self.columns)]
            for row, (place, error) in enumerate(zip(self.places, self.errors, strict=True))
        ]

    @property
    def drawn(self) -> bool:
        """True where differences are drawn in addition to the table."""
        return len(self.places) > 1 and len(self.columns) <= MOST_CURVES

    @property
    def has_data(self) -> bool:
        """True where anything is drawn: differences, or curves over learning rates."""
        return self.drawn or bool(self.curves)

    @property
    def tuning(self) -> Section:
        """The curves over learning rates as a table, with a note of the bests that lie below a cliff."""
        made = Table(rates.head(self.curves), [Row(cells) for cells in rates.cells(self.curves)])
        return Section("Learning rates", made, rates.cliff_words(self.curves))

    @property
    def data(self) -> dict[str, Any]:
        """Curves with their intervals, as the page draws them."""
        lines = [
            {
                "label": name,
                "y": self._rounded([effect.effect for effect in effects]),
                "low": self._rounded([effect.low for effect in effects]),
                "high": self._rounded([effect.high for effect in effects]),
            }
            for name, _, effects in self.columns
        ]
        return {
            "x": list(self.places),
            "axis": self.axis,
            "ratio": self.ratio,
            "baseline": self.baseline,
            "lines": lines,
        } | ({"rates": self._rates} if self.curves else {})

    @property
    def _rates(self) -> dict[str, Any]:
        factors = rates.factors(self.curves)
        means = {name: [curve.means.get(factor, math.nan) for factor in factors] for name, curve in self.curves.items()}
        lines = [{"label": name, "y": [_shown(value) for value in values]} for name, values in means.items()]
        return {"x": factors, "measure": self.measure, "log": any(c.log for c in self.curves.values()), "lines": lines}

    def _rounded(self, values: Sequence[float]) -> list[float | None]:
        return [_shown(math.exp(min(value, LARGEST)) if self.ratio else value) for value in values]


def _shown(value: float) -> float | None:
    return float(f"{value:.4g}") if math.isfinite(value) else None


def against_baseline(name: str, sides: Sides, preset: str) -> Comparison | None:
    """Compare each variant with the baseline over the seeds that both have; None where the baseline is alone."""
    made, task = sides.experiment, sides.task
    own, axis = sides.seeds(made.baseline), sides.task.line_axis
    first, columns = list[PairedGrids](), []
    for variant in made.variants:
        seeds = sorted(own & sides.seeds(variant.name))
        if variant.name == made.baseline or not seeds:
            continue
        grids = {of: [sides.measured(of, seed)[0] for seed in seeds] for of in (made.baseline, variant.name)}
        try:
            study = PairedGrids(task, grids, made.baseline, summary.training_cell(task, sides.spec(made.baseline)))
            line = study.line(axis)
            if first and line != first[0].line(axis):
                continue  # it was tested in other cells than the variants before
            columns.append((variant.name, len(seeds), [study.versus(variant.name, made.baseline, at) for at in line]))
            first.append(study)
        except (BadValue, KeyError):  # tested in other cells than the baseline, or with a gap: there is no pair
            continue
    if not columns or not first[0].line(axis):
        return None
    whole = max(first, key=lambda study: study.seeds)
    line = whole.line(axis)
    return Comparison(
        experiment=name,
        preset=preset,
        baseline=made.baseline,
        metric=task.metric_label(task.headline),
        ratio=whole.scale == "log-ratio",
        axis=task.axis_label(axis).words,
        places=[cell[axis] for cell in line],
        errors=[fmean(whole.values(made.baseline, cell)) for cell in line],
        seeds=whole.seeds,
        columns=columns,
        curves=_curves(sides, preset),
        measure=rates.measure(task),
    )


def _curves(sides: Sides, preset: str) -> dict[str, rates.Curve]:
    made = sides.experiment
    if made.rates == "shared":
        return {}
    found = {each.name: rates.stored(made.spec(each, preset), sides.store) for each in made.variants}
    return {name: curve for name, curve in found.items() if curve is not None}
