"""The door for ``make``: a command whose options stand in make variables."""

import os
import sys

import click

from icl_lab.cli import variables
from icl_lab.cli.deferred import loaded
from icl_lab.errors import UnknownName


@click.command(hidden=True)
@click.argument("name")
@click.pass_context
def make(context: click.Context, name: str) -> None:
    """Do a command with the make variables that the environment names in GIVEN and FOUND."""
    menu = context.find_root().command
    if not isinstance(menu, click.Group):
        raise TypeError("make stands in a menu")
    command = menu.get_command(context, name)
    if command is None or command.hidden:
        there = (each for each, part in menu.commands.items() if not part.hidden)
        raise UnknownName("command", name, there)
    given, found = (os.environ.get(kind, "").split() for kind in ("GIVEN", "FOUND"))
    words = [name, *variables.words(loaded(command), os.environ, given, found)]
    sys.argv = ["make", *words]  # what would have been typed: kept beside results, and repeated in hints
    menu.main(words, prog_name="make", standalone_mode=False)
