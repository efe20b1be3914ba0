"""Speed as ratios within one run, against what a user would run instead and against the machine's own limit.

A busy machine is slow now and then, for everybody alike. So compared cases run in turns, A B A B ..., and only the
quotients of neighbours are believed: their median, and their range. On CUDA nothing of this has been measured yet.
"""

import importlib
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from benchmarks.rows import Bench, Measurement

# Each part is a function of this name in a module; nothing heavy is imported before a part is asked for.
PARTS = {
    "step": "training",
    "engines": "training",
    "grid": "runs",
    "quality": "quality",
    "jobs": "runs",
    "memory": "memory",
    "blocks": "blocks",
    "start": "runs",
}


def measure(part: str, bench: "Bench") -> Iterator["Measurement"]:
    """Yield the rows of a part, measured here and now."""
    module = importlib.import_module(f"{__name__}.{PARTS[part]}")
    yield from getattr(module, part)(replace(bench, part=part))
