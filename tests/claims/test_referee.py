"""Rules of verdicts on made-up results: chance finds, ceilings, untrained positions, pairing, small scales, counts."""

import math
import re
from pathlib import Path

import numpy as np
import pytest
from msgspec.structs import replace
from scipy import stats

from icl_lab.claims import experiment, judge, ledger
from icl_lab.claims.ledger import Finding
from icl_lab.claims.schema import Claim, Quantity
from icl_lab.claims.sides import Sides
from icl_lab.comparison import sequential
from icl_lab.comparison.statistics import paired, unpaired
from icl_lab.comparison.verdict import Direction, EffectSize, State
from icl_lab.extras.site.claims import ClaimEntry
from icl_lab.runs.evidence.archive import Archive
from icl_lab.runs.store import Store
from tests.claims import given
from tests.claims.given import BEFORE, NOW, claim
from tests.comparison.test_sequential import intervals

FILES = Path(__file__).parents[2] / "experiments"
TABLE1 = experiment.load("ssa-table1", FILES)


@pytest.fixture(scope="module")
def repository():
    results = Path(__file__).parents[2] / "results"
    return Store(results, Archive(results / "evidence"))


def found(left, right, scale="difference", about=None, **fields):
    return given.judged(about or claim(), left, right, scale, **fields)


LARGE = replace(found([0.5, 0.51, 0.49], [0.8, 0.79, 0.81]), preset="lite2", experiment="ssa-table1")


def test_a_ledger_without_effects_shows_no_unmarked_direction():
    """1,000 claims of 3 to 8 seeds: some directions are told by chance, and each of them is marked."""
    rng, told = np.random.default_rng(3), []
    for number in range(1000):
        left, right = (rng.normal(size=(2, int(rng.choice([3, 5, 8])))) * 0.2 + 3).tolist()
        ends = [(BEFORE if number % 2 else NOW,) * 2] * len(left)
        told.append(found(left, right, models=True, ends=ends))
    directions = [each for each in ledger.rated(told) if each.direction is not Direction.INCONCLUSIVE]
    assert 3 <= len(directions) <= 50
    assert [each for each in directions if not each.may_be_chance] == []


def test_a_ledger_without_effects_holds_with_unequal_seeds():
    """3 of one side and 8 or 24 of the other, which spreads less: of 1,000 at most 5 % tell a direction.

    It is more than the 1 % of the look: three seeds may lie close by chance. Nearly all of them are marked.
    """
    rng, told = np.random.default_rng(5), []
    for number in range(1000):
        few, many = rng.normal(size=3) * 0.4 + 3, rng.normal(size=(8, 24)[number % 2]) * 0.1 + 3
        sides = (few, many) if number % 3 else (many, few)
        told.append(found(*map(np.ndarray.tolist, sides), models=True))
    directions = [each for each in ledger.rated(told) if each.direction is not Direction.INCONCLUSIVE]
    assert 10 <= len(directions) <= 50
    assert sum(not each.may_be_chance for each in directions) <= 10


def test_all_seeds_of_a_side_that_has_more_judge():
    """Welch's interval at 99 %, the confidence of a look at three seeds; with one more seed both stay paired."""
    few, many = [0.5, 0.52, 0.47], [0.8, 0.79, 0.83, 0.9, 0.7, 0.75, 0.82, 0.78]
    told = found(few, many, models=True)
    reference = stats.ttest_ind(few, many, equal_var=False).confidence_interval(0.99)
    assert (told.low, told.high) == pytest.approx(tuple(reference))
    assert (told.pairing, told.counts) == ("unpaired", "3 and 8")
    assert (told.seeds, told.right_seeds) == (tuple(range(3)), tuple(range(8)))
    assert (told.other_low, told.other_high) == pytest.approx(paired(many[:3], few, "difference").interval(0.99))
    assert "seeds 0 to 2 and seeds 0 to 7" in told.effect_words
    one_more = found(few, many[:4], models=True)
    assert (one_more.pairing, one_more.right_seeds) == ("paired", ())
    assert (one_more.low, one_more.high) == pytest.approx(paired(many[:3], few, "difference").interval(0.99))


