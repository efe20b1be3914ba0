"""One number of the prompt grows: do heads saturate, and is their attention what spoils the answers?"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Self

from matplotlib.figure import Figure
from torch import equal

from icl_lab import tasks
from icl_lab.analyses import registry
from icl_lab.analyses.findings import FACTORS, check_growth, mean_rows, with_undisturbed
from icl_lab.analyses.frame import Analysis, Cells, Findings, Metric, Row, Rows, StoredGrids, TrainedModel, option
from icl_lab.analyses.saturation import numbers, shown
from icl_lab.analyses.saturation.measure import disturb, healing, patch
from icl_lab.base.errors import BadValue
from icl_lab.base.grid import Grid
from icl_lab.comparison.given import Array
from icl_lab.runs.run import Run
from icl_lab.runs.spec import RunSpec
from icl_lab.runs.summary import training_cell
from icl_lab.tasks.capabilities import Stretchable
from icl_lab.training.curriculum import LONGEST

QUERY = -1  # the position of the number that is asked last


@registry.add("saturation")
@dataclass(frozen=True, kw_only=True)
class Saturation(Analysis):
    """Let one number grow: do heads saturate, and does their attention spoil the answers?

    Per layer and head, at the token that is asked last: its largest weight, how many keys it effectively attends to,
    how far its weights are from those of the undisturbed prompt, and its weight on the deviant example, beside the
    weight that the normalizer's formula gives to one key so far above n - 1 equal ones. ``position=-1`` lets the query
    itself grow, as in Figure 2 of arXiv 2508.14685, which shows heads of the last layer.

    Activation patching then puts the attention of the undisturbed prompt back, head by head, and measures the share of
    the added error that this recovers. Where the truth of the last answer does not depend on the number, the same is
    done at the query with the parts of the residual stream that attention, MLPs and the number itself add.
    """

    grids: ClassVar[Mapping[str, Sequence[str]]] = {
        "heads": ("layer", "head", "factor"),
        "errors": ("factor",),
        "patches": ("layer", "head", "factor"),
        "stream": ("layer", "factor"),
        "prompts": ("factor", "prompt"),
    }
    needed: ClassVar[Sequence[str]] = ("errors", "patches")
    title: ClassVar[str] = "one number growing"
    metrics: ClassVar[Mapping[str, Metric]] = numbers.CLAIMED
    undefined: ClassVar[str] = "the growing number changed no answer, so there is nothing to recover"

    position: int = option(0, "Index of the number, from 0, or -1: the query.")
    factors: tuple[float, ...] = option(FACTORS, "What it is multiplied by; 1 is always among them.")
    prompts: int = option(128, "Test prompts.", least=2, most=100_000)
    length: int | None = option(
        None, "Examples of a prompt.  [default: as in training]", least=2, most=LONGEST, later=True
    )

    @property
    def tag(self) -> str:
        place = "query" if self.position == QUERY else str(self.position)
        parts = [f"at-{place}"] * (self.position != 0) + [f"length-{self.length}"] * (self.length is not None)
        return "-".join(parts)

    def asks(self, spec: RunSpec) -> list[tuple[int, int]]:
        return [(self.prompts, self._length(training_cell(tasks.build(spec.task), spec)))]

    def check(self, spec: RunSpec) -> None:
        check_growth(self.factors)
        task = tasks.require(tasks.build(spec.task), Stretchable)
        if not spec.model.attention:
            raise BadValue("a model without attention has no heads to saturate.")
        length = self._length(training_cell(task, spec))
        task.balanced.check_length(length, **task.training)
        if not QUERY <= self.position < length:
            raise BadValue(
                f"the growing number stands at an index from 0 to {length - 1}, or at -1 (the query), got "
                f"{self.position}."
            )

    def prepared(self, runs: Sequence[Run]) -> Self:
        return replace(self, factors=with_undisturbed(self.factors))

    def measure(self, trained: TrainedModel) -> Rows:
        """Let the number grow, then patch in undisturbed activations at each factor but 1."""
        length = self._length(trained.cell)
        at = length - 1 if self.position == QUERY else self.position
        suite = tasks.require(trained.task.balanced, Stretchable)
        calm = trained.prompts(self.prompts, trained.cell | {"length": length})
        steps, token, asked = 2 * len(self.factors), suite.asking(length), (trained.model, suite)
        heads, metrics = disturb(
            *asked, calm, at, self.factors, trained.lab.device, lambda done: trained.tick(done, steps)
        )
        rows: dict[str, list[Row]] = {"heads": heads, "errors": [], "patches": [], "stream": [], "prompts": []}
        for factor, found in metrics.items():
            rows["errors"] += mean_rows(found, factor=factor)
            rows["prompts"] += trained.of_prompts({"factor": factor}, found)
        for done, factor in enumerate(self.factors, 1 + len(self.factors)):
            if factor != 1:
                recovered, left = patch(*asked, calm, at, factor)
                rows["patches"] += recovered
                rows["prompts"] += trained.of_prompts({"factor": factor}, {numbers.PATCHED: left})
                if equal(suite.deviate(calm, [at], factor).targets[:, token], calm.targets[:, token]):
                    rows["stream"] += healing(*asked, calm, at, factor)
            trained.tick(done, steps)
        return rows

    def table(self, found: Findings) -> list[str]:
        return shown.table(found)

    def figures(self, found: Findings, title: str) -> Mapping[str, Figure]:
        return shown.figures(found, title)

    def finding(self, found: Findings) -> str:
        return shown.finding(found)

    def cells_of(self, found: StoredGrids, of: str, cells: Cells, metric: str, seed: int) -> Grid | None:
        """Return the cells of a metric at the factors that cells name; a claim is about their mean.

        Metrics are those of heads (``largest``, ``deviant``, ...; ``deviant-last``, the mean of the last layer,
        ``deviant-last-best``, its best head, and ``deviant-best``, the best of all: the head with the largest mean
        weight on the number at that factor; the same of ``deviant-against``), those of errors (``mse`` and ``last``,
        mean logarithms where they are squared errors; ``flip-against``, ``as-largest``, ...), those of the residual
        stream (``input-healed``, ``stream-norm``, ...: all layers at once or else the last, unless cells name one), and
        ``recovered`` (the usual one): by patching the attention of all heads, unless cells name a layer and a head.
        """
        weight, which = numbers.SUMMARIES.get(metric, (metric, ""))
        for axis in sorted({"layer", "head"} & set(cells)) if which else ():
            raise KeyError(f"'{metric}' names its heads itself; leave out the {axis} of the cells")
        chosen = super().cells_of(found, of, cells, weight, seed)
        return numbers.heads_named(chosen, which) if which and chosen else chosen

    def on_resamples(self, found: StoredGrids, of: str, cells: Cells, metric: str, seed: int) -> Array | None:
        """Values on resamples, of errors and other metrics of answers, and of the share that all heads recover."""
        chosen = None if self._constant(of, metric) is not None else self.cells_of(found, of, cells, metric, seed)
        if metric in ("", "recovered") and chosen:
            return numbers.recovered_on_resamples(found, chosen)
        return super().on_resamples(found, of, cells, metric, seed)

    def _length(self, cell: Mapping[str, float]) -> int:
        return int(cell["length"]) if self.length is None else self.length
