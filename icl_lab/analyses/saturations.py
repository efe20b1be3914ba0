"""Rules under one number growing without bound: from finished runs to curves, saturation points and the causal test."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from matplotlib.figure import Figure

from icl_lab import markdown as md
from icl_lab import tasks
from icl_lab.analyses import saturation as analysis
from icl_lab.comparison.statistics import paired
from icl_lab.errors import BadValue
from icl_lab.figures import heads as pictures
from icl_lab.figures.base import short
from icl_lab.files import publish_folder as save
from icl_lab.grid import Grid
from icl_lab.runs.measure import TestSpec, draw
from icl_lab.runs.session import Lab
from icl_lab.runs.spec import RunSpec
from icl_lab.runs.store import Run
from icl_lab.runs.summary import training_cell
from icl_lab.sweep import load_or_train

FACTORS = (1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0)
WORDS = {
    "largest": "largest weight",
    "effective": "effective keys",
    "distance": "distance to the undisturbed row",
    "deviant": "weight on the deviant",
    "theory": "weight on one key so far above equal ones",
}


@dataclass(frozen=True)
class Saturation:
    """Grids of finished runs: heads (layer, head, factor), errors (factor), patches (layer, head, factor)."""

    heads: Grid
    errors: Grid
    patches: Grid

    @property
    def rules(self) -> list[str]:
        """The rules, in the order that they were asked for."""
        return list(self.heads.values("attn"))

    @property
    def factors(self) -> list[float]:
        """The factors, in ascending order."""
        return list(self.heads.values("factor"))

    def lines(self, rule: str, metric: str) -> list[list[tuple[float, float]]]:
        """For each head of each seed of a rule: (factor, value)."""
        return self.heads.where(attn=rule, metric=metric).lines("factor", "seed", "layer", "head")

    def points(self, rule: str) -> list[float]:
        """The saturation point of each head of each seed; NaN where a head has none in range."""
        return [analysis.point(*zip(*line, strict=True)) for line in self.lines(rule, "largest")]

    def recovered(self, rule: str, factor: float, layer: int = -1, head: int = -1) -> list[float]:
        """The share of the error that goes away when these heads see as if undisturbed, one number a seed."""
        return list(self.patches.where(attn=rule, factor=factor, layer=layer, head=head).frame["value"])


def check(spec: RunSpec, at: int) -> None:
    """Raises ``BadValue`` where nothing can be stretched or nothing attends."""
    task = tasks.build(spec.task)
    if not task.deviants:
        raise BadValue(f"{spec.task} has no number to be stretched; take linear, every or some.")
    if not spec.model.attention:
        raise BadValue("a model without attention has no heads to saturate.")
    length = int(training_cell(task, spec)["length"])
    if not 0 <= at < length - 1:
        raise BadValue(f"the growing number stands at an index from 0 to {length - 2}, got {at}.")


def stretch(
    groups: Mapping[str, Sequence[Run]], lab: Lab, at: int, factors: Sequence[float], prompts: int
) -> Saturation:
    """Lets one number grow before the models of each name, on prompts that all of them share."""
    heads: list[dict[str, Any]] = []
    errors: list[dict[str, Any]] = []
    patches: list[dict[str, Any]] = []
    runs = [(name, run) for name, seeds in groups.items() for run in seeds]
    for number, (name, run) in enumerate(runs):
        spec, task = run.spec, tasks.build(run.spec.task)
        model = load_or_train(run, lab)
        suite, here = task.balanced, training_cell(task, spec)
        length = int(here["length"])
        test = TestSpec(prompts=prompts, axes={axis: [value] for axis, value in here.items()})
        calm = draw(suite, length, test, {axis: value for axis, value in here.items() if axis != "length"})
        who = {**run.labels, "attn": name}
        found = analysis.saturation(model, suite, calm, at, factors, lab.device)
        heads += [{**who, **row} for row in found[0]]
        errors += [{**who, **row} for row in found[1]]
        for factor in [factor for factor in factors if factor > 1]:
            _, _, rows = analysis.patch(model, suite, calm, at, factor, lab.device)
            patches += [{**who, **row, "stderr": None, "count": len(calm.tokens)} for row in rows]
        lab.tick("models", number + 1, len(runs), name)
    axes = ["layer", "head", "factor"]
    return Saturation(Grid.of(heads, axes), Grid.of(errors, ["factor"]), Grid.of(patches, axes))


def markdown(found: Saturation, spec: RunSpec, command: str) -> str:
    """Returns errors, saturation points, and what the causal test recovers, for each rule."""
    across = [f"x{factor:g}" for factor in found.factors]
    text = [f"Task {spec.task}, preset {spec.preset}: one number growing, {_seeds(found)} training seeds."]
    metric = "mse" if "mse" in found.errors.values("metric") else "last"
    text += ["", *md.head([f"error ({metric})", *across])]
    for rule in found.rules:
        rows = [found.errors.where(attn=rule, metric=metric, factor=factor).frame["value"] for factor in found.factors]
        text.append(md.row([f"`{rule}`", *(short(float(values.mean())) for values in rows)]))
    for metric, words in WORDS.items():
        text += ["", *md.head([f"{words}, median over heads", *across])]
        for rule in found.rules:
            lines = found.lines(rule, metric)
            cells = [short(median([line[place][1] for line in lines])) for place in range(len(found.factors))]
            text.append(md.row([f"`{rule}`", *cells]))
    text += ["", *md.head(["share of the error that calm attention recovers (all heads at once)", *across])]
    for rule in found.rules:
        text.append(md.row([f"`{rule}`", "", *(_recovery(found, rule, factor) for factor in found.factors[1:])]))
    told = "heads that saturate (largest weight from below 0.5 to above 0.9)"
    text += ["", *md.head(["rule", told, "first at"])]
    for rule in found.rules:
        points = found.points(rule)
        known = [value for value in points if not math.isnan(value)]
        first = f"x{min(known):g}" if known else "none in range"
        text.append(md.row([f"`{rule}`", f"{len(known)} of {len(points)}", first]))
    return "\n".join([*text, "", f"Made by `{command}`.", ""])


def publish(found: Saturation, spec: RunSpec, folder: Path, command: str, more: str = "") -> tuple[str, list[str]]:
    """Writes the grids, the tables and the figure; returns the tables as text and the names of the files."""
    text = markdown(found, spec, command) + more
    files = {"heads.csv": found.heads.csv(), "errors.csv": found.errors.csv(), "patches.csv": found.patches.csv()}
    files["table.md"] = text
    drawn = figure(found, f"{spec.task}, {spec.preset}: one number growing")
    return text, save(folder, files, {"saturation": drawn})


def figure(found: Saturation, title: str) -> Figure:
    """Draws what heads do over the factor, the error beside it, and what the causal test recovers."""
    panels = {words: {rule: found.lines(rule, metric) for rule in found.rules} for metric, words in WORDS.items()}
    metric = "mse" if "mse" in found.errors.values("metric") else "last"
    panels[f"error ({metric})"] = {
        rule: found.errors.where(attn=rule, metric=metric).lines("factor", "seed") for rule in found.rules
    }
    panels["error recovered by calm attention"] = {
        rule: found.patches.where(attn=rule, layer=-1, head=-1).lines("factor", "seed") for rule in found.rules
    }
    return pictures.curves(
        panels,
        title=title,
        across="factor of the growing number",
        scales={"effective keys": "xy", "error (mse)": "xy"},
        limits={"error recovered by calm attention": (-2.0, 1.1)},
    )


def _recovery(found: Saturation, rule: str, factor: float) -> str:
    """The mean share over seeds with Student's interval."""
    values = [value for value in found.recovered(rule, factor) if not math.isnan(value)]
    if not values:
        return "nothing to recover"
    mean = paired([0.0] * len(values), values, "difference")
    return f"{mean.effect:.2f}" if math.isnan(mean.low) else f"{mean.effect:.2f} [{mean.low:.2f}, {mean.high:.2f}]"


def _seeds(found: Saturation) -> int:
    return len(found.heads.where(attn=found.rules[0]).values("seed"))
