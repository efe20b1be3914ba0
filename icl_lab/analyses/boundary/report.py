"""Boundary values in words and pictures."""

import math
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean

import numpy as np
from matplotlib.figure import Figure

from icl_lab import markdown as md
from icl_lab import tasks
from icl_lab.analyses.boundary import clip
from icl_lab.analyses.boundary.extrapolation import Line
from icl_lab.analyses.boundary.study import SIDES, Boundaries
from icl_lab.comparison.statistics import Effect, paired
from icl_lab.figures import bounds as pictures
from icl_lab.files import publish_folder as save
from icl_lab.runs.measure import TestSpec, draw
from icl_lab.runs.spec import RunSpec

Sweeps = Sequence[tuple[clip.Sweep, float, float]]  # each with the B and the clip B of its curves


def markdown(found: Boundaries, sweeps: Sweeps, spec: RunSpec, command: str) -> str:
    """Returns what was detected over seeds and in each run, the control of slopes and contexts, and the sweeps."""
    contexts, reach = int(found.found.frame["count"].iloc[0]), _reach(found)
    text = [
        f"Task {spec.task}, preset {spec.preset}: answers to x = (t - b) / a after the examples of f(x) = a x + b, "
        f"true values t from {-reach:g} to {reach:g}, medians over {contexts} contexts. Onset: the last t that is "
        "answered rightly. B: where answers stay (plateau) or their greatest (collapse). Clip B: the bound for which "
        "cutting the truth is nearest to the answers.",
        "",
        "### Over training seeds",
        "",
        "Means over seeds with Student's 95 % interval, where every seed has the number.",
        "",
        *md.head(["rule", "f(x)", "side", "class (seeds)", "onset", "B", "clip B"]),
    ]
    for rule in found.rules:
        for line in found.plain:
            text += [md.row([f"`{rule}`", str(line), _sign(side), *_claims(found, rule, line, side)]) for side in SIDES]
    text += [
        "",
        "### Each run",
        "",
        "B with the 95 % interval over contexts, and the share of resampled contexts of the same class where it is not "
        "all of them; the answer at the farthest query.",
        "",
        *md.head(["rule", "seed", "f(x)", "B-", "B+", "far -", "far +"]),
    ]
    for rule in found.rules:
        for place, seed in enumerate(found.seeds(rule)):
            for line in found.plain:
                cells = [_each(found, rule, line, side, place) for side in SIDES]
                cells += [f"{side * found.values(rule, line, side, 'far')[place]:.3g}" for side in SIDES]
                text.append(md.row([f"`{rule}`", f"{seed:g}", str(line), *cells]))
    if len(found.rules) > 1 and len(found.seeds(found.rules[0])) > 1:
        text += ["", f"### Against `{found.rules[0]}`", "", *_against(found)]
    text += ["", "### Is it the output that is bounded?", "", *_control(found)]
    if sweeps:
        text += [
            "",
            "### The sweep over functions that B predicts",
            "",
            "Residual: root mean square of log(predicted / measured) over sigma_f >= 4, where answers cut at +-B would "
            "err as predicted. B of the curves: the median over slopes and sides; B of the sweep: the one that fits it "
            "best.",
            "",
            *clip.table(sweeps),
        ]
    return "\n".join([*text, "", f"Made by `{command}`.", ""])


def publish(
    found: Boundaries, sweeps: Sweeps, spec: RunSpec, folder: Path, command: str, more: str = ""
) -> tuple[str, list[str]]:
    """Writes the grids, the tables and the figures; returns the tables as text and the names of the files."""
    text = markdown(found, sweeps, spec, command) + more
    files = {"curves.csv": found.curves.csv(), "boundary.csv": found.found.csv(), "table.md": text}
    return text, save(folder, files, figures(found, sweeps, spec))


