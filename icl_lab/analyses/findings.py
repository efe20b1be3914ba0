"""One trained model, and the labelled grids of numbers of all models that an analysis asks."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import fmean, median

import numpy as np
from torch import Tensor

from icl_lab import tasks
from icl_lab.base.grid import Grid
from icl_lab.base.option_values import GREATEST
from icl_lab.base.registry import require
from icl_lab.comparison.given import Array
from icl_lab.comparison.statistics import resampled
from icl_lab.model.gpt2 import GPT2
from icl_lab.pipeline import subject
from icl_lab.runs.measure import Subject, TestSpec, draw, influences, summary
from icl_lab.runs.run import Run
from icl_lab.runs.session import Lab
from icl_lab.runs.spec import RunSpec, change, check
from icl_lab.runs.summary import training_cell
from icl_lab.tasks.base import Prompt, Task

Row = Mapping[str, object]  # a column of a grid -> its value
Rows = Mapping[str, Sequence[Row]]  # a grid's name -> its rows
Curves = list[list[tuple[float, float]]]  # of one normalizer, each a list of points
FACTORS = (1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0)  # of a number that grows
SEEDS = 5  # the prompts of the first training seeds are kept and represent those of all: tables stay small
DIGITS = 5  # of a kept contribution of a prompt


def cell(metric: str, value: float | None, count: int = 1, **where: object) -> Row:
    """Return a row of a grid whose value has no standard error."""
    return {**where, "metric": metric, "value": value, "stderr": None, "count": count}


def mean_rows(metrics: Mapping[str, Tensor], **where: object) -> list[Row]:
    """Metrics (b) of prompts -> a row of a grid for each: the mean, its standard error, and the number of prompts."""
    return [{**where, "metric": metric} | summary(values) for metric, values in metrics.items()]


@dataclass(frozen=True)
class TrainedModel:
    """One trained model, its run, and the label of its rows."""

    label: str  # what its rows are called in the column attn: the normalizer, or the variant of an experiment
    run: Run
    load: Callable[[], GPT2]  # called once, and only by an analysis that reads the model
    task: Task
    lab: Lab
    first: bool  # of all models that are asked: references are measured with this one
    tick: Callable[[int, int], object]  # done, total: progress within this model

    @cached_property
    def model(self) -> GPT2:
        """The model as it is tested, trained where it is missing."""
        return self.load()

    @property
    def spec(self) -> RunSpec:
        """The specification of the run."""
        return self.run.spec

    @property
    def cell(self) -> dict[str, float]:
        """The cell of training conditions: each axis of the test grid, length included."""
        return training_cell(self.task, self.spec)

    def prompts(self, count: int, cell: Mapping[str, float] | None = None) -> Prompt:
        """Draw test prompts of a cell (of training conditions unless named), the same for every model of the task.

        They come from the test set with balanced classes, where there is one.
        """
        here = dict(self.cell if cell is None else cell)
        return drawn(self.spec, count, int(here.pop("length")), here)

    def subjects(self) -> dict[str, Subject]:
        """Return the model and, with the first model only, the task's reference predictors."""
        subjects = {self.label: subject(self.model, self.task, self.lab.device)}
        if self.first:
            subjects |= {f"reference:{name}": Subject(predict) for name, predict in self.task.references().items()}
        return subjects

    def of_prompts(self, where: Row, metrics: Mapping[str, Tensor]) -> list[Row]:
        """Return metrics, (b) or (b g), NaN where a prompt does not count, as rows of the grid ``prompts``.

        A row is the contribution of one prompt: the mean over the rows of a metric is the value of its cell. No rows
        from the sixth training seed on.
        """
        if self.run.seed >= SEEDS:
            return []
        contributions = {metric: influences(values).tolist() for metric, values in metrics.items()}
        return [
            {**where, **cell(metric, float(f"{value:.{DIGITS}g}"), prompt=prompt)}
            for metric, values in contributions.items()
            for prompt, value in enumerate(values)
        ]

    def labelled(self, rows: Iterable[Row]) -> list[Row]:
        """Return rows with the labels of the run; a row that names its own label, such as ``attn``, keep it."""
        return [{**self.run.labels, "attn": self.label, **row} for row in rows]


def drawn(spec: RunSpec, count: int, length: int, shift: Mapping[str, float]) -> Prompt:
    """Draw test prompts of a run's task, balanced where they can be."""
    test = TestSpec(prompts=count, axes={"length": [float(length)]}, draws=spec.test.draws)
    return draw(tasks.build(spec.task).balanced, length, test, shift)


def check_lengths(spec: RunSpec, lengths: Iterable[int]) -> None:
    """Raise ``BadValue`` where the task, or the position code, has no prompts of one of these lengths."""
    check(change(spec, {"test.axes.length": [float(length) for length in lengths]}), tasks.build(spec.task))


