"""Reads an answer from text, strictly: it is the answer and nothing else, or it is none.

A model that reasons before it answers, that gives two numbers, or a number with a unit, has not answered in the form
that was asked for: what it meant would be somebody's guess, and a lenient parser scores its own guesses.
"""

import math
import re
from collections.abc import Sequence

from icl_lab.prompted.formats import Sent

# ``answer: ..``, ``#Answer: ..``, ``the answer is ..``, ``y = ..``
LABEL = re.compile(
    r"(?:#\s*)?(?:(?:the\s+)?(?:final\s+)?(?:answer|output|result|y)\s*(?:is\s*:?|[:=])\s*)", re.IGNORECASE
)
NUMBER = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]+)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
WRAPS = ("```", "**", "`", "$", '"', "'")
MINUS = "\u2212"  # the minus of print


def number(text: str) -> float | None:
    """Returns the one number that a text is; None where it is anything else, or no finite number.

    A sign, decimals after a point, an exponent, a minus of print, a label in front and a full stop behind are read;
    thousands set apart, fractions, units and ranges are not.

    >>> number("answer: 3.2."), number("−1"), number("1e3"), number("1,000"), number("1/2"), number("2 or 3")
    (3.2, -1.0, 1000.0, None, None, None)
    """
    bare = _bare(text).replace(MINUS, "-")
    for form in (bare, bare.removesuffix(".")):
        if NUMBER.fullmatch(form):
            value = float(form)
            return value if math.isfinite(value) else None
    return None


def choice(text: str, choices: Sequence[str]) -> str | None:
    """Returns the one choice that a text is, whatever its case; None where it is anything else.

    >>> choice(" true.", ["False", "True"]), choice("True, because", ["False", "True"])
    ('True', None)
    """
    bare = _bare(text)
    for form in (bare, bare.removesuffix(".")):
        found = [each for each in choices if each.casefold() == form.casefold()]
        if len(found) == 1 or form in choices:
            return form if form in choices else found[0]
    return None


def listed(text: str, choices: Sequence[str], length: int) -> list[str] | None:
    """Returns the choices of a list in square brackets; None unless all are choices and there are ``length`` of them.

    >>> listed("#Answer: [True, false]", ["False", "True"], 2)
    ['True', 'False']
    """
    bare = _bare(text).removesuffix(".")
    if not (bare.startswith("[") and bare.endswith("]")):
        return None
    found = [choice(part, choices) for part in bare[1:-1].split(",")]
    if len(found) != length or None in found:
        return None
    return [each for each in found if each is not None]


def first_part(text: str, sent: Sent) -> str:
    """Returns the answer up to where it was to stop, which not every server heeds; blanks before it do not count."""
    begun = text.lstrip()
    for stop in sent.stop:
        begun = begun.partition(stop)[0]
    return begun


def _bare(text: str) -> str:
    """A text without the label in front, and without the signs of typesetting around it."""
    bare = text.strip()
    while True:
        before = bare
        if label := LABEL.match(bare):
            bare = bare[label.end() :].strip()
        for wrap in WRAPS:
            if len(bare) > 2 * len(wrap) and bare.startswith(wrap) and bare.endswith(wrap):
                bare = bare[len(wrap) : -len(wrap)].strip()
        if bare == before:
            return bare
