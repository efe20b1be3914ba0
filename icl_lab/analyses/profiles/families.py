"""Questions to normalizers and models that need no training: each file computes grids, and draws nothing.

``FAMILIES`` says which normalizers are looked at side by side, and under which options. A normalizer that is in none of
them is still asked: it comes last, under ``others``.
"""

from collections.abc import Iterable

FAMILIES: dict[str, tuple[str, ...]] = {
    "softmax, by another temperature": ("softmax", "temperature:tau=5", "adaptive-temperature", "sink"),
    "scores grow with log n": (
        "ssmax",
        "ssmax:s=0.43",
        "ssmax:s=swap",
        "ssmax-free",
        "log-n",
        "asentmax",
        "llama4",
        "qassmax",
    ),
    "powers": ("ssa", "ssa:n=2", "l1:phi=relu2", "l1:phi=square", "l1:phi=softplus"),
    "sparse": ("sparsemax", "entmax:alpha=1.5", "softpick", "elastic"),
    "each key by itself": (
        "sigmoid",
        "sigmoid:bias=train",
        "sigmoid:bias=visible",
        "sigmoid:bias=visible,l1=yes",
        "exp",
    ),
    "other functions of the score": (
        "relu",
        "l1:phi=relu",
        "l1:phi=relu6",
        "l1:phi=gelu",
        "l1:phi=mish",
        "l1:phi=sigmoid",
        "l1:phi=tanh",
    ),
    "weights of either sign": (
        "raw",
        "raw:l1=yes",
        "inverse",
        "recentred",
        "recentred:l1=yes",
        "sima",
        "sima:axis=feature",
        "differential",
    ),
    "softmax times the score": ("sa-softmax", "sa-softmax:variant=0", "sa-softmax:variant=1", "sa-softmax:variant=2"),
    "re-weighted": ("lssa", "lssa+reweight:p=3", "lssa+reweight:p=15", "softmax+reweight:p=3"),
    "by distance": (
        "cosformer",
        "cosformer:horizon=current",
        "scale-invariant",
        "stick-breaking",
        "stick-breaking:remainder=none",
        "selective",
    ),
    "averages and mixtures of heads": ("average", "soft-avg", "four-functions"),
}


def rules(registered: Iterable[str]) -> list[str]:
    """Return all normalizers to look at: those of the families, then those ``registered`` and in none of them."""
    chosen = [rule for family in FAMILIES.values() for rule in family]
    known = {rule.split(":")[0] for rule in chosen}
    return chosen + [name for name in registered if name not in known]
