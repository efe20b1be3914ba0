"""Sentences on the result of a comparison, one for each normalizer."""

import math

from icl_lab.base.markdown import listed
from icl_lab.comparison.family import Family
from icl_lab.comparison.statistics import MARGIN, Effect, margin_words, within
from icl_lab.comparison.study import Labels, PairedGrids

LARGEST = 700.0  # e^709 is the largest power of e that a float holds


def sentence(study: PairedGrids) -> str:
    """Return one sentence a line for each normalizer against the baseline: in training conditions, then far out.

    Far out is the declared summary of the study (``PairedGrids.summary``). Less or more is said only where p, corrected
    over the comparisons of all these sentences (Holm), is below 0.05; without an interval (one seed, prompts not kept)
    nothing is called shown. No difference beyond the margin is said where the 90 % interval lies within it. Nothing is
    compared where a side has not learned its task.
    """
    home = _home(study)
    near = [(rule, home, study.versus(rule, study.baseline, home)) for rule in study.others] if home else []
    far: list[tuple[str, Labels, Effect | None]] = [
        (rule, {}, study.overall(rule, study.baseline)) for rule in study.others
    ]
    family = Family.of([*near, *far])
    declared = study.task.summary.words(study.task.log_scale)
    if any(effect is not None and not math.isnan(effect.low) for _, _, effect in far):
        declared += "; 95 % intervals"
    places = [f"far out ({declared})", *["far out"] * (len(study.others) - 1)]  # said where it first stands
    return "\n".join(_rule(study, rule, family, home, place) for rule, place in zip(study.others, places, strict=True))


def _rule(study: PairedGrids, rule: str, family: Family, home: Labels | None, place: str) -> str:
    if lost := [name for name in (rule, study.baseline) if name in study.not_learned]:
        have = "have" if len(lost) > 1 else "has"
        return f"{rule} against {study.baseline}: {listed(lost)} {have} not learned the task, so nothing is compared."
    seeds = f"over {study.seeds} seeds" if study.seeds > 1 else "of one seed"
    here, far = family.effect(rule, home) if home else None, family.effect(rule, {})
    parts = ["training conditions were not tested"]
    if home and here:
        unclear = _unclear(here, study, family, family.marked(rule, home))
        parts = [_near(here, rule, study.baseline, seeds, unclear)]
    if far is None:
        parts.append("nothing was tested far out")
    else:
        unclear = _unclear(far, study, family, family.marked(rule, {}))
        parts.append(f"{place} {_far(far, study.scale == 'log-ratio', here is None, unclear)}")
    return f"{rule}: {'; '.join(parts)}." if here is None else f"{'; '.join(parts)}."


def _home(study: PairedGrids) -> Labels | None:
    """The cell of training conditions, over facets the mean; None where the test grid has no such cell."""
    cell = study.task.pinned(study.training)
    return cell if any(all(each[axis] == value for axis, value in cell.items()) for each in study.cells()) else None


def _near(found: Effect, rule: str, baseline: str, seeds: str, unclear: str) -> str:
    where, number = "in training conditions", _number(found, found.scale == "log-ratio")
    if unclear:
        return f"{rule} against {baseline} {where} {seeds}: {unclear} ({number})"
    if found.scale == "log-ratio":
        ratio, low, high = found.ratio
        return f"{rule} errs {ratio:.3g}x {baseline} {where} [{low:.3g}, {high:.3g}] {seeds}"
    return f"{rule} errs {'less' if found.effect < 0 else 'more'} than {baseline} {where} {seeds} ({number})"


def _far(found: Effect, ratio: bool, named: bool, unclear: str) -> str:
    """The summary of logarithmic errors is compared by difference, and said as the ratio that it is."""
    number = _number(found, ratio)
    if unclear:
        return f"{unclear} ({number})"
    return f"{'it ' * (not named)}errs {'less' if found.effect < 0 else 'more'} ({number})"


def _unclear(found: Effect, study: PairedGrids, family: Family, marked: bool) -> str:
    """Sentence in place of a difference; nothing where one is shown.

    Without an interval nothing could be shown; with one, that the difference is small, or nothing.
    """
    if marked:
        return ""
    if math.isnan(found.low):
        return "no interval, so nothing is shown"
    if within(found, MARGIN[study.scale]):
        return f"no difference beyond {margin_words(study.scale)}"
    return "no difference is shown" + f" once p is corrected for {family.size} comparisons" * found.clear


def _number(found: Effect, ratio: bool) -> str:
    if not math.isfinite(found.effect):
        return "answers that are no finite numbers" + " on both sides" * math.isnan(found.effect)
    values = (found.effect, found.low, found.high)
    effect, low, high = (_exp(value) if ratio else value for value in values)
    interval = "" if math.isnan(low) else f" [{low:.3g}, {high:.3g}]"
    return f"x{effect:.3g}{interval}" if ratio else f"difference in error {effect:+.3g}{interval}"


def _exp(value: float) -> float:
    """e^x; infinity where no float holds it."""
    return math.inf if value > LARGEST else math.exp(value)
