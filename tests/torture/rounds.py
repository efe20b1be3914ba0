"""Rounds of faults, each with numbers of its own, and the table that they end in."""

import random
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import torch

from icl_lab import markdown as md
from icl_lab.runs import environment
from tests.torture.arena import Arena
from tests.torture.faults import BAD, GOOD, KINDS, Fault


def rounds(count: int, seed: int) -> Iterator[Fault]:
    """Yields the faults of so many rounds; a round does every kind once, its faults drawn at (seed, round, kind)."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # processes that are forked from one with several hang
    root = Path(tempfile.mkdtemp(prefix="icl-lab-torture-"))
    try:
        arena = Arena.build(root)
        for number in range(count):
            for name, kind in KINDS.items():
                yield from kind(arena, random.Random(f"{seed} {number} {name}"))
    finally:
        shutil.rmtree(root, ignore_errors=True)
        torch.set_num_threads(threads)


def table(faults: Sequence[Fault], command: str) -> str:
    """Returns how many faults of each kind were done and what became of them, as Markdown."""
    counts = Counter((fault.kind, fault.outcome) for fault in faults)
    lines = [
        "Faults done to a study of two tiny models and their comparison. After a fault to a process, the study is "
        "finished and every file held against the study that nothing was done to: `same bits`, `wrong bits`, or `lost` "
        "where it cannot be finished. After a fault to a file, `icl-lab verify` and whatever reads the file must name "
        "it: `named`, or `silent`.",
        "",
        *md.head(["fault", "done", *GOOD, *BAD]),
    ]
    for kind in KINDS:
        own = [counts[kind, outcome] for outcome in (*GOOD, *BAD)]
        lines.append(md.row([kind, str(sum(own)), *map(str, own)]))
    own = [sum(counts[kind, outcome] for kind in KINDS) for outcome in (*GOOD, *BAD)]
    lines.append(md.row(["all", str(sum(own)), *map(str, own)]))
    bad = [fault for fault in faults if fault.outcome in BAD]
    lines += ["", *(f"* {fault.kind}, {fault.to}: {fault.outcome} {fault.note}" for fault in bad)]
    return "\n".join([*lines, *([""] if bad else []), f"Made by `{command}`. {environment.origin()}", ""])


if __name__ == "__main__":
    rounds_asked = int(sys.argv[1]) if len(sys.argv) > 1 else 1
    found = list(rounds(rounds_asked, 0))
    print(table(found, f"python -m tests.torture.rounds {rounds_asked}"))
    sys.exit(any(fault.outcome in BAD for fault in found))
