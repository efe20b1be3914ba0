"""The kinds of faults: what is done, and what has become of the study."""

import errno
import os
import random
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from icl_lab import files
from icl_lab.errors import LabError
from icl_lab.pipeline import sweep
from icl_lab.runs import checkpoints, manifest, study_folder
from icl_lab.runs import run as run_module
from icl_lab.runs.run import SPEC
from icl_lab.runs.store import Store
from icl_lab.runs.verify import everything
from tests.torture.arena import Arena, apart, ended

Outcome = Literal["same bits", "named", "lost", "wrong bits", "silent"]
GOOD: tuple[Outcome, ...] = ("same bits", "named")
BAD: tuple[Outcome, ...] = ("lost", "wrong bits", "silent")
STOPS = 4  # interruptions of one study before it may finish


@dataclass(frozen=True)
class Fault:
    """A fault that was done: what kind, to what, and what became of it."""

    kind: str
    to: str
    outcome: Outcome
    note: str = ""


Kind = Callable[[Arena, random.Random], Iterator[Fault]]


def _study(arena: Arena, results: Path, before: Callable[[], object] = lambda: None) -> Callable[[], None]:
    """The job of doing both runs of the study in a results folder."""

    def job() -> None:
        before()
        stopped: list[int] = []
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, lambda number, frame: stopped.append(number))
        lab = arena.lab(results, lambda: bool(stopped))
        for run in arena.runs(results):
            sweep(run.spec, run.seed, lab)

    return job


def _finished(arena: Arena, results: Path, kind: str, done: list[str]) -> Iterator[Fault]:
    """Lets the study finish, and yields what became of each fault that was done to it on the way."""
    code = ended(apart(_study(arena, results)))
    outcome: Outcome = "same bits"
    note = ""
    if code != 0 or not all(run.finished for run in arena.runs(results)):
        outcome, note = "lost", f"exit code {code}"
    elif differing := [f"{run.spec.attn}/{name}" for run in arena.runs(results) for name in arena.differing(run)]:
        outcome, note = "wrong bits", ", ".join(differing)
    elif damaged := [finding.why for finding in everything(results) if finding.state == "damaged"]:
        outcome, note = "wrong bits", damaged[0]
    shutil.rmtree(results)
    yield from (Fault(kind, to, outcome, note) for to in done)


def _interrupted(kind: str, how: Callable[[random.Random], int]) -> Kind:
    """Faults that end a process by a signal, at a random moment."""

    def faults(arena: Arena, rng: random.Random) -> Iterator[Fault]:
        results, done = arena.empty(), list[str]()
        for _ in range(STOPS):
            began = time.monotonic()
            number = apart(_study(arena, results))
            time.sleep(rng.uniform(0, 0.8))
            code = how(rng)
            os.kill(number, code)
            ended(number)
            done.append(f"{signal.Signals(code).name} after {time.monotonic() - began:.2f} s")
        yield from _finished(arena, results, kind, done)

    return faults


