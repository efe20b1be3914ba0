"""Judge claims from stored runs: from the table of both sides to a finding; trains nothing."""

import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from functools import partial
from itertools import islice
from pathlib import Path
from statistics import fmean, median
from typing import Literal

import numpy as np
from msgspec.structs import replace as changed

from icl_lab.analyses import publish
from icl_lab.base import markdown as md
from icl_lab.base.files import sha256
from icl_lab.base.option_values import write
from icl_lab.base.registry import require
from icl_lab.claims import cost, folders, ledger, printed
from icl_lab.claims import experiment as experiments
from icl_lab.claims.ledger import FIRST, Finding
from icl_lab.claims.schema import Claim, Experiment
from icl_lab.claims.sides import Column, Sides, Table, sides_of
from icl_lab.comparison import sequential
from icl_lab.comparison.blocks import inflation
from icl_lab.comparison.sequential import Look
from icl_lab.comparison.statistics import HALF_WIDTH, MARGIN, Evaluation, Scale, evaluation
from icl_lab.comparison.verdict import EffectSize, State, agrees, direction_of, settled, size_of
from icl_lab.runs import study_folder, summary
from icl_lab.runs.allocator import give_back
from icl_lab.runs.presets import PRESETS
from icl_lab.runs.store import Store

MORE = 2  # further seeds of a side of two models, from which all seeds of both sides judge, unpaired
READ = ("direction", "size", "agrees", "decided", "more", "more_prompts", "chance")  # from an interval
Recorded = Mapping[tuple[str, str], Sequence[Finding]]  # by experiment and preset


def fitted(whole: Experiment, store: Store, preset: str) -> tuple[Sides, list[str]]:
    """Return the sides of an experiment's claims as it fits a preset, and what was left out and why.

    One that trains nothing is the same at every preset: where it was asked at another one, it has no claims here.
    """
    made, left_out = experiments.fitting(whole, preset, curves=store)
    asked = judged_at(made, store, preset)
    if asked != preset:
        left_out.append(f"trains nothing and is the same at every preset: judged at {asked}")
        made = changed(made, claims=[])
    return sides_of(made, store, preset), left_out


def stored(
    whole: Experiment, store: Store, preset: str, costs: cost.Costs | None = None
) -> tuple[list[str], list[Finding]]:
    """Return remarks on an experiment at a preset, and its claims judged from stored runs."""
    sides, left_out = fitted(whole, store, preset)
    return [*left_out, *remarks(sides)], findings(sides, costs)


def judged_at(experiment: Experiment, store: Store, preset: str) -> str:
    """Return the preset at which an experiment is judged where ``preset`` is asked for: that one, if it trains models.

    One that trains nothing is judged where it was asked, at another preset if at no other place.
    """
    question = experiment.question()
    if question is None or question.trains:
        return preset
    places = ((each, folders.fullest(experiment.name, store, each)) for each in (preset, *PRESETS))
    return next((each for each, place in places if study_folder.read(place) is not None), preset)


def recorded(
    name: str, files: Path, store: Store, preset: str, record: Recorded, costs: cost.Costs
) -> tuple[list[str], Sequence[Finding]]:
    """Return remarks on an experiment at a preset, and its findings: the record's, or judged now."""
    sides, left_out = fitted(experiments.load(name, files), store, preset)
    known = record.get((name, preset), [])
    judged = known if known and current(sides, known) else findings(sides, costs)
    return [*left_out, *remarks(sides)], judged


def current(sides: Sides, found: Sequence[Finding]) -> bool:
    """Return True where findings on an experiment are about its present claims, judged from the runs of now."""
    same = [each.claim for each in found] == [claim.statement for claim in sides.experiment.claims]
    return same and {each.judged_from for each in found} == {checksum(sides)}


def checksum(sides: Sides) -> str:
    """SHA-256, shortened, of what an experiment's claims are judged from: its file, finished runs and studies."""
    experiment, store = sides.experiment, sides.store
    registered = sorted((claim, time.isoformat()) for claim, time in experiment.registered.items())
    parts: list[object] = [ledger.VERSION, experiment.sha256, registered, ledger.seed_correlation(store)]
    for variant in experiment.variants:
        spec = sides.specs[variant.name]
        for seed in sorted(store.seeds(spec)):
            # Whether a model has learned its task is read from the test with its own normalizer.
            runs = (store.run(spec, seed, variant.tested_with), sides.trained(variant.name, seed))
            parts += [[each.key, each.swap, each.checksums()] for each in runs if each.finished]
    if experiment.question() is not None:
        studies = (study_folder.read(place) for place in folders.of(experiment.name, store, sides.preset))
        parts += [study.numbers for study in studies if study is not None]
    ordered = json.dumps(sorted(parts, key=json.dumps))
    return sha256(ordered.encode())[:16]


