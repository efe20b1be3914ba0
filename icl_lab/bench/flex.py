"""flex_attention with the warp of a rule, against the rule's own matrix: time, memory, and whether both agree."""

from collections.abc import Callable, Iterator
from typing import Any, cast

import torch
from torch import Tensor

from icl_lab import normalizers
from icl_lab.bench.base import Bench, Measurement, allocated, alternate
from icl_lab.normalizers.base import Normalizer, additive_mask, causal
from icl_lab.normalizers.ssa import SSA
from icl_lab.normalizers.ssmax import SSMax

PART = "flex"
RULES = ("ssmax", "ssa")
LENGTHS = (512, 2048, 8192)
HEADS, HEAD_DIM = 4, 64
PAIRS = 3  # at most

Warp = Callable[[Tensor, Tensor, Tensor, Tensor, Tensor], Tensor]  # z, prompt, head, query, key -> g, all scalars
Job = Callable[[], tuple[Tensor, ...]]


def measure(bench: Bench) -> Iterator[Measurement]:
    """Yields, for each rule and length, how much sooner and smaller flex_attention is, and the largest differences."""
    if bench.device.type != "cuda":
        bench.say(f"{PART}: flex_attention has no backward on the {bench.device.type.upper()}; nothing is measured.")
        return
    total = len(RULES) * len(LENGTHS)
    for row, name in enumerate(RULES):
        for column, tokens in enumerate(LENGTHS):
            bench.tick(PART, row * len(LENGTHS) + column, total, f"{name} at {tokens}")
            yield from compare(name, tokens, bench)
    bench.tick(PART, total, total, "")


def compare(name: str, tokens: int, bench: Bench) -> Iterator[Measurement]:
    """One rule at one length, forward and backward, on the same numbers by both roads."""
    flexed, matrix = work(name, tokens, bench.device)
    case, against = f"{name}, {tokens} tokens", "attend by its matrix"
    for what, difference in apart(flexed(), matrix()).items():
        yield bench.row(PART, f"{case}, {what}", against, difference, "largest relative difference", note="checked")
    small, large = (allocated(job, bench.device) for job in (flexed, matrix))
    note = f"{small / 2**20:.1f} MiB against {large / 2**20:.1f}"
    yield bench.row(PART, case, against, large / small, "x less memory", note=note)
    own, whole = alternate([flexed, matrix], min(PAIRS, bench.pairs), bench.device)
    yield bench.quotient(PART, case, against, "x as fast", whole, own)


def work(name: str, tokens: int, device: torch.device) -> tuple[Job, Job]:
    """Returns two jobs, by flex_attention and by the matrix: o, then the gradients of q, k, v and what is learned."""
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    rule = normalizers.build(name, heads=HEADS, head_dim=HEAD_DIM, train_tokens=LENGTHS[0]).to(device)
    rng = torch.Generator().manual_seed(tokens)
    q, k, v, slope = (torch.randn(1, HEADS, tokens, HEAD_DIM, generator=rng).to(device) for _ in range(4))
    wanted = [q.requires_grad_(), k.requires_grad_(), v.requires_grad_(), *rule.parameters()]
    visible = causal(tokens, device)
    additive_mask(visible, q.dtype)  # masks belong to no road: they are made once for each length
    blocks = create_block_mask(earlier, None, None, tokens, tokens, device=device)
    fused = cast(Callable[..., Tensor], torch.compile(flex_attention, dynamic=False))

    def flexed() -> tuple[Tensor, ...]:
        o = fused(q, k, v, score_mod=warp(rule, tokens), block_mask=blocks)
        return (o, *torch.autograd.grad(o, wanted, slope))

    def matrix() -> tuple[Tensor, ...]:
        # The definition: what ssmax itself runs is a fused kernel already.
        o = rule.weights(q, k, visible) @ v
        return (o, *torch.autograd.grad(o, wanted, slope))

    return flexed, matrix


def earlier(b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
    """True if row i sees key j."""
    return i >= j


def warp(rule: Normalizer, tokens: int) -> Warp:
    """The rule's g(z, n) of one score, as flex_attention asks for it; what is learned gets its gradient through it."""
    made: dict[type[Any], Callable[[Any, int], Warp]] = {SSMax: warp_of_ssmax, SSA: warp_of_ssa}
    return made[type(rule)](rule, tokens)


def warp_of_ssmax(rule: SSMax, tokens: int) -> Warp:
    """(s log n) z, n = i + 1."""
    s, log_n = rule.s, torch.arange(1, tokens + 1, device=rule.s.device).log()
    return lambda z, b, h, i, j: z * s[h] * log_n[i]


def warp_of_ssa(rule: SSA, tokens: int) -> Warp:
    """n sgn(z) log(1 + b|z|), n and b of each head; the sign is a constant, so that the slope at 0 is n b."""
    n, b = rule.n, rule.b

    def g(z: Tensor, prompt: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        sign = torch.where(z < 0, -1.0, 1.0)
        return n[h] * sign * torch.log1p(b[h] * (z * sign))

    return g


def apart(one: tuple[Tensor, ...], other: tuple[Tensor, ...]) -> dict[str, float]:
    """The largest differences of outputs, of gradients of q, k and v, and of the learned parameters' gradients.

    Each as a share of the largest entry of the other tensor.
    """
    shares = [
        ((a - b).abs().max() / b.abs().max().clamp(min=torch.finfo(b.dtype).tiny)).item()
        for a, b in zip(one, other, strict=True)
    ]
    return {"outputs": shares[0], "gradients of q, k, v": max(shares[1:4]), "gradients of parameters": max(shares[4:])}
