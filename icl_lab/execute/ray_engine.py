"""Runs as tasks of a Ray cluster. The door to Ray.

A task is stateless: it takes the files that there are of a run and returns those that it has made, so that nodes share
no disk with this machine, which alone writes the results folder and holds the run's lock. Ray itself repeats a task
whose node or process died, from the files that it was given.
"""

import hashlib
import importlib.metadata
import os
import signal
import socket
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

from icl_lab.base import outside
from icl_lab.base.errors import BadValue, Diverged, LabError, RunFailed, Stopped
from icl_lab.base.files import publish, write
from icl_lab.base.import_target import is_path
from icl_lab.base.version import PACKAGE, VERSION
from icl_lab.execute.parallel import RETRIES, Ending, WorkItem
from icl_lab.runs import manifest, reuse
from icl_lab.runs.checkpoints import NAMES as CHECKPOINTS
from icl_lab.runs.run import TRAINED, Run
from icl_lab.runs.status import Status

OFTEN = 2.0  # seconds between two words of a task, and two looks at them
PICTURES = (".png", ".svg", ".pdf")  # drawn where the results folder is
LAST = ("model.safetensors", "grid.csv")  # their presence says that all files written before them are whole
IMPORTED = 64 * 2**20  # bytes of a folder of outside parts, at most

Files = dict[str, bytes]  # names below a folder
Answer = tuple[Ending, Files, set[str]]  # files made, and the names of files removed


class Notes:
    """The actor on this machine's node: tasks note their progress, and read whether they are to stop."""

    def __init__(self) -> None:
        self._progress: dict[int, tuple[Status, str]] = {}
        self._stopping = False

    def note(self, number: int, status: Status, host: str) -> bool:
        """Note the progress of a task; returns whether it is to stop."""
        self._progress[number] = status, host
        return self._stopping

    def read(self) -> dict[int, tuple[Status, str]]:
        """Return progress and host name of each task."""
        return self._progress

    def stop(self) -> None:
        """Let every task end at its next step, with a checkpoint."""
        self._stopping = True


def execute(item: WorkItem, files: Files, parts: Files, version: str, number: int, notes: Any) -> Answer:
    """Do a run in scratch on a node of the same ``version``; return its ending, its files, and removed names."""
    if version != _version():
        return Ending("failed", f"{socket.gethostname()} has {_version()}; here it is {version}"), {}, set()
    report = _Report(number, notes)
    with tempfile.TemporaryDirectory(prefix="icl-lab-") as scratch:
        for name, data in parts.items():
            publish(Path(scratch) / "imports" / name, data)
        place = replace(item.where, results=Path(scratch) / "results")
        here = replace(item, where=place, imports=_imported_below(scratch, item.imports))
        folder = here.run().folder
        for name, data in files.items():
            publish(folder / name, data)
        try:
            here.execute(report.stopping, report.tick)
            ending = Ending("done")
        except Stopped as reason:
            ending = Ending("stopped", str(reason))
        except LabError as reason:
            ending = Ending("failed", str(reason))
        except Exception as reason:  # with its name, as a process says it
            ending = Ending("failed", f"{type(reason).__name__}: {reason}")
        written = files_of(folder)
        return (
            ending,
            {name: data for name, data in written.items() if files.get(name) != data},
            files.keys() - written.keys(),
        )


class _Report:
    """Progress report of a task to the notes; it waits for no answer."""

    def __init__(self, number: int, notes: Any) -> None:
        self._number, self._notes, self._host = number, notes, socket.gethostname()
        self._status, self._said, self._answer, self._stop = Status("train", 0, 0), -OFTEN, None, False

    def tick(self, stage: str, done: int, total: int, note: str) -> None:
        self._status = Status("train" if stage == "train" else "test", done, total)

    def stopping(self) -> bool:
        import ray

        if self._answer is not None and ray.wait([self._answer], timeout=0)[0]:
            self._stop, self._answer = self._stop or ray.get(self._answer), None
        if self._answer is None and time.monotonic() - self._said >= OFTEN:
            self._said, self._answer = time.monotonic(), self._notes.note.remote(self._number, self._status, self._host)
        return self._stop


