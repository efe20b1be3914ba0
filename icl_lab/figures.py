"""Grids to pictures. The only door to matplotlib; nothing here computes, so a stored CSV can be redrawn anywhere."""

import io
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import matplotlib
import numpy as np
from matplotlib.colors import LogNorm, Normalize
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.ticker import LogLocator, StrMethodFormatter

from icl_lab.grid import Grid

# Perceptually even, and readable without red-green vision.
MAP = "viridis"
NAMES = {
    "sigma_x": "σ of inputs",
    "sigma_f": "σ of functions",
    "sigma": "σ of numbers",
    "length": "examples",
    "keys": "visible keys n",
    "gap": "gap between the largest score and the others",
    "z_max": "largest score (all others 0)",
    "x": "score x",
}

matplotlib.rcParams.update({"svg.hashsalt": "icl_lab", "svg.fonttype": "none", "font.size": 9, "axes.titlesize": 10})


def heat_map(
    grid: Grid,
    rows: str,
    columns: str,
    *,
    title: str,
    label: str,
    log: bool = False,
    limits: tuple[float, float] | None = None,
    home: Mapping[str, float] | None = None,
) -> Figure:
    """Draws one metric, ``rows`` down and ``columns`` across, with its numbers where they fit.

    ``limits`` shares one colour scale between pictures; ``home`` marks the cell of training.
    """
    table = grid.table(rows, columns)
    values = table.to_numpy(dtype=float)
    height, width = values.shape
    figure = Figure(
        figsize=(max(3.6, 0.52 * width + 2.2), max(2.6, 0.36 * height + 1.5)), layout="constrained", dpi=150
    )
    axes = figure.subplots()
    scale = _scale(values, log, limits)
    image = axes.imshow(values, cmap=MAP, norm=scale, aspect="auto", origin="lower")
    axes.set(xlabel=NAMES.get(columns, columns), ylabel=NAMES.get(rows, rows), title=title)
    axes.set_xticks(range(width), [f"{value:g}" for value in table.columns])
    axes.set_yticks(range(height), [f"{value:g}" for value in table.index])
    axes.tick_params(length=0)
    bar = figure.colorbar(image, ax=axes, label=label, pad=0.02)
    if isinstance(scale, LogNorm):
        bar.ax.yaxis.set_major_locator(LogLocator(numticks=6))
    if width <= 20:
        _write_numbers(axes, values, scale)
    if home is not None and home[columns] in table.columns and home[rows] in table.index:
        x, y = list(table.columns).index(home[columns]), list(table.index).index(home[rows])  # type: ignore[arg-type]
        axes.add_patch(Rectangle((x - 0.5, y - 0.5), 1, 1, fill=False, edgecolor="#d55e00", linewidth=2, zorder=3))
        axes.set_title(title + "\n(outlined: as in training)")
    return figure


def learning_curve(histories: Mapping[str, Sequence[Mapping[str, float]]], *, title: str, label: str) -> Figure:
    """Draws the training loss, on a logarithmic scale, and the length of the prompts below it."""
    figure = Figure(figsize=(6, 4), layout="constrained", dpi=150)
    loss, length = figure.subplots(2, sharex=True, height_ratios=(4, 1))
    for name, rows in histories.items():
        steps = [row["step"] for row in rows]
        loss.plot(steps, [row["loss"] for row in rows], linewidth=1, label=name)
        length.plot(steps, [row["length"] for row in rows], linewidth=1)
    loss.set(yscale="log", ylabel=label, title=title)
    loss.grid(alpha=0.3)
    if len(histories) > 1:
        loss.legend(frameon=False)
    length.set(xlabel="step", ylabel="examples")
    length.grid(alpha=0.3)
    return figure


# Wong's colours, without the yellow that white paper swallows; a second round is dashed.
INKS = ("#000000", "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")
DASHES = ("-", "--", ":")


