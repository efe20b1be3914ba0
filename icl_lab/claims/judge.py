"""Judge claims from stored runs: from one number per seed and side to a finding; trains nothing."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Literal

from msgspec.structs import replace as changed

from icl_lab.analyses import publish
from icl_lab.base import markdown as md
from icl_lab.base.errors import Undefined
from icl_lab.base.files import sha256
from icl_lab.base.option_values import write
from icl_lab.base.registry import require
from icl_lab.claims import cost, folders, ledger, printed, quantities
from icl_lab.claims import experiment as experiments
from icl_lab.claims.finished import Finished, far, unlearned, unlearned_counts
from icl_lab.claims.folders import Answers
from icl_lab.claims.ledger import FIRST, Finding
from icl_lab.claims.quantities import Evidence
from icl_lab.claims.schema import Claim, Experiment, Quantity
from icl_lab.comparison import blocks, sequential
from icl_lab.comparison.sequential import Look
from icl_lab.comparison.statistics import MARGIN, Scale
from icl_lab.comparison.verdict import EffectSize, State, agrees, direction_of, settled, size_of
from icl_lab.runs import study_folder
from icl_lab.runs.presets import PRESETS
from icl_lab.runs.store import Store

READ = ("direction", "size", "agrees", "decided", "more", "more_prompts", "chance")  # from an interval
Recorded = Mapping[tuple[str, str], Sequence[Finding]]  # by experiment and preset


def stored(
    name: str, files: Path, store: Store, preset: str, costs: cost.Costs | None = None, correlation: float | None = None
) -> tuple[Experiment, list[str], list[Finding]]:
    """Return an experiment as it fits a preset, what was left out and why, and its claims judged from stored runs.

    One that trains nothing is the same at every preset: its claims are judged where it was asked, and nowhere else.
    """
    made, left_out = experiments.fitting(experiments.load(name, files), preset, curves=store)
    asked = judged_at(name, made, store, preset)
    if asked != preset:
        return made, [*left_out, f"trains nothing and is the same at every preset: judged at {asked}"], []
    found = findings(Finished(made, store, preset), folders.of(name, store, preset), None, costs, correlation)
    return made, [*left_out, *remarks(name, made, store, preset)], found


def judged_at(experiment_name: str, experiment: Experiment, store: Store, preset: str) -> str:
    """Return the preset at which an experiment is judged where ``preset`` is asked for: that one, if it trains models.

    One that trains nothing is judged where it was asked, at another preset if at no other place.
    """
    question = experiment.question()
    if question is None or question.trains:
        return preset
    places = ((each, folders.fullest(experiment_name, store, each)) for each in (preset, *PRESETS))
    return next((each for each, place in places if study_folder.read(place) is not None), preset)


def recorded(
    name: str, files: Path, store: Store, preset: str, record: Recorded, costs: cost.Costs
) -> tuple[list[str], Sequence[Finding]]:
    """Return remarks on an experiment at a preset, and its findings: the record's, or judged now."""
    made, left_out = experiments.fitting(experiments.load(name, files), preset, curves=store)
    known = record.get((name, preset), [])
    if known and current(name, made, store, preset, known):
        return [*left_out, *remarks(name, made, store, preset)], known
    return stored(name, files, store, preset, costs)[1:]


def current(name: str, experiment: Experiment, store: Store, preset: str, found: Sequence[Finding]) -> bool:
    """Return True where findings on an experiment are about its present claims, judged from the runs of now."""
    if [each.claim for each in found] != [claim.statement for claim in experiment.claims]:
        return False
    return {each.judged_from for each in found} == {checksum(name, experiment, store, preset)}


def checksum(name: str, experiment: Experiment, store: Store, preset: str) -> str:
    """SHA-256, shortened, of what an experiment's claims are judged from: its file, finished runs and studies."""
    finished = Finished(experiment, store, preset)
    registered = sorted((claim, time.isoformat()) for claim, time in experiment.registered.items())
    parts: list[object] = [ledger.VERSION, experiment.sha256, registered, ledger.seed_correlation(store)]
    for variant in experiment.variants:
        spec = finished.specs[variant.name]
        for seed in sorted(store.seeds(spec)):
            # Whether a model has learned its task is read from the test with its own normalizer.
            runs = (store.run(spec, seed, variant.tested_with), finished.tested_by(variant.name, seed))
            parts += [[each.key, each.swap, each.checksums()] for each in runs if each.finished]
    if experiment.question() is not None:
        studies = (study_folder.read(place) for place in folders.of(name, store, preset))
        parts += [study.numbers for study in studies if study is not None]
    ordered = json.dumps(sorted(parts, key=json.dumps))
    return sha256(ordered.encode())[:16]


