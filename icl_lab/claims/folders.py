"""The folders of an experiment's studies: which there are, and from which of them a claim is read.

The usual one, ``NAME-PRESET``, holds what was asked of all variants. There may be others, with a hash behind the
name, that hold more seeds of some of them.
"""

import dataclasses
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from icl_lab.analyses.frame import AnyAnalysis
from icl_lab.claims.schema import Claim
from icl_lab.runs import study_folder
from icl_lab.runs.evidence.archive import own_studies
from icl_lab.runs.presets import PRESETS
from icl_lab.runs.store import Store
from icl_lab.runs.study_folder import StudyRecord

if TYPE_CHECKING:
    from icl_lab.claims.sides import Sides

Answers = object  # what an analysis found, which nobody but the analysis can read
HASH = "[0-9a-f]" * 6  # of a study, as a pattern for names of files and as a regular expression


def usual(experiment_name: str, store: Store, preset: str) -> Path:
    """Return the folder that an experiment is published in unless it holds another study, there or not."""
    return own_studies(store.root) / "experiments" / f"{Path(experiment_name).stem}-{preset}"


def others(place: Path) -> str:
    """The pattern of the other folders."""
    return f"{place.name}-{HASH}"


def of(experiment_name: str, store: Store, preset: str) -> list[Path]:
    """Return the folders of an experiment, here or in the repository, the usual one first."""
    place = usual(experiment_name, store, preset)
    return [store.study(place), *store.studies(place.parent, others(place))]


def parts(folder_name: str) -> tuple[str, str] | None:
    """Return the experiment and the preset in the name of a folder; None for one that was named otherwise."""
    found = re.fullmatch(rf"(.+)-({'|'.join(PRESETS)})(?:-{HASH})?", folder_name)
    return None if found is None else (found[1], found[2])


def fullest(experiment_name: str, store: Store, preset: str) -> Path:
    """Return the folder of most runs; the version of the analysis (``Analysis.version``) counts before."""
    folders = of(experiment_name, store, preset)
    return max(folders, key=lambda place: _extent(study_folder.read(place)))


def _extent(study: StudyRecord | None) -> tuple[int, int]:
    """Version of the question, and number of runs."""
    return (study.options.get("version", 1), len(study.runs)) if study is not None else (0, 0)


def of_kind(kind: str, store: Store) -> dict[Path, StudyRecord]:
    """Return the studies of a kind, here or in the repository, those of experiments among them."""
    mine = own_studies(store.root)
    places = [*store.studies(mine, "*/"), *store.studies(mine / "experiments", "*/")]
    known = {place: study_folder.read(place) for place in places}
    return {place: study for place, study in known.items() if study is not None and study.kind == kind}


def asked_otherwise(study: StudyRecord, analysis: AnyAnalysis) -> dict[str, tuple[object, object]]:
    """Return the options of a stored study that are different in the (prepared) analysis: the values stored and here.

    How many prompts are drawn is not among them: it changes the precision, not the question.
    """
    fields = dataclasses.fields(analysis)  # type: ignore[arg-type]
    here: dict[str, object] = {field.name: getattr(analysis, field.name) for field in fields}
    options = {field.name: field.default for field in fields if field.metadata.get("later")} | study.options
    counts = {field.name for field in fields if "prompts" in (field.name, *field.metadata.get("names", ()))}
    plain = json.loads(json.dumps(here, default=list))  # as a record holds them
    return {
        name: (options[name], value)
        for name, value in plain.items()
        if name in options and name not in counts and options[name] != value
    }


def prepared(sides: "Sides", analysis: AnyAnalysis) -> AnyAnalysis:
    """Return an experiment's analysis with the options filled in that depend on its runs."""
    runs = [sides.store.run(spec, 0, sides.variant(name).tested_with) for name, spec in sides.specs.items()]
    return analysis.prepared(runs)


def stored(analysis: AnyAnalysis, folder: Path) -> Answers | None:
    """Return what an analysis found, as it is kept in its folder; None where nothing is there.

    Raises ``RunFailed`` where a file of the folder is damaged or was edited.
    """
    if not folder.exists():
        return None
    study_folder.verify(folder, pictures=False)
    found: Answers | None = analysis.read(folder)
    return found


class Studies:
    """Stored results of an analysis: each folder is read once, and a claim from the one that has most of it.

    A folder that answers another question (``asked_otherwise``) is none of them.
    """

    def __init__(self, sides: "Sides", analysis: AnyAnalysis | None, places: Sequence[Path]) -> None:
        self._sides, self._analysis = sides, analysis
        known = {place: study_folder.read(place) for place in places if place.exists()}
        now = None if analysis is None else prepared(sides, analysis)
        self._studies = {
            place: study
            for place, study in known.items()
            if study is None or now is None or not asked_otherwise(study, now)
        }
        self._read: dict[Path, Answers | None] = {}
        self._places: dict[tuple[str, ...], Path | None] = {}

    def place(self, claim: Claim) -> Path | None:
        """Return the folder where most seeds of the claim's variants were asked; None where there is none.

        Of equals it is one that keeps single prompts, then that of more runs. Those of the latest version of the
        analysis come first.
        """
        variants = tuple(self._sides.variants_for([claim]))
        if variants not in self._places:  # asked for every value of a claim
            extents = {place: self._extent(study, variants) for place, study in self._studies.items()}
            self._places[variants] = max(extents, key=extents.__getitem__, default=None)
        return self._places[variants]

    def read(self, place: Path | None) -> Answers | None:
        """Return the results of one of the folders; None without results, or without a folder."""
        if self._analysis is None or place is None:
            return None
        if place not in self._read:
            self._read[place] = stored(self._analysis, place)
        return self._read[place]

    def _extent(self, study: StudyRecord | None, variants: Sequence[str]) -> tuple[bool, int, int, bool, int]:
        seeds = len(self._shared(study, variants)) if study is not None else 0
        version, runs = _extent(study)
        return seeds > 0, version, seeds, study is not None and "prompts.csv" in study.files, runs

    def _shared(self, study: StudyRecord, variants: Sequence[str]) -> set[int]:
        """The training seeds that all of these variants have, as they are now."""
        now = {name: ("", self._sides.specs[name].hash) for name in variants}
        return set.intersection(
            *(
                {run.seed for run in study.runs if run.label == name and run.spec in specs}
                for name, specs in now.items()
            )
        )
