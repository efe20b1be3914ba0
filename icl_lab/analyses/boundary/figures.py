"""Boundary values as pictures: the curves, the bound over the slope, and the clip sweeps."""

import math

import numpy as np
from matplotlib.figure import Figure

from icl_lab import tasks
from icl_lab.analyses.boundary import answers
from icl_lab.analyses.boundary.bounds import SIDES, Bounds
from icl_lab.analyses.boundary.curves import Line
from icl_lab.analyses.findings import known
from icl_lab.figures import bounds as pictures
from icl_lab.runs.measure import TestSpec, draw
from icl_lab.runs.spec import RunSpec


def figures(found: Bounds, title: str) -> dict[str, Figure]:
    """Draws the curves, the bound over the slope, and the sweeps that the bound predicts, as far as there is one."""
    panels = {f"f(x) = {line}": _panel(found, line) for line in found.plain}
    made = {"boundary": pictures.curves(panels, title=title, trained=_trained(found.spec), reach=found.reach)}
    about = f"{found.spec.task}, {found.spec.preset}"
    if models := answers.bounded(found):
        words = answers.words(tasks.build(found.spec.task))
        made["bound"] = pictures.bound(
            {found.spec.preset: models}, title=f"{about}: what bounds the answers", words=words
        )
    if dots := _dots(found):
        law = pictures.law(dots, title=f"{about}: the bound and the labels of training", marks={found.spec.preset: "o"})
        made["law"] = law
    if control := _control(found, f"{about}: bound and slope"):
        made["control"] = control
    if sweep := _sweep(found, f"{about}: the clip sweep that B predicts"):
        made["sweep"] = sweep
    return made


def _dots(found: Bounds) -> list[pictures.Dot]:
    """C and the largest training label of each model that has both; none where all met the same labels."""
    shown = answers.SHOWN
    dots = [
        pictures.Dot(
            label.partition(",")[0], found.spec.preset, of["largest-label"][shown], of["bound"][shown], math.nan
        )
        for label, seeds in answers.bounded(found).items()
        for of in seeds
        if "largest-label" in of
    ]
    return dots if len({dot.largest for dot in dots}) > 1 else []


def _trained(spec: RunSpec) -> float:
    """The size that 99 of 100 labels of a training prompt stay below."""
    test = TestSpec(prompts=1024, axes={"length": [float(spec.train.longest)]})
    usual = draw(tasks.build(spec.task), spec.train.longest, test, spec.train.shift)
    return float(np.quantile(usual.targets.abs().numpy(), 0.99))


def _control(found: Bounds, title: str) -> Figure | None:
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
    axes = {"slope": line.slope, "intercept": line.intercept, "scale": line.scale}
    curves: dict[str, list[pictures.Line]] = {}
    onsets: dict[str, list[float]] = {}
    bounds: dict[str, list[float]] = {}
    for rule in found.rules:
        frame = found["curves"].where(attn=rule, **axes).frame
        frame = frame[frame["target"].abs() <= found.reach]
        curves[rule] = [
            list(zip(part["target"], part["value"], strict=True)) for _, part in frame.groupby("seed", sort=True)
        ]
        onsets[rule] = [side * value for side in SIDES for value in found.values(rule, line, side, "onset")]
        bounds[rule] = known(side * value for side in SIDES for value in found.values(rule, line, side, "bound"))
    return pictures.BoundPanel(curves, onsets, bounds)