def findings(
    finished: Finished,
    places: Sequence[Path] = (),
    found: Answers | None = None,
    costs: cost.Costs | None = None,
    correlation: float | None = None,
) -> list[Finding]:
    """Judge every claim from finished runs, over the training seeds that both of its sides have.

    What an analysis found is read, for each claim, from that of the folders ``places`` which has most seeds of its
    sides, unless it is at hand as ``found``. ``correlation`` is that of seeds within a block, by default the
    repository record's.
    """
    analysis, costs = finished.experiment.question(), costs or cost.Costs(finished.store, finished.preset)
    correlation = ledger.seed_correlation(finished.store) if correlation is None else correlation
    studies = folders.Studies(finished, analysis, places if analysis is not None and found is None else ())
    judged = []
    for claim in finished.experiment.claims:
        place = studies.place(claim)
        answers = studies.read(place) if found is None else found
        evidence, exploratory = _evidence(finished, claim, answers)
        about = (finished.tested(name) for name in finished.variants_for([claim]))
        judged.append(
            changed(
                _judged(finished, claim, evidence, costs, correlation),
                experiment=finished.experiment.name,
                preset=finished.preset,
                theory=analysis is not None and not analysis.trains,
                specs=tuple(f"{spec}->{swap}" if swap else spec for spec, swap in about),
                study=place.name if place else "",
                left_out=tuple(evidence.left_out),
                exploratory=exploratory,
                rates=_rates(finished, claim),
            )
        )
    return judged


def _evidence(finished: Finished, claim: Claim, answers: Answers | None) -> tuple[Evidence, bool]:
    """Evidence on a claim without the seeds that may have suggested it; True if it cannot do without these.

    They are those that the claim names, and those that were finished before it was registered, if three or more others
    are there.
    """
    named = claim.suggested_by.get(finished.preset, ())
    evidence = quantities.source(finished, claim, answers, named)
    early = finished.before_registration(claim, evidence.seeds)
    if len(evidence.seeds) - len(early) < FIRST:
        return evidence, bool(early)
    return (quantities.source(finished, claim, answers, [*named, *early]) if early else evidence), False


def _judged(finished: Finished, claim: Claim, evidence: Evidence, costs: cost.Costs, correlation: float) -> Finding:
    """Judge a claim as both of its sides are read."""
    undefined, seeds = next(iter(evidence.undefined.values()), ""), evidence.seeds
    if not seeds:
        return _closed(claim, State.NOTHING_TO_JUDGE if undefined else State.NOT_RUN, undefined)
    try:
        left, right = evidence.values(claim, seeds)
    except Undefined as reason:
        return _closed(claim, State.NOTHING_TO_JUDGE, str(reason.args[0]))
    except KeyError as reason:  # the preset's test grid has no such cell
        return _closed(claim, State.NOT_RUN, str(reason.args[0]))
    known = replace(evidence, left=left, right=right, blocks=finished.blocks(claim, seeds), correlation=correlation)
    known = replace(known, unlearned=lambda count: unlearned(finished, claim, seeds[:count]))
    later = finished.trained_since(claim, seeds, sequential.SINCE)
    known = replace(known, models=finished.models(claim), later=later)
    effect = printed.effect(finished.experiment, claim, evidence.scale, finished.task.headline)
    judge = partial(judged, claim, printed=effect, hours=costs.seed(finished, claim) / 3600)
    found = judge(known)
    these_prompts = evidence.prompted and lacks_prompt_variance(found)
    if these_prompts and found.decided:
        bounded = judge(replace(known, noise=evidence.bound))
        same = (bounded.state, bounded.direction, bounded.size) == (found.state, found.direction, found.size)
        if same and not lacks_prompt_variance(bounded):
            found, these_prompts = bounded, False
    if len(evidence.undefined) >= len(found.seeds):  # the results in few of many is no answer to the claim
        return _closed(claim, State.NOTHING_TO_JUDGE, undefined)
    if found.judged and (barred := _barred(finished, claim, evidence, found)):
        unread = {name: ledger.COLUMNS[name].default for name in READ}
        found = changed(found, state=barred[0], note=barred[1], **unread)
    if not found.note and (kinds := finished.changed(claim, found.seeds)):
        found = changed(found, note=f"made with other code: {', '.join(kinds)}")
    counts = unlearned_counts(finished, claim, found.seeds)
    return changed(found, unlearned=counts, skipped=tuple(evidence.undefined), these_prompts=these_prompts)


