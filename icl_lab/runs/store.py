"""What ``results/`` looks like, and nothing else knows it.

    results/runs/<task>/<attn>/<preset>-<hash>/seed-<k>/
      spec.json  env.json  history.csv  model.safetensors  positions.csv  errors.safetensors
      grid.csv (last: its presence means finished)

Each file is written beside its place and moved there in one step, so that what stands under a name is whole.

Where the folder holds no run, a run may be read from the evidence layer (see ``icl_lab/evidence/layer.py``). Nothing is
written there: what is missing in it, such as weights, is made in the folder.
"""

import csv
import hashlib
import io
import json
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import msgspec
from filelock import FileLock, Timeout
from safetensors import SafetensorError
from safetensors.torch import load, save, save_model

from icl_lab import tasks
from icl_lab.errors import RunFailed, Stopped, UnknownName
from icl_lab.evidence.layer import Kept, Layer
from icl_lab.files import publish
from icl_lab.grid import Grid
from icl_lab.model.gpt2 import GPT2
from icl_lab.registry import filename
from icl_lab.runs import checkpoints, checks, provenance
from icl_lab.runs.measure import Errors
from icl_lab.runs.spec import RunSpec
from icl_lab.training.loop import Progress

Say = Callable[[str], object]
MEASURED = ("grid.csv", "positions.csv", "errors.safetensors")


