"""Boundary values for reading: tables over seeds, in each run, against the first normalizer, and one sentence."""

import math
from collections.abc import Sequence
from statistics import fmean

from icl_lab import markdown as md
from icl_lab.analyses.boundary import answers, clip_sweep
from icl_lab.analyses.boundary.bounds import SIDES, Bounds, mean
from icl_lab.analyses.boundary.curves import Line
from icl_lab.analyses.boundary.detector import SLACK
from icl_lab.analyses.findings import known
from icl_lab.comparison.statistics import Effect, paired


def table(found: Bounds) -> list[str]:
    """Returns what was detected over seeds and in each run, the control of slopes and contexts, and the clip sweeps."""
    text = [
        "Answers to x = (t - b) / a after the examples of f(x) = a x + b, true values t from "
        f"{-found.reach:g} to {found.reach:g}, medians over {found.contexts} contexts. Onset: the last t that is "
        "answered rightly. B: where answers stay (plateau) or their greatest (collapse). Clip B: the bound for which "
        "cutting the truth is nearest to the answers.",
        "",
        "### Over training seeds",
        "",
        "Means over seeds with Student's 95 % interval, where every seed has the number.",
        "",
        *md.head(["normalizer", "f(x)", "side", "class (seeds)", "onset", "B", "clip B"]),
    ]
    for rule in found.rules:
        for line in found.plain:
            for side, sign in zip(SIDES, ("t < 0", "t > 0"), strict=True):
                text.append(md.row([f"`{rule}`", str(line), sign, *_claims(found, rule, line, side)]))
    if answers.GRID in found.grids:
        text += ["", "### What bounds the answers", "", *answers.table(found)]
    text += ["", "### Each run", "", *_runs(found)]
    if len(found.rules) > 1 and len(found.seeds_of(found.rules[0])) > 1:
        text += ["", f"### Against `{found.rules[0]}`", "", *_against(found)]
    text += ["", "### Is it the output that is bounded?", "", *_control(found)]
    if found.sweeps:
        text += [
            "",
            "### The clip sweep: errors that B predicts",
            "",
            f"Residual: root mean square of log(predicted / measured) over {found.sweeps[0][0].axis} >= "
            f"{found.sweeps[0][0].start:g}, where answers cut at +-B would err as predicted. B of the curves: the "
            "median over slopes and sides; B of the sweep: the one that fits it best.",
            "",
            *clip_sweep.table(found.sweeps),
        ]
    return text


def _runs(found: Bounds) -> list[str]:
    rows = [
        "B with the 95 % interval over contexts, and the share of resampled contexts of the same class where it is not "
        "all of them; the answer at the farthest query.",
        "",
        *md.head(["normalizer", "seed", "f(x)", "B-", "B+", "far -", "far +"]),
    ]
    for rule in found.rules:
        for place, seed in enumerate(found.seeds_of(rule)):
            for line in found.plain:
                cells = [_each(found, rule, line, side, place) for side in SIDES]
                cells += [f"{side * found.values(rule, line, side, 'far')[place]:.3g}" for side in SIDES]
                rows.append(md.row([f"`{rule}`", f"{seed:g}", str(line), *cells]))
    return rows


def _claims(found: Bounds, rule: str, line: Line, side: int) -> list[str]:
    kinds = found.kinds(rule, line, side)
    counts = [f"{kind} {kinds.count(kind)}" if len(kinds) > 1 else kind for kind in dict.fromkeys(kinds)]
    cells = [", ".join(counts)]
    for metric in ("onset", "bound", "clip"):
        every = found.values(rule, line, side, metric)
        compared, values = mean(every), known(every)
        if metric == "bound" and set(kinds) == {"none in range"}:
            cells.append(f"> {found.reach:g}")
        elif compared is not None:
            cells.append(with_interval(compared))
        else:
            cells.append(f"{fmean(values):.3g} ({len(values)} of {len(kinds)} seeds)" if values else "none")
    return cells


def _against(found: Bounds) -> list[str]:
    """Each normalizer's bounds over those of the first, paired over the seeds that both have."""
    first, *others = found.rules
    rows = [
        "Ratio of the medians over slopes and sides, paired over training seeds, with Student's 95 % interval.",
        "",
        *md.head(["normalizer", "B", "clip B", "seeds"]),
    ]
    for rule in others:
        shared = [seed for seed in found.seeds_of(first) if seed in found.seeds_of(rule)]
        cells = []
        for metric in ("bound", "clip"):
            a, b = (
                [found.typical(name, found.seeds_of(name).index(seed), metric) for seed in shared]
                for name in (first, rule)
            )
            if shared and all(value > 0 for value in (*a, *b)):
                cells.append(md.interval(*paired(a, b).ratio))
            else:
                cells.append("none")
        rows.append(md.row([f"`{rule}`", *cells, str(len(shared))]))
    return rows


