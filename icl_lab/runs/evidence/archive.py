"""Archive of the repository's finished runs as Parquet tables, read where the user has none.

    results/evidence/index.json          the parts, their runs, and a checksum of every file; sealed by its own
    results/evidence/current.csv         the part that counts of each run, for queries that read all parts
    results/evidence/<part>/             tables of some runs (see ``tables.py``), and weights of few
    results/evidence/README.md           what each column means

A part is never rewritten: runs that are added form a new part, named ``<number>-<checksum>``. Where two parts hold a
run, the later one counts. A run is named as its folder is, ``<task>/<attn>/<preset>-<hash>/seed-<k>``.
"""

import csv
import io
import json
import os
import re
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from filelock import FileLock

from icl_lab.base import foreign
from icl_lab.base.errors import BadValue, RunFailed
from icl_lab.base.files import checkout_hint, data_folder, publish, sha256, write, writing
from icl_lab.base.progress import Tick, counted, silent
from icl_lab.base.version import PACKAGE, VERSION
from icl_lab.runs.manifest import BUILT_IN, MADE_BY, MEASURED_BY, OUTSIDE

if TYPE_CHECKING:
    import numpy as np

    from icl_lab.runs.evidence.tables import Tables

INDEX, CURRENT, LOCK, ADDING = "index.json", "current.csv", ".lock", ".adding"
OWN = "own"
WEIGHTS = "model.safetensors"
VARIABLE = "ICL_LAB_EVIDENCE"
PLACE = Path("results") / "evidence"
SEEDS = re.compile(r"[0-9]{1,10}(-[0-9]{1,10})?(,[0-9]{1,10}(-[0-9]{1,10})?)*")
MOST_RUNS = 10**6  # of a part


class PartFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One file of a part: its SHA-256, and the rows of a table."""

    sha256: str
    rows: int = 0


class ArchivePart(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One part: its folder, its runs (``<task>/<attn>/<preset>-<hash>`` -> seeds as ``0-2,5``), and its files.

    ``content`` is the SHA-256 over the checksums of all files of all runs: the same for the same runs, whatever version
    of a library wrote the tables.
    """

    name: str
    content: str
    runs: dict[str, str]
    files: dict[str, PartFile]


@dataclass(frozen=True)
class ArchivedRun:
    """One run of the archive: its files by their names below the run's folder; it has none where it is not held."""

    archive: "Archive"
    key: str

    @property
    def path(self) -> Path:
        """The folder of the part that holds the run; the archive's where none does."""
        return self.archive.root / (self._part.name if self._part is not None else "")

    @property
    def names(self) -> frozenset[str]:
        """The files that are held."""
        if (part := self._part) is None:
            return frozenset()
        return frozenset(name for name in (WEIGHTS, *_tables(self.archive.root, part).stamps(self.key)) if name in self)

    def __contains__(self, name: str) -> bool:
        if (part := self._part) is None:
            return False
        if name == WEIGHTS:
            return _weights(self.key) in part.files
        return name in _tables(self.archive.root, part).stamps(self.key)

    def find(self, name: str) -> bytes | None:
        """Return a file, checked against its checksum; None where it is not held."""
        if (part := self._part) is None or name not in self:
            return None
        if name == WEIGHTS:
            return _checked(self.path / _weights(self.key), part.files[_weights(self.key)])
        return _tables(self.archive.root, part).read(self.key, name)

    def checksum(self, name: str) -> str | None:
        """Return the SHA-256 that a file has once it is put together; None where it is not held."""
        if (part := self._part) is None or name not in self:
            return None
        if name == WEIGHTS:
            return part.files[_weights(self.key)].sha256
        return _tables(self.archive.root, part).stamps(self.key)[name][1]

    def cells(self, name: str) -> dict[str, Any] | None:
        """Return the columns of a grid without putting its file together; None where there is no table of it."""
        part = self._part
        return None if part is None or name not in self else _tables(self.archive.root, part).cells(self.key, name)

    def prompts(self, name: str) -> "tuple[np.ndarray, dict[str, np.ndarray]] | None":
        """Return errors (cells, prompts) of single prompts and their labels by axis, in the same way."""
        part = self._part
        return None if part is None or name not in self else _tables(self.archive.root, part).prompts(self.key, name)

    def files(self) -> dict[str, bytes]:
        """Return every file of the run."""
        return {name: data for name in sorted(self.names) if (data := self.find(name)) is not None}

    @property
    def misfits(self) -> frozenset[str]:
        """The files that fit no table of the part and are kept as they are."""
        return frozenset() if self._part is None else _tables(self.archive.root, self._part).misfits(self.key)

    @property
    def recorded(self) -> bool:
        """True if it may say what code made it, in ``env.json`` or of its tests."""
        env = self.find("env.json") or b""
        named = any(f'"{name}"'.encode() in env for name in (MADE_BY, OUTSIDE, BUILT_IN))
        return named or any(name.endswith(MEASURED_BY) for name in self.names)

    def versions(self, name: str) -> Iterator[bytes]:
        """Yield a file of the run as each part holds it, in the order of the parts: the last counts."""
        for part in _index(self.archive.root).holders.get(self.key, ()):
            tables = _tables(self.archive.root, part)
            if name in tables.stamps(self.key):
                yield tables.read(self.key, name)

    def siblings(self) -> "list[ArchivedRun]":
        """Return the runs of the same normalizer and seed, and a task of the same name, whatever its options."""
        task, normalizer, _, seed = self.key.split("/")
        name, specs = task.partition("-")[0], sorted(_index(self.archive.root).specs)
        alike = (spec for spec in specs if spec.startswith(name) and spec.split("/")[1] == normalizer)
        return [run for spec in alike if (run := self.archive.run(f"{spec}/{seed}")) is not None]

    @cached_property  # to look whether the index has changed takes longer than all else that a list asks of a run
    def _part(self) -> ArchivePart | None:
        held_by = _index(self.archive.root).holders.get(self.key)
        return held_by[-1] if held_by else None


