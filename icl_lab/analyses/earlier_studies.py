"""Models that an analysis has asked before: their numbers come from the folders of studies, and none is asked twice.

More training seeds of a study then cost only the new ones, though the evidence keeps the weights of few models.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from icl_lab.analyses.frame import Analysis, AnyAnalysis, Rows, StoredGrids
from icl_lab.base.errors import RunFailed
from icl_lab.base.grid import Grid
from icl_lab.runs import study_folder
from icl_lab.runs.run import Run
from icl_lab.runs.study_folder import Member, StudyRecord


@dataclass(frozen=True)
class StoredStudy:
    """A stored study: its runs, and its grids."""

    folder: Path
    record: StudyRecord
    grids: Mapping[str, Grid]

    @cached_property
    def tables(self) -> dict[Member, dict[str, Grid]]:
        """Grids of each run by name; those of references with the first."""
        tables_of: dict[Member, dict[str, Grid]] = {}
        for number, member in enumerate(self.record.runs):
            tables = {}
            for name, grid in self.grids.items():
                frame = grid.frame
                own = (frame["attn"] == member.label) & (frame["seed"] == member.seed)
                if number == 0:
                    own |= frame["attn"].str.startswith("reference:")
                tables[name] = Grid(frame[own])
            if any(len(table.frame) for table in tables.values()):  # of a training that diverged there are none
                tables_of[member] = tables
        return tables_of

    @property
    def whole(self) -> bool:
        """True if every row is of one of the runs, or of a reference."""
        taken = sum(len(table.frame) for tables in self.tables.values() for table in tables.values())
        return taken == sum(len(grid.frame) for grid in self.grids.values())


@dataclass(frozen=True)
class EarlierStudies:
    """Stored studies of the same question, each perhaps of other variants."""

    studies: Sequence[StoredStudy]

    @cached_property
    def sources(self) -> dict[Member, StoredStudy]:
        """The study that the numbers of each member are taken from: the first that has it."""
        return {member: study for study in reversed(self.studies) for member in study.tables}

    def unasked(self, wanted: Sequence[Run], groups: Mapping[str, Sequence[Run]], tested: bool) -> list[Run]:
        """Return the runs that are needed all the same: those not asked, and where ``tested`` those not finished."""
        asked = {
            run.place
            for label, runs in groups.items()
            for run in runs
            if Member.of(label, run) in self.sources and (run.finished or not tested)
        }
        return [run for run in wanted if run.place not in asked]

    def rows(self, label: str, run: Run) -> Rows | None:
        """Return the rows of each grid that were found in a run, those of references with the first; None of others.

        They are what ``Analysis.measure`` returned, with the labels of the run.
        """
        if (member := Member.of(label, run)) not in self.sources:
            return None
        return {name: table.rows() for name, table in self.sources[member].tables[member].items()}

    def commits(self, study: StudyRecord) -> dict[str, str]:
        """Return at which commit those members of a study were asked whose numbers are taken from here.

        Where the very study is here, made at the same commit, it is its own record that says so: a command that is done
        again writes the same bytes.
        """
        for earlier in self.studies:
            if (earlier.record.hash, earlier.record.commit) == (study.hash, study.commit):
                return earlier.record.asked
        records = {member.key: self.sources[member].record for member in study.runs if member in self.sources}
        return {key: record.asked.get(key, record.commit) for key, record in records.items()}

    def folders(self, study: StudyRecord) -> list[Path]:
        """Return the folders that numbers of a study are taken from."""
        return list(dict.fromkeys(self.sources[member].folder for member in study.runs if member in self.sources))


def find(
    study: StudyRecord,
    analysis: AnyAnalysis,
    folders: Sequence[Path],
    say: Callable[[str], object],
    current: Callable[[Path, StudyRecord], bool] = lambda folder, record: True,
) -> EarlierStudies | None:
    """Return what folders hold of the question of a study; None where none does. Those not ``current`` do not count.

    A study without everything that is shown of it is passed over. References are asked with the first run, which
    therefore has to be the same.
    """
    if not analysis.trains or type(analysis).files is not Analysis.files:
        return None
    studies = [stored for folder in folders if (stored := _stored(study, analysis, folder, say, current))]
    # What holds more of a model goes first: errors of single prompts, say, that older studies do not keep.
    return EarlierStudies(sorted(studies, key=lambda stored: len(stored.grids), reverse=True)) if studies else None


def _stored(
    study: StudyRecord,
    analysis: AnyAnalysis,
    folder: Path,
    say: Callable[[str], object],
    current: Callable[[Path, StudyRecord], bool],
) -> StoredStudy | None:
    """Stored results of the same question in a folder; None where it is another one, or not all of it is kept."""
    try:
        record = study_folder.read(folder)
        if record is None or not record.files:
            return None
        # By slices: a record of something else that stands here may name no run.
        if (record.kind, record.options, record.runs[:1]) != (study.kind, study.options, study.runs[:1]):
            return None
        if record.code and record.code != study.code:
            say(f"{folder} was found by another version of the analysis '{study.kind}': its models are asked again.")
            return None
        if not current(folder, record):
            return None
        study_folder.verify(folder, pictures=False)
    except RunFailed as reason:
        say(str(reason))
        return None
    found = analysis.read(folder)
    if isinstance(found, StoredGrids) and isinstance(analysis, Analysis) and not analysis.shows(found):
        return None  # it keeps what claims need
    stored = StoredStudy(folder, record, found.grids) if isinstance(found, StoredGrids) else None
    return stored if stored is not None and stored.whole else None
