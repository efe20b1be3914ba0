"""Allocator setting of glibc: freed memory is kept for the next tensor, not given back to the system.

glibc takes every block above a threshold (at most 32 MiB) from the system and gives it back as soon as it is freed. The
weights of a batch of prompts are such blocks, a dozen of them a layer and pass, and the system clears every page of
them: millions of page faults, which took a third of the training of normalizers without a fused pass and two thirds of
their tests on long prompts.
"""

import ctypes
import os
import sys

KEPT = 2**30  # bytes: larger blocks are the system's as before, and free memory beyond this at the heap's end
TRIM_THRESHOLD, MMAP_THRESHOLD = -1, -3  # the parameters' numbers in glibc's malloc.h
OWN = ("MALLOC_MMAP_THRESHOLD_", "MALLOC_TRIM_THRESHOLD_", "GLIBC_TUNABLES")  # by which a user has decided otherwise


def keep_freed() -> bool:
    """Let this process keep freed memory; return whether it does.

    It changes no number. Elsewhere than on Linux with glibc, and where the environment sets the allocator, all stays as
    it is.
    """
    if sys.platform != "linux" or any(name in os.environ for name in OWN):
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):  # another C library
        return False
    return bool(mallopt(MMAP_THRESHOLD, KEPT)) and bool(mallopt(TRIM_THRESHOLD, KEPT))
