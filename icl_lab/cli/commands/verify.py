"""Commands that check what is stored, and make again what is damaged."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import click

from icl_lab.cli.commands.report import rebuild
from icl_lab.cli.hints import program
from icl_lab.cli.options import crowd_options, device_option, gathered, large_option, threads_option
from icl_lab.cli.output import out
from icl_lab.cli.values import Folder
from icl_lab.errors import BadValue, LabError, RunFailed
from icl_lab.evidence.archive import own_place
from icl_lab.files import checkout_hint
from icl_lab.launch.announce import title
from icl_lab.launch.complete import complete
from icl_lab.launch.draw import remove_unfinished
from icl_lab.launch.progress import Bar, say
from icl_lab.launch.where import Where
from icl_lab.runs.run import Run
from icl_lab.runs.session import Lab
from icl_lab.runs.verify import Verification, everything, prepare_repair, table


@click.command()
@click.argument("folder", default="results", type=Folder(there=True))
def verify(folder: Path) -> None:
    """Check runs, studies and evidence against their checksums; exit 1 where one is damaged.

    FOLDER may also be that of one run or study.
    """
    if damaged := _report_damage(list(everything(folder, Bar())), folder):
        raise RunFailed(f"{len(damaged)} {'is' if len(damaged) == 1 else 'are'} damaged; {program()} repair {folder}")


@click.command()
@click.argument("folder", default="results", type=Folder(there=True))
@device_option
@threads_option
@large_option
@crowd_options
@click.option("--dry-run", is_flag=True, help="Say what is damaged, and change nothing.")
@gathered
def repair(folder: Path, where: Where) -> None:
    """Do again what is damaged in a results folder: tests, trainings, pages of comparisons.

    FOLDER may also be that of one run or study.
    """
    found = list(everything(folder, Bar()))
    damaged = _report_damage(found, folder)
    if not where.dry_run:
        for finding in found:
            if finding.run is not None:
                remove_unfinished(finding.run)
    if where.dry_run or not damaged:
        return
    left: list[str] = []
    runs: dict[Path, Run] = {}
    with replace(where, results=_root(folder)).session() as lab:
        for finding in damaged:
            again = _prepared(finding, lab)
            runs |= {run.place: lab.store.run(run.spec, run.seed, run.swap) for run in again}
            if not again and finding.kind != "study":
                left.append(finding.why)
        complete(list(runs.values()), lab, where)
        for run in runs.values():
            out(f"made again: {title(run)}")
        left += list(_studies(damaged, lab))
    for why in left:
        say(f"left: {why}")
    if left:
        raise RunFailed(f"{len(left)} of {len(damaged)} could not be made again from here, see above.")


def _report_damage(found: list[Verification], folder: Path) -> list[Verification]:
    """Prints what is in a folder and what of it is damaged, and returns that."""
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


def _prepared(finding: Verification, lab: Lab) -> list[Run]:
    """Removes what is damaged of a run while no other process works on it; returns what has to be finished again."""
    if finding.run is None:
        return []
    with finding.run.locked(lab.say, lab.stopping):
        return prepare_repair(finding)


def _root(folder: Path) -> Path:
    """The results folder that a run or study lies in: the one with ``runs`` in it, this one or one above."""
    return next((place for place in (folder, *folder.absolute().parents) if (place / "runs").is_dir()), folder)


def _studies(damaged: list[Verification], lab: Lab) -> Iterator[str]:
    """Builds the pages of comparisons again; yields why others were left."""
    for finding in damaged:
        if finding.kind != "study":
            continue
        try:
            if own_place(finding.place, lab.store.root) != finding.place:
                raise RunFailed(f"{finding.place} is the repository's; {checkout_hint(finding.place)}")
            rebuild(finding.place, finding.place, lab, Path("experiments"))
        except LabError as reason:
            yield str(reason)
        else:
            out(f"made again: {finding.place}")
