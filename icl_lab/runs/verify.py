"""Everything in a results folder held against what was written: runs and their files, studies, the evidence."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from icl_lab.errors import RunFailed
from icl_lab.evidence.layer import Layer
from icl_lab.runs import checks, deposit, manifest, study_folder
from icl_lab.runs.run import MEASURED, SPEC, Run, read_spec
from icl_lab.runs.store import seed_of

State = Literal["whole", "damaged", "unfinished", "no manifest"]
STATES: tuple[State, ...] = ("whole", "damaged", "unfinished", "no manifest")
REMOVABLE = ("model.safetensors",)  # takes most of the room, and is trained again where it is wanted


@dataclass(frozen=True)
class Finding:
    """The state of a run, of a test with another rule, of a study or of the evidence; why, where it is damaged."""

    kind: str
    place: Path
    state: State
    why: str = ""
    run: Run | None = None  # what would have to be done again


def everything(folder: Path) -> Iterator[Finding]:
    """Yields what is known of every run, study and archive in a results folder, or of the one run or study in it.

    ``no manifest``: a run that was written before there were manifests; of it, rows are held against its specification
    and cells against the errors of their prompts, and no more can be told.
    """
    if seed_of(folder) is not None:
        yield from _run(folder)
        return
    for place in sorted(folder.glob("runs/*/*/*/seed-*")):
        yield from _run(place)
    tables = {path.parent for path in folder.glob("**/table.md")}
    for place in sorted(tables | {path.parent for path in folder.glob(f"**/{study_folder.RECORD}")}):
        yield _study(place)
    if (folder / "evidence").is_dir():
        yield from _evidence(folder / "evidence")


def table(found: Sequence[Finding]) -> list[str]:
    """Returns how many of each kind are in which state, as lines of text."""
    counts = Counter((finding.kind, finding.state) for finding in found)
    kinds = list(dict.fromkeys(finding.kind for finding in found))
    wide = max([len("kind"), *map(len, kinds)])
    lines = [f"{'kind':{wide}}" + "".join(f"{state:>13}" for state in STATES)]
    return lines + [f"{kind:{wide}}" + "".join(f"{counts[kind, state]:>13}" for state in STATES) for kind in kinds]


def _run(folder: Path) -> Iterator[Finding]:
    seed = seed_of(folder)
    try:
        if seed is None:
            raise RunFailed(f"{folder} is not called seed-K as the folder of a run is; move it away.")
        path = folder / SPEC
        if not path.exists():
            if (folder / "grid.csv").exists():
                raise RunFailed(f"{path} is missing; move the folder away.")
            yield Finding("run", folder, "unfinished")
            return
        spec = read_spec(path.read_bytes(), path)
        checks.folder(spec, folder)
    except (RunFailed, OSError) as reason:
        yield Finding("run", folder, "damaged", str(reason))
        return
    run = Run(folder, spec, seed)
    yield _finding("run", run)
    for place in sorted(folder.glob("swap-*")):
        if any((place / name).exists() for name in MEASURED):
            yield _swapped(run, place)


def _swapped(run: Run, place: Path) -> Finding:
    """A test with another rule; which rule, its grid says, if it is whole."""
    try:
        _files(place)
        return _finding("test with another rule", deposit.swapped(run, place))
    except RunFailed as reason:
        return Finding("test with another rule", place, "damaged", str(reason), run)


def _finding(kind: str, run: Run) -> Finding:
    try:
        signed = _files(run.place)
        if run.recorded:
            run.env()
            run.history()
        if run.trained:
            run.check_weights()
        if run.finished:
            run.measured()
    except RunFailed as reason:
        return Finding(kind, run.place, "damaged", str(reason), run)
    state: State = "unfinished" if not run.finished else "whole" if signed else "no manifest"
    return Finding(kind, run.place, state, run=run)


def _files(folder: Path) -> bool:
    """Checks every file that the manifest of a folder names; returns whether there is one."""
    stamps = manifest.read(folder)
    finished = (folder / "grid.csv").exists()
    for name in stamps or {}:
        path = folder / name
        if path.exists():
            manifest.compare(folder, stamps or {}, name, path.read_bytes())
        elif finished and name not in REMOVABLE:
            manifest.compare(folder, stamps or {}, name, None)
    return stamps is not None


def _study(folder: Path) -> Finding:
    if not (folder / study_folder.RECORD).exists():
        return Finding("study", folder, "no manifest")
    try:
        study_folder.verify(folder)
        study = study_folder.read(folder)
    except RunFailed as reason:
        return Finding("study", folder, "damaged", str(reason))
    return Finding("study", folder, "whole" if study is not None and study.files else "no manifest")


def _evidence(folder: Path) -> Iterator[Finding]:
    count, _, damages = Layer(folder).verify()
    yield from (Finding("run of the evidence", folder, "damaged", why) for why in damages)
    yield from (Finding("run of the evidence", folder, "whole") for _ in range(max(0, count - len(damages))))
