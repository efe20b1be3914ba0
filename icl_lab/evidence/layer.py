"""The evidence layer: the repository's runs, read where the user has none, and nothing that writes into it unasked.

    results/evidence/<task>/<rule>.pack        all runs of a rule
    results/evidence/<task>/references.pack    what the grids of the task have in common (see ``grids.py``)

A run is named as its folder is, ``<task>/<rule>/<preset>-<hash>/seed-<k>``. Nothing is unpacked to be read.
"""

import hashlib
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from filelock import FileLock

import icl_lab
from icl_lab.errors import BadValue, RunFailed
from icl_lab.evidence import grids
from icl_lab.evidence.archive import Archive, Part, pack, part
from icl_lab.files import write

SUFFIX, SHARED, GRID = ".pack", "references.pack", "grid.csv"
VARIABLE = "ICL_LAB_EVIDENCE"
PLACE = Path("results") / "evidence"


@dataclass(frozen=True)
class Kept:
    """One run as the evidence holds it: the names of its files, relative to the run's folder, and their bytes."""

    layer: "Layer"
    key: str
    names: frozenset[str]

    @property
    def path(self) -> Path:
        """The archive that holds the run."""
        return self.layer.archive_of(self.key)

    def __contains__(self, name: str) -> bool:
        return name in self.names

    def read(self, name: str) -> bytes:
        """Returns a file of the run; raises ``RunFailed`` if it is damaged and ``KeyError`` if it is not there."""
        return self.layer.read(self.key, name)

    def files(self) -> dict[str, bytes]:
        """Returns every file of the run."""
        return {name: self.read(name) for name in sorted(self.names)}


@dataclass(frozen=True)
class Layer:
    """A folder of evidence."""

    root: Path

    @classmethod
    def find(cls) -> "Layer | None":
        """Returns the evidence that is there: of ``ICL_LAB_EVIDENCE``, of this folder, or of the package's checkout.

        None where there is none, as beside an installed package, or where the variable is empty. Raises ``BadValue``
        where the variable names no folder.
        """
        named = os.environ.get(VARIABLE)
        if named is not None:
            if named and not Path(named).is_dir():
                raise BadValue(f"{VARIABLE} names '{named}', which is no folder; leave it empty for no evidence.")
            return cls(Path(named)) if named else None
        here = (PLACE, Path(icl_lab.__file__).parent.parent / PLACE)
        return next((cls(path) for path in here if path.is_dir()), None)

    def archive_of(self, key: str) -> Path:
        """Returns the path of the archive for a run's key."""
        task, rule, *_ = key.split("/")
        return self.root / task / f"{rule}{SUFFIX}"

    def run(self, key: str) -> Kept | None:
        """Returns a run; None where it is not held."""
        names = self._runs(self.archive_of(key)).get(key)
        return Kept(self, key, names) if names else None

    def seeds(self, spec: str) -> list[str]:
        """Returns the names ``seed-<k>`` that are held of ``<task>/<rule>/<preset>-<hash>``."""
        return [key.split("/")[3] for key in self._runs(self.archive_of(spec)) if key.startswith(f"{spec}/")]

    def siblings(self, key: str) -> list[Kept]:
        """Returns the runs of the same task, rule and seed as a run's key."""
        seed, held = key.split("/")[3], self._runs(self.archive_of(key))
        return [Kept(self, other, names) for other, names in sorted(held.items()) if other.split("/")[3] == seed]

    def runs(self) -> Iterator[Kept]:
        """Yields every run, ordered ``by_number``."""
        archives = (path for path in self.root.glob(f"*/*{SUFFIX}") if path.name != SHARED)
        held = [Kept(self, key, names) for path in archives for key, names in self._runs(path).items()]
        yield from sorted(held, key=lambda kept: by_number(kept.key))

    def read(self, key: str, name: str) -> bytes:
        """Returns one file of a run, checked against its size and checksum."""
        archive, inside = _open(self.archive_of(key)), f"{key.split('/', 2)[2]}/{name}"
        entry, data = archive.entries[inside], archive.content(inside)
        if entry.frame:
            data = grids.join(self._frame(key, entry.frame), data)
        if (len(data), hashlib.sha256(data).hexdigest()) != (entry.size, entry.sha256):
            raise archive.damaged(f"{inside} has another checksum")
        return data

    def stamp(self, key: str, name: str) -> tuple[int, str]:
        """Returns the size and the SHA-256 that a file of a run has once it is put together."""
        entry = _open(self.archive_of(key)).entries[f"{key.split('/', 2)[2]}/{name}"]
        return entry.size, entry.sha256

    def size(self, kept: Kept) -> int:
        """Returns the bytes that a run takes in its archive."""
        archive, inside = _open(kept.path), kept.key.split("/", 2)[2]
        return sum(archive.packed_size(f"{inside}/{name}") for name in kept.names)

    def verify(self) -> tuple[int, int, list[str]]:
        """Reads everything; returns the number of runs and files that are whole, and a line for each damage."""
        runs, files, damages = 0, 0, dict[str, None]()
        for path in sorted(self.root.glob(f"*/*{SUFFIX}")):
            try:
                archive = Archive(path)
                for name in archive.entries:
                    archive.content(name)
                if path.name == SHARED:
                    continue
                for key, names in self._runs(path).items():
                    runs, files = runs + 1, files + len(names)
                    Kept(self, key, names).files()
            except RunFailed as damage:
                damages[str(damage)] = None
        return runs, files, list(damages)

    def put(self, runs: Mapping[str, Mapping[str, bytes]], *, replace: bool = False) -> list[str]:
        """Takes runs in, by key and then by file; returns the keys that changed anything.

        A file that is there with the same bytes changes nothing. With ``replace`` the files of a run that is held are
        left out first. Raises ``RunFailed`` before anything is written where a run is held with other bytes.
        """
        if not os.access(self.root if self.root.exists() else self.root.parent, os.W_OK):
            raise RunFailed(f"{self.root} cannot be written.")
        self.root.mkdir(parents=True, exist_ok=True)
        with FileLock(self.root / ".lock"):
            changed = self.news(runs, replace=replace)
            for path in sorted({self.archive_of(key) for key in changed}):
                self._rewrite(path, {key: runs[key] for key in changed if self.archive_of(key) == path}, replace)
        return changed

    def news(self, runs: Mapping[str, Mapping[str, bytes]], *, replace: bool = False) -> list[str]:
        """Returns the keys of runs that ``put`` would take in.

        Raises ``RunFailed`` with all that are held with other bytes.
        """
        held = {key: kept for key in runs if (kept := self.run(key)) is not None}
        other = {
            key: [name for name in sorted(set(runs[key]) & kept.names) if kept.read(name) != runs[key][name]]
            for key, kept in held.items()
        }
        if any(other.values()) and not replace:
            against = (f"{key} is in the evidence already with another {', '.join(n)}" for key, n in other.items() if n)
            raise RunFailed(f"{'; '.join(against)}; --replace puts yours in its place.")
        return [key for key in runs if key not in held or other[key] or set(runs[key]) - held[key].names]

    def _rewrite(self, path: Path, runs: Mapping[str, Mapping[str, bytes]], replace: bool) -> None:
        parts = _open(path).parts() if path.exists() else {}
        shared = path.parent / SHARED
        frames = _open(shared).parts() if shared.exists() else {}
        for key, files in runs.items():
            inside = key.split("/", 2)[2]
            if replace:
                parts = {name: each for name, each in parts.items() if not name.startswith(f"{inside}/")}
            for name, data in files.items():
                parts[f"{inside}/{name}"] = _part(name, data, frames)
        # The frames first: an archive never names one that is not there.
        write(shared, pack(frames))
        write(path, pack(parts))

    def _frame(self, key: str, name: str) -> bytes:
        path = self.root / key.split("/")[0] / SHARED
        archive = _open(path)
        if f"{name}.txt" not in archive.entries:
            raise archive.damaged(f"the references {name} are missing")
        return archive.content(f"{name}.txt")

    def _runs(self, path: Path) -> dict[str, frozenset[str]]:
        if not path.exists():
            return {}
        return _members(_open(path), f"{path.parent.name}/{path.name.removesuffix(SUFFIX)}")


