"""Commands about parts of one's own."""

import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from icl_lab.cli.output import out
from icl_lab.cli.progress import say

if TYPE_CHECKING:
    from icl_lab.testing.verdicts import Part


@click.command("check-part")
@click.argument("what")
def check_part(what: str) -> None:
    """Check what a module or a file registers, or one part by name, against the contract of its kind.

    WHAT is mypackage, ./mine.py, or a choice such as ssa or ssa:n=2. Exit code 1 where a check fails.
    """
    from icl_lab.testing.verdicts import verdicts

    count, failed = 0, 0
    for part in _parts(what):
        for verdict in verdicts(part):
            count, failed = count + 1, failed + bool(verdict.failed)
            state = f"FAILED  {part.label} | {verdict.check} | {verdict.failed}" if verdict.failed else ""
            out(state or f"ok      {part.label} | {verdict.check}")
    say(f"{count} checks, {failed} failed.")
    if failed:
        sys.exit(1)


def _parts(what: str) -> Iterator["Part"]:
    """The part of that name, or else everything that the import of that name registers."""
    from icl_lab import outside
    from icl_lab.import_target import is_path
    from icl_lab.testing.verdicts import brought, called

    named = None if is_path(what) else called(what)
    if named:
        yield named
        return
    source = outside.load(what)
    yield from brought(source)
