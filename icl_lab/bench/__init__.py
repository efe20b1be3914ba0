"""Speed as ratios within one run, against what a user would run instead and against the machine's own limit.

A part is the file of its name in this folder, with one function ``measure``. Nothing heavy is imported before a part is
asked for.

On CUDA nothing of this has been measured yet. By plan all parts take seven to eight minutes there, in seconds: step 30,
engines 110 (most of it four compilations), grid 15, quality 120, jobs 70, memory 20, flex 45 (six compilations), start
30.
"""

import importlib
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from icl_lab.bench.base import Bench, Measurement

PARTS = ("step", "engines", "grid", "quality", "jobs", "stack", "memory", "flex", "start")


def measure(parts: Iterable[str], bench: "Bench") -> Iterator["Measurement"]:
    """Yields the rows of each part, measured here and now."""
    for part in parts:
        yield from importlib.import_module(f"{__name__}.{part}").measure(bench)