def check_drawn(spec: RunSpec, length: int) -> None:
    """Raise ``BadValue`` where a prompt of this length cannot be drawn, or the position code has none so long."""
    check_lengths(spec, [length])
    drawn(spec, 1, length, {})


def check_factors(factors: Iterable[float]) -> None:
    """Raise ``BadValue`` on a factor that is not finite and above 0: a negative one would change a sign."""
    for factor in factors:
        require(0 < factor < math.inf, "a factor must be finite and > 0", f"{factor:g}")
        require(factor <= GREATEST, f"a factor must be at most {GREATEST:g}", f"{factor:g}")


def check_growth(factors: Iterable[float]) -> None:
    """Raise ``BadValue`` as ``check_factors``, and where no factor but 1 is named."""
    named = set(factors)
    check_factors(named)
    require(bool(named - {1.0}), "a number grows by factors other than 1", "none")


def with_undisturbed(factors: Iterable[float]) -> tuple[float, ...]:
    """Return the factors in ascending order, each once, and 1 among them: the undisturbed prompt.

    >>> with_undisturbed((100, 10, 100))
    (1.0, 10.0, 100.0)
    """
    return tuple(sorted({1.0, *map(float, factors)}))


def known(values: Iterable[float]) -> list[float]:
    """Return the values that are not NaN."""
    return [value for value in values if not math.isnan(value)]


def known_median(values: Iterable[float]) -> float:
    """Return the median of the values that are not NaN; NaN where there is none."""
    return median(known(values) or [math.nan])


@dataclass(frozen=True)
class StoredGrids:
    """Labelled grids by name, over all models that were asked, as the folder of an analysis keeps them."""

    grids: Mapping[str, Grid]

    def __getitem__(self, name: str) -> Grid:
        return self.grids[name]

    @property
    def first(self) -> Grid:
        """The grid that the analysis names first."""
        return next(iter(self.grids.values()))

    @property
    def rules(self) -> list[str]:
        """The labels of the models, in the order that they were asked for."""
        return [name for name in self.first.values("attn") if not name.startswith("reference:")]

    @property
    def references(self) -> list[str]:
        """The reference predictors."""
        return [name for name in self.first.values("attn") if name.startswith("reference:")]

    @property
    def seeds(self) -> list[int]:
        """The training seeds of the first label."""
        return self.seeds_of(self.rules[0])

    def seeds_of(self, rule: str) -> list[int]:
        """Return the training seeds of a label."""
        return [int(seed) for seed in self.first.where(attn=rule).values("seed")]

    def curves_by_rule(self, name: str, along: str, *by: str, **where: object) -> dict[str, Curves]:
        """Return curves of each normalizer in some cells of a grid: (along, value), one for each value of ``by``."""
        return {rule: self[name].where(attn=rule, **where).lines(along, *by) for rule in self.rules}

    def mean(self, name: str, **where: object) -> float:
        """Return the mean of cells of a grid, over seeds and whatever else is left."""
        return fmean(float(value) for value in self[name].where(**where).frame["value"])

    def rows(
        self,
        name: str,
        along: str,
        write: Callable[[list[float]], str],
        labels: Sequence[str] | None = None,
        **where: object,
    ) -> list[list[str]]:
        """Return a row of a table for each normalizer (or of ``labels``): its values at each value of an axis."""
        values, places = self[name].where(**where).by("attn", along), self[name].values(along)
        chosen = self.rules if labels is None else labels
        return [[f"`{label}`", *(write(values.get((label, at), [])) for at in places)] for label in chosen]

    def on_resamples(self, cells: Grid, *, logarithm: bool = False) -> Array | None:
        """Return the mean of some cells, or of their logarithms, on the prompts asked and on resamples of them.

        (1 + resamples); None where the prompts of one cell are not kept, or cells have several counts of them.
        """
        if "prompts" not in self.grids:
            return None
        columns = ["attn", "seed", "metric", *(axis for axis in self["prompts"].axes if axis != "prompt")]
        kept = self["prompts"].by(*columns)
        chosen = list(dict.fromkeys(cells.frame[columns].itertuples(index=False, name=None)))
        if any(labels not in kept for labels in chosen) or len({len(kept[labels]) for labels in chosen}) > 1:
            return None
        means = resampled([kept[labels] for labels in chosen], seed=0)
        return np.asarray((np.log(means) if logarithm else means).mean(axis=1))

    def own(self, name: str, of: str, seed: int) -> Grid:
        """Return the rows of a label and seed in a grid; a reference was asked once, with the first model."""
        rows = self[name].where(attn=of)
        return rows if of.startswith("reference:") else rows.where(seed=seed)


@dataclass(frozen=True)
class Findings(StoredGrids):
    """The same with the specification of each label."""

    specs: Mapping[str, RunSpec]

    @property
    def spec(self) -> RunSpec:
        """The specification of the first label."""
        return next(iter(self.specs.values()))