def _full(arena: Arena, rng: random.Random) -> Iterator[Fault]:
    """A disk that is full from one write on, before or after a part of the file is written."""
    results, done = arena.empty(), list[str]()
    for _ in range(STOPS):
        left = rng.randrange(12)

        def fill(left: int = left) -> None:
            writes = iter(range(left))
            publish = files.publish

            def full(path: Path, data: bytes) -> None:
                if next(writes, None) is None:
                    path.parent.mkdir(parents=True, exist_ok=True)
                    path.with_name(f".{path.name}-torn").write_bytes(data[: len(data) // 2])
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
                publish(path, data)

            for module in (files, run_module, manifest, checkpoints):
                module.publish = full  # type: ignore[attr-defined]

        ended(apart(_study(arena, results, fill)))
        done.append(f"after {left} writes")
    yield from _finished(arena, results, "disk full", done)


def _clock(arena: Arena, rng: random.Random) -> Iterator[Fault]:
    """Clocks that jump by up to a year, forward or back, several times in a training."""
    results, done = arena.empty(), list[str]()
    jumps = [rng.uniform(-3e7, 3e7) for _ in range(STOPS)]

    def jump() -> None:
        began, monotonic, wall = time.monotonic(), time.monotonic, time.time

        def offset() -> float:
            return jumps[int((monotonic() - began) / 0.15) % len(jumps)]

        time.monotonic = lambda: monotonic() + offset()
        time.time = lambda: wall() + offset()

    ended(apart(_study(arena, results, jump)))
    done += [f"{jump / 86_400:+.0f} days" for jump in jumps]
    yield from _finished(arena, results, "clock jumps", done)


PATIENCE = 10.0  # seconds that a process has to write a checkpoint


def _checkpoint(arena: Arena, rng: random.Random) -> Iterator[Fault]:
    """A checkpoint damaged between a kill and the resumption."""
    results, done = arena.empty(), list[str]()
    for _ in range(STOPS):
        number, patience = apart(_study(arena, results)), time.monotonic() + PATIENCE
        while not any(results.rglob("checkpoint*.pt")) and time.monotonic() < patience:
            time.sleep(0.002)  # however fast a machine is, one is met
        time.sleep(rng.uniform(0, 0.1))
        os.kill(number, signal.SIGKILL)
        ended(number)
        for path in sorted(results.rglob("checkpoint*.pt")):
            what = rng.choice(sorted(DAMAGES))
            path.write_bytes(DAMAGES[what](path.read_bytes(), rng))
            done.append(f"{path.name}: {what}")
    yield from _finished(arena, results, "damaged checkpoint", done)


def _bit(data: bytes, rng: random.Random) -> bytes:
    if not data:
        return b"x"
    at = rng.randrange(len(data))
    return data[:at] + bytes([data[at] ^ 1 << rng.randrange(8)]) + data[at + 1 :]


def _lines(data: bytes, rng: random.Random) -> bytes:
    lines = data.splitlines(keepends=True)
    return b"".join(lines[: rng.randrange(max(1, len(lines)))]) if len(lines) > 1 else data[:-1]


def _digit(data: bytes, rng: random.Random) -> bytes:
    places = [at for at, byte in enumerate(data[:100_000]) if chr(byte) in "012345678"]
    at = rng.choice(places) if places else 0
    return data[:at] + bytes([data[at] + 1]) + data[at + 1 :] if places else _bit(data, rng)


DAMAGES: dict[str, Callable[[bytes, random.Random], bytes]] = {
    "one bit": _bit,
    "cut short": lambda data, rng: data[: rng.randrange(max(1, len(data)))],
    "lines cut": _lines,
    "one digit": _digit,
    "emptied": lambda data, rng: b"",
    "garbage": lambda data, rng: rng.randbytes(max(1, len(data))),
    "removed": lambda data, rng: b"",
}


def _stored(arena: Arena, rng: random.Random) -> Iterator[Fault]:
    """A file of a finished run or study damaged: ``verify`` must find it, and whoever reads it must refuse."""
    results = arena.copy()
    paths = [path for path in sorted(results.rglob("*")) if path.is_file() and not path.name.startswith(".")]
    kept = [path for path in paths if path.suffix in (".csv", ".json", ".safetensors")]
    for _ in range(10):
        path, what = rng.choice(kept), rng.choice(sorted(DAMAGES))
        whole = path.read_bytes()
        changed = DAMAGES[what](whole, rng)
        path.unlink() if what == "removed" else path.write_bytes(changed)
        noticed = changed == whole or _noticed(arena, results, path)
        path.write_bytes(whole)
        yield Fault("damaged file", f"{path.name}: {what}", "named" if noticed else "silent")
    shutil.rmtree(results)


def _exchanged(arena: Arena, rng: random.Random) -> Iterator[Fault]:
    """A file of one run put in the place of the other's."""
    results = arena.copy()
    one, other = rng.sample(arena.runs(results), 2)
    for name in ("grid.csv", "errors.safetensors", "history.csv", "model.safetensors", "env.json", "spec.json"):
        path = one.folder / name
        whole = path.read_bytes()
        path.write_bytes((other.folder / name).read_bytes())
        noticed = path.read_bytes() == whole or _noticed(arena, results, path)
        path.write_bytes(whole)
        yield Fault("file of another run", name, "named" if noticed else "silent")
    shutil.rmtree(results)


def _noticed(arena: Arena, results: Path, path: Path) -> bool:
    """Whether a damage is found by ``verify``, and refused by what reads the file to compute something of it."""
    found = {finding.state for finding in everything(results)} - {"whole"}
    if not path.exists():  # weights may be removed: they are trained again where they are wanted
        return bool(found) or path.name == "model.safetensors"
    if not found:
        return False
    try:
        if results / "study" in path.parents:
            study_folder.verify(results / "study")
            return False
        run = next(run for run in arena.runs(results) if run.folder in path.parents)
        if path.name == manifest.NAME:
            return True
        if path.name == SPEC:  # other white space is the same specification
            there = {other.spec.hash for other in Store(results).runs()}
            return there == {other.spec.hash for other in arena.runs(results)}
        run.read(path.relative_to(run.folder).as_posix())
    except LabError:
        return True
    return False


KINDS: dict[str, Kind] = {
    "killed": _interrupted("killed", lambda rng: signal.SIGKILL),
    "asked to stop": _interrupted(
        "asked to stop", lambda rng: rng.choice([signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
    ),
    "disk full": _full,
    "clock jumps": _clock,
    "damaged checkpoint": _checkpoint,
    "damaged file": _stored,
    "file of another run": _exchanged,
}
