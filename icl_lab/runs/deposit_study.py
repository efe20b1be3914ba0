"""Deposit of a study: its numbers and tables are kept. Pages and pictures are drawn again when wanted."""

import lzma
from collections.abc import Mapping
from pathlib import Path

import msgspec

from icl_lab.errors import RunFailed
from icl_lab.files import PACKED, replace_folder
from icl_lab.runs import study_folder
from icl_lab.runs.study_folder import RECORD, StudyRecord

SHOWN = (".md",)  # that are kept beside the numbers
LARGE = 60_000  # bytes from which a table is kept compressed


def files(folder: Path) -> dict[str, bytes]:
    """Returns the files of a study as they are kept, by their names.

    Raises ``RunFailed`` where a file is not the one that the record was written with, or a folder has no record.
    """
    kept = {}
    for path in study_folder.verified(folder, SHOWN):
        data = path.read_bytes()
        if path.suffix == ".csv" and len(data) > LARGE:
            kept[f"{path.name}{PACKED}"] = lzma.compress(data, preset=9 | lzma.PRESET_EXTREME)
        else:
            kept[path.name] = data
    return {RECORD: (folder / RECORD).read_bytes(), **kept}


def news(found: Mapping[Path, Mapping[str, bytes]], *, replace: bool = False) -> list[Path]:
    """Returns which of the folders ``put`` would write: those that do not hold these very studies.

    Raises ``RunFailed`` with all that hold another study, of which something would be lost; ``replace`` allows it.
    """
    changed, lost = [], []
    for place, data in found.items():
        if (place / RECORD).exists() and (place / RECORD).read_bytes() == data[RECORD]:
            continue
        changed.append(place)
        if not (replace or _whole(place, data)):
            lost.append(str(place))
    if lost:
        raise RunFailed(f"{', '.join(lost)}: another study is kept there; --replace puts yours in its place.")
    return changed


def put(found: Mapping[Path, Mapping[str, bytes]], *, replace: bool = False) -> list[Path]:
    """Writes studies into their folders, each in one step, and returns those that changed; see ``news``."""
    changed = news(found, replace=replace)
    for place in changed:
        before = {path.name for path in place.iterdir()} if place.exists() else set[str]()
        replace_folder(place, found[place], ours=before)
    return changed


def _whole(place: Path, data: Mapping[str, bytes]) -> bool:
    """True if a folder holds nothing but a part of the study with these files."""
    return study_folder.free(place, msgspec.json.decode(data[RECORD], type=StudyRecord))
