"""entmax in single precision against arithmetic of 50 digits."""

from itertools import product

import pytest
import torch

from icl_lab.normalizers import sparse
from icl_lab.normalizers.sparse import entmax
from tests.cases import few

mpmath = pytest.importorskip("mpmath")  # torch brings it, by way of sympy


def exact(z, alpha):
    """The weights of a row, by halving the interval in which the largest of them must lie."""
    with mpmath.workdps(50):
        below = [(mpmath.mpf(x) - mpmath.mpf(max(z))) * (mpmath.mpf(alpha) - 1) for x in z]
        low, high = mpmath.mpf(0), mpmath.mpf(1)
        for _ in range(120):
            top = (low + high) / 2
            low, high = (low, top) if sum(_powers(below, top, alpha)) > 1 else (top, high)
        return [float(w) for w in _powers(below, high, alpha)]


def _powers(below, top, alpha):
    rest = [x + top ** (mpmath.mpf(alpha) - 1) for x in below]
    return [r ** (1 / (mpmath.mpf(alpha) - 1)) if r > 0 else mpmath.mpf(0) for r in rest]


ALPHAS, SIZES = (1.000001, 1.0001, 1.1, 1.3, 1.5, 1.9, 2.0, 2.5, 3.0, 4.0, 10.0), (1e-6, 0.01, 1.0, 10.0, 1e4, 1e8)
# Every alpha at scores of unit size and every size at some alphas come first; all pairs are exhaustive.
PAIRS = sorted(product(ALPHAS, SIZES), key=lambda pair: pair[1] != 1.0 and pair[0] not in (1.000001, 1.5, 2.0, 10.0))


@pytest.mark.parametrize(("alpha", "size"), few(11 + 4 * 5, PAIRS))
def test_entmax_to_five_digits(alpha, size):
    z = (torch.randn(12, generator=torch.Generator().manual_seed(7)) * size).requires_grad_()
    w = entmax(z.unsqueeze(0), torch.ones(1, 12, dtype=torch.bool), alpha)[0]
    assert w.tolist() == pytest.approx(exact(z.tolist(), alpha), abs=1e-6)
    w.square().sum().backward()
    assert z.grad.isfinite().all()


def test_a_threshold_that_is_not_found_says_so(monkeypatch):
    z = torch.randn(3, 90, generator=torch.Generator().manual_seed(8))
    monkeypatch.setattr(sparse, "STEPS", 2)
    with pytest.warns(UserWarning, match=r"entmax of alpha = 1.5: a threshold still moves by 0.\d+ after 2 steps"):
        entmax(z, torch.ones(3, 90, dtype=torch.bool), 1.5)
