"""From two rows of numbers to a verdict, and what is said beside it."""

import math

import msgspec
import pytest

from icl_lab.comparison.statistics import Evaluation
from icl_lab.comparison.verdict import Replicated, Verdict
from icl_lab.errors import BadValue
from icl_lab.papers.schema import Claim, Quantity
from icl_lab.papers.verdicts import judge, margin_of, rates, span


def claim(is_="below", **fields):
    quantity = Quantity("a", {"sigma_f": [1.0]})
    return Claim(statement="s", where="w", left=quantity, is_=is_, right=quantity, **fields)


def verdict(is_, left, right, scale="log-ratio", **fields):
    return judge(claim(is_, **fields), range(len(left)), left, right, scale)


def test_verdicts_need_an_interval_on_one_side():
    left, right = [1.0, 1.01, 0.99], [2.0, 2.03, 1.99]
    assert verdict("below", left, right).verdict == Verdict.SUPPORTED
    assert verdict("above", left, right).verdict == Verdict.CONTRADICTED
    assert verdict("above", right, left).verdict == Verdict.SUPPORTED
    assert verdict("below", [1.0, 3.0, 2.0], [2.0, 2.0, 2.0]).verdict == Verdict.INCONCLUSIVE
    assert verdict("below", [0.0, 0.001, 0.0], [0.2, 0.2, 0.2], "difference").verdict == Verdict.SUPPORTED
    assert verdict("below", left, right).words.startswith("ratio 0.498 [")
    assert verdict("below", left, right).words.endswith("], seeds 0 to 2")


def test_one_seed_has_a_word_of_its_own():
    one = verdict("below", [1.0], [2.0])
    assert one.verdict == Verdict.ONE_SEED
    assert one.words == "ratio 0.5, one seed"
    assert one.outlook == "2 more seeds for a first look"
    two = verdict("below", [1.0, 1.0], [2.0, 2.1])
    assert two.verdict == Verdict.INCONCLUSIVE
    assert two.outlook == "1 more seed for a first look"


def test_equality_is_shown_and_not_taken_for_granted():
    near = [1.0, 1.01, 0.99], [1.0, 1.0, 1.0]
    assert verdict("equal", *near).verdict == Verdict.SUPPORTED
    assert verdict("below", *near).verdict == Verdict.NO_DIFFERENCE
    assert verdict("not below", *near).verdict == Verdict.SUPPORTED
    assert verdict("equal", [1.0, 3.0, 0.4], near[1]).verdict == Verdict.INCONCLUSIVE
    assert verdict("equal", [3.0, 3.03, 2.97], near[1]).verdict == Verdict.CONTRADICTED


def test_a_margin_is_the_claims_own_and_has_a_reason():
    assert margin_of(claim(), "log-ratio") == pytest.approx(math.log(1.25))
    assert margin_of(claim(), "difference") == 0.05
    own = claim(margin=2.0, because="powers of two are the unit")
    assert margin_of(own, "log-ratio") == pytest.approx(math.log(2))
    assert margin_of(own, "difference") == 2.0
    with pytest.raises(BadValue, match="above 1"):
        margin_of(claim(margin=0.5, because="half"), "log-ratio")
    told = {"statement": "s", "where": "w", "left": {"of": "a"}, "is": "below", "right": {"of": "b"}}
    for wrong in ({"margin": 0.1}, {"because": "so"}, {"margin": -1.0, "because": "so"}):
        with pytest.raises(msgspec.ValidationError, match="margin"):
            msgspec.convert(told | wrong, Claim)


def test_what_has_not_learned_is_not_judged_and_says_why():
    told = lambda seeds: "a has not learned"  # noqa: E731
    found = judge(claim(), range(3), [1.0, 1.01, 0.99], [2.0, 2.0, 2.0], "log-ratio", unlearned=told)
    assert found.verdict == Verdict.NOT_LEARNED
    assert found.words.endswith("; a has not learned")


def test_a_look_at_seeds_that_have_not_learned_decides_nothing_and_a_later_one_may():
    left = [1.0, 1.01, 0.99, 1.0, 1.02]

    def found(unlearned):
        return judge(claim(), range(5), left, [2.0] * 5, "log-ratio", unlearned=unlearned)

    late = found(lambda seeds: "a has not learned" if seeds == 3 else "")
    assert (late.verdict, late.seeds, late.note) == (Verdict.SUPPORTED, (0, 1, 2, 3, 4), "")
    early = found(lambda seeds: "a has not learned" if seeds == 5 else "")
    assert (early.verdict, early.seeds, early.note) == (Verdict.SUPPORTED, (0, 1, 2), "")  # the first look that decides
    never = found(lambda seeds: "a has not learned")
    assert (never.verdict, never.seeds, never.note) == (Verdict.NOT_LEARNED, (0, 1, 2, 3, 4), "a has not learned")


