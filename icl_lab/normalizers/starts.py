"""Random starts of a normalizer's own matrices, by address: every build in a layer begins with the same numbers."""

import math

import torch
from torch import Tensor, nn

from icl_lab.base.errors import BadValue
from icl_lab.base.rng import stream
from icl_lab.normalizers.base import Site

MOST = 2**28  # numbers of a matrix: a gigabyte in single precision


def normal(site: Site, rule: str, name: str, *shape: int, sd: float = 0.02) -> nn.Parameter:
    """N(0, sd) of a shape, drawn for this parameter of this normalizer in this layer; sd a standard deviation.

    Raises ``BadValue`` where that would take more than a gigabyte.
    """
    _fits(shape)
    return nn.Parameter(sd * torch.randn(shape, generator=_generator(site, rule, name), device="cpu"))


def linear(site: Site, rule: str, name: str, *shape: int, inputs: int) -> nn.Parameter:
    """U(-1, 1) / sqrt(inputs), which is where ``torch.nn.Linear`` starts its weights and biases.

    Raises ``BadValue`` where that would take more than a gigabyte.
    """
    _fits(shape)
    drawn: Tensor = torch.rand(shape, generator=_generator(site, rule, name), device="cpu")
    return nn.Parameter((2 * drawn - 1) / inputs**0.5)


def _fits(shape: tuple[int, ...]) -> None:
    if math.prod(shape) > MOST:
        size = " x ".join(map(str, shape))
        raise BadValue(f"a matrix of {size} numbers in a normalizer is more than a layer may have ({MOST:,}).")


def _generator(site: Site, rule: str, name: str) -> torch.Generator:
    # The training seed is no part of it: a model's own numbers must be the same whatever its normalizer draws.
    return stream(0, "rule", rule, site.layer, name)