def findings(sides: Sides, costs: cost.Costs | None = None, correlation: float | None = None) -> list[Finding]:
    """Judge every claim of an experiment from finished runs, over the training seeds that both of its sides have.

    ``correlation`` is that of seeds within a block, by default the repository record's.
    """
    costs = costs or cost.Costs(sides.store, sides.preset)
    known = ledger.seed_correlation(sides.store) if correlation is None else correlation
    verdicts = [judged(sides, claim, known, costs) for claim in sides.experiment.claims]
    give_back()  # a site or a record judges a hundred experiments one after another
    return verdicts


def judged(sides: Sides, claim: Claim, correlation: float = 0.0, costs: cost.Costs | None = None) -> Finding:
    """Judge a claim from the table of its sides, at the last look that the seeds allow.

    Seeds that may have suggested the claim do not judge it: those that it names, and those that were finished before it
    was registered, if three or more others are there. Nothing is judged where a value is not finite, because a training
    diverged or an answer overflowed: no seed is left out for that.
    """
    whole = sides.table(claim)
    left_out, exploratory = _left_out(sides, claim, whole)
    chosen = [{seed: value for seed, value in column.items() if seed not in left_out} for column in whole]
    skipped = _skipped(chosen) if sides.skips else {}
    table = _seeds_that_judge([{s: value for s, value in column.items() if s not in skipped} for column in chosen])
    about = Finding(
        claim=claim.statement,
        relation=claim.is_,
        state=State.NOT_RUN,
        experiment=sides.experiment.name,
        preset=sides.preset,
        theory=not sides.trains,
        specs=tuple(f"{spec}->{swap}" if swap else spec for spec, swap in map(sides.test, sides.variants_for([claim]))),
        study=sides.folder(claim),
        left_out=tuple(left_out),
        exploratory=exploratory,
        rates=_rates(sides, claim),
    )
    why = next(iter(skipped.values()), "")
    if not all(table):
        return changed(about, state=State.NOTHING_TO_JUDGE if why else State.NOT_RUN, note=why)
    if closed := next((value for column in table for value in column.values() if value.closed is not None), None):
        return changed(about, state=closed.closed, note=closed.why)
    if costs is not None:
        about = changed(about, hours=costs.seed(sides, claim) / 3600)
    spare = [{seed: column[seed] for seed in left_out if seed in column} for column in whole]
    finding = _compared(sides, claim, about, table, spare, correlation)
    if len(skipped) >= finding.count:  # the results in few of many is no answer to the claim
        return changed(about, state=State.NOTHING_TO_JUDGE, note=why, hours=math.nan)
    rested = _first(table, finding.seeds, finding.right_seeds or finding.seeds)
    if finding.judged and (barred := _barred(sides, claim, finding, rested)):
        unread = {name: ledger.COLUMNS[name].default for name in READ}
        finding = changed(finding, state=barred[0], note=barred[1], **unread)
    kinds = sorted({kind for column in rested for value in column.values() for kind in value.training.code})
    if not finding.note and kinds:
        finding = changed(finding, note=f"made with other code: {', '.join(kinds)}")
    return changed(finding, unlearned=_unlearned_counts(sides, claim, rested), skipped=tuple(skipped))


def _left_out(sides: Sides, claim: Claim, table: Table) -> tuple[list[int], bool]:
    """Seeds that may have suggested a claim; True if it cannot do without those trained before it was registered.

    These are seeds of which both sides were there: one side alone compares nothing.
    """
    named, since = claim.suggested_by.get(sides.preset, ()), sides.experiment.registered.get(claim.statement)
    skipped = _skipped(table) if sides.skips else {}
    seeds = [seed for seed in table[0] if seed in table[1] and seed not in named and seed not in skipped]
    ends = {seed: _ends(_first(table, [seed])) for seed in seeds} if since is not None else {}
    early = [seed for seed, times in ends.items() if times and since is not None and max(times) < since]
    exploratory = bool(early) and len(seeds) - len(early) < FIRST
    out = {*named, *(() if exploratory else early)}
    return [seed for seed in sorted({*table[0], *table[1]}) if seed in out], exploratory


def _seeds_that_judge(table: Sequence[Column]) -> Table:
    """Both sides by the seeds that both have; all of each where one of two models has ``MORE`` further seeds."""
    left, right = table
    both = [seed for seed in left if seed in right]
    if len(both) >= FIRST and max(len(left), len(right)) - len(both) >= MORE:
        return left, right
    return {seed: left[seed] for seed in both}, {seed: right[seed] for seed in both}