def test_an_open_claim_says_what_would_decide_it():
    """Log ratios 0.5 +- 0.5: see the look at which t sd / sqrt(n) falls below the effect."""
    left = [math.exp(0.0), math.exp(0.5), math.exp(1.0)]
    found = judge(claim("above"), range(3), left, [1.0] * 3, "log-ratio", hours=0.5)
    assert found.verdict == Verdict.INCONCLUSIVE
    assert found.more == 16 - 3
    assert found.outlook == "about 13 more seeds, 6.5 h of one core"
    never = judge(claim("above"), range(3), [1.0, 20.0, 0.5], [1.0] * 3, "log-ratio")
    assert never.more is None
    assert never.outlook == f"more than 64 seeds, or with a chance of {never.chance:.0%} fewer"
    assert 0.3 < never.chance < 0.7  # three seeds tell effect and deviation badly


def test_a_claim_that_hangs_on_its_test_prompts_says_so():
    """Log ratios 0.5 +- 0.05 are decided by three seeds; with a standard error of 0.4 over prompts by no number."""
    left = [math.exp(0.45), math.exp(0.5), math.exp(0.55)]

    def found(error):
        noise = Evaluation(scale="log-ratio", effect=0.5, low=0.5 - 1.96 * error, high=0.5 + 1.96 * error)
        return judge(claim("above"), range(3), left, [1.0] * 3, "log-ratio", lambda seeds: noise, hours=0.5)

    assert found(0.0).verdict == Verdict.SUPPORTED
    assert (found(0.18).verdict, found(0.18).more) == (Verdict.INCONCLUSIVE, 2)
    hangs = found(0.4)
    assert (hangs.verdict, hangs.more) == (Verdict.INCONCLUSIVE, None)
    assert hangs.outlook == "more test prompts, then about 3 seeds"


def test_seeds_are_named():
    assert span([3]) == "seed 3"
    assert span([0, 1, 2]) == "seeds 0 to 2"
    assert span([0, 2, 5]) == "seeds 0, 2, 5"


def test_false_discovery_rates_by_hand():
    """p 0.01, 0.04, 0.03, 0.5 of four: 0.04, 0.0533, 0.0533, 0.5."""
    found = rates([0.01, math.nan, 0.04, 0.03, 0.5])
    assert math.isnan(found[1])
    assert [found[i] for i in (0, 2, 3, 4)] == pytest.approx([0.04, 0.16 / 3, 0.16 / 3, 0.5])
    assert all(math.isnan(q) for q in rates([math.nan]))


@pytest.mark.parametrize("scale", ["log-ratio", "difference"])
@pytest.mark.parametrize("bad", [math.inf, math.nan])
def test_a_seed_without_finite_answers_is_not_left_out(scale, bad):
    """Of the others the claim would be supported: the worst failure must not look good."""
    found = judge(claim("below"), [0, 1, 2, 3], [bad, 1.0, 1.1, 1.05], [9.0, 9.0, 9.1, 9.2], scale)
    assert found.verdict == Verdict.INCONCLUSIVE
    assert found.words == "answers that are no finite numbers (a: seed 0)"
    assert (found.more, found.outlook) == (None, "")
    both = judge(claim("below"), [0, 1], [bad, bad], [bad, 1.0], scale, unlearned=lambda seeds: "errs as the answer 0")
    assert (both.verdict, both.words) == (Verdict.NOT_LEARNED, "errs as the answer 0")


def test_later_seeds_that_do_not_bear_a_verdict_out_are_told_beside_it():
    clear, even = [1.0, 1.01, 0.99], [2.0, 2.03, 1.99]
    borne = verdict("below", [*clear, 1.0, 1.2, 1.1], [*even, 2.0, 2.0, 2.0])
    assert borne.replication.says == Replicated.BORNE_OUT
    assert borne.words.endswith("], seeds 0 to 2")
    against = verdict("below", [*clear, 4.0, 4.1, 4.2], [*even, 2.0, 2.0, 2.0])
    assert against.verdict == Verdict.SUPPORTED  # the first look that decides
    assert "; spoken against by later seeds: ratio 2.05 [" in against.words
    assert against.words.endswith("], seeds 3 to 5")
    unclear = verdict("below", [*clear, 2.0, 1.0, 6.0], [*even, 2.0, 2.0, 2.0])
    assert "; not borne out by later seeds: ratio 1.14 [" in unclear.words
    assert verdict("below", clear, even).replication is None
