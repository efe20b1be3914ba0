"""The model of a run taken from another that was trained alike, and differs in nothing but its test."""

import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from icl_lab.errors import RunFailed
from icl_lab.evidence.layer import Kept
from icl_lab.runs.lock import Say
from icl_lab.runs.run import SPEC, TRAINED, Run, read_spec
from icl_lab.runs.spec import RunSpec

Reader = Callable[[str], bytes]  # the name of a file -> what it holds


def weights(run: Run, say: Say) -> None:
    """Takes over the model of a finished training that differs in nothing but the test grid, if there is one."""
    for where, read in _alike(run, say):
        try:
            found = {name: read(name) for name in TRAINED}
        except RunFailed as reason:  # none to take from
            say(str(reason))
            continue
        before = _of_this_model(run, found["env.json"])
        run.publish_trained(found | {name: before[name] for name in ("history.csv", "env.json") if name in before})
        run.publish_measured(before)
        say(f"takes the model of {where}, which was trained alike.")
        return


def there(run: Run) -> bool:
    """True if the run need not be trained, only tested: its own model is there, or that of one trained alike."""
    return run.trained or next(_alike(run, lambda _: None), None) is not None


def _alike(run: Run, say: Say) -> Iterator[tuple[Path, Reader]]:
    """Yields the finished trainings that differ in nothing but the test: where, and what reads a file."""
    training = run.spec.training
    for where, spec, read in _siblings(run, say):
        if spec.training == training:
            yield where, read


def _of_this_model(run: Run, env: bytes) -> dict[str, bytes]:
    """Returns what the evidence holds of the run without its model, where ``env`` is of the very same; else nothing.

    What was measured with that model need not be measured again.
    """
    held = run.layer.run(run.key) if run.layer is not None else None
    return held.files() if held is not None and same_model(held, json.loads(env)) else {}


def same_model(held: Kept, env: Mapping[str, Any]) -> bool:
    """True if what the evidence holds was measured with the very model that an ``env.json`` is about."""
    if "env.json" not in held:
        return False
    return bool(json.loads(held.read("env.json")).get("model_sha256") == env.get("model_sha256"))


def _siblings(run: Run, say: Say) -> Iterator[tuple[Path, RunSpec, Reader]]:
    """Yields the trained runs of the same rule and seed, the folder's first: where, what, and what reads a file."""
    for path in sorted(run.folder.parent.parent.glob(f"*/{run.folder.name}/{SPEC}")):
        try:
            spec = read_spec(path.read_bytes(), path)
        except RunFailed as reason:
            say(str(reason))
            continue
        if path.with_name("model.safetensors").exists():
            yield path.parent, spec, Run(path.parent, spec, run.seed).read
    for kept in run.layer.siblings(run.key) if run.layer is not None else ():
        if "model.safetensors" in kept:
            yield kept.path, read_spec(kept.read(SPEC), kept.path), kept.read
