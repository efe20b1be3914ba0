"""The printed numbers of an experiment: their place in a table of ``icl_lab.base.published``."""

import math
from collections.abc import Callable, Iterable, Sequence
from statistics import fmean

from icl_lab.base import published
from icl_lab.base.errors import BadValue, UnknownName
from icl_lab.claims.schema import PRINTED, Claim, Experiment, Printed, Quantity, Variant
from icl_lab.comparison.statistics import Scale


def rows(experiment: Experiment, overlay: bool) -> dict[str, dict[float, str]]:
    """Return the printed rows, variant -> axis value -> the number as it stands there.

    With ``overlay`` the rows whose column is in doubt come a second time, moved, and say so in their name.
    """
    where = experiment.printed
    if where is None:
        return {}
    table = published.load(where.table)
    found: dict[str, dict[float, str]] = {}
    for variant in experiment.variants:
        if not variant.printed:
            continue
        found[variant.name] = row = _cells(_rows(table, variant, where), where)
        if overlay and variant.printed in where.shifted:
            shift = where.shifted[variant.printed]
            found[f"{variant.name}, columns moved by {shift:+g}"] = {at + shift: text for at, text in row.items()}
    return found


def numbers(experiment: Experiment, side: Quantity) -> list[float]:
    """Return the printed numbers that a side ``printed:NAME`` of a claim means, one for each of its cells.

    Raises ``UnknownName`` where no row of that name is printed, and ``BadValue`` where its cells are not.
    """
    known, where = rows(experiment, overlay=False), experiment.printed
    name = side.of.removeprefix(PRINTED)
    if where is None or name not in known:
        raise UnknownName("printed row", name, known)
    if list(side.cells) != [where.axis]:
        raise BadValue(f"'{side.of}' is printed over {where.axis}, got cells of {', '.join(side.cells) or 'nothing'}.")
    lacking = [value for value in side.cells[where.axis] if value not in known[name]]
    if lacking:
        raise BadValue(f"'{side.of}' is printed at {where.axis} {_list(known[name])}, not at {_list(lacking)}.")
    return [float(known[name][value]) for value in side.cells[where.axis]]


def effect(experiment: Experiment, claim: Claim, scale: Scale, headline: str) -> float:
    """Return the printed effect of a claim on its own cells, on its scale; NaN where no paper prints it.

    It is the one that the claim names, else that of the printed rows of both sides, if these are printed at all of the
    claim's cells and its metric is the ``headline``. Raises ``BadValue`` where the claim names it on another scale.
    """
    if (named := claim.printed) is not None:
        value = named.ratio if scale == "log-ratio" else named.difference
        if value is None:
            wanted = "ratio" if scale == "log-ratio" else "difference"
            raise BadValue(f"'{claim.statement}': its printed effect must be a {wanted}, as it is compared here.")
        return math.log(value) if scale == "log-ratio" else value
    sides = [Quantity(f"{PRINTED}{side.of}", side.cells) for side in (claim.left, claim.right)]
    if experiment.printed is None or claim.metric not in ("", headline):
        return math.nan
    try:
        left, right = ([*map(_on(scale), numbers(experiment, side))] for side in sides)
    except (BadValue, UnknownName, ValueError):  # a side or a cell is not printed, or printed as 0 or no number
        return math.nan
    return fmean(left) - fmean(right)


def _on(scale: Scale) -> Callable[[float], float]:
    return math.log if scale == "log-ratio" else float


def doubts(experiment: Experiment) -> list[str]:
    """Return the notes on the printed table and on the rows that are shown, each once."""
    where = experiment.printed
    if where is None:
        return []
    table = published.load(where.table)
    shown = [row for variant in experiment.variants if variant.printed for row in _rows(table, variant, where)]
    lines = [row for row in table.rows if any(row is other for other in shown)]
    remarks = [note for note in table.remarks if not note.columns or {where.row, where.value} & set(note.columns)]
    notes = [f"{row[where.row]}: {note.text}" for row in lines for note in table.footnotes(row, where.value)]
    return list(dict.fromkeys([*(note.text for note in remarks), *notes]))


def _rows(table: published.PublishedTable, variant: Variant, where: Printed) -> Sequence[published.Row]:
    """The lines of a published table that are the printed row of a variant."""
    return table.where(**{where.row: variant.printed} | where.where | variant.printed_where)


def _cells(lines: Sequence[published.Row], where: Printed) -> dict[float, str]:
    """One printed row: axis value -> text."""
    found: dict[float, list[published.Cell]] = {}
    for row in lines:
        at = row[where.column].number * where.times if where.column else where.at
        found.setdefault(at, []).append(row[where.value])
    if not where.errors and all(len(cells) == 1 for cells in found.values()):
        return {at: cell.text for at, (cell,) in found.items()}
    means = {at: fmean(cell.number for cell in cells) for at, cells in found.items()}
    return {at: f"{1 - mean if where.errors else mean:.3g}" for at, mean in means.items()}


def _list(values: Iterable[float]) -> str:
    return ", ".join(f"{value:g}" for value in values)
