"""The tables: what is said of a normalizer over seeds, of each run, and of normalizers against the first one."""

import math

from icl_lab.analyses.boundary import report
from icl_lab.analyses.boundary.curves import Line


def claims(found):
    return report._claims(found, "softmax", Line(1), 1)


def test_bounds_over_seeds_have_students_interval(planted):
    # 10 +- t(2) sd / sqrt 3 = 4.303 / 1.732
    assert claims(planted([9.0, 10.0, 11.0])) == ["plateau 3", "5", "10 [7.52, 12.5]", "7"]
    assert claims(planted([9.0, math.nan, 11.0])) == ["plateau 2, none in range 1", "5", "10 (2 of 3 seeds)", "7"]
    assert claims(planted([math.nan] * 2))[:3] == ["none in range 2", "5", "> 40"]
    assert claims(planted([10.0]))[2] == "10"


def test_bound_of_a_run_has_its_interval_over_contexts(planted):
    assert report._each(planted([10.0]), "softmax", Line(1), 1, 0) == "plateau 10 [9, 11] (90%)"
    assert report._each(planted([math.nan]), "softmax", Line(1), -1, 0) == "> 40 (90%)"


def test_rules_are_compared_over_shared_seeds(planted):
    # log ratios log 2, log 2, log 2.25: mean 0.7324, t(2) sd / sqrt 3 = 4.303 * 0.0680 / 1.732 = 0.1690
    three = [8.0, 10.0, 12.0]
    assert report._against(planted(three, ssa=[16.0, 20.0, 27.0]))[-1] == "| `ssa` | 2.08 [1.76, 2.46] | 1 [1, 1] | 3 |"
    # log 2 and log 3: their mean is log sqrt 6
    assert report._against(planted(three, ssa=[16.0, 30.0]))[-1].startswith("| `ssa` | 2.45 [")
    assert report._against(planted(three, ssa=[math.nan, 8.0]))[-1].startswith("| `ssa` | none | 1 ")


NONE = [math.nan] * 3


def test_finding_names_bounds_and_their_growth(planted):
    steep = [lambda a, c, s=s: (8.0 + s) * a ** (1 + s / 100) for s in (-1, 0, 1)]
    found = planted([9.0, 10.0, 11.0], slopes=(1.0, 10.0), ssa=steep)
    assert report.finding(found) == (
        "Median answers do not exceed about 10 [7.52, 12.5] for `softmax` and 44.1 [28.1, 60] for `ssa` (B, 3 training "
        "seeds, true values up to 40 in size); the bound hardly grows with the slope (exponent 0.00 [0.00, 0.00] for "
        "`softmax`); the bound grows with the slope (exponent 1.00 [0.98, 1.02] for `ssa`)."
    )


def test_finding_says_where_no_bound_was_detected(planted):
    assert report.finding(planted(NONE)) == "No bound of `softmax` was detected up to 40."
    assert report.finding(planted([0.1, -0.2, 0.0], ssa=NONE)) == (
        "The answers of `softmax` stay near 0; no bound of `ssa` was detected up to 40."
    )


def test_finding_of_one_seed_has_no_interval_and_no_verdict(planted):
    assert report.finding(planted([10.0], slopes=(1.0, 3.0))) == (
        "Median answers do not exceed about 10 for `softmax` (B, 1 training seed, true values up to 40 in size); B ~ "
        "|slope|^alpha with alpha 0.00 for `softmax`."
    )
    some = report.finding(planted([9.0, math.nan, 11.0]))
    assert "10 [-2.71, 22.7] for `softmax` in 2 of 3 seeds (B" in some
