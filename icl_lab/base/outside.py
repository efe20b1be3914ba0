"""Plugins: normalizers, tasks and analyses in the package or file of a researcher.

``load("./mine.py")`` or ``load("mypackage")`` imports that file or package; its parts are registered as the built-in
ones are. ``installed`` does the same for the entry points of installed packages.

Importing runs code, with all rights of whoever started the command. Nothing is imported that the user did not name,
except the entry points of packages that somebody installed; no folder is searched for parts.
"""

import hashlib
import importlib.metadata
import inspect
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from icl_lab.base.errors import BadValue, LabError, NameTaken
from icl_lab.base.import_target import bring, complaint, module_name, resolved

VARIABLE = "ICL_LAB_IMPORT"  # of the environment: imports of a command besides its options


@dataclass(frozen=True)
class ImportedFrom:
    """Origin of an import: the text that asked for it, and the module or absolute path that it names."""

    given: str
    target: str
    distribution: str = ""  # name and version, where it is an entry point

    @property
    def words(self) -> str:
        """``--import ./mine.py``, or ``the distribution mypackage 1.2``."""
        return f"the distribution {self.distribution}" if self.distribution else f"--import {self.given}"

    def holds(self, module: str) -> bool:
        """True if a module is the imported one, or one inside it."""
        mine = module_name(self.target)
        return module == mine or module.startswith(f"{mine}.")

    @property
    def hashes(self) -> dict[str, str]:
        """The SHA-256 of each of its files that has announced a part, by module, as it was when it was imported."""
        return {module: sha for module, sha in _homes.items() if self.holds(module)}


@dataclass(frozen=True)
class Broken:
    """An entry point that cannot be imported: a line that names its distribution, and the name that was taken."""

    line: str
    taken: NameTaken | None = None


@dataclass
class _Loading:
    """An import while it runs: the parts that it has announced, each with the table that holds it."""

    source: ImportedFrom
    parts: list[tuple[dict[str, type], str]] = field(default_factory=list)


_current: ContextVar[_Loading | None] = ContextVar("current import", default=None)
_loaded: dict[str, ImportedFrom] = {}  # by target
_searched: dict[str, list[Broken]] = {}  # by entry-point group
_packages: dict[str, str] = {}  # packages that an outside part lies in -> hash of their Python files when it came
_homes: dict[str, str] = {}  # outside modules, and classes of cells, that have announced a part -> their hash


def load(given: str, target: str = "") -> ImportedFrom:
    """Import a module by its name, or a ``.py`` file or a folder by its path; a second time it does nothing.

    ``target`` is the absolute path that ``given`` stood for in another process. Raises ``BadValue``, in one line with
    the file and its line, where it cannot be imported, and where it registers nothing.
    """
    source = ImportedFrom(given, target or resolved(given))
    if source.target in _loaded:
        return _loaded[source.target]
    try:
        with _loading(source) as loading:
            bring(source.target)
    except (Exception, SystemExit) as error:
        failed = "" if isinstance(error, LabError) else " cannot be imported"
        raise BadValue(f"{source.words}{failed}: {complaint(error)}") from error
    if not loading.parts and not source.hashes:
        raise BadValue(f"{source.words} registers nothing: no class in it stands below @registry.add(name).")
    _loaded[source.target] = source
    return source


def loaded() -> list[ImportedFrom]:
    """Return the imports of this process that a user named, in their order."""
    return list(_loaded.values())


def brings(group: str) -> bool:
    """True if an import of this process, or an installed package, may add parts to a group; imports nothing."""
    return bool(_loaded or importlib.metadata.entry_points(group=group))


def installed(group: str) -> list[Broken]:
    """Import the entry points of a group, each once; return those that cannot be imported."""
    if group in _searched:
        return _searched[group]
    broken = _searched[group] = []
    found = {(point.name, point.value): point for point in importlib.metadata.entry_points(group=group)}
    for _, point in sorted(found.items()):
        owner = f"{point.dist.name} {point.dist.version}" if point.dist else "(unknown)"
        source = ImportedFrom(f"{point.name} = {point.value}", point.module, owner)
        try:
            with _loading(source):
                point.load()
        except (Exception, SystemExit) as error:
            line = f"{source.words} (entry point {source.given}): {complaint(error)}"
            broken.append(Broken(line[0].upper() + line[1:], error if isinstance(error, NameTaken) else None))
    return broken


def announced(parts: dict[str, type], name: str, part: type) -> ImportedFrom | None:
    """Notes that a part was registered in the table ``parts``; returns the import that brought it, None if built in."""
    if is_built_in(part):
        return None
    if _in_a_cell(part):
        _homes[_home(part)] = _sha256_of_code(part)
    else:
        _homes.setdefault(_home(part), _sha256(part.__module__))
    if (top := part.__module__.partition(".")[0]) not in _packages:
        _packages[top] = _package(top)
    loading = _current.get()
    if loading is None:  # announced by a program that uses this package
        return ImportedFrom(part.__module__, part.__module__)
    loading.parts.append((parts, name))
    return loading.source


