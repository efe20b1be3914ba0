"""The error at each place of a prompt: what more context brings, and where it stops to.

Of a language model it is the per-position loss of arXiv 2501.19399 (Figures 4 and 5 there).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Self

from matplotlib.figure import Figure
from torch import Tensor

from icl_lab import markdown as md
from icl_lab import tasks
from icl_lab.analyses import error_curves, per_prompt, registry
from icl_lab.analyses.answer_positions import AnswerPositions
from icl_lab.analyses.findings import Findings, Row, Rows, StoredGrids, TrainedModel, check_lengths
from icl_lab.analyses.frame import Analysis, Cells, option
from icl_lab.errors import BadValue
from icl_lab.grid import Grid
from icl_lab.runs.measure import errors_of, summary
from icl_lab.runs.run import Run
from icl_lab.runs.spec import RunSpec
from icl_lab.tasks.base import Task
from icl_lab.training.curriculum import LONGEST

METRICS = ("beyond", "within", "end-of-training", "end", "rise", "error")


@registry.add("per-position")
@dataclass(frozen=True, kw_only=True)
class PerPosition(Analysis):
    """Measure the error at each place of a prompt, within and beyond the training length.

    ``per-position``: the error at the answers after so many tokens, in steps of half an octave: the column tokens is
    the upper end of a step. ``ends``: the mean error ``within`` the training length and ``beyond`` it, over the last
    quarter of the one (``end-of-training``) and of the whole prompt (``end``), and how far the error ``rise``s between
    the two. ``prompts``: the same of each prompt.
    """

    grids: ClassVar[Mapping[str, Sequence[str]]] = {"per-position": ("tokens",), "ends": (), "prompts": ("prompt",)}
    title: ClassVar[str] = "error at each place of a prompt"
    of_errors: ClassVar[bool] = True
    error_metrics: ClassVar[Sequence[str]] = ("", "beyond", "within", "end-of-training", "end", "error")

    length: int | None = option(
        None, "Examples of a prompt.  [default: the longest that was tested]", least=2, most=LONGEST
    )
    prompts: int = option(256, "Test prompts.", least=2, most=1_000_000)

    def asks(self, spec: RunSpec) -> list[tuple[int, int]]:
        return [(self.prompts, self.length or spec.test.lengths[-1])]

    def check(self, spec: RunSpec) -> None:
        """Raises ``BadValue`` on a length that cannot be drawn or is no longer than training, and on a single answer.

        It raises it too where prompts are asked at different tokens.
        """
        length, task = self.length or spec.test.lengths[-1], tasks.build(spec.task)
        check_lengths(spec, [length])
        if length <= spec.train.longest:
            raise BadValue(f"places beyond training need a length above {spec.train.longest}, got {length}.")
        if len(task.asked(length)) < 2:
            raise BadValue(f"{task.name} asks a prompt once: it has no error at each place.")

    def prepared(self, runs: Sequence[Run]) -> Self:
        lengths = {self.length or run.spec.test.lengths[-1] for run in runs}
        if len(lengths) > 1:
            raise BadValue(
                f"the longest tested lengths differ ({', '.join(map(str, sorted(lengths)))}): name --length."
            )
        return replace(self, length=lengths.pop())

    def measure(self, trained: TrainedModel) -> Rows:
        """Measures the model, and beside the first model the references."""
        spec, length = trained.spec, self.length or trained.spec.test.lengths[-1]
        prompt = trained.prompts(self.prompts, {**trained.cell, "length": length})
        lies = answer_positions(trained.task, spec.train.longest, length)
        found: dict[str, list[Row]] = {name: [] for name in self.grids}
        subjects = trained.subjects()
        for done, (name, subject) in enumerate(subjects.items()):
            errors = errors_of(trained.task, subject, prompt)
            for tokens, chosen in lies.steps.items():
                found["per-position"].append(_row(name, "error", errors[:, chosen].mean(1), tokens=tokens))
            ends = lies.ends(errors)
            found["ends"] += [_row(name, metric, values) for metric, values in ends.items()]
            found["prompts"] += per_prompt.rows(trained.run.seed, {"attn": name}, ends)
            trained.tick(done + 1, len(subjects))
        return found

    def table(self, found: Findings) -> list[str]:
        """The errors at every fourth step, those within and beyond training, and the rise, means over seeds."""
        grid, longest = found["per-position"], found.spec.train.longest
        shown = grid.values("tokens")[-1::-4][::-1]
        text = [
            f"Trained up to {longest} examples. Errors at the answers after so many tokens (the half octave up to "
            "there), means over prompts and seeds; rise: the last quarter of the prompt less that of the training "
            "length.",
            "",
            *md.head(["normalizer", *(f"{tokens:g}" for tokens in shown), "within", "beyond", "rise"]),
        ]
        for rule in [*found.rules, *found.references]:
            cells = [found.mean("per-position", attn=rule, tokens=tokens) for tokens in shown]
            cells += [found.mean("ends", attn=rule, metric=metric) for metric in ("within", "beyond", "rise")]
            text.append(md.row([f"`{rule}`", *map(error_curves.error_writer(found), cells)]))
        return text

    def figures(self, found: Findings, title: str) -> Mapping[str, Figure]:
        """The error over the tokens that were read, the longest prompt of training dotted."""
        mark = tasks.build(found.spec.task).asked(found.spec.train.longest)[-1] + 1
        drawn = error_curves.picture(found, "per-position", "tokens", axis="tokens read", title=title, mark=mark)
        return {"per-position": drawn}

    def finding(self, found: Findings) -> str:
        """The errors within and beyond training, normalizer by normalizer."""
        written = error_curves.error_writer(found)
        said = [
            f"from {written(found.mean('ends', attn=rule, metric='end-of-training'))} to "
            f"{written(found.mean('ends', attn=rule, metric='end'))} ({rule})"
            for rule in found.rules
        ]
        return f"From the end of the training length to the end of the prompt the error goes {md.listed(said)}."

    def span(self, task: Task, metric: str) -> float:
        """Returns twice that of errors for a ``rise``, which is a difference of two."""
        return super().span(task, metric) * (1 + (metric == "rise"))

    def cells_of(self, found: StoredGrids, of: str, cells: Cells, metric: str, seed: int) -> Grid:
        """``beyond`` (usual), ``within``, ``end-of-training``, ``end``, ``rise``, or ``error`` at the tokens named.

        For tasks whose errors span decades there is no ``rise``. Raises ``KeyError`` where there is no such number.
        """
        metric = metric or "beyond"
        if metric not in METRICS:
            raise KeyError(f"per-position has no metric '{metric}'; there are {', '.join(METRICS)}")
        if metric == "error" and "tokens" not in cells:
            raise KeyError("a claim about 'error' names its tokens: cells = { tokens = [1024] }")
        name = "per-position" if metric == "error" else "ends"
        own = found.own(name, of, seed).where(metric=metric, **cells)
        if metric == "rise" and tasks.build(own.values("task")[0]).log_scale:
            raise KeyError("a rise of errors that span decades is a ratio: compare end with end-of-training")
        return own


def answer_positions(task: Task, trained: int, length: int) -> AnswerPositions:
    """Returns where the answers of prompts of ``length`` examples lie; ``trained`` is the longest of training."""
    asked = task.asked(length)
    first = task.scored_from if len(asked) > task.scored_from else 0
    return AnswerPositions(tuple(token + 1 for token in asked), task.asked(trained)[-1] + 1, first)


def _row(name: str, metric: str, values: Tensor, **where: float) -> Row:
    return {"attn": name, **where, "metric": metric} | summary(values)
