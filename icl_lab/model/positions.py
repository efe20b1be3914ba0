"""How a model knows where a token stands."""

from abc import ABC, abstractmethod
from typing import cast

import torch
from torch import Tensor, nn

from icl_lab.errors import BadValue
from icl_lab.registry import Registry, require
from icl_lab.rng import stream

registry = Registry("position code", __name__)
PLACES = 10_000_000  # more than the longest prompts have tokens


class Positions(nn.Module, ABC):
    """A position code acts on the residual stream, or on queries and keys, or not at all.

    With ``random=r`` the t tokens of a prompt stand at t places drawn from the first r, in order: afresh at each step
    of training, and once for each length when tested. So a model meets far places while its prompts are short
    (Ruoss et al. 2023, arXiv 2305.16843).
    """

    limit: int | None = None  # the most tokens it can tell apart
    random: int = 0
    prefix_consistent: bool = True  # whether a token's code is the same however long the prompt goes on

    def where(self, t: int, rng: torch.Generator | None, device: torch.device) -> Tensor:
        """Returns the places (t) of the tokens of a prompt, ascending; those of a test where there is no ``rng``."""
        if not self.random:
            return torch.arange(t, device=device)
        drawn = torch.randperm(self.random, generator=rng or stream(0, "places", t))[:t]
        return drawn.sort().values.to(device)

    @abstractmethod
    def place(self, x: Tensor, where: Tensor) -> Tensor:
        """X (b t d) enters the first block, its tokens at the places ``where`` (t) -> (b t d)."""

    @abstractmethod
    def turn(self, q: Tensor, k: Tensor, where: Tensor) -> tuple[Tensor, Tensor]:
        """q, k (b h t d) of each layer -> the same."""

    def _scatter(self, random: int) -> None:
        require(0 <= random <= PLACES, f"random must be >= 0 (0: places in a row) and at most {PLACES:,}", random)
        self.random = random
        if random:
            self.limit = random
            self.prefix_consistent = False


@registry.add("learned")
class Learned(Positions):
    """A learned vector for each position, added to the token.

    Formula: x_t + p_t, p of ``rows`` rows
    Paper: Radford et al. 2019 (GPT-2)

    Rows beyond the training length keep their starting values: a test there measures position noise as well. With
    ``random=r`` the places are drawn from the first r rows.
    """

    def __init__(self, d: int, head_dim: int, train_tokens: int, *, rows: int = 512, random: int = 0) -> None:
        super().__init__()
        require(1 <= rows <= PLACES, f"rows must be >= 1 and at most {PLACES:,}", rows)
        require(random <= rows, f"random must be at most the {rows} rows", random)
        self._scatter(random)
        self.limit = random or rows
        self.table = nn.Parameter(torch.zeros(rows, d))

    def place(self, x: Tensor, where: Tensor) -> Tensor:
        return x + self.table[where] if self.random else x + self.table[: where.shape[0]]

    def turn(self, q: Tensor, k: Tensor, where: Tensor) -> tuple[Tensor, Tensor]:
        return q, k


@registry.add("none")
class Nothing(Positions):
    """No position code: order is known from the causal mask alone.

    Formula: x_t
    Paper: Kazemnejad et al. 2023, arXiv 2305.19466
    """

    def __init__(self, d: int, head_dim: int, train_tokens: int) -> None:
        super().__init__()

    def place(self, x: Tensor, where: Tensor) -> Tensor:
        return x

    def turn(self, q: Tensor, k: Tensor, where: Tensor) -> tuple[Tensor, Tensor]:
        return q, k


@registry.add("sinusoidal")
class Sinusoidal(Positions):
    """Fixed waves of geometric wavelengths, added to the token.

    Formula: x_t + (sin(t f_i), cos(t f_i)), f_i = theta^(-2i/d)
    Paper: Vaswani et al. 2017, arXiv 1706.03762, Section 3.5
    """

    def __init__(self, d: int, head_dim: int, train_tokens: int, *, theta: float = 10_000.0, random: int = 0) -> None:
        super().__init__()
        require(theta > 1, "theta must be > 1", theta)
        require(d % 2 == 0, "the width must be even", d)
        self._scatter(random)
        self.register_buffer("frequencies", _frequencies(d, theta), persistent=False)

    def place(self, x: Tensor, where: Tensor) -> Tensor:
        angle = _angles(where, cast(Tensor, self.frequencies))
        return x + torch.cat((angle.sin(), angle.cos()), dim=1).to(x.dtype)

    def turn(self, q: Tensor, k: Tensor, where: Tensor) -> tuple[Tensor, Tensor]:
        return q, k


