"""Reports of a command, and its options as a plan of runs and a ``Where``."""

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import fields
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from icl_lab.base.errors import BadValue, Unfinished
from icl_lab.cli.hints import typed
from icl_lab.cli.output import out
from icl_lab.cli.signals import catch_signals
from icl_lab.execute.progress import say
from icl_lab.execute.reporter import Reporter
from icl_lab.execute.where import Where

if TYPE_CHECKING:
    from icl_lab.execute.plan import RunPlan


class Terminal(Reporter):
    """Terminal, or a log, of a command."""

    def __init__(self) -> None:
        super().__init__()
        self.command = typed()

    def last(self, text: str) -> None:
        """Print a line at the end of the command."""
        click.get_current_context().call_on_close(partial(self.say, text))

    def out(self, text: str) -> None:
        """Print a line of a dry run."""
        out(text)

    def show(self, text: str) -> None:
        """Print the tables of a study."""
        out(text, "in table.md")

    @contextmanager
    def stoppable(self) -> Iterator[Callable[[], bool]]:
        """Yield whether a signal asked to stop; the process ends with the command, so that none is given back."""
        yield catch_signals()


def hand_over(command: Callable[..., None], words: dict[str, Any]) -> None:
    """Call a command with its options: those of runs as ``plan``, those of places as ``where``, if it takes these.

    Where runs are left to others, or nothing was to be done, it ends without its study.
    """
    takes = inspect.signature(command).parameters
    places = words.keys() & {field.name for field in fields(Where)} - takes.keys()
    if "where" in takes:
        words["where"] = _where({name: words.pop(name) for name in places})
    if "plan" in takes:
        words["plan"] = _plan(words)
    try:
        command(**words)
    except Unfinished as left:
        if words["where"].dry_run:
            say(f"would write {left.folder}")


def _where(own: dict[str, Any]) -> Where:
    if own.get("jobs") == "auto":
        own["jobs"] = None
    try:
        return Where(**own, progress=Terminal())
    except BadValue as error:
        raise click.UsageError(str(error)) from None


def _plan(words: dict[str, Any]) -> "RunPlan":
    from icl_lab.execute.plan import RunPlan  # and torch

    draws, seeds, seed = words.pop("draws", "ours"), words.pop("seeds"), words.pop("seed", None)
    if seed is not None and seeds > 1:
        both = f"--seeds {seeds} are the seeds 0 to {seeds - 1}, and --seed {seed} is one"
        raise click.UsageError(f"{both}: give one of these options.")
    settings = [*words.pop("settings"), *([] if draws == "ours" else [f"draws={draws}"])]
    settings += ["rates=own"] if words.pop("rates", "shared") == "own" else []
    own = {field.name: words.pop(field.name) for field in fields(RunPlan) if field.name in words}
    return RunPlan(**own, settings=settings, seeds=range(seeds) if seed is None else [seed])
