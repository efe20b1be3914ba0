"""How a model knows where a token stands."""

from abc import ABC, abstractmethod
from typing import cast

import torch
from torch import Tensor, nn

from icl_lab.names import Registry, require

registry = Registry("position code", __name__)


class Positions(nn.Module, ABC):
    """A position code acts on the residual stream, or on queries and keys, or not at all."""

    limit: int | None = None  # the most tokens it can tell apart

    @abstractmethod
    def place(self, x: Tensor) -> Tensor:
        """X (b t d) enters the first block -> (b t d)."""

    @abstractmethod
    def turn(self, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        """q, k (b h t d) of each layer -> the same."""


@registry.add("learned")
class Learned(Positions):
    """A learned vector for each position, added to the token.

    Formula: x_t + p_t, p of ``rows`` rows
    Paper: Radford et al. 2019 (GPT-2)

    Rows beyond the training length keep their starting values: a test there measures position noise as well.
    """

    def __init__(self, d: int, head_dim: int, *, rows: int = 512) -> None:
        super().__init__()
        require(rows >= 1, "rows must be >= 1", rows)
        self.limit = rows
        self.table = nn.Parameter(torch.zeros(rows, d))

    def place(self, x: Tensor) -> Tensor:
        return x + self.table[: x.shape[1]]

    def turn(self, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        return q, k


@registry.add("none")
class Nothing(Positions):
    """No position code: order is known from the causal mask alone.

    Formula: x_t
    Paper: Kazemnejad et al. 2023, arXiv 2305.19466
    """

    def __init__(self, d: int, head_dim: int) -> None:
        super().__init__()

    def place(self, x: Tensor) -> Tensor:
        return x

    def turn(self, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        return q, k


@registry.add("sinusoidal")
class Sinusoidal(Positions):
    """Fixed waves of geometric wavelengths, added to the token.

    Formula: x_t + (sin(t f_i), cos(t f_i)), f_i = theta^(-2i/d)
    Paper: Vaswani et al. 2017, arXiv 1706.03762, Section 3.5
    """

    def __init__(self, d: int, head_dim: int, *, theta: float = 10_000.0) -> None:
        super().__init__()
        require(theta > 1, "theta must be > 1", theta)
        require(d % 2 == 0, "the width must be even", d)
        self.register_buffer("frequencies", _frequencies(d, theta), persistent=False)

    def place(self, x: Tensor) -> Tensor:
        angle = _angles(x.shape[1], cast(Tensor, self.frequencies))
        return x + torch.cat((angle.sin(), angle.cos()), dim=1).to(x.dtype)

    def turn(self, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        return q, k


@registry.add("rotary")
class Rotary(Positions):
    """Queries and keys turned by an angle that grows with the position, so that scores depend on distances.

    Formula: (q_i, q_{i+d/2}) rotated by t f_i, f_i = theta^(-2i/d); keys likewise
    Paper: Su et al. 2021, arXiv 2104.09864
    """

    def __init__(self, d: int, head_dim: int, *, theta: float = 10_000.0) -> None:
        super().__init__()
        require(theta > 1, "theta must be > 1", theta)
        require(head_dim % 2 == 0, "the width of a head must be even", head_dim)
        self.register_buffer("frequencies", _frequencies(head_dim, theta), persistent=False)

    def place(self, x: Tensor) -> Tensor:
        return x

    def turn(self, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        angle = _angles(q.shape[2], cast(Tensor, self.frequencies))
        cos, sin = angle.cos().to(q.dtype), angle.sin().to(q.dtype)
        return _rotate(q, cos, sin), _rotate(k, cos, sin)


def build(choice: str, d: int, head_dim: int) -> Positions:
    """Builds a position code from text such as ``rotary:theta=500000``; raises ``LabError``."""
    return cast(Positions, registry.build(choice, d, head_dim))


def _frequencies(d: int, theta: float) -> Tensor:
    return theta ** (-torch.arange(0, d, 2, dtype=torch.float32) / d)


def _angles(t: int, frequencies: Tensor) -> Tensor:
    return torch.arange(t, dtype=torch.float32, device=frequencies.device).unsqueeze(1) * frequencies


def _rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    first, second = x.chunk(2, dim=-1)
    return torch.cat((first * cos - second * sin, first * sin + second * cos), dim=-1)
