"""Results folder, device and workers of a call: everything about it but what is asked."""

import math
import os
import typing
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, fields, replace
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import Literal

import torch

from icl_lab.errors import BadValue
from icl_lab.evidence.archive import Archive
from icl_lab.launch.arguments import Folder, check, whole
from icl_lab.launch.bounds import JOBS
from icl_lab.launch.parallel import Processes, WorkerPool
from icl_lab.launch.reporter import Reporter, Silent
from icl_lab.launch.tracking import Tracking, check_tracker
from icl_lab.runs import environment
from icl_lab.runs.session import LONGEST, Lab
from icl_lab.runs.store import Store


@dataclass(frozen=True, kw_only=True)
class Where:
    """Results folder, device and workers of a call; every function takes them as ``where=``.

    results: folder of runs and studies; by default ``results``, and of an analysis that of its runs
    name: folder of a study inside it; by default named by what is asked
    force: repeat runs that are finished, and write over another study of that name
    evidence: False leaves the repository's runs unread
    experiments: folder of the files that describe experiments
    beside: folders of prompted language models that are shown beside a comparison or an experiment
    device, threads: auto, cpu, cuda, cuda:1 or mps; CPU threads
    allow_large: begin even what by estimate exceeds this machine's memory, or eight hours
    jobs: runs at once, by default one a core
    engine, address, gpus_per_run: on a Ray cluster, which one, and GPUs of a run
    shard: part ``i`` of ``n`` of the runs
    dry_run: say what would be done, and do nothing
    track: tracker that follows trainings, trackio, wandb or tensorboard, and its project (``wandb:mine``)
    progress: lines and bars on standard error; or a ``Reporter``, which is told instead

    >>> import icl_lab as icl
    >>> icl.Where(results="elsewhere", jobs=2).parallel
    True
    """

    results: Folder | None = None
    name: str = ""
    force: bool = False
    evidence: bool | None = None
    experiments: Folder = "experiments"
    beside: Folder | Sequence[Folder] = ()
    device: str = "auto"
    threads: int | None = None
    allow_large: bool = False
    jobs: int | None = None
    engine: Literal["local", "ray"] = "local"
    address: str = ""
    gpus_per_run: float = 0.0
    shard: tuple[int, int] = (1, 1)
    dry_run: bool = False
    track: str = ""
    progress: bool | Reporter = True

    def __post_init__(self) -> None:
        hints = typing.get_type_hints(Where)
        for field in fields(self):
            check(getattr(self, field.name), hints[field.name], field.name)
        for name, value in (("jobs", self.jobs), ("threads", self.threads)):
            if value is not None:
                whole(value, name, 1, JOBS)
        check_tracker(self.track)
        if not self.remote and (self.address or self.gpus_per_run):
            raise BadValue("--address and --gpus-per-run are of a Ray cluster: add --engine ray.")

    @property
    def root(self) -> Path:
        """Results folder."""
        return Path("results" if self.results is None else self.results)

    @property
    def neighbours(self) -> list[Path]:
        """Folders of prompted models."""
        return [Path(self.beside)] if isinstance(self.beside, str | PathLike) else list(map(Path, self.beside))

    @cached_property
    def reporter(self) -> Reporter:
        """Receiver of lines and progress."""
        if isinstance(self.progress, Reporter):
            return self.progress
        return Reporter() if self.progress else Silent()

    @property
    def remote(self) -> bool:
        """True where runs are done on a Ray cluster."""
        return self.engine == "ray"

    @property
    def parallel(self) -> bool:
        """True where workers do the runs."""
        return (self.jobs or 1) > 1 or self.remote

    @property
    def bounded(self) -> bool:
        """True where runs are done here and now: not a part of a job array, nor on a cluster."""
        return not self.remote and self.shard == (1, 1)

    def workers(self) -> WorkerPool:
        """Return the engine that starts workers; raises ``BadValue`` where there is no such cluster."""
        if not self.remote:
            return Processes(self.jobs or 1)
        from icl_lab.launch import ray_engine  # Ray is optional

        return ray_engine.join(self.address or "local", self.jobs, self.threads or 1, self.gpus_per_run)

    def store(self) -> Store:
        """Return the runs of the results folder, and those of the repository where it has none."""
        return Store(self.root, None if self.evidence is False else Archive.find())

    def torch_device(self) -> torch.device:
        """Return the device, with the threads set; raises ``BadValue`` where it is not there."""
        if self.threads is not None:
            torch.set_num_threads(self.threads)
        return environment.device(self.device)

    @contextmanager
    def session(self, command: str = "") -> Iterator[Lab]:
        """Yield the laboratory of a call, which ends at the next step when it is asked to stop.

        ``command`` is what one would type for the same. Raises ``BadValue`` where the device is not there, or the
        tracker.
        """
        told, device = self.reporter, self.torch_device()
        check_tracker(asked := self.track or os.environ.get("ICL_LAB_TRACK", ""))
        with told.stoppable() as stopping:
            made = told.command or command
            longest = math.inf if self.allow_large else LONGEST
            with closing(Tracking(asked, self.root, told.say)) as tracked:
                yield Lab(
                    store=self.store(),
                    device=device,
                    say=told.say,
                    tick=told.tick,
                    stopping=stopping,
                    command=made,
                    allow_large=self.allow_large,
                    longest=longest,
                    tracked=tracked,
                    show=told.show,
                )

    def of_runs(self, lab: Lab) -> "Where":
        """Return the same with the folder, device and evidence of runs where these are not said."""
        here = self.device == "auto" and not self.remote  # the nodes of a cluster have devices of their own
        return replace(
            self,
            results=lab.store.root if self.results is None else self.results,
            device=str(lab.device) if here else self.device,
            evidence=False if self.evidence is None and lab.store.archive is None else self.evidence,
            allow_large=self.allow_large or lab.allow_large,
        )


HERE = Where()
