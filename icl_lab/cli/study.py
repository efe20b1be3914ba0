"""Folder of a study that a command computes itself: checked before anything is, and written with its table after."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from icl_lab.base import markdown as md
from icl_lab.cli.options import tell_files
from icl_lab.cli.output import out
from icl_lab.execute.where import Where
from icl_lab.runs import study_folder
from icl_lab.runs.evidence.archive import own_studies
from icl_lab.runs.study_folder import StudyRecord


def begin(kind: str, options: Mapping[str, Any], name: str, where: Where) -> tuple[StudyRecord, Path]:
    """Return record and folder of a study, by default ``name`` and its hash.

    Raises ``BadValue`` where that folder holds another study.
    """
    record = StudyRecord.of(kind, options, {}, where.reporter.command)
    chosen = where.name or f"{name}-{record.hash}"
    return record, study_folder.place(record, own_studies(where.root), chosen, force=where.force)


def write(
    record: StudyRecord,
    folder: Path,
    lines: Sequence[str],
    files: Mapping[str, str | bytes],
    figures: Mapping[str, Any],
    page: str = "",
) -> None:
    """Write and print a study: its files and figures, and the lines of its table; ``page`` is what to open next."""
    text = "\n".join([*lines, f"Made by {md.code(record.command)}.", ""])
    out(text)
    names = study_folder.publish(record, folder, {**files, "table.md": text}, figures)
    tell_files(folder, names, page)
