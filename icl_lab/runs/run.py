"""The folder of a run, and all that is written there and read from it.

    results/runs/<task>/<attn>/<preset>-<hash>/seed-<k>/
      spec.json  env.json  history.csv  model.safetensors  positions.csv  errors.safetensors
      manifest.json (size and checksum of each)  grid.csv (last: its presence means finished)
      swap-<attn>/ (test with another normalizer in the model, with its manifest)

Each file is written to a temporary file and moved in one step, so that no file is partial; it is checked against the
manifest whenever it is read, so that no result is used that was not measured.

A folder without results may be stood for by a copy, which is only read: files missing in it, such as weights, are made
in the folder.
"""

import json
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import torch
from safetensors import SafetensorError
from safetensors.torch import load
from torch import Tensor

from icl_lab import tasks
from icl_lab.base import foreign
from icl_lab.base.errors import Diverged, LabError, RunFailed
from icl_lab.base.files import publish, reading, sha256, writing
from icl_lab.base.grid import Grid
from icl_lab.base.registry import filename
from icl_lab.model.bound import LAST, answer_bound
from icl_lab.model.gpt2 import GPT2
from icl_lab.runs import checkpoints, checks, environment, lock, manifest, run_files, status
from icl_lab.runs.checkpoints import Differs
from icl_lab.runs.lock import Say
from icl_lab.runs.manifest import MADE_BY as MADE_BY
from icl_lab.runs.manifest import MEASURED_BY, SPEC, WAY_OUT, WEIGHTS
from icl_lab.runs.measure import Errors
from icl_lab.runs.run_files import RunFiles, RunFolder, decode_history, encode_history, encode_weights
from icl_lab.runs.spec import RunSpec
from icl_lab.runs.store import seed_of
from icl_lab.training.loop import Progress

REPLACED = ".replaced"  # what --retrain sets aside until the run is finished again
READ_OUT = "read-out.safetensors"  # of the evidence: the parameters that bound the answers, where weights are not kept
DIVERGED = "diverged"  # of env.json: why the model is missing
TRAINED = ("history.csv", "env.json", WEIGHTS)
MEASURED = (MEASURED_BY, "errors.safetensors", "positions.csv", "grid.csv")

# All that parsers and torch raise on a text or on tensors that say something impossible.
MISFIT = (ValueError, TypeError, LookupError, ArithmeticError, AttributeError, RuntimeError, SafetensorError)

Content = TypeVar("Content")


