"""Checkpoints of a training: the last two, each whole or not at all, each saying whose it is."""

import hashlib
import io
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import asdict
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import torch

from icl_lab.base import foreign
from icl_lab.base.errors import LabError
from icl_lab.base.files import publish
from icl_lab.model.gpt2 import GPT2
from icl_lab.training.loop import Progress, optimizer
from icl_lab.training.recipe import TrainSpec

NAMES = ("checkpoint.pt", "checkpoint-before.pt")  # the last, and the one before it
MISFIT = (KeyError, TypeError, ValueError, RuntimeError, AttributeError, IndexError, LabError)  # what garbage can raise
Differs = Callable[[object, Path], Sequence[str]]  # how the record in a checkpoint differs from the code here
SUM = 32  # bytes of the sha256 that a file begins with


def keep(folder: Path, owner: str, model: GPT2, progress: Progress, made_by: Mapping[str, Any] | None = None) -> None:
    """Publish a checkpoint of the run ``owner``, with the record of what trains; the one before it stays until then."""
    data = packed(
        {"owner": owner, "made_by": made_by, "attn": model.attn, "model": model.state_dict(), **asdict(progress)}
    )
    last, before = (folder / name for name in NAMES)
    if last.exists():
        last.replace(before)
    publish(last, data)


def packed(state: Mapping[str, Any]) -> bytes:
    """Return the bytes of a state, its sha256 before them, as ``unpacked`` reads them."""
    with io.BytesIO() as buffer:
        torch.save(dict(state), buffer)
        data = buffer.getvalue()
    return hashlib.sha256(data).digest() + data


def resume(
    folder: Path,
    owner: str,
    model: GPT2,
    spec: TrainSpec,
    say: Callable[[str], object],
    differs: Differs = lambda made_by, path: (),
) -> Progress:
    """Load the newest whole checkpoint of the run ``owner`` into ``model``, and say where it goes on.

    One that is damaged, of another run, made by other code (``differs``), or that does not fit this one is named and
    left aside; without any the training starts from step 0.
    """
    there, outdated = [folder / name for name in NAMES if (folder / name).exists()], False
    for path in there:
        state = unpacked(path)
        if state is None:
            say(f"{path} is damaged and is left aside.")
            continue
        if (whose := state.pop("owner", "a run that it does not name")) != owner:
            say(f"{path} is of another run ({whose}, not {owner}) and is left aside.")
            continue
        if other := differs(state.pop("made_by", None), path):
            say(f"{path} was made with {' and '.join(other)} and is left aside.")
            outdated = True
            continue
        try:
            _take_up(deepcopy(model), state, spec)  # on a copy, because what does not fit may fit in part
        except MISFIT as reason:
            say(f"{path} does not fit this run ({type(reason).__name__}) and is left aside.")
            continue
        progress = _take_up(model, state, spec)
        say(f"goes on from step {progress.step} ({path.name}).")
        return progress
    if there:
        say(f"no checkpoint is {'of this code' if outdated else 'whole'}; starts from step 0.")
    return Progress()


def _take_up(model: GPT2, state: Mapping[str, Any], spec: TrainSpec) -> Progress:
    """Load what a checkpoint holds; raises one of ``MISFIT`` where it is not the state of such a training."""
    progress = Progress(**{name: value for name, value in state.items() if name not in ("attn", "model")})
    if not 0 <= progress.step <= spec.steps:
        raise ValueError(f"step {progress.step} of {spec.steps}")
    if state["attn"] != model.attn:  # training had switched normalizers by then
        model.swap_rule(state["attn"])
    model.load_state_dict(state["model"])
    if progress.optimizer is not None:
        optimizer(model, spec).load_state_dict(deepcopy(progress.optimizer))
    return progress


def step(folder: Path) -> int:
    """Return the step of the newest whole checkpoint in a folder; 0 without one."""
    return next((step for state in _whole(folder) if isinstance(step := state.get("step"), int) and step >= 0), 0)


def made_by(folder: Path) -> object:
    """Return the record of what made the newest whole checkpoint in a folder; None without one."""
    return next((state.get("made_by") for state in _whole(folder)), None)


def _whole(folder: Path) -> Iterator[dict[str, Any]]:
    there = (folder / name for name in NAMES if (folder / name).exists())
    return (state for path in there if (state := unpacked(path)) is not None)


def remove(folder: Path) -> None:
    """Remove the checkpoints of a training that is over, or is to be done afresh."""
    for name in NAMES:
        (folder / name).unlink(missing_ok=True)


def unpacked(path: Path) -> dict[str, Any] | None:
    """Return what a checkpoint holds; None where its bytes are not those that were written."""
    try:
        data = foreign.read(path)
        if hashlib.sha256(data[SUM:]).digest() != data[:SUM]:
            return None
        return dict(torch.load(io.BytesIO(data[SUM:]), weights_only=True, map_location="cpu"))
    except (OSError, *MISFIT, UnpicklingError, EOFError):  # another file with its own checksum: no code runs
        return None
