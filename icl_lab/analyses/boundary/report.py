"""Boundary values for reading: tables over seeds, in each run, against the first normalizer, a sentence, pictures."""

import math
from collections.abc import Sequence
from statistics import fmean

import numpy as np
from matplotlib.figure import Figure

from icl_lab import tasks
from icl_lab.analyses.boundary.bounds import (
    GRID,
    SHOWN,
    SIDES,
    SPREADS,
    Bounds,
    Sweep,
    bound_and_largest,
    bounded,
    kept,
    mean,
)
from icl_lab.analyses.boundary.curves import SLACK, Line
from icl_lab.analyses.findings import Findings, known
from icl_lab.base import markdown as md
from icl_lab.base.grid import Grid
from icl_lab.comparison.statistics import Effect, paired
from icl_lab.figures import bounds as pictures
from icl_lab.figures.base import short
from icl_lab.runs.measure import TestSpec, draw
from icl_lab.runs.spec import RunSpec
from icl_lab.tasks.base import Task


def table(found: Bounds) -> list[str]:
    """Return the bounds over seeds and in each run, the control of slopes and contexts, and the clip sweeps."""
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
    if GRID in found.grids:
        text += ["", "### What bounds the answers", "", *answer_table(found)]
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
            *sweep_table(found.sweeps),
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
    return " ".join(filter(None, [f"{text[0].upper()}{text[1:]}.", sentence(found)]))


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
    """Return which of the two an exponent of B in the slope, with its interval, is nearer to; empty without one."""
    if alpha is None or math.isnan(alpha.low):
        return ""
    if alpha.high < 0.5:
        return OUTPUT
    return INPUT if alpha.low > 0.5 else UNDECIDED


def power(mean: Effect) -> str:
    """Return an exponent with its interval over seeds, where there is one."""
    effect, low, high = (round(each, 2) + 0.0 for each in (mean.effect, mean.low, mean.high))
    return md.interval(effect, low, high, ".2f")


def with_interval(mean: Effect) -> str:
    """Return a mean with its interval over seeds, where there is one."""
    return md.interval(mean.effect, mean.low, mean.high)


def answer_table(found: Findings) -> list[str]:
    """C and B of each model, and how much of its error far from training lies above C."""
    rows = []
    for label, seeds in kept(found).items():
        for seed, numbers in seeds.items():
            cells = ["none", *[""] * 6]
            if numbers:
                bound, largest = bound_and_largest(numbers)
                error, floor = numbers["error"][SHOWN], numbers["floor"][SHOWN]
                cells = [f"{bound:.2f}", f"{largest:.2f}", f"{largest / bound:.1%}", f"{error:.3g}", f"{floor:.3g}"]
                cells += [f"{floor / error:.0%}", f"{numbers['rescaled'][SHOWN]:.3g}" if "rescaled" in numbers else ""]
            rows.append(md.row([f"`{label}`", str(seed), *cells]))
    far = f"error at {tasks.build(found.spec.task).summary.axis} {SHOWN:g}"
    said = (
        "The final norm and the linear read-out bound every answer: |answer - c| <= C, for any prompt and any "
        "normalizer (docs/boundary.md). B: the largest |answer - c| on prompts whose functions are 1 to "
        f"{SPREADS[-1]:,.0f} times as wide as in training. Floor: the error of exact answers clipped to the bound, "
        "which no model with this C can go below; share: of the error. Rescaled: labels divided by the size of the "
        "first three, answers multiplied back, without training. none: no bound, since there is no final norm, or "
        "nothing is kept."
    )
    return [said, "", *md.head(["normalizer", "seed", "C", "B", "B/C", far, "floor", "share", "rescaled"]), *rows]


def sweep_table(sweeps: Sequence[tuple[Sweep, float, float]]) -> list[str]:
    """Return a table: each run's B and clip B from its curves, and the B that fits its sweep, with residuals."""
    head = ["normalizer", "seed", "B of the curves", "residual", "clip B of the curves", "residual", "B of the sweep"]
    rows = md.head([*head, "residual"])
    for sweep, bound, clip in sweeps:
        best = sweep.best
        cells = [f"`{sweep.rule}`", str(sweep.seed), _cell(bound), _cell(sweep.residual(bound)), _cell(clip)]
        cells += [_cell(sweep.residual(clip)), _cell(best.bound if best else math.nan)]
        rows.append(md.row([*cells, _cell(best.residual if best else math.nan)]))
    return rows


def _cell(value: float) -> str:
    return "" if math.isnan(value) else short(value)


def words(task: Task) -> tuple[str, str]:
    """Names of the spread of functions and of the error, for the axes of a picture."""
    return task.axis_words[task.summary.axis], task.metric_label(task.headline)


