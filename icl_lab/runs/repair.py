"""Repair of a run: damaged files are removed, and no more, so that it is done again from what is whole."""

from contextlib import suppress

from icl_lab.errors import RunFailed
from icl_lab.runs import deposit, manifest
from icl_lab.runs.run import MEASURED, TRAINED, Run
from icl_lab.runs.verify import Finding


def prepare(finding: Finding) -> list[Run]:
    """Removes the damaged part of a run, and returns the runs that have to be finished again.

    Where the model and what is known of its training are whole, the test alone; else all of it, with its tests with
    other rules. None where nobody can say what the run was: its specification is damaged, or the grid of a test that
    alone names its rule.
    """
    run = finding.run
    if run is None:
        return []
    if finding.place != run.place:
        return _prepare_swapped(run, finding)
    if _trained(run):
        _remove(run)
        return [run]
    others = _swapped(run)
    run.clear()
    run.forget_replaced()  # it is what is damaged
    return [run, *others]


def _prepare_swapped(run: Run, finding: Finding) -> list[Run]:
    try:
        other = deposit.swapped(run, finding.place)
    except RunFailed:
        return []
    _remove(other)
    return [other]


def _swapped(run: Run) -> list[Run]:
    """The tests of a run with other rules, as far as their grids say which."""
    found = []
    for place in sorted(run.folder.glob("swap-*")):
        with suppress(RunFailed):
            found.append(deposit.swapped(run, place))
    return found


def _remove(run: Run) -> None:
    """Removes what was measured, the grid first; the manifest goes where it cannot be read."""
    for name in reversed(MEASURED):
        (run.place / name).unlink(missing_ok=True)
    try:
        manifest.read(run.place)
    except RunFailed:
        (run.place / manifest.NAME).unlink()


def _trained(run: Run) -> bool:
    """True if all that training left is as it was written; the weights may have been removed."""
    try:
        manifest.read(run.folder)
        for name in TRAINED:
            if name != "model.safetensors" or run.trained:
                run.read(name)
        if run.trained:
            run.check_weights()
    except RunFailed:
        return False
    return True
