"""Base classes of normalizers: queries, keys and a mask in, attention weights out.

Axis letters are those of ``icl_lab``: b prompts, h heads, t tokens, d head width. A row is one query; its n is the
number of keys it may see. Scores are z = q.k / sqrt(d).

A normalizer extends one of four base classes, and implements the one hook of that class:

* ``ScaledQuery``: softmax(c_n z). The factor goes into the query, so any fused kernel serves.
* ``WarpedScore``: softmax(g(z, n)), for every normalizer whose unnormalised weight exp(g) is positive.
* ``RowWise``: whatever needs a row of scores, or q and k themselves, where a row reads no query but its own.
* ``Scored``: whatever needs the whole matrix.

Long prompts are computed in blocks of rows (``by_blocks``), by all but the last.

A position code may add to the scores (ALiBi, T5): ``bias`` (h t_q t_k) becomes part of z before anything else is done
with it. A normalizer that reads more than queries and keys (``reads_tokens``) is given the tokens of the layer as ``x``
(b t w). One whose ``weights`` (or ``rows``) has no parameter ``bias`` works with all
position codes but these.

A mask ``visible`` is (t t), row by key, the same for all prompts; or it is (b 1 t_q t_k) where prompts are padded, or
where keys of earlier tokens are kept (a KV cache) and there are fewer queries than keys. A row's n is (t) or (b 1 t_q)
accordingly. Both give the same, so a normalizer counts dimensions from the last one and asks ``places`` where a query
stands.

A normalizer whose ``attend`` has a shorter road than all of these writes both methods itself, and a normalizer made of
others (heads that divide the work, a re-weighting) holds them and asks them.

What is done with the sum of values afterwards (a norm, a gate) is the normalizer's ``output``; most normalizers leave
it alone.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from inspect import signature
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from icl_lab.base.errors import BadValue

# What is true of a normalizer around another one, unless it says otherwise, where it is true of that one.
TRAITS = (
    *("sums_to_one", "non_negative", "prefix_consistent", "ordered", "one_sided", "finishes"),
    *("reads_tokens", "row_wise"),
)
# A row whose weights add up to less than this has none: its quotients would overflow single precision backward.
MASS = 1e-30
# What a parameter that ``maps`` names may read: tokens, all heads, a query, channels of a head, or what has no width.
READS = ("width", "heads", "query", "channels", "own")
# Rows of a block: their weights for 2,048 keys take 1 MiB in single precision, which stays in the cache of a core.
BLOCK = 128
LONG = 512  # keys from which on blocks are sooner than the whole matrix, forward and backward (docs/speed.md)
LARGE = 2**24  # weights of a block on an accelerator, where a block costs launches and there is no such cache


@dataclass(frozen=True)
class Site:
    """Layer of a normalizer: heads, their width, tokens of the longest training prompt, the layer's number from 0."""

    heads: int
    head_dim: int
    train_tokens: int
    layer: int = 0
    width: int = 0  # of the layer's tokens, where that is not heads * head_dim

    @property
    def token_width(self) -> int:
        """The numbers of a token as a layer reads it."""
        return self.width or self.heads * self.head_dim


