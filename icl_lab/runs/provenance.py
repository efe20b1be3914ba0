"""Which parts of a run came from outside, and which files its task reads: written to ``env.json``.

A later command that lacks such a part says so, and one that meets another version of it.
"""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch

from icl_lab import normalizers, tasks
from icl_lab.errors import UnknownName
from icl_lab.model import positions
from icl_lab.registry import Choice, Registry
from icl_lab.runs import environment
from icl_lab.runs.spec import RunSpec

FIELD = "outside"  # of env.json: a list of parts, left out where every part is built in
READ = "reads"  # of env.json: what the task reads beside its options, name -> SHA-256; left out where it reads nothing


def about(spec: RunSpec, device: torch.device, command: str) -> dict[str, Any]:
    """Returns what ``env.json`` says of a run that was made here and now: surroundings, outside parts, what is read."""
    read = dict(tasks.reads(spec.task))
    return environment.environment(device, command) | outside(spec) | ({READ: read} if read else {})


def outside(spec: RunSpec) -> dict[str, list[dict[str, str]]]:
    """Returns what ``env.json`` says of the parts from outside: kind, name, import, hash of the file."""
    found = [record for registry, name in parts(spec) if (record := registry.record(name))]
    return {FIELD: found} if found else {}


def require(spec: RunSpec, folder: Path) -> None:
    """Raises ``UnknownName``, with the import that the run was made with, where a part of a stored run is not here."""
    for registry, name in parts(spec):
        if name not in registry.names():
            lost = next(
                (part for part in _stored(folder) if (part["kind"], part["name"]) == (registry.kind, name)), None
            )
            broken = " ".join(registry.broken())
            raise UnknownName(registry.kind, name, [], f"{_made_with(lost, folder)}{broken and ' '}{broken}")


def explained(error: UnknownName, root: Path) -> UnknownName:
    """Returns the error with the import that a stored run was made with, where one has the part that is missing."""
    for path in sorted(root.glob("runs/*/*/*/seed-*/env.json")):
        for part in _stored(path.parent):
            if (part["kind"], part["name"]) == (error.kind, error.name):
                return UnknownName(error.kind, error.name, [], _made_with(part, path.parent))
    return error


def changed(spec: RunSpec, folder: Path) -> Iterator[str]:
    """Yields a sentence for each outside part of a stored run whose file is not what it was when the run was made."""
    then = {(part["kind"], part["name"]): part for part in _stored(folder)}
    for registry, name in parts(spec):
        now, made = registry.record(name) if name in registry.names() else None, then.get((registry.kind, name))
        if now and made and now["sha256"] != made["sha256"]:
            yield (
                f"{folder} was made with another version of {_words(made)} (sha256 {made['sha256'][:8]}, "
                f"now {now['sha256'][:8]}); --force repeats it."
            )
    told = _env(folder).get(READ)
    if isinstance(told, dict) and told:
        for name, sha in tasks.reads(spec.task).items():
            if told.get(name, sha) != sha:
                yield (
                    f"{folder} was made with another version of {name} (sha256 {told[name][:8]}, now {sha[:8]}); "
                    "--force repeats it."
                )


def parts(spec: RunSpec) -> Iterator[tuple[Registry, str]]:
    """Yields the names of all parts that a specification chooses, each with the registry that it is in."""
    yield tasks.registry, Choice.parse(spec.task).name
    for attn in filter(None, (spec.attn, spec.train.switch_to)):
        yield from normalizers.parts(attn)
    for code in filter(None, (spec.model.positions, spec.test.positions)):
        yield positions.registry, Choice.parse(code).name


def _stored(folder: Path) -> list[dict[str, str]]:
    """Outside parts that the ``env.json`` of a run names."""
    parts = _env(folder).get(FIELD, [])
    return [part for part in parts if isinstance(part, dict) and {"kind", "name", "sha256"} <= set(part)]


def _env(folder: Path) -> Mapping[str, Any]:
    """The ``env.json`` of a run; nothing where the run has no such file yet."""
    try:
        env = json.loads((folder / "env.json").read_text())
    except (OSError, ValueError):  # whoever needs the file for its own sake says what is wrong with it
        return {}
    return env if isinstance(env, dict) else {}


def _made_with(part: Mapping[str, Any] | None, folder: Path) -> str:
    if part is None:
        return f"The run in {folder} needs it, and does not say which --import it came from: give that again."
    again = "give it again" if "import" in part else "install it again"
    return f"The run in {folder} was made with {_words(part)}: {again}."


def _words(part: Mapping[str, str]) -> str:
    """``--import ./mine.py``, or the distribution where it came by an entry point."""
    return f"--import {part['import']}" if "import" in part else f"the distribution {part.get('distribution')}"
