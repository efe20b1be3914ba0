"""Far retrieval against robustness: does a rule that finds the needle pay for it when one number goes astray?

Scalable softmax sharpens with the length, which finds needles and should saturate on a deviant; signed averaging does
the opposite. The two lines of papers (arXiv 2501.19399, arXiv 2508.14685) predict opposite orders of the same rules.
"""

import csv
import io
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

from icl_lab import markdown as md
from icl_lab import tasks
from icl_lab.analyses.needle import STRETCH
from icl_lab.comparison.statistics import Effect, paired
from icl_lab.errors import BadValue
from icl_lab.figures import scatter
from icl_lab.files import publish_folder as save
from icl_lab.grid import Grid, model_name
from icl_lab.runs import provenance, study_folder
from icl_lab.runs.spec import resolve
from icl_lab.runs.store import Store

FACTORS = (10.0, 100.0)  # a deviant is one of the factors from here to there
LABELS = {
    "needle": f"needle found at {STRETCH} times the training length (share of prompts, mean over depths)",
    "deviant": f"squared error after one deviant input, x{FACTORS[0]:g} to x{FACTORS[1]:g} (geometric mean)",
}


@dataclass(frozen=True)
class Point:
    """A rule: the share of needles it finds far out, and the mean logarithm of its error after a deviant."""

    rule: str
    needle: Effect  # against 0, over training seeds
    deviant: Effect


def gather(store: Store, preset: str, task: str = "linear") -> list[Point]:
    """Returns a point for each rule of which both sides are stored; trains nothing.

    Raises ``BadValue`` with the commands that make what is missing, where no rule has both.
    """
    found, struck = retrieval(store, preset), robustness(store, preset, task)
    both = [rule for rule in found if rule in struck]
    if not both:
        raise BadValue(
            f"no rule has both: {len(found)} have needle runs (icl-lab sweep --task needle --attn ...), {len(struck)} "
            f"have met a deviant (icl-lab deviant --task {task} --attn ...), at preset {preset}."
        )
    return [Point(rule, _mean(found[rule]), _mean([math.log(value) for value in struck[rule]])) for rule in both]


def retrieval(store: Store, preset: str) -> dict[str, list[float]]:
    """Rule -> the share of needles found far out, one number a seed, from the finished runs of the plain task."""
    found: dict[str, list[float]] = {}
    for run in store.runs():
        if not run.finished or run.spec.task != "needle" or run.spec.preset != preset:
            continue
        provenance.require(run.spec, run.folder)
        if run.spec != resolve("needle", run.spec.attn, preset):
            continue  # another recipe, or another position code
        grid, length = run.grid(), float(STRETCH * run.spec.train.longest)
        if length not in grid.values("length"):
            continue
        cells = grid.where(attn=model_name(grid), metric=tasks.build("needle").headline, length=length)
        found.setdefault(run.spec.attn, []).append(1 - fmean(cells.frame["value"]))
    return found


def robustness(store: Store, preset: str, task: str) -> dict[str, list[float]]:
    """Rule -> the geometric mean error after a deviant, one number a seed, from the studies of deviants there are."""
    kept: dict[tuple[str, int], float] = {}
    for path in sorted(store.root.glob("deviant-*/deviant.csv")):
        study_folder.verify(path.parent)
        grid = Grid.read(path)
        if grid.values("task") != [task] or grid.values("preset") != [preset] or "mse" not in grid.values("metric"):
            continue
        frame = grid.where(metric="mse").frame
        frame = frame[frame["factor"].between(*FACTORS) & (frame["position"] == 0)]
        for _, part in frame.groupby(["attn", "seed"], sort=False):
            rule, seed = str(part["attn"].iloc[0]), int(part["seed"].iloc[0])
            if not rule.startswith("reference:"):
                kept[rule, seed] = math.exp(fmean(map(math.log, part["value"])))
    found: dict[str, list[float]] = {}
    for (rule, _), value in sorted(kept.items(), key=lambda item: item[0][1]):
        found.setdefault(rule, []).append(value)
    return found


