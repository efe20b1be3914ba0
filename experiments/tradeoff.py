"""Far retrieval, robustness and precision: does finding the needle cost anything when one number goes astray?

Scalable softmax sharpens with the length, which finds needles and should saturate on a deviant; signed averaging does
the opposite. The two lines of papers (arXiv 2501.19399, arXiv 2508.14685) predict opposite orders of the same
normalizers. The error without a deviant stands beside both: who withstands because nothing was learned withstands
little.

python experiments/tradeoff.py [--preset lite] [--task linear]    reads what is stored, writes results/own/tradeoff-..
"""

import csv
import io
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import combinations
from pathlib import Path
from statistics import fmean
from typing import NamedTuple

import click
import scipy
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from icl_lab import tasks
from icl_lab.analyses.needle import STRETCH
from icl_lab.base import markdown as md
from icl_lab.base.errors import BadValue, LabError
from icl_lab.base.files import present
from icl_lab.base.grid import Grid, model_name
from icl_lab.comparison.statistics import Effect, paired
from icl_lab.figures.axes import finish, log_ticks, sheet, wrapped
from icl_lab.figures.files import publish_folder as save
from icl_lab.figures.styles import Style, styles
from icl_lab.runs import environment, study_folder
from icl_lab.runs.evidence.archive import Archive, own_studies
from icl_lab.runs.spec import resolve
from icl_lab.runs.store import Store

Span = tuple[float, float, float]  # middle, low and high; the last two NaN without an interval


class Scale(NamedTuple):
    """Axis of a score: its label, and whether it spans decades; one that does not is a share, from 0 to 1."""

    label: str
    decades: bool


class Side(NamedTuple):
    """One of the numbers that are set against each other."""

    words: str  # of the table's head and the correlations
    label: str  # of the axis: what exactly is measured
    factors: tuple[float, float] = (math.nan, math.nan)  # of the deviant, first to last: the mean is over these

    @property
    def shown(self) -> Callable[[float], float]:
        """From the mean over seeds to the number that is shown: errors are averaged as logarithms."""
        return float if math.isnan(self.factors[0]) else math.exp


SIDES = {
    "needle": Side(
        "needles found", f"needle found at {STRETCH} times the training length (share of prompts, mean over depths)"
    ),
    "deviant": Side(
        "error after a deviant", "squared error after one deviant input, x10 to x100 (geometric mean)", (10.0, 100.0)
    ),
    "trained": Side("error without a deviant", "squared error on the same prompts without a deviant", (1.0, 1.0)),
}


@dataclass(frozen=True)
class Point:
    """A normalizer: the mean of each side over training seeds, against 0."""

    rule: str
    sides: Mapping[str, Effect]

    def span(self, side: str) -> tuple[float, float, float]:
        """Mean, low and high in the units that are shown; low and high are NaN with one seed."""
        found, shown = self.sides[side], SIDES[side].shown
        return shown(found.effect), shown(found.low), shown(found.high)


def gather(
    store: Store, preset: str, task: str = "linear", say: Callable[[str], object] = lambda reason: None
) -> list[Point]:
    """Return a point for each normalizer of which all sides are stored; trains nothing.

    ``say`` is told of runs that cannot be read.

    Raises ``BadValue`` with the commands that make what is missing, where no normalizer has both.
    """
    struck = deviants(store, preset, task)
    found = {
        name: retrieval(store, preset, say) if name == "needle" else robustness(struck, side.factors)
        for name, side in SIDES.items()
    }
    needle, met = found["needle"], [rule for rule in found["deviant"] if rule in found["trained"]]
    both = [rule for rule in needle if rule in met]
    if not both:
        raise BadValue(
            f"none has both: {len(needle)} have needle runs (icl-lab sweep --task needle --attn ...), {len(met)} "
            f"have met a deviant (icl-lab deviant --task {task} --attn ...), at preset {preset}."
        )
    return [Point(rule, {side: _mean(values[rule]) for side, values in found.items()}) for rule in both]