def _part(name: str, data: bytes, frames: dict[str, Part]) -> Part:
    """Returns a file as it is stored; what a grid shares with others goes to ``frames``."""
    pieces = grids.split(data) if Path(name).name == GRID else None
    if pieces is None:
        return part(data)
    frame, own = pieces
    digest = hashlib.sha256(frame).hexdigest()[:16]
    frames[f"{digest}.txt"] = part(frame)
    return part(data, own, digest)


def _open(path: Path) -> Archive:
    """Returns an archive; one that was read and has not changed since is not read again."""
    try:
        state = path.stat()
    except OSError as error:
        raise RunFailed(f"{path} cannot be read: {error.strerror or error}.") from error
    return _read(path, state.st_mtime_ns, state.st_size, state.st_ino)


@lru_cache(maxsize=256)
def _read(path: Path, *state: int) -> Archive:
    return Archive(path)


@lru_cache(maxsize=256)
def _members(archive: Archive, prefix: str) -> dict[str, frozenset[str]]:
    found = dict[str, set[str]]()
    for inside in archive.entries:
        spec, seed, name = inside.split("/", 2)
        found.setdefault(f"{prefix}/{spec}/{seed}", set()).add(name)
    return {key: frozenset(names) for key, names in found.items()}


def by_number(folder: str) -> tuple[list[str], int, str]:
    """What the folders of runs are ordered by: task, rule and specification, and seed 2 before seed 10."""
    *above, seed = folder.split("/")
    number = seed.rpartition("-")[2]
    return above, int(number) if number.isdecimal() else 0, seed


def choose(runs: Iterable[Kept], which: str) -> list[Kept]:
    """Returns the runs of a task, a rule or a specification's hash, as in the names of folders; all for no word."""
    return [kept for kept in runs if not which or which in _words(kept.key)]


def _words(key: str) -> set[str]:
    task, rule, spec, _ = key.split("/")
    return {task, rule, spec, spec.rpartition("-")[2], key, f"{task}/{rule}"}
