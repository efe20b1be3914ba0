"""Cost of a normalizer: the poster's count of operations, and measured time and memory relative to softmax.

A count of the activation alone leaves out the products with keys and values, so it does not predict a time; the
measured ratios are of the whole ``attend``, each by the code path that it takes here (softmax by a fused kernel).
"""

import statistics
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from icl_lab import normalizers
from icl_lab.analyses.findings import Row, cell
from icl_lab.analyses.profiles.families import rules
from icl_lab.base import published
from icl_lab.base.errors import BadValue
from icl_lab.base.grid import Grid
from icl_lab.base.progress import Tick, silent
from icl_lab.normalizers.base import Normalizer, causal, extra
from icl_lab.runs.environment import seconds as elapsed
from icl_lab.runs.estimate import room

LENGTHS = (256, 512, 1024, 2048, 4096)
HEADS, HEAD_DIM, BATCH = 4, 64, 1
HELD_A_PAIR = 60  # bytes of two tokens in a head, forward and backward, in the greediest normalizer
BASELINE = "softmax"
POSTER_LENGTH = 32_000
WHO = {"task": "costs", "preset": "-", "spec": "-", "seed": 0}

# Operations on the causal scores of one head, as the poster counts them: an exponential, a sum and a quotient for each
# of the n (n + 1) / 2 entries of softmax, one product more for SSMax.
OPERATIONS: dict[str, Callable[[int], int]] = {
    "Softmax": lambda n: 3 * n * (n + 1) // 2 - n,
    "SSMax": lambda n: 4 * n * (n + 1) // 2 - n,
    "Sigmoid": lambda n: n * (n + 1),
    "SimA": lambda n: n * (n + 1) // 2 - n,
}


def check(lengths: Sequence[int]) -> None:
    """Raise ``BadValue`` on prompts whose pairs of tokens do not fit into the memory of this machine, by estimate."""
    longest, bound = max(lengths), room(torch.device("cpu"))
    if (needs := float(HELD_A_PAIR * BATCH * HEADS * longest**2)) > bound:
        raise BadValue(
            f"prompts of {longest:,} tokens would need about {needs / 1e9:,.0f} GB of memory, more than the "
            f"{bound / 1e9:,.0f} GB that are here; take shorter ones."
        )


def operations(n: int = POSTER_LENGTH) -> Grid:
    """The poster's counts at ``n`` by its own formulas, and its printed values for 32,000, in 10^9. Axis: tokens.

    The printed values are ten times those of the printed formulas, in all four rows; they stay as they are.
    """
    table = published.load("poster_flops")
    rows = []
    for name, count in OPERATIONS.items():
        printed = table.at("gflops_at_32k_printed", activation=name).number
        values = {"gflop": count(n) / 1e9}
        if n == POSTER_LENGTH:
            values |= {"gflop-printed": printed, "printed-over-formula": printed * 1e9 / count(n)}
        rows += [cell(metric, value, attn=name, tokens=n) for metric, value in values.items()]
    return Grid.of(rows, ["tokens"], **WHO)


def printed_times() -> Grid:
    """The poster's own times of a forward pass, as ratios to its softmax head at the same length. Axis: tokens.

    One head, all inputs zero, a machine that is not named, and heads that its authors wrote: no two of these ratios
    need agree with ours.
    """
    table = published.load("poster_benchmark_times")
    base = {row["context_length"].number: row["value_as_stored"].number for row in table.where(head="vanilla")}
    rows = list[Row]()
    for row in table.rows:
        tokens = row["context_length"].number
        ratio = row["value_as_stored"].number / base[tokens]
        rows.append(cell("forward", ratio, attn=f"poster:{row['head']}", tokens=tokens))
    return Grid.of(rows, ["tokens"], **WHO)


def measure(
    lengths: Sequence[int] = LENGTHS,
    choices: Iterable[str] | None = None,
    *,
    pairs: int = 5,
    device: torch.device | str = "cpu",
    tick: Tick = silent,
) -> Grid:
    """Time and memory of ``attend``, as ratios to softmax in the same run. Axis: tokens.

    Metrics ``forward`` and ``both`` (forward and backward): medians of ``pairs`` ratios, each of two runs in a row,
    softmax first (A B A B ...), after one of each that does not count; ``-low`` and ``-high`` are their ends. With
    ``-memory``: the ratio of what ``peak`` counts. With ``-seconds`` and ``-bytes``: the normalizer's own time and
    peak. Softmax is measured against itself like any other: how far its ratio is from 1 is the noise of the machine.
    """
    chosen = rules(normalizers.names()) if choices is None else list(choices)
    rows = list[Row]()
    for at, length in enumerate(lengths):
        for done, choice in enumerate(chosen):
            tick("costs", at * len(chosen) + done, len(lengths) * len(chosen), f"{choice} at {length}")
            for metric, value in _compare(choice, length, pairs, torch.device(device)).items():
                rows.append({"attn": choice, "tokens": length, "metric": metric, "value": value, "count": pairs})
    tick("costs", len(lengths) * len(chosen), len(lengths) * len(chosen), "")
    return Grid.of(rows, ["tokens"], **WHO)


