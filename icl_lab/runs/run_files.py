"""Stored files of a run, read by name and checked: those of a folder by its manifest, or a copy kept elsewhere.

Weights are stored as safetensors, the history of a training as CSV.
"""

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from safetensors.torch import save

from icl_lab.base import foreign
from icl_lab.base.errors import RunFailed
from icl_lab.base.files import sha256
from icl_lab.model.gpt2 import GPT2
from icl_lab.runs import manifest
from icl_lab.runs.manifest import WAY_OUT


class RunFiles(Protocol):
    """Files of one run by their names below its folder, such as ``grid.csv`` or ``swap-ssa/grid.csv``."""

    @property
    def path(self) -> Path:
        """Their folder."""

    @property
    def names(self) -> frozenset[str]:
        """The files that are there."""

    def __contains__(self, name: str) -> bool: ...

    def find(self, name: str) -> bytes | None:
        """Return a file, None where the run was written without it; ``RunFailed`` where it is not as written."""

    def checksum(self, name: str) -> str | None:
        """Return the SHA-256 of a file; None where it is not there."""

    def cells(self, name: str) -> Mapping[str, Any] | None:
        """Return the columns of a grid; None where it is kept as text alone."""

    def prompts(self, name: str) -> tuple[Any, Mapping[str, Any]] | None:
        """Return errors (cells, prompts) of single prompts and their labels by axis; None in the same way."""

    def siblings(self) -> Iterable["RunFiles"]:
        """Return the files of the runs of the same normalizer and seed, and a task of the same name."""


@dataclass(frozen=True)
class RunFolder:
    """Files of a run's folder, each checked against the manifest of that folder."""

    path: Path

    @property
    def names(self) -> frozenset[str]:
        """The files that are there, of tests with other normalizers too, but for hidden ones."""
        files = (path for pattern in ("*", "swap-*/*") for path in self.path.glob(pattern) if path.is_file())
        return frozenset(path.relative_to(self.path).as_posix() for path in files if path.name[0] != ".")

    def __contains__(self, name: str) -> bool:
        return (self.path / name).exists()

    def find(self, name: str) -> bytes | None:
        """Return a file that is as the manifest says; None where the run was written without it."""
        data = self._bytes(name)
        manifest.check(self.path / name, data)
        return data

    def checksum(self, name: str) -> str | None:
        """Return the SHA-256 of a file as it stands; None where it is not there."""
        data = self._bytes(name)
        return None if data is None else sha256(data)

    def cells(self, name: str) -> None:
        """Return None: a folder keeps text."""

    def prompts(self, name: str) -> None:
        """Return None: a folder keeps the tensors of a file."""

    def siblings(self) -> "list[RunFolder]":
        """Return the folders of the same normalizer and seed, and a task of the same name, whatever its options."""
        tasks, normalizer = self.path.parents[2], self.path.parents[1].name
        alike = f"{tasks.name.partition('-')[0]}*/{normalizer}/*/{self.path.name}/spec.json"
        return [RunFolder(path.parent) for path in sorted(tasks.parent.glob(alike))]

    def _bytes(self, name: str) -> bytes | None:
        try:
            return foreign.read(self.path / name)
        except FileNotFoundError:
            return None
        except OSError as error:  # another user's file, or a folder in its place
            raise unreadable(self.path / name, error) from error


def read(files: RunFiles, name: str) -> bytes:
    """Return a file of a run as it was written; raises ``RunFailed`` where it is missing, damaged or edited."""
    data = files.find(name)
    if data is None:
        raise RunFailed(f"{files.path / name} is missing; {WAY_OUT}.")
    return data


def unreadable(path: Path, error: OSError) -> RunFailed:
    """Return the complaint about a file of a run that cannot be read."""
    return RunFailed(f"{path} cannot be read: {error.strerror or error}; {WAY_OUT}.")


def encode_weights(model: GPT2) -> bytes:
    """Weights as ``safetensors.torch.save_model`` writes them, a parameter that layers share once; without a disk."""
    state, names = model.state_dict(keep_vars=True), dict[int, list[str]]()
    for name, parameter in state.items():
        names.setdefault(id(parameter), []).append(name)
    groups = [sorted(group) for group in names.values()]
    shared = {other: first for first, *others in groups for other in others}
    return save({first: state[first].detach().contiguous() for first, *_ in groups}, metadata=shared or None)


def encode_history(rows: Sequence[Mapping[str, float]]) -> bytes:
    """Rows as CSV, with a column for every name that one of them has."""
    text = io.StringIO()
    # A normalizer that was swapped in on the way has its own parameters.
    columns = dict.fromkeys(name for row in rows for name in row)
    writer = csv.DictWriter(text, list(columns), restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue().encode()


def decode_history(data: bytes) -> list[dict[str, float]]:
    """Return the rows of ``history.csv``."""
    rows = csv.DictReader(data.decode().splitlines())
    return [{key: float(value) for key, value in row.items() if value} for row in rows]


def row_at(history: Sequence[Mapping[str, float]], step: float) -> Mapping[str, float]:
    """Return the last row of a history up to a step; the first row where the step comes before it."""
    return next((row for row in reversed(history) if row["step"] <= step), history[0])
