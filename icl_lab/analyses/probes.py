"""Whether models know the single numbers of a prompt that they get wrong: from finished runs to one table."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from matplotlib.figure import Figure

from icl_lab import markdown as md
from icl_lab import tasks
from icl_lab.analyses import probe as analysis
from icl_lab.errors import BadValue
from icl_lab.figures import heads as pictures
from icl_lab.figures.base import short
from icl_lab.files import publish_folder as save
from icl_lab.grid import Grid
from icl_lab.rng import stream
from icl_lab.runs.measure import TEST_SEED, TestSpec, draw
from icl_lab.runs.session import Lab
from icl_lab.runs.spec import RunSpec
from icl_lab.runs.store import Run
from icl_lab.runs.summary import training_cell
from icl_lab.sweep import load_or_train

WORDS = {
    "together": "the whole prompt",
    "alone-deviant": "growing number, alone",
    "alone-others": "others, alone",
    "probe-deviant": "growing number, by probe",
    "probe-others": "others, by probe",
}
LESSONS = 512  # prompts that a probe learns from


@dataclass(frozen=True)
class Probes:
    """The grid of finished runs (axes: layer, factor); the layer of what is read at the output is -1."""

    grid: Grid

    @property
    def rules(self) -> list[str]:
        """The rules, in the order that they were asked for."""
        return list(self.grid.values("attn"))

    @property
    def factors(self) -> list[float]:
        """The factors, in ascending order."""
        return list(self.grid.values("factor"))

    def places(self) -> list[tuple[str, float]]:
        """What was read, and after which layer."""
        frame = self.grid.frame.drop_duplicates(["metric", "layer"])
        found = list(zip(frame["metric"], frame["layer"], strict=True))
        return sorted(found, key=lambda place: (list(WORDS).index(place[0]), place[1]))

    def lines(self, rule: str, metric: str, layer: float) -> list[list[tuple[float, float]]]:
        """For each seed of a rule: (factor, error)."""
        return self.grid.where(attn=rule, metric=metric, layer=layer).lines("factor", "seed")


def check(spec: RunSpec, at: int) -> None:
    """Raises ``BadValue`` where a single number has no answer, or none stands at that index."""
    task = tasks.build(spec.task)
    task.singly(task.sample(stream(TEST_SEED, "probe"), 1, spec.train.longest))
    length = int(training_cell(task, spec)["length"])
    if not 0 <= at < length:
        raise BadValue(f"the growing number stands at an index from 0 to {length - 1}, got {at}.")


def examine(groups: Mapping[str, Sequence[Run]], lab: Lab, at: int, factors: Sequence[float], prompts: int) -> Probes:
    """Examines the models of each name on prompts that all of them share."""
    rows: list[dict[str, Any]] = []
    runs = [(name, run) for name, seeds in groups.items() for run in seeds]
    for number, (name, run) in enumerate(runs):
        spec, task = run.spec, tasks.build(run.spec.task)
        model = load_or_train(run, lab)
        suite, here = task.balanced, training_cell(task, spec)
        length = int(here.pop("length"))
        calm = draw(suite, length, TestSpec(prompts=prompts, axes={"length": [float(length)]}), here)
        taught = suite.sample(stream(TEST_SEED, "probe", length), LESSONS, length, **here)
        found = analysis.probe(model, suite, taught, calm, at, factors, lab.device)
        rows += [{**run.labels, "attn": name, **row} for row in found]
        lab.tick("models", number + 1, len(runs), name)
    return Probes(Grid.of(rows, ["layer", "factor"]))


def markdown(found: Probes, spec: RunSpec, command: str) -> str:
    """Returns the median error over seeds of each reading, rule by rule."""
    seeds = len(found.grid.where(attn=found.rules[0]).values("seed"))
    text = [
        f"Task {spec.task}, preset {spec.preset}: error rates, the mean over numbers that make the answer alone true "
        f"and false (the whole prompt: over its truth); {seeds} training seeds, medians.",
        "",
        *md.head(["rule", "what is asked", *(f"x{factor:g}" for factor in found.factors)]),
    ]
    for rule in found.rules:
        for metric, layer in found.places():
            lines = found.lines(rule, metric, layer)
            cells = [short(median([line[place][1] for line in lines])) for place in range(len(found.factors))]
            text.append(md.row([f"`{rule}`", words(metric, layer), *cells]))
    return "\n".join([*text, "", f"Made by `{command}`.", ""])


def words(metric: str, layer: float) -> str:
    """What was read, in words."""
    depth = "" if layer == analysis.NOWHERE else f" after layer {layer:g}" if layer else " as read in"
    return WORDS[metric] + depth


def publish(found: Probes, spec: RunSpec, folder: Path, command: str) -> tuple[str, list[str]]:
    """Writes the grid, the table and the figure; returns the table as text and the names of the files."""
    text = markdown(found, spec, command)
    files = {"probe.csv": found.grid.csv(), "table.md": text}
    return text, save(folder, files, {"probe": figure(found, f"{spec.task}, {spec.preset}: one number growing")})


def figure(found: Probes, title: str) -> Figure:
    """Draws each reading over the factor: the whole prompt, its numbers alone, and the probes at the last layer."""
    last = max(layer for _, layer in found.places())
    places = [place for place in found.places() if place[1] in (analysis.NOWHERE, last)]
    panels = {f"error: {words(*place)}": {rule: found.lines(rule, *place) for rule in found.rules} for place in places}
    return pictures.curves(
        panels,
        title=title,
        across="factor of the growing number",
        scales={},
        limits=dict.fromkeys(panels, (-0.02, 0.62)),
    )