@dataclass(frozen=True)
class Archive:
    """A folder of archived runs."""

    root: Path

    @classmethod
    def find(cls) -> "Archive | None":
        """Return the evidence that is there: of ``ICL_LAB_EVIDENCE``, this folder, the package's checkout, or fetched.

        None where there is none, or where the variable is empty. Raises ``BadValue`` where the variable names no
        folder.
        """
        named = os.environ.get(VARIABLE)
        if named is not None:
            if named and not Path(named).is_dir():
                raise BadValue(f"{VARIABLE} names '{named}', which is no folder; leave it empty for no evidence.")
            return cls(Path(named)) if named else None
        here = (PLACE, PACKAGE.parent / PLACE, fetched())
        return next((cls(path) for path in here if path.is_dir()), None)

    @property
    def parts(self) -> tuple[ArchivePart, ...]:
        """The parts that the index names, in the order in which they were added.

        Raises ``RunFailed`` where parts have no index, or it is damaged or edited.
        """
        return _index(self.root).parts

    def run(self, key: str) -> ArchivedRun | None:
        """Return a run; None where it is not held."""
        return ArchivedRun(self, key) if key in _index(self.root).holders else None

    def seeds(self, spec: str) -> list[int]:
        """Return the seeds that are held of ``<task>/<attn>/<preset>-<hash>``, in order."""
        return sorted(_index(self.root).specs.get(spec, ()))

    def runs(self) -> Iterator[ArchivedRun]:
        """Yield every run, ordered ``by_number``."""
        yield from (ArchivedRun(self, key) for key in sorted(_index(self.root).holders, key=by_number))

    def verify(self, tick: Tick = silent) -> tuple[int, int, list[str]]:
        """Read everything; return the number of runs and files that are whole, and a line for each damage."""
        try:
            index = _index(self.root)
        except RunFailed as damage:
            return 0, 0, [str(damage)]
        damages = [f"{path} is no part of the evidence: {INDEX} does not name it." for path in self._foreign()]
        table = self.root / CURRENT
        if table.exists() and table.read_bytes() != _current(index):
            damages.append(f"{table} names other parts than {INDEX} says; {checkout_hint(table)}")
        runs = files = 0
        _read_tables.cache_clear()  # from the disk, not from memory
        for part in counted(index.parts, "checking evidence", tick):
            try:
                for name, file in part.files.items():
                    _checked(self.root / part.name / name, file)
                tables = _tables(self.root, part)
                if tables.content() != part.content:
                    raise _other_runs(self.root / part.name)
                for key in tables.keys:
                    stamps = tables.stamps(key)
                    for name in stamps:
                        tables.read(key, name)
                    held = index.holders[key][-1] is part
                    runs, files = runs + held, files + (len(stamps) + (_weights(key) in part.files)) * held
            except RunFailed as damage:
                damages.append(str(damage))
        return runs, files, damages

    def add(self, runs: Mapping[str, Mapping[str, bytes]], *, replace: bool = False) -> list[str]:
        """Add runs, by key and then by file, as a new part; return the keys that changed anything.

        A file that is there with the same content changes nothing, unless it was kept as it is and fits a table now.
        With ``replace`` a run that is held counts no more. Raises ``RunFailed`` before anything is written where a run
        is held with other content.
        """
        if not os.access(self.root if self.root.exists() else self.root.parent, os.W_OK):
            raise RunFailed(f"{self.root} cannot be written.")
        self.root.mkdir(parents=True, exist_ok=True)
        with FileLock(self.root / LOCK):
            self._remove_unfinished()
            changed = self.changed_by(runs, replace=replace)
            if changed:
                held = {key: {} if replace else ArchivedRun(self, key).files() for key in changed}
                self._write_part({key: held[key] | _news(runs[key], held[key]) for key in changed})
            write(self.root / CURRENT, _current(_index(self.root)))
        return changed

    def changed_by(self, runs: Mapping[str, Mapping[str, bytes]], *, replace: bool = False) -> list[str]:
        """Return the keys of runs that ``add`` would write.

        Raises ``RunFailed`` with all that are held with other content.
        """
        from icl_lab.runs.evidence.tables import agree, misfits

        held = {key: ArchivedRun(self, key).files() for key in runs}
        other = {
            key: [name for name in sorted(set(files) & set(held[key])) if not agree(name, held[key][name], files[name])]
            for key, files in runs.items()
        }
        if any(other.values()) and not replace:
            against = (f"{key} is in the evidence already with another {', '.join(n)}" for key, n in other.items() if n)
            raise RunFailed(f"{'; '.join(against)}; --replace puts yours in its place.")
        unfit = {} if replace else {key: names for key in runs if (names := ArchivedRun(self, key).misfits)}
        fit_now = {key for key, names in unfit.items() if names - misfits({key: held[key]})[key]}
        return [key for key, files in runs.items() if other[key] or key in fit_now or _news(files, held[key])]

    def _write_part(self, runs: Mapping[str, Mapping[str, bytes]]) -> None:
        """Write a part to a temporary folder, move it to its place and add it to the index, in this order."""
        from icl_lab.runs.evidence.tables import content_of, encoded, rows_of

        weights = {_weights(key): files[WEIGHTS] for key, files in runs.items() if WEIGHTS in files}
        tabled = {key: {n: d for n, d in files.items() if n != WEIGHTS} for key, files in runs.items()}
        before, content, files = self.parts, content_of(tabled), encoded(tabled) | weights
        part = ArchivePart(
            f"{len(before) + 1:04d}-{content[:8]}",
            content,
            _seeds_of(runs),
            {each: PartFile(sha256(data), rows_of(each, data)) for each, data in files.items()},
        )
        if (self.root / part.name).exists():
            raise RunFailed(f"{self.root / part.name} is there already, and {INDEX} does not name it; move it away.")
        with writing(self.root):
            staged = Path(tempfile.mkdtemp(dir=self.root, prefix=ADDING))
            try:
                (staged / ADDING).touch()
                for each, data in files.items():
                    publish(staged / each, data)
                staged.chmod(0o755)
                staged.rename(self.root / part.name)
                _write_index(self.root, [*before, part])
            except BaseException:  # Ctrl-C too
                shutil.rmtree(staged, ignore_errors=True)
                self._remove_unfinished()
                raise
            (self.root / part.name / ADDING).unlink()

    def _foreign(self) -> list[Path]:
        """Folders and tables in the root that the index does not name."""
        parts = {self.root / part.name: part for part in self.parts}
        found = [path for path in sorted(self.root.iterdir()) if path.is_dir() and path not in parts]
        for folder, part in parts.items():
            inside = (path for path in sorted(folder.rglob("*")) if path.is_file())
            found += [path for path in inside if path.relative_to(folder).as_posix() not in part.files]
        return [*found, *sorted(self.root.glob("*.parquet"))]

    def _remove_unfinished(self) -> None:
        """Remove what an addition that was interrupted has left."""
        named = {part.name for part in self.parts}
        for place in {*self.root.glob(f"{ADDING}*"), *(mark.parent for mark in self.root.glob(f"*/{ADDING}"))}:
            if place.name in named:
                (place / ADDING).unlink()
            else:
                shutil.rmtree(place)


