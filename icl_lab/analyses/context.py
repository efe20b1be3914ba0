"""Benefit of more context, on the same answers: the last ones of a prompt, asked of ever longer ends of it.

Errors at two lengths are means over different tokens, whose variance hides small differences: two sets of 64 windows of
a text differ by 0.05 nats before any model has read them. Here every length is asked for the same answers.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Self

from matplotlib.figure import Figure

from icl_lab import markdown as md
from icl_lab import tasks
from icl_lab.analyses import error_curves, per_prompt, registry
from icl_lab.analyses.findings import Findings, Row, Rows, StoredGrids, TrainedModel, check_lengths
from icl_lab.analyses.frame import Analysis, Cells, option
from icl_lab.errors import BadValue
from icl_lab.grid import Grid
from icl_lab.runs.measure import errors_of, summary
from icl_lab.runs.run import Run
from icl_lab.runs.spec import RunSpec
from icl_lab.tasks.base import Task
from icl_lab.training.curriculum import LONGEST


@registry.add("context")
@dataclass(frozen=True, kw_only=True)
class Context(Analysis):
    """Ask the same answers after shorter and longer context: does what stands further back help?

    ``context``: the mean error of the last answers of a prompt, where the model reads only its last ``length`` examples
    and these count their positions from the first that is read. The answers are the last quarter of the shortest
    length, so that even there each has three quarters of it before it. ``prompts``: the same of each prompt.
    """

    grids: ClassVar[Mapping[str, Sequence[str]]] = {"context": ("length",), "prompts": ("length", "prompt")}
    title: ClassVar[str] = "the same answers after more context"
    of_errors: ClassVar[bool] = True

    lengths: tuple[int, ...] = option(
        (), "Examples that are read, e.g. 128,512.  [default: the tested lengths]", least=1, most=LONGEST
    )
    prompts: int = option(256, "Test prompts.", least=2, most=1_000_000)

    def asks(self, spec: RunSpec) -> list[tuple[int, int]]:
        return [(self.prompts, max(self.lengths or spec.test.lengths))]

    def check(self, spec: RunSpec) -> None:
        task, lengths = tasks.build(spec.task), sorted(set(self.lengths or spec.test.lengths))
        if not task.suffixes:
            raise BadValue(f"the last examples of a prompt of {task.name} are no prompt of it; take text or linear.")
        if len(lengths) < 2:
            raise BadValue(f"more context is at least two lengths, got {lengths[0]}.")
        check_lengths(spec, lengths)

    def prepared(self, runs: Sequence[Run]) -> Self:
        usual = {tuple(sorted(set(self.lengths or run.spec.test.lengths))) for run in runs}
        if len(usual) > 1:
            differing = md.listed(", ".join(map(str, lengths)) for lengths in sorted(usual))
            raise BadValue(f"the tested lengths differ ({differing}): name --lengths.")
        return replace(self, lengths=usual.pop())

    def measure(self, trained: TrainedModel) -> Rows:
        """Measures the model, and beside the first model the references."""
        task, rows, single = trained.task, list[Row](), list[Row]()
        prompt = trained.prompts(self.prompts, {**trained.cell, "length": self.lengths[-1]})
        last = answers(task, self.lengths[0])
        subjects = trained.subjects()
        for done, (name, subject) in enumerate(subjects.items()):
            for length in self.lengths:
                errors = errors_of(task, subject, prompt.last(task.tokens(length)))
                where, values = {"attn": name, "length": length}, errors[:, -last:].mean(1)
                rows.append({**where, "metric": "error"} | summary(values))
                single += per_prompt.rows(trained.run.seed, where, {"error": values})
            trained.tick(done + 1, len(subjects))
        return {"context": rows, "prompts": single}

    def table(self, found: Findings) -> list[str]:
        """The error after each length of context, means over prompts and seeds."""
        lengths, written = found["context"].values("length"), error_curves.error_writer(found)
        last = answers(tasks.build(found.spec.task), int(lengths[0]))
        text = [
            f"The last {last} answers of a prompt, the same in all columns, where only so many of its last examples "
            f"are read. Trained up to {found.spec.train.longest}. Means over prompts and seeds.",
            "",
            *md.head(["normalizer", *(f"{length:g} read" for length in lengths)]),
        ]
        for rule in [*found.rules, *found.references]:
            cells = (found.mean("context", attn=rule, length=length) for length in lengths)
            text.append(md.row([f"`{rule}`", *map(written, cells)]))
        return text

    def figures(self, found: Findings, title: str) -> Mapping[str, Figure]:
        """The error over the examples that are read, the longest prompt of training dotted."""
        axis = "examples that are read" if tasks.build(found.spec.task).roles > 1 else "tokens that are read"
        mark = found.spec.train.longest
        return {"context": error_curves.picture(found, "context", "length", axis=axis, title=title, mark=mark)}

    def finding(self, found: Findings) -> str:
        """The error after the shortest and the longest context, normalizer by normalizer."""
        grid, written = found["context"], error_curves.error_writer(found)
        ends = [grid.values("length")[place] for place in (0, -1)]
        said = [
            " to ".join(written(found.mean("context", attn=rule, length=length)) for length in ends) + f" ({rule})"
            for rule in found.rules
        ]
        read = f"From {ends[0]:g} to {ends[1]:g} examples that are read"
        return f"{read} the error of the same answers goes from {md.listed(said)}."

    def cells_of(self, found: StoredGrids, of: str, cells: Cells, metric: str, seed: int) -> Grid:
        """The ``error`` after the lengths named, or the longest; raises ``KeyError`` where there is no such number."""
        grid = found["context"]
        if metric not in ("", "error"):
            raise KeyError(f"context has no metric '{metric}'; there is error")
        if unknown := set(cells) - {"length"}:
            raise KeyError(f"context has no axis '{min(unknown)}'; it has length")
        own, lengths = found.own("context", of, seed), cells.get("length", grid.values("length")[-1:])
        return Grid.join(own.where(length=length) for length in lengths)


def answers(task: Task, shortest: int) -> int:
    """Returns how many of the last answers are scored at every length: a quarter of those of the shortest, or one."""
    return max(1, len(task.asked(shortest)) // 4)
