"""The statistics keep their promises: closed forms, scipy, hand arithmetic, and simulated studies."""

import math
from collections.abc import Callable

import numpy as np
import pytest
from scipy import stats

from icl_lab.base.errors import BadValue, LabError
from icl_lab.comparison import statistics as st
from tests.cases import few

Draw = Callable[[np.random.Generator, int], tuple[np.ndarray, np.ndarray]]


# --- one comparison ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scale", ["log-ratio", "difference"])
@pytest.mark.parametrize("seeds", [2, 3, 5, 10])
def test_paired_agrees_with_scipy(seeds: int, scale: st.Scale) -> None:
    a, b = np.random.default_rng(seeds).lognormal(size=(2, seeds))
    found = st.paired(a, b, scale, confidence=0.9)
    test = stats.ttest_rel(np.log(b), np.log(a)) if scale == "log-ratio" else stats.ttest_rel(b, a)
    interval = test.confidence_interval(0.9)
    assert (found.low, found.high) == pytest.approx((interval.low, interval.high))
    assert st.paired(a, b, scale).interval(0.9) == pytest.approx((interval.low, interval.high))
    assert found.p_t == pytest.approx(test.pvalue)
    assert found.effect == pytest.approx((found.low + found.high) / 2)
    assert found.seeds == seeds


def test_paired_by_hand() -> None:
    # Differences 1, 2, 3: mean 2, standard error 1/sqrt(3), t(2) at 97.5 % is 4.3027.
    found = st.paired([1, 1, 1], [2, 3, 4], "difference")
    assert found.effect == 2
    assert (found.low, found.high) == pytest.approx((2 - 4.30265 / math.sqrt(3), 2 + 4.30265 / math.sqrt(3)), abs=1e-5)
    assert not found.clear
    halved = st.paired([2, 8, 6, 4], [1, 4.1, 2.9, 2])
    assert halved.ratio[0] == pytest.approx(0.5, rel=0.02)
    assert halved.ratio[1] < halved.ratio[0] < halved.ratio[2] < 1
    assert halved.clear
    assert halved.wins == 1
    assert st.paired([1, 1, 1, 1], [0, 1, 2, 3], "difference").wins == 0.375


@pytest.mark.parametrize("scale", ["log-ratio", "difference"])
@pytest.mark.parametrize("seeds", [2, 3, 8])
def test_identical_runs_compare_to_exactly_one(seeds: int, scale: st.Scale) -> None:
    a = np.random.default_rng(0).lognormal(size=seeds)
    found = st.paired(a, a.copy(), scale)
    assert (found.effect, found.low, found.high, found.p_t, found.middle, found.wins) == (0, 0, 0, 1, 0, 0.5)
    assert found.p_flip == 1 if seeds == 8 else math.isnan(found.p_flip)
    assert not found.clear
    if scale == "log-ratio":
        assert found.ratio == (1, 1, 1)


def test_one_seed_has_no_interval_and_says_so() -> None:
    found = st.paired([2.0], [1.0])
    assert found.ratio[0] == pytest.approx(0.5)
    assert np.isnan([found.low, found.high, found.p_t, found.p_flip]).all()
    assert not found.clear
    assert found.notes == (st.ONE_SEED, st.FEW_SEEDS)


def test_equal_steps_are_no_proof() -> None:
    # One prompt of 64 more in each of three seeds; written so that the differences differ by rounding.
    found = st.paired([0.1, 0.3, 0.7], [0.2, 0.4, 0.8], "difference")
    assert found.effect == pytest.approx(0.1)
    assert np.isnan([found.low, found.high, found.p_t]).all()
    assert not found.clear
    assert found.notes == (st.SAME_STEP, st.FEW_SEEDS)
    assert st.paired(np.zeros(8), np.full(8, 0.5), "difference").p_flip == 2 / 256


def test_the_sign_flip_test_begins_at_eight_seeds() -> None:
    a = np.arange(1.0, 9)
    assert st.paired(a, a**1.1 + 1).p_flip == 2 / 256
    assert st.paired(a, a**1.1 + 1).notes == ()
    few = st.paired(a[:7], a[:7] ** 1.1 + 1)
    assert math.isnan(few.p_flip)
    assert few.notes == (st.FEW_SEEDS,)


