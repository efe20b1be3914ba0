"""Registries: build a part (a normalizer, a task, an analysis) from text such as ``ssa:n=2,learn=no``.

The text survives a shell, a Makefile and a file name. A part announces itself in its own file by
``@registry.add("name")`` and is found by being there: a file of this package, an entry point of an installed one, or
what ``--import`` names (``outside``). Its options are the keyword-only parameters of its constructor: no schema, no
second spelling.
"""

import importlib
import inspect
import pkgutil
import re
import sys
import typing
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Self, TypeVar

from icl_lab.base import option_values as values_of
from icl_lab.base import outside
from icl_lab.base.code import code_hash, file_of
from icl_lab.base.errors import BadValue, NameTaken, UnknownName, UnknownOption
from icl_lab.base.import_target import shown

Part = TypeVar("Part", bound=type)


@dataclass(frozen=True)
class Choice:
    """A name and the options given with it, in the order they were written.

    >>> Choice.parse("ssa:n=2,learn=no")
    Choice(name='ssa', options=(('n', '2'), ('learn', 'no')))
    """

    name: str
    options: tuple[tuple[str, str], ...] = ()

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read ``NAME`` or ``NAME:option=value,option=value``. Raises ``BadValue`` where the form is broken."""
        name, colon, rest = text.strip().partition(":")
        pairs = [tuple(piece.strip() for piece in item.split("=", 1)) for item in rest.split(",")] if colon else []
        if not name or any(len(pair) != 2 or not all(pair) for pair in pairs):
            raise BadValue(f"'{text}' is not of the form NAME or NAME:option=value,option=value.")
        keys = [key for key, _ in pairs]
        for key in keys:
            if keys.count(key) > 1:
                raise BadValue(f"'{text}' gives the option '{key}' twice.")
        return cls(name, tuple((key, value) for key, value in pairs))

    def __str__(self) -> str:
        return self.name + (":" + ",".join(f"{key}={value}" for key, value in self.options) if self.options else "")


def filename(text: str) -> str:
    """Return a choice as it is written in a folder name: ``ssa:n=2`` becomes ``ssa-n=2``; a slash becomes ``%2F``."""
    return text.replace(":", "-").replace("/", "%2F")


@dataclass(frozen=True)
class Entry:
    """Fields of a part's docstring: its first line, and the lines marked ``Formula:`` and ``Paper:``."""

    name: str
    line: str
    formula: str
    paper: str

    @classmethod
    def of(cls, name: str, text: str) -> Self:
        """Return the entry of a part with this docstring, its indentation removed."""
        return cls(name, text.partition("\n")[0], _marked(text, "Formula"), _marked(text, "Paper"))


