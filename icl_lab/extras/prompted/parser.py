"""BatchAnswers read from text, strictly.

A model that reasons before it answers, that gives two numbers, or a number with a unit, has not answered in the form
that was asked for. A lenient parser scores its own guesses.
"""

import math
import re
from collections.abc import Sequence

# ``answer: ..``, ``#Answer: ..``, ``the answer is ..``, ``y = ..``
LABEL = re.compile(
    r"(?:#\s*)?(?:(?:the\s+)?(?:final\s+)?(?:answer|output|result|y)\s*(?:is\s*:?|[:=])\s*)", re.IGNORECASE
)
NUMBER = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]+)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
LONGEST = 1000  # characters of an answer, without spaces around it, that may be in the form that was asked for
WRAPS = ("```", "**", "`", "$", '"', "'")


def parse_number(text: str) -> float | None:
    """Return the one number that a text is; None where it is anything else, or no finite number.

    A sign, decimals after a point, an exponent, a minus of print, a label in front and a full stop behind are read;
    thousands set apart, fractions, units and ranges are not.

    >>> [parse_number(text) for text in ("answer: 3.2.", "−1", "1e3", "1,000", "1/2", "2 or 3")]
    [3.2, -1.0, 1000.0, None, None, None]
    """
    for form in _forms(text.replace("\u2212", "-")):  # the minus of print
        if NUMBER.fullmatch(form):
            return float(form) if math.isfinite(float(form)) else None
    return None


def parse_choice(text: str, choices: Sequence[str]) -> str | None:
    """Return the one choice that a text is, whatever its case; None where it is anything else.

    >>> parse_choice(" true.", ["False", "True"]), parse_choice("True, because", ["False", "True"])
    ('True', None)
    """
    for form in _forms(text):
        if form in choices:
            return form
        found = [each for each in choices if each.casefold() == form.casefold()]
        if len(found) == 1:
            return found[0]
    return None


def _forms(text: str) -> tuple[str, str]:
    """A text without label in front and signs of typesetting around it, with and without a full stop behind."""
    bare, before = text.strip(), None
    if len(bare) > LONGEST:
        return "", ""
    while bare != before:
        before = bare
        if label := LABEL.match(bare):
            bare = bare[label.end() :].strip()
        for wrap in WRAPS:
            if len(bare) > 2 * len(wrap) and bare.startswith(wrap) and bare.endswith(wrap):
                bare = bare[len(wrap) : -len(wrap)].strip()
    return bare, bare.removesuffix(".")