def test_further_seeds_have_their_own_errors_over_prompts():
    """All seeds answer the prompts alike: what these add is the mean of both sides, each over its own seeds."""
    rng = np.random.default_rng(0)
    left, right = (np.array([middle, *rng.normal(middle, 0.01, 1000)]) for middle in (0.5, 0.8))
    kept = [(left, right)] * 3 + [(None, right)] * 5
    told = found([0.5] * 3, [0.8] * 8, models=True, resamples=kept, asked=64, largest=1)
    assert told.prompts_error_below == pytest.approx(math.hypot(0.01, 0.01), rel=0.1)
    assert not told.these_prompts


def test_errors_over_prompts_have_a_side_each():
    """Resamples that are skewed upwards, by their own quantiles."""
    left = np.array([0.5, *(0.49 + 0.01 * np.random.default_rng(0).exponential(size=1000))])
    told = found([0.5, 0.52, 0.47], [0.8, 0.79, 0.83], resamples=[(left, np.full(1001, 0.8))] * 3, asked=64)
    low, high = np.quantile(left[1:], [0.025, 0.975])
    assert told.prompts_error_below == pytest.approx((0.5 - low) / 1.96, rel=1e-3)
    assert told.prompts_error_above == pytest.approx((high - 0.5) / 1.96, rel=1e-3)


@pytest.mark.parametrize(("span", "resolution"), [(1, 0.25), (math.inf, 0.0)])
def test_only_a_rate_has_a_smallest_step(span, resolution):
    """Of 16 prompts a share moves by 1/16; a loss in nats has no such step."""
    left, right = [0.4, 0.41, 0.42], [0.8, 0.81, 0.85]
    told = found(left, right, largest=span, smallest=0.25)
    own = np.subtract(left, right).std(ddof=1)
    assert told.seeds_error == pytest.approx(max(own, resolution) / math.sqrt(3))


@pytest.mark.parametrize(
    ("fields", "mark"),
    [({}, ""), ({"exploratory": True}, "‡"), ({"these_prompts": True}, "‡"), ({"blocks": (0, 0, 0)}, "‡"),
     ({"blocks": (0, 1, 0)}, ""), ({"exploratory": True, "state": State.NOT_LEARNED}, "")],
)  # fmt: skip
def test_every_table_marks_what_holds_for_less(fields, mark):
    told = replace(LARGE, q=0.01, **fields)
    assert told.marks == mark
    for text in ("\n".join(ledger.table([told])), "\n".join(ledger.page([told])).split(ledger.LEGEND)[1]):
        assert ("‡" in text) == bool(mark)


def test_every_table_marks_a_chance_find_and_a_small_scale():
    doubtful, sure = replace(LARGE, q=0.06, preset="nano"), replace(LARGE, q=0.04)
    assert (doubtful.marks, sure.marks) == ("†°", "")
    shown = ["\n".join(ledger.table([doubtful])), "\n".join(ledger.page([doubtful])).split(ledger.LEGEND)[1]]
    shown.append(ClaimEntry(TABLE1, TABLE1.claims[0], doubtful).found.direction_words)
    for text in shown:
        assert len(re.findall("below[^|]*†°", text)) == 1
    assert "may be a chance find; small scale" in "\n".join(ledger.lines(TABLE1, [doubtful]))
    assert "†" not in "\n".join(ledger.table([sure]))


def test_a_small_scale_leads_no_page():
    small = replace(LARGE, preset="nano", experiment="one", claim="first")
    large = replace(LARGE, experiment="two", claim="second")
    text = "\n".join(ledger.page([small, large]))
    assert text.index("**two**") < text.index("**one**")


@pytest.mark.parametrize(
    ("left", "right", "is_", "span", "why"),
    [
        (0.99, 0.97, "above", 1, "both sides lie within 0.05 of 1"),
        (0.0, 0.04, "below", 1, "both sides lie within 0.05 of 0"),
        (0.0, 0.06, "below", 1, ""),  # one side has room
        (0.02, 0.99, "below", 1, ""),  # opposite ends
        (0.99, 0.97, "equal", 1, ""),  # that both reach the end is what it says
        (0.99, 0.97, "above", math.inf, ""),  # a loss has no upper end
    ],
)
def test_both_sides_at_an_end_of_a_rate_tell_nothing(left, right, is_, span, why):
    spread = [-0.001, 0.0, 0.001]
    told = found([left + x for x in spread], [right + x for x in spread[::-1]], about=claim(is_))
    assert judge.at_bound(claim(is_), told, span).startswith(why)
    assert bool(judge.at_bound(claim(is_), told, span)) == bool(why)


