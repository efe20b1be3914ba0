"""Models beside the normalizers that were not trained here: the stored grids of prompted language models.

They have no training seeds, so that no normalizer is paired with them: like references they are a line of the table and
of the curves, with the standard error over their own prompts.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from icl_lab import tasks
from icl_lab.errors import BadValue, RunFailed
from icl_lab.files import present
from icl_lab.grid import Grid
from icl_lab.runs import study_folder
from icl_lab.runs.measure import Errors

ERRORS = "errors.safetensors"
KIND = "prompted"  # of the studies that can stand beside trained normalizers
DIGITS = "digits"  # the axis that trained models do not have: the decimals of the numbers in a prompt


@dataclass(frozen=True)
class Outside:
    """The grid of one model, and where it lies."""

    name: str
    grid: Grid
    folder: str
    study: str  # the hash of the study in that folder
    errors: Errors | None = None  # what each of its prompts adds to the headline, where that was kept
    fixed: Mapping[str, float] = field(default_factory=dict)  # the number of decimals, where it is an axis
    note: str = ""  # what it is, where it is no prompted model

    def at(self, metric: str, facets: int, cell: Mapping[str, float]) -> tuple[float, float]:
        """Returns the metric in a cell with its standard error, the mean over ``facets`` rows; NaN where not asked."""
        try:
            rows = self.grid.where(metric=metric, **cell).frame
        except KeyError:
            return float("nan"), float("nan")
        if len(rows) != facets:
            return float("nan"), float("nan")
        return float(rows["value"].mean(skipna=False)), float((rows["stderr"] ** 2).sum(skipna=False)) ** 0.5 / facets


def options(beside: Sequence[Outside]) -> dict[str, Any]:
    """Returns what the record of a comparison says of these models; nothing where there are none."""
    told = [{"folder": folder, "study": study} for folder, study in dict.fromkeys((o.folder, o.study) for o in beside)]
    return {"beside": told} if told else {}


def read(folders: Sequence[str | Path], task: str) -> list[Outside]:
    """Reads the studies in folders, one model for each number of decimals.

    Raises ``BadValue`` where a folder holds no such study, one of another task, or none of its headline, and
    ``RunFailed`` where a file of it is damaged.
    """
    metric = tasks.build(task).headline if folders else ""
    found: list[Outside] = []
    for folder in map(Path, folders):
        record = study_folder.read(folder)
        if record is None or record.kind != KIND:
            there = f"a study of the kind {record.kind}" if record else "no study"
            raise BadValue(f"--beside {folder}: it holds {there}, not one of icl-lab prompted.")
        if record.options["task"] != task:
            raise BadValue(f"--beside {folder}: it is about the task {record.options['task']}, not {task}.")
        study_folder.verify(folder, pictures=False)
        path, kept = present(folder / "grid.csv"), folder / ERRORS
        assert path is not None  # which verify has found
        errors = Errors.decoded(kept.read_bytes()) if kept.exists() else None
        for name, grid, fixed in _by_digits(Grid.read(path)):
            if metric not in grid.values("metric"):
                raise BadValue(f"--beside {folder}: its prompts settle no {metric}; ask for it with --every-answer.")
            found.append(Outside(name, grid, str(folder), record.hash, errors, fixed))
    twice = [each.name for each in found if sum(other.name == each.name for other in found) > 1]
    if twice:
        places = ", ".join(each.folder for each in found if each.name == twice[0])
        raise BadValue(f"{twice[0]} has several studies of {task}: {places}; only one can be meant.")
    return found


def again(told_of: Mapping[str, Any], task: str) -> list[Outside]:
    """Reads what the options of a comparison say stood beside it; ``BadValue`` where a folder holds another study."""
    told = list(told_of.get("beside", []))
    found = read([each["folder"] for each in told], task)
    for each in told:
        if each["study"] not in {other.study for other in found if other.folder == each["folder"]}:
            raise BadValue(
                f"{each['folder']} holds another study now than the one that stood beside these normalizers."
            )
    return found


def stored(root: Path, task: str) -> dict[str, Outside]:
    """Returns the prompted models of a task in a results folder, by name.

    Raises ``BadValue`` where one has several studies there: what is said of it would hang on which of them is read.
    """
    places = []
    for place in study_folder.folders(root, "task"):
        try:
            record = study_folder.read(place)
        except RunFailed:  # what a damaged folder was about nobody knows; icl-lab verify names it
            continue
        if record is not None and record.kind == KIND and record.options["task"] == task:
            places.append(place)
    return {each.name: each for each in read(places, task)}


def _by_digits(grid: Grid) -> Iterator[tuple[str, Grid, dict[str, float]]]:
    """Yields the model of a grid, for each number of decimals where there are several."""
    (name,) = (str(name) for name in grid.values("attn") if not str(name).startswith("reference:"))
    own = grid.where(attn=name)
    if DIGITS not in grid.axes:
        yield name, own, {}
        return
    for digits in own.values(DIGITS):
        yield f"{name}, {digits:g} decimal{'s' * (digits != 1)}", own.where(digits=digits), {DIGITS: digits}
