"""The command that does harm to a small study, to see that none is done."""

from pathlib import Path

import click

from icl_lab.cli.options import catch_signals, typed
from icl_lab.cli.output import out
from icl_lab.cli.values import Folder
from icl_lab.errors import BadValue, RunFailed, Stopped


@click.command()
@click.option("--rounds", default=10, show_default=True, type=click.IntRange(1, 10_000), help="Of some 40 faults.")
@click.option("--seed", default=0, show_default=True, type=click.IntRange(0, 10**9), help="The faults hang on it.")
@click.option("--results", default="results", show_default=True, type=Folder(), help="Folder.")
def torture(rounds: int, seed: int, results: Path) -> None:
    """Kill, stop, fill disks, turn clocks and damage files of a small study; exit 1 where a bit is lost or unnoticed.

    Works in a temporary folder; only the table is written to the results folder.
    """
    import os

    from icl_lab.cli.progress import Bar
    from icl_lab.evidence.layer import own_studies
    from icl_lab.runs import study_folder
    from icl_lab.torture import rounds as torturing
    from icl_lab.torture.faults import BAD, Fault

    if not hasattr(os, "fork"):
        raise BadValue("torture needs a system that can fork a process (Linux, macOS).")
    stopping, bar, faults = catch_signals(), Bar(), list[Fault]()

    def tick(done: int, total: int) -> None:
        bar("torture", done, total, f"{len(faults)} faults")

    for fault in torturing.rounds(rounds, seed, tick):
        faults.append(fault)
        if stopping():
            raise Stopped(f"stopped after {len(faults)} faults; nothing was written.")
    text = torturing.table(faults, typed())
    out(text)
    folder = own_studies(results) / "torture"
    record = study_folder.StudyRecord.of("torture", {"rounds": rounds, "seed": seed}, {}, typed())
    files = {"table.md": text, "faults.csv": torturing.listed(faults)}
    names = study_folder.publish(record, folder, files, {})
    out(f"wrote {folder}: {', '.join(names)}")
    if bad := sum(fault.outcome in BAD for fault in faults):
        raise RunFailed(f"{bad} of {len(faults)} faults were not withstood, see above.")