class Cluster:
    """A Ray cluster that this process has joined: ``threads`` CPUs and ``gpus`` a run, ``jobs`` runs at once."""

    def __init__(self, ray: ModuleType, jobs: int, threads: int, gpus: float) -> None:
        self.jobs, self.ray = jobs, ray
        here = ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy(
            ray.get_runtime_context().get_node_id(), soft=False
        )
        self.notes = ray.remote(Notes).options(num_cpus=0, scheduling_strategy=here).remote()
        # One call a process: the parts from outside that it imports are those of one task.
        how = {"num_cpus": threads, "num_gpus": gpus, "max_retries": RETRIES, "max_calls": 1}
        self.task = ray.remote(**how)(execute)
        self._read, self._progress, self._number = -OFTEN, dict[int, tuple[Status, str]](), 0

    def start(self, item: WorkItem, slot: int) -> "RayTask | None":
        """Hand a run to the cluster; None where another process holds it just now."""
        held, run = ExitStack(), item.run()
        try:
            held.enter_context(run.locked(lambda text: None, lambda: True))
        except Stopped:  # as one that may not wait
            return None
        self._number += 1
        return RayTask(self, self._number, item, run, held)

    def progress(self) -> Mapping[int, tuple[Status, str]]:
        """Return progress and host name of each task, looked up every few seconds."""
        if time.monotonic() - self._read >= OFTEN:
            self._read = time.monotonic()
            self._progress = self.ray.get(self.notes.read.remote())
        return self._progress


class RayTask:
    """A run in the hands of the cluster; its lock is held here until its files are written."""

    def __init__(self, cluster: Cluster, number: int, item: WorkItem, run: Run, held: ExitStack) -> None:
        self._cluster, self._number, self._item, self._run, self._held = cluster, number, item, run, held
        self._end: Ending | None = Ending("done") if self._complete() else None
        if self._end is None:
            given = replace(item, where=replace(item.where, evidence=False))
            self._answer = cluster.task.remote(given, _present(run), _parts(), _version(), number, cluster.notes)
        else:  # by another process, meanwhile
            held.close()

    def ending(self) -> Ending | None:
        """Return how the task ended, once its files are written; None while it waits for room or works."""
        ray = self._cluster.ray
        if self._end is None and ray.wait([self._answer], timeout=0)[0]:
            try:
                self._keep(*ray.get(self._answer))
            except ray.exceptions.TaskCancelledError:
                self._end = Ending("stopped", "asked to stop")
            except ray.exceptions.RayError as error:
                self._end = Ending("killed", f"{_line(error)}; Ray has tried it {RETRIES + 1} times")
            except RunFailed as error:  # the files cannot be written
                self._end = Ending("failed", str(error))
            finally:
                self._held.close()
        return self._end

    def status(self) -> Status | None:
        """Return the progress that the task noted."""
        return self._cluster.progress().get(self._number, (None, ""))[0]

    def place(self) -> str:
        """Return the host name of its node."""
        return self._cluster.progress().get(self._number, (None, ""))[1]

    def stop(self) -> None:
        """Let it end at its next step; one that has not begun is taken back."""
        self._cluster.notes.stop.remote()
        if self._end is None and self.status() is None:
            self._cluster.ray.cancel(self._answer)

    def kill(self) -> None:
        """End the task at once."""
        if self._end is None:
            self._cluster.ray.cancel(self._answer, force=True)
            self._held.close()

    def _complete(self) -> bool:
        return self._run.done(self._item.tested, self._item.models)

    def _keep(self, ending: Ending, files: Files, gone: set[str]) -> None:
        """Write the files that the task has made, and remove obsolete ones: checkpoints, once the model exists."""
        for name, data in files.items():
            if name == manifest.NAME and self._run.copied:  # the model is the archive's, not copied here
                data = manifest.without(data, TRAINED)
            write(self._run.folder / name, data)
        for name in gone:
            (self._run.folder / name).unlink(missing_ok=True)
        whole = ending.state != "done" or self._complete()
        self._end = ending if whole else Ending("failed", "the task ended without all of its files")


def files_of(folder: Path) -> Files:
    """Return the files of a run but for pictures and hidden ones, in the order in which they were written."""
    dated = []
    for path in folder.rglob("*"):
        inner = path.relative_to(folder)
        hidden = any(part.startswith(".") for part in inner.parts)
        if not hidden and path.suffix not in PICTURES and path.name != CHECKPOINTS[1] and path.is_file():
            dated.append((path.name in LAST, path.stat().st_mtime_ns, inner.as_posix()))
    return {name: (folder / name).read_bytes() for _, _, name in sorted(dated)}


def _present(run: Run) -> Files:
    """The files that there are of a run, here or in the evidence."""
    with suppress(Diverged):  # it is only tested, as a model that answers nothing
        run.begin()
        if not run.trained:
            reuse.weights(run, lambda text: None)
    if run.copied and run.trained:  # without its specification, which is written here once anything is
        return {name: run.read(name) for name in sorted(run.files.names) if name != manifest.SPEC}
    other_swaps = [folder for folder in run.folder.glob("swap-*/") if folder != run.place]
    files = files_of(run.folder)
    return {name: data for name, data in files.items() if (run.folder / name).parent not in other_swaps}


