"""What each head of a page does, in a sentence: by the shares of its weight on a few places."""

import pytest
import torch

from icl_lab.analyses import attention_rows
from icl_lab.analyses.attention import patterns
from icl_lab.analyses.attention.maps import Maps
from icl_lab.tasks.base import Mark

NAMES = list(patterns.PATTERNS)


def marks(values, roles="xy"):
    return [Mark(roles[t % len(roles)], t // len(roles) + 1, str(v), v) for t, v in enumerate(values)]


def maps(places, t=8):
    """One head whose query i has all of its weight on the key ``places(i)``."""
    weights = torch.zeros(1, 1, t, t)
    for i in range(t):
        weights[0, 0, i, max(0, places(i))] = 1
    return Maps(weights, weights, weights, torch.zeros(1, t, 1))


VALUES = [1.0, -1.0, 5.0, -5.0, 9.0, -9.0, 5.5, -5.5]  # of x4 the nearest is x2, at the token 2


@pytest.mark.parametrize(
    ("name", "place"), [("first", lambda i: 0), ("itself", lambda i: i), ("previous", lambda i: i - 1)]
)
def test_a_head_at_one_place_has_its_whole_weight_there(name, place):
    ((found,),) = patterns.measured(maps(place), patterns.compared(marks(VALUES)), 2)
    assert found[NAMES.index(name)] == 1.0
    assert max(found) == 1.0


def test_places_are_those_of_the_analysis_heads():
    weights = torch.rand(3, 9).sub(0.3)
    theirs = attention_rows.statistics(weights, 2)
    ours = patterns.Pattern(2)(weights, torch.arange(9.0), torch.full((9,), torch.inf))
    for at, name in enumerate(("first", "itself", "previous")):
        assert torch.equal(ours[:, at], theirs[name])


def test_by_value_and_induction_follow_the_nearest_token():
    weights = torch.tensor([[0.0, 0.0, 0.6, 0.3, 0.0, 0.0, 0.1]])  # the query is x4 = 5.5
    (found,) = patterns.Pattern(2)(weights, torch.tensor(VALUES[:7]), torch.full((7,), torch.inf)).tolist()
    shares = dict(zip(NAMES, found, strict=True))
    assert (shares["value"], shares["induction"]) == pytest.approx((0.6, 0.3))


def test_symbols_are_near_where_they_are_equal_and_vectors_never():
    symbols = [Mark("x", t, text) for t, text in enumerate("abca", 1)]
    weights = torch.tensor([[0.7, 0.2, 0.05, 0.05]])
    for known, value, after in (
        (patterns.compared(symbols), 0.7, 0.2),
        (patterns.compared([Mark("x", t, text) for t, text in enumerate("abcd", 1)]), 0.0, 0.0),
        (patterns.compared([Mark("x", t, "") for t in range(4)]), 0.0, 0.0),
    ):
        values, within = torch.tensor(known.values), torch.full((4,), known.within)
        shares = dict(zip(NAMES, patterns.Pattern(1)(weights, values, within)[0].tolist(), strict=True))
        assert (shares["value"], shares["induction"]) == pytest.approx((value, after))


def test_a_prompt_of_two_tokens_has_no_pattern():
    assert patterns.measured(maps(lambda i: 0, t=2), patterns.compared(marks(VALUES[:2])), 2) == []


def test_the_period_is_that_of_roles():
    assert patterns.period(marks(VALUES)) == 2
    assert patterns.period(marks(VALUES, "x")) == 1
    assert patterns.period([Mark("first", 1, ""), Mark("u", 2, "")]) == 1


@pytest.mark.slow
def test_each_head_has_words_and_the_chosen_one_a_sentence(visit, pair):
    found, path = pair
    tab = visit(path)
    shares = [patterns.measured(each, patterns.compared(found.frames[0].marks), 2) for each in found.frames[0].maps]
    words = list(patterns.PATTERNS.values())
    letters = tab.locator("#grid small").all_inner_texts()
    flat = [head for run in shares for layer in run for head in layer]
    assert len(letters) == len(flat) == 8
    for text, head in zip(letters, flat, strict=True):
        best = max(head)
        share = f"{int(100 * best + 1e-6)} %"
        assert text == (f"{words[head.index(best)][1]} {share}" if best >= patterns.PARTLY else "spread")
    best = max(shares[0][0][0])
    sentence = tab.inner_text("#pattern")
    assert sentence.startswith("In softmax it ")
    assert f"{int(100 * best + 1e-6)} %" in sentence
    assert "In ssa it " in sentence
    assert "induction: the token after it" in tab.inner_text("#legend")
    tab.select_option("#axis", index=1)  # means over other prompts
    assert tab.inner_text("#pattern") == ""
    assert set(tab.locator("#grid small").all_inner_texts()) == {""}
