"""Figure of what decides far from training: a row a normalizer, as papers test it and with the cause put right.

python experiments/causes.py            reads the evidence, writes docs/pictures/causes*.png and beside them causes.csv
                                        and causes.svg, whose dots say their numbers under the pointer
python experiments/causes.py --check    only says whether these are of other numbers (exit status 1)

A dot is a mean over training seeds: geometric of squared errors, arithmetic of shares of wrong answers. A normalizer
that has not learned ``linear`` in training conditions is left out and named.
"""

import math
import re
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, geometric_mean

import click
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator
from matplotlib.transforms import ScaledTranslation
from scipy.stats import spearmanr

from icl_lab.base import markdown as md
from icl_lab.base.files import sha256
from icl_lab.base.grid import model_name
from icl_lab.base.tables import csv_text
from icl_lab.claims import experiment as experiments
from icl_lab.claims.sides import Sides, combinations
from icl_lab.figures import axes as layout
from icl_lab.figures import base
from icl_lab.runs import summary
from icl_lab.runs.evidence.archive import Archive
from icl_lab.runs.measure import draw as draw_prompts
from icl_lab.runs.store import Store

ROOT = Path(__file__).resolve().parents[1]
PICTURES = ROOT / "docs/pictures"
TABLE = PICTURES / "causes.csv"
LEAST = 1e-3  # a share below it stands at the left edge, marked 0: one wrong answer in a thousand
PAGE = ROOT / "docs/extrapolation.md"
DOTS = ("as papers test it", "cause right", "in training")
COLUMNS = ("task", "row", "dot", "value", "low", "high", "seeds")
SAID = "said: "  # begins the name of a mark in the SVG that says its numbers
ASKED = {"negative": (-math.inf, 0), "0 to 10": (0, 10), "10 to 20": (10, 20), "above 20": (20, math.inf)}


@dataclass(frozen=True)
class Panel:
    """A task, the cells that it is asked far from training, and how a variant with the cause put right is named.

    ``plain`` ends the name of a variant as papers test it, ``right`` that of the same normalizer with the cause right.
    """

    experiment: str
    preset: str
    title: str
    label: str
    plain: str
    right: str
    cells: dict[str, list[float]]
    trivial: str
    shares: bool = True


PANELS = {
    "linear": Panel(
        "causes-linear",
        "nano",
        "y = ax + b, functions 10 times as wide",
        "mean squared error",
        "labels as they are",
        ", labels rescaled",
        {"sigma_f": [10.0]},
        "zero",
        shares=False,
    ),
    "every": Panel(
        "causes-every",
        "nano",
        "are all numbers positive? numbers 30 times as large",
        "share of wrong answers",
        "the preset's learning rate",
        ", four times the rate",
        {"sigma": [30.0], "length": [40.0]},
        "always-false",
    ),
    "needle": Panel(
        "positions-by-normalizer",
        "nano",
        "needle among 4 to 16 times as many tokens",
        "share of missed needles",
        "rotary positions",
        ", ALiBi",
        {"length": [256.0, 512.0, 1024.0]},
        "chance",
    ),
}
Row = dict[str, str]


def table(store: Store) -> list[Row]:
    """Return a row for each dot and line of the figure, and the rank correlations of ``linear``."""
    return [row for task, panel in PANELS.items() for row in _rows(task, panel, store)]


def _rows(task: str, panel: Panel, store: Store) -> list[Row]:
    made = experiments.load(panel.experiment, ROOT / "experiments")
    sides = Sides(made, store, panel.preset)
    names = [each.name for each in made.variants]
    pairs = {name: name + panel.right for name in names if name + panel.right in names}
    rows, learned = list[Row](), list[str]()
    for name, right in pairs.items():
        seeds = sorted(sides.seeds(name) & sides.seeds(right))
        if not seeds:
            continue
        values = [sides.errors_in_training_conditions(name, seed) for seed in seeds]
        shares = [summary.normalized_error(each, sides.spec(name).attn, sides.task) for each in values]
        if not summary.has_learned([share for share in shares if share is not None]):
            rows.append(_row(task, name, "not learned", [], len(seeds)))
            continue
        learned.append(name)
        for dot, of in zip(DOTS, (name, right, name), strict=True):
            cells = {} if dot == "in training" else panel.cells
            rows.append(_row(task, name, dot, [_error(sides, of, seed, cells, panel) for seed in seeds], len(seeds)))
    if not learned:
        return rows
    trivial = _error(sides, learned[0], min(sides.seeds(learned[0])), panel.cells, panel, panel.trivial)
    rows.append(_row(task, "any normalizer", "trivial answer", [trivial], 1))
    return rows + (_correlations(task, learned, pairs, sides, panel) if not panel.shares else [])