def sentence(found: Findings) -> str:
    """C and B in words; empty where nothing is kept."""
    parts = []
    for label, seeds in bounded(found).items():
        pairs = [bound_and_largest(model) for model in seeds]
        bounds, shares = [bound for bound, _ in pairs], [100 * (largest / bound) for bound, largest in pairs]
        parts.append(f"`{label}` {_span(bounds)} ({_span(shares)} % of it reached)")
    return f"The final norm and the read-out bound all answers at C: {'; '.join(parts)}." if parts else ""


def _span(values: Sequence[float]) -> str:
    low, high = (f"{value:.3g}" for value in (min(values), max(values)))
    return low if low == high else f"{low} to {high}"


def figures(found: Bounds, title: str) -> dict[str, Figure]:
    """Draw the curves, the bound over the slope, and the sweeps that the bound predicts, as far as there is one."""
    panels = {f"f(x) = {line}": _panel(found, line) for line in found.plain}
    made = {"boundary": pictures.curves(panels, title=title, trained=_trained(found.spec), reach=found.reach)}
    about = f"{found.spec.task}, {found.spec.preset}"
    if models := bounded(found):
        named = words(tasks.build(found.spec.task))
        made["bound"] = pictures.bound(models, title=f"{about}: what bounds the answers", words=named)
    if dots := _dots(found):
        law = pictures.law(dots, title=f"{about}: the bound and the labels of training", marks={found.spec.preset: "o"})
        made["law"] = law
    if control := _slopes(found, f"{about}: bound and slope"):
        made["control"] = control
    if sweep := _sweep(found, f"{about}: the clip sweep that B predicts"):
        made["sweep"] = sweep
    return made


def _dots(found: Bounds) -> list[pictures.BoundDot]:
    """C and the largest training label of each model that has both; none where all met the same labels."""
    dots = [
        pictures.BoundDot(
            label.partition(",")[0], found.spec.preset, of["largest-label"][SHOWN], of["bound"][SHOWN], math.nan
        )
        for label, seeds in bounded(found).items()
        for of in seeds
        if "largest-label" in of
    ]
    return dots if len({dot.largest for dot in dots}) > 1 else []


def _trained(spec: RunSpec) -> float:
    """The size that 99 of 100 labels of a training prompt stay below."""
    test = TestSpec(prompts=1024, axes={"length": [float(spec.train.longest)]})
    usual = draw(tasks.build(spec.task), spec.train.longest, test, spec.train.shift)
    return float(np.quantile(usual.targets.abs().numpy(), 0.99))


def _slopes(found: Bounds, title: str) -> Figure | None:
    slopes = sorted({line.slope for line in found.lines}, key=abs)
    scales = {line.scale: f"context inputs N(0, {line.scale:g}²)" for line in found.lines}
    bounds = {
        words: {rule: [found.both(rule, slope, scale) for slope in slopes] for rule in found.rules}
        for scale, words in scales.items()
    }
    # On a logarithmic axis: bounds at or below 0 (answers that stay near 0), and NaN, have no place.
    some = any(value > 0 for rules in bounds.values() for rows in rules.values() for v in rows for value in v)
    if len({abs(slope) for slope in slopes}) < 2 or not some:
        return None
    return pictures.control(slopes, bounds, title=title)


def _sweep(found: Bounds, title: str) -> Figure | None:
    sweeps = [(sweep, bound) for sweep, bound, _ in found.sweeps if not math.isnan(bound)]
    if not sweeps:
        return None
    first = sweeps[0][0]
    alike = [(sweep, bound) for sweep, bound in sweeps if sweep.sigmas == first.sigmas]
    rules = {
        rule: (
            [sweep.measured for sweep, _ in alike if sweep.rule == rule],
            [sweep.predicted[bound] for sweep, bound in alike if sweep.rule == rule],
        )
        for rule in dict.fromkeys(sweep.rule for sweep, _ in alike)
    }
    along = tasks.build(found.spec.task).axis_words[first.axis]
    return pictures.sweeps(first.sigmas, rules, first.zero, title=title, judged=first.start, axis=along)


def _panel(found: Bounds, line: Line) -> pictures.BoundPanel:
    def both_sides(rule: str, metric: str) -> list[float]:
        return known(side * value for side in SIDES for value in found.values(rule, line, side, metric))

    frame = found["curves"].where(slope=line.slope, intercept=line.intercept, scale=line.scale).frame
    near = Grid(frame[frame["target"].abs() <= found.reach])
    return pictures.BoundPanel(
        {rule: near.where(attn=rule).lines("target", "seed") for rule in found.rules},
        {rule: both_sides(rule, "onset") for rule in found.rules},
        {rule: both_sides(rule, "bound") for rule in found.rules},
    )
