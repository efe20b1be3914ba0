"""Files that appear whole or not at all, and the folder of a study: numbers and text, and figures in every kind."""

import os
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from icl_lab.errors import RunFailed

if TYPE_CHECKING:
    from matplotlib.figure import Figure

KINDS = ("png", "svg")  # what figures are published as


def publish(path: Path, data: bytes) -> None:
    """Writes a file so that nobody ever sees a part of it: beside its place, to the disk, then moved."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=path.parent, prefix=f".{path.name}-", delete=False) as file:
        try:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
            # Temporary files are private; results are for everyone the folder's owner lets in.
            os.chmod(file.name, 0o666 & ~_umask())
            os.replace(file.name, path)
        except BaseException:
            Path(file.name).unlink(missing_ok=True)
            raise


def write(path: Path, data: bytes) -> None:
    """Publishes a file; raises ``RunFailed`` where it cannot be written."""
    try:
        publish(path, data)
    except OSError as error:
        raise RunFailed(f"{path} cannot be written: {error.strerror or error}.") from error


def publish_folder(
    folder: Path,
    files: Mapping[str, str | bytes],
    figures: Mapping[str, "Figure"],
    kinds: Sequence[str] = KINDS,
) -> list[str]:
    """Writes files and figures, and returns their names in order.

    All are written beside their places first and moved there together, so that a full disk changes nothing. Raises
    ``RunFailed`` where the folder cannot be written.
    """
    from icl_lab.figures.base import encode

    data = {name: content.encode() if isinstance(content, str) else content for name, content in files.items()}
    data |= {f"{name}.{kind}": encode(figure, kind) for name, figure in figures.items() for kind in kinds}
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder, prefix=".staged-") as staged:
            for name, content in data.items():
                publish(Path(staged) / name, content)
            for name in data:
                os.replace(Path(staged) / name, folder / name)
    except OSError as error:
        raise RunFailed(f"{folder} cannot be written: {error.strerror or error}.") from error
    return list(data)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
