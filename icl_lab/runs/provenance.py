"""Provenance: what made a run, and whether the same would be made now.

A record is written at step 0 of a training, kept in each checkpoint and in ``env.json``; another one, of the code that
tested the model, is ``measured.json`` next to each grid. It holds a hash of the code of each part, of the model,
of the training and of the measuring (``base/code.py``), the versions of torch and Python, and the files that the task
reads. ``equal_code.csv`` names hashes of different code that was measured to give the same bits.

Runs from before there were records know the code of their parts, or nothing: they are "unknown".
"""

import csv
import json
import platform
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

import msgspec

from icl_lab import normalizers, tasks
from icl_lab.base import foreign, outside
from icl_lab.base.code import closure_hash
from icl_lab.base.errors import LabError, RunFailed
from icl_lab.base.files import reading
from icl_lab.runs import environment
from icl_lab.runs.manifest import MADE_BY, MEASURED_BY, WAY_OUT
from icl_lab.runs.run import Run
from icl_lab.runs.spec import RunSpec

EQUAL = Path(__file__).parent / "equal_code.csv"  # kind, old, new, commit: written by tests/equal_code.py
VERSION = 1  # of a record
FILE = "file "  # beginning of the kind of a file that the task reads
ANOTHER = "record"  # the kind of a difference: the record is of a later version than this code reads
RULES = ("icl_lab.normalizers.base", "icl_lab.normalizers.second_order", "icl_lab.normalizers.starts")
NUMBERS = ("icl_lab.base.rng", "icl_lab.base.rescale")
PARTS = ("icl_lab.normalizers.", "icl_lab.tasks.", "icl_lab.model.positions", *NUMBERS)
Kind = Literal["model", "training", "measuring"]
# Definitions that each kind of code begins with, and the packages in which what they name counts.
CODE: dict[str, tuple[list[tuple[str, str]], tuple[str, ...]]] = {
    "model": (
        [
            *(("icl_lab.model.gpt2", "GPT2"), ("icl_lab.runs.spec", "RunSpec.untrained")),
            *(("icl_lab.runs.spec", "RunSpec.reading"), ("icl_lab.training.scaling", "scale_start")),
        ],
        ("icl_lab.model.", *RULES, *NUMBERS),
    ),
    "training": ([("icl_lab.training.loop", "train")], ("icl_lab.training.", *NUMBERS)),
    "measuring": (
        [
            *(("icl_lab.runs.measure", "measure"), ("icl_lab.pipeline", "subject")),
            *(("icl_lab.pipeline", "_load_or_train"), ("icl_lab.tasks", "rescaling")),
        ],
        ("icl_lab.runs.measure", "icl_lab.runs.floor", "icl_lab.pipeline", *NUMBERS),
    ),
}


class Record(msgspec.Struct, frozen=True):
    """Record of the weights or the grid of a run: hashes of code by kind, versions, files -> SHA-256."""

    code: dict[str, str]
    versions: dict[str, str]
    files: dict[str, str] = {}
    version: int = VERSION

    def fields(self) -> dict[str, Any]:
        """Return the fields as they are stored."""
        return dict(msgspec.to_builtins(self))


@dataclass(frozen=True)
class Difference:
    """One thing that is another now: its kind (``training``, ``normalizer 'ssa'``, ``torch``), then and now."""

    kind: str
    then: str
    now: str
    place: str = ""

    @property
    def words(self) -> str:
        """``another version of the training (sha256 0123abcd, now 4567cdef)``."""
        if self.kind in environment.COMPUTING:
            return f"{self.kind} {self.then} (here {self.now})"
        if self.kind == ANOTHER:
            return f"a later icl_lab, whose record of version {self.then} this one (version {self.now}) cannot read"
        what = f"the {self.kind} in {self.place}" if self.place.endswith(".py") else f"the {self.kind}"
        if self.kind.startswith(FILE) or self.place.startswith(("--import", "the distribution")):
            what = self.place or self.kind.removeprefix(FILE)
        return f"another version of {what} (sha256 {self.then[:8]}, now {self.now[:8]})"


