"""Cases of a test of which ``make test`` takes the first few, and ``make test-all`` every one."""

from collections.abc import Iterable

import pytest


def few(count, cases: Iterable):
    """The cases, all but the first so many marked exhaustive."""
    return [case if at < count else pytest.param(case, marks=pytest.mark.exhaustive) for at, case in enumerate(cases)]
