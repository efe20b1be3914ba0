"""Files of finished runs and studies that the archive keeps, each checked first; a damaged one is refused."""

import lzma
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import msgspec
from safetensors.torch import save

from icl_lab.base import foreign
from icl_lab.base.errors import RunFailed
from icl_lab.base.files import PACKED, reading, remove_stale, replace_folder, restore_folder, staged_prefix
from icl_lab.base.grid import Grid, model_name
from icl_lab.base.registry import filename
from icl_lab.runs import reuse, study_folder
from icl_lab.runs.evidence.archive import ArchivedRun
from icl_lab.runs.manifest import MEASURED_BY, WAY_OUT, WEIGHTS
from icl_lab.runs.run import READ_OUT, Run
from icl_lab.runs.study_folder import RECORD, StudyRecord

Cells = Sequence[Mapping[str, float]]

ALWAYS = ("spec.json", "env.json", "history.csv", "grid.csv")
LARGE = 20_000  # bytes from which a table of a study is kept compressed
READ_OUT_NUMBERS = 1024  # at most, in the last norm and the read-out: those of a vocabulary bound no answer


def run_files(
    run: Run, *, weights: bool, held: ArchivedRun | None = None, cells: Callable[[Run], Cells] = lambda run: ()
) -> dict[str, bytes]:
    """Return the files of a finished run, by their names below its folder; ``weights`` adds the trained model.

    Of the errors of single prompts those of ``cells`` are kept: labels, for a run or its test with another normalizer.
    The parameters of the last norm and the read-out are kept of every run that has its weights, where they are few.

    ``held`` is the run as the archive holds it: where its very model was trained again to be tested with another
    normalizer, the tests are added to the archived run. Raises ``RunFailed`` where the run is not finished, a file is
    damaged, rows are of another run, or a cell is not the mean of its errors.
    """
    found = held.files() if held is not None and tests_held_model(run, held) else _own_files(run, cells)
    for place in _test_folders(run):
        swap = swapped_run(run, place)
        swap.measured()
        found |= _tested(swap)
        found |= _errors(swap, cells)
    if weights:
        if not run.trained:
            raise RunFailed(f"{run.folder} has no weights; add it without --weights.")
        found[WEIGHTS] = run.read(WEIGHTS)
    return found


def tests_held_model(run: Run, held: ArchivedRun | None) -> bool:
    """True if a run has tests with other normalizers, of the very model that the archive holds results of."""
    if held is None or not _test_folders(run) or not (run.folder / "env.json").exists():
        return False
    return reuse.same_model(held, run.env())


def swapped_run(run: Run, place: Path) -> Run:
    """Return the test with another normalizer that a folder ``swap-<normalizer>`` holds."""
    with reading(place / "grid.csv", WAY_OUT, OSError, ValueError, KeyError):
        name = model_name(Grid.read(foreign.read(place / "grid.csv").decode()))
    swap = name.rpartition("->")[2]
    if place.name != f"swap-{filename(swap)}":
        raise RunFailed(f"{place / 'grid.csv'} is of another run: attn is {name}; {WAY_OUT}.")
    return run.swapped(swap)


def study_files(folder: Path) -> dict[str, bytes]:
    """Return the files of a study that are kept, by their names: numbers and tables, and no pages or pictures.

    Raises ``RunFailed`` where a file is not the one that the record was written with, or a folder has no record.
    """
    kept = {}
    for path in study_folder.verified(folder, (".md",)):
        data = path.read_bytes()
        if path.suffix == ".csv" and len(data) > LARGE:
            kept[f"{path.name}{PACKED}"] = lzma.compress(data, preset=9 | lzma.PRESET_EXTREME)
        else:
            kept[path.name] = data
    return {RECORD: (folder / RECORD).read_bytes(), **kept}


def changed_studies(found: Mapping[Path, Mapping[str, bytes]], *, replace: bool = False) -> list[Path]:
    """Return which of the folders ``add_studies`` would write: those that do not hold these very studies.

    Raises ``RunFailed`` with all that hold another study, of which something would be lost; ``replace`` allows it.
    """
    changed, lost = [], []
    for place, data in found.items():
        if (place / RECORD).exists() and (place / RECORD).read_bytes() == data[RECORD]:
            continue
        changed.append(place)
        if not (replace or study_folder.free(place, msgspec.json.decode(data[RECORD], type=StudyRecord))):
            lost.append(str(place))
    if lost:
        raise RunFailed(f"{', '.join(lost)}: another study is kept there; --replace puts yours in its place.")
    return changed


def add_studies(found: Mapping[Path, Mapping[str, bytes]], *, replace: bool = False) -> list[Path]:
    """Write studies into their folders, each in one step, and return those that changed."""
    for place in found:  # what a process left that was killed, in the midst of it or at its end
        restore_folder(place)
        remove_stale(place.parent, staged_prefix(place))
    changed = changed_studies(found, replace=replace)
    for place in changed:
        before = {path.name for path in place.iterdir()} if place.exists() else set[str]()
        replace_folder(place, found[place], ours=before)
    return changed


def _own_files(run: Run, cells: Callable[[Run], Cells]) -> dict[str, bytes]:
    """Return the files of a finished run itself, without its tests with other normalizers."""
    missing = [name for name in ALWAYS if not (run.folder / name).exists()]
    if missing:
        raise RunFailed(f"{run.folder} is not a finished run: it has no {', '.join(missing)}.")
    run.measured()
    run.env()
    run.history()
    found = {name: run.read(name) for name in ALWAYS} | _tested(run)
    last = run.last_parameters()
    if last is not None and sum(values.numel() for values in last.values()) <= READ_OUT_NUMBERS:
        found[READ_OUT] = save(last)
    return found | _errors(run, cells)


def _tested(run: Run) -> dict[str, bytes]:
    """The grid of a test, and the record of what measured it, where there is one."""
    return {name: run.read(name) for each in (MEASURED_BY, "grid.csv") if (name := run.below(each)) in run.files}


def _errors(run: Run, cells: Callable[[Run], Cells]) -> dict[str, bytes]:
    errors, name = run.errors(), run.below("errors.safetensors")
    return {} if errors is None else {name: errors.only(cells(run)).encoded()}


def _test_folders(run: Run) -> list[Path]:
    return sorted(path.parent for path in run.folder.glob("swap-*/grid.csv"))
