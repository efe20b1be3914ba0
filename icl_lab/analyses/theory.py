"""Bounds and theorems of the papers on rows of random scores: no model, and nothing is trained.

After Appendix J of Naim, Bhar, Bolte, Asher 2025, arXiv 2508.14685, and Eqs. 5 to 9 and Figures 1
and 3 of Nakanishi 2025, arXiv 2501.19399. A seed is an independent draw of the rows, which all normalizers share.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import ClassVar

import numpy as np
import torch
from matplotlib.figure import Figure
from torch import Tensor

from icl_lab.analyses import registry
from icl_lab.analyses.findings import cell
from icl_lab.analyses.frame import ANY, Analysis, Cells, Findings, Metric, Row, Rows, StoredGrids, TrainedModel, option
from icl_lab.analyses.profiles import bounds
from icl_lab.analyses.profiles.functions import REACH
from icl_lab.base import markdown as md
from icl_lab.base.errors import BadValue
from icl_lab.base.grid import Grid
from icl_lab.base.registry import require
from icl_lab.base.rng import stream
from icl_lab.figures import heads
from icl_lab.figures.base import short
from icl_lab.runs.spec import RunSpec

NOBODY = {"task": "rules", "preset": "-", "spec": "-"}  # a row belongs to no run
GAPS = (1.0, 3.0, 4.0)
LENGTHS = (2, 8, 64, 256, 1024, 4096)
GAP_ROWS = 16
SCORES = 10_000_000  # at once, in double precision
SQUARE = 16  # the most keys whose Jacobian is taken
ROUNDING = 1e-12
HALF = {"float16-error": torch.float16, "bfloat16-error": torch.bfloat16}
GREATEST = ("jacobian-entry", "jacobian-norm", *HALF)
LEAST = ("entropy-margin", "ceiling-margin", "upper-margin", "lower-margin")
MEANS = ("entropy", "below-bound", "largest", "distance")
SLOPE = "slope"


@registry.add("theory")
@dataclass(frozen=True, kw_only=True)
class Theory(Analysis):
    """Hold bounds of the papers against weights of random scores: entropy, slopes, largest weight; trains nothing.

    ``rows``: scores of every spread up to ``reach``, and the errors of weights in half precision. ``fading``: the
    largest weight where one score stands a gap above all others, by the number of keys.
    """

    grids: ClassVar[Mapping[str, Sequence[str]]] = {"rows": ("keys",), "fading": ("keys", "gap")}
    title: ClassVar[str] = "bounds on weights of random scores"
    usual_rules: ClassVar[Sequence[str]] = ("softmax", "ssa", "ssmax:s=0.43,learn=no", "lssa")
    reads_models: ClassVar[bool] = False
    trains: ClassVar[bool] = False
    metrics: ClassVar[Mapping[str, Metric]] = {ANY: Metric("rows", mean=False, constants=True)}

    rows: int = option(1000, "Rows of scores for each number of keys.", least=2, most=1_000_000)
    reach: float = option(4.0, "The largest size of a score, at most 8.", least=0.01)
    keys: tuple[int, ...] = option((2, 8, 64), "Keys of a row.", least=2, most=100_000)

    def check(self, spec: RunSpec) -> None:
        if self.reach > REACH:
            raise BadValue(f"reach must be at most {REACH:g}, got {self.reach:g}.")
        if not self.keys:
            raise BadValue("name at least one number of keys, such as 8,64.")
        scores = self.rows * max(self.keys)
        require(scores <= SCORES, f"rows times keys must be at most {SCORES:,}", f"{scores:,}")
        bounds.weigher(spec.attn)

    def measure(self, trained: TrainedModel) -> Rows:
        """Draw the rows of a seed and ask the normalizer of the run for their weights."""
        weigh, seed = bounds.weigher(trained.spec.attn), trained.run.seed
        softmax = bounds.weigher("softmax")
        halves = {metric: bounds.weigher(trained.spec.attn, dtype) for metric, dtype in HALF.items()}
        rows, fading = list[Row](), list[Row]()
        for keys in self.keys:
            z = bounds.spread_rows(stream(seed, "theory", keys), self.rows, keys, self.reach)
            rows += [{**NOBODY, "keys": keys, **row} for row in self._cells(weigh, softmax, halves, z)]
            trained.tick(len(rows), len(rows) + 1)
        with torch.no_grad():
            for keys in LENGTHS:
                for gap in GAPS:
                    z = bounds.gap_rows(stream(seed, "theory", "gap", keys), GAP_ROWS, keys, gap)
                    fading.append({**NOBODY, "keys": keys, "gap": gap, **_cell("largest", weigh(z).amax(-1))})
        return {"rows": rows, "fading": fading}

    def table(self, found: Findings) -> list[str]:
        """Entropies, slopes and bounds of each normalizer, and the largest weight by the number of keys."""
        rows, fading = found["rows"], found["fading"]
        text = [
            "Rows of scores of every spread; margins: bound and weight apart, the least over rows and draws (below 0 "
            "the bound does not hold). The entropy bound is h(p) + (1 - p) log(n - 1), p the largest weight; the "
            "ceiling is the largest weight that scores of this reach allow.",
        ]
        for keys in rows.values("keys"):
            own = [metric for metric in (*MEANS, *LEAST, *GREATEST) if (metric, keys) in rows.by("metric", "keys")]
            cells = [
                [f"`{rule}`", *(short(_summed(rows.where(attn=rule, metric=of, keys=keys), of)) for of in own)]
                for rule in found.rules
            ]
            text += ["", *md.table([f"{keys:g} keys", *own], cells)]
        for gap in fading.values("gap"):
            lengths = fading.values("keys")
            text += ["", *md.head([f"largest weight, gap {gap:g}", *(f"n {n:g}" for n in lengths), "slope"])]
            weights = found.rows("fading", "keys", lambda values: short(fmean(values)), gap=gap)
            for rule, row in zip(found.rules, weights, strict=True):
                text.append(md.row([*row, f"{_slope(fading.where(attn=rule, gap=gap)):.2f}"]))
        return text

    def figures(self, found: Findings, title: str) -> Mapping[str, Figure]:
        """The largest weight of each normalizer by the number of keys, a panel a gap."""
        panels = {
            f"largest weight, gap {gap:g}": found.curves_by_rule("fading", "keys", "seed", gap=gap)
            for gap in found["fading"].values("gap")
        }
        scales = dict.fromkeys(panels, "xy")
        return {"theory": heads.curves(panels, title=title, across="keys of a row, n", scales=scales, base=2)}

    def finding(self, found: Findings) -> str:
        """Change of the largest weight with n, and share of rows whose entropy lies below the bound of J.3."""
        gap = max(found["fading"].values("gap"))
        falls = [f"n^{_slope(found['fading'].where(attn=rule, gap=gap)):.2f} with {rule}" for rule in found.rules]
        if "below-bound" not in found["rows"].values("metric"):
            return f"At a gap of {gap:g} the largest weight goes as {md.listed(falls)}."
        below = fmean(found["rows"].where(metric="below-bound").frame["value"])
        return (
            f"At a gap of {gap:g} the largest weight goes as {md.listed(falls)}; the entropy lies below "
            f"h(p) + (1 - p) log(n - 1) in {100 * below:.3g} % of the rows."
        )

    def value(self, found: StoredGrids, of: str, cells: Cells, metric: str, seed: int) -> float:
        """A metric of a normalizer (``largest`` unless named).

        Cells name ``keys``, and ``gap`` where the largest weight is that of one score above all others: then ``slope``
        is that of its logarithm on log n. Of ``jacobian-...`` the greatest over the cells counts, of ``...-margin`` the
        least, else the mean. Raises ``KeyError`` where that number does not exist.
        """
        if (number := self._constant(of, metric)) is not None:
            return number
        metric = metric or "largest"
        where = {**cells, "attn": of, "seed": seed}
        if metric == SLOPE:
            if len(cells.get("gap", ())) != 1:
                raise KeyError("a slope needs cells that name one gap, such as cells = { gap = [3] }")
            return _slope(found["fading"].where(**where))
        grid = found["fading" if "gap" in cells else "rows"]
        return _summed(grid.where(metric=metric, **where), metric)

    def _cells(
        self, weigh: bounds.Weigh, softmax: bounds.Weigh, halves: Mapping[str, bounds.Weigh], z: Tensor
    ) -> list[Row]:
        """Measurements on the rows of one number of keys; ``halves`` weigh in half precision."""
        with torch.no_grad():
            w, theirs = weigh(z), softmax(z)
            errors = {metric: bounds.distance(half(z).double(), w) for metric, half in halves.items()}
        entropy, bound = bounds.entropy_and_bound(w)
        low, high = bounds.bracket(weigh, z)
        largest = w.amax(-1)
        found = [
            _cell("entropy", entropy),
            _cell("largest", largest),
            _cell("distance", bounds.distance(w, theirs)),
            _cell("ceiling-margin", bounds.ceiling(weigh, z.shape[1], self.reach) - largest, Tensor.amin),
            _cell("upper-margin", high - largest, Tensor.amin),
            _cell("lower-margin", largest - low, Tensor.amin),
        ]
        if z.shape[1] > 2:  # of two keys the largest weight says all
            found.append(_cell("entropy-margin", entropy - bound, Tensor.amin))
            found.append(_cell("below-bound", (entropy < bound - ROUNDING).double()))
        if z.shape[1] <= SQUARE:
            slopes = bounds.jacobian(weigh, z)
            found.append(_cell("jacobian-entry", slopes.abs().amax((1, 2)), Tensor.amax))
            found.append(_cell("jacobian-norm", torch.linalg.matrix_norm(slopes, 2), Tensor.amax))
        return found + [_cell(metric, error, Tensor.amax) for metric, error in errors.items()]


def _cell(metric: str, values: Tensor, how: Callable[[Tensor], Tensor] | None = None) -> Row:
    """A row of a grid: the mean over rows with its standard error, or an extreme (``how``) without one."""
    if how is None:
        error = float(values.std() / len(values) ** 0.5)
        return {"metric": metric, "value": float(values.mean()), "stderr": error, "count": len(values)}
    return cell(metric, float(how(values)), len(values))


def _summed(grid: Grid, metric: str) -> float:
    values = [float(value) for value in grid.frame["value"]]
    return max(values) if metric in GREATEST else min(values) if metric in LEAST else fmean(values)


def _slope(grid: Grid) -> float:
    """The slope of log(largest weight) on log n over the three greatest n; the mean over draws."""
    means = grid.frame.groupby("keys")["value"].mean().sort_index().iloc[-3:]
    if len(means) < 2:
        raise KeyError("a slope needs at least two numbers of keys")
    return float(np.polyfit(np.log(means.index), np.log(means), 1)[0])
