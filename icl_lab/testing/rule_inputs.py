"""Inputs of normalizer checks: moved parameters, queries, keys, values, masks, hard scores."""

import math
from collections.abc import Iterator

import torch
from torch import Tensor

from icl_lab import normalizers
from icl_lab.normalizers.base import Normalizer, Wrapper, causal, extra, full

HEADS, WIDTH, TRAINED = 4, 4, 5


def build(choice: str) -> Normalizer:
    """Build a normalizer of ``HEADS`` heads in double precision, so that a difference is one of the formula."""
    return single(choice).double()


def single(choice: str) -> Normalizer:
    """Build the same normalizer in single precision, as it is trained."""
    return asked(normalizers.build(choice, heads=HEADS, head_dim=WIDTH, train_tokens=TRAINED))


def asked(rule: Normalizer) -> Normalizer:
    """A normalizer as the checks ask it, with queries and keys alone."""
    return rule if rule.reads_tokens == "no" else FromQueries(rule)


class FromQueries(Wrapper):
    """A normalizer that reads the tokens, where a token is its own queries (of all heads, side by side).

    What a hidden token must not change is then what its query must not: a normalizer that lets it is found out by the
    query.
    """

    def __init__(self, rule: Normalizer) -> None:
        super().__init__(rule)
        self.reads_tokens = "no"

    def weights(
        self, q: Tensor, k: Tensor, visible: Tensor, bias: Tensor | None = None, x: Tensor | None = None
    ) -> Tensor:
        """Weights of the normalizer inside."""
        return self.rule.weights(q, k, visible, **extra(self.rule, bias, _tokens(q)))

    def attend(
        self, q: Tensor, k: Tensor, v: Tensor, visible: Tensor, bias: Tensor | None = None, x: Tensor | None = None
    ) -> Tensor:
        """Output of the normalizer inside."""
        return self.rule.attend(q, k, v, visible, **extra(self.rule, bias, _tokens(q)))

    def output_at(self, q: Tensor, o: Tensor) -> Tensor:
        """``output`` of the tokens that these queries (b h t d) are."""
        return self.rule.output(o, **extra(self.rule, None, _tokens(q)))


def with_tokens(rule: Normalizer, q: Tensor) -> tuple[Normalizer, Tensor | None]:
    """A normalizer as the checks ask it, taken apart: itself, and the tokens that it is to read."""
    return (rule.rule, _tokens(q)) if isinstance(rule, FromQueries) else (rule, None)


def _tokens(q: Tensor) -> Tensor:
    return q.transpose(1, 2).flatten(2)


def finished(rule: Normalizer, q: Tensor, o: Tensor) -> Tensor:
    """Output of a normalizer after ``weights @ v``, (b h t_q d), for these queries."""
    return rule.output_at(q, o) if isinstance(rule, FromQueries) else rule.output(o)


def stirred(choice: str) -> Normalizer:
    """Build a normalizer whose parameters have left their starting values, each its own way."""
    rule = build(choice)
    perturb(rule)
    return rule