@dataclass(frozen=True)
class Provenance:
    """Differences of the code that made a run from the code here; ``known`` where all of it is recorded."""

    known: bool
    differences: tuple[Difference, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.differences)

    def __str__(self) -> str:
        if self.differences:
            return f"changed: {', '.join(dict.fromkeys(each.kind for each in self.differences))}"
        return "same" if self.known else "unknown"


def of(run: Run) -> Provenance:
    """Return "same", "changed: ..." or "unknown" for what there is of a run: its training, its grid, or both.

    Raises ``RunFailed`` where a record is damaged. A run whose task or normalizer is not here is unknown.
    """
    if "env.json" not in run.files:
        return Provenance(known=False)
    env, found, tested = run.env(), list[Difference](), None
    places, named = environment.places(env), run.below(MEASURED_BY)
    trained = _read(env.get(MADE_BY), run.folder / "env.json")
    if not (places or trained or named in run.files) or not _here(run):
        return Provenance(known=False)
    found += _of_parts(run, env) if trained is None else differences(trained, _current(trained, run.spec), places)
    if named in run.files and run.finished:
        tested = _read(_loaded(run, named), run.folder / named)
    if tested is not None:
        found += differences(tested, _current(tested, run.spec, run.swap, "measuring"), places)
    known = trained is not None and (tested is not None or not run.finished)
    return Provenance(known, tuple(dict.fromkeys(found)))


def word(run: Run) -> str:
    """Return ``of`` as a word; "damaged" where the record cannot be read."""
    try:
        return str(of(run))
    except RunFailed:
        return "damaged"


def changed(runs: Iterable[Run]) -> Iterator[tuple[Run, Difference]]:
    """Yield what differs of runs, each place once; a damaged one is passed over: whoever reads it says so."""
    for run in {run.place: run for run in runs}.values():
        try:
            found = of(run).differences
        except RunFailed:
            continue
        yield from ((run, each) for each in found)


def _here(run: Run) -> bool:
    """True if the task and the normalizers of a run are known."""
    parts = dict.fromkeys(environment.parts(run.spec, run.swap))
    return all(name in registry.names() for registry, name in parts)


def of_stored(stored: object, spec: RunSpec, path: Path) -> list[str]:
    """Say how the record of a checkpoint or of a model differs from the code here; nothing where it has none."""
    record = _read(stored, path)
    return [] if record is None else [each.words for each in differences(record, _current(record, spec))]


def now(spec: RunSpec, swap: str = "", kind: Kind = "training") -> Record:
    """Return the record of a training, or a measuring, that begins now."""
    return msgspec.structs.replace(_code(spec, swap, kind), files=dict(tasks.reads(spec.task)))


def _current(then: Record, spec: RunSpec, swap: str = "", kind: Kind = "training") -> Record:
    """Record of now, to compare a stored one with; whoever needs files that are not here says so."""
    if not then.files:
        return _code(spec, swap, kind)
    try:
        return now(spec, swap, kind)
    except LabError:
        return _code(spec, swap, kind)


