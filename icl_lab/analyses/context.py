"""Benefit of more context: the same answers after more of it, and the error at each place of a prompt.

Errors at two lengths are means over different tokens, whose variance hides small differences: two sets of 64 windows of
a text differ by 0.05 nats before any model has read them. So ``context`` asks for the same answers at every length, the
last ones of a prompt after ever longer ends of it. ``per-position`` reads whole prompts; of a language model it is the
per-position loss of arXiv 2501.19399 (Figures 4 and 5 there).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from statistics import fmean
from typing import ClassVar, Self

import numpy as np
import torch
from matplotlib.figure import Figure
from torch import Tensor

from icl_lab import tasks
from icl_lab.analyses import registry
from icl_lab.analyses.findings import check_lengths, mean_rows
from icl_lab.analyses.frame import Analysis, Cells, Findings, Metric, Row, Rows, StoredGrids, TrainedModel, option
from icl_lab.base import markdown as md
from icl_lab.base.errors import BadValue
from icl_lab.base.grid import Grid
from icl_lab.figures import lines
from icl_lab.figures.base import writer
from icl_lab.runs.measure import errors_of
from icl_lab.runs.run import Run
from icl_lab.runs.spec import RunSpec
from icl_lab.tasks.base import Task
from icl_lab.training.curriculum import LONGEST

SHARE = 0.25  # of the places within training, and of all: the last ones are the ends


@dataclass(frozen=True)
class AnswerPositions:
    """The answers of a prompt by the tokens that are read before them, the asked one among these; q answers.

    ``trained`` counts the tokens of the longest prompt of training, or of whatever counts as near; the first
    ``skipped`` answers are in no number.
    """

    read: tuple[int, ...]
    trained: int
    skipped: int = 0

    @cached_property
    def tokens(self) -> np.ndarray:
        """Number of tokens that are read before each answer that counts."""
        return np.asarray(self.read)[self.skipped :]

    @cached_property
    def steps(self) -> dict[float, Tensor]:
        """Upper end of each half octave -> the answers in it, as indices of errors (b q); empty ones are left out."""
        step = np.ceil(np.round(2 * np.log2(self.tokens), 9)).astype(int)
        return {
            float(f"{2 ** (each / 2):.6g}"): torch.from_numpy(np.flatnonzero(step == each) + self.skipped)
            for each in np.unique(step)
        }

    def ends(self, errors: Tensor) -> dict[str, Tensor]:
        """Errors (b q) -> the mean of each prompt within and beyond, at both ends, and the rise between these, (b).

        Without answers beyond there are only ``within`` and ``end-of-training``.
        """
        known = errors[:, self.skipped :]
        inside = int((self.tokens <= self.trained).sum())
        last = known[:, inside - max(1, round(SHARE * inside)) : inside].mean(1)
        found = {"within": known[:, :inside].mean(1), "end-of-training": last}
        if inside < known.shape[1]:
            end = known[:, -max(1, round(SHARE * known.shape[1])) :].mean(1)
            found |= {"beyond": known[:, inside:].mean(1), "end": end, "rise": end - last}
        return found


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
    metrics: ClassVar[Mapping[str, Metric]] = {
        "error": Metric("context", last=("length",), kind="error", baselines=True)
    }

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
        """Measure the model, and with the first model the references."""
        task, rows, single = trained.task, list[Row](), list[Row]()
        prompt = trained.prompts(self.prompts, {**trained.cell, "length": self.lengths[-1]})
        last = answers(task, self.lengths[0])
        subjects = trained.subjects()
        for done, (name, subject) in enumerate(subjects.items()):
            for length in self.lengths:
                errors = errors_of(task, subject, prompt.last(task.tokens(length)))
                values = errors[:, -last:].mean(1)
                rows += mean_rows({"error": values}, attn=name, length=length)
                single += trained.of_prompts({"attn": name, "length": length}, {"error": values})
            trained.tick(done + 1, len(subjects))
        return {"context": rows, "prompts": single}

    def table(self, found: Findings) -> list[str]:
        """The error after each length of context, means over prompts and seeds."""
        lengths, written = found["context"].values("length"), error_writer(found)
        last = answers(tasks.build(found.spec.task), int(lengths[0]))
        rows = found.rows("context", "length", lambda v: written(fmean(v)), [*found.rules, *found.references])
        return [
            f"The last {last} answers of a prompt, the same in all columns, where only so many of its last examples "
            f"are read. Trained up to {found.spec.train.longest}. Means over prompts and seeds.",
            "",
            *md.table(["normalizer", *(f"{length:g} read" for length in lengths)], rows),
        ]

    def figures(self, found: Findings, title: str) -> Mapping[str, Figure]:
        """The error over the examples that are read, the longest prompt of training dotted."""
        axis = "examples that are read" if tasks.build(found.spec.task).roles > 1 else "tokens that are read"
        mark = found.spec.train.longest
        return {"context": picture(found, "context", "length", axis=axis, title=title, mark=mark)}

    def finding(self, found: Findings) -> str:
        """The error after the shortest and the longest context, normalizer by normalizer."""
        grid, written = found["context"], error_writer(found)
        ends = [grid.values("length")[place] for place in (0, -1)]
        said = [
            " to ".join(written(found.mean("context", attn=rule, length=length)) for length in ends) + f" ({rule})"
            for rule in found.rules
        ]
        read = f"From {ends[0]:g} to {ends[1]:g} examples that are read"
        return f"{read} the error of the same answers goes from {md.listed(said)}."


def answers(task: Task, shortest: int) -> int:
    """Return how many of the last answers are scored at every length: a quarter of those of the shortest, or one."""
    return max(1, len(task.asked(shortest)) // 4)


@registry.add("per-position")
@dataclass(frozen=True, kw_only=True)
class PerPosition(Analysis):
    """Measure the error at each place of a prompt, within and beyond the training length.

    ``per-position``: the error at the answers over the tokens read, in steps of half an octave: the column tokens is
    the upper end of a step. ``ends``: the mean error ``within`` the training length and ``beyond`` it, over the last
    quarter of the one (``end-of-training``) and of the whole prompt (``end``), and how far the error ``rise``s between
    the two. ``prompts``: the same of each prompt.
    """

    grids: ClassVar[Mapping[str, Sequence[str]]] = {"per-position": ("tokens",), "ends": (), "prompts": ("prompt",)}
    title: ClassVar[str] = "error at each place of a prompt"
    metrics: ClassVar[Mapping[str, Metric]] = {
        **dict.fromkeys(("beyond", "within", "end-of-training", "end"), Metric("ends", kind="error", baselines=True)),
        "rise": Metric("ends", kind="change"),
        "error": Metric("per-position", ("tokens",), kind="error", baselines=True),
    }

    length: int | None = option(
        None, "Examples of a prompt.  [default: the longest that was tested]", least=2, most=LONGEST
    )
    prompts: int = option(256, "Test prompts.", least=2, most=1_000_000)

    def asks(self, spec: RunSpec) -> list[tuple[int, int]]:
        return [(self.prompts, self.length or spec.test.lengths[-1])]

    def check(self, spec: RunSpec) -> None:
        """Raise ``BadValue`` on a length that cannot be drawn or is at most that of training, and on a single answer.

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
        """Measure the model, and with the first model the references."""
        spec, length = trained.spec, self.length or trained.spec.test.lengths[-1]
        prompt = trained.prompts(self.prompts, {**trained.cell, "length": length})
        lies = answer_positions(trained.task, spec.train.longest, length)
        found: dict[str, list[Row]] = {name: [] for name in self.grids}
        subjects = trained.subjects()
        for done, (name, subject) in enumerate(subjects.items()):
            errors = errors_of(trained.task, subject, prompt)
            for tokens, chosen in lies.steps.items():
                found["per-position"] += mean_rows({"error": errors[:, chosen].mean(1)}, attn=name, tokens=tokens)
            ends = lies.ends(errors)
            found["ends"] += mean_rows(ends, attn=name)
            found["prompts"] += trained.of_prompts({"attn": name}, ends)
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
            text.append(md.row([f"`{rule}`", *map(error_writer(found), cells)]))
        return text

    def figures(self, found: Findings, title: str) -> Mapping[str, Figure]:
        """The error over the tokens that were read, the longest prompt of training dotted."""
        mark = tasks.build(found.spec.task).asked(found.spec.train.longest)[-1] + 1
        drawn = picture(found, "per-position", "tokens", axis="tokens read", title=title, mark=mark)
        return {"per-position": drawn}

    def finding(self, found: Findings) -> str:
        """The errors within and beyond training, normalizer by normalizer."""
        written = error_writer(found)
        said = [
            f"from {written(found.mean('ends', attn=rule, metric='end-of-training'))} to "
            f"{written(found.mean('ends', attn=rule, metric='end'))} ({rule})"
            for rule in found.rules
        ]
        return f"From the end of the training length to the end of the prompt the error goes {md.listed(said)}."

    def cells_of(self, found: StoredGrids, of: str, cells: Cells, metric: str, seed: int) -> Grid | None:
        """Return the declared cells; for tasks whose errors span decades ``rise`` is left out."""
        if metric == "rise" and tasks.build(found.first.values("task")[0]).log_scale:
            raise KeyError("a rise of errors that span decades is a ratio: compare end with end-of-training")
        return super().cells_of(found, of, cells, metric, seed)


