"""Random numbers by address."""

import hashlib

import torch


def stream(seed: int, *path: str | int) -> torch.Generator:
    """Return a fresh CPU generator for the place ``path`` under ``seed``.

    A batch is a function of its address, so resuming needs no generator state, and every normalizer that asks at
    ``stream(seed, "test", ...)`` meets the same prompts. The address lists all that a draw may depend on and nothing
    else. Draws are made on the CPU and moved, so every device sees the same numbers.
    """
    digest = hashlib.blake2b(repr((seed, *path)).encode(), digest_size=8).digest()
    # 63 bits: manual_seed takes a signed 64-bit integer.
    return torch.Generator().manual_seed(int.from_bytes(digest, "big") >> 1)
