"""Options of the commands that do many runs: how many at once and where, which part of them."""

from dataclasses import dataclass, fields
from typing import Any, Self

from icl_lab.errors import BadValue
from icl_lab.parallel import Engine, Processes

ENGINES = ("local", "ray")


@dataclass(frozen=True)
class Order:
    """Order of a command: how many runs at once and where, which part, repeated or not, or a dry run.

    With ``stack`` the seeds of a specification are trained in this process as one. ``device`` and ``threads`` are those
    of each run on a Ray cluster.
    """

    jobs: int | None = None
    stack: bool = False
    shard: tuple[int, int] = (1, 1)
    force: bool = False
    dry_run: bool = False
    engine: str = "local"
    address: str = ""
    gpus_per_run: float = 0.0
    device: str = "auto"
    threads: int | None = None

    def __post_init__(self) -> None:
        if self.stack and self.parallel:
            raise BadValue("--stack trains seeds in one process; --jobs and --engine ray use several: choose one.")
        if not self.remote and (self.address or self.gpus_per_run):
            raise BadValue("--address and --gpus-per-run are of a Ray cluster: add --engine ray.")

    @classmethod
    def of(cls, words: dict[str, Any]) -> Self:
        """Take its own options out of those of a command; device and threads stay there too."""
        shared = {name: words[name] for name in ("device", "threads") if name in words}
        own = {each.name: words.pop(each.name) for each in fields(cls) if each.name in words.keys() - shared.keys()}
        return cls(**own, **shared)

    @property
    def remote(self) -> bool:
        """True where runs are done on a Ray cluster."""
        return self.engine == "ray"

    @property
    def parallel(self) -> bool:
        """True where workers do the runs."""
        return (self.jobs or 1) > 1 or self.remote

    def workers(self) -> Engine:
        """Return the engine that starts workers; raises ``BadValue`` where there is no such cluster."""
        if not self.remote:
            return Processes(self.jobs or 1)
        from icl_lab import ray_engine

        return ray_engine.join(self.address or "local", self.jobs, self.threads or 1, self.gpus_per_run)