def _news(files: Mapping[str, bytes], held: Mapping[str, bytes]) -> dict[str, bytes]:
    """The files that a held run lacks, and those that say more than its own."""
    from icl_lab.runs.evidence.tables import adds

    return {name: data for name, data in files.items() if name not in held or adds(name, held[name], data)}


@dataclass(frozen=True)
class _Index:
    """The index as it was read: parts, those that hold each run (the last counts), the seeds of each specification."""

    parts: tuple[ArchivePart, ...]
    holders: dict[str, list[ArchivePart]]
    specs: dict[str, set[int]]


def _index(root: Path) -> _Index:
    path = root / INDEX
    try:
        state = path.stat()
    except FileNotFoundError:
        if any(not (path.parent / ADDING).exists() for path in root.glob("*/*.parquet")):
            raise RunFailed(f"{path} is missing; {checkout_hint(path)}") from None
        return _Index((), {}, {})
    except OSError as error:
        raise RunFailed(f"{path} cannot be read: {error.strerror or error}.") from error
    return _read_index(path, state.st_mtime_ns, state.st_size, state.st_ino)


@lru_cache(maxsize=64)
def _read_index(path: Path, *state: int) -> _Index:
    try:
        parts = sealed(foreign.read(path, foreign.MOST_TEXT))
    except (OSError, ValueError):
        raise RunFailed(f"{path} is damaged or edited; {checkout_hint(path)}") from None
    _check_names(path, parts)
    holders, specs = dict[str, list[ArchivePart]](), dict[str, set[int]]()
    for part in parts:
        for spec, text in part.runs.items():
            seeds = [seed for span in _spans(text) for seed in span]
            specs.setdefault(spec, set()).update(seeds)
            for seed in seeds:
                holders.setdefault(f"{spec}/seed-{seed}", []).append(part)
    return _Index(parts, holders, specs)


