"""One number far from the others (an outlier): its effect on the answers after it, and how long it lasts.

After Table 5 of arXiv 2508.14685, where the first input is drawn with a larger standard deviation.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import ClassVar, Self

from matplotlib.figure import Figure
from torch import Tensor

from icl_lab import tasks
from icl_lab.analyses import registry
from icl_lab.analyses.findings import cell, check_factors, mean_rows
from icl_lab.analyses.frame import ANY, Analysis, Cells, Findings, Metric, Row, Rows, StoredGrids, TrainedModel, option
from icl_lab.base import markdown as md
from icl_lab.base import published
from icl_lab.base.errors import BadValue
from icl_lab.base.grid import Grid
from icl_lab.base.registry import require
from icl_lab.comparison.statistics import paired
from icl_lab.figures import lines
from icl_lab.figures.base import short
from icl_lab.runs.measure import errors_of
from icl_lab.runs.run import Run
from icl_lab.runs.spec import RunSpec
from icl_lab.runs.summary import training_cell
from icl_lab.tasks.capabilities import Stretchable

ROUNDING = 1e-6  # what a prediction may differ by because a sum was rounded otherwise
WORDS = {
    "mse": "mean squared error after the deviant",
    "balanced-last": "balanced error rate, last answer",
    "flip-with": "answers flipped, deviant with the truth",
    "flip-against": "answers flipped, deviant against the truth",
    "recovery": "examples until the error is within twice the undisturbed",
}


@registry.add("deviant")
@dataclass(frozen=True, kw_only=True)
class Deviant(Analysis):
    """Multiply one number of the prompt and see how far the answers after it go wrong.

    Everything else is as in training. A standard normal number times the factor is one drawn with that standard
    deviation. All factors share their prompts, so that factor 1 is the undisturbed prompt. The metrics are those of
    ``Stretchable.disturbed``; ``recovery`` is the number of examples after the last deviant until the mean error is
    within twice the undisturbed one, and stays there (NaN: not within the prompt). ``prompts``: the metrics of each
    prompt.
    """

    grids: ClassVar[Mapping[str, Sequence[str]]] = {
        "deviant": ("position", "factor"),
        "positions": ("position", "factor", "index"),
        "prompts": ("position", "factor", "prompt"),
    }
    title: ClassVar[str] = "one number stretched"
    metrics: ClassVar[Mapping[str, Metric]] = {ANY: Metric("deviant", ("factor",), kind="error")}

    position: tuple[int, ...] = option((0,), "Index of the deviant example, or several: 0,5.", least=0)
    factors: tuple[float, ...] = option((), "What it is multiplied by, e.g. 1,10,100.  [default: the task's own]")
    prompts: int = option(1024, "Test prompts.", least=2, most=1_000_000)

    @property
    def tag(self) -> str:
        return "" if self.position == (0,) else f"at-{','.join(map(str, self.position))}"

    def check(self, spec: RunSpec) -> None:
        check_factors(self.factors)
        task = tasks.require(tasks.build(spec.task), Stretchable)
        length = int(training_cell(task, spec)["length"])
        require(len(self.position) > 0, "a deviant stands at one index or more", "none")
        for index in self.position:
            if not 0 <= index < length - 1:
                raise BadValue(
                    f"a deviant stands at an index from 0 to {length - 2}, so that answers follow; got {index}."
                )

    def prepared(self, runs: Sequence[Run]) -> Self:
        return replace(
            self, position=tuple(dict.fromkeys(self.position)), factors=tuple(dict.fromkeys(map(float, self.factors)))
        )

    def measure(self, trained: TrainedModel) -> Rows:
        """Put the deviant before the model and, once, before the references."""
        suite, at = tasks.require(trained.task.balanced, Stretchable), self.position
        undisturbed = trained.prompts(self.prompts, trained.task.training | {"length": trained.cell["length"]})
        cells, positions, single = list[Row](), list[Row](), list[Row]()
        for name, subject in trained.subjects().items():
            before = errors_of(suite, subject, undisturbed)
            for factor in self.factors or suite.deviants:
                disturbed = suite.deviate(undisturbed, at, factor)
                after = errors_of(suite, subject, disturbed)
                where = {"attn": name, "position": min(at), "factor": factor}
                metrics = suite.disturbed(before, after, disturbed, at)
                cells += mean_rows(metrics, **where)
                single += trained.of_prompts(where, metrics)
                felt = recovery(before.mean(0), after.mean(0), max(at))
                cells.append(cell("recovery", felt, len(after), **where))
                for index, values in enumerate(after.unbind(1)):
                    positions += mean_rows({"error": values}, **where, index=index)
        return {"deviant": cells, "positions": positions, "prompts": single}

    def table(self, found: Findings) -> list[str]:
        """A table for each metric: normalizers down, factors across, means over seeds; then all against the first."""
        grid, factors = found["deviant"], found["deviant"].values("factor")
        first = grid.values("position")[0]
        text = [f"The number at index {first:g} multiplied by a factor, means over seeds."]
        for metric in grid.values("metric"):
            text += ["", f"### {WORDS.get(metric, metric).capitalize()}", ""]
            text += ["— : not within the prompt.", ""] * (metric == "recovery")
            text += md.head(["normalizer", *(f"x{factor:g}" for factor in factors)])
            for name in [*found.rules, *found.references]:
                row = [_cell(mean(found, name, metric, factor)) for factor in factors]
                text.append(md.row([f"`{name}`" if name in found.rules else name, *row]))
            if metric == "mse" and first == 0:
                text.append(md.row(["printed (Table 5: 12L8AH, softmax)", *map(_printed, factors)]))
            if metric != "recovery" and len(found.seeds) > 1:
                text += [md.row(row) for row in _against(found, metric)]
        return text

    def figures(self, found: Findings, title: str) -> Mapping[str, Figure]:
        """Every metric but the recovery over the factor."""
        factors, panels, spans = found["deviant"].values("factor"), {}, {}

        def means(names: Sequence[str], metric: str) -> dict[str, list[float]]:
            return {name: [mean(found, name, metric, factor) for factor in factors] for name in names}

        for metric in found["deviant"].values("metric"):
            if metric == "recovery":
                continue
            words = WORDS.get(metric, metric)
            panels[words] = (means(found.rules, metric), means(found.references, metric), metric == "mse")
            if len(found.seeds) > 1:
                spans[words] = {
                    rule: [_interval(found, rule, metric, factor) for factor in factors] for rule in found.rules
                }
        return {"deviant": lines.disturbance(factors, panels, title=title, spans=spans)}

    def finding(self, found: Findings) -> str:
        """The errors at the greatest factor and of the undisturbed prompt, means over seeds."""
        factors = found["deviant"].values("factor")
        metric, most = usual_metric(found), max(factors)
        errors = []
        for rule in found.rules:
            before = f" (undisturbed {short(mean(found, rule, metric, 1.0))})" if 1.0 in factors and most != 1 else ""
            errors.append(f"{short(mean(found, rule, metric, most))} with {rule}{before}")
        where = f"{'index' if len(self.position) == 1 else 'indices'} {md.listed(map(str, self.position))}"
        return f"With the number at {where} multiplied by {most:g}: {WORDS[metric]} {md.listed(errors)}."

    def cells_of(self, found: StoredGrids, of: str, cells: Cells, metric: str, seed: int) -> Grid | None:
        """The factors that a claim names, of ``mse`` or ``balanced-last`` unless another metric is named."""
        return super().cells_of(found, of, cells, metric or usual_metric(found), seed)


def usual_metric(found: StoredGrids) -> str:
    """The error after the deviant: the mean squared one, or else the error rate of the last answer."""
    return "mse" if "mse" in found["deviant"].values("metric") else "balanced-last"


def mean(found: Findings, name: str, metric: str, factor: float) -> float:
    """The mean of a metric over seeds; NaN where a seed has none."""
    return fmean(_values(found, name, metric, factor))


def recovery(before: Tensor, after: Tensor, last: int) -> float:
    """Mean errors (L) without and with deviants, the last of them at index ``last`` -> examples until it is over.

    1 means that the very next answer is as good as it would have been; NaN that none to the end of the prompt is.
    """
    felt = (after[last + 1 :] > 2 * before[last + 1 :] + ROUNDING).nonzero()
    examples = 1 if len(felt) == 0 else int(felt[-1]) + 2
    return float(examples) if last + examples < len(after) else float("nan")


def _values(found: Findings, name: str, metric: str, factor: float) -> list[float]:
    return list(found["deviant"].where(attn=name, metric=metric, factor=factor).frame["value"])


def _against(found: Findings, metric: str) -> list[list[str]]:
    """Rows of each normalizer against the first one: a ratio or a difference, with its interval over seeds."""
    rows = []
    baseline, *others = found.rules
    for name in others:
        cells = []
        for factor in found["deviant"].values("factor"):
            a, b = _values(found, baseline, metric, factor), _values(found, name, metric, factor)
            effect = paired(a, b, "log-ratio" if metric == "mse" else "difference").clipped(_span(found, metric))
            middle, low, high = effect.ratio if metric == "mse" else (effect.effect, effect.low, effect.high)
            cells.append(f"{middle:.2g} [{low:.2g}, {high:.2g}]")
        rows.append([f"`{name}` {'/' if metric == 'mse' else '-'} `{baseline}`", *cells])
    return rows


def _interval(found: Findings, name: str, metric: str, factor: float) -> tuple[float, float]:
    """Student's 95 % interval of the mean over seeds, of a rate within 0 to 1; of the mean logarithm of squares."""
    values = _values(found, name, metric, factor)
    if metric == "mse":
        return paired([1.0] * len(values), values, "log-ratio").ratio[1:]
    effect = paired([0.0] * len(values), values, "difference")
    span = _span(found, metric)
    return max(effect.low, 0.0 if span == 1 else -span), min(effect.high, span)


def _span(found: Findings, metric: str) -> float:
    """The largest difference of two values: 1 of rates; a ``recovery`` counts examples."""
    return math.inf if metric == "recovery" else tasks.build(found.spec.task).worst


def _printed(factor: float) -> str:
    table = published.load("ssa_table5")
    return next((row["squared_error"].text for row in table.rows if row["sigma"].number == factor), "")


def _cell(value: float) -> str:
    return "—" if math.isnan(value) else short(value)
