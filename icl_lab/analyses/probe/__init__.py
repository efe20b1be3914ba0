"""True if a model still classifies the single numbers of a prompt in which one of them has grown.

After section 5.2 of arXiv 2508.14685: where each number is classified rightly alone and the prompt is not, what fails
is aggregation, not representation.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import ClassVar, Self

from matplotlib.figure import Figure

from icl_lab import markdown as md
from icl_lab import tasks
from icl_lab.analyses import registry
from icl_lab.analyses.frame import Analysis, Cells, Findings, Rows, StoredGrids, TrainedModel, constant, option
from icl_lab.analyses.probe.readings import OUTPUT, readings
from icl_lab.analyses.stretch import FACTORS, check_growth, factors_of, with_undisturbed
from icl_lab.errors import BadValue, Undefined
from icl_lab.figures import heads as pictures
from icl_lab.figures.base import short
from icl_lab.grid import Grid
from icl_lab.rng import stream
from icl_lab.runs.measure import TEST_SEED
from icl_lab.runs.run import Run
from icl_lab.runs.spec import RunSpec
from icl_lab.runs.summary import training_cell
from icl_lab.tasks.capabilities import SingleNumbers

LESSONS = 512  # prompts that a probe learns from
WORDS = {
    "together": "the whole prompt",
    "alone-deviant": "growing number, alone",
    "alone-others": "others, alone",
    "probe-deviant": "growing number, by probe",
    "probe-others": "others, by probe",
}


@registry.add("probe")
@dataclass(frozen=True, kw_only=True)
class Probe(Analysis):
    """Classify each number of a disturbed prompt by itself: does representation fail, or aggregation?

    One number is multiplied by each factor. Error rates are those of the whole prompt, of the model on prompts that
    hold one of its numbers, and of a linear probe that reads the residual stream where each number stands.
    """

    grids: ClassVar[Mapping[str, Sequence[str]]] = {"probe": ("layer", "factor")}
    title: ClassVar[str] = "one number growing"

    position: int = option(0, "Index of the number.", least=0)
    factors: tuple[float, ...] = option(FACTORS, "What it is multiplied by; 1 is always among them.")
    prompts: int = option(1024, "Test prompts.", least=2, most=1_000_000)

    @property
    def tag(self) -> str:
        """The place of the number, where it is not the first."""
        return f"at-{self.position}" if self.position else ""

    def check(self, spec: RunSpec) -> None:
        """Raises ``BadValue`` where a single number has no answer, or none stands at that index."""
        check_growth(self.factors)
        task = tasks.require(tasks.build(spec.task), SingleNumbers)
        length = int(training_cell(task, spec)["length"])
        if not 0 <= self.position < length:
            raise BadValue(f"the growing number stands at an index from 0 to {length - 1}, got {self.position}.")

    def prepared(self, runs: Sequence[Run]) -> Self:
        """Returns the analysis with its factors in order, and 1 among them."""
        return replace(self, factors=with_undisturbed(self.factors))

    def measure(self, trained: TrainedModel) -> Rows:
        """Trains probes on undisturbed prompts of their own, then reads the test prompts at each factor."""
        suite, here = tasks.require(trained.task.balanced, SingleNumbers), dict(trained.cell)
        length = int(here.pop("length"))
        lessons = suite.sample(stream(TEST_SEED, "probe", length), LESSONS, length, **here)
        undisturbed, device = trained.prompts(self.prompts), trained.lab.device
        rows = readings(trained.model, suite, lessons, undisturbed, self.position, self.factors, device, trained.tick)
        return {"probe": rows}

    def table(self, found: Findings) -> list[str]:
        """The median error over seeds of each reading, rule by rule."""
        grid = found["probe"]
        factors = grid.values("factor")
        text = [
            "Medians of error rates over seeds: the mean over numbers that make the answer alone true and false (the "
            "whole prompt: over its truth).",
            "",
            *md.head(["rule", "what is asked", *(f"x{factor:g}" for factor in factors)]),
        ]
        for rule in found.rules:
            for metric, layer in places(found):
                lines = grid.where(attn=rule, metric=metric, layer=layer).lines("factor", "seed")
                cells = [short(median([line[place][1] for line in lines])) for place in range(len(factors))]
                text.append(md.row([f"`{rule}`", words(metric, layer), *cells]))
        return text

    def figures(self, found: Findings, title: str) -> Mapping[str, Figure]:
        """Each reading over the factor: the whole prompt, its numbers alone, and the probes at the last layer."""
        last = max(layer for _, layer in places(found))
        panels = {
            f"error: {words(metric, layer)}": {
                rule: found["probe"].where(attn=rule, metric=metric, layer=layer).lines("factor", "seed")
                for rule in found.rules
            }
            for metric, layer in places(found)
            if layer in (OUTPUT, last)
        }
        limits = dict.fromkeys(panels, (-0.02, 0.62))
        drawn = pictures.curves(panels, title=title, across="factor of the growing number", scales={}, limits=limits)
        return {"probe": drawn}

    def finding(self, found: Findings) -> str:
        """Error rates at the greatest factor: of the whole prompt, and of the grown number alone and by probe."""
        most = max(found["probe"].values("factor"))
        last = max(layer for _, layer in places(found))

        def rates(metric: str, layer: float) -> str:
            cells = {
                rule: found["probe"].where(attn=rule, metric=metric, layer=layer, factor=most) for rule in found.rules
            }
            return md.listed(f"{short(median(cell.frame['value']))} with {rule}" for rule, cell in cells.items())

        return (
            f"With the number at index {self.position} multiplied by {most:g}, the error rate of the whole prompt is "
            f"{rates('together', OUTPUT)}; that of the grown number alone is {rates('alone-deviant', OUTPUT)}, and by "
            f"a linear probe after layer {last:g} it is {rates('probe-deviant', last)} (medians over seeds)."
        )

    def value(self, found: StoredGrids, of: str, cells: Cells, metric: str, seed: int) -> float:
        """The mean error rate over the cells (they name the factors); ``reference:0.5`` is chance."""
        if (number := constant(of)) is not None:
            return number
        value = super().value(found, of, cells, metric, seed)
        if math.isnan(value):
            raise Undefined("the prompts are all of one class, so there is no mean over the classes")
        return value

    def cells_of(self, found: StoredGrids, of: str, cells: Cells, metric: str, seed: int) -> Grid | None:
        """Error rates of ``together`` unless a metric is named; None of a number.

        Probes are those after the last layer, unless cells name a layer (0: as read in).
        """
        if constant(of) is not None:
            return None
        grid, metric = found["probe"].where(attn=of, seed=seed), metric or "together"
        layers = cells.get("layer", [max(grid.where(metric=metric).values("layer"))])
        where = {axis: list(values) for axis, values in cells.items()} | {"factor": factors_of(cells)}
        return grid.where(metric=metric, **where | {"layer": list(layers)})

    def prompts_error(self, found: StoredGrids, of: str, cells: Cells, metric: str, seed: int) -> float:
        """Standard error over test prompts; noise of fitting the probe is not included."""
        return 0.0 if constant(of) is not None else super().prompts_error(found, of, cells, metric, seed)


def places(found: Findings) -> list[tuple[str, float]]:
    """Quantity that was read, and the layer."""
    frame = found["probe"].frame.drop_duplicates(["metric", "layer"])
    read = list(zip(frame["metric"], frame["layer"], strict=True))
    return sorted(read, key=lambda place: (list(WORDS).index(place[0]), place[1]))


def words(metric: str, layer: float) -> str:
    """Quantity that was read, in words."""
    return WORDS[metric] + ("" if layer == OUTPUT else f" after layer {layer:g}" if layer else " as read in")
