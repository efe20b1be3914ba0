"""Course of training: the loss at shares of the steps, when it first falls below a bar, and where it ends.

Reads the histories that runs keep (``history.csv``: step, loss, length, rate, learned numbers; a row is the mean over
the 50 steps before it), also those of the repository's evidence. No model is read; a run without a history is trained.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import ClassVar, Self

from matplotlib.figure import Figure

from icl_lab.analyses import registry
from icl_lab.analyses.findings import cell
from icl_lab.analyses.frame import Analysis, Findings, Metric, Rows, TrainedModel, option
from icl_lab.base import markdown as md
from icl_lab.base.errors import BadValue
from icl_lab.base.grid import Grid
from icl_lab.figures import training
from icl_lab.figures.base import short
from icl_lab.runs.run import Run
from icl_lab.runs.run_files import row_at

History = Sequence[Mapping[str, float]]


@registry.add("learning")
@dataclass(frozen=True, kw_only=True)
class Learning(Analysis):
    """Compare how losses fall in training: at shares of the steps, when they pass a bar, and where they end.

    ``history``: the training loss at each step that was kept, and the numbers that normalizers learned. ``learning``:
    of each run its ``final`` loss, the loss at each ``share`` of the steps, the first step at which the loss was
    ``below`` the bar (none where it never was), and the ``mean`` logarithm of the loss over the history.
    """

    grids: ClassVar[Mapping[str, Sequence[str]]] = {"learning": ("share",), "history": ("step",)}
    needed: ClassVar[Sequence[str]] = ("history",)
    title: ClassVar[str] = "loss in training"
    reads_models: ClassVar[bool] = False
    metrics: ClassVar[Mapping[str, Metric]] = {
        "final": Metric("learning", kind="ratio"),
        "share": Metric("learning", ("share",), kind="ratio"),
        "below": Metric("learning", kind="ratio"),
        "mean": Metric("learning", kind="logarithm"),
    }

    shares: tuple[float, ...] = option((0.1, 0.25, 0.5, 0.75, 1.0), "Shares of the steps, above 0 to 1.", least=0)
    below: float = option(0.1, "The bar: at which step the loss is first below it.", least=0)

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.shares or not all(0 < share <= 1 for share in self.shares):
            raise BadValue(f"shares are above 0 and at most 1, got {', '.join(map('{:g}'.format, self.shares))}.")

    def prepared(self, runs: Sequence[Run]) -> Self:
        for run in runs:
            if run.swap:
                raise BadValue(
                    f"a normalizer that is swapped in after training has no training of its own, got {run.name}."
                )
        return replace(self, shares=tuple(sorted(set(self.shares))))

    def lacking(self, runs: Sequence[Run]) -> list[Run]:
        return [run for run in runs if stored(run) is None]

    def measure(self, trained: TrainedModel) -> Rows:
        """Read the history of a run, which is trained first where it has none."""
        history = stored(trained.run)
        if history is None:
            trained.load()
            history = trained.run.history()
        steps = trained.spec.train.steps
        rows = [cell("share", loss_at(history, share * steps), share=share) for share in self.shares]
        first = first_below(history, self.below)
        rows += [cell("final", history[-1]["loss"], share=1.0), cell("mean", mean_loss(history), share=1.0)]
        rows += [cell("below", first, share=1.0)] if first is not None else []
        learned = [key for key in dict.fromkeys(key for row in history for key in row) if " " in key]
        kept = [
            cell(metric, row[metric], step=row["step"])
            for metric in ("loss", *learned)
            for row in history
            if metric in row
        ]
        return {"learning": rows, "history": kept}

    def table(self, found: Findings) -> list[str]:
        """The loss of each normalizer at the shares, means over seeds, and the step at which it passed the bar."""
        grid = found["learning"]
        shares = grid.where(metric="share").values("share")
        bar = f"below {self.below:g} from step" if self.below else "below the bar"
        text = [
            "Training loss: the mean over the steps since the row before, geometric means over seeds. It is not a "
            "tested error, and prompts may grow in training, so that a loss can rise with them.",
            "",
            *md.head(["normalizer", *(f"{share:.0%} of the steps" for share in shares), "mean of log loss", bar]),
        ]
        for rule in found.rules:
            own = grid.where(attn=rule)
            losses = [_middle(own.where(metric="share", share=share)) for share in shares]
            firsts = grid.by("attn", "metric").get((rule, "below"), [])
            seeds = len(own.values("seed"))
            when = f"{fmean(firsts):,.0f} ({len(firsts)} of {seeds} seeds)" if firsts else f"never (0 of {seeds} seeds)"
            mean = found.mean("learning", attn=rule, metric="mean")
            text.append(md.row([f"`{rule}`", *map(short, losses), f"{mean:.2f}", when]))
        return text

    def figures(self, found: Findings, title: str) -> Mapping[str, Figure]:
        """The learning curve of each normalizer: the mean over seeds, and their range."""
        curves = {
            rule: [[{"step": step, "loss": loss} for step, loss in line] for line in lines]
            for rule, lines in found.curves_by_rule("history", "step", "seed", metric="loss").items()
        }
        return {"learning": training.spans(curves, title=title, label="training loss")}

    def finding(self, found: Findings) -> str:
        """The final loss of each normalizer."""
        final = {rule: _middle(found["learning"].where(attn=rule, metric="final")) for rule in found.rules}
        losses = md.listed(f"{short(loss)} with {rule}" for rule, loss in final.items())
        return f"Training ends at a loss of {losses} (geometric means over seeds)."


def stored(run: Run) -> list[dict[str, float]] | None:
    """Return the history of a run, from its folder or the evidence; None where there is none."""
    return (run.history() or None) if run.recorded else None


def loss_at(history: History, step: float) -> float:
    """The loss of the last row up to a step; of the first row where the step comes before it."""
    return row_at(history, step)["loss"]


def first_below(history: History, bar: float) -> float | None:
    """The first step at which the loss is below the bar; None where it never is."""
    return next((row["step"] for row in history if row["loss"] < bar), None)


def mean_loss(history: History) -> float:
    """The mean of log loss over the rows of a history: low where the loss falls early and far."""
    return fmean(math.log(row["loss"]) for row in history)


def _middle(grid: Grid) -> float:
    return math.exp(fmean(math.log(value) for value in grid.frame["value"]))
