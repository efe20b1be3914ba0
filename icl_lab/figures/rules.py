"""Figures of normalizers: weights of given scores, and costs."""

from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib
import numpy as np
from matplotlib.colors import Normalize
from matplotlib.figure import Figure

from icl_lab.base.grid import Grid
from icl_lab.figures.axes import finish, laid_out, sheet, wrapped
from icl_lab.figures.base import MAP, NAMES, color_scale, write_numbers
from icl_lab.figures.styles import styles


def functions(grids: Mapping[str, Grid], groups: Mapping[str, Sequence[str]]) -> dict[str, Figure]:
    """Draw what normalizers do to scores, by name, from the grids of ``analyses/profiles/functions.py``."""
    focus, length, gap = grids["focus"], grids["rules-length"], grids["rules-gap"]
    few = [2.0, 8.0, 32.0, 128.0, 512.0, 2048.0, 8192.0]
    gaps = [0.5, 1.0, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0, 16.0]
    return {
        "fading": curves(
            grids["fading"],
            "keys",
            [("", {"metric": "share"})],
            series="attn",
            title="Attention fading: scores −2 everywhere, +3 last (SSMax paper, Figure 1)",
            label="largest weight",
            log="x",
        ),
        "focus": curves(
            focus,
            "z_max",
            [(rule, {"metric": "share", "attn": rule}) for rule in focus.values("attn")],
            series="keys",
            title="How large must a score be to be seen? (after the SSMax paper, Figure 3)",
            label="largest weight",
            names={n: f"n = {n:g}" for n in focus.values("keys")},
            mark=(1 / 0.43, "1/s, s = 0.43"),
        ),
        "ssa-base": curves(
            grids["ssa-base"],
            "x",
            [("", {})],
            series="attn",
            title="What stands in place of exp: (1 + b|x|)^(n sgn x), b = 1",
            label="f(x), logarithmic",
            log="y",
        ),
        "rules-by-family": families(
            [(length.where(metric="share"), "keys", "x"), (gap.where(metric="share"), "gap", "")], groups
        ),
        "rules": side_by_side(
            [
                ("largest share at a gap of 5", length.where(metric="share", keys=few), "keys", False),
                ("largest share at 80 keys", gap.where(metric="share", gap=gaps), "gap", False),
                ("row mass, gap 5", length.where(metric="mass", keys=[8.0, 128.0, 1024.0]), "keys", True),
            ],
            title="Every normalizer at its start, sorted by the share at 512 keys (blank: not asked beyond 1,024)\n"
            "largest share: the largest |w| over the sum of |w|; row mass: that sum, 1 where the weights are shares",
            sort_by=((0, 512.0), (1, 2.0), (0, 128.0)),
        ),
    }


def costs(measured: Grid) -> Figure:
    """Draw time and memory of every normalizer as ratios to softmax (``analyses/profiles/costs.py``)."""
    shown = {"forward": "time, forward", "both": "time, both ways", "both-memory": "memory, both ways"}
    longest = max(measured.values("tokens"))
    return side_by_side(
        [(title, measured.where(metric=metric), "tokens", True) for metric, title in shown.items()],
        title="Cost of one attention as a ratio to softmax in the same run, dearest first",
        sort_by=((1, longest), (2, longest)),
    )


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
    """Draw one panel for each (title, labels of its cells), in it one line for each value of ``series``.

    ``log`` names the logarithmic axes (``x``, ``y`` or ``xy``); ``names`` rewords the series; ``mark`` is a line.
    """
    figure = sheet(3.4 * max(len(panels), 1.4) + 1.9, 3.4, title)
    every = laid_out(figure, len(panels), len(panels), sharey=True)
    for axes, (name, labels) in zip(every, panels, strict=True):
        table = (grid.where(**labels) if labels else grid).table(x, series)
        looks = styles(map(str, table)) if series == "attn" else {}
        shades = matplotlib.colormaps[MAP](np.linspace(0, 0.9, len(table.columns)))  # numbers in order: light is large
        for number, (line, values) in enumerate(table.items()):
            look = looks[str(line)].line if looks else {"color": shades[number]}
            axes.plot(table.index, values, label=(names or {}).get(line, str(line)), linewidth=1.8, **look)
        if mark is not None:
            axes.axvline(mark[0], color="#777777", linewidth=0.8, linestyle="--")
            axes.text(mark[0] - 0.1, 0.94, mark[1], ha="right", transform=axes.get_xaxis_transform())
        axes.set_xlabel(NAMES.get(x, x))
        axes.set_title(wrapped(name, 3.4))
        finish(axes, log)
    every[0].set_ylabel(label)
    figure.legend(*every[0].get_legend_handles_labels(), loc="outside right center", frameon=False)
    return figure


