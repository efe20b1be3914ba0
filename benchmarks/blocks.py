"""Blocks of query rows against the whole matrix: time forward and backward, memory, and a pass over a long prompt."""

from collections.abc import Callable, Iterator
from itertools import product
from unittest import mock

import torch

from benchmarks.memory import MIB
from benchmarks.rows import Bench, Measurement
from icl_lab import normalizers, tasks
from icl_lab.analyses.profiles.costs import peak as held
from icl_lab.base.rng import stream
from icl_lab.normalizers import base
from icl_lab.normalizers.base import causal
from icl_lab.runs.environment import seconds
from icl_lab.runs.spec import resolve

RULES = ("ssa", "lssa", "entmax", "sparsemax", "sigmoid", "stick-breaking")
SHAPES = ((4, 512), (1, 2048))  # prompts, tokens
HEADS, HEAD_DIM = 4, 16
LONGEST = 16_384
NEVER = 2**60  # tokens


def blocks(bench: Bench) -> Iterator[Measurement]:
    """Yield how much sooner and in how much less memory blocks give the output, and the cost of a long prompt."""
    for rule, (prompts, tokens), backward in bench.counted(list(product(RULES, SHAPES, (False, True))), str):
        way = "both ways" if backward else "forward"
        case = f"{rule}, {prompts} of {tokens:,} tokens, {way}"
        job = work(rule, prompts, tokens, bench.device, backward=backward)
        ours, whole = bench.alternate(job, whole_matrix(job))
        row = bench.quotient(case, "whole matrix", "x as fast", whole, ours)
        yield row
        if not backward:
            ours, whole = held(job), held(whole_matrix(job))
            note = f"{ours / MIB:.1f} MiB against {whole / MIB:.1f}"
            yield bench.row(case, "whole matrix", whole / ours, "x less memory", note=note)
    yield long_prompt(bench)


def work(rule: str, prompts: int, tokens: int, device: torch.device, *, backward: bool) -> Callable[[], object]:
    """Return a job: ``attend`` on inputs that are there before, with gradients where ``backward``."""
    built = normalizers.build(rule, heads=HEADS, head_dim=HEAD_DIM, train_tokens=64).to(device)
    rng = torch.Generator().manual_seed(tokens)
    q, k, v, slope = (torch.randn(prompts, HEADS, tokens, HEAD_DIM, generator=rng).to(device) for _ in range(4))
    wanted = [x.requires_grad_(backward) for x in (q, k, v)] + [p for p in built.parameters() if p.requires_grad]
    visible = causal(tokens, device)
    base.additive_mask(visible, q.dtype)  # kept for each length, so that it belongs to neither

    def run() -> object:
        with torch.set_grad_enabled(backward):
            o = built.attend(q, k, v, visible)
            return torch.autograd.grad(o, wanted, slope, allow_unused=True) if backward else o

    return run


def whole_matrix(job: Callable[[], object]) -> Callable[[], object]:
    """The same job without blocks."""

    def run() -> object:
        with mock.patch.object(base, "LONG", NEVER):
            return job()

    return run


def long_prompt(bench: Bench) -> Measurement:
    """The MiB that a model of ``nano`` with ssa holds in a pass over one prompt, and its seconds."""
    spec = resolve("needle", "ssa", "nano", ["model.positions=none"])
    task = tasks.build(spec.task)
    model = spec.untrained(task, 0).eval().to(bench.device)
    prompt = task.sample(stream(0, "bench"), 1, LONGEST).to(bench.device)
    causal(LONGEST, bench.device)

    @torch.no_grad()
    def read() -> object:
        return model(prompt.tokens)

    spent = seconds(read, bench.device)
    whole = model.bytes_a_prompt(LONGEST) / MIB
    note = f"whole matrices by estimate {whole:,.0f} MiB"
    return bench.row(
        f"ssa, nano, one prompt of {LONGEST:,} tokens", "", held(read) / MIB, "MiB", seconds=spent, note=note
    )
