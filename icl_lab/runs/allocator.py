"""Allocator of glibc: whether freed memory is kept for the next tensor, or given back to the system.

glibc takes every block above a threshold (at most 32 MiB) from the system and gives it back as soon as it is freed. The
weights of a batch of prompts are such blocks, a dozen of them a layer and pass, and the system clears every page of
them: millions of page faults, which took a third of the training of normalizers without a fused pass and two thirds of
their tests on long prompts.
"""

import ctypes
import os
import sys
from collections.abc import Callable

KEPT = 2**30  # bytes: larger blocks are the system's as before, and free memory beyond this at the heap's end
TRIM_THRESHOLD, MMAP_THRESHOLD = -1, -3  # the parameters' numbers in glibc's malloc.h
OWN = ("MALLOC_MMAP_THRESHOLD_", "MALLOC_TRIM_THRESHOLD_", "GLIBC_TUNABLES")  # by which a user has decided otherwise


def keep_freed() -> bool:
    """Let this process keep freed memory; return whether it does.

    It changes no number. Elsewhere than on Linux with glibc, and where the environment sets the allocator, all stays as
    it is.
    """
    if any(name in os.environ for name in OWN) or (mallopt := _glibc("mallopt")) is None:
        return False
    return bool(mallopt(MMAP_THRESHOLD, KEPT)) and bool(mallopt(TRIM_THRESHOLD, KEPT))


def give_back() -> None:
    """Give freed memory back to the system, between the steps of a command that reads much and computes little.

    Small blocks that stay lie among those that are freed, and glibc by itself gives back the end of the heap alone.
    """
    if (trim := _glibc("malloc_trim")) is not None:
        trim(0)


def _glibc(name: str) -> Callable[..., int] | None:
    """A function of the allocator; None with another C library."""
    try:
        return getattr(ctypes.CDLL(None), name) if sys.platform == "linux" else None
    except (OSError, AttributeError):
        return None
