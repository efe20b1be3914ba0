"""The studies and experiments of a results folder: their tables as text, their pictures and pages to be copied."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from icl_lab import analyses
from icl_lab.analyses.publish import sections
from icl_lab.base.errors import LabError, RunFailed
from icl_lab.claims import experiment, folders
from icl_lab.comparison.page import Section
from icl_lab.extras.site.names import address
from icl_lab.runs import study_folder
from icl_lab.runs.study_folder import RECORD, StudyRecord

PAGES, PICTURES, TABLES = (".html",), (".png", ".svg"), (".csv", ".xz", ".md", ".json", ".parquet", ".tex", ".pdf")
SHOWN = (*PAGES, *PICTURES, *TABLES)
LARGEST = 25 * 2**20  # bytes of a file that is copied
NOT_STUDIES = ("runs", "evidence", "finetuned")
MOST_ROWS = 400  # of a table that is written into the page
LONGEST = 320  # characters of a finding, after which no other sentence begins


@dataclass(frozen=True)
class File:
    """A file of a study: its path, and its name in the site (a record must not look like a study's)."""

    source: Path
    name: str
    size: int


@dataclass(frozen=True)
class StudyPage:
    """A folder of results that is not a run. ``place`` is its path in the results folder.

    ``asked`` is the experiment and the preset that it answers; empty if of no experiment.
    """

    place: str
    kind: str
    title: str
    finding: str = ""
    paper: str = ""
    asked: tuple[str, str] = ("", "")
    record: StudyRecord | None = None
    damage: str = ""
    sections: tuple[Section, ...] = ()
    files: tuple[File, ...] = ()
    left_out: tuple[str, ...] = ()

    @property
    def id(self) -> str:
        """The name of its page."""
        return address(self.place)

    def ends(self, *kinds: str) -> list[File]:
        """Return its files of these kinds."""
        return [file for file in self.files if Path(file.name).suffix in kinds]

    @property
    def seeds(self) -> int:
        """Number of training seeds that it rests on."""
        return len({run.seed for run in self.record.runs}) if self.record else 0

    @property
    def pictures(self) -> list[File]:
        """One file a picture: the one with pixels where there are both, which is smaller."""
        drawn = {Path(file.name).stem for file in self.ends(".png")}
        return [*self.ends(".png"), *(file for file in self.ends(".svg") if Path(file.name).stem not in drawn)]


def every(roots: Mapping[str, Path], files: Path) -> Iterator[StudyPage]:
    """Yield the studies of results folders, each place once: that of the first folder that has it.

    ``files`` holds the experiments, which know their titles.
    """
    seen = set[str]()
    for root in roots.values():
        for folder in _folders(root):
            place = folder.relative_to(root).as_posix()
            if place not in seen:
                seen.add(place)
                yield read(folder, place, files)


def _folders(root: Path) -> Iterator[Path]:
    """The folders that hold a record, a table or pictures, in order of their names."""
    for top in sorted(path for path in root.glob("*") if path.is_dir() and path.name not in NOT_STUDIES):
        for folder in [top, *sorted(path for path in top.rglob("*") if path.is_dir())]:
            hidden = any(part.startswith(".") for part in folder.relative_to(root).parts)
            if not hidden and not folder.is_symlink() and any(_shown(path) for path in folder.iterdir()):
                yield folder


def _shown(path: Path) -> bool:
    return path.name == RECORD or (path.is_file() and path.suffix in (*PAGES, ".md", ".png"))


def read(folder: Path, place: str, files: Path) -> StudyPage:
    """Return a study; where its record is damaged, what the other files of the folder say."""
    damage, record = "", None
    try:
        record = study_folder.read(folder)
        if record is not None and record.files:
            list(study_folder.verified(folder, (".md",)))
    except RunFailed as reason:
        damage = str(reason).partition("; name another")[0]
    try:
        table = (folder / "table.md").read_text() if (folder / "table.md").exists() else ""
    except (OSError, UnicodeDecodeError) as reason:
        table, damage = "", damage or f"{folder / 'table.md'} cannot be read: {reason}"
    experiments = place.startswith("experiments/")
    asked = (folders.parts(folder.name) if experiments else None) or ("", "")
    title, paper = _experiment(asked[0], files) if asked[0] else ("", "")
    parts = sections(table.splitlines())
    head = next((part.title for part in parts if part.title), "") if table.startswith("#") else ""
    notes = [note for part in parts[:2] for note in part.notes]
    if parts and record is not None and record.kind in analyses.names() and len(parts[0].notes) > 1:
        notes = notes[1:]  # the first one has the task, the preset and the seeds
    copied, left = _files(folder, record)
    if damage:  # no number of it is shown, nor handed on, as if it were right
        copied, left, parts = [], [f"all: {damage}"], []
    return StudyPage(
        place=place,
        kind="experiment" if experiments else (record.kind if record else "study"),
        title=title or head or folder.name,
        finding="" if damage else _first(notes),
        paper=paper,
        asked=asked,
        record=record,
        damage=damage,
        sections=tuple(parts),
        files=tuple(copied),
        left_out=tuple(left),
    )


def _first(notes: list[str]) -> str:
    """Return the first sentences of a table's text: those that begin within ``LONGEST`` characters, each whole."""
    text = notes[0] if notes else ""
    found = re.match(rf".{{{LONGEST}}}.*?\.(?= [A-Z])", text)
    return found[0] if found else text


def _experiment(name: str, files: Path) -> tuple[str, str]:
    """The title and the paper of an experiment; nothing where its file is not there."""
    try:
        made = experiment.load(name, files)
    except LabError:  # of another version, or with a --name: then its own table has a title
        return "", ""
    return made.title, made.paper


def _files(folder: Path, record: StudyRecord | None) -> tuple[list[File], list[str]]:
    """The files that the site holds copies of, and why others are left out."""
    copied, left = [], []
    for path in sorted(folder.iterdir()):
        if path.name.startswith(".") or path.suffix not in SHOWN or path.is_dir():
            continue
        if path.is_symlink():
            left.append(f"{path.name}: a link")
            continue
        size = path.stat().st_size
        if record is not None and not study_folder.as_written(path, record):
            left.append(f"{path.name}: not as it was written")
        elif size > LARGEST:
            left.append(f"{path.name}: {size / 2**20:.0f} MiB")
        else:
            # Commands that look for studies in a results folder must not find copies.
            copied.append(File(path, "record.json" if path.name == RECORD else path.name, size))
    return copied, left
