"""The folder of a study: named by the question and the runs, so that no study overwrites another.

``study.json`` in the folder says what made it: the kind of study, its options, its runs, the command and the commit.
"""

import json
import lzma
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from filelock import FileLock

from icl_lab.base import foreign
from icl_lab.base.errors import BadValue, RunFailed
from icl_lab.base.files import PACKED, cut_short, present, reading, replace_folder, restore_folder, sha256, writing
from icl_lab.base.registry import filename

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from icl_lab.runs.run import Run
    from icl_lab.runs.store import Store

RECORD = "study.json"
NUMBERS = (".csv", ".json", ".safetensors")
# Folders that others write.
TAKEN = (
    *("runs", "evidence", "experiments", "bench", "costs", "functions"),
    *("torture", "finetuned", "benchmarks", "tracked"),
)
UNPACKED = 2**30  # bytes of a compressed table, once it is unpacked
LONGEST = 200  # bytes of a name: other files are named after it


class Member(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One run of a study: the label of its group, and what finds it in a store."""

    label: str
    task: str
    attn: str
    preset: str
    spec: str
    seed: int
    swap: str = ""

    @classmethod
    def of(cls, label: str, run: "Run") -> "Member":
        """Return a run as a record names it, under this label."""
        spec = run.spec
        return cls(label, spec.task, spec.attn, spec.preset, spec.hash, run.seed, run.swap)

    @property
    def key(self) -> str:
        """Name inside its study."""
        return f"{self.label}, seed {self.seed}"


class StudyRecord(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Record of a study: kind, options and runs decide its identity; command, commit and time say what made it."""

    kind: str
    options: dict[str, Any]
    runs: list[Member]
    command: str = ""
    commit: str = ""
    machine: str = ""
    source: str = ""  # of an experiment: the sha256 of the file that asked for it
    files: dict[str, str] = {}  # every file of the folder, as it was written: its name and its sha256
    asked: dict[str, str] = {}  # of an analysis: runs whose numbers an earlier command found -> its commit
    code: str = ""  # of an analysis: the hash of its code; empty in records from before it was kept
    seal: str = ""  # the sha256 of all this, without the seal; empty in records from before there were seals

    @classmethod
    def of(
        cls, kind: str, options: Mapping[str, Any], groups: Mapping[str, Sequence["Run"]], command: str
    ) -> "StudyRecord":
        """Describe a study of these runs, made now and here."""
        from icl_lab.runs import environment  # and torch with it, which readers of studies do without

        members = [Member.of(label, run) for label, runs in groups.items() for run in runs]
        plain = json.loads(json.dumps(dict(options), default=list))
        return cls(kind, plain, members, command, environment.commit(), environment.machine_class())

    @property
    def hash(self) -> str:
        """Six hexadecimal digits: equal for the same question to the same runs, whatever the command looked like."""
        identity = [self.kind, self.options, [msgspec.to_builtins(member) for member in self.runs]]
        return sha256(json.dumps(identity, sort_keys=True).encode())[:6]

    def contains(self, other: "StudyRecord") -> bool:
        """True if this is the same question, asked of the same runs and perhaps of more: then nothing of it is lost."""
        return (self.kind, self.options) == (other.kind, other.options) and set(other.runs) <= set(self.runs)

    def usual_name(self, tag: str = "") -> str:
        """Return ``KIND-TASK-PRESET[-TAG]-HASH``."""
        first = self.runs[0]
        return "-".join(filter(None, [self.kind, filename(first.task), first.preset, tag, self.hash]))

    def sealed(self, files: Mapping[str, bytes]) -> "StudyRecord":
        """Return the record of a folder with these files: their checksums, and its own."""
        return self._sealed({name: sha256(content) for name, content in files.items()})

    def _sealed(self, sums: Mapping[str, str]) -> "StudyRecord":
        made = msgspec.structs.replace(self, files=dict(sums), seal="")
        return msgspec.structs.replace(made, seal=sha256(made.json()))

    @property
    def numbers(self) -> str:
        """SHA-256 of what claims can be read from: the record without its texts, its pictures and the seal."""
        return self._sealed({name: sum for name, sum in self.files.items() if _holds_numbers(name)}).seal

    def json(self) -> bytes:
        """Return the text of ``study.json``."""
        fields = msgspec.to_builtins(self)
        for name in ("asked", "code"):  # as in records from before there were such fields, so that their seals hold
            if not fields[name]:
                del fields[name]
        return json.dumps(fields, indent=1, sort_keys=True).encode() + b"\n"


def publish(
    record: StudyRecord,
    folder: Path,
    files: Mapping[str, str | bytes],
    figures: Mapping[str, "Figure"],
    kinds: Sequence[str] | None = None,
) -> list[str]:
    """Write a study: files, figures and the record that seals them, with the checksum of each; return their names.

    The folder takes the place of the one before it in one step, so that of two commands which write it at once one
    wins whole. Files of somebody else in it stay. Raises ``RunFailed`` where it cannot be written.
    """
    from icl_lab.figures.files import KINDS, encoded  # brings matplotlib, which readers do without

    data = encoded(files, figures, KINDS if kinds is None else kinds)
    with _held(folder):
        try:
            before = read(folder)
        except RunFailed:  # damaged, and written over
            before = None
        named = before.files if before else {}
        replace_folder(
            folder, {**data, RECORD: record.sealed(data).json()}, ours={*named, *(f"{name}{PACKED}" for name in named)}
        )
    return list(data)


def reword(path: Path, text: str) -> None:
    """Put a text in the place of one of a study, and seal its record anew; all other files stay."""
    with _held(path.parent):
        known, data = read(path.parent), text.encode()
        if known is None:
            raise RunFailed(f"{path.parent} has no {RECORD}, which says what its files are; make it again.")
        made = known._sealed({**known.files, path.name: sha256(data)})
        replace_folder(path.parent, {path.name: data, RECORD: made.json()})


@contextmanager
def _held(folder: Path) -> Iterator[None]:
    """Keep other processes from writing a folder meanwhile."""
    with writing(folder):
        folder.parent.mkdir(parents=True, exist_ok=True)
        lock = FileLock(folder.parent / ".publishing.lock")
        lock.acquire()
    try:
        yield
    finally:
        lock.release()


def read(folder: Path) -> StudyRecord | None:
    """Read what a folder holds; None where it has no record; raises ``RunFailed`` where that is damaged."""
    path = folder / RECORD
    if not path.exists():
        return None
    way_out = "name another folder with --name, or use --force"
    with reading(path, way_out, OSError, ValueError, msgspec.DecodeError):
        data = foreign.read(path, foreign.MOST_TEXT)
        study = msgspec.json.decode(foreign.shallow(data), type=StudyRecord)
    bare = msgspec.structs.replace(study, seal="")
    if study.seal and (study.seal != sha256(bare.json()) or study.json() != data):
        raise RunFailed(f"{path} is damaged or edited; name another folder with --name, or use --force.")
    if outside := [name for name in study.files if not foreign.is_plain(name)]:
        raise RunFailed(f"{path} names '{outside[0]}', which is no file of its folder.")
    return study


def folders(root: Path, option: str) -> list[Path]:
    """Return the folders of studies below ``root`` that have an option, sorted; those that cannot be read as well."""
    found = []
    for path in sorted(root.glob(f"**/{RECORD}")):
        try:
            study = read(path.parent)
        except RunFailed:
            study = None
        if study is None or option in study.options:
            found.append(path.parent)
    return found


def runs_of(record: StudyRecord, store: "Store") -> dict[str, list["Run"]]:
    """Return the stored runs of a study, one group of seeds per label; raises ``RunFailed`` with the missing ones.

    Runs are found by task, normalizer, hash of the specification and seed, not by a path.
    """
    unreadable: list[str] = []
    stored = store.runs(unreadable.append)
    known = {(run.spec.task, run.spec.attn, run.spec.hash, run.seed): run for run in stored}
    found = dict[str, list["Run"]]()
    missing = []
    for member in record.runs:
        run = known.get((member.task, member.attn, member.spec, member.seed))
        run = run.swapped(member.swap) if run and member.swap else run
        if run is None or not run.finished:
            missing.append(f"{member.task} {member.attn} {member.preset}-{member.spec} seed {member.seed}")
        else:
            found.setdefault(member.label, []).append(run)
    if missing:
        raise RunFailed(
            f"{len(missing)} runs of this study are not stored: {'; '.join([*missing[:5], *unreadable[:5]])}."
        )
    return found


def verify(folder: Path, pictures: bool = True) -> None:
    """Raise ``RunFailed`` where a file of a folder is not the one that its record was written with, or is missing.

    Pictures and pages may be missing, since numbers are never read from them; a table may be there compressed. Who only
    reads numbers leaves out ``pictures``: a picture drawn here stays where a newer study is pulled over an older one.
    Without a record nobody can say what the files are.
    """
    list(verified(folder, ("",) if pictures else ()))


def check_file(path: Path) -> None:
    """Raise ``RunFailed`` where a file of a study is damaged or edited; files that no record names are passed over."""
    if (study := read(path.parent)) is None:
        return
    if not as_written(path, study):
        raise RunFailed(f"{path} is damaged or edited (not what {RECORD} says); make it again: {study.command}")


def as_written(path: Path, record: StudyRecord) -> bool:
    """True unless a file differs from the record of its folder; a file that no record names counts as unchanged."""
    names = {path.name, path.name.removesuffix(PACKED)} & set(record.files)
    return all(_sum(path, packed=path.name != name) == record.files[name] for name in names)


def verified(folder: Path, kinds: tuple[str, ...]) -> Iterator[Path]:
    """Yield the files of a study, compressed or not, once each is known to match its record.

    Numbers always, and of the others those that are there and whose names end in one of the ``kinds``. Raises
    ``RunFailed`` at the first that is not as written, where one with numbers is missing, and without a record.
    """
    study = read(folder)
    if study is None:
        raise RunFailed(f"{folder} has no {RECORD}, which says what its files are; make it again.")
    for name, sum in study.files.items():
        path = present(folder / name)
        if not _holds_numbers(name) and (path is None or not name.endswith(kinds)):
            continue
        if path is None or _sum(path, packed=path.name != name) != sum:
            what = f"{folder / name} is missing" if path is None else f"{path} is damaged or edited"
            raise RunFailed(f"{what} (not what {RECORD} says); make it again: {study.command}")
        yield path


def _holds_numbers(name: str) -> bool:
    return name.removesuffix(PACKED).endswith(NUMBERS)


def _sum(path: Path, packed: bool) -> str:
    try:
        data = foreign.read(path)
        content = lzma.LZMADecompressor().decompress(data, UNPACKED + 1) if packed else data
    except (OSError, EOFError, lzma.LZMAError) as error:
        return str(error)
    return sha256(content) if not packed or len(content) <= UNPACKED else "too large"


def place(record: StudyRecord, root: Path, name: str = "", tag: str = "", force: bool = False) -> Path:
    """Return the folder that the study will be published in, before anything is computed for it.

    Raises ``BadValue`` where ``name`` leaves the results folder, and where another study stands there already, unless
    ``force``.
    """
    if name:
        _own(root, name)
    folder = root / (name or record.usual_name(tag))
    if cut_short(folder):
        with _held(folder):
            restore_folder(folder)
    if not (force or free(folder, record)):
        there = read(folder)
        what = f"another study ({there.command})" if there else "files of something else"
        raise BadValue(f"{folder} holds {what}; give another --name, or --force to write over it.")
    return folder


def _own(root: Path, name: str) -> None:
    """Raise ``BadValue`` unless a name is that of a folder inside the results that is nobody else's."""
    inside = Path(name).parts
    if Path(name).is_absolute() or ".." in inside or not inside or any(part != part.strip() for part in inside):
        raise BadValue(f"--name is a folder inside the results folder; got '{name}'.")
    if inside[0].casefold() in TAKEN:
        raise BadValue(
            f"--name is a folder inside the results folder, of its own and none of {', '.join(TAKEN)}; got '{name}'."
        )
    if len(os.fsencode(name)) > LONGEST:
        raise BadValue(f"--name has at most {LONGEST} bytes, got {len(os.fsencode(name)):,}.")
    folder = root / name
    if not folder.resolve().is_relative_to(root.resolve()):
        raise BadValue(f"--name is a folder inside the results folder; {folder} leads out of it.")
    if any(each.exists() and not each.is_dir() for each in (folder, *folder.parents)):
        raise BadValue(f"--name is a folder; {folder} is a file, or lies below one.")


def free(folder: Path, record: StudyRecord) -> bool:
    """True if a study may be written into a folder: it is new or empty, or holds nothing but a part of this study."""
    if not folder.exists() or not any(folder.iterdir()):
        return True
    there = read(folder)
    return there is not None and record.contains(there)
