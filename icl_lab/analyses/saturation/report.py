"""Saturation for reading: tables of what answers, heads and the residual stream do, and one sentence."""

import math
from collections.abc import Callable, Mapping, Sequence
from statistics import fmean, median

from icl_lab import markdown as md
from icl_lab.analyses.findings import Findings, known
from icl_lab.analyses.saturation.attention import METRICS
from icl_lab.analyses.saturation.numbers import (
    WEIGHTS,
    WHICH,
    best_head,
    error_metric,
    healed,
    recovered,
    saturating,
    summarised,
)
from icl_lab.analyses.saturation.patching import KINDS, NORMS
from icl_lab.comparison.statistics import paired
from icl_lab.figures.base import short


def table(found: Findings) -> list[str]:
    """Errors, what heads do, which of them looks most at the number, what patches recover, how many heads saturate."""
    factors = found["heads"].values("factor")
    across = [f"x{factor:g}" for factor in factors]
    shown = error_metric(found)
    text: list[str] = []

    def add(head: str, cells: Mapping[tuple[object, ...], str]) -> None:
        """A table of a line for each normalizer and a column for each factor."""
        text.extend(["", *md.head([head, *across])])
        text.extend(md.row([f"`{rule}`", *(cells[rule, factor] for factor in factors)]) for rule in found.rules)

    for metric in (shown, *(each for each in found["errors"].values("metric") if each != shown)):
        errors = found["errors"].where(metric=metric).by("attn", "factor")
        head = f"error ({metric})" if metric == shown else f"answers: {metric}"
        add(head, {where: short(fmean(values)) for where, values in errors.items()})
    for metric, words in METRICS.items():
        heads = found["heads"].where(metric=metric).by("attn", "factor")
        middle = {where: median(values) for where, values in heads.items()}
        cells = {where: "none" if math.isnan(value) else short(value) for where, value in middle.items()}
        add(f"{words}, median over heads", cells)
    text += ["", *_best(found, factors, across)]
    shares: dict[tuple[object, ...], str] = {
        (rule, factor): "" if factor == 1 else _interval(recovered(found, rule, factor))
        for rule in found.rules
        for factor in factors
    }
    add("share of the added error that patching all heads recovers", shares)
    if "stream" in found.grids:
        text += ["", *_stream(found, factors, across)]
    head = "heads that saturate (largest weight from below 0.5 to above 0.9)"
    text += ["", *md.head(["normalizer", head, "first at"])]
    for rule in found.rules:
        points, count = saturating(found, rule)
        first = f"x{min(points):g}" if points else "none in range"
        text.append(md.row([f"`{rule}`", f"{len(points)} of {count}", first]))
    return [
        *text[1:],
        "",
        "The weight by the formula is that of one key whose score is as far above n - 1 equal scores as the "
        "deviant's is above the mean of the others; none where a normalizer weighs keys by the tokens themselves.",
    ]


def finding(found: Findings) -> str:
    """Sentence on saturated heads and on the share of the error that patching recovers at the greatest factor."""
    most = max(found["patches"].values("factor"))
    heads, shares = [], []
    for rule in found.rules:
        points, count = saturating(found, rule)
        heads.append(f"{len(points)} of {count} heads with {rule}")
        shares.append(_in_words(recovered(found, rule, most), rule))
    top = max(found["heads"].values("factor"))
    text = (
        f"Up to a factor of {top:g}, {md.listed(heads)} saturate. At a factor of {most:g}, the share of the added "
        f"error that patching in the undisturbed attention recovers is {md.listed(shares)}"
    )
    if "stream" not in found.grids:
        return f"{text}."
    parts = [_in_words(healed(found, rule, most, "outputs-healed"), rule) for rule in found.rules]
    return f"{text}; by putting back all that layers add to the residual stream at the query it is {md.listed(parts)}."


def _best(found: Findings, factors: Sequence[float], across: Sequence[str]) -> list[str]:
    """The weight on the number in the last layer and the best heads, means over seeds; and which heads these are."""
    text: list[str] = []
    weights = [weight for weight in WEIGHTS if weight in found["heads"].values("metric")]
    for weight in weights:
        text += ["", *md.head([WEIGHTS[weight], "heads", *across])]
        for rule in found.rules:
            for which, words in WHICH.items():
                name = f"{weight}-{which}"
                cells = [
                    short(fmean(summarised(found, rule, seed, factor, name) for seed in found.seeds_of(rule)))
                    for factor in factors
                ]
                text.append(md.row([f"`{rule}`", words, *cells]))
    top, weight = max(factors), weights[-1]
    text += [
        "",
        *md.head(["normalizer", "seed", f"{WEIGHTS[weight]}, x{top:g}: best head of the last layer", "of all"]),
    ]
    for rule in found.rules:
        for seed in found.seeds_of(rule):
            named = [best_head(found, rule, seed, top, last, weight) for last in (True, False)]
            text.append(md.row([f"`{rule}`", str(seed), *(f"{name}: {short(value)}" for name, value in named)]))
    return text[1:]


def _stream(found: Findings, factors: Sequence[float], across: Sequence[str]) -> list[str]:
    """Table of what patching parts at the last question recovers, in all layers or after the last; then the norms."""

    def lines(words: Mapping[str, str], ending: str, cell: Callable[[Sequence[float]], str]) -> list[str]:
        rows = []
        for rule in found.rules:
            there = found["stream"].where(attn=rule).values("metric")
            for kind in words:
                if f"{kind}-{ending}" in there:
                    numbers = [
                        cell(healed(found, rule, factor, f"{kind}-{ending}"))
                        if factor in found["stream"].values("factor")
                        else ""
                        for factor in factors
                    ]
                    rows.append(md.row([f"`{rule}`", words[kind], *numbers]))
        return rows

    return [
        *md.head(["share of the last answer's added error that goes away", "put back at the query", *across]),
        *lines(KINDS, "healed", _interval),
        "",
        *md.head(["norm at the query, stretched", "of", *across]),
        *lines({name: words for name, (_, words) in NORMS.items()}, "norm", lambda values: short(fmean(values))),
    ]


def _in_words(shares: Sequence[float], rule: str) -> str:
    values = known(shares)
    return f"{fmean(values):.2f} with {rule}" if values else f"unknown with {rule} (no error was added)"


def _interval(shares: Sequence[float]) -> str:
    values = known(shares)
    if not values:
        return "nothing to recover"
    mean = paired([0.0] * len(values), values, "difference")
    return md.interval(mean.effect, mean.low, mean.high, ".2f")
