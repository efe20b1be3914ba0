"""``--import`` on the command line: taken out before a command reads its words, so that it may stand anywhere."""

import os
from collections.abc import Sequence
from importlib import import_module

import click

from icl_lab.analyses import registry
from icl_lab.base import outside
from icl_lab.base.errors import BadValue
from icl_lab.cli import menu
from icl_lab.cli.deferred import Deferred
from icl_lab.cli.values import check_words

OPTION = "--import"
SUCCESSORS = {  # of commands of earlier versions
    "card": "icl-lab publish RUN --to FOLDER writes it as README.md, with the weights and numbers",
    "index": "python -m docs.tables writes the tables of README and docs",
}
HELP_IMPORT = (
    "Add the normalizers, tasks and analyses of a module or a file; may be given again, before or after the command, "
    f"or by {outside.VARIABLE}=./mine.py,mypackage. Runs its code."
)


def named(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the words without ``--import X`` and ``--import=X``, and each X after those of the environment.

    Words after ``--`` stay as they are. Raises ``UsageError`` where ``--import`` names nothing, or a word is not text.
    """
    check_words(words)
    imports = [name.strip() for name in os.environ.get(outside.VARIABLE, "").split(",") if name.strip()]
    left: list[str] = []
    rest = iter(words)
    for word in rest:
        option, equals, value = word.partition("=")
        if word == "--":
            left += [word, *rest]
        elif option != OPTION:
            left.append(word)
        else:
            name = value if equals else next(rest, "")
            if not name or name.startswith("-"):
                raise click.UsageError(f"{OPTION} takes a module or the path of a .py file.")
            imports.append(name)
    return left, imports


class DeferredAnalysis(Deferred):
    """The command of an analysis; menu and manual have its first line alone."""

    def __init__(self, name: str, about: str) -> None:
        super().__init__(name, about.partition("\n")[0], self._load)
        self.short_help = self.help

    def _load(self) -> click.Command:
        command: click.Command = import_module("icl_lab.cli.commands.analyses").command(self.name)
        return command


class Menu(click.Group):
    """The commands of this package, and one for each analysis that was imported or is an installed entry point."""

    def parse_args(self, context: click.Context, args: list[str]) -> list[str]:
        """Read the words of a command line; raises ``UsageError`` on one that is not text."""
        check_words(args)
        return super().parse_args(context, args)

    def get_command(self, context: click.Context, name: str) -> click.Command | None:
        """Return a command; packages that are installed are asked for one that is not built in."""
        command = super().get_command(context, name)
        if command is None and name in self._outside():
            return DeferredAnalysis(name, registry.part(name).__doc__ or "")
        return command

    def resolve_command(
        self, context: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the command that the first word names; raises ``UsageError`` with the successor of one that went."""
        if self.get_command(context, args[0]) is None and args[0] in SUCCESSORS:
            raise click.UsageError(f"There is no command '{args[0]}' any more: {SUCCESSORS[args[0]]}.", context)
        return super().resolve_command(context, args)

    def list_commands(self, context: click.Context) -> list[str]:
        """Return the names of all commands, sorted."""
        return sorted({*super().list_commands(context), *self._outside()})

    def format_commands(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands in groups, the rare ones by name alone."""
        commands = {name: self.get_command(context, name) for name in self.list_commands(context)}
        about = {name: command.help or "" for name, command in commands.items() if command}
        rare, outside_ = menu.rare(about), self._outside()
        groups = menu.grouped(about) | ({"Imported": {name: about[name].partition("\n")[0] for name in outside_}})
        widest = max(len(name) for lines in groups.values() for name in lines)
        for group, lines in groups.items():
            if lines:
                with formatter.section(group):
                    formatter.write_dl([(name.ljust(widest), line) for name, line in lines.items()])
        with formatter.section("Further commands"):
            formatter.write_text(f"{', '.join(name for name in rare if name not in outside_)}.")
            formatter.write_text("icl-lab COMMAND --help explains each.")

    def check(self) -> None:
        """Raise ``BadValue`` where an imported analysis is called like a command."""
        for name in registry.imported():
            if name in self.commands:
                raise BadValue(
                    f"the analysis '{name}' is called like the command icl-lab {name}; give it another name."
                )

    def _outside(self) -> list[str]:
        outside.installed(registry.package)
        return registry.imported()