def _code(spec: RunSpec, swap: str, kind: Kind) -> Record:
    chosen = tuple((registry.kind, registry.part(name)) for registry, name in environment.parts(spec, swap))
    rules = tuple(filter(None, (spec.attn, spec.train.switch_to, swap)))
    code = {each: code_of(each) for each in ("model", kind)}
    return Record(code | _parts(chosen, rules, spec.model.heads, spec.model.width // spec.model.heads), here())


@cache
def code_of(kind: str) -> str:
    """Return the hash of the code of the model, the training or the measuring."""
    return closure_hash(*CODE[kind])


@cache
def here() -> dict[str, str]:
    """Versions that bits depend on: torch without its build, Python without its patch."""
    return computing({"torch": version("torch")}, platform.python_version())


def computing(versions: Mapping[str, str], python: str) -> dict[str, str]:
    """Return the versions of torch and Python as they are compared."""
    return {"torch": versions.get("torch", "").partition("+")[0], "Python": ".".join(python.split(".")[:2])}


@cache
def _parts(chosen: tuple[tuple[str, type], ...], rules: tuple[str, ...], heads: int, width: int) -> dict[str, str]:
    """Hash of each part, by kind and name; of a normalizer with the classes of all modules that it builds."""
    built = dict[str, set[type]]()
    for rule in rules:
        made = normalizers.build(rule, heads=heads, head_dim=width, train_tokens=64)
        built.setdefault(next(normalizers.parts(rule))[1], set()).update(type(module) for module in made.modules())
    found = {}
    for kind, part in chosen:
        name = str(part.registered)  # type: ignore[attr-defined]
        classes = {part} | (built.get(name, set()) if kind == normalizers.registry.kind else set())
        roots = sorted(
            {(base.__module__, base.__qualname__) for each in classes for base in each.__mro__ if _own(base)}
        )
        found[f"{kind} '{name}'"] = closure_hash(roots, PARTS) + outside.content(part)
    return found


def _own(part: type) -> bool:
    """True for a class of this package or of the user's, not of torch or Python."""
    return (top := part.__module__.partition(".")[0]) != "torch" and top not in sys.stdlib_module_names


def differences(then: Record, current: Record, places: Mapping[str, str] = MappingProxyType({})) -> list[Difference]:
    """Return what differs between two records, as far as both have it; ``places`` are those of parts, by kind."""
    if then.version > current.version:
        return [Difference(ANOTHER, str(then.version), str(current.version))]
    found = [
        Difference(kind, sha, current.code[kind], places.get(kind, ""))
        for kind, sha in then.code.items()
        if kind in current.code and not equal(sha, current.code[kind])
    ]
    return found + _other("", then.versions, current.versions) + _other(FILE, then.files, current.files)


def _other(prefix: str, then: Mapping[str, str], current: Mapping[str, str]) -> list[Difference]:
    return [
        Difference(f"{prefix}{name}", value, current[name])
        for name, value in then.items()
        if current.get(name, value) != value
    ]


def _loaded(run: Run, name: str) -> object:
    with reading(run.folder / name, WAY_OUT, ValueError):
        return json.loads(foreign.shallow(run.read(name)))


def _of_parts(run: Run, env: Mapping[str, Any]) -> list[Difference]:
    """Differences of a run from before there were records, as far as it names its parts and files."""
    found = [
        Difference(f"{kind} '{name}'", then["sha256"], sha, environment.words(then))
        for kind, name, then, sha in environment.stored_parts(run.spec, env)
        if not equal(then["sha256"], sha)
    ]
    told = env.get(environment.READ)
    if isinstance(told, dict) and told:
        try:
            found += _other(FILE, told, dict(tasks.reads(run.spec.task)))
        except LabError:  # a task or a file that is not here; whoever needs it says so
            return found
    return found


def _read(stored: object, path: Path) -> Record | None:
    """A stored record; None where there is none; of a later version with nothing but that."""
    if stored is None:
        return None
    if isinstance(stored, dict) and isinstance(later := stored.get("version"), int) and later > VERSION:
        return Record({}, {}, version=later)
    try:
        return msgspec.convert(stored, Record)
    except msgspec.ValidationError as error:
        raise RunFailed(f"{path}: its record of the code cannot be read ({error}); {WAY_OUT}.") from None


def equal(one: str, other: str) -> bool:
    """True if two hashes are of the same code, or of code that was measured to give the same bits."""
    return one == other or (one in (known := _equal()) and known[one] == known.get(other))


@cache
def _equal() -> dict[str, str]:
    """The representative of each hash of ``equal_code.csv``."""
    chosen = dict[str, str]()
    with EQUAL.open() as file:
        for row in csv.DictReader(file):
            old, new = (chosen.setdefault(row[name], row[name]) for name in ("old", "new"))
            chosen = {sha: new if first == old else first for sha, first in chosen.items()}
    return chosen


def words(runs: Sequence[Run]) -> str:
    """Say which runs of a study were made with other code or versions than are here, or than others of them."""
    counts = Counter[str]()
    envs = [run.env() for run in runs if "env.json" in run.files]
    for run in runs:
        counts.update(each.words for each in of(run).differences)
    said = [f"{count} of {len(runs)} runs were made with {what}" for what, count in counts.items()]
    for name in environment.COMPUTING:
        used = {computing(env.get("versions", {}), env.get("python", ""))[name] for env in envs} - {""}
        if len(used) > 1 and not any(what.startswith(f"{name} ") for what in counts):
            said.append(f"runs were made with {name} {' and '.join(sorted(used))}, whose bits differ")
    return f"Not of one code: {'; '.join(said)}." if said else ""