def _first(table: Sequence[Column], left: Iterable[int], right: Iterable[int] | None = None) -> Table:
    """Both sides at some seeds, by default the same."""
    left = list(left)
    columns = zip(table, (left, left if right is None else right), strict=True)
    one, other = ({seed: column[seed] for seed in seeds if seed in column} for column, seeds in columns)
    return one, other


def _skipped(table: Sequence[Column]) -> dict[int, str]:
    """Seeds in which what a claim is about did not occur, and why."""
    closed = {seed: value for column in reversed(table) for seed, value in column.items() if value.closed is not None}
    if any(value.closed is State.NOT_RUN for value in closed.values()):
        return {}
    return {seed: closed[seed].why for seed in sorted(closed)}


def _ends(table: Table) -> list[datetime]:
    """Times at which the trainings of both sides first ended; nothing where one is not known."""
    trainings = [value.training for column in table for value in column.values()]
    ends = [training.first for training in trainings if training.origin is not None]
    return [] if None in ends else [end for end in ends if end is not None]


def _compared(
    sides: Sides, claim: Claim, about: Finding, table: Table, spare: Sequence[Column], correlation: float
) -> Finding:
    """Finding from the values of both sides: its interval, and what is read from it.

    What the prompts add may be taken from ``spare`` seeds, which do not judge.
    """
    scale, unequal = sides.scale(claim), table[0].keys() != table[1].keys()
    span = sides.span(claim) if scale == "difference" else math.inf
    plain = math.exp if scale == "log-ratio" else float
    left, right = ([plain(value.value) for value in column.values()] for column in table)
    lost = [
        (side.of, [seed for seed, value in column.items() if not math.isfinite(plain(value.value))])
        for side, column in zip((claim.left, claim.right), table, strict=True)
    ]
    seeds, right_seeds = tuple(table[0]), tuple(table[1]) if unequal else ()
    if any(lost_seeds for _, lost_seeds in lost):
        which = "; ".join(f"{of}: {ledger.span(lost_seeds)}" for of, lost_seeds in lost if lost_seeds)
        lacks = _unlearned(sides, claim, table)
        state = State.NOT_LEARNED if lacks else State.NOTHING_TO_JUDGE
        why = lacks or f"answers that are no finite numbers ({which})"
        return changed(about, state=state, note=why, seeds=seeds, right_seeds=right_seeds, hours=math.nan)
    models, blocks, ends = sides.models(claim), _blocks(table), _ends(table)
    apart = unequal or (bool(ends) and min(ends) > sequential.SINCE and not sequential.PAIRED.get(models, True))
    pairs = _first(table, [seed for seed in table[0] if seed in table[1]])
    look_at = partial(
        sequential.look,
        scale=scale,
        resolution=sides.step(claim, pairs) if span == 1 else 0.0,  # of shares and rates; a loss has no step
        inflation=lambda count: inflation(blocks[:count], correlation) if blocks else 1.0,
        span=span,
    )

    ours, theirs = ([plain(value.value) for value in column.values()] for column in pairs)
    effect = printed.effect(sides.experiment, claim, scale, sides.task.headline)

    def read(noise: Callable[[int], Evaluation | None]) -> Finding:
        look = look_at(left, right, noise=noise, apart=apart)
        other = look_at(ours, theirs, noise=noise, apart=not apart)
        count, two = None if unequal else look.seeds, models == "two models"
        lacks = _unlearned(sides, claim, table if unequal else _first(table, seeds[:count]))
        few = State.FEW_SEEDS if min(len(left), len(right)) < FIRST else State.JUDGED
        finding = changed(
            about,
            state=State.NOT_LEARNED if lacks else few,
            margin=margin_of(claim, scale),
            scale=scale,
            effect=look.effect.effect,
            low=look.effect.low,
            high=look.effect.high,
            confidence=look.confidence,
            pairing="" if not models else "unpaired" if apart else "paired",
            other_low=other.effect.low if two else math.nan,
            other_high=other.effect.high if two else math.nan,
            p=look.p,
            printed=effect,
            seeds=seeds[:count],
            right_seeds=right_seeds,
            left=tuple(left[:count]),
            right=tuple(right[:count]),
            blocks=tuple(blocks[:count]),
            seeds_error=look.effect.seeds_error,
            prompts_error_below=look.effect.prompts_error[0],
            prompts_error_above=look.effect.prompts_error[1],
            note=lacks,
        )
        if finding.state is State.FEW_SEEDS:
            return changed(finding, more=FIRST - finding.count)
        return _read(finding, look) if finding.judged else finding

    finding = read(partial(_noise, table, spare, scale))
    these_prompts = sides.prompts(claim) > 0 and _lacks_prompt_variance(finding)
    if these_prompts and finding.decided:
        bounded = read(partial(_bound, table, scale))
        same = (bounded.state, bounded.direction, bounded.size) == (finding.state, finding.direction, finding.size)
        if same and not _lacks_prompt_variance(bounded):
            return bounded
    return changed(finding, these_prompts=these_prompts)


