"""From two rows of numbers to a verdict, and what is said beside it."""

import math

import msgspec
import numpy as np
import pytest
from msgspec.structs import replace

from icl_lab.base.errors import BadValue
from icl_lab.claims import ledger
from icl_lab.claims.judge import margin_of
from icl_lab.claims.ledger import Finding, span
from icl_lab.claims.schema import Claim
from icl_lab.comparison.verdict import Direction, EffectSize, State
from tests.claims import given
from tests.claims.given import claim


def judged(is_, left, right, scale="log-ratio", **fields):
    return given.judged(claim(is_), left, right, scale, **fields)


def told(found):
    return found.direction, found.size, found.agrees


CLEAR = [1.0, 1.01, 0.99], [2.0, 2.03, 1.99]


def test_a_direction_needs_an_interval_on_one_side():
    assert told(judged("below", *CLEAR)) == (Direction.BELOW, EffectSize.BEYOND, True)
    assert told(judged("above", *CLEAR)) == (Direction.BELOW, EffectSize.BEYOND, False)
    wide = judged("below", [1.0, 3.0, 2.0], [2.0, 2.0, 2.0])
    assert told(wide) == (Direction.INCONCLUSIVE, EffectSize.INCONCLUSIVE, None)
    assert wide.open and not wide.decided  # noqa: PT018
    assert told(judged("below", [0.0, 0.001, 0.0], [0.2, 0.2, 0.2], "difference"))[0] is Direction.BELOW
    assert judged("below", *CLEAR).words.startswith("ratio 0.498 [")
    assert judged("below", *CLEAR).words.endswith("], seeds 0 to 2")
    assert judged("below", *CLEAR).verdict == "below; more than a quarter"


def test_size_is_held_against_the_printed_effect():
    for ratio, size in {0.498: "AS_PRINTED", 0.064: "SMALLER", 0.9: "LARGER", 2.0: "EXCLUDED"}.items():
        found = judged("below", *CLEAR, printed=math.log(ratio))
        assert (found.size, found.printed_words) == (EffectSize[size], f"{ratio:.3g}")


def test_fewer_than_three_seeds_are_not_judged():
    one = judged("below", [1.0], [2.0])
    assert (one.state, one.words) == (State.FEW_SEEDS, "ratio 0.5, one seed")
    assert one.outlook == "2 more seeds for a first look"
    two = judged("below", [1.0, 1.0], [2.0, 2.1])
    assert (two.state, two.outlook) == (State.FEW_SEEDS, "1 more seed for a first look")
    assert two.words == "ratio 0.488 no interval, seeds 0 to 1"


def test_the_confidence_of_an_interval_is_told():
    assert judged("below", *CLEAR).confidence_words == "99 % interval"
    many = judged("below", [1.0 + 0.01 * k for k in range(12)], [2.0] * 12)
    assert many.confidence_words == "99.5 % interval"
    assert judged("below", [1.0], [2.0]).confidence_words == ""


def test_equality_is_shown_and_not_taken_for_granted():
    near = [1.0, 1.01, 0.99], [1.0, 1.0, 1.0]
    assert told(judged("equal", *near)) == (Direction.INCONCLUSIVE, EffectSize.WITHIN, True)
    assert (judged("below", *near).agrees, judged("below", *near).decided) == (None, True)
    assert judged("not below", *near).agrees is True
    assert judged("equal", [1.0, 3.0, 0.4], near[1]).agrees is None
    assert judged("equal", [3.0, 3.03, 2.97], near[1]).agrees is False


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
    found = judged("below", *CLEAR, shares=[0.1, 0.3, 0.4])
    assert found.state is State.NOT_LEARNED
    assert (found.agrees, found.open) == (None, False)
    assert "; a has not learned its task: in training conditions it errs 0.3 times as much" in found.words


def test_the_last_looks_seeds_must_have_learned():
    left = [1.0, 1.01, 0.99, 1.0, 1.02]
    late = judged("below", left, [2.0] * 5, shares=[0.9, 0.9, 0.1, 0.1, 0.1])
    assert (told(late)[0], late.seeds, late.note) == (Direction.BELOW, (0, 1, 2, 3, 4), "")
    early = judged("below", left, [2.0] * 5, shares=[0.1, 0.1, 0.9, 0.9, 0.9])
    assert (early.state, early.seeds) == (State.NOT_LEARNED, (0, 1, 2, 3, 4))