def test_ratios_and_effects_beyond_the_margin_have_no_ceiling():
    told = found([0.01, 0.011, 0.012], [0.02, 0.021, 0.022], "log-ratio")
    assert judge.at_bound(claim(), told, 1) == ""
    wide = replace(told, scale="difference", size=EffectSize.BEYOND, margin=0.5)
    assert judge.at_bound(claim(), wide, 1) == ""


FIGURE4 = (FILES / "ssa-figure4.toml").read_text()


@pytest.mark.parametrize(
    ("positions", "length", "ungated", "why"),
    [
        ("learned", 200, "", "learned positions of ssa are untrained beyond a length of 41"),
        ("learned:rows=400", 200, "", "learned positions of ssa are untrained beyond a length of 41"),
        ("learned", 40, "", ""),
        ("alibi", 200, "", ""),
        ("learned", 200, "it is about the positions", ""),
    ],
)
def test_learned_positions_beyond_training_are_not_judged(tmp_path, positions, length, ungated, why):
    text = FIGURE4.replace('baseline = "softmax"', f'baseline = "softmax"\nset = ["model.positions={positions}"]')
    (tmp_path / "positions.toml").write_text(text)
    made = Sides(experiment.load("positions", tmp_path), Store(tmp_path / "results"), "nano")
    sides = Quantity("ssa", {"length": [length]}), Quantity("softmax", {"length": [length]})
    about = Claim(statement="s", where="w", left=sides[0], is_="below", right=sides[1], ungated=ungated)
    assert judge._untrained(made, about) == why


def test_such_a_state_takes_the_place_of_the_verdict(monkeypatch):
    monkeypatch.setattr(judge, "_untrained", lambda *_: "why")
    first = found([0.01, 0.02, 0.03], [1.0, 1.1, 1.2], "log-ratio")
    assert (first.state, first.note, first.direction, first.agrees) == (
        State.UNTRAINED, "why", Direction.INCONCLUSIVE, None,
    )  # fmt: skip
    assert first.direction_words == "untrained positions"


def test_unpaired_is_welchs_test():
    rng = np.random.default_rng(0)
    a, b = rng.lognormal(size=(2, 6))
    made = unpaired(a, b)
    reference = stats.ttest_ind(np.log(b), np.log(a), equal_var=False)
    assert made.p == pytest.approx(reference.pvalue)
    for confidence in (0.95, 0.99):
        assert made.interval(confidence) == pytest.approx(tuple(reference.confidence_interval(confidence)))
    assert (made.low, made.high) == pytest.approx(made.interval(0.95))
    assert made.effect == pytest.approx(paired(a, b).effect)


def test_a_side_without_spread_leaves_the_freedom_of_the_other():
    a, b = [1.0, 1.0, 1.0, 1.0], [2.0, 2.5, 1.5, 1.8]
    assert unpaired(a, b).interval(0.99) == pytest.approx(paired(a, b).interval(0.99))
    assert unpaired([1.0] * 3, [1.0] * 3) == paired([1.0] * 3, [1.0] * 3)


RISKS = [*((r, apart) for r in (-0.3, 0.0, 0.12) for apart in (False, True)), (0.44, True)]


