"""Checks of a call's arguments against their annotations; each refusal is one line that names the argument."""

import functools
import inspect
import numbers
import re
import reprlib
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import Field, fields
from os import PathLike
from types import NoneType, SimpleNamespace, UnionType
from typing import Any, Literal, ParamSpec, TypeVar

from icl_lab.base.errors import BadValue
from icl_lab.base.option_values import write

Given = ParamSpec("Given")
Result = TypeVar("Result")
Folder = str | PathLike[str]
Settings = str | Sequence[str] | Mapping[str, object]

WORDS = {
    str: "a text",
    bool: "True or False",
    int: "a whole number",
    float: "a number",
    PathLike: "a path",
    Mapping: "a mapping",
    NoneType: "None",
}
GONE = {"seed": "seeds=[{value}]", "draws": "settings={{'draws': '{value}'}}"}  # arguments of earlier versions


def checked(function: Callable[Given, Result]) -> Callable[Given, Result]:
    """Refuse arguments that do not fit the annotations of a function. Raises ``BadValue`` before it is called."""
    signature = inspect.signature(function)
    hints = functools.cache(lambda: _hints(function))
    takes = signature.parameters

    @functools.wraps(function)
    def call(*given: Given.args, **named: Given.kwargs) -> Result:
        for name, value in named.items():
            if name not in takes and "where" in takes:
                _check_place(function.__name__, name, value, fields(takes["where"].default))
        try:
            arguments = signature.bind(*given, **named).arguments
        except TypeError as error:
            raise BadValue(f"{function.__name__}: {error}.") from None
        for name, value in arguments.items():
            each = value if takes[name].kind is inspect.Parameter.VAR_KEYWORD else {name: value}
            for said, one in each.items() if name in hints() else ():
                check(one, hints()[name], said)
        return function(*given, **named)

    return call


def _hints(function: Callable[..., object]) -> dict[str, Any]:
    """Types of the parameters of a function; its return type may be one that is not imported yet."""
    given = {name: hint for name, hint in function.__annotations__.items() if name != "return"}
    return typing.get_type_hints(SimpleNamespace(__annotations__=given), globalns=function.__globals__)


def _check_place(function: str, name: str, value: object, places: Iterable[Field[object]]) -> None:
    """Say where an argument belongs that the function itself does not take."""
    if name in {field.name for field in places}:
        raise BadValue(f"{function} takes no '{name}': say {function}(..., where=icl.Where({name}={_shown(value)})).")
    if name in GONE:
        raise BadValue(f"{function} takes no '{name}': say {GONE[name].format(value=value)}.")


def check(value: object, hint: object, name: str) -> None:
    """Raise ``BadValue`` where a value does not fit an annotation."""
    if not fits(value, hint):
        raise BadValue(f"{name} must be {described(hint)}, got {_shown(value)}.")


def fits(value: object, hint: object) -> bool:
    """True if a value is of an annotated type: whole numbers count as numbers, True and False do not.

    >>> fits([1, 2.5], Sequence[float]), fits("12", Sequence[str]), fits(True, int), fits(None, int | None)
    (True, False, False, True)
    """
    origin, inside = typing.get_origin(hint), typing.get_args(hint)
    if hint is object:
        return True
    if origin in (UnionType, typing.Union):
        return any(fits(value, each) for each in inside)
    if origin is Literal:
        return isinstance(value, str) and value in inside
    if origin is tuple:
        return isinstance(value, tuple) and len(value) == len(inside) and all(map(fits, value, inside))
    if origin is Sequence:  # a text is a sequence of texts only where that is said
        return (
            isinstance(value, Sequence) and not isinstance(value, str) and all(fits(each, inside[0]) for each in value)
        )
    if origin is Mapping:
        return isinstance(value, Mapping) and all(fits(each, inside[0]) for each in value)
    if hint in (int, float):
        kind = numbers.Integral if hint is int else numbers.Real
        return isinstance(value, kind) and not isinstance(value, bool)
    return isinstance(value, typing.cast(type, origin or hint))


def described(hint: object) -> str:
    """Return an annotation in words.

    >>> described(Sequence[str] | str | None)
    'a list of texts, a text or None'
    """
    origin, inside = typing.get_origin(hint), typing.get_args(hint)
    if origin in (UnionType, typing.Union):
        *first, last = dict.fromkeys(map(described, inside))
        return f"{', '.join(first)} or {last}" if first else last
    if origin is Literal:
        return " or ".join(map(repr, inside))
    if origin is tuple:
        return f"a pair ({', '.join(map(described, inside))})"
    if origin is Sequence:
        each = described(inside[0])
        return f"a list ({each} each)" if " or " in each else f"a list of {each.removeprefix('a ')}s"
    kind = typing.cast(type, origin or hint)
    return WORDS.get(kind) or f"a {kind.__name__}"


def _shown(value: object) -> str:
    return " ".join(reprlib.repr(value).split())


def whole(value: int, name: str, least: int, most: int = 1_000_000) -> int:
    """Return a whole number within bounds; raises ``BadValue`` otherwise."""
    check(value, int, name)
    if not least <= value <= most:
        raise BadValue(f"{name} must be a whole number from {least} to {most:,}, got {value!r}.")
    return int(value)


def several(values: str | Iterable[str]) -> list[str]:
    """Return texts as a list; one alone may be given as it is."""
    return [values] if isinstance(values, str) else list(values)


def rules_of(values: str | Iterable[str]) -> list[str]:
    """Return normalizers, several in a text too; a comma before ``name=`` is inside one of them.

    >>> rules_of("softmax ssa:n=2,b=1,log-n"), rules_of(["softmax", "ssa"])
    (['softmax', 'ssa:n=2,b=1', 'log-n'], ['softmax', 'ssa'])
    """
    parts = (part.strip() for text in several(values) for part in re.split(r"[,\s](?!\s*[\w-]+=)", text))
    return [part for part in parts if part]


def settings_of(settings: Settings) -> list[str]:
    """Return settings as ``--set`` takes them, from texts or from a mapping.

    >>> settings_of({"train.steps": 20, "model.mlp": False, "test.axes.length": [5, 12]})
    ['train.steps=20', 'model.mlp=no', 'test.axes.length=5,12']
    """
    if not isinstance(settings, Mapping):
        return several(settings)
    if lists := [name for name, value in settings.items() if _values(name, value)]:
        raise BadValue(f"settings: {', '.join(lists)} has several values; icl.grid(...) takes them.")
    return [f"{name}={write(value)}" for name, value in settings.items()]


def grid_of(settings: Settings) -> tuple[list[str], dict[str, list[str]]]:
    """Return settings as ``--set`` takes them, and those with a list of values as ``--grid`` does.

    The value of an axis is a list itself, so that several are a list of lists.

    >>> grid_of({"train.steps": 20, "train.rate": [0.001, 0.002], "test.axes.length": [[5], [5, 12]]})
    (['train.steps=20'], {'train.rate': ['0.001', '0.002'], 'test.axes.length': ['5', '5,12']})
    """
    if not isinstance(settings, Mapping):
        return several(settings), {}
    lists = {name: values for name, value in settings.items() if (values := _values(name, value))}
    return settings_of({name: value for name, value in settings.items() if name not in lists}), lists


def _values(name: str, value: object) -> list[str]:
    """Return the values of a setting with several: of a list, for an axis of a list of lists; else nothing."""
    if not isinstance(value, Sequence) or isinstance(value, str):
        return []
    if name.startswith("test.axes.") and not any(isinstance(each, Sequence) for each in value):
        return []
    return [write(each) for each in value]