class Registry:
    """The parts of one kind (``normalizer``, ``task``); those of this package are announced in a file of ``package``.

    ``package`` is also the group of entry points by which installed packages add parts.
    """

    def __init__(self, kind: str, package: str) -> None:
        self.kind, self.package = kind, package
        self._parts: dict[str, type] = {}
        self._sources: dict[str, outside.ImportedFrom] = {}
        self._complete = False  # whether every file of the package has been imported

    def add(self, name: str) -> Callable[[Part], Part]:
        """Announce the decorated class under ``name``; raises ``LabError`` where the name is taken or invalid."""

        def announce(part: Part) -> Part:
            if not (isinstance(part, type) and isinstance(name, str) and re.fullmatch(r"[A-Za-z][\w-]*", name)):
                raise BadValue(
                    f"@registry.add takes a name of letters, digits and hyphens above a class, got {name!r}."
                )
            if not outside.is_built_in(part):
                self._import_built_in()  # so that a name that is taken is known here, whoever comes first
            if name in self._parts and not outside.redefined(self._parts[name], part):
                raise NameTaken(self.kind, name, (_place(self._parts[name]), _place(part)))
            self._parts[name] = part
            part.registered = name  # type: ignore[attr-defined]
            source = outside.announced(self._parts, name, part)
            if source:
                self._sources[name] = source
            return part

        return announce

    def names(self) -> list[str]:
        """Return all names, sorted."""
        self._import_built_in()
        outside.installed(self.package)
        return sorted(self._parts)

    def part(self, name: str) -> type:
        """Return the class called ``name``; raises ``UnknownName``, and ``NameTaken`` where two packages bring it."""
        names = self.names()
        for broken in outside.installed(self.package):
            taken = broken.taken
            if taken and (taken.kind, taken.name) == (self.kind, name) and self.source(name):
                raise taken
        if name not in names:
            # It may be what an installed package would bring, if it could be imported.
            raise UnknownName(self.kind, name, names, " ".join(self.broken()))
        return self._parts[name]

    def source(self, name: str) -> outside.ImportedFrom | None:
        """Return the import that brought a part; None for those of this package."""
        return self._sources.get(name) if name in self._parts else None

    def imported(self) -> list[str]:
        """Return the names of the parts that have come from outside so far; imports nothing."""
        return sorted(name for name in self._sources if name in self._parts)

    def record(self, name: str) -> dict[str, str]:
        """Return where a part comes from, and the hash of its code, as ``env.json`` holds it.

        Of a part from outside the import and the hash of its file, of one of this package its file and the hash of its
        syntax tree (``base/code.py``).
        """
        part, source = self.part(name), self.source(name)
        known = outside.record(part, source) if source else {"file": file_of(part), "sha256": code_hash(part)}
        return known | {"kind": self.kind, "name": name}

    def brought(self, source: outside.ImportedFrom) -> list[str]:
        """Return the names of the parts that came with an import."""
        return [
            name
            for name in self.names()
            if (came := self.source(name)) and (came == source or source.holds(self._parts[name].__module__))
        ]

    def broken(self) -> list[str]:
        """Return a line for each entry point of an installed package that cannot be imported."""
        return [broken.line for broken in outside.installed(self.package)]

    def options(self, name: str) -> Mapping[str, inspect.Parameter]:
        """Return the options of ``name`` with their types and defaults."""
        try:
            return _options(self.part(name))
        except NameError as error:
            raise BadValue(f"{self.kind} '{name}': the types of its options cannot be read: {error}.") from error

    def canonical(self, text: str) -> Choice:
        """Return the one spelling of a choice: options in the constructor's order, numbers in their shortest form."""
        choice = Choice.parse(text)
        values = self._values(choice)
        return Choice(
            choice.name,
            tuple((key, values_of.write(values[key])) for key in self.options(choice.name) if key in values),
        )

    def build(self, text: str, *context: Any) -> Any:
        """Build the chosen part: ``part(*context, **options)``. Raises ``LabError`` on a bad name, option or value."""
        choice = Choice.parse(text)
        values = self._values(choice)
        try:
            return self.part(choice.name)(*context, **values)
        except BadValue as error:
            learn = self.options(choice.name).get("learn")
            way_out = f" Its option learn ({values_of.describe(learn.annotation)}) says what is." if learn else ""
            raise BadValue(f"{self.kind} '{text}': {error}{way_out if 'learned' in str(error) else ''}") from None
        except TypeError as error:  # a constructor that takes something else than its kind is given
            raise BadValue(f"{self.kind} '{text}' cannot be built: {error}.") from error

    def entries(self, *, outside: bool = True) -> Iterator[Entry]:
        """Yield what each part says of itself; those that came from outside only where ``outside``."""
        for name in self.names():
            if self.source(name) and not outside:
                continue
            yield Entry.of(name, inspect.getdoc(self._parts[name]) or "")

    def _import_built_in(self) -> None:
        # A new file is found by being there: no list of imports to forget. Once is enough: this is asked for each name.
        if self._complete:
            return
        root = importlib.import_module(self.package)
        for module in pkgutil.iter_modules(getattr(root, "__path__", [])):
            importlib.import_module(f"{self.package}.{module.name}")
        self._complete = True

    def _values(self, choice: Choice) -> dict[str, Any]:
        options = self.options(choice.name)
        values = {}
        for key, text in choice.options:
            if key not in options:
                raise UnknownOption(f"The {self.kind} '{choice.name}'", key, options)
            annotation = options[key].annotation
            if not values_of.readable(annotation):
                raise BadValue(
                    f"{self.kind} '{choice.name}': the type of its option {key} must be int, float, bool, str, "
                    "a Literal or a union of these."
                )
            try:
                values[key] = values_of.read(text, annotation)
            except ValueError:
                wanted = values_of.describe(annotation)
                raise BadValue(
                    f"{self.kind} '{choice}': {key} must be {wanted}{values_of.bound(text)}, got '{text}'."
                ) from None
        return values


def require(holds: bool, bound: str, got: object) -> None:
    """Raise ``BadValue`` unless ``holds``: ``require(tau > 0, "tau must be > 0", tau)``."""
    if not holds:
        raise BadValue(f"{bound}, got {got}.")


@cache  # a specification asks for each part in it, and a ledger for thousands of specifications
def _options(part: type) -> Mapping[str, inspect.Parameter]:
    """The keyword-only parameters of a class, their types read; raises ``NameError`` where one cannot be."""
    hints = typing.get_type_hints(part.__init__)  # type: ignore[misc]
    return {
        key: parameter.replace(annotation=hints.get(key, parameter.empty))
        for key, parameter in inspect.signature(part).parameters.items()
        if parameter.kind is parameter.KEYWORD_ONLY
    }


def _place(part: type) -> str:
    """Source of a class: a module of this package, or a file outside."""
    file = getattr(sys.modules.get(part.__module__), "__file__", None)
    return part.__module__ if outside.is_built_in(part) or not file else shown(Path(file))


def _marked(text: str, mark: str) -> str:
    """Return the text after ``mark:`` up to the next mark or blank line, as one line."""
    lines = iter(text.splitlines())
    found: list[str] = []
    for line in lines:
        if line.startswith(f"{mark}: "):
            found = [line.removeprefix(f"{mark}: ")]
            for more in lines:
                if not more.startswith("  "):
                    break
                found.append(more.strip())
            break
    return " ".join(found)