@registry.add("rotary")
class Rotary(Positions):
    """Queries and keys turned by an angle that grows with the position, so that scores depend on distances.

    Formula: (q_i, q_{i+d/2}) rotated by t f_i, f_i = theta^(-2i/d); keys likewise
    Paper: Su et al. 2021, arXiv 2104.09864

    With ``ntk=yes`` a prompt of t tokens, more than in training, is read with theta (t / train)^(d/(d-2)) in the place
    of theta: the slowest wave is stretched by t / train, the fastest stays ("NTK-aware scaling", as arXiv 2309.00071,
    Section 3.1, records it). Training is the same with it.
    """

    def __init__(
        self,
        d: int,
        head_dim: int,
        train_tokens: int,
        *,
        theta: float = 10_000.0,
        ntk: bool = False,
        random: int = 0,
    ) -> None:
        super().__init__()
        require(theta > 1, "theta must be > 1", theta)
        require(head_dim % 2 == 0, "the width of a head must be even", head_dim)
        require(not ntk or head_dim > 2, "ntk=yes asks for heads wider than 2", head_dim)
        self.theta, self.ntk, self.head_dim, self.train_tokens = theta, ntk, head_dim, train_tokens
        self.prefix_consistent = not ntk
        self._scatter(random)
        self.register_buffer("frequencies", _frequencies(head_dim, theta), persistent=False)

    def place(self, x: Tensor, where: Tensor) -> Tensor:
        return x

    def turn(self, q: Tensor, k: Tensor, where: Tensor) -> tuple[Tensor, Tensor]:
        frequencies, t = cast(Tensor, self.frequencies), where.shape[0]
        # An exported graph serves every length: it asks which of both is longer when it runs.
        if self.ntk and (torch.compiler.is_exporting() or t > self.train_tokens):
            longest = torch.sym_max(t, self.train_tokens)  # type: ignore[no-untyped-call]
            stretch = (longest / self.train_tokens) ** (self.head_dim / (self.head_dim - 2))
            frequencies = _frequencies(self.head_dim, self.theta * stretch).to(where.device)
        angle = _angles(where, frequencies)
        cos, sin = angle.cos().to(q.dtype), angle.sin().to(q.dtype)
        return _rotate(q, cos, sin), _rotate(k, cos, sin)


def build(choice: str, d: int, head_dim: int, train_tokens: int) -> Positions:
    """Builds a position code from text such as ``rotary:theta=500000``; raises ``LabError``."""
    return cast(Positions, registry.build(choice, d, head_dim, train_tokens))


def exchange(old: str, new: str, d: int, head_dim: int, train_tokens: int) -> Positions:
    """Builds ``new`` to stand in the place of ``old`` in a trained model.

    Raises ``BadValue`` where one of them has learned vectors: they would be missing, or lost.
    """
    for name in (old, new):
        if any(True for _ in build(name, d, head_dim, train_tokens).parameters()):
            raise BadValue(f"'{name}' has learned vectors, so it cannot be exchanged after training ({old} for {new}).")
    return build(new, d, head_dim, train_tokens)


def _frequencies(d: int, theta: float) -> Tensor:
    # On the CPU even where a code is built as a shape alone: these few numbers load much of torch on "meta".
    return theta ** (-torch.arange(0, d, 2, dtype=torch.float32, device="cpu") / d)


def _angles(where: Tensor, frequencies: Tensor) -> Tensor:
    return where.float().unsqueeze(1) * frequencies


def _rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    first, second = x.chunk(2, dim=-1)
    return torch.cat((first * cos - second * sin, first * sin + second * cos), dim=-1)
