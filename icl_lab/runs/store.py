"""A results folder: where the run of a specification and seed lies, and which runs there are.

What needs torch (``Run``) is imported where a run is asked for: who reads tables and records does without.
"""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING

from icl_lab.base.errors import RunFailed, UnknownName
from icl_lab.base.registry import filename
from icl_lab.runs.evidence.archive import Archive, ArchivedRun, by_number, own_studies
from icl_lab.runs.lock import Say
from icl_lab.runs.manifest import SPEC

if TYPE_CHECKING:
    from icl_lab.runs.run import Run
    from icl_lab.runs.spec import RunSpec


@dataclass(frozen=True)
class Store:
    """A results folder, with an optional archive for runs that it does not hold."""

    root: Path
    archive: Archive | None = None

    def run(self, spec: "RunSpec", seed: int, swap: str = "") -> "Run":
        """Return the place of a run, whether or not it is there yet."""
        return self._run(self.folder(spec) / f"seed-{seed}", spec, seed, swap)

    def folder(self, spec: "RunSpec") -> Path:
        """Return the folder that holds all seeds of a specification."""
        return self.root / "runs" / filename(spec.task) / filename(spec.attn) / f"{spec.preset}-{spec.hash}"

    def seeds(self, spec: "RunSpec") -> list[int]:
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

    def at(self, place: Path) -> "Run":
        """Return the run in a folder ``.../seed-K``; raises ``UnknownName`` with the nearest runs there are.

        Raises it too where the run's task or normalizer is not known here, with the import that the run was made with,
        and ``RunFailed`` where the specification inside is not the one that the folder is named after.
        """
        seed, path = seed_of(place), place / SPEC
        archived = self.archive.run("/".join(place.parts[-4:])) if self.archive and not path.exists() else None
        if seed is None or not (path.exists() or archived):
            there = [str(run.folder) for run in self.runs(lambda reason: None)]
            raise UnknownName("run", str(place), get_close_matches(str(place), there, n=5, cutoff=0))
        from icl_lab.runs import checks, environment

        spec = _spec(path, archived)
        checks.folder(spec, place)
        environment.require_parts(spec, place)
        return self._run(place, spec, seed)

    def runs(self, say: Say | None = None, preset: str = "", hashes: Collection[str] | None = None) -> Iterator["Run"]:
        """Yield every run that has begun, of one preset or of these hashes where said, then the archive's others.

        They come by task, normalizer and specification, and seeds by their number.

        Raises ``RunFailed`` where a specification cannot be read or has another hash than its folder; with ``say`` such
        a folder, or one that is called otherwise, is named and passed over.
        """
        seen = set[str]()
        begun, archived_runs = self._chosen(preset, hashes)
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
        for archived in archived_runs:
            if archived.key not in seen:
                place = self.root / "runs" / archived.key
                yield self._run(place, _spec(archived.path, archived), seed_of(place) or 0)

    def recorded(self, hashes: Collection[str]) -> bool:
        """True if a run of these hashes may say what code made it: one begun here, or one that the archive knows of."""
        begun, archived = self._chosen("", hashes)
        return bool(begun) or any(run.recorded for run in archived)

    def _chosen(self, preset: str, hashes: Collection[str] | None) -> tuple[list[Path], list[ArchivedRun]]:
        """Specifications of runs that have begun, and runs of the archive, of one preset or of these hashes."""

        def chosen(key: str) -> bool:
            name, _, spec = key.split("/")[-2].rpartition("-")
            return preset in ("", name) and (hashes is None or spec in hashes)

        begun = [path for path in self.root.glob("runs/*/*/*/seed-*/spec.json") if chosen(path.parent.as_posix())]
        held = self.archive.runs() if self.archive is not None else ()
        return begun, [run for run in held if chosen(run.key)]

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

    def _begun(self, path: Path) -> "Run":
        seed = seed_of(path.parent)
        if seed is None:
            raise RunFailed(f"{path.parent} is not called seed-K as the folder of a run is; move it away.")
        from icl_lab.runs import checks

        spec = _spec(path)
        checks.folder(spec, path.parent)
        return self._run(path.parent, spec, seed)

    def _run(self, folder: Path, spec: "RunSpec", seed: int, swap: str = "") -> "Run":
        from icl_lab.runs.run import Run

        key = "/".join(folder.parts[-4:])
        return Run(folder, spec, seed, swap, ArchivedRun(self.archive, key) if self.archive is not None else None)


def _spec(path: Path, archived: ArchivedRun | None = None) -> "RunSpec":
    from icl_lab.runs import run, run_files

    return run.read_spec(path) if archived is None else run.parse_spec(run_files.read(archived, SPEC), path)


def by_rule(runs: Sequence["Run"]) -> dict[str, list["Run"]]:
    """Group runs of several training seeds by their normalizer, in order of appearance."""
    names = dict.fromkeys(run.name for run in runs)
    return {name: [run for run in runs if run.name == name] for name in names}


def seed_of(folder: Path) -> int | None:
    """Return the K of a folder ``seed-K``; None for another name."""
    word, _, number = folder.name.partition("-")
    return int(number) if word == "seed" and number.isascii() and number.isdigit() else None