def _parts() -> Files:
    """The files of plugins imported by a path; modules by name have to be installed on the nodes.

    Raises ``BadValue`` where a folder is too large to be sent.
    """
    parts: Files = {}
    for number, source in enumerate(outside.loaded()):
        path = Path(source.target)
        if not is_path(source.target):
            continue
        inner = [path] if path.is_file() else [file for file in sorted(path.rglob("*")) if _meant(file, path)]
        if sum(file.stat().st_size for file in inner) > IMPORTED:
            raise BadValue(f"--import {path}: more than {IMPORTED >> 20} MiB, too much to be sent to every node.")
        parts |= {f"{number}/{file.relative_to(path.parent).as_posix()}": file.read_bytes() for file in inner}
    return parts


def _meant(path: Path, root: Path) -> bool:
    parts = path.relative_to(root).parts
    return path.is_file() and not any(part.startswith(".") or part == "__pycache__" for part in parts)


def _imported_below(scratch: str, imports: Sequence[Mapping[str, object]]) -> list[Mapping[str, object]]:
    """The imports, with the paths that their files have on this node."""

    def moved() -> Iterator[Mapping[str, object]]:
        for number, order in enumerate(imports):
            target = str(order["target"])
            place = Path(scratch) / "imports" / str(number) / Path(target).name
            yield {**order, "target": str(place)} if is_path(target) else order

    return list(moved())


def join(address: str, jobs: int | None, threads: int, gpus: float) -> Cluster:
    """Join a cluster, or start one here (``local``); ``jobs`` bounds the runs at once.

    Raises ``BadValue`` in one line where Ray is not installed, no cluster answers, or one would be open to everybody.
    """
    # Whoever reaches an open cluster runs code on it: https://github.com/advisories/GHSA-gx77-xgc2-4888
    if os.environ.setdefault("RAY_AUTH_MODE", "token") != "token":
        raise BadValue("--engine ray: RAY_AUTH_MODE leaves the cluster open to everybody; set it to 'token'.")
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    try:
        import ray
    except ImportError:
        raise BadValue("--engine ray needs Ray, which is not installed: pip install 'icl_lab[ray]'.") from None
    if not ray.is_initialized():
        _init(ray, address)
    there = ray.cluster_resources()
    room = int(there.get("CPU", 0) // threads)
    if gpus:
        room = min(room, int(there.get("GPU", 0) / gpus))
    if room < 1:
        raise BadValue(
            f"--engine ray: the cluster has {there.get('CPU', 0):.0f} CPUs and {there.get('GPU', 0):.0f} GPUs; a run "
            f"is to have {threads} and {gpus:g}."
        )
    return Cluster(ray, jobs or room, threads, gpus)


def _init(ray: ModuleType, address: str) -> None:
    host, colon, port = address.rpartition(":")
    if colon and "/" not in host:  # Ray itself would try for minutes
        try:
            socket.create_connection((host, int(port)), timeout=15).close()
        except (OSError, ValueError, OverflowError) as error:
            raise BadValue(f"--engine ray --address {address}: nothing answers there ({error}).") from None
    here = {"include_dashboard": False, "_node_ip_address": "127.0.0.1"}
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        ray.init(log_to_driver=False, logging_level="ERROR", **(here if address == "local" else {}), address=address)
    except (ConnectionError, ValueError, RuntimeError, ray.exceptions.RayError) as error:
        raise BadValue(f"--engine ray --address {address}: {_line(error)}") from error
    finally:
        for number, handler in handlers.items():  # Ray replaces ours
            signal.signal(number, handler)


@cache
def _version() -> str:
    """Versions of the package and of torch, with a checksum of the package's files: results depend on these."""
    whole = hashlib.sha256()
    for path in sorted(PACKAGE.rglob("*.py")):
        whole.update(path.relative_to(PACKAGE).as_posix().encode() + path.read_bytes())
    torch = importlib.metadata.version("torch").partition("+")[0]  # 2.13.0+cpu and 2.13.0+cu130 are one release
    return f"icl_lab {VERSION} (source {whole.hexdigest()[:12]}) with torch {torch}"


def _line(error: BaseException) -> str:
    """The last line of what Ray says."""
    said = [text.strip() for text in str(error).splitlines() if text.strip()]
    return f"{type(error).__name__}: {said[-1] if said else ''}"
