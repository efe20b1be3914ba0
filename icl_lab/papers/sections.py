"""The sections of an experiment's page: its claims with their verdicts, and our numbers beside the printed ones."""

from collections.abc import Mapping, Sequence

from icl_lab import tasks
from icl_lab.comparison.page import Row, Section, Table
from icl_lab.figures.base import writer
from icl_lab.papers import printed, verdicts
from icl_lab.papers.schema import Experiment
from icl_lab.papers.verdicts import Finding


def claims(found: Sequence[Finding], preset: str) -> Section:
    """The claims with their verdicts, for a page or a file."""
    rows = [
        Row(
            [
                f.claim.statement,
                f.claim.where,
                f.claim.published,
                f.words,
                f.verdict.upper() if f.found else f.verdict,
                f.outlook,
            ]
        )
        for f in found
    ]
    head = ["claim", "where", "published", f"here, at {preset}", "verdict at this scale", "what would decide it"]
    note = f"Left over right, as the claim names them, over the training seeds that both have. {verdicts.RULE}"
    scales = list(dict.fromkeys(f"Published at: {f.claim.scale}." for f in found if f.claim.scale))
    return Section("Claims", Table(head, rows, words=True), [note, *scales])


def beside_printed(experiment: Experiment, ours: Mapping[str, Mapping[float, float]], overlay: bool) -> Section | None:
    """Our numbers and the printed ones, row by row; the doubts about the printed ones below."""
    theirs = printed.rows(experiment, overlay)
    if not theirs or experiment.printed is None:
        return None
    known = {at for cells in ours.values() for at in cells}
    columns = sorted(known & {at for cells in theirs.values() for at in cells})
    task = tasks.build(experiment.task)
    rows, written = [], writer(task.log_scale, task.rates)
    for name, cells in theirs.items():
        if name in ours:
            rows.append(Row([name, "here", *(written(ours[name][at]) for at in columns)]))
        rows.append(Row([name, "printed", *(cells.get(at, "") for at in columns)], reference=True))
    head = ["", "", *(f"{experiment.printed.axis} {at:g}" for at in columns)]
    notes = [experiment.conditions, *printed.doubts(experiment)]
    return Section("Beside the printed numbers", Table(head, rows), notes)