def sealed(index: bytes) -> tuple[ArchivePart, ...]:
    """Return the parts that an index names; raises ``ValueError`` where it is damaged or edited."""
    try:
        fields = json.loads(foreign.shallow(index))
        parts = msgspec.convert(fields["parts"], tuple[ArchivePart, ...])
        sound = fields["seal"] == _seal(parts)
    except (KeyError, TypeError, msgspec.ValidationError):
        sound, parts = False, ()
    if not sound:
        raise ValueError(f"{INDEX} is damaged or edited")
    return parts


def _current(index: _Index) -> bytes:
    """Table of the runs, each with the part that counts: rows of it in other parts are old."""
    text = io.StringIO()
    rows = ((key, parts[-1].name) for key, parts in sorted(index.holders.items()))
    csv.writer(text, lineterminator="\n").writerows([("key", "part"), *rows])
    return text.getvalue().encode()


def _check_names(path: Path, parts: Iterable[ArchivePart]) -> None:
    """Raise ``RunFailed`` where an index has an invalid name of a part, run, seed or file."""
    for part in parts:
        wrong = [] if foreign.is_plain(part.name) else [part.name]
        wrong += [spec for spec in part.runs if not foreign.is_key(f"{spec}/seed-0")]
        wrong += [seeds for seeds in part.runs.values() if not SEEDS.fullmatch(seeds)]
        wrong += [name for name in part.files if not (_is_table(name) or _is_weights(name))]
        if not wrong and sum(len(span) for seeds in part.runs.values() for span in _spans(seeds)) > MOST_RUNS:
            wrong = [f"more than {MOST_RUNS:,} runs"]
        if wrong:
            said = f"{wrong[0]!r}, which is no part, run or file of an archive"
            raise RunFailed(f"{path} names {said}; {checkout_hint(path)}")


def _write_index(root: Path, parts: list[ArchivePart]) -> None:
    fields: dict[str, Any] = {"parts": msgspec.to_builtins(parts), "seal": _seal(parts)}
    write(root / INDEX, (json.dumps(fields, indent=1, sort_keys=True) + "\n").encode())


def _seal(parts: Iterable[ArchivePart]) -> str:
    return sha256(json.dumps(msgspec.to_builtins(list(parts)), sort_keys=True).encode())