class Normalizer(nn.Module, ABC):
    """Base class of normalizers, which turn queries and keys into attention weights.

    ``visible`` is the truth about the mask: a hidden key gets weight exactly 0 and counts for nothing, not even for a
    length that the normalizer scales by. A row that sees nothing gets only zeros. This holds as long as hidden keys,
    values and scores are finite (numbers up to 1e18 are safe): the mask is added, and infinity less infinity is NaN. To
    choose instead would cost two more passes over the matrix.

    The traits below are declarations that the contract tests check both ways, ``row_wise`` only where it is declared. A
    class sets them, or an instance where they depend on an option.
    """

    sums_to_one: bool = True
    non_negative: bool = True
    prefix_consistent: bool = True  # row i does not depend on how long the prompt goes on
    ordered: bool = False  # the weights depend on the position of a key, not only on the key
    one_sided: bool = False  # its order is one of earlier keys alone: it has no meaning under a mask of both sides
    learned: tuple[str, ...] = ()  # attributes that hold the parameters under the names of the formula
    shared: tuple[str, ...] = ()  # parameters that all layers hold in common
    # Parameters that are matrices or vectors of a layer, and no number of a head: what each reads, one of ``READS``.
    maps: Mapping[str, str] | tuple[()] = ()
    finishes: bool = False  # ``output`` changes the sum of values
    reads_tokens: Literal["no", "output", "weights"] = "no"  # which of its methods need ``x``
    row_wise: bool = False  # a row reads its own query and its visible keys alone, so that blocks of rows can be asked

    def __init_subclass__(cls) -> None:
        """Let no class inherit ``row_wise`` that computes other weights: it declares it itself, or is asked whole."""
        super().__init_subclass__()
        if "weights" in vars(cls):
            cls.row_wise = vars(cls).get("row_wise", False)

    def __init__(self, site: Site | None = None) -> None:
        """Build a normalizer without options; a class that has some defines its own."""
        super().__init__()

    @abstractmethod
    def weights(
        self, q: Tensor, k: Tensor, visible: Tensor, bias: Tensor | None = None, x: Tensor | None = None
    ) -> Tensor:
        """Attention weights (b h t_q t_k), by the formula: q (b h t_q d), k (b h t_k d), visible bool.

        ``visible`` is (t t), row by key, or (b 1 t_q t_k), where t_q may be less than t_k and b is 1 if all prompts
        share it. ``bias`` (h t_q t_k) is added to the scores. ``x`` (b t w) are the tokens, row t that of query t and
        of key t; only a normalizer that reads tokens looks at it, and raises ``BadValue`` without.
        """

    def attend(
        self, q: Tensor, k: Tensor, v: Tensor, visible: Tensor, bias: Tensor | None = None, x: Tensor | None = None
    ) -> Tensor:
        """``output(weights @ v)``, (b h t_q d), by the fastest exact code path; arguments as in ``weights``."""
        if rows := self.block_rows(q, k, visible):
            o = by_blocks(self, rows, q, k, v, visible, bias, x)
        else:
            o = self.weights(q, k, visible, **extra(self, bias, x)) @ v
        return self.output(o, **extra(self, None, x))

    def output(self, o: Tensor, x: Tensor | None = None) -> Tensor:
        """Final step after the sum of values ``weights @ v``: (b h t_q d) -> (b h t_q d)."""
        return o

    def block_rows(self, q: Tensor, k: Tensor, visible: Tensor) -> int:
        """Rows of a block for these queries, keys and mask; 0 where the whole matrix is to be computed at once."""
        # Compiled code is made for every length at once, and has its own way to save memory.
        if torch.compiler.is_compiling() or not self.fits_blocks(causal=is_causal(visible)):
            return 0
        b, h, t, _ = q.shape
        rows = BLOCK if q.device.type == "cpu" else max(BLOCK, LARGE // (b * h * t))
        return rows if k.shape[-2] == t >= LONG and rows < t else 0

    def fits_blocks(self, *, causal: bool) -> bool:
        """True if blocks of rows have the weights of the whole; ``places`` of a block are known by a causal mask."""
        return self.row_wise and (causal or not self.ordered)

    @property
    def takes_bias(self) -> bool:
        """True if position codes can add to its scores."""
        return "bias" in signature(self.weights).parameters

    @property
    def title(self) -> str:
        """Registered name in quotes, for a line to a user."""
        return f"'{getattr(self, 'registered', type(self).__name__)}'"

    def tokens(self, x: Tensor | None, k: Tensor | None = None) -> Tensor:
        """The tokens (b t w) of this pass; raises ``BadValue`` where there are none, or others than the keys ``k``."""
        if x is None:
            raise BadValue(
                f"{self.title} reads the tokens of a model, not only queries and keys: it cannot be asked without them."
            )
        if k is not None and x.shape[-2] != k.shape[-2]:
            raise BadValue(f"{self.title} reads the tokens of all keys, and a KV cache keeps only keys and values.")
        return x


class ScaledQuery(Normalizer):
    """softmax(c_n z): a factor for each row, which the query absorbs."""

    row_wise = True

    @abstractmethod
    def scale(self, n: Tensor) -> Tensor:
        """Visible keys n of each row, (t) or (b 1 t_q) -> c, (t), (h t), (b 1 t_q) or (b h t_q)."""

    def weights(
        self, q: Tensor, k: Tensor, visible: Tensor, bias: Tensor | None = None, x: Tensor | None = None
    ) -> Tensor:
        c = self._factor(upcast(q), visible)
        return softmax(scores(upcast(q) * c, upcast(k), times(bias, c)), visible).to(q.dtype)

    def attend(
        self, q: Tensor, k: Tensor, v: Tensor, visible: Tensor, bias: Tensor | None = None, x: Tensor | None = None
    ) -> Tensor:
        c = self._factor(upcast(q), visible)
        q = (upcast(q) * c).to(q.dtype)
        if bias is None and (is_causal(visible) or is_full(visible)):
            return F.scaled_dot_product_attention(q, k, v, is_causal=is_causal(visible))
        # Not every fused kernel gives zeros to a row that sees nothing, so it sees all and its output is taken away.
        seen = visible.any(-1, keepdim=True)
        mask = visible | ~seen
        if bias is not None:
            mask = (bias * c + additive_mask(mask, c.dtype)).to(q.dtype)
        return F.scaled_dot_product_attention(q, k, v, attn_mask=mask) * seen

    def _factor(self, q: Tensor, visible: Tensor) -> Tensor:
        return self.scale(count(visible).to(q.dtype)).to(q.dtype).unsqueeze(-1)


class WarpedScore(Normalizer):
    """softmax(g(z, n)): an element-wise warp of the score, then the mask, then softmax."""

    row_wise = True

    @abstractmethod
    def warp(self, z: Tensor, n: Tensor) -> Tensor:
        """Scores z (b h t_q t_k) and the rows' visible keys n, (t 1) or (b 1 t_q 1) -> g(z, n), of the shape of z."""

    def weights(
        self, q: Tensor, k: Tensor, visible: Tensor, bias: Tensor | None = None, x: Tensor | None = None
    ) -> Tensor:
        z = scores(upcast(q), upcast(k), bias)
        # Warp first: an infinity inside a warp poisons the gradients of its parameters.
        return softmax(self.warp(z, count(visible).to(z.dtype).unsqueeze(-1)), visible).to(q.dtype)


class Scored(Normalizer):
    """Anything that needs the whole matrix."""

    @abstractmethod
    def rows(self, q: Tensor, k: Tensor, visible: Tensor, bias: Tensor | None = None) -> Tensor:
        """Weights, with q and k in single precision or better."""

    @property
    def takes_bias(self) -> bool:
        return "bias" in signature(self.rows).parameters

    def weights(
        self, q: Tensor, k: Tensor, visible: Tensor, bias: Tensor | None = None, x: Tensor | None = None
    ) -> Tensor:
        added = () if bias is None else (bias,)
        return self.rows(upcast(q), upcast(k), visible, *added).to(q.dtype)


class RowWise(Scored):
    """Anything that needs a whole row of scores, or q and k themselves, but no query other than the row's own."""

    row_wise = True


class Wrapper(Normalizer):
    """A normalizer around another one, ``rule``, whose traits it has until it sets others."""

    def __init__(self, rule: Normalizer) -> None:
        super().__init__()
        self.rule = rule
        for trait in TRAITS:
            setattr(self, trait, getattr(rule, trait))

    @property
    def takes_bias(self) -> bool:
        return self.rule.takes_bias


def by_blocks(
    rule: Normalizer, rows: int, q: Tensor, k: Tensor, v: Tensor, visible: Tensor, bias: Tensor | None, x: Tensor | None
) -> Tensor:
    """``weights @ v`` (b h t d) of a row-wise normalizer, ``rows`` queries at a time; arguments as in ``weights``.

    Under the causal mask a block reads the keys up to its last row. No more than ``rows`` times t weights a head are
    held at once, unless a gradient needs all.
    """
    sums = []
    for start in range(0, q.shape[-2], rows):
        queries = slice(start, start + rows)
        keys = slice(queries.stop) if is_causal(visible) else slice(None)
        seen = visible[..., queries, keys]
        given = extra(rule, None if bias is None else bias[..., queries, keys], None if x is None else x[:, keys])
        # A mask of two dimensions would say that queries and keys are the same tokens.
        w = rule.weights(q[:, :, queries], k[:, :, keys], seen if seen.ndim == 4 else seen[None, None], **given)
        sums.append(w @ v[:, :, keys])
    return torch.cat(sums, -2)


def extra(rule: Normalizer, bias: Tensor | None, x: Tensor | None) -> dict[str, Tensor]:
    """Arguments beyond q, k, v and the mask that a normalizer is to be given; one that declares none gets none."""
    found = {} if bias is None else {"bias": bias}
    return found if x is None or rule.reads_tokens == "no" else found | {"x": x}


def scores(q: Tensor, k: Tensor, bias: Tensor | None = None) -> Tensor:
    """Scores z = q.k / sqrt(d) + bias: q (b h t_q d), k (b h t_k d), bias (h t_q t_k) or none -> (b h t_q t_k)."""
    z = (q / math.sqrt(q.shape[-1])) @ k.transpose(-1, -2)
    return z if bias is None else z + bias


def times(bias: Tensor | None, factor: Tensor) -> Tensor | None:
    """Bias of scores that a query has multiplied by ``factor``; none stays none."""
    return None if bias is None else bias * factor


def softmax(z: Tensor, visible: Tensor) -> Tensor:
    """Softmax over the visible keys; hidden keys get exactly 0, and so does a row that sees nothing."""
    if is_full(visible):
        return z.softmax(-1)
    if is_causal(visible):
        return (z + additive_mask(visible, z.dtype)).softmax(-1)
    # A row of nothing but minus infinities is NaN, forward and backward: unveil it, and take its weights away after.
    return (z + additive_mask(unveiled(visible), z.dtype)).softmax(-1) * visible


def below_peak(z: Tensor, visible: Tensor) -> Tensor:
    """Scores less the largest that their row sees: where differences alone count, this keeps their digits at any size.

    That shift has no slope.
    """
    return z - (z.detach() + additive_mask(unveiled(visible), z.dtype)).amax(-1, keepdim=True)


def unveiled(visible: Tensor) -> Tensor:
    """The mask in which a row that sees nothing sees everything: it is computed like the others, and hidden after."""
    return visible | ~visible.any(-1, keepdim=True)


def additive_mask(visible: Tensor, dtype: torch.dtype) -> Tensor:
    """0 where a key is visible and minus infinity where it is hidden, as large as the mask: to add to finished scores.

    Adding is one pass over the matrix and none backward; filling is two slow ones.
    """
    # Compiled code makes it on the way, in the pass that reads it.
    if is_causal(visible) and not torch.compiler.is_compiling() and not _transformed():
        return _causal_additive_mask(visible.shape[-1], visible.device, dtype)
    return torch.zeros(visible.shape, dtype=dtype, device=visible.device).masked_fill(~visible, -math.inf)


def l1(x: Tensor, *, signed: bool = True) -> Tensor:
    """Return ``x / sum |x|`` over the keys; a row without mass stays 0, and sends no gradient."""
    # Where no entry is negative, the absolute value is a pass over the matrix for nothing, and another one backward.
    return ratio(x, (x.abs() if signed else x).sum(-1, keepdim=True))


def ratio(x: Tensor, total: Tensor, least: float = MASS) -> Tensor:
    """Return x / total, and 0 where the total is none.

    Dividing by infinity there makes both slopes 0, where 0/0 makes them NaN.
    """
    return x / total.masked_fill(total < least, math.inf)


def uniform_tolerance(dtype: torch.dtype) -> float:
    """Rounding tolerance of n w_j = 1: a row nearer to uniform than that is uniform."""
    return 100 * torch.finfo(dtype).eps


def count(visible: Tensor) -> Tensor:
    """n: the number of keys each row may see, (t) or (b 1 t_q), at least 1 so that its logarithm exists."""
    if is_causal(visible):
        # Adding up t^2 truth values would make t^2 whole numbers first: the only thing of that size on a fused road.
        return torch.arange(1, visible.shape[-1] + 1, device=visible.device)
    if is_full(visible):
        return torch.full((visible.shape[-1],), visible.shape[-1], device=visible.device)
    return visible.sum(-1).clamp(min=1)


def uniform(visible: Tensor, dtype: torch.dtype) -> Tensor:
    """1 / n on the visible keys of each row, as large as the mask."""
    return visible.to(dtype) / count(visible).unsqueeze(-1)


def places(visible: Tensor) -> Tensor:
    """Place of each query among the keys, from 0: (t), or (b 1 t_q) where there are fewer queries.

    As many queries as keys are the same tokens. Otherwise keys of earlier tokens come from a cache: a query then stands
    at the last key that it sees (at 0 if it sees none), whatever the cache keeps free behind it.
    """
    keys = torch.arange(visible.shape[-1], device=visible.device)
    return keys if visible.shape[-2] == visible.shape[-1] else (visible * keys).amax(-1)


def mean(v: Tensor, visible: Tensor) -> Tensor:
    """The mean of the values each row sees: under a causal mask a running one, which needs no matrix."""
    if is_causal(visible):
        return (upcast(v).cumsum(-2) / count(visible).unsqueeze(-1)).to(v.dtype)
    return (uniform(visible, upcast(v).dtype) @ upcast(v)).to(v.dtype)


def upcast(x: Tensor) -> Tensor:
    """Half precision to single; the rest as it is. Powers, logarithms and sums over keys need the digits."""
    return x.float() if x.dtype in (torch.float16, torch.bfloat16) else x


def linear_map(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Linear map in the precision of ``x``, whatever precision the parameters are kept in."""
    return F.linear(x, weight.to(x.dtype), None if bias is None else bias.to(x.dtype))


def causal(t: int, device: torch.device | str = "cpu") -> Tensor:
    """The mask of plain causal attention, (t t) bool: row i sees keys up to and including i.

    One tensor for each size, with a mark by which ``is_causal`` knows it, so that nobody compares t^2 entries a layer.
    """
    return _marked("causal", t, device)


def full(t: int, device: torch.device | str = "cpu") -> Tensor:
    """The mask of bidirectional attention, (t t) bool: every row sees every key. ``is_full`` knows it by a mark."""
    return _marked("full", t, device)


def _marked(mark: str, t: int, device: torch.device | str) -> Tensor:
    # When exported, t may be a symbol: no cache may hold traced values, nor those that a transform has wrapped.
    if torch.compiler.is_exporting() or _transformed():
        return _made(mark, t, torch.device(device))
    # "cuda", device("cuda") and device("cuda", 0) are one place and three keys: ask a tensor where it came to lie.
    return _kept(mark, t, torch.empty(0, device=device).device)


def _transformed() -> bool:
    """True inside ``torch.func.grad`` and the like, where a tensor that is made is one of that pass alone."""
    return torch._C._are_functorch_transforms_active()


@lru_cache(maxsize=64)
def _kept(mark: str, t: int, device: torch.device) -> Tensor:
    # A tensor first made in inference mode could never again take part in training.
    with torch.inference_mode(False):
        return _made(mark, t, device)


def _made(mark: str, t: int, device: torch.device) -> Tensor:
    mask = torch.ones(t, t, dtype=torch.bool, device=device)
    mask = mask.tril() if mark == "causal" else mask
    # A copy of the mask, or a part of it, does not carry the mark on. A compiler can read it, unlike an identity.
    setattr(mask, mark, True)
    return mask


@lru_cache(maxsize=32)
def _causal_additive_mask(t: int, device: torch.device, dtype: torch.dtype) -> Tensor:
    with torch.inference_mode(False):
        return torch.zeros(t, t, dtype=dtype, device=device).masked_fill(~_kept("causal", t, device), -math.inf)


def is_causal(visible: Tensor) -> bool:
    """True if ``visible`` is the very mask that ``causal`` hands out (an equal copy takes the general road)."""
    return bool(getattr(visible, "causal", False))


def is_full(visible: Tensor) -> bool:
    """True if ``visible`` is the very mask that ``full`` hands out (an equal copy takes the general road)."""
    return bool(getattr(visible, "full", False))


def softplus_inverse(y: float) -> float:
    """Return x with log(1 + e^x) = y, for y >= 0: where a positive parameter starts."""
    if y > 30:  # e^-y is lost in rounding against 1, and no float holds e^y from y = 710 on
        return y
    return math.log(math.expm1(y)) if y > 0 else -math.inf


def clamped(p: Tensor, low: float, high: float | None = None) -> Tensor:
    """Clamp a learned number, and let it come back: its gradient is 0 beyond a bound only where it leads further out.

    As where the parameter itself is clamped before each use; in a clamp of the graph it would stay out for good.
    """
    return _Clamped.apply(p, low, math.inf if high is None else high)  # type: ignore[no-untyped-call, no-any-return]


class _Clamped(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(p: Tensor, low: float, high: float) -> Tensor:
        return p.clamp(low, high)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, float, float], output: Tensor) -> None:
        ctx.save_for_backward(inputs[0])
        ctx.bounds = inputs[1:]

    @staticmethod
    def backward(ctx: Any, slope: Tensor) -> tuple[Tensor, None, None]:
        (p,), (low, high) = ctx.saved_tensors, ctx.bounds
        outward = ((p < low) & (slope > 0)) | ((p > high) & (slope < 0))  # a step of descent is against the slope
        return slope.masked_fill(outward, 0), None, None

    @staticmethod
    def jvp(ctx: Any, along: Tensor, *_: None) -> Tensor:
        return along.clone()