def _blocks(table: Table) -> list[int]:
    """Block of each seed, numbered: commit and class of machine of its trainings; empty where one is not known."""
    seeds = sorted({*table[0], *table[1]}) if table[0].keys() != table[1].keys() else list(table[0])
    trainings = [[column[seed].training.origin for column in table if seed in column] for seed in seeds]
    origins = [tuple(origin for origin in both if origin) for both in trainings]
    if not all(block and all(map(all, block)) for block in origins):
        return []
    numbers = {block: number for number, block in enumerate(dict.fromkeys(origins))}
    return [numbers[block] for block in origins]


def _noise(table: Table, spare: Sequence[Column], scale: Scale, count: int) -> Evaluation | None:
    """Evaluation of left - right over the first seeds, from their values on resamples of the prompts.

    Seeds that keep single prompts stand for those that do not, and for a look without any the next that does, or a
    spare one: the fewer they are, the more it varies with single models, which makes it wider. Sides of unequal seeds
    are averaged each by itself.
    """
    left, right = ({**column, **more} for column, more in zip(table, spare, strict=True))
    gaps = [
        None if drawn is None or (other := right[seed].resamples) is None else drawn - other
        for seed, drawn in ((seed, value.resamples) for seed, value in left.items() if seed in right)
    ]
    if table[0].keys() != table[1].keys():
        kept = [[value.resamples for value in column.values() if value.resamples is not None] for column in table]
        gaps = [np.mean(kept[0], axis=0) - np.mean(kept[1], axis=0)] if all(kept) else []
    first = [gap for gap in gaps[:count] if gap is not None] or [gap for gap in gaps if gap is not None][:1]
    return evaluation(np.mean(first, axis=0), scale) if first else None


def _bound(table: Table, scale: Scale, count: int) -> Evaluation | None:
    """Most that left - right can vary with the prompts, where errors of single prompts are not kept.

    Formula: e = mean over seeds of e_left + e_right, standard errors; no correlation of sides and seeds is greater
    """
    whole = table[0].keys() != table[1].keys()
    errors = ([value.error for value in column.values()][: None if whole else count] for column in table)
    half = HALF_WIDTH * sum(map(fmean, errors))
    return None if math.isnan(half) else Evaluation(scale=scale, effect=0.0, low=-half, high=half)


def _rates(sides: Sides, claim: Claim) -> Literal["", "shared", "own", "different"]:
    """Learning rates of the trainings of both sides; empty where nothing is trained."""
    if not sides.models(claim):
        return ""
    if sides.experiment.rates == "own":
        return "own"
    recipes = [sides.spec(side.of).train for side in (claim.left, claim.right)]
    return "shared" if len({(recipe.rate, recipe.muon_rate) for recipe in recipes}) == 1 else "different"


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


def margin_of(claim: Claim, scale: Scale) -> float:
    """Return the margin of no difference: the claim's own, a ratio where ratios are compared, or that of the scale."""
    if claim.margin is None:
        return MARGIN[scale]
    require(scale == "difference" or claim.margin > 1, "the margin of a ratio must be above 1", claim.margin)
    return math.log(claim.margin) if scale == "log-ratio" else claim.margin


def _lacks_prompt_variance(finding: Finding) -> bool:
    """True if there is an interval that leaves out what the test prompts add."""
    return not math.isnan(finding.low) and math.isnan(finding.prompts_error_below)


def _barred(sides: Sides, claim: Claim, finding: Finding, table: Table) -> tuple[State, str] | None:
    """Why an interval answers no claim, as state and note; None where it does.

    Learned positions that were not trained; a side that does no better than a trivial reference; or both sides within
    the margin of an end of the metric, where no difference could be seen.
    """
    if why := _untrained(sides, claim):
        return State.UNTRAINED, why
    if why := _no_better(sides, claim, table):
        return State.NOT_BETTER, why
    if why := at_bound(claim, finding, sides.span(claim) if finding.scale == "difference" else math.inf):
        return State.AT_BOUND, why
    return None