def curves(
    grid: Grid,
    x: str,
    panels: Sequence[tuple[str, Mapping[str, object]]],
    *,
    series: str,
    title: str,
    label: str,
    log: str = "",
    names: Mapping[object, str] | None = None,
    mark: tuple[float, str] | None = None,
) -> Figure:
    """Draws one panel for each (title, labels of its cells), in it one line for each value of ``series``.

    ``log`` names the logarithmic axes (``x``, ``y`` or ``xy``); ``names`` rewords the series; ``mark`` is a line.
    """
    figure = Figure(figsize=(3.4 * max(len(panels), 1.4) + 1.9, 3.4), layout="constrained", dpi=150)
    every = figure.subplots(1, len(panels), sharey=True, squeeze=False)[0]
    for axes, (name, labels) in zip(every, panels, strict=True):
        table = (grid.where(**labels) if labels else grid).table(x, series)
        for (line, values), style in zip(table.items(), _styles(), strict=False):
            axes.plot(table.index, values, label=(names or {}).get(line, str(line)), linewidth=1.8, **style)
        if mark is not None:
            axes.axvline(mark[0], color="#777777", linewidth=0.8, linestyle="--")
            axes.text(mark[0] - 0.1, 0.94, mark[1], ha="right", transform=axes.get_xaxis_transform())
        axes.set(xlabel=NAMES.get(x, x), title=name)
        _finish(axes, log)
    every[0].set_ylabel(label)
    figure.legend(*every[0].get_legend_handles_labels(), loc="outside right center", frameon=False)
    figure.suptitle(title, fontsize=10)
    return figure


def families(
    panels: Sequence[tuple[Grid, str, str]],
    groups: Mapping[str, Sequence[str]],
    *,
    title: str,
    label: str,
    beside: str,
) -> Figure:
    """Draws each group of ``attn`` in a row of panels (grid, axis, logarithmic axes), its legend at the end of the row.

    ``beside`` is the rule that stands in every panel, in grey. What is in no group comes last, as ``others``; rules
    whose lines cannot be told apart share one entry.
    """
    known = {rule for group in groups.values() for rule in group}
    others = [rule for rule in panels[0][0].values("attn") if rule not in known]
    rows = {**groups, "others": others} if others else dict(groups)
    figure = Figure(figsize=(10.5, 1.95 * len(rows) + 0.8), layout="constrained", dpi=150)
    every = figure.subplots(len(rows), len(panels), sharex="col", sharey=True, squeeze=False)
    tables = [grid.table(axis, "attn") for grid, axis, _ in panels]
    for line, (name, rules) in zip(every, rows.items(), strict=True):
        here = [rule for rule in rules if all(rule in table for table in tables)]
        for column, (axes, table, (_, axis, log)) in enumerate(zip(line, tables, panels, strict=True)):
            axes.plot(table.index, table[beside], color="#bbbbbb", linewidth=5, solid_capstyle="round", zorder=1)
            for same, style in zip(_alike(here, tables), _styles(), strict=False):
                values = table[same[0]]
                axes.plot(table.index, values, label="\n   = ".join(same), linewidth=1.6, **style)
            _finish(axes, log)
            axes.tick_params(labelbottom=True)
            if axes in every[-1]:
                axes.set_xlabel(NAMES.get(axis, axis))
            if column == 0:
                axes.set_ylabel(label)
                axes.set_title(name, loc="left", fontsize=9, fontweight="bold")
        line[-1].legend(loc="upper left", bbox_to_anchor=(1.01, 1.08), frameon=False, fontsize=8, labelspacing=0.25)
    figure.suptitle(title, fontsize=10)
    return figure


def side_by_side(
    panels: Sequence[tuple[str, Grid, str, bool]], *, title: str, sort_by: tuple[tuple[int, float], ...] = ()
) -> Figure:
    """Draws heat maps (title, grid, axis, whether logarithmic) that share their rows, the ``attn``.

    Rows are sorted, largest first, by the cells that ``sort_by`` names as (number of the panel, place on its axis).
    """
    tables = [grid.table("attn", axis) for _, grid, axis, _ in panels]
    orders = [table.to_dict() for table in tables]
    rules = sorted(tables[0].index, key=lambda rule: tuple(-orders[panel][at][rule] for panel, at in sort_by))
    widths = [max(4, len(table.columns)) for table in tables]
    logs = [table.to_numpy(dtype=float).ravel() for table, (*_, log) in zip(tables, panels, strict=True) if log]
    # One colour means one ratio in all logarithmic panels.
    shared = _scale(np.concatenate(logs), True, None) if logs else None
    figure = Figure(figsize=(0.42 * sum(widths) + 3.2, 0.2 * len(rules) + 1.5), layout="constrained", dpi=150)
    every = figure.subplots(1, len(panels), sharey=True, squeeze=False, width_ratios=widths)[0]
    for axes, table, (name, _, axis, log) in zip(every, tables, panels, strict=True):
        values = table.loc[rules].to_numpy(dtype=float)
        scale = shared if log and shared is not None else Normalize(0.0, 1.0)
        axes.imshow(np.ma.masked_invalid(values), cmap=MAP, norm=scale, aspect="auto")
        axes.set(xlabel=NAMES.get(axis, axis), title=name)
        axes.set_xticks(range(len(table.columns)), [f"{value:g}" for value in table.columns], rotation=45)
        axes.set_yticks(range(len(rules)), rules)
        axes.tick_params(length=0)
        axes.spines[:].set_visible(False)
        _write_numbers(axes, values, scale, size=7)
    figure.suptitle(title, fontsize=10)
    return figure


