"""Boundary values: the numbers that answers do not exceed where the true value is far from every example.

After Figures 1 and 9 of Naim et al. 2025, arXiv 2508.14685.
"""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, cast

from matplotlib.figure import Figure

from icl_lab import tasks
from icl_lab.analyses import registry
from icl_lab.analyses.boundary import bounds, curves, report
from icl_lab.analyses.boundary.bounds import Bounds
from icl_lab.analyses.boundary.curves import Line
from icl_lab.analyses.findings import Findings, Row, Rows, StoredGrids, TrainedModel
from icl_lab.analyses.frame import ANY, SHIFTS, Analysis, Cells, Metric, option
from icl_lab.base.grid import Grid
from icl_lab.base.option_values import GREATEST
from icl_lab.base.registry import require
from icl_lab.runs.run import Run
from icl_lab.runs.spec import RunSpec
from icl_lab.tasks.capabilities import HasLines

REACH = 40.0  # the usual range of true values, for training y of root mean square 1.41
LEAST = 6  # root mean squares of the labels that a range must have at least
MOST = 4096  # contexts: what memory holds


@registry.add("boundary")
@dataclass(frozen=True, kw_only=True)
class Boundary(Analysis):
    """Detect the largest values of answers, and their dependence on slope and context.

    A model reads examples of f(x) = a x + b and is asked at x = (t - b) / a, for true values t ever farther out. On
    the median answer over contexts of examples the onset (the last t that is answered rightly), the bound B (where
    answers stay, or their greatest) and the clip B (the bound for which cutting the truth is nearest to the answers)
    are detected, each with its interval over contexts. Slopes and the scale of the inputs tell whether the output is
    bounded or the input; the clip sweep sets the errors that B predicts beside those of the finished runs.
    """

    grids: ClassVar[Mapping[str, Sequence[str]]] = {
        "boundary": (*bounds.AXES, "side"),
        "curves": (*bounds.AXES, "target"),
        "measured": (SHIFTS, "length"),  # what the model's own test says, along the clip sweep
        bounds.GRID: ("spread",),  # the bound of the model's answers, the largest of them, and errors
    }
    needed: ClassVar[Sequence[str]] = ("curves", "measured")
    findings: ClassVar[type[Findings]] = Bounds
    metrics: ClassVar[Mapping[str, Metric]] = {
        **dict.fromkeys(("clip", ANY), Metric("boundary", ("slope",), usual={"scale": [1.0]})),
        **dict.fromkeys(bounds.CLAIMED, Metric(bounds.GRID, mean=False, kind="ratio", constants=True)),
        bounds.REACHED: Metric(bounds.GRID, mean=False, constants=True),
    }
    title: ClassVar[str] = "answers far from the examples"
    usual_task: ClassVar[str] = "linear"
    reads_grids: ClassVar[bool] = True

    slopes: tuple[float, ...] = option((1.0, 3.0, 9.0, 10.0), "Slopes a of f(x) = a x + b.")
    intercepts: tuple[float, ...] = option((0.0,), "Intercepts b.")
    scales: tuple[float, ...] = option((1.0, 0.3), "Standard deviations of the examples' inputs; 1 is training's.")
    contexts: int = option(32, "Contexts of examples, 16 or more.", least=1, most=MOST, names=("prompts",))
    reach: float | None = option(None, "True values go from -REACH to REACH.  [default: 40, more for wider training]")

    @property
    def lines(self) -> list[Line]:
        """The functions and the scales of their contexts."""
        return curves.lines(self.slopes, self.intercepts, self.scales)

    def check(self, spec: RunSpec) -> None:
        tasks.require(tasks.build(spec.task), HasLines)
        require(self.contexts >= curves.FEWEST, f"a curve needs at least {curves.FEWEST} contexts", self.contexts)
        least = LEAST * curves.spread(spec)
        if self.reach is not None:
            bound = f"the range must be finite and at least {LEAST} times the spread of training y, {least:.3g}"
            require(least <= self.reach < math.inf, bound, f"{self.reach:g}")
        for line in self.lines:
            size = curves.largest(line, self.reach or usual_reach(spec))
            require(
                size <= GREATEST, f"f(x) = {line}: the numbers of a prompt must be at most {GREATEST:g}", f"{size:.2g}"
            )

    def prepared(self, runs: Sequence[Run]) -> "Boundary":
        if self.reach is not None:
            return self
        return dataclasses.replace(self, reach=max(usual_reach(run.spec) for run in runs))

    def measure(self, trained: TrainedModel) -> Rows:
        """Ask the model and, once, the references along every line, in contexts that all share."""
        reach = self.reach or usual_reach(trained.spec)
        truth, examples = curves.truths(reach), min(curves.EXAMPLES, trained.spec.train.longest - 1)
        found: dict[str, list[Row]] = {name: [] for name in self.grids}
        subjects, task = trained.subjects(), tasks.require(trained.task, HasLines)
        for number, (name, subject) in enumerate(subjects.items()):
            for place, line in enumerate(self.lines):
                trained.tick(number * len(self.lines) + place, len(subjects) * len(self.lines))
                answered = curves.extrapolate(subject, task, line, truth, self.contexts, examples)
                where = {"attn": name, **{axis: getattr(line, axis) for axis in bounds.AXES}, "count": self.contexts}
                if name == trained.label:
                    found["curves"] += curves.curve(where, truth, answered)
                found["boundary"] += curves.detected(where, truth, answered, reach)
        tested = bounds.sweep_cells(trained.run) if trained.run.finished else []
        return {**found, "measured": tested, bounds.GRID: bounds.answer_bounds(trained)}

    def table(self, found: Findings) -> list[str]:
        return report.table(cast(Bounds, found))

    def figures(self, found: Findings, title: str) -> Mapping[str, Figure]:
        return report.figures(cast(Bounds, found), title)

    def finding(self, found: Findings) -> str:
        return report.finding(cast(Bounds, found))

    def value(self, found: StoredGrids, of: str, cells: Cells, metric: str, seed: int) -> float:
        """The mean over both sides and the slopes asked for, in contexts as in training; usually of ``clip``.

        That is the B for which min(t, B) is nearest to the curve: it exists for curves of every class.
        ``answer-bound`` is the logarithm of C, which the last norm and the read-out set, ``reached`` the share of C
        that answers reach; ``bound-over-rms``, ``bound-over-largest`` and ``bound-over-possible`` are log ratios of C
        to the labels of training, ``labels-beyond`` the logarithm of the labels expected beyond C.
        """
        if (number := self._constant(of, metric)) is not None:
            return number
        if metric in bounds.CLAIMED:
            return bounds.claimed(self.rows_of(found, of, metric, seed), metric)
        own = super().cells_of(found, of, cells, metric, seed)
        return float(cast(Grid, own).frame["value"].mean())

    def cells_of(self, found: StoredGrids, of: str, cells: Cells, metric: str, seed: int) -> None:
        """None: standard errors over contexts are kept of curves, not of bounds."""


def usual_reach(spec: RunSpec) -> float:
    """Return the end of the range of true values: 40, or as much more as training y are wider than usual."""
    return REACH * curves.spread(spec) / math.sqrt(2)