@dataclass(frozen=True)
class Run:
    """The folder of one training seed of one specification; with ``swap``, its test with another normalizer."""

    folder: Path
    spec: RunSpec
    seed: int
    swap: str = ""
    copy: RunFiles | None = field(default=None, compare=False, repr=False)  # read while the folder has no results

    @property
    def key(self) -> str:
        """The folder below ``runs/``: ``<task>/<attn>/<preset>-<hash>/seed-<k>``, its name in an archive too."""
        return "/".join(self.folder.parts[-4:])

    @property
    def files(self) -> RunFiles:
        """Source of the run's files: its folder, or the copy where the folder has neither weights nor a grid."""
        own = RunFolder(self.folder)
        if self.copy is None:
            return own
        results = (WEIGHTS, "grid.csv", self.below("grid.csv"))
        # For thousands of runs: most copies have no folder, and what the folder has needs no copy.
        if own.path.exists() and any(name in own for name in results):
            return own
        return self.copy if SPEC in self.copy else own

    @property
    def copied(self) -> bool:
        """True if the run is not the user's own, but read from a copy."""
        return self.files is self.copy

    def below(self, name: str) -> str:
        """Name, below the run's folder, of a file of measurements."""
        return f"{self.place.name}/{name}" if self.swap else name

    @property
    def name(self) -> str:
        """The normalizer, or ``normalizer->the other normalizer``."""
        return f"{self.spec.attn}->{self.swap}" if self.swap else self.spec.attn

    @property
    def training(self) -> tuple[str, int]:
        """Key of the training: runs that share it differ in their test, or in the normalizer put in for it, alone."""
        return self.spec.training.hash, self.seed

    @property
    def labels(self) -> dict[str, Any]:
        """Label columns of the run in every grid."""
        return {"task": self.spec.task, "preset": self.spec.preset, "spec": self.spec.hash, "seed": self.seed}

    @property
    def place(self) -> Path:
        """The folder of the measurements: the run's, or one inside it for a test with another normalizer."""
        return self.folder / f"swap-{filename(self.swap)}" if self.swap else self.folder

    @property
    def finished(self) -> bool:
        """True if the grid is there."""
        return self.below("grid.csv") in self.files

    def swapped(self, normalizer: str) -> "Run":
        """Return the test of the same training with another normalizer."""
        return replace(self, swap=normalizer)

    @property
    def trained(self) -> bool:
        """True if the trained model is there (a copy may be without)."""
        return WEIGHTS in self.files

    def done(self, tested: bool, models: bool) -> bool:
        """True if the wanted parts of the run exist: its test, its model where it has one, or both."""
        return (self.finished or not tested) and (self.trained or bool(self.diverged) or (tested and not models))

    @property
    def recorded(self) -> bool:
        """True if the history of its training is there."""
        return "history.csv" in self.files

    @property
    def diverged(self) -> str:
        """Why its training has no model, where its loss was no finite number; else empty."""
        if self.trained or "env.json" not in self.files:
            return ""
        return str(self.env().get(DIVERGED, ""))

    @contextmanager
    def locked(self, say: Say, stopping: Callable[[], bool] = lambda: False) -> Iterator[None]:
        """Hold the run for this process; a second process says that it waits, and then waits.

        A run whose model is read from a copy, or from a folder that cannot be written, needs no lock: nothing about it
        will be written. Raises ``Stopped`` when ``stopping()`` turns true while it waits.
        """
        if self.copied and self.trained:
            yield
            return
        with lock.lock_folder(self.folder, say, stopping, needless=self.trained) as sure:
            if sure:
                written = (SPEC, *TRAINED, *MEASURED, manifest.NAME, *checkpoints.NAMES, status.NAME)
                lock.remove_stale(self.folder, written)
                (self.folder / status.NAME).unlink(missing_ok=True)  # of a process that was killed
                if (self.folder / WEIGHTS).exists():  # so is a checkpoint of a training that is over
                    checkpoints.remove(self.folder)
            yield

    def begin(self) -> None:
        """Write the specification; raises ``RunFailed`` if the folder holds another one, ``Diverged`` if it did."""
        if self.copied and self.trained:
            return
        path = self.folder / SPEC
        with writing(self.folder):
            self._describe()
        if read_spec(path) != self.spec:
            raise RunFailed(f"{path} holds another specification than its folder's name says; move the folder away.")
        if self.diverged:
            raise Diverged(self.diverged)

    def clear(self) -> None:
        """Remove what a run leaves, so that it is done afresh; a finished one is kept aside till then.

        Its place is ``.replaced`` meanwhile, see ``forget_replaced``.
        """
        aside = self.folder / REPLACED
        if (self.folder / "grid.csv").exists():
            self.forget_replaced()
            aside.mkdir()
            # The grid first: without it the run counts as unfinished.
            for name in (*reversed(MEASURED), manifest.NAME, "model.safetensors", "env.json", "history.csv"):
                if (self.folder / name).exists():
                    (self.folder / name).replace(aside / name)
        for name in (*MEASURED, manifest.NAME, *TRAINED):
            (self.folder / name).unlink(missing_ok=True)
        checkpoints.remove(self.folder)
        for path in self.folder.glob("swap-*/grid.csv"):  # measured in a model that was replaced
            path.unlink()

    def forget_replaced(self) -> None:
        """Remove the finished run that was set aside when this one was done afresh."""
        shutil.rmtree(self.folder / REPLACED, ignore_errors=True)

    def keep(self, model: GPT2, progress: Progress, made_by: Mapping[str, Any] | None = None) -> None:
        """Publish a checkpoint with the record of what trains; the one before it stays until the next."""
        with writing(self.folder):
            checkpoints.keep(self.folder, self._owner, model, progress, made_by)

    def resume(self, model: GPT2, say: Say, differs: Differs = lambda made_by, path: ()) -> Progress:
        """Load the newest whole checkpoint of this run into ``model``, and say where it goes on.

        ``differs`` says how its record differs from the code that is here: such a checkpoint is left aside.
        """
        return checkpoints.resume(self.folder, self._owner, model, self.spec.train, say, differs)

    @property
    def checkpoint_step(self) -> int:
        """Step from which training would go on: that of its newest whole checkpoint, 0 without one."""
        return checkpoints.step(self.folder)

    @property
    def _owner(self) -> str:
        """Owner of a checkpoint, as it is written in it."""
        return f"{self.spec.task} {self.spec.attn} {self.spec.hash} seed {self.seed}"

    def keep_divergence(self, reason: Diverged, env: Mapping[str, Any]) -> None:
        """Publish that the training diverged, and its history up to then; no model is kept."""
        about = _json({**env, DIVERGED: str(reason)}).encode()
        self.publish_trained({"history.csv": encode_history(reason.history), "env.json": about})

    def keep_model(self, model: GPT2, history: list[dict[str, float]], env: Mapping[str, Any]) -> None:
        """Publish the history, the environment and, last of the three, the trained weights."""
        data = encode_weights(model)
        about = _json({**env, "model_sha256": sha256(data)})
        self.publish_trained({"history.csv": encode_history(history), "env.json": about.encode(), WEIGHTS: data})

    def publish_trained(self, files: Mapping[str, bytes]) -> None:
        """Publish what a training left, in the order of ``TRAINED``."""
        with writing(self.folder):
            self._describe()  # the folder may have been removed meanwhile
            manifest.note(self.folder, files, over=TRAINED, before=[SPEC])
            for name, data in files.items():
                publish(self.folder / name, data)
            checkpoints.remove(self.folder)

    def load_model(self, model: GPT2) -> None:
        """Load the trained weights; raises ``RunFailed`` if the file is damaged or altered."""
        stored, own = self._decoded(WEIGHTS, load), model.state_dict(keep_vars=True)
        try:
            # A parameter that layers share is stored once, under one of its names.
            first = {id(p): stored[name] for name, p in own.items() if name in stored}
            model.load_state_dict({name: first[id(p)] for name, p in own.items() if id(p) in first} | stored)
        except RuntimeError as error:
            raise RunFailed(f"{self.folder / 'model.safetensors'} does not fit its specification: {error}") from error

    def last_parameters(self) -> dict[str, Tensor] | None:
        """Return the parameters of the final norm and the read-out; None where no weights are kept.

        Raises ``RunFailed`` where a file is damaged.
        """
        if self.trained:
            stored = self._decoded(WEIGHTS, load)
            return {name: stored[name] for name in LAST if name in stored}
        return self._decoded(READ_OUT, load) if READ_OUT in self.files else None

    def answer_bound(self) -> tuple[Tensor, Tensor] | None:
        """Return centre and bound of the answers (``model/bound.py``); None where the parameters are not kept."""
        last = self.last_parameters()
        return None if last is None else answer_bound(last, self.spec.model.norm_before_read_out)

    def bound(self, history: Sequence[Mapping[str, float]] | None = None) -> float | None:
        """Return C, the largest over the outputs; infinity without a final norm, None where it is not kept.

        Without the parameters it is what the history logged after the last step, unless a moving average was tested. A
        ``history`` that is given is not read again.
        """
        if (known := self.answer_bound()) is not None:
            return float(known[1].max())
        if self.spec.train.ema:
            return None
        if history is None:
            history = self.history() if "history.csv" in self.files else []
        return history[-1].get("bound") if history and history[-1]["step"] == self.spec.train.steps else None

    def env(self) -> dict[str, Any]:
        """Return what ``env.json`` holds: versions, device, threads, commit, time, the hash of the weights."""
        return self._decoded("env.json", lambda data: dict(json.loads(foreign.shallow(data))))

    def history(self) -> list[dict[str, float]]:
        """Return the rows of ``history.csv``."""
        return self._decoded("history.csv", decode_history)

    def finish(self, grid: Grid, positions: Grid, errors: Errors, measured_by: Mapping[str, Any] | None = None) -> None:
        """Write test results; ``grid.csv`` is written last, and from then on the run is finished."""
        kept = {MEASURED_BY: _json(measured_by).encode()} if measured_by else {}
        kept |= {"errors.safetensors": errors.encoded()} if errors.cells else {}
        files = {**kept, "positions.csv": positions.csv().encode(), "grid.csv": grid.csv().encode()}
        self.publish_measured({self.below(name): data for name, data in files.items()})

    def publish_measured(self, files: Mapping[str, bytes]) -> None:
        """Write test results, by names below the run's folder, in the order of ``MEASURED``; leave other files.

        Of the run itself and, below ``swap-<attn>/``, of its tests with other normalizers.
        """
        places = {Path(name).parent for name in files if Path(name).name in MEASURED}
        with writing(self.folder):
            self._describe()  # where the model came from a copy, or the folder vanished meanwhile
            for place in sorted(places):
                here = {name: files[path] for name in MEASURED if (path := (place / name).as_posix()) in files}
                own = place == Path()
                manifest.note(self.folder / place, here, over=MEASURED, before=(SPEC, *TRAINED) if own else ())
                for name, data in here.items():
                    publish(self.folder / place / name, data)

    def grid(self) -> Grid:
        """Return the finished grid; raises ``RunFailed`` if it is damaged, cut short, or that of another run."""
        name, files = self.below("grid.csv"), self.files
        columns = files.cells(name)
        grid = (
            self._decoded(name, lambda data: Grid.read(data.decode())) if columns is None else Grid.of_columns(columns)
        )
        checks.labels(grid, {**self.labels, "attn": self.name}, self.spec.test, self.place / "grid.csv")
        return grid

    def errors(self) -> Errors | None:
        """Return what each test prompt adds to the headline metric; None where that was not kept."""
        name, files = self.below("errors.safetensors"), self.files
        if (kept := files.prompts(name)) is not None:
            return Errors.of(torch.from_numpy(kept[0]), kept[1])
        data = files.find(name)
        return None if data is None else self._decoded(name, Errors.decoded, data)

    def checksums(self) -> list[str]:
        """Return SHA-256 of the grid and of the errors that are kept, as they stand; of a finished run."""
        sums = [self.files.checksum(self.below(name)) for name in ("grid.csv", "errors.safetensors")]
        return [each for each in sums if each is not None]

    def measured(self) -> tuple[Grid, Errors | None]:
        """Return the grid and the errors; raises ``RunFailed`` unless each cell is the mean of its errors."""
        grid, errors = self.grid(), self.errors()
        if errors is not None:
            headline, path = tasks.build(self.spec.task).headline, self.place / "grid.csv"
            checks.means(grid, errors, self.name, headline, path, all_cells=not self.copied)
        return grid, errors

    def _describe(self) -> None:
        if not (self.folder / SPEC).exists():
            publish(self.folder / SPEC, _json(self.spec.whole()).encode())

    def read(self, name: str) -> bytes:
        """Return a file by its name below the run's folder, as it was written.

        Raises ``RunFailed`` where it is missing, damaged or edited.
        """
        return run_files.read(self.files, name)

    def _decoded(self, name: str, decode: Callable[[bytes], Content], data: bytes | None = None) -> Content:
        with reading(self.folder / name, WAY_OUT, *MISFIT):
            return decode(self.read(name) if data is None else data)