def answer_positions(task: Task, trained: int, length: int) -> AnswerPositions:
    """Return where the answers of prompts of ``length`` examples lie; ``trained`` is the longest of training."""
    asked = task.asked(length)
    first = task.scored_from if len(asked) > task.scored_from else 0
    return AnswerPositions(tuple(token + 1 for token in asked), task.asked(trained)[-1] + 1, first)


def error_writer(found: Findings) -> Callable[[float], str]:
    """Return what writes an error of the task as its tables do."""
    task = tasks.build(found.spec.task)
    return writer(task.log_scale, task.rates)


def picture(found: Findings, name: str, column: str, *, axis: str, title: str, mark: float) -> Figure:
    """Draw the grid of this name over one of its axes, which is called ``axis``; ``mark`` is a place to be dotted."""
    grid, task = found[name], tasks.build(found.spec.task)
    where = grid.values(column)
    rules = {rule: [list(grid.where(attn=rule, **{column: at}).frame["value"]) for at in where] for rule in found.rules}
    references = {
        reference.removeprefix("reference:"): [found.mean(name, attn=reference, **{column: at}) for at in where]
        for reference in found.references
    }
    label = task.metric_label(task.headline)
    return lines.rivals(where, rules, references, axis=axis, title=title, label=label, log=task.log_scale, mark=mark)