def is_built_in(part: type) -> bool:
    """True if a part belongs to this package."""
    return part.__module__.partition(".")[0] == "icl_lab"


def redefined(old: type, new: type) -> bool:
    """True if a class takes the place of one that was defined before in the same program, as when a cell runs again."""
    same = old.__module__ == new.__module__ == "__main__"
    return same and (_in_a_cell(new) or old.__qualname__ == new.__qualname__)


def record(part: type, source: ImportedFrom) -> dict[str, str]:
    """Return where an outside part came from, for ``env.json``: the import or the distribution, the file's hash."""
    found = {"entry_point" if source.distribution else "import": source.given, "sha256": _homes[_home(part)]}
    distribution = source.distribution or _distribution(part.__module__.partition(".")[0])
    return found | ({"distribution": distribution} if distribution else {})


def content(part: type) -> str:
    """Hash of the code of an outside part that its syntax tree leaves out: a cell's, or all files of its package.

    Empty for a part of this package. Raises ``BadValue`` where its file is another one than was imported.
    """
    if is_built_in(part) or (home := _home(part)) not in _homes:
        return ""
    if _in_a_cell(part):
        return _homes[home][:12]
    if (sha := _sha256(part.__module__)) and sha != _homes[home]:
        file = sys.modules[part.__module__].__file__
        raise BadValue(f"{file} has changed since it was imported; give the command again.")
    return _packages.get(part.__module__.partition(".")[0], "")


def imported() -> list[dict[str, Any]]:
    """Return the imports of this process, for ``import_again`` in another one; paths are absolute."""
    return [{"given": each.given, "target": each.target, "hashes": each.hashes} for each in loaded()]


def import_again(sources: Sequence[Mapping[str, Any]]) -> None:
    """Import the plugins that another process has ``imported``.

    Raises ``BadValue`` where a file has changed since that process began.
    """
    for each in sources:
        source = load(each["given"], each["target"])
        # By content: a file that was sent elsewhere has another path there, and so another module name.
        if sorted(source.hashes.values()) != sorted(each["hashes"].values()):
            raise BadValue(f"{source.words} has changed since the command began; give the command again.")


@contextmanager
def _loading(source: ImportedFrom) -> Iterator[_Loading]:
    """Parts that are announced inside come from ``source``; those of a module that failed are taken back."""
    loading = _Loading(source)
    token = _current.set(loading)
    try:
        yield loading
    except (Exception, SystemExit):
        for parts, name in loading.parts:
            if parts[name].__module__ not in sys.modules:  # Python keeps what a failed import had finished
                _homes.pop(parts[name].__module__, None)
                del parts[name]
        raise
    finally:
        _current.reset(token)


def _in_a_cell(part: type) -> bool:
    """True if a class was defined in a notebook or an interactive session: its module has no file."""
    return part.__module__ == "__main__" and not getattr(sys.modules["__main__"], "__file__", None)


def _home(part: type) -> str:
    """Key of a part's hash: its module, or its own name where that has no file."""
    return f"{part.__module__}.{part.__qualname__}" if _in_a_cell(part) else part.__module__


def _sha256_of_code(part: type) -> str:
    """The hash of a class that no file holds: the source of its methods, or their code where that is lost; values."""
    digest = hashlib.sha256()
    for name, value in sorted(vars(part).items()):
        function = getattr(value, "__func__", getattr(value, "fget", value))
        if inspect.isfunction(function):
            code = function.__code__
            told = f"{function.__defaults__} {function.__kwdefaults__} {code.co_consts} {code.co_names}"
            try:
                told = inspect.getsource(function)
            except OSError:
                digest.update(code.co_code)
            digest.update(f"{name} {told}".encode())
        elif isinstance(value, bool | int | float | str | tuple) and not name.startswith("__"):
            digest.update(f"{name} {value!r}".encode())
    return digest.hexdigest()


def _sha256(module: str) -> str:
    """The hash of a module's file; empty where there is none, as in an interactive session."""
    path = getattr(sys.modules.get(module), "__file__", None)
    return hashlib.sha256(Path(path).read_bytes()).hexdigest() if path and Path(path).is_file() else ""


def _package(top: str) -> str:
    """Hash of all Python files of a package; empty of a module that is a single file."""
    module = sys.modules.get(top)
    if module is None or not hasattr(module, "__path__") or not module.__file__:
        return ""
    folder, digest = Path(str(module.__file__)).parent, hashlib.sha256()
    for path in sorted(folder.rglob("*.py")):
        digest.update(path.relative_to(folder).as_posix().encode() + path.read_bytes())
    return digest.hexdigest()[:12]


def _distribution(top: str) -> str:
    """Name and version of the distribution that a top-level module belongs to; empty where it was not installed."""
    names = importlib.metadata.packages_distributions().get(top, [])
    return f"{names[0]} {importlib.metadata.version(names[0])}" if names else ""