def families(panels: Sequence[tuple[Grid, str, str]], groups: Mapping[str, Sequence[str]]) -> Figure:
    """Draw each group of ``attn`` in a row of panels (grid, axis, logarithmic axes), its legend at the end of the row.

    Softmax is in every panel, in grey. Normalizers in no group come last, as ``others``; those with indistinguishable
    lines share one entry.
    """
    known = {rule for group in groups.values() for rule in group}
    others = [rule for rule in panels[0][0].values("attn") if rule not in known]
    rows = {**groups, "others": others} if others else dict(groups)
    title = "Who fades (left: gap 5) and who concentrates (right: 80 keys). Grey: softmax"
    figure = sheet(10.5, 1.95 * len(rows) + 0.8, title)
    every = figure.subplots(len(rows), len(panels), sharex="col", sharey=True, squeeze=False)
    tables = [grid.table(axis, "attn") for grid, axis, _ in panels]
    looks = styles(panels[0][0].values("attn"))
    for line, (name, rules) in zip(every, rows.items(), strict=True):
        here = [rule for rule in rules if all(rule in table for table in tables)]
        for column, (axes, table, (_, axis, log)) in enumerate(zip(line, tables, panels, strict=True)):
            axes.plot(table.index, table["softmax"], color="#bbbbbb", linewidth=5, solid_capstyle="round", zorder=1)
            for same in _alike(here, tables):
                values = table[same[0]]
                axes.plot(table.index, values, label="\n   = ".join(same), linewidth=1.6, **looks[same[0]].line)
            finish(axes, log)
            axes.tick_params(labelbottom=True)
            if axes in every[-1]:
                axes.set_xlabel(NAMES.get(axis, axis))
            if column == 0:
                axes.set_ylabel("largest share")
                axes.set_title(name, loc="left", fontsize=9, fontweight="bold")
        line[-1].legend(loc="upper left", bbox_to_anchor=(1.01, 1.08), frameon=False, fontsize=8, labelspacing=0.25)
    return figure


def side_by_side(
    panels: Sequence[tuple[str, Grid, str, bool]], *, title: str, sort_by: tuple[tuple[int, float], ...] = ()
) -> Figure:
    """Draw heat maps (title, grid, axis, whether logarithmic) that share their rows, the ``attn``.

    Rows are sorted, largest first, by the cells that ``sort_by`` names as (number of the panel, place on its axis).
    """
    tables = [grid.table("attn", axis) for _, grid, axis, _ in panels]
    orders = [table.to_dict() for table in tables]
    rules = sorted(tables[0].index, key=lambda rule: tuple(-orders[panel][at][rule] for panel, at in sort_by))
    widths = [max(4, len(table.columns)) for table in tables]
    logs = [table.to_numpy(dtype=float).ravel() for table, (*_, log) in zip(tables, panels, strict=True) if log]
    # One colour means one ratio in all logarithmic panels.
    shared = color_scale(np.concatenate(logs), True) if logs else None
    figure = sheet(0.42 * sum(widths) + 3.2, 0.2 * len(rules) + 1.5, title)
    every = laid_out(figure, len(panels), len(panels), sharey=True, width_ratios=widths)
    for axes, table, (name, _, axis, log) in zip(every, tables, panels, strict=True):
        values = table.loc[rules].to_numpy(dtype=float)
        scale = shared if log and shared is not None else Normalize(0.0, 1.0)
        axes.imshow(np.ma.masked_invalid(values), cmap=MAP, norm=scale, aspect="auto")
        axes.set(xlabel=NAMES.get(axis, axis), title=name)
        axes.set_xticks(range(len(table.columns)), [f"{value:g}" for value in table.columns], rotation=45)
        axes.set_yticks(range(len(rules)), rules)
        axes.tick_params(length=0)
        axes.spines[:].set_visible(False)
        write_numbers(axes, values, scale, size=7)
    return figure


def _alike(rules: Sequence[str], tables: Sequence[Any]) -> list[list[str]]:
    """Group normalizers whose lines lie on each other in every panel, to the width of a line."""
    groups: list[list[str]] = []
    for rule in rules:
        for group in groups:
            if all(np.allclose(table[rule], table[group[0]], atol=0.015, equal_nan=True) for table in tables):
                group.append(rule)
                break
        else:
            groups.append([rule])
    return groups
