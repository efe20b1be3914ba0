"""All cells of all stored runs under one another, for tools that work on data frames."""

import csv
from collections.abc import Callable, Iterator, Mapping

from icl_lab.base import foreign
from icl_lab.base.errors import RunFailed
from icl_lab.base.grid import Grid
from icl_lab.base.progress import Tick, counted, silent
from icl_lab.runs import provenance
from icl_lab.runs.command import settings
from icl_lab.runs.run import Run
from icl_lab.runs.store import Store

Say = Callable[[str], object]


def grids(
    store: Store, say: Say, tick: Tick = silent, wanted: Callable[[Run], bool] = lambda run: True
) -> Iterator[tuple[Grid, Mapping[str, str], bool, str]]:
    """Yield the grid of every finished run and of its tests with other normalizers, for ``grid.stacked``.

    Of those that are ``wanted``; others are not read.

    With it come the settings of the run (``command.settings``), whether it is the evidence's, and whether its code
    is another one now. ``say`` reports runs that cannot be read.
    """
    for run in counted(list(filter(wanted, store.runs(say))), "reading runs", tick, lambda run: run.name):
        if not run.finished:
            continue
        for each in (run, *map(run.swapped, swaps(run))):
            try:
                yield each.grid(), settings(run.spec), each.copied, str(provenance.of(each))
            except RunFailed as reason:
                say(str(reason))


def swaps(run: Run) -> list[str]:
    """Return the normalizers that were put in the place of a run's own when it was tested again."""
    if run.copied:
        names = [name for name in run.files.names if name.startswith("swap-") and name.endswith("/grid.csv")]
        return sorted({_tested(run.read(name)) for name in names} - {""})
    found = set()
    for path in run.folder.glob("swap-*/grid.csv"):
        try:
            found.add(_tested(foreign.read(path)))
        except OSError:
            found.add("")
    return sorted(found - {""})


def _tested(grid: bytes) -> str:
    """The normalizer after ``->`` in the second column of a grid; empty without one."""
    rows = csv.reader(grid[:4096].decode(errors="replace").splitlines()[1:2])
    name = next((row[1] for row in rows if len(row) > 1), "")
    return name.partition("->")[2]
