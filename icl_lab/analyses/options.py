"""The options of an analysis: fields of its dataclass, with the values that they take."""

import dataclasses
import math
import types
import typing
from collections.abc import Sequence
from typing import Any, cast

from icl_lab.errors import BadValue
from icl_lab.parts.option_values import GREATEST

WHOLES = 1_000_000  # the greatest whole number of an option that names no other bound
VALUES = 1000  # of one option: each is measured by itself


def option(
    default: Any,
    help: str,
    *,
    least: float | None = None,
    most: float | None = None,
    names: Sequence[str] = (),
    later: bool = False,
) -> Any:
    """Declares a field that is an option: its default, its help, its least and greatest value, and further names.

    One that came ``later`` is not recorded where it has its default: studies from before it ask the same question.
    """
    about = {"help": help, "least": least, "most": most, "names": tuple(names), "later": later}
    return dataclasses.field(default=default, metadata=about)


def kind_of(hint: object) -> tuple[type, bool]:
    """Returns the type of one value of an option, and whether there may be several.

    >>> kind_of(tuple[float, ...]), kind_of(int | None)
    ((<class 'float'>, True), (<class 'int'>, False))
    """
    if typing.get_origin(hint) is tuple:
        return typing.get_args(hint)[0], True
    if typing.get_origin(hint) in (types.UnionType, typing.Union):
        return next(kind for kind in typing.get_args(hint) if kind is not type(None)), False
    return cast(type, hint), False


def bounds(field: "dataclasses.Field[Any]", kind: type) -> tuple[float, float]:
    """Returns the least and the greatest value of an option of numbers, those of its kind where it names none."""
    usual = (-WHOLES, WHOLES) if kind is int else (-GREATEST, GREATEST)
    found = (field.metadata.get(name) for name in ("least", "most"))
    least, most = (bound if declared is None else declared for declared, bound in zip(found, usual, strict=True))
    return least, most


def _plain(value: float) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:g}"


def check(analysis: object) -> None:
    """Raises ``BadValue`` where an option of an analysis, a dataclass, has a value out of its bounds or too many."""
    hints = typing.get_type_hints(type(analysis))
    for field in dataclasses.fields(cast(Any, analysis)):
        value = getattr(analysis, field.name)
        if isinstance(value, tuple) and len(value) > VALUES:
            raise BadValue(f"{field.name} takes at most {VALUES} values, got {len(value):,}.")
        for each in value if isinstance(value, tuple) else (value,):
            if isinstance(each, float) and not math.isfinite(each):
                raise BadValue(f"{field.name} must be finite, got {each:g}.")
            if isinstance(each, int | float) and not isinstance(each, bool):
                least, most = bounds(field, kind_of(hints[field.name])[0])
                if each < least:
                    raise BadValue(f"{field.name} must be at least {least:g}, got {_plain(each)}.")
                if each > most:
                    raise BadValue(f"{field.name} must be at most {_plain(most)}, got {_plain(each)}.")
