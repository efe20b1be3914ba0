"""Files of experiments: their folder, their names and titles. Loads no torch."""

from pathlib import Path
from typing import TypeVar

import msgspec

from icl_lab.base import foreign
from icl_lab.base.errors import BadValue, UnknownName
from icl_lab.base.registry import require
from icl_lab.base.version import PACKAGE

# In a wheel they lie inside the package (see pyproject.toml), in the repository beside it.
SHIPPED = [place / "experiments" for place in (PACKAGE, PACKAGE.parent)]
BYTES = 1_000_000  # of a file
Fields = TypeVar("Fields")


class Statement(msgspec.Struct, frozen=True):
    """Statement of a claim, the place of it in a paper, and the printed words."""

    statement: str = ""
    where: str = ""
    published: str = ""


class Titled(msgspec.Struct, frozen=True):
    """Title, paper and claims of an experiment file; its other fields are not looked at."""

    title: str
    paper: str = ""
    claims: list[Statement] = []


def place(folder: Path) -> Path:
    """Return the folder of experiments: the one asked for, or, where it is not there, those that came with icl_lab.

    In the repository that is ``experiments``; installed elsewhere the files lie inside the package.
    """
    if folder != Path("experiments") or folder.is_dir():
        return folder
    return next((place for place in SHIPPED if place.is_dir()), folder)


def names(folder: Path) -> list[str]:
    """Return the names of the experiments in a folder, sorted."""
    return sorted(path.stem for path in folder.glob("*.toml"))


def path_of(name: str, folder: Path) -> Path:
    """Return the file of an experiment, named in ``folder`` or by its own path."""
    return Path(name) if name.endswith(".toml") else folder / f"{name}.toml"


def decoded(name: str, folder: Path, kind: type[Fields]) -> tuple[Fields, bytes]:
    """Return the fields of an experiment's file, and its bytes.

    Raises ``UnknownName`` with what exists, and ``BadValue`` with the field where a file is wrong.
    """
    path = path_of(name, folder)
    try:
        if not path.is_file():
            raise UnknownName("experiment", name, names(folder))
        require(path.stat().st_size <= BYTES, f"{path}: an experiment has at most {BYTES:,} bytes", path.stat().st_size)
        data = foreign.read(path)
        return msgspec.toml.decode(foreign.shallow(data), type=kind), data
    except (msgspec.DecodeError, ValueError) as error:  # the latter: the encoding, or a number of thousands of digits
        raise BadValue(f"{path}: {error}.") from None
    except OSError as error:
        raise BadValue(f"{path}: {error.strerror or error}.") from None


def titled(folder: Path) -> dict[str, Titled]:
    """Return title, paper and claims of each experiment in a folder by its name, sorted."""
    return {name: decoded(name, folder, Titled)[0] for name in names(folder)}
