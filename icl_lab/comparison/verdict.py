"""What a comparison found, in a sentence for each rule."""

import math

from icl_lab.comparison.statistics import Effect
from icl_lab.comparison.study import Study

LARGEST = 700.0  # e^709 is the largest power of e that a float holds


def sentence(study: Study) -> str:
    """Returns one sentence a line for each rule against the baseline: in training conditions, then far out.

    Far out is the declared summary of the study (``Study.summary``). Less or more is said only where the interval
    excludes a draw; without an interval (one seed, prompts not kept) nothing is called shown.
    """
    return "\n".join(_rule(study, rule) for rule in study.grids if rule != study.baseline)


def _rule(study: Study, rule: str) -> str:
    seeds = f"over {study.seeds} seeds" if study.seeds > 1 else "of one seed"
    here, far = _home(study, rule), study.overall(rule, study.baseline)
    parts = ["training conditions were not tested" if here is None else _near(here, rule, study.baseline, seeds)]
    parts.append("nothing was tested far out" if far is None else _far(far, study.scale == "log-ratio", here is None))
    return f"{rule}: {'; '.join(parts)}." if here is None else f"{'; '.join(parts)}."


def _home(study: Study, rule: str) -> Effect | None:
    """The comparison in training conditions, over facets the mean; None where the test grid has no such cell."""
    cell = {axis: value for axis, value in study.training.items() if axis not in study.task.facets}
    there = any(all(each[axis] == value for axis, value in cell.items()) for each in study.cells())
    return study.versus(rule, study.baseline, cell) if there else None


def _near(found: Effect, rule: str, baseline: str, seeds: str) -> str:
    where, number = "in training conditions", _number(found, found.scale == "log-ratio")
    if not found.clear:
        return f"{rule} against {baseline} {where} {seeds}: {_open(found)} ({number})"
    if found.scale == "log-ratio":
        ratio, low, high = found.ratio
        return f"{rule} errs {ratio:.3g}x {baseline} {where} [{low:.3g}, {high:.3g}] {seeds}"
    return f"{rule} errs {'less' if found.effect < 0 else 'more'} than {baseline} {where} {seeds} ({number})"


def _far(found: Effect, ratio: bool, named: bool) -> str:
    """The summary of logarithmic errors is compared by difference, and said as the ratio that it is."""
    number = _number(found, ratio)
    if not found.clear:
        return f"far out {_open(found)} ({number})"
    return f"far out {'it ' * (not named)}errs {'less' if found.effect < 0 else 'more'} ({number})"


def _open(found: Effect) -> str:
    """Without an interval nothing could be shown; with one, nothing was."""
    return "no interval, so nothing is shown" if math.isnan(found.low) else "no difference is shown"


def _number(found: Effect, ratio: bool) -> str:
    values = (found.effect, found.low, found.high)
    effect, low, high = (_exp(value) if ratio else value for value in values)
    interval = "" if math.isnan(low) else f" [{low:.3g}, {high:.3g}]"
    return f"x{effect:.3g}{interval}" if ratio else f"difference in error {effect:+.3g}{interval}"


def _exp(value: float) -> float:
    """e^x; infinity where no float holds it."""
    return math.inf if value > LARGEST else math.exp(value)
