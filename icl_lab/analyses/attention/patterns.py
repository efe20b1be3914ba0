"""Pattern of a head in one prompt: which key its weights lie on, so that a page can say it in a sentence."""

from collections.abc import Sequence
from functools import cache
from typing import NamedTuple

import torch
from torch import Tensor, nn

from icl_lab.analyses.attention.live.graph import Inputs, NotExportable, OperatorGraph, pack, trace
from icl_lab.analyses.attention.maps import Maps
from icl_lab.analyses.attention_rows import on_places, shares
from icl_lab.tasks.base import Mark

QUERIES, LEAST = 64, 3  # the last queries of a prompt, of those that see three keys or more
MOSTLY, PARTLY = 0.5, 0.25  # shares of the weight from which on a pattern is named
# What stands in a sentence, and in a few letters below a map.
PATTERNS = {
    "first": ("looks at the first token", "first"),
    "itself": ("looks at the token itself", "itself"),
    "previous": ("looks at the token before", "before"),
    "value": ("looks at the earlier token that is nearest in value", "by value"),
    "induction": ("looks at what followed the earlier token nearest in value (induction-like)", "induction"),
}
LEGEND = (
    f"Below each head: the key that has most of its weight in this prompt, as a mean share of |weight| over the last "
    f"{QUERIES} queries. first: the first token; itself: the query's own token; before: the one just before the query; "
    "by value: the earlier token of the same role that is nearest in value (of symbols: equal); induction: the token "
    f"after it. From {MOSTLY:.0%} on the head looks there, from {PARTLY:.0%} on partly; below, it spreads."
)


class Compared(NamedTuple):
    """Numbers by which tokens are compared, and how far apart two may be to count as near; below 0 none does."""

    values: list[float]
    within: float


def compared(marks: Sequence[Mark]) -> Compared:
    """Compare numbers by their value, symbols by their text; vectors have none."""
    values = [mark.value for mark in marks if mark.value is not None]
    if len(values) == len(marks):
        return Compared(values, torch.inf)
    texts = list(dict.fromkeys(mark.text for mark in marks))
    return Compared([float(texts.index(mark.text)) for mark in marks], 0.0 if any(texts) else -1.0)


def period(marks: Sequence[Mark]) -> int:
    """Tokens of one example: the distance to the next token with the role of the first."""
    roles = [mark.role for mark in marks]
    return roles.index(roles[0], 1) if roles[0] in roles[1:] else 1


class Pattern(nn.Module):
    """Weights of the last of n keys (h n), values (n), distances within which two are near (n) -> shares (h 5)."""

    varying = (1, 0, 0)

    def __init__(self, roles: int) -> None:
        super().__init__()
        self.roles = roles

    def forward(self, weights: Tensor, values: Tensor, within: Tensor) -> Tensor:
        """Shares of |weight| in the order of ``PATTERNS``."""
        p, n = shares(weights), weights.shape[-1]
        back = n - 1 - torch.arange(n)
        distance = (values - values[-1:]).abs()
        earlier = (back % self.roles == 0) & (back > 0) & (distance <= within)
        distance = torch.where(earlier, distance, torch.inf)
        near = (earlier & (distance == distance.amin(-1, keepdim=True))).to(p.dtype)
        after = torch.cat([torch.zeros_like(near[:1]), near[:-1]])
        return torch.stack([*on_places(p).values(), (p * near).sum(-1), (p * after).sum(-1)], -1)


def measured(maps: Maps, known: Compared, roles: int) -> list[list[list[float]]]:
    """Mean shares of every layer and head over the queries of a prompt; empty where it has too few keys.

    And where queries see both sides: patterns are of earlier tokens.
    """
    weights, first = maps.weights.flatten(0, 1), maps.first  # (l h) r t
    t = weights.shape[-1]
    pattern, values = Pattern(roles), torch.tensor(known.values, dtype=torch.float64)
    queries = range(max(first, LEAST - 1, t - QUERIES), t)
    if not queries or maps.full:
        return []
    rows = [
        pattern(weights[:, i - first, : i + 1], values[: i + 1], torch.full((i + 1,), known.within)) for i in queries
    ]
    shared = torch.stack(rows).mean(0).nan_to_num()  # JSON has no NaN
    found: list[list[list[float]]] = shared.view(*maps.weights.shape[:2], -1).tolist()
    return found


@cache
def graph(roles: int) -> OperatorGraph | None:
    """Export the pattern for a page that computes; None where torch has no graph of it."""

    def example(n: int) -> Inputs:
        rng = torch.Generator().manual_seed(n)
        return torch.rand(2, n, generator=rng), torch.randn(n, generator=rng), torch.full((n,), torch.inf)

    part = Pattern(roles)
    try:
        return pack(trace(part, "the pattern of a head", example), part, "the pattern of a head")
    except NotExportable:
        return None
