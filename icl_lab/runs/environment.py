"""Environment of a run: versions, device, threads, commit."""

import importlib.metadata
import os
import platform
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import torch

from icl_lab.allocator import keep_freed
from icl_lab.errors import BadValue
from icl_lab.extras import installed
from icl_lab.version import commit as commit

PACKAGES = ("torch", "numpy", "scipy", "pandas", "matplotlib", "safetensors", "msgspec", "entmax")


def device(name: str) -> torch.device:
    """Returns the device called ``auto``, ``cpu``, ``cuda``, ``cuda:1`` or ``mps``; raises ``BadValue`` if absent.

    Whoever asks is about to compute: from here on the process keeps the memory that tensors give back.
    """
    keep_freed()
    there = ["cpu"]
    if torch.cuda.is_available():
        there += ["cuda", *(f"cuda:{i}" for i in range(torch.cuda.device_count()))]
    if torch.backends.mps.is_available():
        there.append("mps")
    if name == "auto":
        return torch.device("cuda" if "cuda" in there else "mps" if "mps" in there else "cpu")
    if name not in there:
        raise BadValue(f"There is no device '{name}' here. There are: auto, {', '.join(there)}.")
    return torch.device(name)


def describe(device: torch.device) -> str:
    """Returns the device in words: ``cpu (2 threads)``."""
    if device.type == "cuda":
        return f"{device} ({torch.cuda.get_device_name(device)})"
    return f"{device} ({torch.get_num_threads()} threads)" if device.type == "cpu" else str(device)


def seconds(job: Callable[[], object], device: torch.device) -> float:
    """Does the job, and returns how long it took, the device's own queue included."""
    _wait(device)
    start = time.perf_counter()
    job()
    _wait(device)
    return time.perf_counter() - start


def environment(device: torch.device, command: str) -> dict[str, Any]:
    """Returns everything that the numbers of a run may depend on beside its specification and seed."""
    return {
        "command": command,
        "commit": commit(),
        "device": describe(device),
        "finished": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": machine_class(),
        "python": platform.python_version(),
        "threads": torch.get_num_threads(),
        "versions": versions(),
    }


def origin() -> str:
    """Says what made a page: the laboratory, its commit, the kind of machine and the day."""
    day = datetime.now(UTC).date().isoformat()
    return f"Made by icl_lab at commit {commit()} on {machine_class()}, {day}."


def versions() -> dict[str, str]:
    """Returns the versions of the packages that compute, and of the laboratory."""
    found = {"icl_lab": importlib.metadata.version("icl_lab") if installed("icl_lab") else "not installed"}
    return found | {name: importlib.metadata.version(name) for name in PACKAGES if installed(name)}


def machine_class() -> str:
    """Returns the kind of machine, and nothing that names the machine itself."""
    return f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores"


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
