"""Runs in work, read from the store alone: from what they say of themselves, else from their checkpoints."""

import time
from collections.abc import Iterator
from datetime import datetime
from functools import lru_cache
from pathlib import Path
from typing import Any

from icl_lab.errors import LabError
from icl_lab.figures.styles import styles
from icl_lab.runs import at_work, checkpoints
from icl_lab.runs.at_work import SILENCE, Word
from icl_lab.runs.estimate import examples
from icl_lab.runs.run import SPEC, read_spec
from icl_lab.runs.spec import RunSpec
from icl_lab.runs.store import seed_of
from icl_lab.site.numbers import number

UNITS = {"train": ("training", "steps"), "test": ("testing", "shifts")}


def told(root: Path, finished: int, built: str, now: float | None = None) -> dict[str, Any]:
    """Returns what the page shows: each run that is not finished and has begun, those at work first."""
    now = time.time() if now is None else now
    runs = sorted(_runs(root, now), key=lambda run: (run["order"], run["key"]))
    at = [run for run in runs if run["order"] == 0]
    processes = {run["process"] for run in at} - {None}
    words = f"{len(at)} run{'s' * (len(at) != 1)} in work"
    words += f" by {len(processes)} process{'es' * (len(processes) != 1)}" if processes else ""
    still = len(runs) - len(at)
    words += f", {still} that stopped or {'are' if still != 1 else 'is'} silent" if still else ""
    clock = datetime.fromtimestamp(now).strftime("%H:%M:%S")
    return {"at": clock, "words": f"{words}; {finished} in the list of all.", "built": built, "runs": runs}


def _runs(root: Path, now: float) -> Iterator[dict[str, Any]]:
    for path in root.glob(f"runs/*/*/*/seed-*/{SPEC}"):
        folder = path.parent
        word, seed = at_work.heard(folder), seed_of(folder)
        last = _newest(folder)
        if seed is None or (word is None and ((folder / "grid.csv").exists() or last is None)):
            continue
        try:
            spec = _spec(path, path.stat().st_mtime_ns)
        except (LabError, OSError):  # the list of all says what is wrong with it
            continue
        shown = _word(spec, word, last, now) if word is not None else _checkpoint(spec, last, now)
        yield {
            "key": "/".join(folder.parts[-4:]),
            "name": spec.attn,
            "task": spec.task,
            "preset": spec.preset,
            "seed": seed,
            "color": styles([spec.attn])[spec.attn].color,
            **shown,
        }


def _word(spec: RunSpec, word: Word, last: Path | None, now: float) -> dict[str, Any]:
    """A run as it speaks of itself. A checkpoint is a sign of life, too."""
    sign = max(word.written, last.stat().st_mtime if last is not None else 0.0)
    silent = min(word.silent(now), max(0.0, now - sign - SILENCE))
    stage, unit = UNITS[word.stage]
    return {
        "stage": stage,
        "unit": unit,
        "done": word.done,
        "total": word.total,
        "left": None if silent else left(spec, word),
        "loss": number(word.losses[-1][1]) if word.losses else None,
        "curve": [[step, number(loss)] for step, loss in word.losses],
        "device": word.device,
        "process": word.process,
        "state": f"silent for {now - sign:.0f} s: stopped, or its process was killed" if silent else "in work",
        "order": 1 if silent else 0,
    }


def left(spec: RunSpec, word: Word) -> float | None:
    """Returns the seconds that are left of a stage at the pace so far; None before anything was done.

    Steps of a training count by the examples that they read, since prompts grow.
    """
    if word.stage == "train":
        first, here = examples(spec.train, word.since), examples(spec.train, word.done)
        return word.seconds * here / (first - here) if first > here else None
    done = word.done - word.since
    return word.seconds * (word.total - word.done) / done if done > 0 else None


def _checkpoint(spec: RunSpec, last: Path | None, now: float) -> dict[str, Any]:
    """A run that says nothing: done by a worker elsewhere, by an earlier version, or stopped."""
    state = last.stat() if last is not None else None
    step, losses = _history(last, state.st_mtime_ns) if last is not None and state is not None else (0, [])
    age = now - state.st_mtime if state is not None else now
    fresh = age < SILENCE
    return {
        "stage": "training",
        "unit": "steps",
        "done": step,
        "total": spec.train.steps,
        "left": None,
        "loss": number(losses[-1][1]) if losses else None,
        "curve": [[at, number(loss)] for at, loss in losses],
        "device": "",
        "process": None,
        "state": f"checkpoint {age:.0f} s ago: in work elsewhere, or stopped just now"
        if fresh
        else "stopped; the same command goes on from its checkpoint",
        "order": 0 if fresh else 2,
    }


def _newest(folder: Path) -> Path | None:
    return next((folder / name for name in checkpoints.NAMES if (folder / name).exists()), None)


@lru_cache(maxsize=4096)
def _spec(path: Path, changed: int) -> RunSpec:
    return read_spec(path.read_bytes(), path)


@lru_cache(maxsize=64)
def _history(path: Path, changed: int) -> tuple[int, list[tuple[int, float]]]:
    """The step and the loss curve of a checkpoint; nothing of one that is not whole."""
    state = checkpoints.unpacked(path) or {}
    step, rows = state.get("step"), state.get("history")
    losses = [(int(row["step"]), float(row["loss"])) for row in rows] if isinstance(rows, list) else []
    return step if isinstance(step, int) else 0, at_work.thinned(losses)
