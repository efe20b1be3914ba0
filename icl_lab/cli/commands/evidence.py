"""The repository's finished runs in their compact form: list, check, fetch, write out, take in."""

import shlex
from pathlib import Path

import click

from icl_lab.base.errors import BadValue, RunFailed, UnknownName
from icl_lab.base.files import write
from icl_lab.base.registry import filename
from icl_lab.claims.experiment import place as experiments_folder
from icl_lab.claims.sides import claimed
from icl_lab.cli.options import experiments_option, read_option
from icl_lab.cli.output import out
from icl_lab.cli.values import Folder
from icl_lab.execute.announce import changes
from icl_lab.execute.progress import counted, say
from icl_lab.runs import archiving
from icl_lab.runs.evidence import release
from icl_lab.runs.evidence.archive import OWN, PLACE, VARIABLE, Archive, ArchivedRun, choose, fetched
from icl_lab.runs.evidence.tables import misfits
from icl_lab.runs.store import Store
from icl_lab.runs.study_folder import RECORD


@click.group()
def evidence() -> None:
    """The repository's finished runs: list, verify or fetch them, write them out as folders, take runs in."""


@evidence.command("list")
@click.argument("which", default="")
def list_(which: str) -> None:
    """Name the runs of a task, normalizer or specification (all without WHICH)."""
    archive = _archive()
    for archived in _chosen(archive, which):
        weights = ", weights" if "model.safetensors" in archived else ""
        out(f"{archived.key:72} {len(archived.names):2} files{weights}")


@evidence.command()
def verify() -> None:
    """Read everything and compare it with its checksums; exit 1 with a line for each damaged file."""
    archive = _archive()
    runs, files, damages = archive.verify()
    if damages:
        raise RunFailed("\nicl-lab: ".join(damages))
    out(f"{archive.root}: {runs} runs, {files} files, every checksum is right.")


@evidence.command()
@click.option(
    "--from", "file", type=click.Path(path_type=Path, exists=True), help="Archive of a release, beside FILE.sha256."
)
@click.option("--sha256", "checksum", default="", help="Its checksum.  [default: of this release, or FILE.sha256]")
def fetch(file: Path | None, checksum: str) -> None:
    """Unpack the evidence of this release into your data folder, where an installed copy reads it."""
    archive = Archive(release.fetch(file, checksum))
    out(f"wrote {archive.root}: {len(list(archive.runs()))} runs")


@evidence.command()
@click.argument("which", default="")
@click.option("--to", "root", default="results", show_default=True, type=Folder(), help="Folder.")
@click.option("--force", is_flag=True, help="Write over files that are there with other bytes.")
def unpack(which: str, root: Path, force: bool) -> None:
    """Write runs of a task, normalizer or specification (all without WHICH) as ordinary folders, byte for byte."""
    chosen = _chosen(_archive(), which)
    new = dict[Path, bytes]()
    for archived in counted(chosen, "reading runs"):
        for name, data in archived.files().items():
            path = root / "runs" / archived.key / name
            if not path.exists():
                new[path] = data
            elif path.read_bytes() != data:
                if not force:
                    raise RunFailed(f"{path} is there with other bytes; choose another folder with --to, or --force.")
                new[path] = data
    for path, data in counted(list(new.items()), "writing files"):
        write(path, data)
    out(f"wrote {len(new)} files of {len(chosen)} runs to {root / 'runs'}")


