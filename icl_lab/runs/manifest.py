"""Manifest of a run's folder: size and checksum of every file as it was written, in ``manifest.json``.

It is written before the files that it names, so that a file which it does not name cannot come from a write that was
cut short. Pictures, checkpoints and whatever else is made again for the asking are not named. Folders that were written
before there were manifests have none, and their files are taken as they are.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from icl_lab.base import foreign
from icl_lab.base.errors import RunFailed
from icl_lab.base.files import publish, reading, sha256

NAME = "manifest.json"
SPEC = "spec.json"
MADE_BY = "made_by"  # of env.json and of a checkpoint: the record of what trains (provenance.py)
MEASURED_BY = "measured.json"  # the record of what tested
OUTSIDE = "outside"  # of env.json: a list of parts, left out where every part is built in
BUILT_IN = "parts"  # of env.json: the parts of this package, with the hashes of their code
WEIGHTS = "model.safetensors"
WAY_OUT = "delete its folder, or add --retrain, and run the same command again"


class Stamp(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Size and SHA-256 of a file as it was written."""

    size: int
    sha256: str

    @classmethod
    def of(cls, data: bytes) -> "Stamp":
        """Return the stamp of these bytes."""
        return cls(len(data), sha256(data))


def read(folder: Path) -> dict[str, Stamp] | None:
    """Return the stamps of a folder's files; None without a manifest.

    Raises ``RunFailed`` where it is damaged, or names a path outside the folder.
    """
    path = folder / NAME
    try:
        data = foreign.read(path, foreign.MOST_TEXT)
        stamps = msgspec.json.decode(foreign.shallow(data), type=dict[str, Stamp])
    except FileNotFoundError:
        return None
    except (OSError, ValueError, msgspec.DecodeError) as error:
        raise RunFailed(f"{path} is damaged or edited: {error}; {WAY_OUT}.") from None
    if outside := [name for name in stamps if not foreign.is_plain(name)]:
        raise RunFailed(f"{path} names '{outside[0]}', which is no file of its folder; {WAY_OUT}.")
    if _written(stamps) != data:
        raise RunFailed(f"{path} is damaged or edited (it was not written like this); {WAY_OUT}.")
    return stamps


def note(folder: Path, files: Mapping[str, bytes], over: Sequence[str], before: Sequence[str] = ()) -> None:
    """Name files that are about to be written, in the place of those called ``over``.

    A folder that has no manifest yet gets one that also names what stands there already of the files ``before``.
    """
    stamps = read(folder)
    if stamps is None:
        there = {name: (folder / name).read_bytes() for name in before if (folder / name).exists()}
        for name, data in there.items():
            check(folder / name, data)  # damaged files must not be sealed
        stamps = {name: Stamp.of(data) for name, data in there.items()}
    kept = {name: stamp for name, stamp in stamps.items() if name not in over}
    publish(folder / NAME, _written(kept | {name: Stamp.of(data) for name, data in files.items()}))


def of(files: Mapping[str, bytes]) -> bytes:
    """Return the manifest of a folder of these files."""
    return _written({name: Stamp.of(data) for name, data in files.items()})


def without(data: bytes, names: Sequence[str]) -> bytes:
    """Return a manifest as it would be had these files not been there."""
    stamps = msgspec.json.decode(data, type=dict[str, Stamp])
    return _written({name: stamp for name, stamp in stamps.items() if name not in names})


def check(path: Path, data: bytes | None) -> None:
    """Raise ``RunFailed`` unless a file matches the manifest of its folder; ``data`` is None where it is missing.

    Weights are held against ``env.json`` too, which alone has their checksum in folders from before manifests.
    """
    stamps = read(path.parent)
    if stamps is not None:
        compare(path, stamps.get(path.name), data)
    if path.name == WEIGHTS and data is not None and sha256(data) != _checksum_in_env(path.parent):
        raise RunFailed(f"{path} is damaged or altered (its hash is not that of env.json); {WAY_OUT}.")


def compare(path: Path, stamp: Stamp | None, data: bytes | None) -> None:
    """Raise ``RunFailed`` unless a file is as its stamp says; None where either is missing."""
    if stamp is None:
        if data is not None:
            raise RunFailed(f"{path} is not among the files that {NAME} names; {WAY_OUT}.")
    elif data is None:
        raise RunFailed(f"{path} is missing; {WAY_OUT}.")
    elif Stamp.of(data) != stamp:
        had = (
            f"{len(data):,} bytes in place of {stamp.size:,}" if len(data) != stamp.size else "its checksum is another"
        )
        raise RunFailed(f"{path} is damaged or edited ({had}); {WAY_OUT}.")


def _checksum_in_env(folder: Path) -> object:
    path = folder / "env.json"
    with reading(path, WAY_OUT, OSError, TypeError, ValueError):
        data = foreign.read(path, foreign.MOST_TEXT)
        return dict(json.loads(foreign.shallow(data))).get("model_sha256")


def _written(stamps: Mapping[str, Stamp]) -> bytes:
    return msgspec.json.format(msgspec.json.encode(stamps, order="sorted"), indent=1) + b"\n"
