"""Types of command-line options with their bounds, and words that are text.

A number has a greatest value as well as a least, and a path is looked at, before anything is loaded for it.
"""

import math
import os
import re
import unicodedata
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from icl_lab.execute.arguments import rules_of
from icl_lab.execute.where import JOBS

LONGEST_WORD = 20_000  # characters
LONGEST_NAME, LONGEST_PATH = 255, 4000  # bytes: what file systems take of one folder's name, and of a whole path
UNITS = {"s": 1, "m": 60, "min": 60, "h": 3600, "d": 86_400}  # seconds
NO_TEXT = ("Cc", "Cs", "Zl", "Zp")  # Unicode's control characters, bytes that are not UTF-8, ends of lines


def check_words(words: Iterable[str]) -> None:
    """Raise ``UsageError`` on a word that is not one line of text, or has more than ``LONGEST_WORD`` characters."""
    for word in words:
        if len(word) > LONGEST_WORD:
            raise click.UsageError(
                f"'{word[:40]}...' has {len(word):,} characters, more than the {LONGEST_WORD:,} that a word may have."
            )
        if any(unicodedata.category(letter) in NO_TEXT for letter in word):
            raise click.UsageError(f"{word!a} is no text of one line in UTF-8.")


class Folder(click.Path):
    """A folder that has a name. One that is typed must be there where the command only reads it (``there``)."""

    def __init__(self, there: bool = False) -> None:
        super().__init__(path_type=Path)
        self.there = there

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Refuse an empty name, which would be the folder that the command was typed in, and what can be no folder."""
        text = str(value)
        if not text.strip() or "\0" in text:
            self.fail(f"'{value}' names no folder; a dot means this one.", param, ctx)
        size = len(os.fsencode(text))
        if size > LONGEST_PATH or any(len(os.fsencode(part)) > LONGEST_NAME for part in Path(text).parts):
            self.fail(
                f"'{text[:40]}...' is too long for a path: {LONGEST_NAME} bytes a folder, {LONGEST_PATH} in all.",
                param,
                ctx,
            )
        self._look(Path(text), param, ctx)
        return super().convert(value, param, ctx)

    def _look(self, path: Path, param: click.Parameter | None, ctx: click.Context | None) -> None:
        try:
            nearest = next((each for each in (path, *path.parents) if each.exists()), Path())
            whole, within = nearest == path, nearest.is_dir()
        except OSError as error:
            self.fail(f"'{path}' cannot be read: {error.strerror or error}.", param, ctx)
        if not within:
            self.fail(f"'{path}' is no folder: {nearest} is a file.", param, ctx)
        typed = ctx and param and ctx.get_parameter_source(str(param.name)) is ParameterSource.COMMANDLINE
        if self.there and typed and not whole:
            self.fail(f"there is no folder '{path}'.", param, ctx)


class NewFile(Folder):
    """A file that will be written, in a folder that is there or can be made."""

    def _look(self, path: Path, param: click.Parameter | None, ctx: click.Context | None) -> None:
        if path.is_dir():
            self.fail(f"'{path}' is a folder; name a file.", param, ctx)
        super()._look(path.parent, param, ctx)


class Finite(click.FloatRange):
    """A finite number within bounds: comparisons let NaN through."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Refuse NaN, then what lies out of bounds."""
        found = super().convert(value, param, ctx)
        if math.isnan(found):
            self.fail(f"'{value}' is not a finite number.", param, ctx)
        return found


class Numbers(click.ParamType):  # type: ignore[type-arg]  # no generic type before click 8.2
    """Numbers of one kind with commas between, each within bounds, each once; an empty text is none where ``empty``."""

    name = "numbers"

    def __init__(self, kind: type[int] | type[float], least: float, most: float, *, empty: bool = False) -> None:
        self.kind, self.least, self.most, self.empty = kind, least, most, empty

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Parse the list; one bad element refuses it as a whole."""
        text = str(value)
        if isinstance(value, tuple) or (self.empty and not text):
            return value or ()
        try:
            found = tuple(dict.fromkeys(self._read(word) for word in text.split(",")))
        except ValueError:
            words = "whole numbers" if self.kind is int else "numbers"
            self.fail(
                f"'{text}' is not a list of {words} from {self.least:,.15g} to {self.most:,.15g} with commas between.",
                param,
                ctx,
            )
        return found

    def _read(self, word: str) -> float:
        """Only what people write here: Python reads 1_000 as well, and the digits of other scripts."""
        if not word.isascii() or "_" in word:
            raise ValueError(word)
        number = self.kind(word)
        if not self.least <= number <= self.most:  # NaN lies nowhere
            raise ValueError(word)
        return number


class RunsAtOnce(click.IntRange):
    """Number of runs at once, or ``auto``."""

    name = "auto|number"

    def __init__(self) -> None:
        super().__init__(1, JOBS)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Take the word as it is; refuse other numbers."""
        return value if value == "auto" else super().convert(value, param, ctx)


def several_rules(context: click.Context, option: click.Parameter, given: tuple[str, ...]) -> tuple[str, ...]:
    """Read normalizers in a row: ``softmax,ssmax:s=swap log-n``. A comma before ``name=`` is inside one of them."""
    rules = tuple(rules_of(given))
    if given and not rules:
        raise click.BadParameter(f"'{' '.join(given)}' names no normalizer; such as softmax,ssa.", context, option)
    return rules


# Normalizers of a command, as a tuple ``attns``.
attn_option = partial(click.option, "--attn", "attns", multiple=True, callback=several_rules)


def several_settings(context: click.Context, option: click.Parameter, given: tuple[str, ...]) -> tuple[str, ...]:
    """Read settings in a row: ``train.steps=20 test.axes.sigma=1, 2``. Spaces before ``name=`` part them."""
    return tuple(part for text in given for part in re.split(r"\s+(?=[\w.-]+=)", text.strip()))


def cell_of(context: click.Context, option: click.Parameter, given: tuple[str, ...]) -> dict[str, float]:
    """Read the labels of a cell: ``length=80``, ``sigma_f=4 length=80``."""
    found = dict[str, float]()
    for text in (part for each in given for part in each.split()):
        axis, sign, value = text.partition("=")
        try:
            found[axis] = float(value)
        except ValueError:
            sign = ""
        if not sign or not math.isfinite(found[axis]):
            raise click.BadParameter(f"'{text}' is not AXIS=NUMBER.")
    return found


def grid_of(context: click.Context, option: click.Parameter, given: tuple[str, ...]) -> dict[str, list[str]]:
    """Read the fields of a grid: ``train.rate=0.001,0.002``. A comma before ``name=`` is inside a value."""
    found = dict[str, list[str]]()
    for text in given:
        name, sign, values = text.partition("=")
        if not sign or not name.strip() or name.strip() in found:
            raise click.BadParameter(f"'{text}' is not FIELD=VALUE,VALUE with a field that is named once.")
        found[name.strip()] = [value.strip() for value in re.split(r",(?!\s*[\w-]+=)", values) if value.strip()]
    return found


def seconds(context: click.Context, option: click.Parameter, text: str | None) -> float | None:
    """Read a time such as 90m, 3h or 1.5h."""
    if text is None:
        return None
    found = re.fullmatch(r"([0-9]{1,6}(?:\.[0-9]{1,3})?)\s*(s|m|min|h|d)", text.strip())
    if not found or not float(found[1]):
        raise click.BadParameter(f"'{text}' is no time such as 90m, 3h or 1.5h.")
    return float(found[1]) * UNITS[found[2]]
