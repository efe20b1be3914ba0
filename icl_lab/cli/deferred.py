"""Commands known by name and help text, and imported when they are called: ``--help`` answers at once."""

from collections.abc import Callable, Iterator
from importlib import import_module
from typing import Any

import click

from icl_lab.cli import menu


class Deferred(click.Command):
    """A command whose module is imported by ``load``."""

    def __init__(self, name: str, help: str, load: Callable[[], click.Command], hidden: bool = False) -> None:
        super().__init__(name, help=help, hidden=hidden)
        self.load = load

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        """Context of the loaded command."""
        return self.load().make_context(info_name, args, parent, **extra)


class DeferredAnalysis(Deferred):
    """The command of an analysis; menu and manual have its first line alone."""

    def __init__(self, name: str, about: str) -> None:
        super().__init__(name, about.partition("\n")[0], self._load)
        self.short_help = self.help

    def _load(self) -> click.Command:
        found: click.Command = import_module("icl_lab.cli.commands.analyses").command(self.name)
        return found


def loaded(command: click.Command) -> click.Command:
    """Return a command with its options."""
    return command.load() if isinstance(command, Deferred) else command


def commands() -> Iterator[Deferred]:
    """Yield every command of the folder ``commands``."""
    for each in menu.commands():
        yield Deferred(each.name, each.help, _loader(each), each.hidden)


def analyses() -> Iterator[DeferredAnalysis]:
    """Yield the command of each analysis that lies in the package."""
    for each in menu.analyses():
        yield DeferredAnalysis(each.name, each.help)


def _loader(command: menu.Command) -> Callable[[], click.Command]:
    def load() -> click.Command:
        found: click.Command = getattr(import_module(f"icl_lab.cli.commands.{command.module}"), command.part)
        return found

    return load
