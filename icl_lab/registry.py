"""Where a name becomes a thing.

A choice is text that survives a shell, a Makefile and a file name: ``ssa``, ``ssa:n=2,learn=no``. A part announces
itself in its own file by ``@registry.add("name")`` and is found by being there. Its options are the keyword-only
parameters of its constructor: no schema, no second spelling.
"""

import importlib
import inspect
import math
import pkgutil
import typing
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import UnionType
from typing import Any, Literal, Self, TypeVar, get_args, get_origin

from icl_lab.errors import BadValue, UnknownName, UnknownOption

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
        """Reads ``NAME`` or ``NAME:option=value,option=value``. Raises ``BadValue`` where the form is broken."""
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
    """Returns a choice as it is written in a folder name: ``ssa:n=2`` becomes ``ssa-n=2``."""
    return text.replace(":", "-")


@dataclass(frozen=True)
class Entry:
    """What a part's docstring says of it: its first line, and the lines marked ``Formula:`` and ``Paper:``."""

    name: str
    line: str
    formula: str
    paper: str


class Registry:
    """The parts of one kind (``normalizer``, ``task``), each announced in a file of ``package``."""

    def __init__(self, kind: str, package: str) -> None:
        self.kind, self.package = kind, package
        self._parts: dict[str, type] = {}

    def add(self, name: str) -> Callable[[Part], Part]:
        """Announces the decorated class under ``name``."""

        def announce(part: Part) -> Part:
            if name in self._parts:
                raise ValueError(f"two {self.kind}s are called '{name}'")
            self._parts[name] = part
            part.registered = name  # type: ignore[attr-defined]
            return part

        return announce

    def names(self) -> list[str]:
        """Returns all names, sorted."""
        # A new file is found by being there: no list of imports to forget.
        root = importlib.import_module(self.package)
        for module in pkgutil.iter_modules(getattr(root, "__path__", [])):
            importlib.import_module(f"{self.package}.{module.name}")
        return sorted(self._parts)

    def part(self, name: str) -> type:
        """Returns the class called ``name``; raises ``UnknownName``."""
        names = self.names()
        if name not in names:
            raise UnknownName(self.kind, name, names)
        return self._parts[name]

    def options(self, name: str) -> dict[str, inspect.Parameter]:
        """Returns the options of ``name`` with their types and defaults."""
        part = self.part(name)
        hints = typing.get_type_hints(part.__init__)  # type: ignore[misc]
        return {
            key: parameter.replace(annotation=hints[key])
            for key, parameter in inspect.signature(part).parameters.items()
            if parameter.kind is parameter.KEYWORD_ONLY
        }

    def canonical(self, text: str) -> Choice:
        """Returns the one spelling of a choice: options in the constructor's order, numbers in their shortest form."""
        choice = Choice.parse(text)
        values = self._values(choice)
        return Choice(
            choice.name, tuple((key, _write(values[key])) for key in self.options(choice.name) if key in values)
        )

    def build(self, text: str, *context: Any) -> Any:
        """Builds the chosen part: ``part(*context, **options)``. Raises ``LabError`` on a bad name, option or value."""
        choice = Choice.parse(text)
        values = self._values(choice)
        try:
            return self.part(choice.name)(*context, **values)
        except BadValue as error:
            raise BadValue(f"{self.kind} '{text}': {error}") from None

    def entries(self) -> Iterator[Entry]:
        """Yields what each part says of itself."""
        for name in self.names():
            text = inspect.getdoc(self._parts[name]) or ""
            yield Entry(name, text.partition("\n")[0], _marked(text, "Formula"), _marked(text, "Paper"))

    def _values(self, choice: Choice) -> dict[str, Any]:
        options = self.options(choice.name)
        values = {}
        for key, text in choice.options:
            if key not in options:
                raise UnknownOption(f"The {self.kind} '{choice.name}'", key, options)
            try:
                values[key] = _read(text, options[key].annotation)
            except ValueError:
                wanted = _describe(options[key].annotation)
                raise BadValue(f"{self.kind} '{choice}': {key} must be {wanted}, got '{text}'.") from None
        return values


def require(holds: bool, bound: str, got: object) -> None:
    """Raises ``BadValue`` unless ``holds``: ``require(tau > 0, "tau must be > 0", tau)``."""
    if not holds:
        raise BadValue(f"{bound}, got {got}.")


def _marked(text: str, mark: str) -> str:
    """Returns the text after ``mark:`` up to the next mark or blank line, as one line."""
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


def _kinds(annotation: Any) -> tuple[Any, ...]:
    return get_args(annotation) if get_origin(annotation) in (UnionType, typing.Union) else (annotation,)


def _read(text: str, annotation: Any) -> Any:
    """Reads ``text`` as the first kind of ``annotation`` that it fits; ``ValueError`` if it fits none."""
    for kind in _kinds(annotation):
        if get_origin(kind) is Literal:
            matches = [value for value in get_args(kind) if _write(value) == text]
            if matches:
                return matches[0]
        elif kind is bool:
            if text in ("yes", "no"):
                return text == "yes"
        elif kind is str:
            return text
        else:
            try:
                value = kind(text)
            except ValueError:
                continue
            if math.isfinite(value):
                return value
    raise ValueError(text)


def _write(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    # The shortest form that reads back as the same number: 2.0 and 2 are one spelling.
    return str(int(value)) if isinstance(value, float) and value.is_integer() and abs(value) < 1e15 else str(value)


def _describe(annotation: Any) -> str:
    words = {bool: "yes or no", int: "a whole number", float: "a finite number", str: "text"}
    return " or ".join(
        ", ".join(_write(value) for value in get_args(kind)) if get_origin(kind) is Literal else words[kind]
        for kind in _kinds(annotation)
    )
