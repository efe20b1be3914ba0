"""The command that builds pages again, of comparisons from stored runs and of analyses from stored numbers."""

from dataclasses import replace
from pathlib import Path

import click

from icl_lab.base.errors import BadValue, LabError, RunFailed
from icl_lab.claims import study
from icl_lab.cli.options import experiments_option, gathered, results_option, style_option
from icl_lab.cli.output import out
from icl_lab.cli.values import Folder
from icl_lab.comparison.gather import gather, publish
from icl_lab.execute.progress import say
from icl_lab.execute.where import Where
from icl_lab.runs import study_folder
from icl_lab.runs.evidence.archive import own_place, own_studies
from icl_lab.runs.session import Lab

COMPARISON = "title"  # an option that the record of every comparison has


@click.command()
@click.argument("folders", nargs=-1, type=Folder())
@results_option
@click.option("--out", "elsewhere", type=Folder(), help="Write there, a folder for each study, not in place.")
@experiments_option
@style_option
@gathered
def report(folders: tuple[Path, ...], elsewhere: Path | None, where: Where) -> None:
    """Build the pages of studies again; trains nothing.

    FOLDERS, or all comparisons in the results; in a checkout those in results/own, where studies of the repository that
    are named are written too.
    Comparisons are made from stored runs; the analysis of an experiment from the numbers in its folder.
    """
    mine = own_studies(where.root)
    chosen = list(folders) or study_folder.folders(mine, COMPARISON)
    if not chosen:
        raise BadValue(f"{mine} holds no comparison (a folder with a {study_folder.RECORD} of one).")
    failed = []
    with replace(where, device="cpu").session() as lab:
        quiet = replace(lab, show=lambda text: None)
        for folder in chosen:
            place = own_place(folder, where.root) if elsewhere is None else elsewhere / folder.name
            try:
                written = rebuild(folder, place, quiet, Path(where.experiments))
            except LabError as error:
                if len(chosen) == 1:
                    raise
                failed.append(folder)
                say(f"left as it is: {folder}: {error}")
            else:
                out(f"wrote {place}: {', '.join(written)}")
    if failed:
        raise RunFailed(f"{len(failed)} of {len(chosen)} pages were not built, see above.")


def rebuild(folder: Path, place: Path, lab: Lab, files: Path) -> list[str]:
    """Build the study of ``folder`` again in ``place``; return the names of the files.

    Raises ``LabError`` where the folder holds no record of such a study, or where a run is not stored.
    """
    known = study_folder.read(folder)
    if known is None:
        raise BadValue(f"{folder} holds no study: it has no {study_folder.RECORD}.")
    if known.source and known.kind != "experiment":
        return list(study.redraw(known, folder, lab, place, files))
    if COMPARISON not in known.options:
        raise BadValue(f"{folder} holds a study of the kind {known.kind}; repeat its command: {known.command}")
    groups = study_folder.runs_of(known, lab.store)
    if known.kind == "experiment":
        return list(study.rebuild(known, groups, lab, place, files))
    tuned_in = lab.store if known.options.get("rates") == "own" else None
    study_of_runs = gather(groups, str(known.options["baseline"]), tuned_in)
    return publish(study_of_runs, groups, place, known, tick=lab.tick)[1]