def _error(sides: Sides, of: str, seed: int, cells: dict[str, list[float]], panel: Panel, reference: str = "") -> float:
    """Mean error of a variant, or of a reference on its prompts, over cells; geometric where errors span decades."""
    grid, _ = sides.measured(of, seed)
    home = sides.task.pinned(summary.training_cell(sides.task, sides.spec(of)))
    name = f"reference:{reference}" if reference else model_name(grid)
    labels = [{"attn": name, "metric": sides.task.headline, **cell} for cell in combinations(cells, home)]
    return _mean(grid.values_at(labels), panel)


def _mean(values: list[float], panel: Panel) -> float:
    return fmean(values) if panel.shares else geometric_mean(values)


def _correlations(task: str, learned: list[str], pairs: dict[str, str], sides: Sides, panel: Panel) -> list[Row]:
    """Spearman's rho over normalizers of errors far away with those in training conditions, one per seed of all."""
    seeds = sorted(set.intersection(*({*sides.seeds(name)} & {*sides.seeds(pairs[name])} for name in learned)))
    home = {seed: [_error(sides, name, seed, {}, panel) for name in learned] for seed in seeds}
    rows = []
    for dot, of in (("as papers test it", dict(zip(learned, learned, strict=True))), ("cause right", pairs)):
        away = {seed: [_error(sides, of[name], seed, panel.cells, panel) for name in learned] for seed in seeds}
        rho = [float(spearmanr(home[seed], away[seed]).statistic) for seed in seeds]
        rows.append(_row(task, "all", f"rank correlation with training, {dot}", rho, len(seeds), fmean(rho)))
    return rows


def _row(task: str, name: str, dot: str, values: list[float], seeds: int, mean: float | None = None) -> Row:
    if not values:
        return dict(zip(COLUMNS, (task, name, dot, "", "", "", str(seeds)), strict=True))
    mean = mean if mean is not None else _mean(values, PANELS[task])
    numbers = [f"{value:.6g}" for value in (mean, min(values), max(values))]
    return dict(zip(COLUMNS, (task, name, dot, *numbers, str(seeds)), strict=True))


def asked(store: Store) -> list[str]:
    """Return the lines of a table: wrong answers of ``every`` by the number that is asked last, where "no" is right.

    Means over training seeds of the share of prompts whose number lies in (low, high], in units of the sigma of
    training. The prompts are drawn anew, the errors are those that the evidence keeps of each.
    """
    panel = PANELS["every"]
    sides = Sides(experiments.load(panel.experiment, ROOT / "experiments"), store, panel.preset)
    variants = [each.name for each in sides.experiment.variants]
    cell = {axis: values[0] for axis, values in panel.cells.items()}
    lines = md.head(["normalizer", "learning rate", "yes is right", *(f"asked: {name}" for name in ASKED), "seeds"])
    for name in (each for each in variants if each + panel.right in variants):
        for of, rate in ((name, "the preset's"), (name + panel.right, panel.right[2:])):
            shares = [_wrong_by_asked(sides, of, seed, cell) for seed in sorted(sides.seeds(of))]
            if shares:
                means = [md.short(fmean(column)) for column in zip(*shares, strict=True)]
                lines.append(md.row([name, rate, *means, str(len(shares))]))
    return lines


def _wrong_by_asked(sides: Sides, of: str, seed: int, cell: dict[str, float]) -> list[float]:
    errors = sides.measured(of, seed)[1]
    if errors is None:
        raise click.ClickException(f"the errors of single prompts of {of}, seed {seed}, are not in the evidence.")
    prompt = draw_prompts(sides.task, int(cell["length"]), sides.spec(of).test, {"sigma": cell["sigma"]})
    numbers = prompt.tokens[:, : prompt.end : 2, 0]  # (b, length); labels stand between them
    wrong, yes, last = errors.at(cell) > 0, (numbers > 0).all(1), numbers[:, -1]
    groups = [yes, *(~yes & (low < last) & (last <= high) for low, high in ASKED.values())]
    return [wrong[group].double().mean().item() for group in groups]