@dataclass(frozen=True)
class Run:
    """The folder of one training seed of one specification; with ``swap``, its test with another rule in the model."""

    folder: Path
    spec: RunSpec
    seed: int
    swap: str = ""
    layer: Layer | None = field(default=None, compare=False, repr=False)

    @property
    def key(self) -> str:
        """The folder below ``runs/``: ``<task>/<rule>/<preset>-<hash>/seed-<k>``, the run's name in the evidence."""
        return "/".join(self.folder.parts[-4:])

    @property
    def kept(self) -> Kept | None:
        """The run as the evidence layer holds it, where the folder has neither weights nor a grid; else None."""
        if self.layer is None or any((place / name).exists() for place, name in self._results()):
            return None
        return self.layer.run(self.key)

    @property
    def name(self) -> str:
        """The rule, or ``rule->the other rule``."""
        return f"{self.spec.attn}->{self.swap}" if self.swap else self.spec.attn

    @property
    def labels(self) -> dict[str, Any]:
        """What a row of any grid says of the run that it comes from."""
        return {"task": self.spec.task, "preset": self.spec.preset, "spec": self.spec.hash, "seed": self.seed}

    @property
    def place(self) -> Path:
        """The folder of what was measured: the run's own, or one inside it for a test with another rule."""
        return self.folder / f"swap-{filename(self.swap)}" if self.swap else self.folder

    @property
    def finished(self) -> bool:
        """Whether the grid is there."""
        return self._has("grid.csv", self.place)

    def swapped(self, rule: str) -> "Run":
        """Returns the test of the same training with another rule."""
        return replace(self, swap=rule)

    @property
    def trained(self) -> bool:
        """Whether the trained model is there (the evidence holds the weights of few runs)."""
        return self._has("model.safetensors", self.folder)

    @contextmanager
    def locked(self, say: Say, stopping: Callable[[], bool] = lambda: False) -> Iterator[None]:
        """Holds the run for this process; a second process says that it waits, and then waits.

        A run whose model is read from the evidence needs no lock: nothing about it will be written. Raises ``Stopped``
        when ``stopping()`` turns true while it waits.
        """
        if self.kept is not None and self.trained:
            yield
            return
        with _writing(self.folder):
            self.folder.mkdir(parents=True, exist_ok=True)
            lock = FileLock(self.folder / ".lock")
            if not _taken(lock, 0):
                say(f"another process is working on {self.folder}; waiting for it.")
                while not _taken(lock, 0.5):
                    if stopping():
                        raise Stopped("stopped while waiting for another process.")
        try:
            yield
        finally:
            lock.release()

    def begin(self) -> None:
        """Writes the specification; raises ``RunFailed`` if the folder holds another one."""
        if self.kept is not None and self.trained:  # read from the evidence
            return
        path = self.folder / "spec.json"
        if not path.exists():
            self._describe()
        elif _spec(path.read_bytes(), path) != self.spec:
            raise RunFailed(f"{path} holds another specification than its folder's name says; move the folder away.")

    def clear(self) -> None:
        """Removes what a run leaves, so that it is done afresh."""
        for name in (*MEASURED, "model.safetensors"):
            (self.folder / name).unlink(missing_ok=True)
        checkpoints.remove(self.folder)
        for path in self.folder.glob("swap-*/grid.csv"):  # measured in a model that is no more
            path.unlink()

    def keep(self, model: GPT2, progress: Progress) -> None:
        """Publishes a checkpoint; the one before it stays until the next."""
        with _writing(self.folder):
            checkpoints.keep(self.folder, self._owner, model, progress)

    def resume(self, model: GPT2, say: Say) -> Progress:
        """Loads the newest whole checkpoint of this run into ``model``, and says where it goes on."""
        return checkpoints.resume(self.folder, self._owner, model, say)

    @property
    def _owner(self) -> str:
        """What a checkpoint says of the run that it belongs to."""
        return f"{self.spec.task} {self.spec.attn} {self.spec.hash} seed {self.seed}"

    def keep_model(self, model: GPT2, history: list[dict[str, float]], env: Mapping[str, Any]) -> None:
        """Publishes the history, the environment and, last of the three, the trained weights."""
        with _writing(self.folder):
            text = io.StringIO()
            # A rule that was swapped in on the way has parameters of its own.
            columns = dict.fromkeys(name for row in history for name in row)
            writer = csv.DictWriter(text, list(columns), restval="", lineterminator="\n")
            writer.writeheader()
            writer.writerows(history)
            publish(self.folder / "history.csv", text.getvalue().encode())
            with tempfile.TemporaryDirectory(dir=self.folder, prefix=".model-") as place:
                path = Path(place) / "model.safetensors"
                save_model(model, str(path))
                data = path.read_bytes()
            publish(self.folder / "env.json", _json({**env, "model_sha256": hashlib.sha256(data).hexdigest()}).encode())
            publish(self.folder / "model.safetensors", data)
            checkpoints.remove(self.folder)

    def reuse_weights(self, say: Say) -> None:
        """Takes over the model of a finished training that differs in nothing but the test grid, if there is one."""
        mine = msgspec.structs.replace(self.spec, test=None, preset="")
        for where, other, read in self._siblings(say):
            if msgspec.structs.replace(other, test=None, preset="") == mine:
                with _writing(self.folder):
                    for name in ("history.csv", "env.json", "model.safetensors"):
                        publish(self.folder / name, read(name))
                say(f"takes the model of {where}, which was trained alike.")
                return

    def _siblings(self, say: Say) -> Iterator[tuple[Path, RunSpec, Callable[[str], bytes]]]:
        """Yields the trained runs of the same rule and seed, the folder's first: where, what, and what reads a file."""
        for path in sorted(self.folder.parent.parent.glob(f"*/{self.folder.name}/spec.json")):
            try:
                spec = _spec(path.read_bytes(), path)
            except RunFailed as reason:  # none to take from
                say(str(reason))
                continue
            if path.with_name("model.safetensors").exists():
                yield path.parent, spec, lambda name, folder=path.parent: (folder / name).read_bytes()  # type: ignore[misc]
        for kept in self.layer.siblings(self.key) if self.layer is not None else ():
            if "model.safetensors" in kept:
                yield kept.path, _spec(kept.read("spec.json"), kept.path), kept.read

    def load_model(self, model: GPT2) -> None:
        """Loads the trained weights; raises ``RunFailed`` if the file is damaged or altered."""
        try:
            stored, own = load(self.check_weights()), model.state_dict(keep_vars=True)
            # A parameter that layers share is stored once, under one of its names.
            first = {id(p): stored[name] for name, p in own.items() if name in stored}
            model.load_state_dict({name: first[id(p)] for name, p in own.items() if id(p) in first} | stored)
        except (SafetensorError, RuntimeError) as error:
            raise RunFailed(f"{self.folder / 'model.safetensors'} does not fit its specification: {error}") from error

    def check_weights(self) -> bytes:
        """Returns the file of the weights; raises ``RunFailed`` unless it has the hash that ``env.json`` names."""
        path, data = self.folder / "model.safetensors", self._read("model.safetensors", self.folder)
        if hashlib.sha256(data).hexdigest() != self.env()["model_sha256"]:
            raise RunFailed(
                f"{path} is damaged or altered (its hash is not that of env.json); repeat the run with --force."
            )
        return data

    def env(self) -> dict[str, Any]:
        """Returns what ``env.json`` holds: versions, device, threads, commit, time, the hash of the weights."""
        path = self.folder / "env.json"
        try:
            return dict(json.loads(self._read("env.json", self.folder)))
        except (OSError, ValueError) as error:
            raise RunFailed(f"{path} cannot be read: {error}; repeat the run with --force.") from error

    def history(self) -> list[dict[str, float]]:
        """Returns the rows of ``history.csv``."""
        text = self._read("history.csv", self.folder).decode()
        return [{key: float(value) for key, value in row.items() if value} for row in csv.DictReader(text.splitlines())]

    def finish(self, grid: Grid, positions: Grid, errors: Errors) -> None:
        """Publishes what was measured; ``grid.csv`` is written last, and from then on the run is finished."""
        with _writing(self.folder):
            if not (self.folder / "spec.json").exists():  # the model came from the evidence
                self._describe()
            if errors.cells:
                publish(self.place / "errors.safetensors", save(errors.tensors()))
            publish(self.place / "positions.csv", positions.csv().encode())
            publish(self.place / "grid.csv", grid.csv().encode())

    def grid(self) -> Grid:
        """Returns the finished grid; raises ``RunFailed`` if it is damaged, cut short, or that of another run."""
        path = self.place / "grid.csv"
        try:
            grid = Grid.read(self._read("grid.csv", self.place).decode())
        except (OSError, ValueError, KeyError) as error:
            raise RunFailed(f"{path} cannot be read: {error}; repeat the run with --force.") from error
        checks.labels(grid, {**self.labels, "attn": self.name}, self.spec.test, path)
        return grid

    def errors(self) -> Errors | None:
        """Returns what each test prompt adds to the headline metric; None where that was not kept."""
        path = self.place / "errors.safetensors"
        if not self._has("errors.safetensors", self.place):
            return None
        try:
            return Errors.of(load(self._read("errors.safetensors", self.place)))
        except (OSError, SafetensorError, KeyError, ValueError) as error:
            raise RunFailed(f"{path} cannot be read: {error}; repeat the run with --force.") from error

    def measured(self) -> tuple[Grid, Errors | None]:
        """Returns the grid and the errors; raises ``RunFailed`` unless each cell is the mean of its errors."""
        grid, errors = self.grid(), self.errors()
        if errors is not None:
            checks.means(grid, errors, self.name, tasks.build(self.spec.task).headline, self.place / "grid.csv")
        return grid, errors

    def _describe(self) -> None:
        publish(self.folder / "spec.json", _json(self.spec.whole()).encode())

    def _results(self) -> Iterator[tuple[Path, str]]:
        """What makes a run the user's own: weights or a grid."""
        yield self.folder, "model.safetensors"
        yield self.folder, "grid.csv"
        if self.swap:
            yield self.place, "grid.csv"

    def _has(self, name: str, place: Path) -> bool:
        kept = self.kept
        return (place / name).exists() if kept is None else self._inside(name, place) in kept

    def _read(self, name: str, place: Path) -> bytes:
        kept = self.kept
        return (place / name).read_bytes() if kept is None else kept.read(self._inside(name, place))

    def _inside(self, name: str, place: Path) -> str:
        return (place / name).relative_to(self.folder).as_posix()


