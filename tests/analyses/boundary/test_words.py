"""The finding: the bound of each normalizer in one sentence."""

import math

from icl_lab.analyses.boundary.report import finding

NONE = [math.nan] * 3


def test_finding_names_bounds_and_their_growth(planted):
    steep = [lambda a, c, s=s: (8.0 + s) * a ** (1 + s / 100) for s in (-1, 0, 1)]
    found = planted([9.0, 10.0, 11.0], slopes=(1.0, 10.0), ssa=steep)
    assert finding(found) == (
        "Median answers do not exceed about 10 [7.52, 12.5] for `softmax` and 44.1 [28.1, 60] for `ssa` (B, 3 training "
        "seeds, true values up to 40 in size); the bound hardly grows with the slope (exponent 0.00 [0.00, 0.00] for "
        "`softmax`); the bound grows with the slope (exponent 1.00 [0.98, 1.02] for `ssa`)."
    )


def test_finding_says_where_no_bound_was_detected(planted):
    assert finding(planted(NONE)) == "No bound of `softmax` was detected up to 40."
    assert finding(planted([0.1, -0.2, 0.0], ssa=NONE)) == (
        "The answers of `softmax` stay near 0; no bound of `ssa` was detected up to 40."
    )


def test_finding_of_one_seed_has_no_interval_and_no_verdict(planted):
    assert finding(planted([10.0], slopes=(1.0, 3.0))) == (
        "Median answers do not exceed about 10 for `softmax` (B, 1 training seed, true values up to 40 in size); B ~ "
        "|slope|^alpha with alpha 0.00 for `softmax`."
    )
    some = finding(planted([9.0, math.nan, 11.0]))
    assert "10 [-2.71, 22.7] for `softmax` in 2 of 3 seeds (B" in some