def page(rows: list[Row]) -> list[str]:
    """Return the lines of the page's table: for each task the range over normalizers of each kind of dot."""
    head = ["task, far from training", "trivial answer", *DOTS, "normalizers", "seeds"]
    lines = md.head(head)
    for task, panel in PANELS.items():
        mine = [row for row in rows if row["task"] == task and row["value"]]
        dots = {dot: [row for row in mine if row["dot"] == dot] for dot in DOTS}
        if not dots["in training"]:
            continue
        ranges = [_range({row["row"]: float(row["value"]) for row in dots[dot]}) for dot in DOTS]
        trivial = next(row["value"] for row in mine if row["dot"] == "trivial answer")
        seeds = sorted({int(row["seeds"]) for row in dots["in training"]})
        far = f"`{task}`: {panel.title}; {panel.plain}, {panel.right[2:]}"
        counts = [str(len(dots["in training"])), " to ".join(map(str, dict.fromkeys((seeds[0], seeds[-1]))))]
        lines.append(md.row([far, f"{float(trivial):.3g}", *ranges, *counts]))
    return lines


def _range(values: dict[str, float]) -> str:
    """Least to greatest value over normalizers, softmax's in brackets."""
    ends = " to ".join(dict.fromkeys(md.short(end) for end in (min(values.values()), max(values.values()))))
    return f"{ends} (softmax {md.short(values['softmax'])})"


def draw(rows: list[Row], dark: bool = False, narrow: bool = False) -> Figure:
    """Draw three panels side by side, or one below another; filled dots as papers test, open ones with the cause right.

    Rows are ordered by the error in training conditions on ``linear``, the least on top.
    """
    ink, paper = ("#e6edf3", "#0d1117") if dark else ("#1f2328", "#ffffff")
    home = {row["row"]: float(row["value"]) for row in rows if (row["task"], row["dot"]) == ("linear", "in training")}
    order = sorted(home, key=home.__getitem__)
    others = [row["row"] for row in rows if row["dot"] == "cause right"]
    counts = {
        task: len({row["row"] for row in rows if row["task"] == task and row["dot"] == "in training"})
        for task in PANELS
    }
    tasks = [task for task in PANELS if counts[task]]
    if narrow:
        figure = layout.sheet(4.2, 1.25 * len(tasks) + 0.16 * sum(counts.values()))
        panels = figure.subplots(len(tasks), 1, squeeze=False, height_ratios=[counts[task] for task in tasks])
    else:
        figure = layout.sheet(10.5, 1.6 + 0.17 * max(counts.values()))
        panels = figure.subplots(1, len(tasks), squeeze=False, sharey=True)
        order += [name for name in dict.fromkeys(others) if name not in order]
    figure.set_facecolor(paper)
    for axes, task in zip(panels.flat, tasks, strict=True):
        mine = {row["row"] for row in rows if row["task"] == task and row["dot"] == "in training"}
        known = [name for name in dict.fromkeys([*order, *others]) if name in mine] if narrow else order
        _panel(axes, task, [row for row in rows if row["task"] == task], known, ink, paper)
    for item in figure.findobj(lambda item: hasattr(item, "set_color") and hasattr(item, "get_text")):
        item.set_color(ink)
    return figure


