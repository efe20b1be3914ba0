"""Results folder, device and workers of a call, as Python and the command line name them; loads no torch."""

import math
import os
import typing
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from icl_lab.base.errors import BadValue
from icl_lab.execute.arguments import Folder, check, whole
from icl_lab.execute.reporter import Reporter, Silent

if TYPE_CHECKING:
    import torch

    from icl_lab.runs.session import Lab
    from icl_lab.runs.store import Store

SEEDS = 100  # of any plan: seeds from 100 on are those of tuning (comparison/rates.py)
UNSAID = [  # once in a process
    "none of the repository's runs are here: icl-lab evidence fetch brings them (--from FILE without a network); "
    "set ICL_LAB_EVIDENCE to nothing to do without."
]
JOBS = 1024  # runs or threads at once: more than any machine of today offers; ten times as many end the process


def option(default: Any, help: str, group: str = "", **about: Any) -> Any:
    """Declare a field of ``Where``. With a ``group`` it is an option of the command line as well (cli/options.py).

    ``about`` holds ``metavar``, ``least`` and ``most`` of that option, and ``usual``: its default in words.
    """
    return field(default=default, metadata={"help": help, "group": group, **about})


@dataclass(frozen=True, kw_only=True)
class Where:
    """Results folder, device and workers of a call; every function takes them as ``where=``.

    >>> import icl_lab as icl
    >>> icl.Where(results="elsewhere", jobs=2).parallel
    True
    """

    results: Folder | None = option(
        None, "Folder of runs and studies; by default results, of an analysis that of runs."
    )
    name: str = option("", "Folder of a study in it; by default named by what is asked.")
    force: bool = option(False, "Write over another study of that name; an analysis asks its models again.")
    retrain: bool = option(False, "Repeat runs that are finished; those of the repository are left out.")
    evidence: bool | None = option(
        None, "Whether the repository's runs stand in for runs that the folder lacks.", "place"
    )
    experiments: Folder = option("experiments", "Folder of the files that describe experiments.")
    device: str = option("auto", "auto, cpu, cuda, cuda:1 or mps.", "place")
    threads: int | None = option(None, "CPU threads.", "place", least=1, most=JOBS, usual="all cores")
    allow_large: bool = option(
        False, "Begin even what by estimate exceeds this machine's memory, or eight hours.", "place"
    )
    track: str = option(
        *("", "Follow trainings in trackio, wandb or tensorboard.", "place"),
        metavar="NAME[:PROJECT]",
        usual="ICL_LAB_TRACK, or none",
    )
    jobs: int | None = option(
        *(None, "Runs at once; threads are divided. auto: one a core, on a Ray cluster as there is room for.", "runs"),
        usual="auto",
    )
    shard: tuple[int, int] = option((1, 1), "Only part I of N of the runs, for job arrays.", "runs", metavar="I/N")
    engine: Literal["local", "ray"] = option(
        *("local", "Where runs are executed: by processes of this machine, or on a Ray cluster.", "runs")
    )
    address: str = option(
        *("", "The Ray cluster: the one that this machine belongs to, another one, or one started here.", "runs"),
        metavar="auto|HOST:PORT|local",
        usual="local",
    )
    gpus_per_run: float = option(
        *(0.0, "GPUs that Ray reserves for a run; 0.25 puts four on one.", "runs"), least=0, most=64, usual="none"
    )
    dry_run: bool = option(False, "Say what would be done, and do nothing.")
    progress: bool | Reporter = option(
        True, "Lines and bars on standard error; or a Reporter, which gets them instead."
    )

    def __post_init__(self) -> None:
        hints = typing.get_type_hints(type(self))
        for each in fields(self):
            check(getattr(self, each.name), hints[each.name], each.name)
        for name, value in (("jobs", self.jobs), ("threads", self.threads)):
            if value is not None:
                whole(value, name, 1, JOBS)
        self._check_tracker(self.track)
        if not self.remote and (self.address or self.gpus_per_run):
            raise BadValue("--address and --gpus-per-run are of a Ray cluster: add --engine ray.")

    @property
    def root(self) -> Path:
        """Results folder."""
        return Path("results" if self.results is None else self.results)

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

    def store(self) -> "Store":
        """Return the runs of the results folder, and those of the repository where it has none."""
        from icl_lab.runs.evidence.archive import VARIABLE, Archive
        from icl_lab.runs.store import Store

        archive = None if self.evidence is False else Archive.find()
        while UNSAID and archive is None and self.evidence is not False and VARIABLE not in os.environ:
            self.reporter.say(UNSAID.pop())
        return Store(self.root, archive)

    def torch_device(self) -> "torch.device":
        """Return the device, with the threads set; raises ``BadValue`` where it is not there."""
        import torch

        from icl_lab.runs import environment

        if self.threads is not None:
            torch.set_num_threads(self.threads)
        return environment.device(self.device)

    @contextmanager
    def session(self, command: str = "") -> Iterator["Lab"]:
        """Yield the laboratory of a call, which ends at the next step when it is asked to stop.

        ``command`` is what one would type for the same. Raises ``BadValue`` where the device is not there, or the
        tracker.
        """
        from icl_lab.execute.tracking import Tracking
        from icl_lab.runs.session import LONGEST, Lab

        reporter, device = self.reporter, self.torch_device()
        self._check_tracker(asked := self.track or os.environ.get("ICL_LAB_TRACK", ""))
        with reporter.stoppable() as stopping, closing(Tracking(asked, self.root, reporter.say)) as tracked:
            yield Lab(
                store=self.store(),
                device=device,
                say=reporter.say,
                tick=reporter.tick,
                stopping=stopping,
                command=reporter.command or command,
                allow_large=self.allow_large,
                longest=math.inf if self.allow_large else LONGEST,
                tracked=tracked,
                show=reporter.show,
            )

    @staticmethod
    def _check_tracker(asked: str) -> None:
        if asked:
            from icl_lab.execute.tracking import check_tracker

            check_tracker(asked)

    def of_runs(self, lab: "Lab") -> "Where":
        """Return the same with the folder, device and evidence of runs where these are not said."""
        here = self.device == "auto" and not self.remote  # the nodes of a cluster have devices of their own
        return replace(
            self,
            results=lab.store.root if self.results is None else self.results,
            device=str(lab.device) if here else self.device,
            evidence=False if self.evidence is None and lab.store.archive is None else self.evidence,
            allow_large=self.allow_large or lab.allow_large,
        )


Where.__doc__ = f"{Where.__doc__}\n" + "\n".join(f"    {each.name}: {each.metadata['help']}" for each in fields(Where))
HERE = Where()
