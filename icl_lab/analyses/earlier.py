"""Models that an analysis has asked before: their numbers come from the folder of the study, and none is asked twice.

More training seeds of a study then cost only the new ones, though the evidence keeps the weights of few models.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from icl_lab.analyses.frame import Analysis, Stored
from icl_lab.errors import RunFailed
from icl_lab.grid import Grid
from icl_lab.runs import study_folder
from icl_lab.runs.run import Run
from icl_lab.runs.study_folder import Member, StudyRecord


@dataclass(frozen=True)
class Earlier:
    """A stored study of the same question: who was asked, and the grids that it found."""

    folder: Path
    record: StudyRecord
    grids: Mapping[str, Grid]

    def asked(self, label: str, run: Run) -> bool:
        """Whether this run was asked, as ``label``."""
        return Member.of(label, run) in self._tables

    def rows(self, label: str, run: Run) -> Mapping[str, list[dict[str, Any]]] | None:
        """Returns the rows of each grid that were found in a run, those of references with the first; None of others.

        They are what ``Analysis.measure`` returned, with the labels of the run.
        """
        tables = self._tables.get(Member.of(label, run))
        return None if tables is None else {name: table.rows() for name, table in tables.items()}

    def commits(self, study: StudyRecord) -> dict[str, str]:
        """Returns at which commit those members of a study were asked whose numbers are taken from here."""
        there = (member for member in study.runs if member in self._tables)
        return {member.key: self.record.asked.get(member.key, self.record.commit) for member in there}

    @property
    def whole(self) -> bool:
        """Whether every row is of one of the runs, or of a reference."""
        taken = sum(len(table.frame) for tables in self._tables.values() for table in tables.values())
        return taken == sum(len(grid.frame) for grid in self.grids.values())

    @cached_property
    def _tables(self) -> dict[Member, dict[str, Grid]]:
        found: dict[Member, dict[str, Grid]] = {}
        for number, member in enumerate(self.record.runs):
            tables = {}
            for name, grid in self.grids.items():
                frame = grid.frame
                own = (frame["attn"] == member.label) & (frame["seed"] == member.seed)
                if number == 0:
                    own |= frame["attn"].str.startswith("reference:")
                tables[name] = Grid(frame[own])
            if any(len(table.frame) for table in tables.values()):  # of a training that diverged there are none
                found[member] = tables
        return found


def find(study: StudyRecord, analysis: Analysis, folder: Path, say: Callable[[str], object]) -> Earlier | None:
    """Returns what a folder holds of a study; None where it is no part of it, or does not hold all that was found.

    References are asked beside the first run, which therefore has to be the same.
    """
    if not analysis.trains or type(analysis).files is not Analysis.files:
        return None
    try:
        known = study_folder.read(folder)
        if known is None or not known.files:
            return None
        if (known.kind, known.options, known.runs[0]) != (study.kind, study.options, study.runs[0]):
            return None
        study_folder.verify(folder, pictures=False)
    except RunFailed as reason:
        say(str(reason))
        return None
    found = analysis.read(folder)
    earlier = Earlier(folder, known, found.grids) if isinstance(found, Stored) else None
    return earlier if earlier is not None and earlier.whole else None