@evidence.command()
@click.argument("places", nargs=-1, type=Folder(), metavar="[RUN]...")
@read_option
@click.option("--weights", is_flag=True, help="With the trained models (0.5 MB a run at preset lite).")
@click.option("--replace", is_flag=True, help="Put a run in the place of one of the same specification and seed.")
@experiments_option
@click.option("--dry-run", is_flag=True, help="Check the runs, and write nothing.")
def add(
    places: tuple[Path, ...], results: Path, weights: bool, replace: bool, experiments: Path, dry_run: bool
) -> None:
    """Take finished runs in, by their folders; without a RUN all finished ones of the results folder.

    They become a new part of the archive. Errors of single prompts are kept where a claim reads them.
    """
    store, archive = Store(results), _own_archive()
    runs = [store.at(place) for place in places] or [
        run for run in store.runs(say) if run.finished or archiving.tests_held_model(run, archive.run(run.key))
    ]
    # All are read and checked before the first is taken in.
    known = Store(results, archive)  # with the learning-rate curves of experiments at own rates
    found, cells = {}, claimed(experiments_folder(experiments), {run.spec.preset for run in runs}, known)
    for run in counted(runs, "reading runs"):
        held = None if replace and run.finished else archive.run(run.key)
        found[run.key] = archiving.run_files(
            run, weights=weights, held=held, cells=lambda run: cells.get((run.spec.hash, run.swap), ())
        )
    for line in changes(runs):
        say(line)
    if dry_run:
        changed = archive.changed_by(found, replace=replace)
        unfit = misfits({key: found[key] for key in changed})
        out(
            f"{len(found)} runs are whole; {len(changed)} of them would be new in {archive.root}, the others are there."
        )
    else:
        changed = archive.add(found, replace=replace)
        unfit = {run.key: run.misfits for run in map(archive.run, changed) if run is not None}
        out(f"{len(changed)} of {len(found)} runs are new in {archive.root}; the others were there.")
    if named := [f"{key} ({', '.join(sorted(names))})" for key, names in unfit.items() if names]:
        out(f"{len(named)} have files that fit no table and are kept as they are: {'; '.join(named)}.")


@evidence.command("add-studies")
@click.argument("places", nargs=-1, type=Folder(there=True), metavar="[FOLDER]...")
@read_option
@click.option("--replace", is_flag=True, help="Put a study in the place of another one of its name.")
@click.option("--dry-run", is_flag=True, help="Check the studies, and write nothing.")
def add_studies(places: tuple[Path, ...], results: Path, replace: bool, dry_run: bool) -> None:
    """Take studies in, by their folders; without a FOLDER those of experiments that are not there as they are.

    Numbers, tables and PNGs are kept, large tables compressed, under the same name in the repository's results.
    """
    home = _own_archive().root.parent
    if results.resolve() == home.resolve():
        raise BadValue(f"{results} is where the repository keeps them; name other results with --results.")
    records = [path for root in (results, results / OWN) for path in sorted(root.glob(f"experiments/*/{RECORD}"))]
    chosen = places or [path.parent for path in records]
    outside = [str(place) for place in chosen if not place.is_relative_to(results)]
    if outside:
        raise BadValue(f"{', '.join(outside)}: not inside {results}; name its results folder with --results.")
    # All are read and checked before the first is taken in.
    found = {home / _name(place, results): archiving.study_files(place) for place in chosen}
    if dry_run:
        new = archiving.changed_studies(found, replace=replace)
        named = f": {', '.join(map(str, new))}" if new else ""
        out(f"{len(found)} studies are whole; {len(new)} of them would be new in {home}{named}")
        return
    changed = archiving.add_studies(found, replace=replace)
    out(f"{len(changed)} of {len(found)} studies are new in {home}; the others were there.")
    if changed:
        out(f"next: git add -f {shlex.join(map(str, changed))}")


def _name(place: Path, results: Path) -> Path:
    """The path of a study in results; a user's own of a checkout have there the names of the repository's."""
    inside = place.relative_to(results)
    return inside.relative_to(OWN) if inside.parts[:1] == (OWN,) else inside


def _archive() -> Archive:
    archive = Archive.find()
    if archive is None:
        raise RunFailed(
            f"there is no evidence here: neither {PLACE} nor a folder named by {VARIABLE}; "
            "icl-lab evidence fetch brings that of this release."
        )
    return archive


def _own_archive() -> Archive:
    """The archive that takes runs in: a fetched one stays as it came."""
    archive = Archive.find()
    return Archive(PLACE) if archive is None or archive.root == fetched() else archive


def _chosen(archive: Archive, which: str) -> list[ArchivedRun]:
    runs = list(archive.runs())
    chosen = choose(runs, filename(which))
    if which and not chosen:
        tasks = {archived.key.split("/")[0] for archived in runs}
        raise UnknownName("task, normalizer or specification in the evidence", which, tasks)
    return chosen
