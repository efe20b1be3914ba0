"""How many runs at once and where: what the commands that train have in common."""

from dataclasses import dataclass, field, fields
from typing import Any, Self

from icl_lab.errors import BadValue
from icl_lab.workers.fleet import Fleet


@dataclass(frozen=True)
class Order:
    """How many runs at once and where, which part of them, whether to repeat them, or only to say what would be done.

    With ``stack`` the seeds of a specification are trained in this process as one.
    """

    jobs: int | None = None
    stack: bool = False
    shard: tuple[int, int] = (1, 1)
    force: bool = False
    dry_run: bool = False
    fleet: Fleet = field(default_factory=Fleet)

    def __post_init__(self) -> None:
        if self.stack and ((self.jobs or 1) > 1 or self.fleet.remote):
            raise BadValue(
                "--stack trains seeds in one process; --jobs, --on and --engine ray use several: choose one of them."
            )

    @classmethod
    def of(cls, words: dict[str, Any]) -> Self:
        """Takes its own options out of those of a command; each run elsewhere has the device and threads of these."""
        shared = {name: words[name] for name in ("device", "threads") if name in words}
        where, how = (
            {each.name: words.pop(each.name) for each in fields(part) if each.name in words.keys() - shared.keys()}
            for part in (Fleet, cls)
        )
        return cls(**how, fleet=Fleet(**where, **shared))

    @property
    def crowd(self) -> bool:
        """Whether workers do the runs."""
        return (self.jobs or 1) > 1 or self.fleet.remote
