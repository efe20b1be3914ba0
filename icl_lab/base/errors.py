"""Errors that a user can act on: one line each, with the request and the existing choices."""

from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path


class LabError(Exception):
    """Something the user asked for cannot be done; ``exit_code`` is what the command line leaves with."""

    exit_code = 2


class Undefined(KeyError):
    """A quantity was measured and has no value there; the sentence says why."""


class UnknownName(LabError):
    """A name that nothing is registered under; the message lists known names, or says ``where`` it came from."""

    def __init__(self, kind: str, name: str, names: Iterable[str], where: str = "") -> None:
        known = sorted(names)
        self.kind, self.name = kind, name
        found = (
            f"{_nearest(name, known)} There are: {', '.join(known)}." if known else "" if where else " There are none."
        )
        super().__init__(f"No {kind} is called '{name}'.{found}{where and ' '}{where}")


class NameTaken(LabError):
    """A name that two parts of one kind want; ``places`` says where each is defined."""

    def __init__(self, kind: str, name: str, places: tuple[str, str]) -> None:
        self.kind, self.name = kind, name
        super().__init__(f"The {kind} '{name}' is registered twice: in {places[0]} and in {places[1]}.")


class UnknownOption(LabError):
    """An option that a part does not take; the message lists those it does."""

    def __init__(self, owner: str, option: str, options: Iterable[str]) -> None:
        known = list(options)
        takes = f"It takes: {', '.join(known)}." if known else "It takes none."
        super().__init__(f"{owner} takes no option '{option}'.{_nearest(option, known)} {takes}")


class BadValue(LabError):
    """A value of the wrong type or out of bounds; the message says the bound."""


class RunFailed(LabError):
    """A run that began and could not be finished (a loss that is not finite, a damaged file, a full disk)."""

    exit_code = 1


class Diverged(RunFailed):
    """A training whose loss was not finite; ``history`` holds the steps before that."""

    def __init__(self, message: str, history: Sequence[Mapping[str, float]] = ()) -> None:
        super().__init__(message)
        self.history = history


class Stopped(LabError):
    """The user or the scheduler asked the run to stop; it left a checkpoint and goes on when asked again."""

    exit_code = 130


class Unfinished(RunFailed):
    """Runs of a study that are left to other shards, or to a call without ``--dry-run``; ``folder`` was not written."""

    def __init__(self, folder: Path) -> None:
        super().__init__(f"{folder} is not written: its runs are not all finished.")
        self.folder = folder


def first_line(error: BaseException) -> str:
    r"""Return the first line of a message; the name of the error where it has none.

    >>> first_line(OSError("no such file\nin this folder")), first_line(ValueError())
    ('no such file', 'ValueError')
    """
    return (str(error).splitlines() or [type(error).__name__])[0]


def brief(text: str, most: int = 2000) -> str:
    """Return each line of a complaint with its middle left out where the request makes it endless.

    >>> brief("No task is called 'xxxxxxxxxxxxxxxxxxxx'.", 24)
    "No task is called ... x'."
    """
    lines = text.split("\n")
    return "\n".join(
        line if len(line) <= most else f"{line[: most * 3 // 4]}... {line[-most // 8 :]}" for line in lines
    )


def _nearest(name: str, known: list[str]) -> str:
    close = get_close_matches(name, known, n=1, cutoff=0.6)
    return f" Did you mean '{close[0]}'?" if close else ""
