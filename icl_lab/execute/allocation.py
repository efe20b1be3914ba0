"""Division of this machine's cores among runs: as many at once as there are cores, with one thread each."""

import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import torch

from icl_lab.execute.announce import Clock
from icl_lab.runs import estimate
from icl_lab.runs.run import Run

QUICK = 30.0  # seconds of work up to which starting further processes does not pay
SPARED = 0.8  # of the free memory, for all runs together
MOST = 8  # threads of one run: more do not shorten the steps of a small model
MEMINFO = Path("/proc/meminfo")


def runs_at_once(runs: Sequence[Run], device: torch.device, clock: Clock) -> int:
    """Return the number of unfinished runs to train at once: the number of cores, as far as the free memory goes.

    1 where all runs together take seconds, and on a GPU. Two runs with a thread each do 1.3 times the steps of one run
    with two threads (docs/speed.md).
    """
    left = {run.training: run for run in runs if clock.training(run) > 0}
    if device.type != "cpu" or len(left) < 2 or sum(map(clock.training, left.values())) <= QUICK:
        return 1
    room = SPARED * free_memory() // max(estimate.size_of(run.spec).training for run in left.values())
    return max(1, min(torch.get_num_threads(), len(left), int(room)))


def share(runs: int, most: int | None = None) -> int:
    """Return the threads of each of ``runs`` at once, at most ``most`` where it is given."""
    threads = max(1, torch.get_num_threads() // runs)
    return threads if most is None else min(threads, most)


def free_memory() -> float:
    """Return the bytes of memory that are free, or can be freed; half of all where the system does not say."""
    with suppress(OSError, ValueError, KeyError):
        rows = dict(line.split(":", 1) for line in MEMINFO.read_text().splitlines())
        return 1024.0 * int(rows["MemAvailable"].split()[0])
    return 0.5 * os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
