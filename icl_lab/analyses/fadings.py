"""Rules over growing prompts: from finished runs to curves of how their attention spreads, and what they learned."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, median
from typing import Any

from matplotlib.figure import Figure

from icl_lab import markdown as md
from icl_lab import tasks
from icl_lab.analyses import fading as analysis
from icl_lab.errors import BadValue
from icl_lab.figures import heads as pictures
from icl_lab.figures.base import NAMES, short
from icl_lab.files import publish_folder as save
from icl_lab.grid import Grid
from icl_lab.model.gpt2 import GPT2
from icl_lab.runs.session import Lab
from icl_lab.runs.spec import RunSpec, change, check
from icl_lab.runs.store import Run
from icl_lab.sweep import load_or_train

STRETCHES = (0.5, 1, 2, 4, 8, 16)  # the usual lengths, in training lengths
WORDS = {
    "largest": "largest weight",
    "entropy": "entropy / log n",
    "effective": "effective keys, exp(entropy)",
    "temperature": "effective inverse temperature",
}


@dataclass(frozen=True)
class Fading:
    """Grids of finished runs: attention (axes: layer, head, length, keys), and learned parameters (layer, head)."""

    curves: Grid
    learned: Grid | None

    @property
    def rules(self) -> list[str]:
        """The rules, in the order that they were asked for."""
        return list(self.curves.values("attn"))

    def lines(self, rule: str, metric: str) -> list[list[tuple[float, float]]]:
        """For each head of each seed of a rule: (keys, value) along the length."""
        return self.curves.where(attn=rule, metric=metric).lines("keys", "seed", "layer", "head")

    def slopes(self, rule: str) -> list[float]:
        """For each head of each seed: the slope of log(largest weight) on log n."""
        return [analysis.slope(*zip(*line, strict=True)) for line in self.lines(rule, "largest")]


def lengths_of(spec: RunSpec, asked: Sequence[int]) -> list[int]:
    """The lengths to look at: those asked for, or the usual ones as far as the position code goes.

    Raises ``BadValue`` on a length that cannot be made, before anything is trained for it.
    """
    for length in asked:
        _fits(spec, length)
    usual = [max(8, int(stretch * spec.train.longest)) for stretch in STRETCHES]
    lengths = sorted(set(asked)) or [length for length in dict.fromkeys(usual) if _can(spec, length)]
    if len(lengths) < 2:
        raise BadValue(f"a curve needs at least two lengths, got {', '.join(map(str, lengths))}.")
    return lengths


def follow(groups: Mapping[str, Sequence[Run]], lab: Lab, lengths: Sequence[int], prompts: int) -> Fading:
    """Follows the attention of the models of each name along the length, on prompts that all of them share."""
    rows: list[dict[str, Any]] = []
    learned: list[dict[str, Any]] = []
    runs = [(name, run) for name, seeds in groups.items() for run in seeds]
    for number, (name, run) in enumerate(runs):
        spec = run.spec
        model = load_or_train(run, lab)
        who = {**run.labels, "attn": name}

        def tick(done: int, total: int, before: int = number, name: str = name) -> None:
            lab.tick("attention", before * total + done, len(runs) * total, name)

        rows += [
            {**who, **row} for row in analysis.fading(model, tasks.build(spec.task), lengths, prompts, lab.device, tick)
        ]
        learned += [{**who, **row} for row in parameters(model)]
    axes = ["layer", "head", "length", "keys"]
    return Fading(Grid.of(rows, axes), Grid.of(learned, ["layer", "head"]) if learned else None)


def parameters(model: GPT2) -> list[dict[str, Any]]:
    """The learned numbers of each layer's rule, by the names of the formula; one that heads share stands once."""
    rows = []
    for key, value in model.learned().items():
        name, place = key.split(" ")
        layer, head = (int(number) for number in place.split("."))
        rows.append({"layer": layer, "head": head, "metric": name, "value": value, "stderr": None, "count": 1})
    return rows


def markdown(found: Fading, spec: RunSpec, command: str) -> str:
    """Returns, for each rule, the slopes of its heads, its spread at each length, and what its heads learned."""
    keys = found.curves.values("keys")
    text = [
        f"Task {spec.task}, preset {spec.preset}, trained up to {spec.train.longest} examples. The row at which a "
        "prompt is asked last; medians over the heads of all seeds. Slope: of log(largest weight) on log n; 0 keeps "
        "its focus, -1 fades as fast as a mean does.",
    ]
    for metric in analysis.METRICS:
        head = [
            WORDS[metric],
            *(f"n {n:g}" for n in keys),
            *(["slope: median", "least", "greatest"] * (metric == "largest")),
        ]
        text += ["", *md.head(head)]
        for rule in found.rules:
            lines = found.lines(rule, metric)
            cells = [short(_median([value for line in lines for n, value in line if n == there])) for there in keys]
            if metric == "largest":
                slopes = found.slopes(rule)
                cells += [f"{value:.2f}" for value in (_median(slopes), min(slopes), max(slopes))]
            text.append(md.row([f"`{rule}`", *cells]))
    if found.learned is not None:
        text += ["", *md.head(["learned", "layer", "heads of seed 0", "mean over seeds"])]
        for rule in found.learned.values("attn"):
            text += _learned(found.learned.where(attn=rule), rule)
    return "\n".join([*text, "", f"Made by `{command}`.", ""])


def publish(found: Fading, spec: RunSpec, folder: Path, command: str) -> tuple[str, list[str]]:
    """Writes the grids, the tables and the figure; returns the tables as text and the names of the files."""
    text = markdown(found, spec, command)
    files = {"fading.csv": found.curves.csv(), "table.md": text}
    if found.learned is not None:
        files["learned.csv"] = found.learned.csv()
    drawn = figure(found, f"{spec.task}, {spec.preset}: attention of the last asked token", spec)
    return text, save(folder, files, {"fading": drawn})


def figure(found: Fading, title: str, spec: RunSpec) -> Figure:
    """Draws each metric over n, every head as a thin line and the median of a rule as a thick one."""
    trained = tasks.build(spec.task).asking(spec.train.longest) + 1
    panels = {WORDS[metric]: {rule: found.lines(rule, metric) for rule in found.rules} for metric in analysis.METRICS}
    logs = {WORDS[metric]: "xy" for metric in ("largest", "effective")}
    return pictures.curves(panels, title=title, across=NAMES["keys"], scales=logs, mark=trained, base=2)


def _fits(spec: RunSpec, length: int) -> None:
    check(change(spec, {"test.axes.length": [float(length)]}), tasks.build(spec.task))


def _can(spec: RunSpec, length: int) -> bool:
    try:
        _fits(spec, length)
    except BadValue:
        return False
    return True


def _learned(grid: Grid, rule: str) -> list[str]:
    rows = []
    for metric in grid.values("metric"):
        for layer in grid.values("layer"):
            part = grid.where(metric=metric, layer=layer)
            first = part.where(seed=part.values("seed")[0]).frame["value"]
            cells = ", ".join(f"{value:.2f}" for value in first)
            rows.append(md.row([f"`{rule}` {metric}", f"{layer:g}", cells, f"{fmean(part.frame['value']):.2f}"]))
    return rows


def _median(values: Sequence[float]) -> float:
    """The median of what is known."""
    known = [value for value in values if not math.isnan(value)]
    return median(known) if known else math.nan