@pytest.mark.parametrize(
    ("correlation", "apart"), [(0.44, False), *(pytest.param(*each, marks=pytest.mark.exhaustive) for each in RISKS)]
)
def test_the_stated_risk_holds_paired_and_unpaired(correlation, apart):
    """Of 3,000 claims without effect looked at up to 8 seeds, at most 3 % tell a direction: 0.6 x 5 % is spent.

    But for unpaired seeds of negatively correlated sides, whose spread is understated: there 5 %. All claims at once,
    and by ``look`` those that come nearest to the other answer.
    """
    mixing = np.linalg.cholesky([[1, correlation], [correlation, 1]])
    left, right = np.einsum("ij,sjk->isk", mixing, np.random.default_rng(7).normal(size=(3000, 2, 8)))
    beyond = np.max([np.maximum(low, -high) for low, high in intervals(left, right, apart)], axis=0)  # of zero
    assert (beyond > 0).mean() < (0.05 if apart and correlation < 0 else 0.033)
    for row in np.abs(beyond).argsort()[:40]:
        looked = [sequential.look(left[row, :k], right[row, :k], "difference", apart=apart).effect for k in (3, 5, 8)]
        assert any(each.low > 0 or each.high < 0 for each in looked) == (beyond[row] > 0)


def sides_correlation(findings, models):
    """Correlation over seeds of both sides of claims about one model, or two, pooled over the claims of a record.

    Formula: sum (k - 1) r / sum (k - 1), r Pearson's correlation of (log) left and right over the k >= 3 seeds of a
    claim; claims with a side that does not spread are left out. NaN without any.
    """
    total, weights = 0.0, 0
    for each in findings:
        one = len({spec.partition("->")[0] for spec in each.specs}) == 1
        if each.right_seeds or not each.pairing or len(each.seeds) < ledger.FIRST or one != (models == "one model"):
            continue
        left, right = (np.log(side) if each.ratio else np.asarray(side) for side in (each.left, each.right))
        if np.isfinite([*left, *right]).all() and left.std() > 0 and right.std() > 0:
            total += (len(left) - 1) * float(np.corrcoef(left, right)[0, 1])
            weights += len(left) - 1
    return total / weights if weights else math.nan


def test_pairing_was_chosen_by_the_record(repository):
    every = [each for rows in ledger.stored(repository).values() for each in rows]
    for models, is_paired in sequential.PAIRED.items():
        assert (sides_correlation(every, models) > sequential.WORTH_PAIRING) == is_paired


@pytest.mark.parametrize(
    ("models", "later", "pairing", "other"),
    [("two models", False, "paired", "unpaired"), ("two models", True, "unpaired", "paired"),
     ("one model", True, "paired", ""), ("", True, "", "")],
)  # fmt: skip
def test_seeds_trained_since_the_choice_are_judged_by_it(models, later, pairing, other):
    left, right = [0.5, 0.6, 0.8, 0.7, 0.65], [0.3, 0.5, 0.4, 0.6, 0.45]
    kind = {"models": bool(models), "same": models == "one model", "ends": [(NOW if later else BEFORE,) * 2] * 5}
    told = found(left, right, **kind)
    both = {each: (paired if each == "paired" else unpaired)(right, left, "difference").interval(0.99) for each in
            ("paired", "unpaired")}  # fmt: skip
    assert told.pairing == pairing
    assert (told.low, told.high) == pytest.approx(both[pairing or "paired"])
    assert told.other_interval.startswith(other)
    if other:
        assert (told.other_low, told.other_high) == pytest.approx(both[other])


@pytest.mark.parametrize(
    ("rates", "field", "said"),
    [("shared", "", "shared"), ("own", "", "own"), ("shared", "train.rate=0.001", "different")],
)
def test_learning_rates_stand_beside_the_verdict(tmp_path, monkeypatch, rates, field, said):
    variant, text = '[[variants]]\nname = "ssa"\nattn = "ssa"', (FILES / "ssa-table1.toml").read_text()
    assert variant in text
    text = text.replace(variant, f'{variant}\nset = ["{field}"]') if field else text
    (tmp_path / "rates.toml").write_text(f'rates = "{rates}"\n{text}')
    monkeypatch.setattr("icl_lab.comparison.rates.own", lambda specs, store: specs)
    made = Sides(experiment.load("rates", tmp_path), Store(tmp_path / "results"), "nano")
    assert judge._rates(made, made.experiment.claims[0]) == said
    shown = Finding(claim="s", relation="below", state=State.JUDGED, effect=0.1, seeds=(0, 1, 2), rates=said)
    assert ledger.RATES[said] in shown.words