@pytest.mark.parametrize(
    ("a", "b", "scale", "message"),
    [
        ([1, 2, 3], [1, 2], "log-ratio", r"as many numbers on both sides, got shapes \(3,\) and \(2,\)"),
        ([1, math.nan], [1, 2], "log-ratio", "a must be above 0 .*got nan at position 1"),
        ([1, math.nan], [1, 2], "difference", "a must be finite, got nan at position 1"),
        ([1, 2], [math.inf, 2], "difference", "b must be finite, got inf at position 0"),
        ([1, 2], [0, 2], "log-ratio", r"b must be above 0 \(else compare by difference\), got 0.0 at position 0"),
        ([1, 2], [1, -2], "log-ratio", "b must be above 0 .*got -2.0 at position 1"),
        ([], [], "difference", "at least one number"),
        ([[1, 2]], [[1, 2]], "difference", "one row"),
        ([1], [1], "ratio", "scale must be log-ratio or difference, got ratio"),
    ],
)
def test_bad_input_is_refused_in_one_line(a: list[float], b: list[float], scale: st.Scale, message: str) -> None:
    with pytest.raises(BadValue, match=message) as caught:
        st.paired(a, b, scale)
    assert "\n" not in str(caught.value)


def test_a_ratio_beyond_all_floats_is_infinite() -> None:
    wild = st.paired([1, 1], [1e-300, 1e300])
    assert wild.ratio == (1, 0, math.inf)


def test_a_difference_has_no_ratio() -> None:
    with pytest.raises(LabError, match="needs scale log-ratio"):
        _ = st.paired([0, 0.1], [0.2, 0.1], "difference").ratio
    with pytest.raises(LabError, match="confidence must be between 0 and 1, got 95"):
        st.paired([1, 2], [1, 2], confidence=95)


# --- simulated studies ------------------------------------------------------------------------------------------------


def fails(rng: np.random.Generator, seeds: int) -> np.ndarray:
    """Log MSE of runs with 7 % noise, one in ten of them badly trained."""
    return 0.07 * rng.standard_normal(seeds) + (rng.random(seeds) < 0.1) * rng.exponential(0.5, seeds)


# Log MSE of baseline and normalizer over training seeds; the true log ratio is 0 in all four.
DRAWS: dict[str, Draw] = {
    "normal": lambda rng, seeds: (np.zeros(seeds), 0.1 * rng.standard_normal(seeds)),
    "t3": lambda rng, seeds: (np.zeros(seeds), 0.1 * rng.standard_t(3, seeds)),
    "both fail": lambda rng, seeds: (fails(rng, seeds), fails(rng, seeds)),
    "one fails": lambda rng, seeds: (0.05 + 0.07 * rng.standard_normal(seeds), fails(rng, seeds)),
}


def simulate(name: str, seeds: int, studies: int) -> list[st.Effect]:
    rng = np.random.default_rng(seeds)
    draws = (DRAWS[name](rng, seeds) for _ in range(studies))
    return [st.paired(np.exp(a), np.exp(b)) for a, b in draws]


@pytest.mark.slow
@pytest.mark.parametrize("seeds", few(1, [5, 3, 10]))
def test_the_interval_keeps_its_promise(seeds: int) -> None:
    # Heavy tails: t with 3 degrees of freedom. True coverage 96.3, 96.3, 95.9 %; 6,000 studies know it to 0.25 points.
    found = simulate("t3", seeds, 6000)
    covered = np.mean([study.low <= 0 <= study.high for study in found])
    assert 0.93 < covered < 0.97
    # The size of the t test is the same count seen from the other side.
    assert np.mean([study.p_t < 0.05 for study in found]) == pytest.approx(1 - covered)


MEASURED = {
    **{("one fails", 5): 0.908, ("both fail", 10): 0.975, ("one fails", 3): 0.933, ("one fails", 10): 0.864},
    **{("normal", 3): 0.950, ("normal", 10): 0.950, ("both fail", 3): 0.965},
}