def _rates(finished: Finished, claim: Claim) -> Literal["", "shared", "own", "different"]:
    """Learning rates of the trainings of both sides; empty where nothing is trained."""
    if not finished.models(claim):
        return ""
    if finished.experiment.rates == "own":
        return "own"
    recipes = [finished.spec(side.of).train for side in (claim.left, claim.right)]
    return "shared" if len({(each.rate, each.muon_rate) for each in recipes}) == 1 else "different"


def _closed(claim: Claim, state: State, note: str = "", seeds: Sequence[int] = ()) -> Finding:
    """Finding on a claim without an effect."""
    return Finding(claim=claim.statement, relation=claim.is_, state=state, note=note, seeds=tuple(seeds))


def judged(claim: Claim, evidence: Evidence, printed: float = math.nan, hours: float = math.nan) -> Finding:
    """Judge a claim from its ``evidence``, at the last look that the seeds allow.

    Where a side has not learned its task in training conditions, nothing is judged far from them. Nor is anything where
    a value is not finite, because a training diverged or an answer overflowed: no seed is left out for that.
    """
    seeds, left, right = evidence.seeds, evidence.left, evidence.right
    lost = [
        (side.of, [seed for seed, value in zip(seeds, values, strict=True) if not math.isfinite(value)])
        for side, values in ((claim.left, left), (claim.right, right))
    ]
    if any(lost_seeds for _, lost_seeds in lost):
        which = "; ".join(f"{of}: {ledger.span(lost_seeds)}" for of, lost_seeds in lost if lost_seeds)
        lacks = evidence.unlearned(len(seeds))
        why = lacks or f"answers that are no finite numbers ({which})"
        return _closed(claim, State.NOT_LEARNED if lacks else State.NOTHING_TO_JUDGE, why, seeds)
    apart = evidence.later and not sequential.PAIRED.get(evidence.models, True)
    look, other = (_look(evidence, each) for each in (apart, not apart))
    lacks = evidence.unlearned(look.seeds)
    few = State.FEW_SEEDS if len(seeds) < FIRST else State.JUDGED
    found = Finding(
        claim=claim.statement,
        relation=claim.is_,
        state=State.NOT_LEARNED if lacks else few,
        margin=margin_of(claim, evidence.scale),
        scale=evidence.scale,
        effect=look.effect.effect,
        low=look.effect.low,
        high=look.effect.high,
        confidence=look.confidence,
        pairing="" if not evidence.models else "unpaired" if apart else "paired",
        other_low=other.effect.low if evidence.models == "two models" else math.nan,
        other_high=other.effect.high if evidence.models == "two models" else math.nan,
        p=look.p,
        printed=printed,
        seeds=tuple(seeds[: look.seeds]),
        left=tuple(left[: look.seeds]),
        right=tuple(right[: look.seeds]),
        blocks=tuple(evidence.blocks[: look.seeds]),
        hours=hours,
        seeds_error=look.effect.seeds_error,
        prompts_error_below=look.effect.prompts_error[0],
        prompts_error_above=look.effect.prompts_error[1],
        note=lacks,
    )
    if found.state is State.FEW_SEEDS:
        return changed(found, more=FIRST - look.seeds)
    return _read(found, look) if found.judged else found


def _look(evidence: Evidence, apart: bool) -> Look:
    inflation = partial(_inflation, evidence)
    left, right, noise = evidence.left, evidence.right, evidence.noise
    return sequential.look(left, right, evidence.scale, noise, evidence.resolution, inflation, evidence.span, apart)


def _read(found: Finding, look: Look) -> Finding:
    """The finding with direction and size, read from its interval, and what would decide it while it is open."""
    relation, margin, low, high = found.relation, found.margin, found.low, found.high
    made = changed(
        found,
        direction=direction_of(low, high),
        size=size_of(low, high, margin, found.printed),
        agrees=agrees(relation, margin, low, high),
        decided=bool(settled(relation, margin, low, high)),
    )
    if made.decided:
        return made
    effect, deviation, have = look.effect, look.deviation, look.seeds
    known = not math.isnan(deviation)
    decide = partial(sequential.seeds_to_decide, relation, effect.effect, deviation, margin)
    aim = decide(have, effect.prompts_error) if known else None
    return changed(
        made,
        more=None if aim is None else aim - have,
        more_prompts=decide(0) if known and aim is None else None,
        chance=sequential.chance_to_decide(relation, effect.effect, deviation, margin, have, effect.prompts_error),
    )


