"""The contract of an analysis: metadata, refusals in one line, and answers that repeat.

It is asked of small models, trained here for a second: of softmax and SSA, on the first task that it accepts.
"""

import dataclasses
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import torch
from matplotlib.figure import Figure

from icl_lab import tasks
from icl_lab.analyses import registry
from icl_lab.analyses.frame import AnalysisOf, AnyAnalysis, Findings, StoredGrids
from icl_lab.analyses.runner import Groups, ask, checked, labels
from icl_lab.base.errors import LabError
from icl_lab.pipeline import sweep
from icl_lab.runs.run import Run
from icl_lab.runs.session import Lab
from icl_lab.runs.spec import RunSpec, resolve
from icl_lab.runs.store import Store
from icl_lab.testing.base import hold

RULES = ("softmax", "ssa")
SMALL = ("train.steps=20", "train.batch=8", "model.width=16", "model.heads=2", "test.prompts=16")


def it_says_what_it_is(choice: str) -> None:
    """The class is a frozen dataclass below ``Analysis`` with a first sentence, a title and grids."""
    part = registry.part(choice.partition(":")[0])
    first = (part.__doc__ or "").partition("\n")[0]
    hold(issubclass(part, AnalysisOf), "its class is no Analysis of icl_lab.analyses.frame")
    hold(dataclasses.is_dataclass(part), "its class is no dataclass")
    hold(part.__dataclass_params__.frozen, "its dataclass is not frozen")  # type: ignore[attr-defined]
    hold(first.endswith((".", "?")), f"the first line of its docstring is no sentence: '{first}'")
    hold(bool(getattr(part, "title", "")), "it has no title")
    grids = getattr(part, "grids", {})
    hold(bool(grids) and all(isinstance(axes, tuple | list) for axes in grids.values()), "grids names no grid and axes")


def it_refuses_a_task_in_one_line_or_accepts_it(choice: str) -> None:
    """For every task, ``check`` and ``prepared`` pass or raise a ``LabError``, before anything is trained."""
    with _laboratory() as lab:
        for task in tasks.names():
            _accepts(registry.build(choice), _runs(task, lab))


def it_answers_with_grids_a_table_and_figures(choice: str) -> None:
    """The first grid is there, the table is lines of text, there is a figure, and the finding is one line at most."""
    analysis, found, _ = _answers(choice)
    if isinstance(found, Findings):  # an analysis with its own type of result describes it
        hold(next(iter(analysis.grids)) in found.grids, "the grid that it names first is missing")
    table = analysis.table(found)
    hold(bool(table) and all(isinstance(line, str) for line in table), "its table is no list of lines")
    figures = analysis.figures(found, "contract")
    hold(bool(figures) and all(isinstance(figure, Figure) for figure in figures.values()), "it draws no figure")
    hold("\n" not in analysis.finding(found), "its finding is more than one line")


def the_same_models_get_the_same_numbers(choice: str) -> None:
    """Asked twice, with another state of the global random generator, it writes the same files."""
    analysis, first, second = _answers(choice)
    one, other = analysis.files(first), analysis.files(second)
    hold(bool(one), "it writes no file")
    different = [name for name in one if one[name] != other.get(name)]
    hold(not different, f"asked twice of the same models it writes another {', '.join(different)}")


def what_it_writes_can_be_read(choice: str) -> None:
    """``read`` finds in a folder what ``files`` wrote, and None in an empty one."""
    analysis, found, _ = _answers(choice)
    with tempfile.TemporaryDirectory() as place:
        hold(analysis.read(Path(place)) is None, "it reads something from an empty folder")
        for name, content in analysis.files(found).items():
            data = content if isinstance(content, bytes) else content.encode()
            (Path(place) / name).write_bytes(data)
        again = analysis.read(Path(place))
        hold(again is not None, "it does not find what it wrote")
        for name, grid in again.grids.items() if isinstance(again, StoredGrids) else ():
            hold(grid.csv() == found.grids[name].csv(), f"the grid {name} is another one when it is read")


@cache
def _answers(choice: str) -> tuple[AnyAnalysis, Any, Any]:
    """The analysis and its findings, run twice on the same small models of the first task that it accepts."""
    analysis: AnyAnalysis = registry.build(choice)
    with _laboratory() as lab:
        for task in tasks.names():
            groups = _accepts(analysis, _runs(task, lab))
            if groups is None:
                continue
            for run in (run for runs in groups.values() for run in runs):
                if analysis.reads_grids:
                    sweep(run.spec, run.seed, lab)
            with torch.random.fork_rng():
                torch.manual_seed(1)
                first = ask(analysis, groups, lab)
                torch.manual_seed(2)
                return checked(analysis, groups), first, ask(analysis, groups, lab)
    raise AssertionError(f"it accepts small models of none of the tasks {', '.join(tasks.names())}")


@contextmanager
def _laboratory() -> Iterator[Lab]:
    with tempfile.TemporaryDirectory() as place:
        yield Lab(Store(Path(place)), torch.device("cpu"), lambda text: None)


def _spec(task: str, rule: str) -> RunSpec | None:
    """The specification of a small run; None where the task does not fit into it."""
    try:
        return resolve(task, rule, "smoke", SMALL)
    except LabError:
        return None


def _runs(task: str, lab: Lab) -> list[Run]:
    """Small runs of a task, one per normalizer; none where the task does not fit."""
    return [lab.store.run(spec, 0) for rule in RULES if (spec := _spec(task, rule))]


def _accepts(analysis: AnyAnalysis, runs: list[Run]) -> Groups | None:
    """The runs by their labels, ``analysis.most`` at most; None where it refuses them or there are none."""
    if not runs:
        return None
    groups = labels(runs[: analysis.most])
    try:
        checked(analysis, groups)
    except LabError:
        return None
    return groups


CHECKS = (
    it_says_what_it_is,
    it_refuses_a_task_in_one_line_or_accepts_it,
    it_answers_with_grids_a_table_and_figures,
    the_same_models_get_the_same_numbers,
    what_it_writes_can_be_read,
)
