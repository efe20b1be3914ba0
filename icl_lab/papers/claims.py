"""Claims against stored results: what each experiment says, and what was seen at this scale."""

import csv
import io
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache, partial
from pathlib import Path
from statistics import fmean

from icl_lab.analyses import publish
from icl_lab.comparison.verdict import State, Verdict
from icl_lab.errors import RunFailed, Undefined
from icl_lab.files import sha256
from icl_lab.papers import cost, folders, printed, quantities, verdicts
from icl_lab.papers import experiment as experiments
from icl_lab.papers.finished import Finished, far, unlearned, unlearned_counts
from icl_lab.papers.folders import Answers
from icl_lab.papers.quantities import ClaimSource
from icl_lab.papers.schema import Claim, Experiment, Quantity
from icl_lab.papers.verdicts import Evidence, Finding
from icl_lab.parts.option_values import write
from icl_lab.runs import study_folder
from icl_lab.runs.presets import PRESETS
from icl_lab.runs.store import Store

# What the repository's record was judged from, the correlation of seeds within a block that it found, and a seal on
# both files.
BASIS = "claims-basis.csv"
RECORD = "claims.csv"


def judged_at(experiment_name: str, experiment: Experiment, store: Store, preset: str) -> str:
    """Returns the preset at which an experiment is judged where ``preset`` is asked for: that one, if it trains models.

    One that trains nothing is judged where it was asked, at another preset if at no other place.
    """
    question = experiment.question()
    if question is None or question.trains:
        return preset
    places = ((each, folders.fullest(experiment_name, store, each)) for each in (preset, *PRESETS))
    return next((each for each, place in places if study_folder.read(place) is not None), preset)


def findings(
    finished: Finished,
    places: Sequence[Path] = (),
    found: Answers | None = None,
    costs: cost.Costs | None = None,
    correlation: float | None = None,
) -> list[Finding]:
    """Judges every claim from what is finished, over the training seeds that both of its sides have; trains nothing.

    What an analysis found is read, for each claim, from that of the folders ``places`` which has most seeds of its
    sides, unless it is at hand as ``found``. Who asks of many experiments hands on what it knows of their ``costs``,
    and the ``correlation`` of seeds within a block; by default it is that of the repository's record.
    """
    analysis, costs = finished.experiment.question(), costs or cost.Costs(finished.store, finished.preset)
    correlation = seed_correlation(finished.store) if correlation is None else correlation
    studies = folders.Studies(finished, analysis, places if analysis is not None and found is None else ())
    judged = []
    for claim in finished.experiment.claims:
        place = studies.place(claim)
        answers = studies.read(place) if found is None else found
        source, exploratory = _source(finished, claim, answers)
        about = tuple(finished.tested(name) for name in finished.variants_for([claim]))
        finding = _judged(finished, claim, source, costs, correlation)
        judged.append(
            replace(
                finding,
                about=about,
                study=place,
                exploratory_seeds=tuple(source.exploratory_seeds),
                exploratory=exploratory,
            )
        )
    return judged


def _source(finished: Finished, claim: Claim, answers: Answers | None) -> tuple[ClaimSource, bool]:
    """Source of a claim without the seeds that may have suggested it; True if it cannot do without these.

    They are those that the claim names, and those that were finished before it was registered, if three or more others
    are there.
    """
    named = claim.suggested_by.get(finished.preset, ())
    source = quantities.source(finished, claim, answers, named)
    early = finished.before_registration(claim, source.seeds)
    if len(source.seeds) - len(early) < verdicts.FIRST:
        return source, bool(early)
    return (quantities.source(finished, claim, answers, [*named, *early]) if early else source), False


