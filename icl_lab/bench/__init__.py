"""Speed as ratios within one run, against what a user would run instead and against the machine's own limit.

A busy machine is slow now and then, for everybody alike. So what is compared runs in turns, A B A B ..., and only the
quotients of neighbours are believed: their median, and their range. On CUDA nothing of this has been measured yet.
"""

import importlib
from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from icl_lab.bench.rows import Bench, Measurement

# Each part and the function that measures it; nothing heavy is imported before a part is asked for.
PARTS = {
    "step": "training:step",
    "engines": "training:engines",
    "grid": "runs:grid",
    "quality": "quality:quality",
    "jobs": "runs:jobs",
    "stack": "training:stack",
    "memory": "memory:memory",
    "start": "runs:start",
}


def measure(part: str, bench: "Bench") -> Iterator["Measurement"]:
    """Yields the rows of a part, measured here and now."""
    module, _, function = PARTS[part].partition(":")
    yield from getattr(importlib.import_module(f"{__name__}.{module}"), function)(bench)
