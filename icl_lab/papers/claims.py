"""Claims against stored results: what each experiment says, and what was seen at this scale."""

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from icl_lab.analyses.frame import Analysis
from icl_lab.errors import Undefined
from icl_lab.papers import cost, gate, quantities, verdicts
from icl_lab.papers import experiment as experiments
from icl_lab.papers.schema import Claim, Experiment
from icl_lab.papers.verdicts import Finding
from icl_lab.runs import study_folder
from icl_lab.runs.presets import PRESETS
from icl_lab.runs.store import Store
from icl_lab.runs.study_folder import StudyRecord


def folders(experiment_name: str, store: Store, preset: str) -> list[Path]:
    """Returns the folders of an experiment, here or in the repository: the usual one, and those of some variants."""
    usual = store.root / "experiments" / f"{Path(experiment_name).stem}-{preset}"
    return [store.study(usual), *store.studies(usual.parent, f"{usual.name}-{'[0-9a-f]' * 6}")]


def folder(experiment_name: str, store: Store, preset: str) -> Path:
    """Returns the folder of most runs; the version of the analysis (``Analysis.version``) counts before."""
    there = folders(experiment_name, store, preset)
    return max(there, key=lambda place: _extent(study_folder.read(place)))


def _extent(study: StudyRecord | None) -> tuple[int, int]:
    """The version of what was asked, and of how many runs."""
    return (study.options.get("version", 1), len(study.runs)) if study is not None else (0, 0)


def judged_at(experiment_name: str, experiment: Experiment, store: Store, preset: str) -> str:
    """Returns the preset at which an experiment is judged where ``preset`` is asked for: that one, if it trains models.

    One that trains nothing is judged where it was asked, at another preset if at no other place.
    """
    question = experiment.question()
    if question is None or question.trains:
        return preset
    places = ((each, folder(experiment_name, store, each)) for each in (preset, *PRESETS))
    return next((each for each, place in places if study_folder.read(place) is not None), preset)


def findings(
    experiment: Experiment,
    store: Store,
    preset: str,
    places: Sequence[Path] = (),
    settings: Sequence[str] = (),
    found: Any = None,
    costs: cost.Costs | None = None,
) -> list[Finding]:
    """Judges every claim from what is finished, over the training seeds that both of its sides have; trains nothing.

    What an analysis found is read, for each claim, from that of the folders ``places`` which has most seeds of its
    sides, unless it is at hand as ``found``. Who asks of many experiments hands on what it knows of their ``costs``.
    """
    analysis, costs = experiment.question(), costs or cost.Costs(store, preset)
    judged, finished = [], quantities.Finished(experiment, store, preset, settings)
    kept = _Kept(finished, places if analysis is not None and found is None else ())
    for claim in experiment.claims:
        if analysis is None:
            source = quantities.from_grids(finished, claim)
        else:
            there = kept.found(analysis, claim) if found is None else found
            source = quantities.from_analysis(analysis, there, claim, quantities.scale(experiment, claim))
        if not source.seeds:
            judged.append(Finding(claim, "not run", note=finished.lacking(claim)))
            continue
        try:
            left, right = (
                [source.read(side, claim.metric, seed) for seed in source.seeds] for side in (claim.left, claim.right)
            )
        except Undefined as reason:
            judged.append(Finding(claim, "nothing to judge", note=str(reason.args[0])))
            continue
        except KeyError as reason:  # the preset's test grid has no such cell
            judged.append(Finding(claim, "not run", note=str(reason.args[0])))
            continue
        scale = quantities.scale(experiment, claim)
        if scale == "log-ratio":
            left, right = ([math.exp(value) for value in values] for values in (left, right))
        lacks, hours = partial(_unlearned, finished, claim, source.seeds), costs.seed(finished, claim) / 3600
        verdict = verdicts.judge(claim, source.seeds, left, right, scale, source.noise, source.resolution, lacks, hours)
        judged.append(replace(verdict, failed=gate.failed(finished, claim, verdict.seeds)))
    return judged


class _Kept:
    """What an analysis found, as folders hold it: each is read once, and a claim from the one that has most of it."""

    def __init__(self, finished: quantities.Finished, places: Sequence[Path]) -> None:
        self._finished = finished
        self._studies = {place: study_folder.read(place) for place in places}
        self._read: dict[Path, Any] = {}

    def found(self, analysis: Analysis, claim: Claim) -> Any:
        """Returns what was found where most seeds of what the claim hangs on were asked; None where nothing was.

        Of equals it is the folder of more runs. Those of the latest version of the analysis come first.
        """
        place = max(self._studies, key=lambda place: self._extent(self._studies[place], claim), default=None)
        if place is not None and place not in self._read:
            self._read[place] = quantities.stored(analysis, place)
        return None if place is None else self._read[place]

    def _extent(self, study: StudyRecord | None, claim: Claim) -> tuple[bool, int, int, int]:
        seeds = len(self._shared(study, claim)) if study is not None else 0
        version, runs = _extent(study)
        return seeds > 0, version, seeds, runs

    def _shared(self, study: StudyRecord, claim: Claim) -> set[int]:
        """The training seeds of all variants that a claim hangs on, as they are now."""
        now = {name: ("", self._finished.specs[name].hash) for name in self._finished.variants_for([claim])}
        return set.intersection(
            *(
                {run.seed for run in study.runs if run.label == name and run.spec in specs}
                for name, specs in now.items()
            )
        )


def _unlearned(finished: quantities.Finished, claim: Claim, seeds: Sequence[int], count: int) -> str:
    """Which side of a claim has not learned its task in the first so many of the seeds."""
    return gate.unlearned(finished, claim, seeds[:count])


def stored(
    name: str, files: Path, store: Store, preset: str, costs: cost.Costs | None = None
) -> tuple[Experiment, list[str], list[Finding]]:
    """Returns an experiment as it fits a preset, what was left out and why, and its claims judged by what is there.

    One that trains nothing is the same at every preset: its claims are judged where it was asked, and nowhere else.
    """
    made, left_out = experiments.fitting(experiments.load(name, files), preset)
    asked = judged_at(name, made, store, preset)
    if asked != preset:
        return made, [*left_out, f"trains nothing and is the same at every preset: judged at {asked}"], []
    found = findings(made, store, preset, folders(name, store, preset), costs=costs)
    return made, [*left_out, *remarks(name, made, store, preset)], found


def remarks(name: str, experiment: Experiment, store: Store, preset: str) -> list[str]:
    """Says, where it is so, that what is stored of an experiment was made from another version of its file."""
    place = folder(name, store, preset)
    study = study_folder.read(place)
    if study is None or study.source in ("", experiment.sha256):
        return []
    return [f"{place} was made from another version of {name}.toml (sha256 {study.source[:8]})."]


def text(name: str, experiment: Experiment, found: Sequence[Finding]) -> list[str]:
    """The ledger's lines of one experiment, for the terminal."""
    lines = [f"{name}: {experiment.title}"]
    for finding in found:
        lines.append(f"  {finding.verdict.upper():17}{_say(finding.claim)}")
        if finding.words:
            lines.append(f"  {'':17}here {finding.words}{_beside(finding.claim)}")
        if finding.outlook:
            lines.append(f"  {'':17}{finding.outlook} would decide it")
    return lines


def _say(claim: Claim) -> str:
    return f"{claim.statement} ({claim.where})"


def _beside(claim: Claim) -> str:
    return f"; published {claim.published}" if claim.published else ""
