"""Weights that a normalizer gives to made-up scores, without a model: concentration and fading.

Every normalizer is asked through ``weights`` itself, with queries and keys made so that the scores are the wanted ones:
all have length sqrt(64) = 8, as vectors of unit channels have, and their angle gives q.k / 8 = z, from -8 to 8. A
normalizer that reads cosines, or norms over tokens, so gets inputs as in a model. The wanted key stands last.

The *share* of a row is its largest |w_j| over its sum of |w_i|: for rows that sum to 1 this is the largest weight, and
for all others what a scale on the values cannot change. A row without weights has share 0. Its *mass* is the sum of
|w_i| itself: a normalizer whose share stays at 1 while its mass goes to 0 fades as well. Both are means over the heads,
which differ where heads have different normalizers or starts (``soft-avg``, ``four-functions``, ``asentmax``). The
largest weight need not be that of the wanted key: ``stick-breaking`` prefers the nearest key before it. Learned
parameters are at their start; the training length is 82 tokens.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache

import torch
from torch import Tensor

from icl_lab import normalizers
from icl_lab.analyses.profiles.families import rules
from icl_lab.base.errors import BadValue
from icl_lab.base.grid import Grid
from icl_lab.normalizers.base import Normalizer, causal

HEADS, HEAD_DIM, TRAIN_TOKENS = 8, 64, 82
REACH = math.sqrt(HEAD_DIM)  # the length of queries and keys, and so the largest score
SQUARE = 1024  # the most keys for a normalizer that must be asked for all of its rows
LENGTHS = tuple(2**i for i in range(1, 15))
GAPS = (0, 0.5, 1, 1.5, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16)
GAP, KEYS = 5.0, 80  # where the other axis stands
PAPER = ("softmax", "ssmax:s=0.43,learn=no")
WHO = {"task": "functions", "preset": "-", "spec": "-", "seed": 0}


def fading(lengths: Sequence[int] = LENGTHS) -> Grid:
    """Figure 1 of the SSMax paper: scores -2 everywhere and +3 last, s = 0.43. Axis: keys."""
    return _grid((row for rule in PAPER for n in lengths for row in _cells(rule, -2.0, 3.0, n, {"keys": n})), "keys")


def focus(lengths: Sequence[int] = (16, 128, 1024, 8192), steps: int = 33) -> Grid:
    """Figure 3 of the SSMax paper: the largest score against its weight. Axes: keys, z_max.

    All other scores are 0 here, so that z_max is the gap, and SSMax turns at z_max = 1/s whatever the length.
    """
    tops = torch.linspace(0, REACH, steps).tolist()
    cells = ((rule, n, top) for rule in PAPER for n in lengths for top in tops)
    return _grid(
        (row for rule, n, top in cells for row in _cells(rule, 0.0, top, n, {"keys": n, "z_max": top})), "keys", "z_max"
    )


def base(points: int = 101) -> Grid:
    """The function that SSA puts in place of exp: (1 + b|x|)^(n sgn x) at b = 1, read off the normalizer. Axis: x.

    Two scores 0 and x get weights in the ratio 1 : f(x), whatever f is, so the last weight over the first is f.
    """
    xs = [round(10 * i / (points - 1) - 5, 9) for i in range(points)]
    named = {"exp": "softmax"} | {f"ssa:n={n}": f"ssa:n={n},learn=no" for n in ("1.1", "1.5", "2")}
    rows = []
    for name, choice in named.items():
        for x in xs:
            w = _last_row(choice, torch.tensor([0.0, x], dtype=torch.float64))[0]
            rows.append({"attn": name, "x": x, "metric": "f", "value": float(w[1] / w[0]), "count": 1})
    return _grid(rows, "x")


def against_length(lengths: Sequence[int] = LENGTHS, choices: Iterable[str] | None = None) -> Grid:
    """Every normalizer at a gap of 5 (scores -2.5, and +2.5 last). Axis: keys.

    A normalizer whose last row cannot be had without the others (distances, norms over queries) ends at 1,024 keys.
    """
    half = GAP / 2
    cells = ((rule, n) for rule in _all(choices) for n in lengths)
    return _grid((row for rule, n in cells for row in _cells(rule, -half, half, n, {"keys": n})), "keys")


def against_gap(gaps: Sequence[float] = GAPS, choices: Iterable[str] | None = None) -> Grid:
    """Every normalizer at 80 keys, with scores -g/2 and, last, +g/2. Axis: gap."""
    cells = ((rule, gap) for rule in _all(choices) for gap in gaps)
    return _grid((row for rule, gap in cells for row in _cells(rule, -gap / 2, gap / 2, KEYS, {"gap": gap})), "gap")


# Every grid by its name.
GRIDS: Mapping[str, Callable[[], Grid]] = {
    "fading": fading,
    "focus": focus,
    "ssa-base": base,
    "rules-length": against_length,
    "rules-gap": against_gap,
}


def _grid(rows: Iterable[Mapping[str, object]], *axes: str) -> Grid:
    return Grid.of(rows, axes, **WHO)


def left_out() -> list[str]:
    """Normalizers that have no weights without a model, because they read its tokens: no grid here has them."""
    return [choice for choice in rules(normalizers.names()) if _rule(choice).reads_tokens == "weights"]


def _all(choices: Iterable[str] | None) -> list[str]:
    if choices is not None:
        return list(choices)
    out = left_out()
    return [choice for choice in rules(normalizers.names()) if choice not in out]


def _cells(choice: str, low: float, high: float, n: int, where: Mapping[str, float]) -> Iterator[dict[str, object]]:
    """The share and the mass of the last of ``n`` rows, whose scores are ``low`` everywhere and ``high`` last."""
    if n > SQUARE and not _asked(choice)[1]:
        return
    z = torch.full((n,), low, dtype=torch.float64)
    z[-1] = high
    w = _last_row(choice, z).abs()
    mass = w.sum(-1)
    share = torch.where(mass > 0, w.amax(-1) / mass, 0.0)
    for metric, value in (("share", share), ("mass", mass)):
        yield {"attn": choice, **where, "metric": metric, "value": float(value.mean()), "count": HEADS}


def _last_row(choice: str, z: Tensor) -> Tensor:
    """Scores z (t) -> weights of the last row (h t)."""
    rule, alone = _asked(choice)
    q, k = _vectors(z)
    with torch.no_grad():
        if alone:
            return rule.weights(q[..., -1:, :], k, torch.ones(1, len(z), dtype=torch.bool))[0, :, -1]
        return rule.weights(q, k, causal(len(z)))[0, :, -1]


def _vectors(z: Tensor) -> tuple[Tensor, Tensor]:
    """Scores z (t) -> equal queries and keys (1 h t d) of length 8 with q.k / 8 = z."""
    q, k = z.new_zeros(2, len(z), HEAD_DIM)
    q[:, 0] = REACH
    k[:, 0] = z
    k[:, 1] = (REACH**2 - z.square()).clamp(min=0).sqrt()
    return q.expand(1, HEADS, -1, -1), k.expand(1, HEADS, -1, -1)


def _rule(choice: str) -> Normalizer:
    return normalizers.build(choice, heads=HEADS, head_dim=HEAD_DIM, train_tokens=TRAIN_TOKENS)


@cache
def _asked(choice: str) -> tuple[Normalizer, bool]:
    """A normalizer, and whether its last query, given alone, gets the row that it gets among the others.

    The seam asks for all rows. A normalizer that knows a row by its own query and keys gives one row as well, without
    t^2 weights; a normalizer that reads distances or other queries does not, and may not even notice.
    """
    rule = _rule(choice).double()
    q, k = _vectors(torch.tensor([0.5, -2.0, 1.5, -1.0, 3.0], dtype=torch.float64))
    with torch.no_grad():
        among = rule.weights(q, k, causal(5))[0, :, -1]
        try:
            alone = rule.weights(q[..., -1:, :], k, torch.ones(1, 5, dtype=torch.bool))
        except (RuntimeError, BadValue):  # shapes that do not fit, or a normalizer that says that it needs all queries
            return rule, False
    return rule, alone.shape[-2] == 1 and torch.allclose(alone[0, :, -1], among)
