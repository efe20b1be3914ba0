"""Bounds on weights of random scores: against the papers' formulas, written out by hand."""

import math

import pytest
import torch

from icl_lab.analyses.profiles import bounds
from icl_lab.base.errors import BadValue
from icl_lab.base.rng import stream

SSMAX = "ssmax:s=0.43,learn=no"


def rows(*scores):
    return torch.tensor(scores, dtype=torch.float64)


def test_weights_are_those_of_the_formulas():
    z = rows([0.0, math.log(2), math.log(5)])
    assert bounds.weigher("softmax")(z)[0].tolist() == pytest.approx([1 / 8, 2 / 8, 5 / 8])
    # (1 + 3)^1.5 = 8, (1 + 0)^1.5 = 1, (1 + 3)^-1.5 = 1/8
    assert bounds.weigher("ssa")(rows([3.0, 0.0, -3.0]))[0].tolist() == pytest.approx([64 / 73, 8 / 73, 1 / 73])
    powers = [3 ** (0.43 * z) for z in (1.0, -2.0, 0.5)]
    expected = [power / sum(powers) for power in powers]
    assert bounds.weigher(SSMAX)(rows([1.0, -2.0, 0.5]))[0].tolist() == pytest.approx(expected)


def test_a_rule_is_asked_in_pieces_that_change_nothing(monkeypatch):
    z = bounds.spread_rows(stream(0, "rows"), 20, 6, 4.0)
    whole = bounds.weigher("lssa")(z)
    monkeypatch.setattr(bounds, "KEYS_AT_ONCE", 13)
    assert torch.allclose(bounds.weigher("lssa")(z), whole, rtol=1e-12)


@pytest.mark.parametrize(
    "choice", ["sigmoid", "raw", "cosformer", "stick-breaking", "sima", "forget", "selective", "differential"]
)
def test_rules_that_the_bounds_are_not_about_are_refused(choice):
    with pytest.raises(BadValue, match="the bounds are about"):
        bounds.weigher(choice)


def test_drawn_rows_keep_their_promise():
    z = bounds.spread_rows(stream(0, "rows"), 500, 5, 4.0)
    assert z.abs().max() <= 4
    assert z.abs().amax(1).min() < 0.2  # some rows are nearly uniform
    gap = bounds.gap_rows(stream(0, "rows"), 500, 5, 3.0)
    assert (gap[:, -1] == 3).all()
    assert -1 <= gap[:, :-1].min() < gap[:, :-1].max() <= 0


def test_the_entropy_bound_is_attained_by_an_even_rest():
    even, uneven = rows([0.4, 0.2, 0.2, 0.2]), rows([0.4, 0.3, 0.2, 0.1])
    entropy, bound = bounds.entropy_and_bound(even)
    assert entropy.item() == pytest.approx(bound.item())
    assert bound.item() == pytest.approx(-0.4 * math.log(0.4) - 0.6 * math.log(0.6) + 0.6 * math.log(3))
    entropy, bound = bounds.entropy_and_bound(uneven)
    assert bound.item() == pytest.approx(-0.4 * math.log(0.4) - 0.6 * math.log(0.2))
    assert entropy.item() == pytest.approx(-sum(p * math.log(p) for p in (0.4, 0.3, 0.2, 0.1)))
    assert entropy < bound


def test_jacobian_of_two_equal_scores():
    """Softmax: diag(w) - w w^T = 1/4 [1 -1; -1 1], norm 1/2. SSA: times f'(0)/f(0) = n b = 1.5."""
    for choice, slope in (("softmax", 1.0), ("ssa", 1.5)):
        found = bounds.jacobian(bounds.weigher(choice), rows([0.0, 0.0]))[0]
        expected = slope / 4 * rows([1.0, -1.0], [-1.0, 1.0])
        assert torch.allclose(found, expected)
        assert torch.linalg.matrix_norm(found, 2).item() == pytest.approx(slope / 2)


def test_jacobian_is_the_slope_of_the_weights():
    weigh, z, step = bounds.weigher("ssa"), rows([0.7, -1.1, 2.0]), 1e-6
    found = bounds.jacobian(weigh, z)[0]
    for key in range(3):
        moved = z.clone()
        moved[0, key] += step
        assert torch.allclose((weigh(moved) - weigh(z))[0] / step, found[:, key], atol=1e-5)


def test_the_bracket_is_that_of_equations_5_to_9():
    z = rows([2.0, 0.5, -1.0, 0.0], [1.0, 0.9, -3.0, -3.0])
    for choice, c in (("softmax", 1.0), (SSMAX, 0.43 * math.log(4))):
        low, high = bounds.bracket(bounds.weigher(choice), z)
        assert low.tolist() == pytest.approx([1 / (1 + 3 * math.exp(-c * 1.5)), 1 / (1 + 3 * math.exp(-c * 0.1))])
        assert high.tolist() == pytest.approx([1 / (1 + 3 * math.exp(-c * 3.0)), 1 / (1 + 3 * math.exp(-c * 4.0))])


def test_the_ceiling_is_that_of_theorem_1():
    keys, reach = 9, 4.0
    ssa, softmax = (bounds.ceiling(bounds.weigher(choice), keys, reach) for choice in ("ssa", "softmax"))
    assert ssa == pytest.approx(1 / (1 + 8 * (1 + reach) ** (-2 * 1.5)))
    assert softmax == pytest.approx(1 / (1 + 8 * math.exp(-2 * reach)))


def test_distance_of_weights():
    assert bounds.distance(rows([0.5, 0.5, 0.0]), rows([0.5, 0.25, 0.25])).tolist() == [0.25]
