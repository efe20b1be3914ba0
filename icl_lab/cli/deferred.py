"""Commands known by name and help text, and imported when they are called: ``--help`` answers at once."""

from collections.abc import Callable
from typing import Any

import click


class Deferred(click.Command):
    """A command whose module is imported by ``load``."""

    def __init__(self, name: str, help: str, load: Callable[[], click.Command]) -> None:
        super().__init__(name, help=help)
        self.load = load

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        """Context of the loaded command."""
        return self.load().make_context(info_name, args, parent, **extra)


def loaded(command: click.Command) -> click.Command:
    """Return a command with its options."""
    return command.load() if isinstance(command, Deferred) else command
