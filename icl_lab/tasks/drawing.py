"""Draws and shapes that several tasks share."""

from functools import lru_cache

import torch
from torch import Tensor

from icl_lab.base.errors import BadValue

NORMAL_RANGE = 2.576  # 99 of 100 standard normal numbers are smaller in size


@lru_cache(maxsize=8)
def published_inputs(prompts: int, length: int) -> Tensor:
    """The standard normal inputs of the paper's evaluation script, (b L).

    Number j of prompt i is the first draw of a generator seeded with 10 (10 i + j), so the prompts are overlapping
    windows, ten apart, of one stream: 64 prompts of 40 hold 670 different numbers. Kept, and not to be written to.
    """
    stream = [torch.randn(1, generator=torch.Generator().manual_seed(10 * m)) for m in range(10 * prompts + length)]
    return torch.cat(stream).unfold(0, length, 10)[:prompts].contiguous()


def whole(sigma: float) -> int:
    """Return a sigma as the seed that the published script makes of it; raises ``BadValue`` if it is not whole."""
    if sigma != int(sigma):
        raise BadValue(f"the published evaluation set exists for whole sigmas, got {sigma:g}.")
    return int(sigma)


def by_class(values: Tensor, classes: Tensor) -> Tensor:
    """Values, classes (b) -> (b 2): the value in the column of its class (true, false), NaN in the other."""
    return torch.stack([values.where(classes, torch.nan), values.where(~classes, torch.nan)], dim=1)


def interleave(x: Tensor, y: Tensor) -> Tensor:
    """x, y (b L) -> x_1 y_1 x_2 y_2 ..., (b 2L)."""
    return torch.stack((x, y), dim=2).flatten(1)
