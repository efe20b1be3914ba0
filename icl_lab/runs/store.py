"""What ``results/`` looks like, and nothing else knows it.

    results/runs/<task>/<attn>/<preset>-<hash>/seed-<k>/
      spec.json  env.json  history.csv  model.safetensors  positions.csv  errors.safetensors
      grid.csv (last: its presence means finished)

Each file is written beside its place and moved there in one step, so that what stands under a name is whole.
"""

import csv
import hashlib
import io
import json
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import msgspec
import torch
from filelock import FileLock, Timeout
from safetensors import SafetensorError
from safetensors.torch import load, load_model, save, save_model

from icl_lab.errors import RunFailed, Stopped, UnknownName
from icl_lab.files import publish
from icl_lab.grid import Grid
from icl_lab.model.gpt2 import GPT2
from icl_lab.registry import filename
from icl_lab.runs import provenance
from icl_lab.runs.measure import Errors
from icl_lab.runs.spec import RunSpec
from icl_lab.training.loop import Progress

Say = Callable[[str], object]
MEASURED = ("grid.csv", "positions.csv", "errors.safetensors")
CHECKPOINTS = ("checkpoint.pt", "checkpoint-before.pt")  # the last, and the one before it


@dataclass(frozen=True)
class Run:
    """The folder of one training seed of one specification; with ``swap``, its test with another rule in the model."""

    folder: Path
    spec: RunSpec
    seed: int
    swap: str = ""

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
        return (self.place / "grid.csv").exists()

    def swapped(self, rule: str) -> "Run":
        """Returns the test of the same training with another rule."""
        return replace(self, swap=rule)

    @property
    def trained(self) -> bool:
        """Whether the trained model is there (git keeps the weights of few runs)."""
        return (self.folder / "model.safetensors").exists()

    @contextmanager
    def locked(self, say: Say, stopping: Callable[[], bool] = lambda: False) -> Iterator[None]:
        """Holds the run for this process; a second process says that it waits, and then waits.

        Raises ``Stopped`` when ``stopping()`` turns true while it does.
        """
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
        path = self.folder / "spec.json"
        if not path.exists():
            publish(path, _json(self.spec.whole()).encode())
        elif _spec(path) != self.spec:
            raise RunFailed(f"{path} holds another specification than its folder's name says; move the folder away.")

    def clear(self) -> None:
        """Removes what a run leaves, so that it is done afresh."""
        for name in (*MEASURED, "model.safetensors", *CHECKPOINTS):
            (self.folder / name).unlink(missing_ok=True)
        for path in self.folder.glob("swap-*/grid.csv"):  # measured in a model that is no more
            path.unlink()

    def keep(self, model: GPT2, progress: Progress) -> None:
        """Publishes a checkpoint; the one before it stays until the next."""
        with io.BytesIO() as buffer:
            torch.save({"attn": model.attn, "model": model.state_dict(), **asdict(progress)}, buffer)
            data = buffer.getvalue()
        last, before = (self.folder / name for name in CHECKPOINTS)
        with _writing(self.folder):
            if last.exists():
                last.replace(before)
            publish(last, hashlib.sha256(data).digest() + data)

    def resume(self, model: GPT2, say: Say) -> Progress:
        """Loads the newest whole checkpoint into ``model``, and says where it goes on; without one, from step 0."""
        for name in CHECKPOINTS:
            path = self.folder / name
            if not path.exists():
                continue
            data = path.read_bytes()
            if hashlib.sha256(data[32:]).digest() != data[:32]:
                say(f"{path} is damaged and is left aside.")
                continue
            state: dict[str, Any] = torch.load(io.BytesIO(data[32:]), weights_only=True, map_location="cpu")
            if (attn := state.pop("attn")) != model.attn:  # training had switched rules by then
                model.swap_rule(attn)
            model.load_state_dict(state.pop("model"))
            progress = Progress(**state)
            say(f"goes on from step {progress.step} ({name}).")
            return progress
        if any((self.folder / name).exists() for name in CHECKPOINTS):
            say("no checkpoint is whole; starts from step 0.")
        return Progress()

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
            for name in CHECKPOINTS:
                (self.folder / name).unlink(missing_ok=True)

    def reuse_weights(self, say: Say) -> None:
        """Takes over the model of a finished training that differs in nothing but the test grid, if there is one."""
        mine = msgspec.structs.replace(self.spec, test=None, preset="")
        for path in sorted(self.folder.parent.parent.glob(f"*/{self.folder.name}/spec.json")):
            try:
                other = Run(path.parent, msgspec.json.decode(path.read_bytes(), type=RunSpec), self.seed)
            except msgspec.DecodeError:  # not a run that can be read, so none to take from
                continue
            if other.trained and msgspec.structs.replace(other.spec, test=None, preset="") == mine:
                with _writing(self.folder):
                    for name in ("history.csv", "env.json", "model.safetensors"):
                        publish(self.folder / name, (other.folder / name).read_bytes())
                say(f"takes the model of {other.folder}, which was trained alike.")
                return

    def load_model(self, model: GPT2) -> None:
        """Loads the trained weights; raises ``RunFailed`` if the file is damaged or altered."""
        path = self.folder / "model.safetensors"
        if hashlib.sha256(path.read_bytes()).hexdigest() != self.env()["model_sha256"]:
            raise RunFailed(
                f"{path} is damaged or altered (its hash is not that of env.json); repeat the run with --force."
            )
        try:
            load_model(model, str(path))
        except (SafetensorError, RuntimeError) as error:
            raise RunFailed(f"{path} does not fit its specification: {error}") from error

    def env(self) -> dict[str, Any]:
        """Returns what ``env.json`` holds: versions, device, threads, commit, time, the hash of the weights."""
        path = self.folder / "env.json"
        try:
            return dict(json.loads(path.read_text()))
        except (OSError, ValueError) as error:
            raise RunFailed(f"{path} cannot be read: {error}; repeat the run with --force.") from error

    def history(self) -> list[dict[str, float]]:
        """Returns the rows of ``history.csv``."""
        with (self.folder / "history.csv").open() as file:
            return [{key: float(value) for key, value in row.items() if value} for row in csv.DictReader(file)]

    def finish(self, grid: Grid, positions: Grid, errors: Errors) -> None:
        """Publishes what was measured; ``grid.csv`` is written last, and from then on the run is finished."""
        with _writing(self.folder):
            if errors.cells:
                publish(self.place / "errors.safetensors", save(errors.tensors()))
            publish(self.place / "positions.csv", positions.csv().encode())
            publish(self.place / "grid.csv", grid.csv().encode())

    def grid(self) -> Grid:
        """Returns the finished grid; raises ``RunFailed`` if the file is damaged."""
        path = self.place / "grid.csv"
        try:
            return Grid.read(path)
        except (OSError, ValueError, KeyError) as error:
            raise RunFailed(f"{path} cannot be read: {error}; repeat the run with --force.") from error

    def errors(self) -> Errors | None:
        """Returns what each test prompt adds to the headline metric; None where that was not kept."""
        path = self.place / "errors.safetensors"
        if not path.exists():
            return None
        try:
            return Errors.of(load(path.read_bytes()))
        except (SafetensorError, KeyError, ValueError) as error:
            raise RunFailed(f"{path} cannot be read: {error}; repeat the run with --force.") from error


