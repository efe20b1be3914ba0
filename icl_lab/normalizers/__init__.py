"""Attention normalizers: what turns scores into weights. One idea a file; a file is found by being there."""

import re
from collections.abc import Iterator, Sequence

from torch import nn

from icl_lab.base.errors import BadValue
from icl_lab.base.registry import Choice, Registry
from icl_lab.normalizers.base import Normalizer, Site

registry = Registry("normalizer", __name__)
wrappers = Registry("wrapper of a normalizer", __name__)


def names() -> list[str]:
    """Return the names of all normalizers (wrappers have their own: ``wrappers.names()``)."""
    return registry.names()


def build(choice: str, *, heads: int, head_dim: int, train_tokens: int, layer: int = 0, width: int = 0) -> Normalizer:
    """Build one layer's normalizer from text: ``ssa:n=2``, or ``X+reweight:p=3`` for a wrapper around X.

    ``layer`` is its number, from 0; ``width`` that of its tokens, where it is not heads * head_dim.
    Raises ``LabError`` when a name, an option or a value is not known, and where two parts do not go together.
    """
    site = Site(heads, head_dim, train_tokens, layer, width)
    first, *around = _split(choice)
    rule: Normalizer = registry.build(first, site)
    for wrapper in around:
        inner, rule = rule, wrappers.build(wrapper, site, rule)
        if inner.reads_tokens != "no" and rule.reads_tokens == "no":
            raise BadValue(
                f"normalizer '{choice}': '{wrapper}' reads queries and keys alone, and what it stands around reads the"
                " tokens, too."
            )
    if not isinstance(rule, Normalizer):
        raise BadValue(f"normalizer '{choice}': its class must be a Normalizer of icl_lab.normalizers.base.")
    return rule


def build_layers(
    choice: str, *, layers: int | Sequence[int], heads: int, head_dim: int, train_tokens: int, width: int = 0
) -> nn.ModuleList:
    """Build a normalizer for each layer; parameters that it declares ``shared`` are one tensor for all layers.

    ``layers`` is how many there are, or the numbers of those that get one, counted from 0; the rest as in ``build``.
    """
    site = {"heads": heads, "head_dim": head_dim, "train_tokens": train_tokens, "width": width}
    numbers = range(layers) if isinstance(layers, int) else layers
    rules = [build(choice, **site, layer=number) for number in numbers]
    for rule in rules[1:]:
        for ours, first in zip(rule.modules(), rules[0].modules(), strict=True):
            if isinstance(first, Normalizer):
                for name in first.shared:
                    setattr(ours, name, getattr(first, name))
    return nn.ModuleList(rules)


def canonical(choice: str) -> str:
    """Return the one spelling of a choice (option order, number format); raises ``LabError`` if there is none."""
    first, *around = _split(choice)
    return "+".join([str(registry.canonical(first)), *(str(wrappers.canonical(wrapper)) for wrapper in around)])


def parts(choice: str) -> Iterator[tuple[Registry, str]]:
    """Yield the names in a choice, the normalizer and the wrappers around it, each with the registry that it is in."""
    first, *around = _split(choice)
    yield registry, Choice.parse(first).name
    for wrapper in around:
        yield wrappers, Choice.parse(wrapper).name


def _split(choice: str) -> list[str]:
    # A '+' before a letter starts a wrapper; one before a digit belongs to a number such as 1e+3.
    return re.split(r"\+(?=[A-Za-z])", choice)
