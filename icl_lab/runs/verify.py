"""Check of a results folder: every file of runs, studies and evidence against the checksum that it was written with."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from icl_lab.base import foreign
from icl_lab.base.errors import RunFailed
from icl_lab.base.progress import Tick, counted, silent
from icl_lab.runs import archiving, checks, manifest, provenance, study_folder
from icl_lab.runs.evidence.archive import Archive
from icl_lab.runs.manifest import SPEC, WEIGHTS
from icl_lab.runs.run import MEASURED, TRAINED, Run, read_spec
from icl_lab.runs.run_files import RunFolder, unreadable
from icl_lab.runs.store import seed_of

State = Literal["whole", "damaged", "unfinished", "no manifest"]
STATES: tuple[State, ...] = ("whole", "damaged", "unfinished", "no manifest")


@dataclass(frozen=True)
class Verification:
    """The state of a run, of a test with another normalizer, of a study or of the archive; why, where it is damaged."""

    kind: str
    place: Path
    state: State
    why: str = ""
    run: Run | None = None

    @property
    def changes(self) -> list[str]:
        """Sentences on parts and files that have changed since the run; such changes are not damage."""
        return [] if self._recorded is None else [each.words for each in provenance.of(self._recorded).differences]

    @property
    def unknown_code(self) -> bool:
        """True if a run was made before all of its code was recorded."""
        return self._recorded is not None and str(provenance.of(self._recorded)) == "unknown"

    @property
    def _recorded(self) -> Run | None:
        return self.run if self.run and self.kind == "run" and self.state != "damaged" and self.run.recorded else None


def everything(folder: Path, tick: Tick = silent) -> Iterator[Verification]:
    """Yield the state of every run, study and archive in a results folder, or of the one run or study in it.

    ``no manifest``: a run that was written before there were manifests; of it, rows are held against its specification
    and cells against the errors of their prompts, and nothing else can be checked.
    """
    if seed_of(folder) is not None:
        yield from _run(folder)
        return
    for place in counted(sorted(folder.glob("runs/*/*/*/seed-*")), "checking runs", tick):
        yield from _run(place)
    tables = {path.parent for path in folder.glob("**/table.md")}
    studies = sorted(tables | {path.parent for path in folder.glob(f"**/{study_folder.RECORD}")})
    for place in counted(studies, "checking studies", tick):
        yield _study(place)
    if (folder / "evidence").is_dir():
        yield from _archive(folder / "evidence", tick)


def check_file(path: Path) -> None:
    """Raise ``RunFailed`` where a file of a run or of a study is damaged or edited."""
    if (path.parent / study_folder.RECORD).exists():
        study_folder.check_file(path)
    elif path.name in (*TRAINED, *MEASURED):
        RunFolder(path.parent).find(path.name)


def table(found: Sequence[Verification]) -> list[str]:
    """Return how many of each kind are in which state, as lines of text."""
    counts = Counter((each.kind, each.state) for each in found)
    kinds = list(dict.fromkeys(each.kind for each in found))
    wide = max([len("kind"), *map(len, kinds)])
    lines = [f"{'kind':{wide}}" + "".join(f"{state:>13}" for state in STATES)]
    return lines + [f"{kind:{wide}}" + "".join(f"{counts[kind, state]:>13}" for state in STATES) for kind in kinds]


def _run(folder: Path) -> Iterator[Verification]:
    seed = seed_of(folder)
    try:
        if seed is None:
            raise RunFailed(f"{folder} is not called seed-K as the folder of a run is; move it away.")
        path = folder / SPEC
        if not path.exists():
            if (folder / "grid.csv").exists():
                raise RunFailed(f"{path} is missing; move the folder away.")
            yield Verification("run", folder, "unfinished")
            return
        spec = read_spec(path)
        checks.folder(spec, folder)
    except (RunFailed, OSError) as reason:
        yield Verification("run", folder, "damaged", str(reason))
        return
    run = Run(folder, spec, seed)
    yield _verification("run", run)
    for place in sorted(folder.glob("swap-*")):
        if any((place / name).exists() for name in MEASURED):
            yield _swapped(run, place)


def _swapped(run: Run, place: Path) -> Verification:
    kind = "test with another normalizer"
    try:
        _check_files(place)
        return _verification(kind, archiving.swapped_run(run, place))
    except RunFailed as reason:
        return Verification(kind, place, "damaged", str(reason), run)


def _verification(kind: str, run: Run) -> Verification:
    try:
        signed = _check_files(run.place)
        if run.recorded:
            run.env()
            run.history()
        if run.trained:
            run.read(WEIGHTS)
        if run.finished:
            run.measured()
    except RunFailed as reason:
        return Verification(kind, run.place, "damaged", str(reason), run)
    state: State = "unfinished" if not run.finished else "whole" if signed else "no manifest"
    return Verification(kind, run.place, state, run=run)


def _check_files(folder: Path) -> bool:
    """Check every file that the manifest of a folder names; return whether there is one."""
    stamps = manifest.read(folder)
    finished = (folder / "grid.csv").exists()
    for name, stamp in (stamps or {}).items():
        path = folder / name
        try:
            data = foreign.read(path)
        except FileNotFoundError:
            # Weights take most of the room, and are trained again where they are wanted.
            if not finished or name == WEIGHTS:
                continue
            data = None
        except OSError as error:
            raise unreadable(path, error) from error
        manifest.compare(path, stamp, data)
    return stamps is not None


def _study(folder: Path) -> Verification:
    if not (folder / study_folder.RECORD).exists():
        return Verification("study", folder, "no manifest")
    try:
        study_folder.verify(folder)
        study = study_folder.read(folder)
    except RunFailed as reason:
        return Verification("study", folder, "damaged", str(reason))
    return Verification("study", folder, "whole" if study is not None and study.files else "no manifest")


def _archive(folder: Path, tick: Tick) -> Iterator[Verification]:
    count, _, damages = Archive(folder).verify(tick)
    kind = "run of the evidence"
    yield from (Verification(kind, folder, "damaged", why) for why in damages)
    yield from (Verification(kind, folder, "whole") for _ in range(max(0, count - len(damages))))
