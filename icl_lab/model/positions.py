"""Position codes: added to tokens, turning queries and keys, or added to scores."""

import math
from abc import ABC, abstractmethod
from typing import Literal, cast

import torch
from torch import Tensor, nn

from icl_lab.base.errors import BadValue
from icl_lab.base.registry import Registry, require
from icl_lab.base.rng import stream
from icl_lab.normalizers.base import Normalizer, clamped

registry = Registry("position code", __name__)
PLACES = 10_000_000  # more than the longest prompts have tokens


class Positions(nn.Module, ABC):
    """A position code acts on the residual stream, on queries and keys, on scores, or not at all.

    With ``random=r`` the t tokens of a prompt have t positions drawn from the first r, in order: afresh at each step of
    training, and once for each length when tested. So a model meets far places while its prompts are short (Ruoss et
    al. 2023, arXiv 2305.16843).
    """

    limit: int | None = None  # the most tokens it can tell apart
    random: int = 0
    both_sides: bool = False  # whether a token sees those after it too (``model.mask=full``)
    prefix_consistent: bool = True  # whether a token's code is the same however long the prompt goes on

    def where(self, t: int, rng: torch.Generator | None, device: torch.device) -> Tensor:
        """Return the positions (t) of the tokens of a prompt, ascending; those of a test without ``rng``."""
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

    def bias(self, where: Tensor) -> Tensor | None:
        """Numbers added to the scores of every layer, (h t t), row by key; None where there are none."""
        return None

    @property
    def adds_to_scores(self) -> bool:
        """True if the code has a bias of the scores."""
        return type(self).bias is not Positions.bias

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
        return x + self.table[where]

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


class Relative(Positions):
    """A position code that adds to scores a number that depends on the distance of query and key alone."""

    def place(self, x: Tensor, where: Tensor) -> Tensor:
        return x

    def turn(self, q: Tensor, k: Tensor, where: Tensor) -> tuple[Tensor, Tensor]:
        return q, k

    @abstractmethod
    def bias(self, where: Tensor) -> Tensor:
        """Numbers added to the scores of every layer, (h t t), row by key; a causal mask hides the later ones."""


