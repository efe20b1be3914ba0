"""Bounds over seeds: which are typical, and how they grow with the slope and with the context."""

import math

import pytest

from icl_lab.analyses.boundary import curves, report
from icl_lab.analyses.boundary.curves import Line


@pytest.mark.parametrize(
    ("law", "alpha", "gamma", "reading"),
    [
        (lambda a, c: 9.0, 0, 0, "nearer to a bound on the output"),
        (lambda a, c: 2.0 * a, 1, 0, "nearer to a bound on the input"),
        (lambda a, c: 2.0 * a * c, 1, 1, "nearer to a bound on the input"),
    ],
)
def test_growth_recovers_planted_exponents(planted, law, alpha, gamma, reading):
    wobble = [lambda a, c, s=s: law(a, c) * a**s for s in (-0.02, 0.0, 0.02)]
    found = planted(wobble, slopes=(1.0, 3.0, 10.0), scales=(1.0, 0.3))
    assert [each[0] for each in found.growth("softmax")] == pytest.approx([alpha - 0.02, alpha, alpha + 0.02], abs=1e-6)
    assert [each[1] for each in found.growth("softmax")] == pytest.approx([gamma] * 3, abs=1e-6)
    assert report._control(found)[-1].endswith(f"{reading} |")


def test_the_largest_number_of_a_prompt_by_hand():
    """Queries of answers up to 1,000; inputs of six standard deviations, and their labels."""
    assert curves.largest(Line(1), 5) == 1000
    assert curves.largest(Line(0.01, 1), 5) == pytest.approx(100_100)
    assert curves.largest(Line(0.5, 1, 1000), 5) == 6000
    assert curves.largest(Line(2, 1, 1000), 5) == 12_001


def test_growth_leaves_out_curves_without_a_bound(planted):
    law = lambda a, c: 5.0 * a if a < 5 else math.nan  # noqa: E731
    (alpha, gamma, used), *_ = planted([law], slopes=(1.0, 3.0, 10.0)).growth("softmax")
    assert (alpha, used) == (pytest.approx(1), 4)
    assert math.isnan(gamma)
    (alpha, _, used), *_ = planted([law], slopes=(1.0, 10.0)).growth("softmax")
    assert math.isnan(alpha)
    assert used == 2


def test_typical_bound_is_a_median_in_plain_contexts(planted):
    found = planted([lambda a, c: 5.0 * a * c], slopes=(1.0, 3.0), scales=(0.3, 1.0))
    frame = found.first.frame
    frame.loc[(frame["side"] == 1) & (frame["metric"] == "bound"), "value"] *= 3
    assert found.typical("softmax", 0) == 15  # the median of 5 and 15 on the left, 15 and 45 on the right
    assert math.isnan(planted([math.nan]).typical("softmax", 0))


def test_both_sides_are_averaged_where_both_have_a_bound(planted):
    found = planted([10.0, 12.0])
    frame = found.first.frame
    frame.loc[(frame["side"] == 1) & (frame["metric"] == "bound") & (frame["seed"] == 0), "value"] = 20
    frame.loc[(frame["side"] == 1) & (frame["metric"] == "bound") & (frame["seed"] == 1), "value"] = math.nan
    assert found.both("softmax", 1.0, 1.0) == [15, 12]
    assert found.plain == [Line(1)]
    assert (found.reach, found.contexts) == (40, 16)