def _seeds_of(keys: Iterable[str]) -> dict[str, str]:
    """Keys of runs -> the seeds of each specification, as ``0-2,5``."""
    found = dict[str, list[int]]()
    for key in keys:
        spec, _, seed = key.rpartition("/seed-")
        found.setdefault(spec, []).append(int(seed))
    return {spec: _compressed(sorted(seeds)) for spec, seeds in sorted(found.items())}


def _compressed(seeds: list[int]) -> str:
    spans = list[list[int]]()
    for seed in seeds:
        if spans and seed == spans[-1][1] + 1:
            spans[-1][1] = seed
        else:
            spans.append([seed, seed])
    return ",".join(f"{low}" if low == high else f"{low}-{high}" for low, high in spans)


def _spans(text: str) -> list[range]:
    ends = (span.split("-") for span in text.split(","))
    return [range(int(each[0]), int(each[-1]) + 1) for each in ends]


def _weights(key: str) -> str:
    return f"weights/{key}.safetensors"


def _is_weights(name: str) -> bool:
    key = name.removeprefix("weights/").removesuffix(".safetensors")
    return foreign.is_key(key) and name == _weights(key)


def _is_table(name: str) -> bool:
    return foreign.is_plain(name) and name.endswith(".parquet")


def _checked(path: Path, file: PartFile) -> bytes:
    """Return a file of a part; raises ``RunFailed`` where it is missing or has another checksum."""
    try:
        data = foreign.read(path)
    except OSError as error:
        raise RunFailed(f"{path} cannot be read: {error.strerror or error}; {checkout_hint(path)}") from error
    if sha256(data) != file.sha256:
        raise RunFailed(f"{path} is damaged (it has another checksum); {checkout_hint(path)}")
    return data


def _tables(root: Path, part: ArchivePart) -> "Tables":
    """Tables of a part, each read once per process, with the checksum that the index names."""
    return _read_tables(root, part.name, part.content)


@lru_cache(maxsize=64)
def _read_tables(root: Path, name: str, content: str) -> "Tables":
    from icl_lab.runs.evidence.tables import Tables

    part = next(part for part in _index(root).parts if part.name == name)
    tables = Tables(
        root / name,
        {file: each.rows for file, each in part.files.items()},
        lambda file: _checked(root / name / file, part.files[file]),
    )
    if _seeds_of(tables.keys) != part.runs:
        raise _other_runs(root / name)
    return tables


def _other_runs(folder: Path) -> RunFailed:
    return RunFailed(f"{folder} is damaged: it holds other runs than {INDEX} says.")


def fetched() -> Path:
    """Folder of the evidence that ``icl-lab evidence fetch`` brings; studies and findings are in the folder above."""
    return data_folder() / VERSION / PLACE.name


def own_studies(results: Path) -> Path:
    """Return the folder of the user's own studies: in the repository's results ``results/own``, elsewhere the same.

    What the repository publishes is never written over by a command.
    """
    return results / OWN if published(results) else results


def published(results: Path) -> bool:
    """True if these are the repository's results, with its evidence in them."""
    return (results / "evidence" / INDEX).exists()


def own_place(folder: Path, results: Path) -> Path:
    """Return where a study is written again: in place, and a study of the repository's under its name in its ``own``.

    A folder in other results than these is found by the evidence above it.
    """
    for root in (results, *folder.parents):
        if published(root) and folder.resolve().is_relative_to(root.resolve()):
            inside = folder.resolve().relative_to(root.resolve())
            return folder if inside.parts[:1] == (OWN,) else root / OWN / inside
    return folder


def by_number(folder: str) -> tuple[list[str], int, str]:
    """Sort key of runs: task, normalizer and specification, and seed 2 before seed 10."""
    *above, seed = folder.split("/")
    number = seed.rpartition("-")[2]
    return above, int(number) if number.isdecimal() else 0, seed


def choose(runs: Iterable[ArchivedRun], which: str) -> list[ArchivedRun]:
    """Return the runs of a task, a normalizer or a specification's hash, as folders are named; all for no word."""
    return [run for run in runs if not which or which in _words(run.key)]


def _words(key: str) -> set[str]:
    task, normalizer, spec, _ = key.split("/")
    return {task, normalizer, spec, spec.rpartition("-")[2], key, f"{task}/{normalizer}"}
