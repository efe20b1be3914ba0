"""Where runs are executed, as it is asked for: this machine, other machines by a command, a Ray cluster."""

import re
import shutil
from collections.abc import Sequence
from dataclasses import dataclass

from icl_lab.errors import BadValue
from icl_lab.workers.process import Behind, Local, host, prefix
from icl_lab.workers.supervisor import SILENCE
from icl_lab.workers.transport import Place

ENGINES = ("local", "ray")
MOST = 1024  # workers at one place
PROGRAM = "icl-lab"  # what starts this program elsewhere


@dataclass(frozen=True)
class Fleet:
    """What was asked for. ``silence`` is in seconds; ``device`` and ``threads`` are those of each run elsewhere."""

    engine: str = "local"
    address: str = ""
    on: tuple[str, ...] = ()
    remote_command: str = PROGRAM
    silence: float = SILENCE
    gpus_per_run: float = 0.0
    device: str = "auto"
    threads: int | None = None

    def __post_init__(self) -> None:
        """Raises ``BadValue`` where options do not go together."""
        if self.on and self.engine != "local":
            raise BadValue("--on names machines and --engine ray a cluster: choose one of them.")
        if self.engine != "ray" and (self.address or self.gpus_per_run):
            raise BadValue("--address and --gpus-per-run are of a Ray cluster: add --engine ray.")
        if self.remote_command != PROGRAM and not self.on:
            raise BadValue("--remote-command says how icl-lab is started at places: add --on.")

    @property
    def remote(self) -> bool:
        """Whether runs are executed elsewhere than by processes of this machine."""
        return bool(self.on) or self.engine != "local"

    def places(self, jobs: int | None) -> list[Place]:
        """Returns the places, reached already where that is how it is done; ``jobs`` is how many at once at most.

        Raises ``BadValue`` where one cannot be understood or reached.
        """
        if self.engine == "ray":
            from icl_lab.workers.on_ray import cluster

            return [cluster(self.address or "local", jobs, self.threads or 1, self.gpus_per_run)]
        if not self.on:
            return [Local(jobs or 1)]
        if jobs is not None:
            raise BadValue("--on says how many runs at once each place does, as in gpu1:4; leave out --jobs.")
        return list(read(self.on, self.remote_command))


def read(texts: Sequence[str], program: str = PROGRAM) -> list[Behind]:
    """Reads places: ``gpu1:4,gpu2`` are hosts for ssh; what has a blank in it, ``srun -N1 -n1:4``, is a command.

    Raises ``BadValue`` where one is neither, and where the program that leads to it is not here.
    """
    places = []
    for text in texts:
        for word in [text] if " " in text.strip() else text.split(","):
            found = re.fullmatch(r"\s*(.*?)(?::([0-9]{1,4}))?\s*", word)
            name, many = (found[1], int(found[2] or 1)) if found else ("", 0)
            if not name or not 1 <= many <= MOST:
                raise BadValue(
                    f"--on '{word}' is no place such as gpu1:4 or 'srun -N1 -n1:4' (1 to {MOST} runs at once)."
                )
            places.append(_place(name, many, program, command=" " in text.strip()))
    names = [place.name for place in places]
    for name in names:
        if names.count(name) > 1:
            raise BadValue(f"--on names '{name}' twice; say how many runs at once it does: {name}:2.")
    return places


def share(places: Sequence[Place]) -> int:
    """Returns how many runs all places do at once."""
    return sum(place.at_once for place in places)


def _place(name: str, many: int, program: str, command: bool) -> Behind:
    if not command:
        if name.startswith("-"):
            raise BadValue(f"--on '{name}' is no host.")
        place = host(name, many, program)
    else:
        try:
            place = prefix(name, many, program)
        except ValueError as error:
            raise BadValue(f"--on '{name}' cannot be read as a command: {error}.") from None
    if shutil.which(place.command[0]) is None:
        raise BadValue(f"--on '{name}': there is no program '{place.command[0]}' here.")
    return place