@dataclass(frozen=True)
class Store:
    """A results folder, and the evidence that stands in for runs that it does not hold; without ``layer`` none does."""

    root: Path
    layer: Layer | None = None

    def run(self, spec: RunSpec, seed: int, swap: str = "") -> Run:
        """Returns the place of a run, whether or not it is there yet."""
        return Run(self.folder(spec) / f"seed-{seed}", spec, seed, swap, self.layer)

    def folder(self, spec: RunSpec) -> Path:
        """Returns the folder that holds all seeds of a specification."""
        return self.root / "runs" / filename(spec.task) / filename(spec.attn) / f"{spec.preset}-{spec.hash}"

    def seeds(self, spec: RunSpec) -> list[int]:
        """Returns the seeds of a specification that have begun, or that the evidence holds, in order."""
        folder = self.folder(spec)
        found = {_seed(path.parent) for path in folder.glob("seed-*/spec.json")}
        if self.layer is not None:
            found |= {_seed(folder / key) for key in self.layer.seeds("/".join(folder.parts[-3:]))}
        return sorted(seed for seed in found if seed is not None)

    def has(self, preset: str) -> bool:
        """Whether a run of this preset has begun here, or is held by the evidence."""
        own = any(self.root.glob(f"runs/*/*/{preset}-*/seed-*"))
        return own or (self.layer is not None and any(f"/{preset}-" in kept.key for kept in self.layer.runs()))

    def at(self, place: Path) -> Run:
        """Returns the run in a folder ``.../seed-K``; raises ``UnknownName`` with the nearest runs there are.

        Raises it too where the run's task or rule is not known here, with the import that the run was made with, and
        ``RunFailed`` where the specification inside is not the one that the folder is named after.
        """
        seed, path = _seed(place), place / "spec.json"
        kept = self.layer.run("/".join(place.parts[-4:])) if self.layer and not path.exists() else None
        if seed is None or not (path.exists() or kept):
            there = [str(run.folder) for run in self.runs()]
            raise UnknownName("run", str(place), get_close_matches(str(place), there, n=5, cutoff=0))
        spec = _spec(kept.read("spec.json") if kept else path.read_bytes(), path)
        checks.folder(spec, place)
        provenance.require(spec, place)
        return Run(place, spec, seed, layer=self.layer)

    def runs(self, say: Say | None = None) -> Iterator[Run]:
        """Yields every run that has begun, then those that only the evidence holds.

        Raises ``RunFailed`` where a specification cannot be read or has another hash than its folder; with ``say`` such
        a folder, or one that is called otherwise, is named and passed over.
        """
        seen = set[str]()
        for path in sorted(self.root.glob("runs/*/*/*/seed-*/spec.json")):
            try:
                run = self._begun(path)
            except RunFailed as reason:
                if say is None:
                    raise
                say(str(reason))
                continue
            seen.add(run.key)
            yield run
        for kept in self.layer.runs() if self.layer is not None else ():
            if kept.key not in seen:
                place = self.root / "runs" / kept.key
                yield Run(place, _spec(kept.read("spec.json"), kept.path), _seed(place) or 0, layer=self.layer)

    def study(self, folder: Path) -> Path:
        """Returns the folder of a study: this one, or where it is missing the repository's study of the same name."""
        if self.layer is None or folder.exists() or not folder.is_relative_to(self.root):
            return folder
        other = self.layer.root.parent / folder.relative_to(self.root)
        return other if other.exists() else folder

    def _begun(self, path: Path) -> Run:
        seed = _seed(path.parent)
        if seed is None:
            raise RunFailed(f"{path.parent} is not called seed-K as the folder of a run is; move it away.")
        spec = _spec(path.read_bytes(), path)
        checks.folder(spec, path.parent)
        return Run(path.parent, spec, seed, layer=self.layer)


def _seed(folder: Path) -> int | None:
    """Returns the K of a folder ``seed-K``; None for another name."""
    word, _, number = folder.name.partition("-")
    return int(number) if word == "seed" and number.isascii() and number.isdigit() else None


@contextmanager
def _writing(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise RunFailed(f"{folder} cannot be written: {error.strerror or error}.") from error


def _spec(data: bytes, path: Path) -> RunSpec:
    try:
        return msgspec.json.decode(data, type=RunSpec)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise RunFailed(f"{path} cannot be read: {error}; move the folder away.") from error


def _taken(lock: FileLock, seconds: float) -> bool:
    try:
        lock.acquire(timeout=seconds)
    except Timeout:
        return False
    return True


def _json(fields: Mapping[str, Any]) -> str:
    return json.dumps(fields, indent=1, sort_keys=True) + "\n"