def publish(points: Sequence[Point], folder: Path, preset: str, task: str, command: str) -> tuple[str, list[str]]:
    """Writes the points, a table and the figure; returns the table as text and the names of the files."""
    rows = [_row(point) for point in sorted(points, key=lambda point: -point.needle.effect)]
    table = io.StringIO()
    writer = csv.DictWriter(table, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    text = markdown(points, preset, task, command)
    drawn = scatter.scatter(
        {point.rule: (_span(point.needle), _span(point.deviant, math.exp), point.needle.seeds) for point in points},
        across=LABELS["needle"],
        down=LABELS["deviant"],
        title=f"Needle far out against one deviant in {task}, preset {preset}",
    )
    files = {"tradeoff.csv": table.getvalue(), "table.md": text}
    return text, save(folder, files, {"tradeoff": drawn})


def markdown(points: Sequence[Point], preset: str, task: str, command: str) -> str:
    """Returns the points as a table, best retrieval first, and the rank correlation of the two sides."""
    text = [
        f"Preset {preset}. {LABELS['needle'].capitalize()}; {LABELS['deviant']}, task {task}. 95 % intervals over "
        "training seeds; one seed has none.",
        "",
        *md.head(["rule", "needles found", "error after a deviant", "seeds"]),
    ]
    for point in sorted(points, key=lambda point: -point.needle.effect):
        cells = [_words(_span(point.needle)), _words(_span(point.deviant, math.exp))]
        text.append(md.row([f"`{point.rule}`", *cells, f"{point.needle.seeds}, {point.deviant.seeds}"]))
    if len(points) > 2:
        rho = correlation(points)
        text += [
            "",
            f"Spearman's correlation over {len(points)} rules between needles found and error after a deviant: "
            f"{rho:.2f} (1: who finds the needle suffers from the deviant; -1: who finds it also withstands).",
        ]
    return "\n".join([*text, "", f"Made by {md.code(command)}.", ""])


def correlation(points: Sequence[Point]) -> float:
    """Spearman's rank correlation of the two sides over the rules."""
    sides = [_ranks([point.needle.effect for point in points]), _ranks([point.deviant.effect for point in points])]
    x, y = ([rank - fmean(side) for rank in side] for side in sides)
    spread = math.sqrt(sum(a * a for a in x) * sum(b * b for b in y))
    return sum(a * b for a, b in zip(x, y, strict=True)) / spread if spread else math.nan


def _ranks(values: Sequence[float]) -> list[float]:
    """Ranks from 1; equal values share their mean rank."""
    return [sum(v < value for v in values) + (sum(v == value for v in values) + 1) / 2 for value in values]


def _mean(values: Sequence[float]) -> Effect:
    """The mean over seeds with Student's interval."""
    return paired([0.0] * len(values), list(values), "difference")


def _span(found: Effect, turn: Callable[[float], float] = float) -> tuple[float, float, float]:
    """Middle, low and high, in the units that are shown; NaN where there is no interval."""
    return turn(found.effect), turn(found.low), turn(found.high)


def _words(span: tuple[float, float, float]) -> str:
    middle, low, high = span
    return f"{middle:.3g}" if math.isnan(low) else f"{middle:.3g} [{low:.3g}, {high:.3g}]"


def _row(point: Point) -> dict[str, str | float]:
    sides = {"needle": _span(point.needle), "deviant": _span(point.deviant, math.exp)}
    cells = {
        f"{side}_{name}": value
        for side, span in sides.items()
        for name, value in zip(("mean", "low", "high"), span, strict=True)
    }
    return {
        "attn": point.rule,
        **cells,
        "needle_seeds": point.needle.seeds,
        "deviant_seeds": point.deviant.seeds,
    }