@pytest.mark.slow
@pytest.mark.parametrize(("name", "seeds"), few(2, MEASURED))
def test_coverage_is_what_the_report_says(name: str, seeds: int) -> None:
    found, measured = simulate(name, seeds, 2000), MEASURED[name, seeds]
    covered = np.mean([study.low <= 0 <= study.high for study in found])
    assert abs(covered - measured) < 3 * math.sqrt(measured * (1 - measured) / 2000)
    assert all(f"{100 * share:.0f}" in st.COVERAGE for (name, _), share in MEASURED.items() if name == "one fails")


@pytest.mark.parametrize("name", few(1, ["t3", "normal", "both fail"]))
@pytest.mark.slow
def test_neither_test_cries_wolf(name: str) -> None:
    found = simulate(name, 9, 2000)
    for p in ([study.p_t for study in found], [study.p_flip for study in found]):
        # 2,000 studies put 95 % of their counts within 1 point.
        assert np.mean(np.array(p) <= 0.05) < 0.06
    assert np.mean([study.p_flip <= 0.05 for study in found]) > 0.035


def test_shared_prompts_need_the_evaluation_noise() -> None:
    """5 seeds on 64 prompts, each liking one of the normalizers: seeds alone cover far too little, together enough."""
    rng = np.random.default_rng(0)
    alone: list[bool] = []
    both: list[bool] = []
    prompts_only: list[bool] = []
    for _ in range(300):
        liking = 0.08 - 0.4 * rng.standard_normal(64)  # log of it has mean exp(.) 1: no normalizer is better
        hard, runs = 1.5 * rng.standard_normal(64), 0.07 * rng.standard_t(3, (2, 5, 1))
        own = 0.2 * rng.standard_normal((2, 5, 64))
        a, b = np.exp(hard + runs[0] + own[0]), np.exp(hard - liking + runs[1] + own[1])
        seeds = st.paired(a.mean(1), b.mean(1))
        noise = prompt_noise(a, b, seed=1, resamples=200)
        whole = seeds.widened(noise)
        for kept, interval in ((alone, seeds), (both, whole), (prompts_only, noise)):
            kept.append(interval.low <= 0 <= interval.high)
    assert np.mean(alone) < 0.88
    assert np.mean(prompts_only) < 0.88
    assert 0.92 < np.mean(both) < 0.985


# --- evaluation noise -------------------------------------------------------------------------------------------------


def prompt_noise(a, b, seed=0, scale="log-ratio", **bootstrap) -> st.Evaluation:
    """The effect of b over a, errors (seeds, prompts) or (prompts), with its interval over resampled prompts."""
    means = st.resampled([np.atleast_2d(a), np.atleast_2d(b)], seed=seed, **bootstrap)
    means = np.log(means) if scale == "log-ratio" else means
    return st.evaluation((means[:, 1] - means[:, 0]).mean(axis=1), scale)


def test_evaluation_noise_of_a_mean_is_its_standard_error() -> None:
    a, b = np.random.default_rng(3).normal(size=(2, 400))
    found = prompt_noise(a, b, seed=0, scale="difference")
    error = (b - a).std() / math.sqrt(400)
    assert found.effect == pytest.approx((b - a).mean())
    assert found.high - found.low == pytest.approx(2 * 1.96 * error, rel=0.06)
    assert found == prompt_noise(a, b, seed=0, scale="difference")
    assert found != prompt_noise(a, b, seed=1, scale="difference")


def test_shared_prompts_cancel() -> None:
    hard = np.random.default_rng(4).lognormal(sigma=2, size=100)
    found = prompt_noise(hard, 0.5 * hard, seed=0)
    assert (found.effect, found.low, found.high) == pytest.approx((math.log(0.5),) * 3)
    shuffled = prompt_noise(hard, 0.5 * hard[::-1], seed=0)
    assert shuffled.high - shuffled.low > 1


def test_seeds_share_their_prompts() -> None:
    # Two seeds with opposite noise on each prompt: their mean does not hang on the prompts at all.
    noise = np.random.default_rng(5).normal(size=50)
    found = prompt_noise(np.zeros((2, 50)), np.stack((1 + noise, 1 - noise)), seed=0, scale="difference")
    assert (found.low, found.high) == pytest.approx((1, 1))


