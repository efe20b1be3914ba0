"""The command that checks everything stored against its checksums."""

from pathlib import Path

import click

from icl_lab.base.errors import BadValue, RunFailed
from icl_lab.cli.output import out
from icl_lab.cli.values import Folder
from icl_lab.execute.progress import Bar
from icl_lab.runs.verify import Verification, everything, table


@click.command()
@click.argument("folder", default="results", type=Folder(there=True))
def verify(folder: Path) -> None:
    """Check runs, studies and evidence against their checksums; exit 1 where one is damaged.

    FOLDER may also be that of one run or study.
    """
    if damaged := _report_damage(list(everything(folder, Bar())), folder):
        be, them = ("is", "it") if len(damaged) == 1 else ("are", "them")
        raise RunFailed(f"{len(damaged)} {be} damaged, see above; delete {them} and repeat what made {them}")


def _report_damage(found: list[Verification], folder: Path) -> list[Verification]:
    """Print the contents of a folder, and return the damaged ones."""
    if not found:
        raise BadValue(f"{folder} holds no run, no study and no evidence.")
    for line in table(found):
        out(line)
    for finding in found:
        for version in finding.changes:
            out(f"made with other code: {finding.place}, with {version}")
    if unknown := sum(finding.unknown_code for finding in found):
        out(f"code not known: {unknown} runs were made before it was recorded with which code")
    damaged = [finding for finding in found if finding.state == "damaged"]
    for finding in damaged:
        out(f"damaged: {finding.why}")
    return damaged