def _judged(finished: Finished, claim: Claim, source: ClaimSource, costs: cost.Costs, correlation: float) -> Finding:
    """Judges a claim from both sides of it as they are read."""
    undefined = next(iter(source.undefined.values()), "")
    if not source.seeds:
        state = State.NOTHING_TO_JUDGE if undefined else State.NOT_RUN
        return Finding(claim=claim, verdict=Verdict(state=state), note=undefined)
    try:
        left, right = source.values(claim, source.seeds)
    except Undefined as reason:
        return Finding(claim=claim, verdict=Verdict(state=State.NOTHING_TO_JUDGE), note=str(reason.args[0]))
    except KeyError as reason:  # the preset's test grid has no such cell
        return Finding(claim=claim, verdict=Verdict(state=State.NOT_RUN), note=str(reason.args[0]))
    evidence = Evidence(
        seeds=source.seeds,
        left=left,
        right=right,
        scale=source.scale,
        noise=source.noise,
        resolution=source.resolution,
        span=source.span,
        unlearned=partial(_unlearned, finished, claim, source.seeds),
        blocks=finished.blocks(claim, source.seeds),
        correlation=correlation,
    )
    effect = printed.effect(finished.experiment, claim, source.scale, finished.task.headline)
    judge = partial(verdicts.judge, claim, printed=effect, hours=costs.seed(finished, claim) / 3600)
    found = judge(evidence)
    these_prompts = source.prompted and lacks_prompt_variance(found)
    if these_prompts and found.decided:
        bounded = judge(replace(evidence, noise=source.bound))
        if bounded.verdict == found.verdict and not lacks_prompt_variance(bounded):
            found, these_prompts = bounded, False
    if len(source.undefined) >= len(found.seeds):  # what was seen in few of many is no answer to the claim
        return Finding(claim=claim, verdict=Verdict(state=State.NOTHING_TO_JUDGE), note=undefined)
    if found.verdict.judged and (why := _no_better(finished, claim, source, found.seeds)):
        found = replace(found, verdict=Verdict(state=State.NOT_BETTER), note=why)
    failed = unlearned_counts(finished, claim, found.seeds)
    return replace(found, failed=failed, skipped_seeds=tuple(source.undefined), these_prompts=these_prompts)


def _no_better(finished: Finished, claim: Claim, source: ClaimSource, seeds: Sequence[int]) -> str:
    """Returns why nothing is to be judged: neither side does better than a trivial reference in the claim's cells.

    Means over the seeds, in the cells of each side, are compared. Empty where one side does, where a side is no trained
    model, where grids are read in training conditions, and where what is compared are no errors.
    """
    task, question, sides = finished.task, finished.experiment.question(), (claim.left, claim.right)
    metrics = ("", task.headline) if question is None else question.error_metrics
    trained = all(finished.experiment.variant(side.of) is not None for side in sides)
    if not trained or claim.metric not in metrics or (question is None and not all(far(s, finished) for s in sides)):
        return ""
    beaten = list[str]()
    for side in sides:
        own = fmean(source.read(side, claim.metric, seed) for seed in seeds)
        errors = {name: _reference(finished, claim, source, side, name, seeds[0]) for name in task.trivial}
        beaten += [name for name, error in errors.items() if error <= own][:1]
    return f"neither side does better than the reference {' or '.join(dict.fromkeys(beaten))}" * (len(beaten) == 2)


def _reference(finished: Finished, claim: Claim, source: ClaimSource, side: Quantity, name: str, seed: int) -> float:
    """The error of a reference in the cells of a side; infinity where it is not stored."""
    if finished.experiment.question() is None:
        return quantities.reference(finished, claim, side, name, seed)
    try:
        return source.read(Quantity(f"reference:{name}", side.cells), claim.metric, seed)
    except KeyError:
        return math.inf


def seed_correlation(store: Store) -> float:
    """Returns the correlation of seeds within a block, as the repository's record tells it; 0 where there is none."""
    return float(_basis(store).get("correlation", 0.0))


def recorded_basis(store: Store) -> str:
    """Returns the checksum of what the repository's record was judged from; empty where there is no record."""
    return _basis(store).get("basis", "")


