"""The commands, by what they are about. A command is found by being there: every module-level one is in the menu."""

import importlib
import pkgutil
from collections.abc import Iterator

import click


def commands() -> Iterator[click.Command]:
    """Yields every command of this folder."""
    for module in pkgutil.iter_modules(__path__):
        parts = vars(importlib.import_module(f"{__name__}.{module.name}")).values()
        found = [part for part in parts if isinstance(part, click.Command)]
        # Commands of a group (icl-lab evidence list) stand in its menu, and not in that of all.
        inside = [part for group in found if isinstance(group, click.Group) for part in group.commands.values()]
        yield from (part for part in found if part not in inside)
