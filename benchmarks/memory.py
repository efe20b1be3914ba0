"""Memory and time of ``attend`` against ``weights @ v``, forward and backward, for one normalizer of each family."""

import ctypes
import math
import re
import resource
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import product
from pathlib import Path

import torch

from benchmarks.rows import Bench, Measurement, child
from icl_lab import normalizers
from icl_lab.normalizers.base import additive_mask, causal

FAMILIES = {"ssmax": "scaled query", "ssa": "warped", "entmax": "sparse", "sigmoid": "element-wise"}
LENGTHS = (512, 2048, 8192)
HEADS, HEAD_DIM = 1, 64
PAIRS = 2  # at most: the longest take seconds
ROUTES = ("attend", "weights")
MIB = 2**20


def memory(bench: Bench) -> Iterator[Measurement]:
    """Yield, for each family and length, how much less memory and time ``attend`` takes, and how its memory grows."""
    peaks: list[float] = []
    for rule, tokens in bench.counted(list(product(FAMILIES, LENGTHS)), lambda each: f"{each[0]} at {each[1]}"):
        family = f"{rule} ({FAMILIES[rule]})"
        case = f"{family}, {tokens} tokens"
        ours, whole = (peak(rule, route, tokens, bench.device) for route in ROUTES)
        peaks.append(ours)
        note = f"{ours / MIB:.1f} MiB against {whole / MIB:.1f}"
        yield bench.row(case, "weights @ v", whole / ours, "x less memory", note=note)
        attend, weigh = bench.alternate(*(work(rule, route, tokens, bench.device) for route in ROUTES), most=PAIRS)
        yield bench.quotient(case, "weights @ v", "x as fast", weigh, attend)
        if tokens == LENGTHS[-1]:
            # The exponent of memory in the length between the two longest: 1 is linear, 2 is a whole matrix.
            power = math.log(peaks[-1] / peaks[-2]) / math.log(LENGTHS[-1] / LENGTHS[-2])
            yield bench.row(f"{family}, attend", "tokens", power, "power law of memory")


def peak(rule: str, route: str, tokens: int, device: torch.device) -> float:
    """The bytes that ``work`` takes at its height, above what there was before; never below 1.

    On a GPU it is allocated memory; on a CPU the high-water mark of resident memory, which sees what a fused kernel
    needs inside itself, in a fresh process: freed memory that this one kept would not be counted.
    """
    if device.type == "cuda":
        job = work(rule, route, tokens, device)
        torch.cuda.reset_peak_memory_stats(device)
        before = torch.cuda.memory_allocated(device)
        job()
        return max(1, torch.cuda.max_memory_allocated(device) - before)
    arguments = (rule, route, tokens, torch.get_num_threads())
    script = f"from benchmarks.memory import probe; print(probe{arguments!r})"
    return float(child("-c", script))


def probe(rule: str, route: str, tokens: int, threads: int) -> int:
    """Bytes that one route takes on the CPU of this process, which must be a fresh one."""
    torch.set_num_threads(threads)
    cpu = torch.device("cpu")
    work(rule, route, 16, cpu)()  # code, threads and thread-local buffers belong to no normalizer
    job = work(rule, route, tokens, cpu)
    with suppress(OSError, AttributeError):  # glibc: freed memory, which would be used again unseen, goes back first
        ctypes.CDLL(None).malloc_trim(0)
    with suppress(OSError):  # Linux; elsewhere the mark is that of the start, and small peaks hide below it
        Path("/proc/self/clear_refs").write_text("5")  # sets the mark to what is in use now
    before = highest()
    job()
    return max(1, highest() - before)


def work(rule: str, route: str, tokens: int, device: torch.device) -> Callable[[], object]:
    """Return a job: forward and backward of one route, on inputs that are there before."""
    built = normalizers.build(rule, heads=HEADS, head_dim=HEAD_DIM, train_tokens=LENGTHS[0]).to(device)
    rng = torch.Generator().manual_seed(tokens)
    q, k, v, slope = (torch.randn(1, HEADS, tokens, HEAD_DIM, generator=rng).to(device) for _ in range(4))
    wanted = [q.requires_grad_(), k.requires_grad_(), v.requires_grad_()]
    wanted += [p for p in built.parameters() if p.requires_grad]
    # Masks are made once for each length and shared by all layers: they belong to no route.
    visible = causal(tokens, device)
    additive_mask(visible, q.dtype)

    def run() -> object:
        o = built.attend(q, k, v, visible) if route == "attend" else built.weights(q, k, visible) @ v
        return torch.autograd.grad(o, wanted, slope, allow_unused=True)

    return run


def highest() -> int:
    """The most bytes that were resident at once."""
    with suppress(OSError):
        found = re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())
        if found:
            return int(found[1]) * 1024
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most if sys.platform == "darwin" else most * 1024