@registry.add("alibi")
class ALiBi(Relative):
    """Scores that fall linearly with the distance of the key, with a different slope in each head.

    Formula: z_ij - m_h (i - j), m_h = 2^(-8 h / H) for head h = 1 .. H; where H is not a power of two, the slopes of
        the power of two below and then every second one of that above
    Paper: Press et al. 2022, arXiv 2108.12409
    """

    def __init__(self, d: int, head_dim: int, train_tokens: int) -> None:
        super().__init__()
        self.register_buffer("slopes", torch.tensor(alibi_slopes(d // head_dim), device="cpu"), persistent=False)

    def bias(self, where: Tensor) -> Tensor:
        slopes = cast(Tensor, self.slopes).view(-1, 1, 1)
        return -slopes * _distances(where).abs().to(slopes.dtype)


@registry.add("t5")
class T5(Relative):
    """A learned number for each head and bucket of distances, added to the scores; the same in all layers.

    Formula: z_ij + b_h(bucket(i - j)); distances below buckets / 2 have a bucket each, the others share theirs on a
        logarithmic scale up to ``farthest``, and all from there on the last; with ``model.mask=full`` later keys
        have the second half of the buckets
    Paper: Raffel et al. 2020, arXiv 1910.10683

    The numbers start N(0, 0.02), as a learned table of places does.
    """

    def __init__(self, d: int, head_dim: int, train_tokens: int, *, buckets: int = 32, farthest: int = 128) -> None:
        super().__init__()
        require(2 <= buckets <= PLACES, f"buckets must be >= 2 and at most {PLACES:,}", buckets)
        require(buckets // 2 < farthest <= PLACES, f"farthest must be above buckets / 2, at most {PLACES:,}", farthest)
        self.buckets, self.farthest = buckets, farthest
        self.table = nn.Parameter(torch.zeros(buckets, d // head_dim))

    def bias(self, where: Tensor) -> Tensor:
        return self.table[self.bucket(_distances(where))].permute(2, 0, 1)

    def bucket(self, distance: Tensor) -> Tensor:
        """Bucket of each distance, whole numbers of the same shape; those of later keys are below 0."""
        buckets = self.buckets // 2 if self.both_sides else self.buckets
        exact, size = max(1, buckets // 2), distance.abs()
        octaves = (size.clamp(min=1).double() / exact).log() / math.log(self.farthest / exact)
        far = exact + (octaves * (buckets - exact)).long()
        found = torch.where(size < exact, size, far.clamp(max=buckets - 1))
        return torch.where(distance < 0, found + buckets, found) if self.both_sides else found


@registry.add("kerple")
class Kerple(Relative):
    """Scores that fall with the logarithm, or a power, of the distance, by two numbers that each head learns.

    Formula: z_ij - r log(1 + s (i - j)), or z_ij - s (i - j)^r with ``variant=power``; r, s >= 0.01, r <= 2 in a power
    Paper: Chi et al. 2022, arXiv 2205.09921

    The published code draws r from U(0, 2) and s from U(0, 1); here they start at the middles of as many equal parts
    of these as there are heads. All layers share them.
    """

    LEAST = 0.01

    def __init__(self, d: int, head_dim: int, train_tokens: int, *, variant: Literal["log", "power"] = "log") -> None:
        super().__init__()
        heads = d // head_dim
        middles = ((torch.arange(heads, dtype=torch.float64, device="cpu") + 0.5) / heads).float()
        self.variant = variant
        self.r, self.s = nn.Parameter(2 * middles), nn.Parameter(middles.clone())

    def bias(self, where: Tensor) -> Tensor:
        power = self.variant == "power"
        r, s = clamped(self.r, self.LEAST, 2 if power else None), clamped(self.s, self.LEAST)
        r, s = r.view(-1, 1, 1), s.view(-1, 1, 1)
        distance = _distances(where).abs().to(r.dtype)
        if not power:
            return -r * (s * distance).log1p()
        # A power of 0 has no slope by its exponent: the key itself gets none.
        away = distance.clamp(min=1) ** r * (distance > 0)
        return -s * away


@registry.add("fire")
class Fire(Relative):
    """A learned function of the logarithm of the distance, as a share of that of the query's place.

    Formula: z_ij + f_h(psi(i - j) / psi(max(L, i))), psi(x) = log(1 + |c| x), f an MLP of one hidden layer with ReLU;
        i the query's place from 0; c, L and f are learned
    Paper: Li et al. 2023, arXiv 2310.04418

    c starts at 0.1 and L at ``length``, as in the paper, f as all matrices of the model. All layers share them.
    """

    EPSILON = 1e-6

    def __init__(self, d: int, head_dim: int, train_tokens: int, *, hidden: int = 32, length: int = 512) -> None:
        super().__init__()
        require(1 <= hidden <= 65_536, "hidden must be >= 1 and at most 65,536", hidden)
        require(1 <= length <= PLACES, f"length must be >= 1 and at most {PLACES:,}", length)
        self.length = float(length)
        self.c, self.stretch = nn.Parameter(torch.full((1,), 0.1)), nn.Parameter(torch.ones(1))
        self.widen, self.read = nn.Linear(1, hidden), nn.Linear(hidden, d // head_dim)

    def bias(self, where: Tensor) -> Tensor:
        distance = _distances(where).abs().to(self.c.dtype)
        # Under a mask of both sides a distance is a share of the longest of its prompt, not of the query's place.
        farthest = (where.max().expand_as(where) if self.both_sides else where).to(self.c.dtype)
        reach = torch.maximum(farthest, (self.stretch * self.length).abs()).unsqueeze(1)
        share = (self.c.abs() * distance).log1p() / ((self.c.abs() * reach).log1p() + self.EPSILON)
        return cast(Tensor, self.read(self.widen(share.unsqueeze(-1)).relu())).permute(2, 0, 1)


def alibi_slopes(heads: int) -> list[float]:
    """Slopes m of ALiBi, one per head.

    >>> alibi_slopes(4), alibi_slopes(3)
    ([0.25, 0.0625, 0.015625, 0.00390625], [0.0625, 0.00390625, 0.25])
    """
    below = 2 ** int(math.log2(heads))
    regular = [2 ** (-8 * (h + 1) / below) for h in range(below)]
    return regular if below == heads else regular + alibi_slopes(2 * below)[::2][: heads - below]


def build(choice: str, d: int, head_dim: int, train_tokens: int) -> Positions:
    """Build a position code from text such as ``rotary:theta=500000``; raises ``LabError``."""
    return cast(Positions, registry.build(choice, d, head_dim, train_tokens))


def check_scores(code: Positions, normalizer: Normalizer) -> None:
    """Raise ``BadValue`` where a position code adds to scores and the normalizer has none that it could add to."""
    if code.adds_to_scores and not normalizer.takes_bias:
        name = getattr(code, "registered", type(code).__name__)
        raise BadValue(
            f"{normalizer.title} has no scores that a position code could add to, as '{name}' does: take another code "
            "(learned, none, rotary, sinusoidal)."
        )


def exchange(old: str, new: str, d: int, head_dim: int, train_tokens: int) -> Positions:
    """Build ``new`` to replace ``old`` in a trained model.

    Raises ``BadValue`` where one of them has learned vectors: they would be missing, or lost.
    """
    for name in (old, new):
        if any(True for _ in build(name, d, head_dim, train_tokens).parameters()):
            raise BadValue(f"'{name}' has learned vectors, so it cannot be exchanged after training ({old} for {new}).")
    return build(new, d, head_dim, train_tokens)


def _distances(where: Tensor) -> Tensor:
    return where.unsqueeze(1) - where.unsqueeze(0)


def _frequencies(d: int, theta: float) -> Tensor:
    # On the CPU even where a code is built as a shape alone: these few numbers load much of torch on "meta".
    return theta ** (-torch.arange(0, d, 2, dtype=torch.float32, device="cpu") / d)


def _angles(where: Tensor, frequencies: Tensor) -> Tensor:
    return where.float().unsqueeze(1) * frequencies


def _rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    first, second = x.chunk(2, dim=-1)
    return torch.cat((first * cos - second * sin, first * sin + second * cos), dim=-1)
