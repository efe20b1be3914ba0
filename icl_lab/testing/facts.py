"""Facts about a normalizer's weights, measured: its contract, invariances, and the nearest known normalizer."""

import torch
from torch import Tensor

from icl_lab import normalizers
from icl_lab.normalizers.base import Normalizer, causal
from icl_lab.testing.rule_inputs import HEADS, WIDTH, asked, qkv, scored
from icl_lab.testing.verdicts import RULES, Part, verdicts

KEYS, TRAINED = 32, 16  # of the longest row here, and in training
FAR = 256  # keys of a row, 16 times those of training
# Choices of options that papers print or that the evidence holds, beside every normalizer with its defaults.
COMMON = (
    *("ssa:n=1.2", "ssmax:s=swap", "ssmax:learn=no", "sigmoid:bias=visible,l1=yes", "temperature:tau=10"),
    *("relu:divide=l1", "raw:l1=yes", "recentred:l1=yes"),
)
DISTANCE = f"half the sum of |w - w'| of a row, mean over 1 to {KEYS} random keys; {TRAINED} in training, untrained"


def broken_promise(choice: str) -> str:
    """Return the first check of the contract that a choice fails, and why; empty where it keeps all."""
    registry, name = list(normalizers.parts(choice))[-1]
    found = verdicts(Part(RULES, registry, name, choice))
    return next((f"{check} ({fault})" for check, fault in found if fault), "")


def facts(choice: str) -> dict[str, bool]:
    """Return facts about the weights: traits that the contract checks both ways, and two invariances measured now.

    These compare the weights of up to ``KEYS`` keys, whose scores rise from -2 to 3, to 1e-9.
    """
    rule, z = _built(choice), torch.linspace(-2, 3, KEYS, dtype=torch.float64)

    def unchanged(other: Tensor) -> bool:
        (q, k, _), (q_other, k_other, _) = scored(z), scored(other)
        w, moved = rule.weights(q, k, causal(KEYS)), rule.weights(q_other, k_other, causal(KEYS))
        return torch.allclose(w, moved, rtol=0, atol=1e-9)

    return {
        "sum to 1": rule.sums_to_one,
        "never negative": rule.non_negative,
        "the same when the prompt goes on": rule.prefix_consistent,
        "the same in any order of keys": not rule.ordered,
        "the same when all scores rise by 1": unchanged(z + 1),
        "the same when all scores double": unchanged(2 * z),
    }


def largest(choice: str) -> tuple[float, float]:
    """Return the mean largest weight of a row of ``TRAINED`` random keys and of ``FAR``: does it fade with them?"""
    (q, k, _), rule = qkv(FAR), _built(choice)
    w = rule.weights(q, k, causal(FAR)).detach().amax(-1)
    return float(w[..., TRAINED - 1].mean()), float(w[..., -1].mean())


def nearest(choice: str) -> tuple[str, float]:
    """Return the built-in normalizer with the nearest weights, and their distance (``DISTANCE``), 0 to 1 of shares.

    Other options of the same normalizer do not count. Of equals it is softmax, or else the first by name.
    """
    q, k, _ = qkv(KEYS)
    own, *around = (name for _, name in normalizers.parts(choice))
    built_in = [name for name in normalizers.names() if normalizers.registry.source(name) is None]
    known = [each for each in (*built_in, *COMMON) if around or next(normalizers.parts(each))[1] != own]
    mine = _built(choice).weights(q, k, causal(KEYS))
    apart = {each: mine - _built(each).weights(q, k, causal(KEYS)) for each in known}
    distances = {each: round(float(gap.detach().abs().sum(-1).mean()) / 2, 9) for each, gap in apart.items()}
    name = min(distances, key=lambda each: (distances[each], each != "softmax", each))
    return name, distances[name]


def _built(choice: str) -> Normalizer:
    return asked(normalizers.build(choice, heads=HEADS, head_dim=WIDTH, train_tokens=TRAINED)).double()
