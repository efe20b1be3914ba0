"""What a study folder says of itself, in ``study.json``: enough to build its page again from the stored runs."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from icl_lab.errors import RunFailed
from icl_lab.runs.store import Run, Store

NAME = "study.json"


class Group(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The runs behind one row: how each is found in a store."""

    task: str
    attn: str
    preset: str
    hash: str
    seeds: list[int]
    swap: str = ""


class Record(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A study: the command that made it, what is compared with what, and its title."""

    command: str
    baseline: str
    groups: dict[str, Group]
    title: str = ""

    @classmethod
    def of(cls, groups: Mapping[str, Sequence[Run]], baseline: str, command: str, title: str) -> "Record":
        """Describes a study of these runs."""
        found = {}
        for name, runs in groups.items():
            spec = runs[0].spec
            found[name] = Group(spec.task, spec.attn, spec.preset, spec.hash, [run.seed for run in runs], runs[0].swap)
        return cls(command, baseline, found, title)

    def text(self) -> str:
        """Returns the record as JSON."""
        return json.dumps(msgspec.to_builtins(self), indent=1) + "\n"


def read(folder: Path) -> Record | None:
    """Returns the record of a study folder, None where it has none; raises ``RunFailed`` where it cannot be read."""
    path = folder / NAME
    if not path.exists():
        return None
    try:
        return msgspec.json.decode(path.read_bytes(), type=Record)
    except (OSError, msgspec.DecodeError) as error:
        raise RunFailed(f"{path} cannot be read: {error}.") from error


def runs(record: Record, store: Store) -> dict[str, list[Run]]:
    """Returns the stored runs of a record, one group of seeds a name; raises ``RunFailed`` with those that are missing.

    Runs are found by what they are (task, rule, hash of the specification, seed), not by a path.
    """
    known = {(run.spec.task, run.spec.attn, run.spec.hash, run.seed): run for run in store.runs()}
    found: dict[str, list[Run]] = {}
    missing = []
    for name, group in record.groups.items():
        found[name] = []
        for seed in group.seeds:
            run = known.get((group.task, group.attn, group.hash, seed))
            run = run.swapped(group.swap) if run and group.swap else run
            if run is None or not run.finished:
                missing.append(f"{group.task} {group.attn} {group.preset}-{group.hash} seed {seed}")
            else:
                found[name].append(run)
    if missing:
        raise RunFailed(f"{len(missing)} runs of this study are not stored: {'; '.join(missing[:5])}.")
    return found