def read_spec(path: Path) -> RunSpec:
    """Read the file of a specification; raises ``RunFailed`` where it cannot be read or is none."""
    try:
        return parse_spec(foreign.read(path, foreign.MOST_TEXT), path)
    except OSError as error:
        raise RunFailed(f"{path} cannot be read: {error.strerror or error}; move the folder away.") from error


def parse_spec(data: bytes, path: Path) -> RunSpec:
    """Return the specification that a file holds; raises ``RunFailed`` where it is none.

    The axes of its test come in the task's order, as in the specification that was written, so that a test which is
    repeated from the file has the same rows in the same order.
    """
    with reading(path, "move the folder away", msgspec.DecodeError, ValueError):
        spec = msgspec.json.decode(foreign.shallow(data), type=RunSpec)
    try:
        # Not by ``axes``, whose values may take a file of the user's: who lists runs opens none.
        order = [*tasks.build(spec.task).training, "length", *spec.test.axes]
    except LabError:  # a task that is not here; whoever needs it says so
        return spec
    axes = {axis: spec.test.axes[axis] for axis in order if axis in spec.test.axes}
    return msgspec.structs.replace(spec, test=msgspec.structs.replace(spec.test, axes=axes))


def opened(place: Path) -> Run:
    """Return the run that a folder of any name holds, such as one that was published.

    Its seed is the K of a folder ``seed-K``, and that of its grid otherwise. Raises ``RunFailed`` where the folder
    holds no run or its files are not those of one, and ``UnknownName`` where the task or the normalizer is not known
    here.
    """
    spec, seed = read_spec(place / SPEC), seed_of(place)
    run = Run(place, spec, _seed_in(RunFolder(place)) if seed is None else seed)
    run.read(SPEC)  # as the manifest says
    environment.require_parts(spec, place)
    if run.finished:
        run.grid()
    return run


def _seed_in(files: RunFiles) -> int:
    """Seed in a run's grid; raises ``RunFailed`` where there is none."""
    if (name := "grid.csv") not in files:
        raise RunFailed(f"{files.path} does not say its seed: it is not called seed-K, and holds no {name}.")
    with reading(files.path / name, WAY_OUT, *MISFIT):
        seed = Grid.read(run_files.read(files, name).decode()).frame["seed"].tolist()[0]
        if not isinstance(seed, int) or seed < 0:
            raise ValueError(f"its seed is {seed}")
        return seed


def _json(fields: Mapping[str, Any]) -> str:
    return json.dumps(fields, indent=1, sort_keys=True) + "\n"