def _panel(axes: Axes, task: str, rows: list[Row], order: list[str], ink: str, paper: str) -> None:
    panel, blue = PANELS[task], "#4c9be8" if paper != "#ffffff" else "#0072b2"
    left = LEAST / 1.5 if panel.shares else 0.0
    at = {name: place for place, name in enumerate(order)}
    values = {(row["row"], row["dot"]): max(left, float(row["value"])) for row in rows if row["value"]}
    for name in order:
        ends = [values.get((name, dot)) for dot in ("cause right", "as papers test it")]
        if None not in ends:
            axes.plot(ends, [at[name]] * 2, color=blue, linewidth=0.8, alpha=0.5, zorder=1)
    for dot, face, label in (("as papers test it", ink, panel.plain), ("cause right", paper, panel.right[2:])):
        known = [name for name in order if (name, dot) in values]
        places = [values[name, dot] for name in known]
        axes.scatter(places, [at[name] for name in known], s=26, c=face, edgecolors=ink if face == ink else blue,
                     linewidths=1.3, label=label, zorder=3, clip_on=False)  # fmt: skip
    for row in rows:
        if row["row"] in at and row["dot"] in DOTS[:2] and row["value"]:
            spread = f" [{row['low']}, {row['high']}]" if row["seeds"] != "1" else ""
            said = (
                f"{row['row']}, {row['dot']}: {row['value']}{spread}, {row['seeds']} seed{'s' * (row['seeds'] != '1')}"
            )
            place = [values[row["row"], row["dot"]]], [at[row["row"]]]
            (mark,) = axes.plot(*place, "o", alpha=0, clip_on=False, gid=f"{SAID}{said}")
            mark.set_in_layout(False)
    home = [values[name, "in training"] for name in order if (name, "in training") in values]
    lines = {"error in training, softmax": (values.get(("softmax", "in training"), min(home)), ":")}
    lines["the trivial answer"] = (values["any normalizer", "trivial answer"], "--")
    for label, (value, dash) in lines.items():
        axes.axvline(value, color=ink, linestyle=dash, linewidth=1, alpha=0.7, label=label)
    axes.set_xscale("log")
    if panel.shares:
        axes.set_xlim(left, 1)
        axes.xaxis.set_major_locator(FixedLocator([left, 0.01, 0.1, 1]))
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: "0" if value <= left else f"{value:g}"))
        axes.xaxis.set_minor_locator(NullLocator())
    else:
        layout.log_ticks(axes.xaxis)
    axes.set_yticks(range(len(order)), order, fontsize=7)
    axes.set_ylim(len(order) - 0.4, -0.6)
    axes.tick_params(colors=ink, length=2, labelsize=7.5)
    axes.set_xlabel(panel.label, fontsize=8)
    axes.set_title(layout.wrapped(panel.title, 3.2, 9), fontsize=9)
    axes.set_facecolor(paper)
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color(ink)
    axes.grid(axis="both", alpha=0.15)
    below = axes.transAxes + ScaledTranslation(0, -0.42, axes.figure.dpi_scale_trans)  # inches: under the axis' label
    dense = {"columnspacing": 1.0, "handlelength": 1.4, "handletextpad": 0.5}  # so that it is no wider than a panel
    axes.legend(
        loc="upper center", bbox_to_anchor=(0.5, 0), bbox_transform=below, fontsize=7, frameon=False, ncols=2, **dense
    )


def hovered(figure: Figure) -> bytes:
    """Return the figure as SVG in which each dot has a title: browsers show it under the pointer."""
    text = base.encode(figure, "svg").decode()
    return re.sub(
        rf'<g id="{SAID}([^"]*)">', lambda mark: f'<g pointer-events="all"><title>{mark[1]}</title>', text
    ).encode()


@click.command()
@click.option("--check", is_flag=True, help="Write nothing.")
@click.option("--results", type=click.Path(path_type=Path), help="Read runs of this folder too; draw into it.")
def main(check: bool, results: Path | None) -> None:
    """Write the table and the pictures, or say whether they are of other numbers than the evidence holds."""
    with tempfile.TemporaryDirectory() as empty:
        store = Store(results or Path(empty), Archive(ROOT / "results/evidence"))
        rows, by_asked = table(store), asked(store)
    numbers = csv_text(COLUMNS, rows)
    origin = f"causes.csv: {sha256(numbers.encode())[:12]}"
    folder = results or PICTURES
    looks = {"causes": {}, "causes-dark": {"dark": True}, "causes-narrow": {"narrow": True}}
    names = [f"{name}.png" for name in looks if base.origin(folder / f"{name}.png") != origin]
    file = folder / TABLE.name
    names += [file.name] * (not file.exists() or file.read_text() != numbers)
    hover = folder / "causes.svg"
    names += [hover.name] * (not hover.exists() or origin not in hover.read_text())
    before = after = PAGE.read_text()
    for name, lines in {"causes": page(rows), "asked": by_asked}.items():
        block = "\n".join([f"<!-- {name} -->", *lines, f"<!-- end {name} -->"])
        pattern = f"<!-- {name} -->\n.*?<!-- end {name} -->"
        after = re.sub(pattern, lambda _, block=block: block, after, count=1, flags=re.DOTALL)
    names += [PAGE.name] * (before != after and results is None)
    click.echo(f"{', '.join(names) or 'nothing'} out of step")
    if check:
        sys.exit(bool(names))
    file.write_text(numbers)
    hover.write_bytes(hovered(draw(rows)) + f"<!-- {origin} -->\n".encode())
    if results is None:
        PAGE.write_text(after)
    for name, look in looks.items():
        (folder / f"{name}.png").write_bytes(base.encode(draw(rows, **look), "png", origin))


if __name__ == "__main__":
    main()
