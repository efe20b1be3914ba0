"""The values of options as text (``yes``, ``2.5``, ``short``), read by the type of a constructor's parameter."""

import typing
from collections.abc import Mapping
from types import UnionType
from typing import Any, Literal, get_args, get_origin

GREATEST = 1e15  # of the numbers of a prompt: norms and errors square them in single precision
WORDS = {bool: "yes or no", int: "a whole number", float: "a finite number", str: "text"}


def kinds(annotation: Any) -> tuple[Any, ...]:
    """Return the members of a union, or the one type that is annotated."""
    return get_args(annotation) if get_origin(annotation) in (UnionType, typing.Union) else (annotation,)


def readable(annotation: Any) -> bool:
    """True if text can be read as the type: bool, int, float, str, a ``Literal``, or a union of these."""
    return all(get_origin(kind) is Literal or kind in WORDS for kind in kinds(annotation))


def read(text: str, annotation: Any) -> Any:
    """Read ``text`` as the first kind of ``annotation`` that it fits; ``ValueError`` if it fits none.

    Numbers are at most ``GREATEST`` in size.
    """
    for kind in kinds(annotation):
        if get_origin(kind) is Literal:
            matches = [value for value in get_args(kind) if write(value) == text]
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
            if -GREATEST <= value <= GREATEST:
                return value
    raise ValueError(text)


def bound(text: str) -> str:
    """Return what to add to a kind of number where ``text`` is one that is too large; nothing where it is none.

    >>> bound("1e30"), bound("nan"), bound("x")
    (' of at most 1e+15 in size', '', '')
    """
    try:
        return f" of at most {GREATEST:g} in size" if abs(float(text)) > GREATEST else ""
    except ValueError:
        return ""


def write(value: Any) -> str:
    """Return the shortest text that reads back as the same value: 2.0 and 2 are one spelling; items with commas."""
    if isinstance(value, list | tuple):
        return ",".join(map(write, value))
    if isinstance(value, bool):
        return "yes" if value else "no"
    return str(int(value)) if isinstance(value, float) and value.is_integer() and abs(value) < 1e15 else str(value)


def in_words(value: Any) -> str:
    """Return a value as one reads it on a page: numbers short, names before what belongs to them.

    >>> in_words({"sigma": [1.0, 1e6 / 3], "norm": False})
    'sigma 1, 333333; norm no'
    """
    if isinstance(value, Mapping):
        return "; ".join(f"{name} {in_words(each)}" for name, each in value.items())
    if isinstance(value, list | tuple):
        return ", ".join(map(in_words, value))
    return f"{value:g}" if isinstance(value, float) else write(value)


def describe(annotation: Any) -> str:
    """Return what may be written for a type, in words: ``a finite number or short``."""
    return " or ".join(
        ", ".join(write(value) for value in get_args(kind)) if get_origin(kind) is Literal else WORDS[kind]
        for kind in kinds(annotation)
    )


def finite(annotation: Any) -> list[str]:
    """Return every value of those kinds of a type that have finitely many (``Literal`` and bool), as text."""
    found: list[str] = []
    for kind in kinds(annotation):
        if get_origin(kind) is Literal:
            found += [write(value) for value in get_args(kind)]
        elif kind is bool:
            found += ["yes", "no"]
    return found