def figures(found: Boundaries, sweeps: Sweeps, spec: RunSpec) -> dict[str, Figure]:
    """Draws the curves, the bound over the slope, and the sweeps that the bound predicts, as far as there is one."""
    title, task = f"{spec.task}, {spec.preset}", tasks.build(spec.task)
    usual = draw(task, spec.train.longest, TestSpec(prompts=1024, axes={"length": [40.0]}), spec.train.shift)
    trained = float(np.quantile(usual.targets.abs().numpy(), 0.99))
    panels = {f"f(x) = {line}": _panel(found, line) for line in found.plain}
    made = {
        "boundary": pictures.curves(panels, title=f"{title}: answers far out", trained=trained, reach=_reach(found))
    }
    slopes = sorted({line.slope for line in found.lines}, key=abs)
    scales = {line.scale: f"context inputs N(0, {line.scale:g}²)" for line in found.lines}
    bounds = {
        words: {rule: [_both(found, rule, slope, scale) for slope in slopes] for rule in found.rules}
        for scale, words in scales.items()
    }
    some = any(
        not math.isnan(value) for rules in bounds.values() for rows in rules.values() for v in rows for value in v
    )
    if len({abs(slope) for slope in slopes}) > 1 and some:
        made["control"] = pictures.control(slopes, bounds, title=f"{title}: bound and slope")
    drawn = [(sweep, bound) for sweep, bound, _ in sweeps if not math.isnan(bound)]
    if drawn:
        sigmas = drawn[0][0].sigmas
        rules = {
            rule: (
                [sweep.measured for sweep, _ in drawn if sweep.rule == rule and sweep.sigmas == sigmas],
                [sweep.predicted[bound] for sweep, bound in drawn if sweep.rule == rule and sweep.sigmas == sigmas],
            )
            for rule in dict.fromkeys(sweep.rule for sweep, _ in drawn)
        }
        zero = [sigma**2 * (1 + spec.train.shift.get("sigma_x", 1.0) ** 2) for sigma in sigmas]
        made["sweep"] = pictures.sweeps(
            sigmas, rules, zero, title=f"{title}: the sweep that B predicts", judged=clip.FAR
        )
    return made


def _panel(found: Boundaries, line: Line) -> pictures.Panel:
    axes = {"slope": line.slope, "intercept": line.intercept, "scale": line.scale}
    curves: dict[str, list[pictures.Line]] = {}
    onsets: dict[str, list[float]] = {}
    bounds: dict[str, list[float]] = {}
    for rule in found.rules:
        frame = found.curves.where(attn=rule, **axes).frame
        frame = frame[frame["target"].abs() <= _reach(found)]
        curves[rule] = [
            list(zip(part["target"], part["value"], strict=True)) for _, part in frame.groupby("seed", sort=True)
        ]
        onsets[rule] = [side * value for side in SIDES for value in found.values(rule, line, side, "onset")]
        signed = [side * value for side in SIDES for value in found.values(rule, line, side, "bound")]
        bounds[rule] = [value for value in signed if not math.isnan(value)]
    return pictures.Panel(curves, onsets, bounds)


def _claims(found: Boundaries, rule: str, line: Line, side: int) -> list[str]:
    kinds = found.kinds(rule, line, side)
    counts = [f"{kind} {kinds.count(kind)}" if len(kinds) > 1 else kind for kind in dict.fromkeys(kinds)]
    cells = [", ".join(counts)]
    for metric in ("onset", "bound", "clip"):
        compared = found.over_seeds(rule, line, side, metric)
        values = [value for value in found.values(rule, line, side, metric) if not math.isnan(value)]
        if metric == "bound" and set(kinds) == {"none in range"}:
            cells.append(f"> {_reach(found):g}")
        elif compared is not None:
            cells.append(_spoken(compared))
        else:
            cells.append(f"{fmean(values):.3g} ({len(values)} of {len(kinds)} seeds)" if values else "none")
    return cells