def test_widening_adds_in_quadrature_side_by_side() -> None:
    seeds = st.paired([1, 1, 1], [2, 3, 4], "difference")
    half = seeds.high - 2
    wide = seeds.widened(st.Evaluation(scale="difference", effect=2.0, low=2.0 - 4 * half / 3, high=2.0 + 3 * half / 4))
    assert (wide.low, wide.high) == pytest.approx((2 - half * 5 / 3, 2 + half * 5 / 4))
    assert (wide.effect, wide.p_t) == (seeds.effect, seeds.p_t)
    one = st.paired([2.0], [1.0]).widened(st.Evaluation(scale="log-ratio", effect=-0.7, low=-0.9, high=-0.6))
    assert (one.low - one.effect, one.high - one.effect) == pytest.approx((-0.2, 0.1))
    assert st.ONE_SEED in one.notes
    with pytest.raises(BadValue, match="on the scale log-ratio, got difference"):
        st.paired([2.0], [1.0]).widened(st.Evaluation(scale="difference", effect=0, low=0, high=0))


def test_a_bootstrap_needs_two_prompts() -> None:
    with pytest.raises(BadValue, match="at least 2 prompts"):
        st.resampled([[1.0]], seed=0)


# --- p values and rates -----------------------------------------------------------------------------------------------


def test_sign_flip_by_hand() -> None:
    assert st.sign_flip(np.arange(1, 9)) == 2 / 256
    assert st.sign_flip([-3, -1, -2]) == 2 / 8
    assert st.sign_flip([1, -2]) == 1.0  # |sums| 1, 3, 3, 1
    assert st.sign_flip([3, 1, -2]) == 6 / 8  # the sums 6, 4, 2, 0 and their negatives; seen 2
    assert st.sign_flip([0.1, 0.2, -0.3, 0.4]) == 10 / 16  # seen 0.4; 1, 0.8, 0.6 and twice 0.4, however rounded
    assert st.sign_flip([0, 0, 0]) == 1


@pytest.mark.parametrize("seeds", [4, 9, 12])
def test_sign_flip_agrees_with_scipy(seeds: int) -> None:
    d = np.random.default_rng(seeds).normal(0.4, size=seeds)
    test = stats.permutation_test((d,), np.sum, permutation_type="samples", n_resamples=np.inf)
    assert st.sign_flip(d) == pytest.approx(test.pvalue)


def test_sign_flip_is_exact_up_to_twenty_and_drawn_beyond() -> None:
    assert st.sign_flip(np.arange(1, 21)) == 2 / 2**20
    many = np.random.default_rng(0).normal(0.3, size=21)
    drawn = st.sign_flip(many)
    sums = np.zeros(1)
    for value in many:
        sums = np.concatenate((sums + value, sums - value))
    assert drawn == pytest.approx(np.mean(np.abs(sums) >= abs(many.sum())), rel=0.05)
    assert drawn == st.sign_flip(many)
    assert drawn != st.sign_flip(many, seed=1)
    assert st.sign_flip(np.ones(40)) == 1 / (1 + st.FLIP_DRAWS)
    with pytest.raises(BadValue, match="nan at position 1"):
        st.sign_flip([1, math.nan])


def test_holm_by_hand() -> None:
    # Sorted 0.01 0.02 0.03 0.04 times 4 3 2 1: 0.04 0.06 0.06 0.04, which may not fall again.
    assert st.holm([0.04, 0.01, 0.03, 0.02]).tolist() == pytest.approx([0.06, 0.04, 0.06, 0.06])
    assert st.holm([0.6, 0.7]).tolist() == [1, 1]
    assert st.holm([0.05]).tolist() == [0.05]
    assert st.holm([]).tolist() == []


def test_holm_keeps_a_gap_a_gap() -> None:
    given = np.array([0.04, math.nan, 0.01])
    np.testing.assert_allclose(st.holm(given), [0.04, math.nan, 0.02])
    assert given[2] == 0.01
    assert np.isnan(st.holm([math.nan])).all()
    with pytest.raises(BadValue, match="between 0 and 1"):
        st.holm([0.5, 1.5])