@dataclass(frozen=True)
class Store:
    """A results folder."""

    root: Path

    def run(self, spec: RunSpec, seed: int, swap: str = "") -> Run:
        """Returns the place of a run, whether or not it is there yet."""
        return Run(self.folder(spec) / f"seed-{seed}", spec, seed, swap)

    def folder(self, spec: RunSpec) -> Path:
        """Returns the folder that holds all seeds of a specification."""
        return self.root / "runs" / filename(spec.task) / filename(spec.attn) / f"{spec.preset}-{spec.hash}"

    def seeds(self, spec: RunSpec) -> list[int]:
        """Returns the seeds of a specification that have begun, in order."""
        return sorted(
            int(path.parent.name.removeprefix("seed-")) for path in self.folder(spec).glob("seed-*/spec.json")
        )

    def at(self, place: Path) -> Run:
        """Returns the run in a folder ``.../seed-K``; raises ``UnknownName`` with the nearest runs there are.

        Raises it too where the run's task or rule is not known here, with the import that the run was made with.
        """
        if not (place / "spec.json").exists() or not place.name.startswith("seed-"):
            there = [str(run.folder) for run in self.runs()]
            raise UnknownName("run", str(place), get_close_matches(str(place), there, n=5, cutoff=0))
        spec = _spec(place / "spec.json")
        provenance.require(spec, place)
        return Run(place, spec, int(place.name.removeprefix("seed-")))

    def runs(self) -> Iterator[Run]:
        """Yields every run that has begun; raises ``RunFailed`` where a specification cannot be read."""
        for path in sorted(self.root.glob("runs/*/*/*/seed-*/spec.json")):
            yield Run(path.parent, _spec(path), int(path.parent.name.removeprefix("seed-")))


@contextmanager
def _writing(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise RunFailed(f"{folder} cannot be written: {error.strerror or error}.") from error


def _spec(path: Path) -> RunSpec:
    try:
        return msgspec.json.decode(path.read_bytes(), type=RunSpec)
    except msgspec.DecodeError as error:
        raise RunFailed(f"{path} cannot be read: {error}") from error


def _taken(lock: FileLock, seconds: float) -> bool:
    try:
        lock.acquire(timeout=seconds)
    except Timeout:
        return False
    return True


def _json(fields: Mapping[str, Any]) -> str:
    return json.dumps(fields, indent=1, sort_keys=True) + "\n"