def counts(grid: Grid) -> list[str]:
    """Return the lines of the table of operations, for the terminal."""
    at = f"n = {POSTER_LENGTH:,}"
    lines = [
        f"operations of the activation, one causal head, {at} (poster; its printed column is ten times its formulas)"
    ]
    lines.append(f"{'':10} {'by formula':>12} {'printed':>12} {'ratio':>7}")
    for name in grid.values("attn"):
        ours, printed, ratio = (
            grid.at(attn=name, metric=metric) for metric in ("gflop", "gflop-printed", "printed-over-formula")
        )
        lines.append(f"{name:10} {ours:>8.3f} 1e9 {printed:>8.1f} 1e9 {ratio:>7.2f}")
    return lines


def table(grid: Grid) -> list[str]:
    """Return the lines of the ratios that a grid holds, for the terminal: medians, and their range at the longest."""
    lines = []
    longest = max(grid.values("tokens"))
    titles = {"forward": "time, forward", "both": "time, forward and backward", "both-memory": "memory, both ways"}
    metrics = grid.values("metric")
    for metric, title in titles.items():
        if metric not in metrics:
            continue
        ratios = grid.where(metric=metric).table("attn", "tokens")
        ranged = f"   range at {longest:g}" if f"{metric}-low" in metrics else ""
        lines += ["", f"{title}, as a ratio to softmax; by tokens"]
        lines.append(f"{'':30}" + "".join(f"{tokens:>9g}" for tokens in ratios.columns) + ranged)
        for name, row in ratios.iterrows():
            line = f"{name:30}" + "".join(f"{value:>9.2f}" for value in row)
            if ranged:
                low, high = (grid.at(attn=name, metric=f"{metric}-{end}", tokens=longest) for end in ("low", "high"))
                line += f"   {low:.2f} to {high:.2f}"
            lines.append(line)
    return lines[1:]


def peak(work: Callable[[], object]) -> int:
    """The most bytes of tensors, made by ``work`` and alive at once; inputs that are there before do not count.

    Counted by the storages that operations return, so it is the same in every run; what a fused kernel needs inside
    itself, and gives back, is not seen.
    """
    living = _Living()
    with living:
        work()
    return living.most


class _Living(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Watches storages come and go."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.now: int = 0
        self.most: int = 0
        self._seen: dict[int, Any] = {}

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        given = {id(x.untyped_storage()) for x in tree_leaves((args, kwargs)) if isinstance(x, Tensor)}
        out = func(*args, **(kwargs or {}))
        for x in tree_leaves(out):
            if isinstance(x, Tensor) and id(x.untyped_storage()) not in given | self._seen.keys():
                self._enter(x.untyped_storage())
        return out

    def _enter(self, storage: torch.UntypedStorage) -> None:
        key, size = id(storage), storage.nbytes()

        def leave(_: object) -> None:
            self.now -= size
            del self._seen[key]

        self._seen[key] = weakref.ref(storage, leave)
        self.now += size
        self.most = max(self.most, self.now)


def attention_bytes(choice: str, length: int) -> int:
    """Return the ``peak`` of ``attend`` forward and backward over a prompt of ``length`` tokens, on the CPU."""
    cpu = torch.device("cpu")
    job = partial(_both, _build(choice, cpu), *_inputs(length, cpu))
    job()  # fills the caches of masks, which belong to no normalizer
    return peak(job)


def _inputs(length: int, device: torch.device) -> tuple[Tensor, ...]:
    """Random inputs of a layer (1 t c) with its queries, keys and values (1 h t d)."""
    generator = torch.Generator().manual_seed(length)
    q, k, v = (torch.randn(BATCH, HEADS, length, HEAD_DIM, generator=generator).to(device) for _ in range(3))
    return torch.randn(BATCH, length, HEADS * HEAD_DIM, generator=generator).to(device), q, k, v


def _compare(choice: str, length: int, pairs: int, device: torch.device) -> dict[str, float]:
    base, rule = (_build(name, device) for name in (BASELINE, choice))
    inputs = _inputs(length, device)
    found: dict[str, float] = {}
    for name, work in (("forward", _forward), ("both", _both)):
        jobs: list[Callable[[], object]] = [partial(work, who, *inputs) for who in (base, rule)]
        for job in jobs:
            job()  # warms up, and fills the caches of masks, which belong to no normalizer
        bytes_ = [peak(job) for job in jobs]
        seconds = [[elapsed(job, device) for job in jobs] for _ in range(pairs)]
        ratios = [ours / theirs for theirs, ours in seconds]
        found |= {
            name: statistics.median(ratios),
            f"{name}-low": min(ratios),
            f"{name}-high": max(ratios),
            f"{name}-seconds": statistics.median(ours for _, ours in seconds),
            f"{name}-memory": bytes_[1] / bytes_[0],
            f"{name}-bytes": bytes_[1],
        }
    return found


def _build(choice: str, device: torch.device) -> Normalizer:
    return normalizers.build(choice, heads=HEADS, head_dim=HEAD_DIM, train_tokens=LENGTHS[0]).to(device)


def _forward(rule: Normalizer, x: Tensor, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    with torch.no_grad():
        return rule.attend(q, k, v, causal(q.shape[-2], q.device), **extra(rule, None, x))


def _both(rule: Normalizer, x: Tensor, q: Tensor, k: Tensor, v: Tensor) -> None:
    x, q, k, v = (part.detach().requires_grad_() for part in (x, q, k, v))
    o = rule.attend(q, k, v, causal(q.shape[-2], q.device), **extra(rule, None, x))
    wanted = [x, q, k, v, *(p for p in rule.parameters() if p.requires_grad)]
    torch.autograd.grad(o, wanted, torch.ones_like(o), allow_unused=True)