def retrieval(store: Store, preset: str, say: Callable[[str], object] = lambda reason: None) -> dict[str, list[float]]:
    """Normalizer -> the share of needles found far out, one number a seed, from the finished runs of the plain task."""
    found: dict[str, list[float]] = {}
    for run in store.runs(say):
        if not run.finished or run.spec.task != "needle" or run.spec.preset != preset:
            continue
        environment.require_parts(run.spec, run.folder)
        if run.spec != resolve("needle", run.spec.attn, preset):
            continue  # another recipe, or another position code
        grid, length = run.grid(), float(STRETCH * run.spec.train.longest)
        if length not in grid.values("length"):
            continue
        cells = grid.where(attn=model_name(grid), metric=tasks.build("needle").headline, length=length)
        found.setdefault(run.spec.attn, []).append(1 - fmean(cells.frame["value"]))
    return found


def deviants(store: Store, preset: str, task: str) -> list[Grid]:
    """The squared errors of the studies of deviants there are."""
    struck = []
    places = dict.fromkeys((store.root, own_studies(store.root)))
    for folder in sorted(folder for place in places for folder in place.glob("deviant-*/")):
        if (path := present(folder / "deviant.csv")) is None:
            continue
        study_folder.verify(folder, pictures=False)
        grid = Grid.read(path)
        if grid.values("task") != [task] or grid.values("preset") != [preset] or "mse" not in grid.values("metric"):
            continue
        struck.append(grid.where(metric="mse"))
    return struck


def robustness(struck: Sequence[Grid], factors: tuple[float, float]) -> dict[str, list[float]]:
    """Normalizer -> the mean logarithm of the error, one number a seed; of a seed in several studies the last counts.

    Of deviants at the first example whose factor is at least the first and at most the second of ``factors``; factor
    1 is no deviant.
    """
    errors: dict[tuple[str, int], float] = {}
    for grid in struck:
        frame = grid.frame
        frame = frame[frame["factor"].between(*factors) & (frame["position"] == 0)]
        for _, part in frame.groupby(["attn", "seed"], sort=False):
            rule, seed = str(part["attn"].iloc[0]), int(part["seed"].iloc[0])
            if not rule.startswith("reference:"):
                errors[rule, seed] = fmean(map(math.log, part["value"]))
    found: dict[str, list[float]] = {}
    for (rule, _), value in sorted(errors.items(), key=lambda item: item[0][1]):
        found.setdefault(rule, []).append(value)
    return found