def _against(found: Boundaries) -> list[str]:
    """Each rule's bounds over those of the first, paired over the seeds that both have."""
    first, *others = found.rules
    rows = [
        "Ratio of the medians over slopes and sides, paired over training seeds, with Student's 95 % interval.",
        "",
        *md.head(["rule", "B", "clip B", "seeds"]),
    ]
    for rule in others:
        shared = [seed for seed in found.seeds(first) if seed in found.seeds(rule)]
        cells = []
        for metric in ("bound", "clip"):
            a, b = (
                [found.typical(name, found.seeds(name).index(seed), metric) for seed in shared]
                for name in (first, rule)
            )
            if shared and all(value > 0 for value in (*a, *b)):
                ratio, low, high = paired(a, b).ratio
                cells.append(f"{ratio:.3g}" + ("" if math.isnan(low) else f" [{low:.3g}, {high:.3g}]"))
            else:
                cells.append("none")
        rows.append(md.row([f"`{rule}`", *cells, str(len(shared))]))
    return rows


def _each(found: Boundaries, rule: str, line: Line, side: int, place: int) -> str:
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


def _control(found: Boundaries) -> list[str]:
    """The bound at every slope and scale, and its exponents in them."""
    slopes = sorted({line.slope for line in found.lines}, key=abs)
    scales = list(dict.fromkeys(line.scale for line in found.lines))
    head = ["rule", *(f"a {slope:g}, inputs {scale:g}" for scale in scales for slope in slopes)]
    head += ["exponent in a", "in the inputs", "reading"]
    rows = [
        "B (mean of both sides and of the seeds that have one), and how it goes with the slope and with the inputs of "
        "the context: B ~ |a|^alpha inputs^gamma. Alpha 0: the output is bounded; 1: the input, or the slope. Gamma 1: "
        "the bound follows the examples. The references show what is known: clip is bounded in its output, the nearest "
        "neighbour by its examples, least squares by nothing.",
        "",
        *md.head(head),
    ]
    for rule in [*found.rules, *found.references]:
        cells = []
        for scale in scales:
            for slope in slopes:
                known = [value for value in _both(found, rule, slope, scale) if not math.isnan(value)]
                cells.append(f"{fmean(known):.3g}" if known else "none")
        growth = found.growth(rule)
        exponents = [_over([each[place] for each in growth]) for place in (0, 1)]
        rows.append(
            md.row(
                [
                    f"`{rule}`" if rule in found.rules else rule,
                    *cells,
                    *("" if each is None else _power(each) for each in exponents),
                    _reading(exponents[0]),
                ]
            )
        )
    return rows


def _reading(alpha: Effect | None) -> str:
    """Which of the two an exponent with its interval is nearer to."""
    if alpha is None or math.isnan(alpha.low):
        return ""
    if alpha.high < 0.5:
        return "nearer to a bound on the output"
    return "nearer to a bound on the input" if alpha.low > 0.5 else "undecided"


def _both(found: Boundaries, rule: str, slope: float, scale: float) -> list[float]:
    """The bounds of each seed, the mean of both sides; of the side that has one, where the other has none."""
    line = Line(slope, found.lines[0].intercept, scale)
    pairs = zip(*(found.values(rule, line, side, "bound") for side in SIDES), strict=True)
    known = [[value for value in pair if not math.isnan(value)] for pair in pairs]
    return [fmean(values) if values else math.nan for values in known]


def _over(values: Sequence[float]) -> Effect | None:
    known = [value for value in values if not math.isnan(value)]
    return paired([0.0] * len(known), known, "difference") if known and len(known) == len(values) else None


def _power(mean: Effect) -> str:
    effect, low, high = (round(each, 2) + 0.0 for each in (mean.effect, mean.low, mean.high))
    return f"{effect:.2f}" + ("" if math.isnan(low) else f" [{low:.2f}, {high:.2f}]")


def _spoken(mean: Effect) -> str:
    known = "" if math.isnan(mean.low) else f" [{mean.low:.3g}, {mean.high:.3g}]"
    return f"{mean.effect:.3g}{known}"


def _reach(found: Boundaries) -> float:
    return float(found.found.where(metric="reach").frame["value"].iloc[0])


def _sign(side: int) -> str:
    return "t > 0" if side > 0 else "t < 0"
