"""The command that builds pages of comparisons again, from stored runs."""

import re
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

import click

from icl_lab.cli.launch import laboratory
from icl_lab.errors import BadValue, LabError, RunFailed

if TYPE_CHECKING:
    from icl_lab.runs.session import Lab
    from icl_lab.runs.store import Run

MADE_BY = re.compile(r"^Made by `(icl-lab .+)`\.$", re.MULTILINE)


@click.command()
@click.argument("folders", nargs=-1, type=click.Path(path_type=Path))
@click.option("--results", default="results", show_default=True, type=click.Path(path_type=Path), help="Folder.")
@click.option("--out", type=click.Path(path_type=Path), help="Write there, a folder for each study, not in place.")
@click.option("--experiments", "files", default="experiments", type=click.Path(path_type=Path), help="Folder of files.")
def report(folders: tuple[Path, ...], results: Path, out: Path | None, files: Path) -> None:
    """Build the pages of comparisons again from stored runs, without training: FOLDERS, or all in the results."""
    lab = laboratory(results, "cpu", None)
    chosen = list(folders) or sorted(path.parent for path in results.glob("**/report.html"))
    if not chosen:
        raise BadValue(f"No study in {results} has a report.html.")
    failed = []
    for folder in chosen:
        try:
            written = rebuild(folder, folder if out is None else out / folder.name, lab, files)
        except LabError as error:
            if len(chosen) == 1:
                raise
            failed.append(folder)
            click.echo(f"left as it is: {folder}: {error}", err=True)
        else:
            click.echo(f"wrote {(folder if out is None else out / folder.name)}: {', '.join(written)}")
    if failed:
        raise RunFailed(f"{len(failed)} of {len(chosen)} pages were not built, see above.")


def rebuild(folder: Path, place: Path, lab: "Lab", files: Path) -> list[str]:
    """Builds one study of ``folder`` again in ``place``; returns the names of the files.

    What is compared is read from ``study.json``, and where there is none from the command that the folder's table
    names. Raises ``LabError`` where neither is there, or where a run is not stored.
    """
    from icl_lab.comparison import record
    from icl_lab.comparison.gather import gather, publish

    known = record.read(folder)
    command = known.command if known else command_of(folder)
    name, words = parsed(command)
    if name == "experiment":
        return _experiment(words, command, place, lab, files)
    if known:
        groups, baseline, title = record.runs(known, lab.store), known.baseline, known.title
    else:
        groups, baseline, title = _groups(name, words, lab)
    runs = [run for group in groups.values() for run in group]
    _all_finished(runs)
    return publish(gather(groups, baseline), runs, place, command, title=title)[1]


def command_of(folder: Path) -> str:
    """Returns the command that made a study, from the last line of its table; raises ``BadValue`` where none is."""
    path = folder / "table.md"
    found = MADE_BY.findall(path.read_text()) if path.exists() else []
    if not found:
        raise BadValue(f"{folder} holds no study: it has neither study.json nor a table.md that names its command.")
    return str(found[-1])


def parsed(command: str) -> tuple[str, dict[str, object]]:
    """Returns the name of a recorded command and its options, read as the command line reads them.

    Raises ``BadValue`` where the command is not one that makes comparisons, or has options that no longer exist.
    """
    from icl_lab.cli.commands import claims, training

    makers = {"compare": training.compare, "ablate": training.ablate, "experiment": claims.experiment}
    _, name, *words = shlex.split(command)
    if name not in makers:
        raise BadValue(f"'{command}' makes no comparison; pages are built again for: {', '.join(makers)}.")
    try:
        return name, makers[name].make_context(name, list(words)).params
    except click.UsageError as error:
        raise BadValue(f"'{command}' is no command of this version: {error.format_message()}") from None


def _groups(name: str, words: dict[str, object], lab: "Lab") -> tuple[dict[str, list["Run"]], str, str]:
    """The runs, the baseline and the title of a command that compares or ablates."""
    from icl_lab import normalizers
    from icl_lab.comparison import ablations
    from icl_lab.runs.spec import resolve

    task, attns, settings = str(words["task"]), tuple(map(str, _each(words["attns"]))), _each(words["settings"])
    seeds, preset, draws = range(int(str(words["seeds"]))), str(words["preset"]), str(words["draws"])
    specs = [resolve(task, attn, preset, [*map(str, settings)], draws) for attn in attns]
    if name == "ablate":
        parts = ablations.ablations(specs[0], tuple(map(str, settings)))
        groups = {part: [lab.store.run(spec, seed) for seed in seeds] for part, spec in parts.items()}
        return groups, ablations.WHOLE, f"{specs[0].task}, {specs[0].attn}: one part less"
    groups = {spec.attn: [lab.store.run(spec, seed) for seed in seeds] for spec in specs}
    return groups, normalizers.canonical(str(words["baseline"])), ""


def _experiment(words: dict[str, object], command: str, place: Path, lab: "Lab", files: Path) -> list[str]:
    """Judges the claims of an experiment anew, and writes its page."""
    from dataclasses import replace

    from icl_lab.papers import claims, experiment

    chosen = experiment.load(str(words["name"]), files)
    if chosen.analysis != "compare":
        raise BadValue(f"'{words['name']}' is no comparison but a {chosen.analysis}: it has no page of this kind.")
    settings, preset = [str(setting) for setting in _each(words["settings"])], str(words["preset"])
    groups = claims.groups(chosen, lab.store, preset, int(str(words["seeds"])), settings)
    _all_finished([run for group in groups.values() for run in group])
    made = replace(lab, command=command)
    return claims.publish(chosen, groups, made, preset, place, bool(words["overlay"]), settings)[1]


def _all_finished(runs: list["Run"]) -> None:
    missing = [str(run.place) for run in runs if not run.finished]
    if missing:
        raise RunFailed(f"{len(missing)} of {len(runs)} runs are not stored: {', '.join(missing[:5])}.")


def _each(value: object) -> list[object]:
    return list(value) if isinstance(value, list | tuple) else []
