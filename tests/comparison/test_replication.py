"""Verdicts against the training seeds that came after them: by hand."""

import math

import pytest

from icl_lab.comparison.replication import replicate, right_for
from icl_lab.comparison.sequential import decide
from icl_lab.comparison.verdict import Replicated, Verdict

INF = math.inf


@pytest.mark.parametrize(
    ("relation", "verdict", "effect", "right"),
    [
        ("below", Verdict.SUPPORTED, -1, (-INF, 0)),
        ("below", Verdict.CONTRADICTED, 1, (0, INF)),
        ("below", Verdict.NO_DIFFERENCE, 0.01, (-0.2, 0.2)),
        ("above", Verdict.SUPPORTED, 1, (0, INF)),
        ("above", Verdict.CONTRADICTED, -1, (-INF, 0)),
        ("above", Verdict.NO_DIFFERENCE, 0.01, (-0.2, 0.2)),
        ("equal", Verdict.SUPPORTED, 0.1, (-0.2, 0.2)),
        ("equal", Verdict.CONTRADICTED, 1, (0.2, INF)),
        ("equal", Verdict.CONTRADICTED, -1, (-INF, -0.2)),
        ("not below", Verdict.SUPPORTED, -0.1, (-0.2, INF)),
        ("not below", Verdict.CONTRADICTED, -1, (-INF, -0.2)),
        ("not above", Verdict.SUPPORTED, 0.1, (-INF, 0.2)),
        ("not above", Verdict.CONTRADICTED, 1, (0.2, INF)),
    ],
)
def test_for_which_effects_a_verdict_is_right(relation, verdict, effect, right):
    assert right_for(relation, verdict, effect, 0.2) == right


def after(relation, first, later, resolution=0.0):
    """What is said of the verdict of some differences by those that come later."""
    left = [*first, *later]
    right = [0.0] * len(left)
    decision = decide(relation, left, right, "difference", 0.2, resolution=resolution)
    return replicate(relation, 0.2, decision, left, right, resolution)


CLEAR = (-1.0, -1.01, -0.99)


def test_later_seeds_are_a_sample_of_their_own():
    found = after("below", CLEAR, (-0.5, -0.6, -0.4))
    assert found.says == Replicated.BORNE_OUT
    assert found.effect.seeds == 3
    assert found.effect.effect == pytest.approx(-0.5)
    assert found.effect.low == pytest.approx(-0.5 - 4.3027 * 0.1 / math.sqrt(3), abs=1e-4)  # t of 2 degrees of freedom


@pytest.mark.parametrize(
    ("later", "says"),
    [
        ((-0.5, 0.1, 0.2), Replicated.BORNE_OUT),  # the mean is where the verdict says, though nothing is sure
        ((-0.5, 0.1, 0.7), Replicated.NOT_BORNE_OUT),
        ((0.5, 0.6, 0.7), Replicated.SPOKEN_AGAINST),
    ],
)
def test_what_they_say_of_a_difference(later, says):
    assert after("below", CLEAR, later).says == says
    assert after("above", CLEAR, later).says == says  # which the seeds of the look contradict


def test_what_they_say_of_no_difference():
    near = (0.0, 0.001, -0.001)
    assert after("below", near, (0.1, 0.12, 0.11)).says == Replicated.BORNE_OUT
    assert after("below", near, (0.5, 0.1, 0.3)).says == Replicated.NOT_BORNE_OUT
    assert after("equal", near, (0.5, 0.51, 0.49)).says == Replicated.SPOKEN_AGAINST
    assert after("equal", near, (-0.5, -0.51, -0.49)).says == Replicated.SPOKEN_AGAINST


def test_without_a_verdict_or_three_later_seeds_nothing_is_said():
    assert after("below", CLEAR, (-1.0, -1.0)) is None
    assert after("below", (-1.0, 1.0, 0.5), (1.0, -1.0, 0.3, 0.2)) is None


def test_later_rates_that_are_all_the_same_are_known_to_one_prompt():
    """Without a spread over seeds there is no interval; one step of the rate is the least spread."""
    near = (0.0, 0.0, 0.0)
    assert after("below", near, (0.5, 0.5, 0.5)).says == Replicated.NOT_BORNE_OUT
    stepped = after("below", near, (0.5, 0.5, 0.5), resolution=0.01)
    assert stepped.says == Replicated.SPOKEN_AGAINST
    assert stepped.effect.low == pytest.approx(0.5 - 4.3027 * 0.01 / math.sqrt(3), abs=1e-4)