def _styles() -> Iterator[dict[str, str]]:
    return ({"color": ink, "linestyle": dash} for dash in DASHES for ink in INKS)


def _alike(rules: Sequence[str], tables: Sequence[Any]) -> list[list[str]]:
    """Groups rules whose lines lie on each other in every panel, to the width of a line."""
    groups: list[list[str]] = []
    for rule in rules:
        for group in groups:
            if all(np.allclose(table[rule], table[group[0]], atol=0.015, equal_nan=True) for table in tables):
                group.append(rule)
                break
        else:
            groups.append([rule])
    return groups


def _finish(axes: matplotlib.axes.Axes, log: str) -> None:
    if "x" in log:
        axes.set_xscale("log", base=2)
        axes.xaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
    if "y" in log:
        axes.set_yscale("log")
    axes.grid(alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)


def functions(grids: Mapping[str, Grid], groups: Mapping[str, Sequence[str]]) -> Iterator[tuple[str, Figure]]:
    """Yields the pictures of what rules do to scores, with their names, from the grids of ``analyses/functions.py``."""
    yield (
        "fading",
        curves(
            grids["fading"],
            "keys",
            [("", {"metric": "share"})],
            series="attn",
            title="Attention fading: scores −2 everywhere, +3 last (SSMax paper, Figure 1)",
            label="largest weight",
            log="x",
        ),
    )
    focus = grids["focus"]
    yield (
        "focus",
        curves(
            focus,
            "z_max",
            [(rule, {"metric": "share", "attn": rule}) for rule in focus.values("attn")],
            series="keys",
            title="How large must a score be to be seen? (after the SSMax paper, Figure 3)",
            label="largest weight",
            names={n: f"n = {n:g}" for n in focus.values("keys")},
            mark=(1 / 0.43, "1/s, s = 0.43"),
        ),
    )
    yield (
        "ssa-base",
        curves(
            grids["ssa-base"],
            "x",
            [("", {})],
            series="attn",
            title="What stands in place of exp: (1 + b|x|)^(n sgn x), b = 1",
            label="f(x), logarithmic",
            log="y",
        ),
    )
    length, gap = grids["rules-length"], grids["rules-gap"]
    yield (
        "rules-by-family",
        families(
            [(length.where(metric="share"), "keys", "x"), (gap.where(metric="share"), "gap", "")],
            groups,
            title="Who fades (left: gap 5) and who concentrates (right: 80 keys). Grey: softmax",
            label="largest share",
            beside="softmax",
        ),
    )
    few = [2.0, 8.0, 32.0, 128.0, 512.0, 2048.0, 8192.0]
    yield (
        "rules",
        side_by_side(
            [
                ("largest share at a gap of 5", length.where(metric="share", keys=few), "keys", False),
                (
                    "largest share at 80 keys",
                    gap.where(metric="share", gap=[0.5, 1.0, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0, 16.0]),
                    "gap",
                    False,
                ),
                ("row mass, gap 5", length.where(metric="mass", keys=[8.0, 128.0, 1024.0]), "keys", True),
            ],
            title="Every rule at its start, sorted by the share at 512 keys (blank: not asked beyond 1,024)\n"
            "largest share: the largest |w| over the sum of |w|; row mass: that sum, 1 where the weights are shares",
            sort_by=((0, 512.0), (1, 2.0), (0, 128.0)),
        ),
    )


def costs(measured: Grid) -> Figure:
    """Draws time and memory of every rule as ratios to softmax, from the grid of ``analyses/costs.py``."""
    shown = {"forward": "time, forward", "both": "time, both ways", "both-memory": "memory, both ways"}
    longest = max(measured.values("tokens"))
    return side_by_side(
        [(title, measured.where(metric=metric), "tokens", True) for metric, title in shown.items()],
        title="Cost of one attention as a ratio to softmax in the same run, dearest first",
        sort_by=((1, longest), (2, longest)),
    )


