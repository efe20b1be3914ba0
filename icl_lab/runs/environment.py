"""Environment of a run, which ``env.json`` records: versions, device, threads, commit, parts from outside.

A later command that lacks a part from outside says so, and one that meets another version of it.
"""

import importlib.metadata
import json
import os
import platform
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch

from icl_lab import normalizers, tasks
from icl_lab.base import foreign
from icl_lab.base.errors import BadValue, UnknownName
from icl_lab.base.registry import Choice, Registry
from icl_lab.base.version import commit as commit
from icl_lab.model import positions
from icl_lab.runs.allocator import keep_freed
from icl_lab.runs.extras import installed
from icl_lab.runs.manifest import BUILT_IN, OUTSIDE
from icl_lab.runs.spec import RunSpec

PACKAGES = ("torch", "numpy", "scipy", "pandas", "matplotlib", "safetensors", "msgspec", "entmax")
COMPUTING = ("torch", "Python")  # versions that bits depend on
READ = "reads"  # of env.json: files that the task reads, name -> SHA-256; left out where it reads none


def device(name: str) -> torch.device:
    """Return the device called ``auto``, ``cpu``, ``cuda``, ``cuda:1`` or ``mps``; raises ``BadValue`` if absent.

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
    """Return the device in words: ``cpu (2 threads)``."""
    if device.type == "cuda":
        return f"{device} ({torch.cuda.get_device_name(device)})"
    return f"{device} ({torch.get_num_threads()} threads)" if device.type == "cpu" else str(device)


def seconds(job: Callable[[], object], device: torch.device) -> float:
    """Do the job, and return how long it took, the device's own queue included."""
    _wait(device)
    start = time.perf_counter()
    job()
    _wait(device)
    return time.perf_counter() - start


@contextmanager
def threads(number: int) -> Iterator[None]:
    """Limit this process to ``number`` threads within the context."""
    before = torch.get_num_threads()
    torch.set_num_threads(number)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def environment(device: torch.device, command: str) -> dict[str, Any]:
    """Return everything that the numbers of a run may depend on besides its specification and seed."""
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
    """Origin of a page: the laboratory, its commit, the kind of machine and the day."""
    day = datetime.now(UTC).date().isoformat()
    return f"Made by icl_lab at commit {commit()} on {machine_class()}, {day}."


def versions() -> dict[str, str]:
    """Return the versions of the packages that compute, and of the laboratory."""
    found = {"icl_lab": importlib.metadata.version("icl_lab") if installed("icl_lab") else "not installed"}
    return found | {name: importlib.metadata.version(name) for name in PACKAGES if installed(name)}


def machine_class() -> str:
    """Return the kind of machine, and nothing that names the machine itself."""
    return f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores"


def of_run(spec: RunSpec, device: torch.device, command: str) -> dict[str, Any]:
    """Return the contents of ``env.json`` for a run made now: environment, plugins, files read."""
    read = dict(tasks.reads(spec.task))
    return environment(device, command) | recorded_parts(spec) | ({READ: read} if read else {})


def recorded_parts(spec: RunSpec) -> dict[str, list[dict[str, str]]]:
    """Return what ``env.json`` says of parts, from outside and of this package: kind, name, import or file, hash."""
    found = [registry.record(name) for registry, name in dict.fromkeys(parts(spec))]
    kinds = {
        OUTSIDE: [part for part in found if "file" not in part],
        BUILT_IN: [part for part in found if "file" in part],
    }
    return {field: each for field, each in kinds.items() if each}


def require_parts(spec: RunSpec, folder: Path) -> None:
    """Raise ``UnknownName``, with the import that the run was made with, where a part of a stored run is not here."""
    for registry, name in parts(spec):
        if name not in registry.names():
            lost = next(
                (part for part in _stored(folder) if (part["kind"], part["name"]) == (registry.kind, name)), None
            )
            broken = " ".join(registry.broken())
            raise UnknownName(registry.kind, name, [], f"{_made_with(lost, folder)}{broken and ' '}{broken}")


def explain_missing(error: UnknownName, root: Path) -> UnknownName:
    """Return the error with the import that a stored run was made with, where one has the part that is missing."""
    for path in sorted(root.glob("runs/*/*/*/seed-*/env.json")):
        for part in _stored(path.parent):
            if (part["kind"], part["name"]) == (error.kind, error.name):
                return UnknownName(error.kind, error.name, [], _made_with(part, path.parent))
    return error


def stored_parts(spec: RunSpec, env: Mapping[str, Any]) -> Iterator[tuple[str, str, Mapping[str, str], str]]:
    """Yield kind, name and record of each part that ``env.json`` names, with the hash of its code now.

    Parts that are not here are left out: whoever needs them says so (``require_parts``).
    """
    then = {(part["kind"], part["name"]): part for part in _parts_in(env)}
    for registry, name in dict.fromkeys(parts(spec)):
        if (made := then.get((registry.kind, name))) is not None and name in registry.names():
            yield registry.kind, name, made, registry.record(name)["sha256"]


def places(env: Mapping[str, Any]) -> dict[str, str]:
    """Return where the code of each part lies that ``env.json`` names, by ``KIND 'NAME'``."""
    return {f"{part['kind']} '{part['name']}'": words(part) for part in _parts_in(env)}


def parts(spec: RunSpec, swap: str = "") -> Iterator[tuple[Registry, str]]:
    """Yield the names of all parts that a specification chooses, and of a ``swap``, each with its registry."""
    yield tasks.registry, Choice.parse(spec.task).name
    for attn in filter(None, (spec.attn, spec.train.switch_to, swap)):
        yield from normalizers.parts(attn)
    for code in filter(None, (spec.model.positions, spec.test.positions)):
        yield positions.registry, Choice.parse(code).name


def _stored(folder: Path) -> list[dict[str, str]]:
    return _parts_in(_env(folder))


def _parts_in(env: Mapping[str, Any]) -> list[dict[str, str]]:
    lists = [env[field] for field in (OUTSIDE, BUILT_IN) if isinstance(env.get(field), list)]
    return [
        part for parts in lists for part in parts if isinstance(part, dict) and {"kind", "name", "sha256"} <= set(part)
    ]


def _env(folder: Path) -> Mapping[str, Any]:
    try:
        env = json.loads(foreign.shallow(foreign.read(folder / "env.json", foreign.MOST_TEXT)))
    except (OSError, ValueError):  # whoever needs the file for its own sake says what is wrong with it
        return {}
    return env if isinstance(env, dict) else {}


def _made_with(part: Mapping[str, Any] | None, folder: Path) -> str:
    if part is None:
        return f"The run in {folder} needs it, and does not say which --import it came from: give that again."
    again = "give it again" if "import" in part else "install it again"
    return f"The run in {folder} was made with {words(part)}: {again}."


def words(part: Mapping[str, str]) -> str:
    """``--import ./mine.py``, the distribution where it came by an entry point, or the file in this package."""
    if "file" in part:
        return part["file"]
    return f"--import {part['import']}" if "import" in part else f"the distribution {part.get('distribution')}"


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
