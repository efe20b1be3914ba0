"""Claims against stored results: what each experiment says, and what was seen at this scale."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from icl_lab.comparison.verdict import Verdict
from icl_lab.errors import Undefined
from icl_lab.option_values import write
from icl_lab.papers import cost, folders, quantities, verdicts
from icl_lab.papers import experiment as experiments
from icl_lab.papers.finished import Finished, unlearned, unlearned_counts
from icl_lab.papers.folders import Answers
from icl_lab.papers.quantities import ClaimSource
from icl_lab.papers.schema import Claim, Experiment
from icl_lab.papers.verdicts import Finding
from icl_lab.runs import study_folder
from icl_lab.runs.presets import PRESETS
from icl_lab.runs.store import Store


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
) -> list[Finding]:
    """Judges every claim from what is finished, over the training seeds that both of its sides have; trains nothing.

    What an analysis found is read, for each claim, from that of the folders ``places`` which has most seeds of its
    sides, unless it is at hand as ``found``. Who asks of many experiments hands on what it knows of their ``costs``.
    """
    analysis, costs = finished.experiment.question(), costs or cost.Costs(finished.store, finished.preset)
    studies = folders.Studies(finished, analysis, places if analysis is not None and found is None else ())
    judged = []
    for claim in finished.experiment.claims:
        place = studies.place(claim)
        answers = studies.read(place) if found is None else found
        source = quantities.source(finished, claim, answers, claim.suggested_by.get(finished.preset, ()))
        about = tuple(finished.tested(name) for name in finished.variants_for([claim]))
        finding = _judged(finished, claim, source, costs)
        judged.append(replace(finding, about=about, study=place, exploratory_seeds=tuple(source.exploratory_seeds)))
    return judged


def _judged(finished: Finished, claim: Claim, source: ClaimSource, costs: cost.Costs) -> Finding:
    """Judges a claim from both sides of it as they are read."""
    undefined = next(iter(source.undefined.values()), "")
    if not source.seeds:
        verdict = Verdict.NOTHING_TO_JUDGE if undefined else Verdict.NOT_RUN
        return Finding(claim=claim, verdict=verdict, note=undefined or finished.lacking(claim))
    try:
        left, right = source.values(claim, source.seeds)
    except Undefined as reason:
        return Finding(claim=claim, verdict=Verdict.NOTHING_TO_JUDGE, note=str(reason.args[0]))
    except KeyError as reason:  # the preset's test grid has no such cell
        return Finding(claim=claim, verdict=Verdict.NOT_RUN, note=str(reason.args[0]))
    lacks, hours = partial(_unlearned, finished, claim, source.seeds), costs.seed(finished, claim) / 3600
    judge = partial(verdicts.judge, claim, source.seeds, left, right, source.scale)
    found = judge(source.noise, source.resolution, lacks, hours)
    these_prompts = source.prompted and lacks_prompt_variance(found)
    if these_prompts and found.verdict.decided:
        bounded = judge(source.bound, source.resolution, lacks, hours)
        if bounded.verdict == found.verdict and not lacks_prompt_variance(bounded):
            found, these_prompts = bounded, False
    last = found.seeds[-1] if found.verdict.decided else math.inf
    skipped = tuple(seed for seed in source.undefined if seed < last)
    if len(skipped) >= len(found.seeds):  # what was seen in few of many is no answer to the claim
        return Finding(claim=claim, verdict=Verdict.NOTHING_TO_JUDGE, note=undefined)
    failed = unlearned_counts(finished, claim, found.seeds)
    return replace(found, failed=failed, skipped_seeds=skipped, these_prompts=these_prompts)


def lacks_prompt_variance(finding: Finding) -> bool:
    """True if there is an interval that leaves out what the test prompts add."""
    effect = finding.found
    return effect is not None and not math.isnan(effect.low) and math.isnan(effect.prompts_error[0])


def _unlearned(finished: Finished, claim: Claim, seeds: Sequence[int], count: int) -> str:
    """Which side of a claim has not learned its task in the first so many of the seeds."""
    return unlearned(finished, claim, seeds[:count])


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
    found = findings(Finished(made, store, preset), folders.of(name, store, preset), costs=costs)
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
        if other := folders.asked_otherwise(study, now):
            options = ", ".join(f"{name}={write(old)} (now {write(new)})" for name, (old, new) in other.items())
            said.append(f"{place} was asked with {options}: no claim is read from it.")
    return said


def text(name: str, experiment: Experiment, found: Sequence[Finding]) -> list[str]:
    """The ledger's lines of one experiment, for the terminal."""
    return lines(name, experiment, ((finding.verdict, finding.words, finding.outlook) for finding in found))


def lines(name: str, experiment: Experiment, verdicts: Iterable[tuple[str, str, str]]) -> list[str]:
    """Lines of an experiment's claims: verdict, effect in words and what would decide it, in the order of the file."""
    found = [f"{name}: {experiment.title}"]
    for claim, (verdict, words, outlook) in zip(experiment.claims, verdicts, strict=False):
        found.append(f"  {verdict.upper():17}{_say(claim)}")
        if words:
            found.append(f"  {'':17}here {words}{_beside(claim)}")
        if outlook:
            found.append(f"  {'':17}{outlook} would decide it")
    return found


def _say(claim: Claim) -> str:
    return f"{claim.statement} ({claim.where})"


def _beside(claim: Claim) -> str:
    return f"; published {claim.published}" if claim.published else ""