def basis_text(basis: str, several: int, correlation: float, record: str) -> str:
    """Returns the file ``BASIS`` that stands beside a record."""
    row = {"basis": basis, "several_blocks": str(several), "correlation": f"{correlation:.3f}"}
    return f"{','.join([*row, 'seal'])}\n{','.join([*row.values(), _seal(row, record.encode())])}\n"


def _seal(row: Mapping[str, str], record: bytes) -> str:
    return sha256(json.dumps([row["basis"], row["several_blocks"], row["correlation"], sha256(record)]).encode())[:16]


def _basis(store: Store) -> dict[str, str]:
    """The row of the file ``BASIS``; raises ``RunFailed`` where it is no such file, or where its seal is wrong."""
    path = None if store.archive is None else store.archive.root.parent / BASIS
    if path is None or not path.exists():
        return {}
    record = path.with_name(RECORD)
    return _sealed(path, record, path.stat().st_mtime_ns, record.stat().st_mtime_ns if record.exists() else 0)


@lru_cache(maxsize=4)  # it is asked for with each experiment, and the record is large
def _sealed(path: Path, record: Path, *changed: int) -> dict[str, str]:
    try:
        (row,) = csv.DictReader(io.StringIO(path.read_text()))
        # Records from before there were seals have none.
        if "seal" in row and row["seal"] != _seal(row, record.read_bytes()):
            raise ValueError(f"it or {RECORD} was damaged or edited")
        return {"basis": row["basis"], "correlation": str(float(row["correlation"]))}
    except (OSError, ValueError, KeyError, TypeError, csv.Error) as error:
        raise RunFailed(f"{path} cannot be read: {error}; take it from the repository again.") from error


def lacks_prompt_variance(finding: Finding) -> bool:
    """True if there is an interval that leaves out what the test prompts add."""
    effect = finding.effect
    return effect is not None and not math.isnan(effect.low) and math.isnan(effect.prompts_error[0])


def _unlearned(finished: Finished, claim: Claim, seeds: Sequence[int], count: int) -> str:
    """Which side of a claim has not learned its task in the first so many of the seeds."""
    return unlearned(finished, claim, seeds[:count])


def stored(
    name: str, files: Path, store: Store, preset: str, costs: cost.Costs | None = None, correlation: float | None = None
) -> tuple[Experiment, list[str], list[Finding]]:
    """Returns an experiment as it fits a preset, what was left out and why, and its claims judged by what is there.

    One that trains nothing is the same at every preset: its claims are judged where it was asked, and nowhere else.
    """
    made, left_out = experiments.fitting(experiments.load(name, files), preset)
    asked = judged_at(name, made, store, preset)
    if asked != preset:
        return made, [*left_out, f"trains nothing and is the same at every preset: judged at {asked}"], []
    found = findings(Finished(made, store, preset), folders.of(name, store, preset), None, costs, correlation)
    return made, [*left_out, *remarks(name, made, store, preset)], found


def remarks(name: str, experiment: Experiment, store: Store, preset: str) -> list[str]:
    """Says, where it is so, that what is stored of an experiment was made from another version of its file.

    And which of it answers another question than is asked now, so that no claim is read from it.
    """
    places = folders.of(name, store, preset)
    known = {place: study for place in places if (study := study_folder.read(place)) is not None}
    said = [
        f"{place} was made from another version of {name}.toml (sha256 {study.source[:8]})."
        for place, study in known.items()
        if study.source not in ("", experiment.sha256)
    ]
    if (analysis := experiment.question()) is None or not known:
        return said
    now = folders.prepared(Finished(experiment, store, preset), analysis)
    for place, study in known.items():
        if study.code and study.code != publish.code(experiment.analysis):
            said.append(
                f"{place} was found by another version of the analysis '{experiment.analysis}'; --force asks anew."
            )
        if other := folders.asked_otherwise(study, now):
            options = ", ".join(f"{name}={write(old)} (now {write(new)})" for name, (old, new) in other.items())
            said.append(f"{place} was asked with {options}: no claim is read from it.")
    return said