def test_holm_errs_in_one_family_of_twenty() -> None:
    families = np.random.default_rng(0).random((4000, 10))
    assert np.mean([st.holm(p).min() <= 0.05 for p in families]) == pytest.approx(0.05, abs=0.01)


@pytest.mark.parametrize(("errors", "count"), [(0, 64), (3, 64), (64, 64), (0, 6400), (1, 1), (209, 448)])
@pytest.mark.parametrize("confidence", [0.8, 0.95])
def test_wilson_agrees_with_scipy(errors: int, count: int, confidence: float) -> None:
    interval = stats.binomtest(errors, count).proportion_ci(confidence, method="wilson")
    assert st.wilson(errors, count, confidence) == pytest.approx((interval.low, interval.high), abs=1e-12)


def test_wilson_by_hand() -> None:
    assert st.wilson(0, 64)[0] == 0
    assert round(100 * st.wilson(0, 64)[1], 1) == 5.7
    assert round(100 * st.wilson(0, 6400)[1], 2) == 0.06
    assert st.wilson(64, 64)[1] == 1
    for errors, count in ((0, 0), (-1, 3), (4, 3), (math.nan, 3)):
        with pytest.raises(BadValue, match="between 0 and the count"):
            st.wilson(errors, count)


def test_the_interquartile_mean_drops_the_outer_quarters() -> None:
    assert st.interquartile_mean([100, 2, 1, 4]) == 3
    assert st.interquartile_mean([1, 2, 6]) == 3
    for size in (1, 3, 5, 8, 11):
        x = np.random.default_rng(size).normal(size=size)
        assert st.interquartile_mean(x) == pytest.approx(stats.trim_mean(x, 0.25))


# --- one number for a row ---------------------------------------------------------------------------------------------


def area_log(sigmas: st.ArrayLike, mse: st.ArrayLike) -> float:
    return st.mean_height(sigmas, np.log(mse), 2, 10)


def test_the_area_of_a_power_law() -> None:
    # log(c sigma^p) integrates to log c + p (10 log 10 - 2 log 2 - 8) / 8; of an exponential, trapezoids miss nothing.
    fine = np.linspace(2, 10, 4001)
    exact = math.log(3) + 2.5 * (10 * math.log(10) - 2 * math.log(2) - 8) / 8
    assert area_log(fine, 3 * fine**2.5) == pytest.approx(exact, abs=1e-6)
    sigmas = np.arange(1.0, 13)
    assert area_log(sigmas, 3 * np.exp(0.7 * sigmas)) == pytest.approx(math.log(3) + 0.7 * 6)
    by_hand = (math.log(4) / 2 + math.log(25) + 5 * math.log(100) / 2 - 3 * math.log(4) / 2) / 8
    uneven = (3 * (math.log(4) + math.log(25)) / 2 + 5 * (math.log(25) + math.log(100)) / 2) / 8
    assert area_log([10, 2, 5], [100, 4, 25]) == pytest.approx(uneven) != by_hand
    assert area_log(sigmas, 2 * sigmas) - area_log(sigmas, sigmas) == pytest.approx(math.log(2))


def test_the_area_needs_its_ends_and_its_cells() -> None:
    with pytest.raises(BadValue, match="cells at both ends, got 3, 10"):
        area_log([1, 3, 10], [1, 1, 1])
    with pytest.raises(BadValue, match="none there"):
        area_log([1], [1])
    with pytest.raises(BadValue, match=r"values must be finite, got nan at position 1"):
        area_log([2, 5, 10], [1, math.nan, 1])
    with pytest.raises(BadValue, match="must stand once, got 2, 2, 10"):
        area_log([2, 2, 10], [1, 1, 1])


def test_the_mean_beyond_training() -> None:
    assert st.mean_beyond([10, 40, 80, 200], [9, 9, 0.2, 0.4], 40) == pytest.approx(0.3)
    with pytest.raises(BadValue, match="beyond the training length 40, got only 10, 40"):
        st.mean_beyond([10, 40], [1, 1], 40)
    with pytest.raises(BadValue, match="nan at position 0"):
        st.mean_beyond([80, 20], [math.nan, 0], 40)