def test_an_open_claim_says_what_would_decide_it():
    """Log ratios 0.5 +- 0.5: see the look at which t sd / sqrt(n) falls below the effect."""
    left = [math.exp(0.0), math.exp(0.5), math.exp(1.0)]
    found = judged("above", left, [1.0] * 3, hours=0.5)
    assert found.open
    assert found.more == 16 - 3
    assert found.outlook == "about 13 more seeds, 6.5 h on one core"
    for hours, said in ((1 / 13, "1 h"), (0.9 / 13, "54 min"), (0.001 / 13, "1 min")):
        assert replace(found, hours=hours).outlook == f"about 13 more seeds, {said} on one core"
    never = judged("above", [1.0, 20.0, 0.5], [1.0] * 3)
    assert never.more is None
    assert never.outlook == "probably more than 64 seeds"
    assert 0.3 < never.chance < 0.7  # three seeds tell effect and deviation badly


def test_a_claim_that_hangs_on_its_test_prompts_says_so():
    """Log ratios 0.5 +- 0.05 are decided by three seeds; with a standard error of 0.4 over prompts by no number."""
    left = [math.exp(0.45), math.exp(0.5), math.exp(0.55)]

    def found(error):
        drawn = np.array([0.5, *np.random.default_rng(0).normal(0.5, error, 1000)])
        return judged("above", left, [1.0] * 3, resamples=[(drawn, np.zeros(1001))] * 3, hours=0.5)

    assert found(0.0).agrees is True
    assert (found(0.18).open, found(0.18).more) == (True, 2)
    hangs = found(0.4)
    assert (hangs.open, hangs.more) == (True, None)
    assert hangs.outlook == "more test prompts, then about 3 seeds"


def test_a_claim_that_rests_on_one_block_of_seeds_says_so():
    one, two, unknown = (judged("below", *CLEAR, origins=each) for each in ((0, 0, 0), (0, 0, 1), None))
    assert one.words.endswith("; one block")
    assert "block" not in two.words + unknown.words
    wide = judged("below", *CLEAR, origins=(0, 0, 1), correlation=0.5)
    assert wide.high > two.high == unknown.high
    assert one.gaps == pytest.approx([math.log(a / b) for a, b in zip(*CLEAR, strict=True)])


def test_seeds_are_named():
    assert span([3]) == "seed 3"
    assert span([0, 1, 2]) == "seeds 0 to 2"
    assert span([0, 2, 5]) == "seeds 0, 2, 5"


def test_false_discovery_rates_by_hand():
    """p 0.01, 0.04, 0.03, 0.5 of four: 0.04, 0.0533, 0.0533, 0.5."""

    def rates(*p_values):
        judged = [Finding(claim="c", relation="below", state=State.JUDGED, p=p) for p in p_values]
        return [each.q for each in ledger.rated(judged)]

    found = rates(0.01, math.nan, 0.04, 0.03, 0.5)
    assert math.isnan(found[1])
    assert [found[i] for i in (0, 2, 3, 4)] == pytest.approx([0.04, 0.16 / 3, 0.16 / 3, 0.5])
    assert all(math.isnan(q) for q in rates(math.nan))


@pytest.mark.parametrize("scale", ["log-ratio", "difference"])
@pytest.mark.parametrize("bad", [math.inf, math.nan])
def test_a_seed_without_finite_answers_is_not_left_out(scale, bad):
    """Of the others the claim would hold: the worst failure must not look good."""
    found = judged("below", [bad, 1.0, 1.1, 1.05], [9.0, 9.0, 9.1, 9.2], scale)
    assert found.state is State.NOTHING_TO_JUDGE
    assert found.words == "answers that are no finite numbers (a: seed 0)"
    assert (found.more, found.outlook) == (None, "")
    both = judged("below", [bad, bad], [bad, 1.0], scale, shares=[0.9, 0.9])
    assert (both.state, both.words[:22]) == (State.NOT_LEARNED, "a has not learned its ")