def rivals(
    where: Sequence[float],
    rules: Mapping[str, Sequence[Sequence[float]]],
    references: Mapping[str, Sequence[float]],
    *,
    axis: str,
    title: str,
    label: str,
    log: bool,
) -> Figure:
    """Draws each rule's mean over its seeds along one axis, every seed as a dot, the references dashed and grey.

    ``rules`` holds, for each rule, the values of the seeds at every place of ``where``.
    """
    figure = Figure(figsize=(8, 4.8), layout="constrained", dpi=150)
    axes = figure.subplots()
    # Eight hues that people without red-green vision tell apart (Okabe & Ito), then again with other dashes.
    hues = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000", "#b8a600")
    for number, (rule, values) in enumerate(rules.items()):
        hue, dash = hues[number % len(hues)], ("-", "--", "-.", ":")[number // len(hues) % 4]
        axes.plot(where, [float(np.mean(seeds)) for seeds in values], dash, color=hue, linewidth=1.6, label=rule)
        for place, seeds in zip(where, values, strict=True):
            if len(seeds) > 1:
                axes.plot([place] * len(seeds), seeds, ".", color=hue, markersize=3)
    floor = min((v for values in rules.values() for seeds in values for v in seeds if v > 0), default=1e-3) / 3
    for name, line in references.items():
        # A reference far below every rule (least squares: rounding) would squeeze what there is to see.
        if not log or max(line) > floor:
            axes.plot(where, line, color="0.55", linewidth=1, linestyle=(0, (4, 2)))
            axes.annotate(name.removeprefix("reference:"), (where[-1], line[-1]), (4, 0), textcoords="offset points",
                          fontsize=7, color="0.4", va="center")  # fmt: skip
    if log:
        axes.set(yscale="log", ylim=(floor, None))
    room = 0.12 * (where[-1] - where[0])  # for the names of the references
    axes.set(xlabel=NAMES.get(axis, axis), ylabel=label, title=title, xlim=(where[0] - room / 4, where[-1] + room))
    axes.grid(alpha=0.3)
    axes.legend(frameon=False, fontsize=7, loc="center left", bbox_to_anchor=(1.0, 0.5))
    return figure


def encode(figure: Figure, kind: str) -> bytes:
    """Returns a figure as ``png``, ``svg`` or ``pdf``; the same figure gives the same bytes."""
    with io.BytesIO() as file:
        # No date inside, so that redrawing a stored grid does not look like a change.
        figure.savefig(file, format=kind, metadata={"Date": None} if kind == "svg" else {})
        return file.getvalue()


def _scale(values: np.ndarray, log: bool, limits: tuple[float, float] | None) -> Normalize:
    shown = values[np.isfinite(values) & ((values > 0) | (not log))]
    if limits is None:
        limits = (float(shown.min()), float(shown.max())) if shown.size else (0.0, 1.0)
    low, high = limits
    # A log scale with one value, or with less than half a decade, says less than a linear one.
    if log and low > 0 and high > 3 * low:
        return LogNorm(low, high)
    return Normalize(min(low, 0.0), high if high > low else low + 1.0)


def _write_numbers(axes: matplotlib.axes.Axes, values: np.ndarray, scale: Normalize, size: float | None = None) -> None:
    size = size or (7.5 if values.shape[1] <= 12 else 6)
    for (y, x), value in np.ndenumerate(values):
        if math.isfinite(value):
            # Dark ink on the bright end of the map, light ink on the dark end.
            ink = "black" if float(np.ma.filled(scale(value), 0.0)) > 0.6 else "white"
            axes.text(x, y, short(value), ha="center", va="center", fontsize=size, color=ink)


def short(value: float) -> str:
    """Two digits that fit a cell: 0.0083, 0.12, 3.4, 56, 1.2k."""
    size = abs(value)
    if value == 0 or 0.01 <= size < 0.995:
        return f"{value:.2g}"
    if size < 0.01:
        return f"{value:.1e}".replace("e-0", "e-").replace("e-", "e−")
    return f"{value:.1f}" if size < 9.95 else f"{value:.0f}" if size < 999.5 else f"{value / 1000:.1f}k"
