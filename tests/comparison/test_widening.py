"""Intervals of two sources of noise and their p values: closed forms, agreement, simulated studies without effect."""

import math

import numpy as np
import pytest
from scipy import stats

from icl_lab.base.errors import BadValue
from icl_lab.comparison import statistics as st
from icl_lab.comparison.widening import half_width, p_value


def effects(count: int) -> list[st.Effect]:
    """Widened comparisons of all sorts: few and many seeds, wide and narrow prompts, unlike below and above."""
    rng = np.random.default_rng(0)
    made = []
    for _ in range(count):
        seeds, size = int(rng.integers(1, 9)), 10 ** rng.uniform(-2, 1)
        b = rng.normal(rng.normal(0, 2), 0.5, seeds)
        below, above = size * rng.random(2)
        seen = st.paired(np.zeros(seeds), b, "difference")
        made.append(seen.widened(noise(seen.effect, seen.effect - below, seen.effect + above)))
    return made


def noise(effect: float, low: float, high: float) -> st.Evaluation:
    return st.Evaluation(scale="difference", effect=effect, low=low, high=high)


def test_half_widths_by_hand():
    # t(2) at 97.5 % is 4.302653, z 1.959964; 3 and 4 of them in quadrature.
    assert half_width(0.05, 1, 2, 0) == pytest.approx(4.302653, abs=1e-6)
    assert half_width(0.05, 0, 2, 1) == pytest.approx(1.959964, abs=1e-6)
    assert half_width(0.05, 3 / 4.302653, 2, 4 / 1.959964) == pytest.approx(5, abs=1e-6)


def test_p_of_one_source_is_that_of_its_test():
    a, b = np.random.default_rng(1).normal(size=(2, 6))
    found = st.paired(a, b + 1, "difference")
    assert found.p == pytest.approx(stats.ttest_rel(b + 1, a).pvalue)
    assert found.p == pytest.approx(found.p_t)
    one = st.paired([0.0], [0.3], "difference").widened(noise(0.3, 0.0, 0.4))
    assert math.isnan(one.p_t)
    assert one.p == pytest.approx(0.05)  # its interval just touches 0
    assert p_value(-2.5, 0, 1, 1) == pytest.approx(2 * stats.norm.sf(2.5))


def test_p_is_the_level_at_which_the_interval_touches_0():
    for found in (made for made in effects(300) if 1e-6 < made.p < 1):
        low, high = found.interval(1 - found.p)
        assert min(abs(low), abs(high)) == pytest.approx(0, abs=1e-8 * (high - low))
        assert found.interval() == pytest.approx((found.low, found.high))


@pytest.mark.slow
def test_p_is_below_one_in_twenty_where_the_interval_excludes_0():
    made = effects(2000)
    assert [found.p < 0.05 for found in made] == [found.clear for found in made]
    assert 300 < sum(found.clear for found in made) < 1700


def test_p_of_what_is_the_same_or_unknown():
    same = st.paired([1, 2, 3], [1, 2, 3], "difference")
    assert same.p == 1
    assert same.widened(noise(0, 0, 0)).p == 1
    assert math.isnan(st.paired([1], [2], "difference").p)
    assert math.isnan(st.paired([0.1, 0.3], [0.2, 0.4], "difference").p)
    # No noise of any kind: the interval is a point beside 0.
    point = st.paired([0.0], [1.0], "difference").widened(noise(1, 1, 1))
    assert (point.low, point.high, point.p) == (1, 1, 0)
    found = p_value([math.nan, 1, 0, 0], [1, math.nan, 0, 1], 2, [1, 1, 0, 1])
    np.testing.assert_array_equal(found, [math.nan] * 2 + [1, 1])


