"""Parts from outside on their way to a worker that shares no file system: the files of ``--import``, as they are."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from icl_lab import outside
from icl_lab.errors import BadValue
from icl_lab.files import publish
from icl_lab.import_target import is_path
from icl_lab.workers.protocol import Message, inside

MOST = 64 * 2**20  # bytes of a folder that is imported


def parcels() -> Iterator[tuple[str, bytes, Mapping[str, Any]]]:
    """Yields every file of what was imported by a path; modules by name have to be installed where the worker is.

    Raises ``BadValue`` where a folder is too large to be sent.
    """
    for number, source in enumerate(outside.loaded()):
        if is_path(source.target):
            yield from ((name, data, {"import": number}) for name, data in _files(Path(source.target)))


def unpack(orders: Sequence[Mapping[str, Any]], files: Sequence[Message], root: Path) -> list[dict[str, Any]]:
    """Writes the files that came for imports below ``root``, and returns the orders with the paths they have there."""
    for message in files:
        publish(root / str(int(message.told["import"])) / inside(message.told["file"]), message.data)
    return [
        {**order, "target": str(root / str(number) / Path(order["target"]).name)}
        if is_path(order["target"])
        else dict(order)
        for number, order in enumerate(orders)
    ]


def _files(path: Path) -> Iterator[tuple[str, bytes]]:
    if path.is_file():
        yield path.name, path.read_bytes()
        return
    inner = [each for each in sorted(path.rglob("*")) if each.is_file() and _wanted(each.relative_to(path))]
    if sum(each.stat().st_size for each in inner) > MOST:
        raise BadValue(f"--import {path}: more than {MOST >> 20} MiB, too much to be sent to every worker.")
    for each in inner:
        yield each.relative_to(path.parent).as_posix(), each.read_bytes()


def _wanted(inner: Path) -> bool:
    return not any(part.startswith(".") or part == "__pycache__" for part in inner.parts)