def _inflation(evidence: Evidence, seeds: int) -> float:
    """Factor on the standard error over the first seeds, for their correlation within blocks."""
    return blocks.inflation(evidence.blocks[:seeds], evidence.correlation) if evidence.blocks else 1.0


def margin_of(claim: Claim, scale: Scale) -> float:
    """Return the margin of no difference: the claim's own, a ratio where ratios are compared, or that of the scale."""
    if claim.margin is None:
        return MARGIN[scale]
    require(scale == "difference" or claim.margin > 1, "the margin of a ratio must be above 1", claim.margin)
    return math.log(claim.margin) if scale == "log-ratio" else claim.margin


def lacks_prompt_variance(found: Finding) -> bool:
    """Return True if there is an interval that leaves out what the test prompts add."""
    return not math.isnan(found.low) and math.isnan(found.prompts_error_below)


def _barred(finished: Finished, claim: Claim, evidence: Evidence, found: Finding) -> tuple[State, str] | None:
    """Return why an interval answers no claim, as state and note; None where it does.

    Learned positions that were not trained; a side that does no better than a trivial reference; or both sides within
    the margin of an end of the metric, where no difference could be seen.
    """
    if why := finished.untrained(claim):
        return State.UNTRAINED, why
    if why := _no_better(finished, claim, evidence, found.seeds):
        return State.NOT_BETTER, why
    if why := at_bound(claim, found, evidence.span):
        return State.AT_BOUND, why
    return None


def at_bound(claim: Claim, found: Finding, span: float) -> str:
    """Return at which end of its range the metric of both sides lies; nothing where one has room, or for no range.

    Of shares and rates, in 0 to 1, compared as below or above. A mean over seeds within the margin of an end is there.
    """
    bounded = found.scale == "difference" and span == 1 and claim.is_ in ("below", "above")
    if not bounded or found.size is EffectSize.BEYOND:
        return ""
    sides = fmean(found.left), fmean(found.right)
    for end in (0, 1):
        if all(0 <= side <= 1 and abs(side - end) < found.margin for side in sides):
            return f"both sides lie within {found.margin:g} of {end}, an end of the metric"
    return ""


def _no_better(finished: Finished, claim: Claim, evidence: Evidence, seeds: Sequence[int]) -> str:
    """Return which side does no better than a trivial reference in the claim's cells: it has not learned there.

    Means over the seeds, in the cells of each side, are compared. Empty where both do, where a side is no trained
    model, where grids are read in training conditions, and where no errors are compared.
    """
    task, question, sides = finished.task, finished.experiment.question(), (claim.left, claim.right)
    metrics = ("", task.headline) if question is None else question.error_metrics
    trained = all(finished.experiment.variant(side.of) is not None for side in sides)
    if not trained or claim.metric not in metrics or (question is None and not all(far(s, finished) for s in sides)):
        return ""
    beaten = dict[str, list[str]]()
    for side in sides:
        own = fmean(evidence.read(side, claim.metric, seed) for seed in seeds)
        errors = {name: _reference(finished, claim, evidence, side, name, seeds[0]) for name in task.trivial}
        for name in [name for name, error in errors.items() if error <= own][:1]:
            beaten.setdefault(name, []).append(side.of)
    sides_of = {name: md.listed(dict.fromkeys(of)) for name, of in beaten.items()}
    return "; ".join(f"{named} learned nothing there: no better than {name}" for name, named in sides_of.items())


def _reference(finished: Finished, claim: Claim, evidence: Evidence, side: Quantity, name: str, seed: int) -> float:
    """The error of a reference in the cells of a side; infinity where it is not stored."""
    if finished.experiment.question() is None:
        return quantities.reference(finished, claim, side, name, seed)
    try:
        return evidence.read(Quantity(f"reference:{name}", side.cells), claim.metric, seed)
    except KeyError:
        return math.inf


def remarks(name: str, experiment: Experiment, store: Store, preset: str) -> list[str]:
    """Return a line for each stored study of an experiment that was made from another version of its file.

    And for each that answers another question than is asked now, so that no claim is read from it.
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