def test_within_a_margin_by_hand():
    # Mean 0.02, standard error 0.01/sqrt(3), t(2) at 95 % is 2.919986: the 90 % interval is 0.02 -+ 0.016859.
    found = st.paired([0, 0, 0], [0.01, 0.02, 0.03], "difference")
    assert found.interval(0.9) == pytest.approx((0.02 - 0.016859, 0.02 + 0.016859), abs=1e-6)
    assert st.within(found, 0.0369)
    assert not st.within(found, 0.0368)
    turned = st.paired([0.01, 0.02, 0.03], [0, 0, 0], "difference")
    assert st.within(turned, 0.0369)
    assert not st.within(turned, 0.0368)
    wide = found.widened(noise(0.02, -0.02, 0.06))
    assert not st.within(wide, 0.05)
    assert st.within(found, st.MARGIN["difference"])
    assert not st.within(st.paired([1], [1], "difference"), 9)
    assert math.exp(st.MARGIN["log-ratio"]) == pytest.approx(1.25)
    with pytest.raises(BadValue, match="above 0"):
        st.within(found, -0.05)


@pytest.mark.parametrize(("seeds", "prompts"), [(3, 64), (8, 64), (5, 256)])
@pytest.mark.exhaustive
def test_p_keeps_its_promise_where_prompts_like_a_rule(seeds: int, prompts: int) -> None:
    """No normalizer is better, each prompt likes one of them: the p of seeds errs too often, the widened does not."""
    studies = 1000
    rng = np.random.default_rng(seeds)
    liking = 0.08 - 0.4 * rng.standard_normal((studies, 1, prompts))  # log of it has mean exp(.) 1
    hard, runs = 1.5 * rng.standard_normal((studies, 1, prompts)), 0.07 * rng.standard_normal((2, studies, seeds, 1))
    own = 0.2 * rng.standard_normal((2, studies, seeds, prompts))
    both = np.exp(np.stack((hard + runs[0] + own[0], hard - liking + runs[1] + own[1])))
    means = np.log(st.resampled(both, seed=1, resamples=400))  # (resamples 2 studies seeds)
    moved = (means[:, 1] - means[:, 0]).mean(axis=2)
    found = [
        st.paired(a, b).widened(st.evaluation(moves, "log-ratio"))
        for a, b, moves in zip(*both.mean(axis=3), moved.T, strict=True)
    ]
    widened = np.mean([study.p < 0.05 for study in found])
    assert widened <= 0.065
    assert np.mean([study.p_t < 0.05 for study in found]) > 2 * widened > 0.02


@pytest.mark.exhaustive
def test_one_table_of_many_rules_and_cells_errs_in_one_of_twenty() -> None:
    """29 normalizers against a baseline, 40 cells alike by half, 8 seeds on 64 prompts that like one or another.

    Corrected over the cells of a normalizer alone, most tables without any difference would have a star.
    """
    studies, rules, cells, seeds, prompts = 150, 29, 40, 8, 64
    rng = np.random.default_rng(0)
    any_star, any_of_a_rule = [], []
    for study in range(studies):
        # Of each run and of each prompt a half is common to all cells; the baseline's part is common to all
        # normalizers.
        runs = rng.standard_normal((rules, 1, seeds)) + rng.standard_normal((rules, cells, seeds))
        runs += rng.standard_normal((1, 1, seeds)) + rng.standard_normal((1, cells, seeds))
        likes = rng.standard_normal((rules, 1, prompts)) + rng.standard_normal((rules, cells, prompts))
        d = 0.1 * runs + likes.mean(axis=2, keepdims=True)
        moved = st.resampled(likes, seed=study, resamples=400)
        low, high = np.quantile(moved[1:] - moved[0], [0.025, 0.975], axis=0)
        effect, error = d.mean(axis=2), d.std(axis=2, ddof=1) / math.sqrt(seeds)
        towards = np.where(effect > 0, -low, high) / stats.norm.ppf(0.975)
        p = p_value(effect, error, seeds - 1, towards)
        any_star.append(st.holm(p.ravel()).min() < 0.05)
        any_of_a_rule.append(min(st.holm(row).min() for row in p) < 0.05)
    assert np.mean(any_star) <= 0.07
    assert np.mean(any_of_a_rule) > 0.4