def _untrained(sides: Sides, claim: Claim) -> str:
    """Which side is asked beyond its training length with learned positions, whose rows are random starts there."""
    for side in (claim.left, claim.right):
        if claim.ungated or not sides.is_model(side.of):
            continue
        spec = sides.spec(side.of)
        positions, stop = spec.test.positions or spec.model.positions, spec.train.curriculum.stop
        if positions.partition(":")[0] == "learned" and any(length > stop for length in side.cells.get("length", ())):
            return f"learned positions of {side.of} are untrained beyond a length of {stop}"
    return ""


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


def _no_better(sides: Sides, claim: Claim, table: Table) -> str:
    """Which side does no better than a trivial reference in the claim's cells: it has not learned there.

    Means over the seeds are compared. Empty where both do, and where no errors of models are compared.
    """
    beaten = dict[str, list[str]]()
    for number, side in enumerate((claim.left, claim.right) if sides.compares_errors(claim) else ()):
        own, seed = fmean(value.value for value in table[number].values()), next(iter(table[number]))
        trivial = (name for name in sides.task.trivial if sides.reference(claim, side, name, seed) <= own)
        for name in islice(trivial, 1):
            beaten.setdefault(name, []).append(side.of)
    sides_of = {name: md.listed(dict.fromkeys(of)) for name, of in beaten.items()}
    return "; ".join(f"{named} learned nothing there: no better than {name}" for name, named in sides_of.items())


def _unlearned(sides: Sides, claim: Claim, table: Table) -> str:
    """Which side of a claim has not learned its task, and why; nothing where both have, or none is far out.

    Formula: ``summary.has_learned``, of the normalized errors in training conditions. Runs without a grid, or whose
    grid leaves training conditions out, say nothing.
    """
    for side, shares in zip((claim.left, claim.right), map(_shares, table), strict=True):
        if shares and not claim.ungated and sides.far(side) and not summary.has_learned(shares):
            return (
                f"{side.of} has not learned its task: in training conditions it errs {median(shares):.2g} times as "
                "much as the best trivial reference, counted from the best of all"
            )
    return ""


def _unlearned_counts(sides: Sides, claim: Claim, table: Table) -> str:
    """Count of tested models of each side that have not learned the task, in words; empty where all have.

    The median says nothing about them, and an effect over seeds of which some have learned is one of two kinds mixed.
    Where no model was tested in training conditions it is not known, and said.
    """
    counts, unknown = list[str](), dict[str, list[str]]()  # why -> which sides
    for of, column in dict(zip((claim.left.of, claim.right.of), table, strict=True)).items():
        shares = _shares(column)
        if lost := sum(not summary.has_learned([share]) for share in shares):
            counts.append(f"{lost} of {len(shares)} of {of}")
        gated = sides.is_model(of) and sides.task.trivial and (shares or not claim.ungated)
        seeds = [seed for seed, value in column.items() if value.training.share is None] if gated else []
        if seeds and (why := sides.why_not_known(of, seeds)):
            unknown.setdefault(f" at {ledger.span(seeds)}: {why}" if shares else f": {why}", []).append(of)
    counted = [f"tested models that have not learned: {', '.join(counts)}"] if counts else []
    named = {why: " and ".join(f"'{of}'" for of in models) for why, models in unknown.items()}
    unsure = [f"not known whether {models} learned the task{why}" for why, models in named.items()]
    return "; ".join(counted + unsure)


def _shares(column: Column) -> list[float]:
    """Normalized errors of a side in training conditions; seeds of which it is not known are left out."""
    return [share for value in column.values() if (share := value.training.share) is not None]


def remarks(sides: Sides) -> list[str]:
    """Return a line for each stored study of an experiment that was made from another version of its file.

    And for each that answers another question than is asked now, so that no claim is read from it.
    """
    experiment = sides.experiment
    places = folders.of(experiment.name, sides.store, sides.preset)
    known = {place: study for place in places if (study := study_folder.read(place)) is not None}
    said = [
        f"{place} was made from another version of {experiment.name}.toml (sha256 {study.source[:8]})."
        for place, study in known.items()
        if study.source not in ("", experiment.sha256)
    ]
    if (analysis := experiment.question()) is None or not known:
        return said
    now = folders.prepared(sides, analysis)
    for place, study in known.items():
        if study.code and study.code != publish.code(experiment.analysis):
            said.append(
                f"{place} was found by another version of the analysis '{experiment.analysis}'; --force asks anew."
            )
        if other := folders.asked_otherwise(study, now):
            options = ", ".join(f"{name}={write(old)} (now {write(new)})" for name, (old, new) in other.items())
            said.append(f"{place} was asked with {options}: no claim is read from it.")
    return said
