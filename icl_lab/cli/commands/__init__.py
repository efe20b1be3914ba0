"""The commands, by what they are about. A command is found by being there: every module-level one is in the menu."""

import importlib
import pkgutil
from collections.abc import Iterator

import click


def commands() -> Iterator[click.Command]:
    """Yields every command of this folder."""
    for module in pkgutil.iter_modules(__path__):
        for part in vars(importlib.import_module(f"{__name__}.{module.name}")).values():
            if isinstance(part, click.Command):
                yield part