def perturb(rule: Normalizer, seed: int = 5) -> None:
    """Move every entry of every parameter up by 0.02 to 0.22."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in rule.parameters():
            parameter.add_(0.2 * (torch.rand(parameter.shape, generator=generator, dtype=torch.float64) + 0.1))


def qkv(t: int = 7, *, b: int = 2, seed: int = 0, gain: float = 1.5) -> list[Tensor]:
    """Normal q, k, v (b h t d); the queries times ``gain``."""
    generator = torch.Generator().manual_seed(seed)
    q, k, v = torch.randn(3, b, HEADS, t, WIDTH, generator=generator, dtype=torch.float64)
    return [q * gain, k, v]


def ragged(t: int, *, diagonal: bool = False) -> Tensor:
    """A mask (t t) that is not causal; its third row sees nothing, or every row itself."""
    visible = torch.rand(t, t, generator=torch.Generator().manual_seed(3)) < 0.6
    visible[2] = False
    return visible | torch.eye(t, dtype=torch.bool) if diagonal else visible


def masks(t: int = 7) -> dict[str, Tensor]:
    """The causal mask, that of both sides, copies of both (which take the general road), and one with holes."""
    return {
        "the causal mask": causal(t),
        "a copy of the causal mask": causal(t).clone(),
        "the full mask": full(t),
        "a copy of the full mask": full(t).clone(),
        "a mask with holes": ragged(t),
    }


def scored(z: Tensor) -> list[Tensor]:
    """q, k, v with the scores z (t), the same in every row and head."""
    q = torch.zeros(1, HEADS, len(z), WIDTH, dtype=z.dtype)
    k, v = torch.zeros_like(q), qkv(len(z), b=1)[2].to(z.dtype)
    # The other channels carry no score, but keep the norms of q and k from 0.
    q[..., 0], k[..., 0], q[..., 1], k[..., 2] = math.sqrt(WIDTH), z, 1.0, 1.0
    return [q, k, v]


def hard_cases() -> dict[str, list[Tensor]]:
    """Single-precision q, k, v by name at which careless formulas overflow, underflow or divide by 0."""
    generator = torch.Generator().manual_seed(11)
    t = 9
    wild = torch.randn(t, generator=generator).sort().values * 5e3
    outlier = torch.zeros(t)
    outlier[4] = 1e4
    usual = [x.float() for x in qkv(t)]
    return {
        "scores up to 1e4": scored(wild.clamp(-1e4, 1e4)),
        "scores up to 1e4, falling": scored(-wild.clamp(-1e4, 1e4)),
        "queries and keys of 100": [usual[0] * 100, usual[1] * 100, usual[2]],
        "all equal": scored(torch.full((t,), 1.0)),
        "all equal and huge": scored(torch.full((t,), 1e4)),
        "all zero": scored(torch.zeros(t)),
        "all negative": scored(-torch.linspace(1, 40, t)),
        "all negative, where gelu and mish underflow": scored(-torch.linspace(80, 110, t)),
        "all hugely negative": scored(torch.full((t,), -1e4)),
        "one huge outlier": scored(outlier),
        "tiny scores": scored(torch.linspace(-1e-20, 1e-20, t)),
        "zero queries": [usual[0] * 0, usual[1], usual[2]],
        "zero keys": [usual[0], usual[1] * 0, usual[2]],
        "zero queries and keys": [usual[0] * 0, usual[1] * 0, usual[2]],
        "one token": [x[:, :, :1] for x in usual],
    }


def trait_cases() -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """q, k and a mask at which a normalizer that breaks a declared trait shows it."""
    for visible in (causal(8), ragged(8, diagonal=True)):
        for gain in (0.3, 1.5, 6.0, 0.0):
            q, k, _ = qkv(8, gain=gain)
            yield q, k, visible
    for z in (-3.0, 3.0):
        q, k, _ = scored(torch.linspace(z, 2 * z, 8, dtype=torch.float64))
        yield q, k, causal(8)
    # Beyond the horizon of cosformer.
    q, k, _ = qkv(520, b=1)
    yield q, k, causal(520)


def gradients(rule: Normalizer, tensors: list[Tensor], visible: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
    """attend's output, and the gradients of one number made of it; a tensor that is not read has none."""
    q, k, v = (x.clone().requires_grad_() for x in tensors)
    o = rule.attend(q, k, v, visible)
    generator = torch.Generator().manual_seed(1)
    mixed = (o * torch.randn(o.shape, generator=generator, dtype=torch.float64).to(o.dtype)).sum()
    named = {"q": q, "k": k, "v": v} | {n: p for n, p in rule.named_parameters() if p.requires_grad}
    found = torch.autograd.grad(mixed, list(named.values()), allow_unused=True)
    return o, {name: grad for name, grad in zip(named, found, strict=True) if grad is not None}
