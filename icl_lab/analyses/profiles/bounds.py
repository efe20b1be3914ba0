"""Bounds and theorems of papers, measured on rows of scores: what a normalizer's weights, entropy and slopes do.

z: scores of r rows of t keys, (r t); w: their weights, (r t). A normalizer is asked through ``weights`` itself, with
queries and keys of length sqrt(64) = 8 whose products give the scores, so that one that reads cosines is asked like any
other; its parameters are at their start. All of it is in double precision.

``bracket`` and ``ceiling`` hold for every normalizer w_j = f(z_j) / sum_i f(z_i) with f > 0 that grows: f = exp(c_n z)
gives Eqs. 5 to 9 of arXiv 2501.19399, f = (1 + b|z|)^(n sgn z) Appendix J.6 of arXiv 2508.14685.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from icl_lab import normalizers
from icl_lab.analyses.profiles.functions import HEAD_DIM, REACH, TRAIN_TOKENS
from icl_lab.base.errors import BadValue
from icl_lab.normalizers.base import Normalizer

KEYS_AT_ONCE = 2**17  # keys that are made at once: their vectors take 64 MiB

Weigh = Callable[[Tensor], Tensor]  # scores (r t) -> weights (r t)


def weigher(choice: str, dtype: torch.dtype = torch.float64) -> Weigh:
    """Return a function that gives the weights of rows of scores, at most 8 in size, under a normalizer.

    Queries, keys, parameters and weights are of ``dtype``. Raises ``BadValue`` for a normalizer that is not a function
    of one row of scores, or whose rows are not shares.
    """
    rule = normalizers.build(choice, heads=1, head_dim=HEAD_DIM, train_tokens=TRAIN_TOKENS).double()
    if not (rule.sums_to_one and rule.non_negative):
        raise BadValue(f"the bounds are about weights that are never negative and sum to 1, which {choice} does not.")
    if rule.ordered or not _by_row(rule):
        raise BadValue(f"the bounds are about normalizers that weigh a row by its own scores, which {choice} does not.")

    rule.to(dtype)

    def weigh(z: Tensor) -> Tensor:
        pieces = torch.split(z, max(1, KEYS_AT_ONCE // z.shape[1]))
        return torch.cat([_weights(rule, piece, dtype) for piece in pieces])

    return weigh


def spread_rows(rng: torch.Generator, rows: int, keys: int, reach: float) -> Tensor:
    """Draw rows of scores of every spread: z = reach u v, u ~ U(0, 1) one per row, v ~ U(-1, 1) one per key."""
    u = torch.rand(rows, 1, generator=rng, dtype=torch.float64)
    return reach * u * (2 * torch.rand(rows, keys, generator=rng, dtype=torch.float64) - 1)


def gap_rows(rng: torch.Generator, rows: int, keys: int, gap: float) -> Tensor:
    """Draw rows whose last score is ``gap`` and all others from U(-1, 0): at least ``gap`` below it."""
    z = -torch.rand(rows, keys, generator=rng, dtype=torch.float64)
    z[:, -1] = gap
    return z


def entropy_and_bound(w: Tensor) -> tuple[Tensor, Tensor]:
    """Weights (r t) -> their entropy in nats and h(p) + (1 - p) log(t - 1), each (r); p is the largest weight.

    Formula: H = -sum_j w_j log w_j, h(p) = -p log p - (1 - p) log(1 - p)

    Appendix J.3 of arXiv 2508.14685 has the second as a lower bound of the first. It is the entropy of the row that
    shares what p leaves evenly among the other keys: the most that any row with this p can have.
    """
    p = w.amax(-1)
    pair = torch.stack((p, 1 - p), -1)
    return torch.special.entr(w).sum(-1), torch.special.entr(pair).sum(-1) + (1 - p) * _log(w.shape[-1] - 1)


def jacobian(weigh: Weigh, z: Tensor) -> Tensor:
    """Scores z (r t) -> J (r t t), J_ij = dw_i / dz_j."""
    z = z.detach().requires_grad_()
    w = weigh(z)
    slopes = [torch.autograd.grad(one.sum(), z, retain_graph=True)[0] for one in w.unbind(-1)]
    return torch.stack(slopes, 1)


def bracket(weigh: Weigh, z: Tensor) -> tuple[Tensor, Tensor]:
    """Scores z (r t) -> what the largest weight lies between, each (r).

    Formula: f(z_1) / (f(z_1) + (t - 1) f(z_2)) <= max w <= f(z_1) / (f(z_1) + (t - 1) f(z_min))

    z_1 and z_2 are the largest scores of a row, z_min the least. For softmax(c_n z) the two are
    1 / (1 + (t - 1) exp(-c_n (z_1 - z_2))) and the same with z_min.
    """
    top, second = z.topk(2, -1).values.unbind(-1)
    return _pair(weigh, second, top, z.shape[-1]), _pair(weigh, z.amin(-1), top, z.shape[-1])


def ceiling(weigh: Weigh, keys: int, reach: float) -> float:
    """The largest weight that any row of ``keys`` scores in [-reach, reach] can have: below 1 whatever the normalizer.

    Formula: 1 / (1 + (t - 1) f(-M) / f(M)); for SSA f(M) / f(-M) = (1 + b M)^(2 n), for softmax e^(2 M)
    """
    ends = torch.tensor([reach], dtype=torch.float64)
    return float(_pair(weigh, -ends, ends, keys))


def distance(w: Tensor, other: Tensor) -> Tensor:
    """Weights (r t) and other weights of the same rows -> half the sum of their differences, 0 to 1, (r)."""
    return (w - other).abs().sum(-1) / 2


def _weights(rule: Normalizer, z: Tensor, dtype: torch.dtype) -> Tensor:
    q, k = z.new_zeros(1, 1, 1, HEAD_DIM), z.new_zeros(*z.shape, HEAD_DIM - 2)
    q[..., 0] = REACH
    rest = (REACH**2 - z.square()).clamp(min=0).sqrt()
    keys = torch.cat((torch.stack((z, rest), -1), k), -1).unsqueeze(1)
    seen = torch.ones(1, z.shape[1], dtype=torch.bool)
    return rule.weights(q.expand(len(z), -1, -1, -1).to(dtype), keys.to(dtype), seen)[:, 0, 0]


def _by_row(rule: Normalizer) -> bool:
    """True if one query by itself gets one row of weights, which follow its scores."""
    z = torch.tensor([[0.5, -2.0, 1.5, -1.0, 3.0]], dtype=torch.float64)
    try:
        with torch.no_grad():
            w = _weights(rule, z, z.dtype)
    except RuntimeError:
        return False
    return w.shape == z.shape and torch.equal(w.argsort(), z.argsort())


def _pair(weigh: Weigh, low: Tensor, high: Tensor, keys: int) -> Tensor:
    """The largest weight of the rows with one score ``high`` (r) and all others ``low`` (r)."""
    z = low.unsqueeze(-1).repeat(1, keys)
    z[:, -1] = high
    with torch.no_grad():
        return weigh(z)[:, -1]


def _log(n: int) -> float:
    return float(torch.tensor(n, dtype=torch.float64).log())
