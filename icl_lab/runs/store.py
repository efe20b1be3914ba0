"""A results folder: where the run of a specification and seed lies, and which runs there are."""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path

from icl_lab.base.errors import RunFailed, UnknownName
from icl_lab.base.files import reading
from icl_lab.base.grid import Grid
from icl_lab.base.registry import filename
from icl_lab.runs import checks, environment
from icl_lab.runs.evidence.archive import Archive, ArchivedRun, by_number, own_studies
from icl_lab.runs.lock import Say
from icl_lab.runs.manifest import WAY_OUT
from icl_lab.runs.run import MISFIT, SPEC, Run, parse_spec, read_spec
from icl_lab.runs.run_files import RunFiles, RunFolder, read
from icl_lab.runs.spec import RunSpec

GRID = "grid.csv"


@dataclass(frozen=True)
class Store:
    """A results folder, with an optional archive for runs that it does not hold."""

    root: Path
    archive: Archive | None = None

    def run(self, spec: RunSpec, seed: int, swap: str = "") -> Run:
        """Return the place of a run, whether or not it is there yet."""
        return self._run(self.folder(spec) / f"seed-{seed}", spec, seed, swap)

    def folder(self, spec: RunSpec) -> Path:
        """Return the folder that holds all seeds of a specification."""
        return self.root / "runs" / filename(spec.task) / filename(spec.attn) / f"{spec.preset}-{spec.hash}"

    def seeds(self, spec: RunSpec) -> list[int]:
        """Return the seeds of a specification that have begun, or that the evidence holds, in order."""
        folder = self.folder(spec)
        found = {seed_of(path.parent) for path in folder.glob("seed-*/spec.json")}
        if self.archive is not None:
            found |= set(self.archive.seeds("/".join(folder.parts[-3:])))
        return sorted(seed for seed in found if seed is not None)

    def has(self, preset: str) -> bool:
        """True if a run of this preset has begun here, or is held by the archive."""
        own = any(self.root.glob(f"runs/*/*/{preset}-*/seed-*"))
        return own or (self.archive is not None and any(f"/{preset}-" in run.key for run in self.archive.runs()))

    def at(self, place: Path) -> Run:
        """Return the run in a folder ``.../seed-K``; raises ``UnknownName`` with the nearest runs there are.

        Raises it too where the run's task or normalizer is not known here, with the import that the run was made with,
        and ``RunFailed`` where the specification inside is not the one that the folder is named after.
        """
        seed, path = seed_of(place), place / SPEC
        archived = self.archive.run("/".join(place.parts[-4:])) if self.archive and not path.exists() else None
        if seed is None or not (path.exists() or archived):
            there = [str(run.folder) for run in self.runs(lambda reason: None)]
            raise UnknownName("run", str(place), get_close_matches(str(place), there, n=5, cutoff=0))
        spec = read_spec(path) if archived is None else parse_spec(read(archived, SPEC), path)
        checks.folder(spec, place)
        environment.require_parts(spec, place)
        return self._run(place, spec, seed)

    def opened(self, place: Path) -> Run:
        """Return the run that a folder of any name holds, such as one that was published.

        Its seed is the K of a folder ``seed-K``, and that of its grid otherwise. Raises ``RunFailed`` where the folder
        holds no run or its files are not those of one, and ``UnknownName`` where the task or the normalizer is not
        known here.
        """
        spec, seed = read_spec(place / SPEC), seed_of(place)
        run = Run(place, spec, seed_in(RunFolder(place)) if seed is None else seed)
        run.read(SPEC)  # as the manifest says
        environment.require_parts(spec, place)
        if run.finished:
            run.grid()
        return run

    def runs(self, say: Say | None = None, preset: str = "", hashes: Collection[str] | None = None) -> Iterator[Run]:
        """Yield every run that has begun, of one preset or of these hashes where said, then the archive's others.

        They come by task, normalizer and specification, and seeds by their number.

        Raises ``RunFailed`` where a specification cannot be read or has another hash than its folder; with ``say`` such
        a folder, or one that is called otherwise, is named and passed over.
        """
        seen = set[str]()

        def wanted(key: str) -> bool:
            name, _, hash_ = key.split("/")[-2].rpartition("-")
            return preset in ("", name) and (hashes is None or hash_ in hashes)

        begun = [path for path in self.root.glob("runs/*/*/*/seed-*/spec.json") if wanted(path.parent.as_posix())]
        for path in sorted(begun, key=lambda path: by_number(path.parent.as_posix())):
            try:
                run = self._begun(path)
            except RunFailed as reason:
                if say is None:
                    raise
                say(str(reason))
                continue
            seen.add(run.key)
            yield run
        for archived in self.archive.runs() if self.archive is not None else ():
            if archived.key not in seen and wanted(archived.key):
                place = self.root / "runs" / archived.key
                spec = parse_spec(read(archived, SPEC), archived.path)
                yield self._run(place, spec, seed_of(place) or 0)

    def study(self, folder: Path) -> Path:
        """Return the folder of a study: this one, or where it is missing the repository's study of the same name."""
        other = self._repositorys(folder)
        return other if other is not None and other.exists() and not folder.exists() else folder

    def studies(self, parent: Path, pattern: str) -> list[Path]:
        """Return the folders of studies in ``parent`` whose names match, here or in the repository, sorted."""
        places = (parent, self._repositorys(parent))
        names = {path.name for place in places if place is not None for path in place.glob(pattern)}
        return [self.study(parent / name) for name in sorted(names)]

    def _repositorys(self, folder: Path) -> Path | None:
        mine = own_studies(self.root)
        if self.archive is None or not folder.is_relative_to(mine):
            return None
        return self.archive.root.parent / folder.relative_to(mine)

    def _begun(self, path: Path) -> Run:
        seed = seed_of(path.parent)
        if seed is None:
            raise RunFailed(f"{path.parent} is not called seed-K as the folder of a run is; move it away.")
        spec = read_spec(path)
        checks.folder(spec, path.parent)
        return self._run(path.parent, spec, seed)

    def _run(self, folder: Path, spec: RunSpec, seed: int, swap: str = "") -> Run:
        key = "/".join(folder.parts[-4:])
        return Run(folder, spec, seed, swap, ArchivedRun(self.archive, key) if self.archive is not None else None)


def by_rule(runs: Sequence[Run]) -> dict[str, list[Run]]:
    """Group runs of several training seeds by their normalizer, in order of appearance."""
    names = dict.fromkeys(run.name for run in runs)
    return {name: [run for run in runs if run.name == name] for name in names}


def seed_in(files: RunFiles) -> int:
    """Return the seed recorded in a run's grid; raises ``RunFailed`` where there is none."""
    if GRID not in files:
        raise RunFailed(f"{files.path} does not say its seed: it is not called seed-K, and holds no {GRID}.")
    with reading(files.path / GRID, WAY_OUT, *MISFIT):
        seed = Grid.read(read(files, GRID).decode()).frame["seed"].tolist()[0]
        if not isinstance(seed, int) or seed < 0:
            raise ValueError(f"its seed is {seed}")
        return seed


def seed_of(folder: Path) -> int | None:
    """Return the K of a folder ``seed-K``; None for another name."""
    word, _, number = folder.name.partition("-")
    return int(number) if word == "seed" and number.isascii() and number.isdigit() else None
