"""Factors of a number that is multiplied: which are refused, and how they are put in order."""

import math

import pytest

from icl_lab.analyses.findings import FACTORS, check_factors, with_undisturbed
from icl_lab.base.errors import BadValue


@pytest.mark.parametrize("factor", [math.nan, math.inf, -math.inf, 0.0, -1.0])
def test_factors_are_finite_and_positive(factor):
    check_factors([0.5, 1000.0])
    with pytest.raises(BadValue, match="a factor must be finite and > 0, got"):
        check_factors([1.0, factor])


def test_factors_are_in_order_with_the_undisturbed_prompt():
    assert with_undisturbed([100, 0.5, 100]) == (0.5, 1.0, 100.0)
    assert with_undisturbed(()) == (1.0,)
    assert with_undisturbed(FACTORS) == FACTORS