def publish(
    points: Sequence[Point],
    folder: Path,
    preset: str,
    task: str,
    command: str,
    show: Callable[[str], object],
) -> tuple[str, list[str]]:
    """Write the points, a table and the figure; return the table as text and the names of the files.

    ``show`` is told the table before the figure is drawn.
    """
    rows = [_row(point) for point in _best_first(points)]
    table = io.StringIO()
    writer = csv.DictWriter(table, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    text = markdown(points, preset, task, command)
    show(text)
    drawn = pairs(
        {point.rule: {side: point.span(side) for side in SIDES} for point in points},
        {name: Scale(side.label, decades=name != "needle") for name, side in SIDES.items()},
        title=f"Needle far out, one deviant in {task}, and no deviant; preset {preset}",
    )
    files = {"tradeoff.csv": table.getvalue(), "table.md": text}
    return text, save(folder, files, {"tradeoff": drawn})


def markdown(points: Sequence[Point], preset: str, task: str, command: str) -> str:
    """Return the points as a table, best retrieval first, and the rank correlations of the sides."""
    text = [
        f"Preset {preset}, task {task} beside the needle. "
        f"{'; '.join(f'{side.words}: {side.label}' for side in SIDES.values())}. 95 % intervals over training seeds; "
        "one seed has none.",
        "",
        *md.head(["normalizer", *(side.words for side in SIDES.values()), "seeds"]),
    ]
    for point in _best_first(points):
        cells = [md.interval(*point.span(side)) for side in SIDES]
        text.append(md.row([f"`{point.rule}`", *cells, ", ".join(str(point.sides[side].seeds) for side in SIDES)]))
    if len(points) > 2:
        text += ["", f"Spearman's correlation over {len(points)} normalizers:", ""]
        text += [
            f"* {SIDES[one].words} and {SIDES[other].words}: {correlation(points, one, other):.2f}"
            for one, other in combinations(SIDES, 2)
        ]
        text += [
            "",
            "Above 0 between needles found and an error: who finds the needle errs more; below 0: errs less.",
        ]
    return "\n".join([*text, "", f"Made by {md.code(command)}.", ""])


def correlation(points: Sequence[Point], one: str, other: str) -> float:
    """Spearman's rank correlation of two sides over the normalizers; NaN where one of them does not vary."""
    sides = [[point.sides[side].effect for point in points] for side in (one, other)]
    if any(len(set(side)) == 1 for side in sides):
        return math.nan
    return float(scipy.stats.spearmanr(*sides).statistic)


def _best_first(points: Sequence[Point]) -> list[Point]:
    return sorted(points, key=lambda point: -point.sides["needle"].effect)


def _mean(values: Sequence[float]) -> Effect:
    """The mean over seeds with Student's interval."""
    return paired([0.0] * len(values), list(values), "difference")


def _row(point: Point) -> dict[str, str | float]:
    cells = {
        f"{side}_{name}": value
        for side in SIDES
        for name, value in zip(("mean", "low", "high"), point.span(side), strict=True)
    }
    return {"attn": point.rule, **cells, **{f"{side}_seeds": point.sides[side].seeds for side in SIDES}}


def pairs(points: Mapping[str, Mapping[str, Span]], scales: Mapping[str, Scale], *, title: str) -> Figure:
    """Draw each normalizer with its intervals, one panel per pair of scores; hollow where one seed has no interval.

    Panels form a triangle, with the names of the normalizers in the empty corner.
    """
    first, second, *more = scales
    rows, columns = [second, *more], [first, *reversed(more)]
    figure = sheet(4.6 * len(columns) + 0.6, 4 * len(rows) + 0.6, title)
    places = figure.subplots(len(rows), len(columns), squeeze=False, sharex="col", sharey="row")
    looks = styles(points)
    for row, down in enumerate(rows):
        for column, across in enumerate(columns):
            axes, lowest = places[row][column], len(columns) - 1 - column
            if row > lowest:
                axes.set_axis_off()
                continue
            for rule, spans in points.items():
                cross(axes, spans[across], spans[down], looks[rule])
            finish(axes, "")
            _scale(axes, "x", scales[across], 4.0 if row == lowest else 0)
            _scale(axes, "y", scales[down], 3.4 if column == 0 else 0)
            axes.tick_params(labelbottom=row == lowest)
    names = [
        Line2D([], [], linestyle="", color=looks[rule].color, marker=looks[rule].marker, label=rule)
        for rule in points
    ]  # fmt: skip
    places[-1][-1].legend(
        handles=names, loc="center", fontsize=9, frameon=False, title="hollow: one seed, no interval", title_fontsize=8
    )
    return figure


def cross(axes: Axes, across: Span, down: Span, look: Style) -> None:
    """Draw a point with its intervals across and down; hollow where it lacks one of them."""
    (x, left, right), (y, low, high) = across, down
    axes.plot([left, right], [y, y], color=look.color, linewidth=1, alpha=0.6)
    axes.plot([x, x], [low, high], color=look.color, linewidth=1, alpha=0.6)
    fill = "none" if math.isnan(left) or math.isnan(low) else "full"
    axes.plot(x, y, look.marker, color=look.color, markersize=6, fillstyle=fill)


def _scale(axes: Axes, side: str, scale: Scale, inches: float) -> None:
    """Set the scale of the axis x or y; its label, no longer than ``inches``, stands where there are any."""
    if scale.decades:
        axes.set(**{f"{side}scale": "log"})
        log_ticks(axes.xaxis if side == "x" else axes.yaxis)
    else:
        axes.set(**{f"{side}lim": (-0.03, 1.03)})
    if inches:
        axes.set(**{f"{side}label": wrapped(scale.label, inches, 8.5)})


@click.command()
@click.option("--preset", default="lite", show_default=True, help="The scale of the runs.")
@click.option("--task", default="linear", show_default=True, help="The task of the deviants.")
def main(preset: str, task: str) -> None:
    """Compare retrieval far out with robustness to a deviant, for all normalizers with both stored; trains nothing."""
    root = Path(__file__).resolve().parents[1] / "results"
    store = Store(root, Archive.find())
    try:
        points = gather(store, preset, tasks.canonical(task), partial(click.echo, err=True))
    except LabError as error:
        raise click.ClickException(str(error)) from None
    folder = own_studies(root) / f"tradeoff-{preset}"
    command = f"python experiments/tradeoff.py --preset {preset} --task {task}"
    for name in publish(points, folder, preset, task, command, click.echo)[1]:
        click.echo(f"wrote {folder / name}")


if __name__ == "__main__":
    main()
