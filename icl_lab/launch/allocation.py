"""Division of this machine's cores among runs: how many at once, by the measured throughput of each division."""

import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import torch

from icl_lab.launch import calibration
from icl_lab.launch.announce import Clock, Say
from icl_lab.runs import estimate
from icl_lab.runs.run import Run
from icl_lab.runs.spec import RunSpec

QUICK = 30.0  # seconds of work up to which starting further processes does not pay
GAIN = 1.05  # times the throughput from which another share is worth it: measured times vary by a few percent
SPARED = 0.8  # of the free memory, for all runs together
MEMINFO = Path("/proc/meminfo")


def runs_at_once(runs: Sequence[Run], device: torch.device, clock: Clock, say: Say) -> int:
    """Returns the number of unfinished runs to train at once with cores / number threads each.

    It is the k in 1, 2, 4, ... cores at which k runs side by side, cores // k threads each, do most steps a second.
    The steps are those of the run that takes longest. 1 where all that is left takes seconds, on a GPU, and where more
    do not fit into the free memory.
    """
    left = {run.training: run for run in runs if clock.training(run) > 0}
    cores = torch.get_num_threads()
    if device.type != "cpu" or cores == 1 or len(left) < 2:
        return 1
    seconds = {training: clock.training(run) for training, run in left.items()}
    if sum(seconds.values()) <= QUICK:
        return 1
    spec = left[max(seconds, key=seconds.__getitem__)].spec
    room = SPARED * free_memory() // max(estimate.size_of(run.spec).training for run in left.values())
    tried = {number: each for number, each in divisions().items() if number <= min(len(left), max(1, room))}
    return _fastest(calibration.throughput(spec, tried, say)) if len(tried) > 1 else 1


def fastest_threads(spec: RunSpec, device: torch.device) -> int:
    """Returns the threads with which one run takes the shortest steps: a small model has no use for all cores."""
    cores = torch.get_num_threads()
    if device.type != "cpu" or cores == 1:
        return cores
    return _fastest({each: 1 / estimate.step_seconds(spec, device, each) for each in divisions().values()})


def free_memory() -> float:
    """Returns the bytes of memory that are free, or can be freed; half of all where the system does not say."""
    with suppress(OSError, ValueError, KeyError):
        rows = dict(line.split(":", 1) for line in MEMINFO.read_text().splitlines())
        return 1024.0 * int(rows["MemAvailable"].split()[0])
    return 0.5 * os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def share(runs: int) -> int:
    """Returns the threads of each of so many runs at once."""
    return max(1, torch.get_num_threads() // runs)


def divisions() -> dict[int, int]:
    """Return the numbers of runs at once that are tried, 1, 2, 4, ... and all cores, and the threads of each run."""
    cores = torch.get_num_threads()
    numbers = sorted({*(2**power for power in range(cores.bit_length()) if 2**power <= cores), cores})
    return {number: share(number) for number in numbers}


def _fastest(speed: Mapping[int, float]) -> int:
    """The key of the greatest speed; of those within ``GAIN`` of each other the first."""
    found = next(iter(speed))
    for key, value in speed.items():
        if value >= GAIN * speed[found]:
            found = key
    return found
