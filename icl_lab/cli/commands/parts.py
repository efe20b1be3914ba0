"""Commands for plugins."""

import sys

import click

from icl_lab.base import outside
from icl_lab.base.import_target import is_path
from icl_lab.cli.output import out
from icl_lab.execute.progress import say
from icl_lab.testing import verdicts


@click.command("check-part")
@click.argument("what")
def check_part(what: str) -> None:
    """Check what a module or a file registers, or one part by name, against the contract of its kind.

    WHAT is mypackage, ./mine.py, or a choice such as ssa or ssa:n=2. Exit code 1 where a check fails.
    """
    count, failed = 0, 0
    for part in _parts(what):
        for check, fault in verdicts.verdicts(part):
            count, failed = count + 1, failed + bool(fault)
            out(f"FAILED  {part.label} | {check} | {fault}" if fault else f"ok      {part.label} | {check}")
    say(f"{count} checks, {failed} failed.")
    if failed:
        sys.exit(1)


def _parts(what: str) -> list[verdicts.Part]:
    """The part of that name, or else everything that the import of that name registers."""
    named = None if is_path(what) else verdicts.called(what)
    return [named] if named else verdicts.brought(outside.load(what))
