"""Saturation as pictures: curves over the factor, every head's weight on the number, and what patches heal."""

from collections.abc import Mapping

import numpy as np
from matplotlib.figure import Figure

from icl_lab.analyses.frame import Curves, Findings
from icl_lab.analyses.saturation.attention import AGAINST, METRICS
from icl_lab.analyses.saturation.numbers import WEIGHTS, WHICH, error_metric, summarised
from icl_lab.analyses.saturation.patching import ALL, FROM_LAYER, KINDS
from icl_lab.figures import heads as lines
from icl_lab.figures.head_maps import head_maps

RECOVERED = "recovered by undisturbed attention"
LIMITS = (-2.0, 1.1)
ACROSS = "factor of the growing number"
SEEDS = 5  # whose heads are drawn one by one; those of all stand in heads.csv
ABREAST = 5  # maps of heads in a row: the normalizers of one seed, so that each has a column


def figures(found: Findings, title: str) -> Mapping[str, Figure]:
    """Figures of heads over the factor and of the error; every head by itself; recovery by patches of the stream."""
    made = {"saturation": _curves(found, title), "heads": _heads(found, title)}
    return made | ({"stream": _stream(found, title)} if "stream" in found.grids else {})


def _curves(found: Findings, title: str) -> Figure:
    factors = found["heads"].values("factor")
    panels: dict[str, dict[str, Curves]] = {
        words: found.curves_by_rule("heads", "factor", "seed", "layer", "head", metric=metric)
        for metric, words in METRICS.items()
    }
    weight = _weight(found)
    panels[f"{WEIGHTS[weight]}, {WHICH['last-best']}"] = {
        rule: [
            [(factor, summarised(found, rule, seed, factor, f"{weight}-last-best")) for factor in factors]
            for seed in found.seeds_of(rule)
        ]
        for rule in found.rules
    }
    metric = error_metric(found)
    panels[f"error ({metric})"] = found.curves_by_rule("errors", "factor", "seed", metric=metric)
    panels[RECOVERED] = found.curves_by_rule("patches", "factor", "seed", layer=ALL, head=ALL)
    return lines.curves(
        panels,
        title=title,
        across=ACROSS,
        scales={METRICS["effective"]: "xy", "error (mse)": "xy"},
        limits={RECOVERED: LIMITS},
    )


def _heads(found: Findings, title: str) -> Figure:
    """A map for each model of the first seeds: layer and head down, factors across, the weight on the number."""
    panels: dict[str, np.ndarray] = {}
    factors = found["heads"].values("factor")
    weight = _weight(found)
    grid = found["heads"].where(metric=weight)
    where = [tuple(map(int, pair)) for pair in grid.frame[["layer", "head"]].drop_duplicates().itertuples(index=False)]
    every = found.seeds_of(found.rules[0])
    seeds = every[:SEEDS]
    for seed in seeds:
        for rule in found.rules:
            if seed in found.seeds_of(rule):
                one = grid.where(attn=rule, seed=seed).lines("factor", "layer", "head")
                named = f"{rule}, seed {seed}" if len(seeds) > 1 else rule
                panels[named] = np.array([[value for _, value in line] for line in one])
    return head_maps(
        panels,
        sorted(where),  # type: ignore[arg-type]
        [f"{factor:g}" for factor in factors],
        title=title if seeds == every else f"{title} ({len(seeds)} of {len(every)} seeds)",
        label=WEIGHTS[weight],
        x=ACROSS,
        columns=min(len(found.rules), ABREAST),
    )


def _stream(found: Findings, title: str) -> Figure:
    """The share that each kind of patch heals: of all layers at once, or after the last one."""
    last = max(found["stream"].values("layer"))
    there = found["stream"].values("metric")
    panels = {
        f"healed by {KINDS[kind]}": {
            rule: found["stream"]
            .where(attn=rule, metric=f"{kind}-healed", layer=last if kind in FROM_LAYER else ALL)
            .lines("factor", "seed")
            for rule in found.rules
            if f"{kind}-healed" in found["stream"].where(attn=rule).values("metric")
        }
        for kind in KINDS
        if f"{kind}-healed" in there
    }
    limits = dict.fromkeys(panels, (-0.6, 1.1))
    return lines.curves(panels, title=title, across=ACROSS, scales={}, limits=limits)


def _weight(found: Findings) -> str:
    return AGAINST if AGAINST in found["heads"].values("metric") else "deviant"
