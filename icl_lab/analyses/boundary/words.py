"""Boundary values in a sentence, and numbers with their intervals as they are written everywhere."""

import math
from collections.abc import Mapping, Sequence

from icl_lab.analyses.boundary import answers
from icl_lab.analyses.boundary.bounds import Bounds, mean
from icl_lab.analyses.boundary.detector import SLACK
from icl_lab.comparison.statistics import Effect

OUTPUT, INPUT, UNDECIDED = "nearer to a bound on the output", "nearer to a bound on the input", "undecided"
VERDICTS = {OUTPUT: "hardly grows with the slope", INPUT: "grows with the slope", UNDECIDED: "may grow with the slope"}


def finding(found: Bounds) -> str:
    """Returns the bound of each rule over seeds, the median over slopes and sides, and whether the slope moves it."""
    typical = {rule: _typical(found, rule) for rule in found.rules}
    bounds = {rule: known for rule, known in typical.items() if known is not None and known.effect > SLACK}
    flat = [f"`{rule}`" for rule, known in typical.items() if known is not None and rule not in bounds]
    none = [f"`{rule}`" for rule, known in typical.items() if known is None]
    parts = []
    if bounds:
        seeds = max(len(found.seeds_of(rule)) for rule in found.rules)
        spread = f"B, {seeds} training seed{'s' * (seeds > 1)}, true values up to {found.reach:g} in size"
        parts.append(f"median answers do not exceed about {_listed(_bounded(found, bounds))} ({spread})")
    if flat:
        parts.append(f"the answers of {_listed(flat)} stay near 0")
    if none:
        parts.append(f"no bound of {_listed(none)} was detected up to {found.reach:g}")
    parts += _growing(found, list(bounds))
    text = "; ".join(parts)
    return " ".join(filter(None, [f"{text[0].upper()}{text[1:]}.", answers.sentence(found, found.seeds_by_rule)]))


def _typical(found: Bounds, rule: str) -> Effect | None:
    """The typical bound of a rule over the training seeds that have one; None where none has."""
    values = [found.typical(rule, place) for place in range(len(found.seeds_of(rule)))]
    return mean([value for value in values if not math.isnan(value)])


def _bounded(found: Bounds, bounds: Mapping[str, Effect]) -> list[str]:
    seeds = {rule: len(found.seeds_of(rule)) for rule in bounds}
    some = {rule: f" in {b.seeds} of {seeds[rule]} seeds" * (b.seeds < seeds[rule]) for rule, b in bounds.items()}
    return [f"{spoken(bound)} for `{rule}`{some[rule]}" for rule, bound in bounds.items()]


def _growing(found: Bounds, rules: Sequence[str]) -> list[str]:
    """Sentence on how bounds grow with the slope, as |a|^alpha; nothing where it is unknown."""
    said: dict[str, list[str]] = {}
    for rule in rules:
        alpha = mean([each[0] for each in found.growth(rule)])
        if alpha is not None:
            verdict = "" if math.isnan(alpha.low) else VERDICTS[reading(alpha)]
            said.setdefault(verdict, []).append(f"{power(alpha)} for `{rule}`")
    return [
        f"the bound {verdict} (exponent {_listed(each)})"
        if verdict
        else f"B ~ |slope|^alpha with alpha {_listed(each)}"
        for verdict, each in said.items()
    ]


def reading(alpha: Effect | None) -> str:
    """Returns which of the two an exponent of B in the slope, with its interval, is nearer to; empty without one."""
    if alpha is None or math.isnan(alpha.low):
        return ""
    if alpha.high < 0.5:
        return OUTPUT
    return INPUT if alpha.low > 0.5 else UNDECIDED


def power(mean: Effect) -> str:
    """Returns an exponent with its interval over seeds, where there is one."""
    effect, low, high = (round(each, 2) + 0.0 for each in (mean.effect, mean.low, mean.high))
    return f"{effect:.2f}" + ("" if math.isnan(low) else f" [{low:.2f}, {high:.2f}]")


def spoken(mean: Effect) -> str:
    """Returns a mean with its interval over seeds, where there is one."""
    known = "" if math.isnan(mean.low) else f" [{mean.low:.3g}, {mean.high:.3g}]"
    return f"{mean.effect:.3g}{known}"


def _listed(parts: Sequence[str]) -> str:
    *most, last = parts
    return f"{', '.join(most)} and {last}" if most else last