def _each(found: Bounds, rule: str, line: Line, side: int, place: int) -> str:
    kind = found.kinds(rule, line, side)[place]
    at = {
        metric: found.values(rule, line, side, metric)[place]
        for metric in ("agreement", "bound", "bound-low", "bound-high", "exponent", "reach")
    }
    share = "" if at["agreement"] > 0.995 else f" ({at['agreement']:.0%})"
    if kind == "none in range":
        return f"> {at['reach']:g}{share}"
    if math.isnan(at["bound"]):
        grows = "" if kind != "sublinear" or math.isnan(at["exponent"]) else f", t^{at['exponent']:.2f}"
        return f"{kind}{grows}{share}"
    return f"{kind} {at['bound']:.3g} [{at['bound-low']:.3g}, {at['bound-high']:.3g}]{share}"


def _control(found: Bounds) -> list[str]:
    """The bound at every slope and scale, and its exponents in them."""
    slopes = sorted({line.slope for line in found.lines}, key=abs)
    scales = list(dict.fromkeys(line.scale for line in found.lines))
    head = ["normalizer", *(f"a {slope:g}, inputs {scale:g}" for scale in scales for slope in slopes)]
    head += ["exponent in a", "in the inputs", "reading"]
    rows = [
        "B (mean of both sides and of the seeds that have one), and how it goes with the slope and with the inputs of "
        "the context: B ~ |a|^alpha inputs^gamma. Alpha 0: the output is bounded; 1: the input, or the slope. Gamma 1: "
        "the bound follows the examples. The references are predictors whose bounds are known.",
        "",
        *md.head(head),
    ]
    for rule in [*found.rules, *found.references]:
        cells = []
        for scale in scales:
            for slope in slopes:
                bounds = known(found.both(rule, slope, scale))
                cells.append(f"{fmean(bounds):.3g}" if bounds else "none")
        growth = found.growth(rule)
        exponents = [mean([each[place] for each in growth]) for place in (0, 1)]
        cells += ["" if each is None else power(each) for each in exponents]
        name = f"`{rule}`" if rule in found.rules else rule
        rows.append(md.row([name, *cells, reading(exponents[0])]))
    return rows


OUTPUT, INPUT, UNDECIDED = "nearer to a bound on the output", "nearer to a bound on the input", "undecided"
VERDICTS = {OUTPUT: "hardly grows with the slope", INPUT: "grows with the slope", UNDECIDED: "may grow with the slope"}


def finding(found: Bounds) -> str:
    """Bound of each normalizer over seeds, the median over slopes and sides, and whether the slope moves it."""
    seeds = {rule: len(found.seeds_of(rule)) for rule in found.rules}
    typical = {rule: mean(known(found.typical(rule, place) for place in range(seeds[rule]))) for rule in found.rules}
    bounds = {rule: bound for rule, bound in typical.items() if bound is not None and bound.effect > SLACK}
    flat = [f"`{rule}`" for rule, bound in typical.items() if bound is not None and rule not in bounds]
    none = [f"`{rule}`" for rule, bound in typical.items() if bound is None]
    parts = []
    if bounds:
        most = max(seeds.values())
        spread = f"B, {most} training seed{'s' * (most > 1)}, true values up to {found.reach:g} in size"
        some = {rule: f" in {b.seeds} of {seeds[rule]} seeds" * (b.seeds < seeds[rule]) for rule, b in bounds.items()}
        bounded = md.listed(f"{with_interval(bound)} for `{rule}`{some[rule]}" for rule, bound in bounds.items())
        parts.append(f"median answers do not exceed about {bounded} ({spread})")
    if flat:
        parts.append(f"the answers of {md.listed(flat)} stay near 0")
    if none:
        parts.append(f"no bound of {md.listed(none)} was detected up to {found.reach:g}")
    parts += _growing(found, list(bounds))
    text = "; ".join(parts)
    return " ".join(filter(None, [f"{text[0].upper()}{text[1:]}.", answers.sentence(found)]))


def _growing(found: Bounds, rules: Sequence[str]) -> list[str]:
    """Sentence on how bounds grow with the slope, as |a|^alpha; nothing where it is unknown."""
    said: dict[str, list[str]] = {}
    for rule in rules:
        alpha = mean([each[0] for each in found.growth(rule)])
        if alpha is not None:
            verdict = "" if math.isnan(alpha.low) else VERDICTS[reading(alpha)]
            said.setdefault(verdict, []).append(f"{power(alpha)} for `{rule}`")
    return [
        f"the bound {verdict} (exponent {md.listed(each)})"
        if verdict
        else f"B ~ |slope|^alpha with alpha {md.listed(each)}"
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
    return md.interval(effect, low, high, ".2f")


def with_interval(mean: Effect) -> str:
    """Returns a mean with its interval over seeds, where there is one."""
    return md.interval(mean.effect, mean.low, mean.high)
