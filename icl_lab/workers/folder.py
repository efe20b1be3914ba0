"""The folder of a run as a set of files: what of it travels, and in which order."""

from collections.abc import Iterator
from pathlib import Path

from icl_lab.runs.checkpoints import NAMES

PICTURES = (".png", ".svg")
LAST = ("model.safetensors", "grid.csv")  # their presence says that what was written before them is whole
CHECKPOINT, BEFORE = NAMES


def names(folder: Path) -> Iterator[str]:
    """Yields the files of a run relative to its folder, in the order in which they were written.

    Hidden files and pictures are left out.
    """
    found = []
    for path in folder.rglob("*"):
        inner = path.relative_to(folder)
        hidden = any(part.startswith(".") for part in inner.parts)
        if not hidden and path.suffix not in PICTURES and path.is_file():
            found.append((path.name in LAST, path.stat().st_mtime_ns, inner.as_posix()))
    yield from (name for _, _, name in sorted(found))
