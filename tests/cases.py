"""Cases of a test of which ``make test`` takes the first few, and ``make test-all`` every one."""

from collections.abc import Iterable

import pytest


def few(count, cases: Iterable):
    """The cases, all but the first so many marked exhaustive."""
    made = [case if isinstance(case, tuple) else (case,) for case in cases]
    return [pytest.param(*case, marks=[pytest.mark.exhaustive] if at >= count else []) for at, case in enumerate(made)]


# Of normalizers: the softmax itself, a warped score, a recurrence over keys, a sparse map, and two maps with one value.
REPRESENTATIVES = {"softmax", "ssa", "stick-breaking", "entmax", "differential"}


def representatives(choices):
    """Mark all normalizers but five as exhaustive: for what the base class or the model does alike for all.

    Values of each are computed by hand (tests/normalizers/test_values.py), every day.
    """
    return [each if each in REPRESENTATIVES else pytest.param(each, marks=pytest.mark.exhaustive) for each in choices]
