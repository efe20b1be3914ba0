"""The model of a run taken from another that was trained alike, and differs in nothing but its test."""

import json
from collections.abc import Iterator, Mapping
from itertools import chain
from typing import Any

from icl_lab.base import foreign
from icl_lab.base.errors import RunFailed
from icl_lab.runs import provenance, run_files
from icl_lab.runs.lock import Say
from icl_lab.runs.manifest import MADE_BY, SPEC, WEIGHTS
from icl_lab.runs.run import TRAINED, Run, parse_spec
from icl_lab.runs.run_files import RunFiles, RunFolder


def weights(run: Run, say: Say) -> None:
    """Take over the model of a finished training that differs in nothing but the test grid, if there is one."""
    for files in _alike(run, say):
        try:
            found = {name: run_files.read(files, name) for name in TRAINED}
        except RunFailed as reason:  # none to take from
            say(str(reason))
            continue
        # What a copy of this run measured with the very same model need not be measured again.
        copy = run.copy
        same = copy is not None and same_model(copy, json.loads(found["env.json"]))
        before = {name: run_files.read(copy, name) for name in sorted(copy.names)} if copy is not None and same else {}
        run.publish_trained(found | {name: before[name] for name in ("history.csv", "env.json") if name in before})
        run.publish_measured(before)
        say(f"takes the model of {files.path}, which was trained alike.")
        return


def has_model(run: Run) -> bool:
    """True if the run need not be trained, only tested: its own model is there, or that of one trained alike."""
    return run.trained or next(_alike(run, lambda _: None), None) is not None


def same_model(files: RunFiles, env: Mapping[str, Any]) -> bool:
    """True if a stored run was measured with the very model that an ``env.json`` is about."""
    return "env.json" in files and _env(files).get("model_sha256") == env.get("model_sha256")


def _alike(run: Run, say: Say) -> Iterator[RunFiles]:
    """Yield the finished trainings that differ in nothing but the test, those of the results folder first."""
    training = run.spec.training
    for files in chain(RunFolder(run.folder).siblings(), run.copy.siblings() if run.copy is not None else ()):
        if WEIGHTS not in files:
            continue
        try:
            spec = parse_spec(run_files.read(files, SPEC), files.path / SPEC)
        except RunFailed as reason:
            say(str(reason))
            continue
        if spec.training != training:
            continue
        if other := provenance.of_stored(_env(files).get(MADE_BY), spec, files.path / "env.json"):
            say(f"{files.path} was trained alike, but with {' and '.join(other)}: its model is not taken.")
            continue
        yield files


def _env(files: RunFiles) -> dict[str, Any]:
    data = files.find("env.json")
    held = json.loads(foreign.shallow(data)) if data is not None else {}
    return held if isinstance(held, dict) else {}
