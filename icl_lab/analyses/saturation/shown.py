"""Saturation as tables, one sentence and pictures."""

import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import product
from statistics import fmean, median

import numpy as np
from matplotlib.figure import Figure

from icl_lab.analyses.findings import Findings, known
from icl_lab.analyses.saturation.measure import ALL, FROM_LAYER, KINDS, METRICS, NORMS
from icl_lab.analyses.saturation.numbers import WEIGHTS, WHICH, error_metric, heads_named, saturating, weights, whole
from icl_lab.base import markdown as md
from icl_lab.comparison.statistics import paired
from icl_lab.figures.base import short
from icl_lab.figures.head_maps import head_maps
from icl_lab.figures.heads import curves

RECOVERED = "recovered by undisturbed attention"
ACROSS = "factor of the growing number"
SEEDS = 5  # whose heads are drawn one by one; heads.csv holds all
ABREAST = 5  # maps of heads in a row: the normalizers of one seed, so that each has a column


def table(found: Findings) -> list[str]:
    """Tables: errors, what heads do, which look most at the number, what patches recover, how many heads saturate."""
    factors, rules, text = found["heads"].values("factor"), found.rules, list[str]()
    shown, named, top = error_metric(found), weights(found), max(factors)

    def block(*head: str, rows: Iterable[Sequence[str]]) -> None:
        """A table with a column for each factor."""
        text.extend(["", *md.table([*head, *(f"x{factor:g}" for factor in factors)], rows)])

    for metric in sorted(found["errors"].values("metric"), key=lambda metric: metric != shown):
        head = f"error ({metric})" if metric == shown else f"answers: {metric}"
        block(head, rows=found.rows("errors", "factor", _mean, metric=metric))
    for metric, words in METRICS.items():
        block(f"{words}, median over heads", rows=found.rows("heads", "factor", _median, metric=metric))
    for weight in named:
        cells = [
            [f"`{rule}`", words, *(_mean(_weight(found, rule, x, weight, which)) for x in factors)]
            for rule, (which, words) in product(rules, WHICH.items())
        ]
        block(WEIGHTS[weight], "heads", rows=cells)
    best = [
        [f"`{rule}`", str(seed), *(_best(found, rule, seed, top, named[-1], which) for which in BEST)]
        for rule in rules
        for seed in found.seeds_of(rule)
    ]
    head = f"{WEIGHTS[named[-1]]}, x{top:g}: best head of the last layer"
    text += ["", *md.table(["normalizer", "seed", head, "of all"], best)]
    shares = [
        [f"`{rule}`", *("" if x == 1 else _interval(whole(found, rule, x, "recovered")) for x in factors)]
        for rule in rules
    ]
    block("share of the added error that patching all heads recovers", rows=shares)
    for titles, named_kinds, ending, write in STREAM if "stream" in found.grids else ():
        there, patched = found["stream"].by("attn", "metric"), found["stream"].values("factor")
        cells = [
            [f"`{rule}`", kind, *(write(whole(found, rule, x, metric)) if x in patched else "" for x in factors)]
            for rule, (name, kind) in product(rules, named_kinds.items())
            if (rule, metric := f"{name}-{ending}") in there
        ]
        block(*titles, rows=cells)
    counted = [(rule, *saturating(found, rule)) for rule in rules]
    head = "heads that saturate (largest weight from below 0.5 to above 0.9)"
    cells = [
        [f"`{rule}`", f"{len(points)} of {count}", f"x{min(points):g}" if points else "none in range"]
        for rule, points, count in counted
    ]
    text += ["", *md.table(["normalizer", head, "first at"], cells)]
    return [
        *text[1:],
        "",
        "The weight by the formula is that of one key whose score is as far above n - 1 equal scores as the "
        "deviant's is above the mean of the others; none where a normalizer weighs keys by the tokens themselves.",
    ]


def finding(found: Findings) -> str:
    """Sentence on saturated heads and on the share of the error that patching recovers at the greatest factor."""

    def shares(metric: str) -> str:
        each = {rule: known(whole(found, rule, most, metric)) for rule in found.rules}
        return md.listed(
            f"{fmean(values):.2f} with {rule}" if values else f"unknown with {rule} (no error was added)"
            for rule, values in each.items()
        )

    most, counted = max(found["patches"].values("factor")), {rule: saturating(found, rule) for rule in found.rules}
    heads = md.listed(f"{len(points)} of {count} heads with {rule}" for rule, (points, count) in counted.items())
    text = (
        f"Up to a factor of {max(found['heads'].values('factor')):g}, {heads} saturate. At a factor of {most:g}, the "
        f"share of the added error that patching in the undisturbed attention recovers is {shares('recovered')}"
    )
    if "stream" not in found.grids:
        return f"{text}."
    healed = shares("outputs-healed")
    return f"{text}; by putting back all that layers add to the residual stream at the query it is {healed}."


def figures(found: Findings, title: str) -> Mapping[str, Figure]:
    """Curves of heads and errors over the factor; every head by itself; recovery by patches of the stream."""
    made = {"saturation": _curves(found, title), "heads": _heads(found, title)}
    if "stream" in found.grids:
        stream, last = found["stream"], max(found["stream"].values("layer"))
        panels = {
            f"healed by {words}": {
                rule: cells.where(attn=rule, layer=last if kind in FROM_LAYER else ALL).lines("factor", "seed")
                for rule in found.rules
                if rule in cells.values("attn")
            }
            for kind, words in KINDS.items()
            if f"{kind}-healed" in stream.values("metric") and (cells := stream.where(metric=f"{kind}-healed"))
        }
        limits = dict.fromkeys(panels, (-0.6, 1.1))
        made["stream"] = curves(panels, title=title, across=ACROSS, scales={}, limits=limits)
    return made


def _curves(found: Findings, title: str) -> Figure:
    weight, metric, factors = weights(found)[-1], error_metric(found), found["heads"].values("factor")
    by_rule, best = found.curves_by_rule, {}
    for rule in found.rules:
        over = np.transpose([_weight(found, rule, x, weight, "last-best") for x in factors])
        best[rule] = [list(zip(factors, line, strict=True)) for line in over]
    panels = {
        **{words: by_rule("heads", "factor", "seed", "layer", "head", metric=name) for name, words in METRICS.items()},
        f"{WEIGHTS[weight]}, {WHICH['last-best']}": best,
        f"error ({metric})": by_rule("errors", "factor", "seed", metric=metric),
        RECOVERED: by_rule("patches", "factor", "seed", layer=ALL, head=ALL),
    }
    scales = {METRICS["effective"]: "xy", "error (mse)": "xy"}
    return curves(panels, title=title, across=ACROSS, scales=scales, limits={RECOVERED: (-2.0, 1.1)})


def _heads(found: Findings, title: str) -> Figure:
    """A map for each model of the first seeds: layer and head down, factors across, the weight on the number."""
    weight, every = weights(found)[-1], found.seeds_of(found.rules[0])
    grid, seeds = found["heads"].where(metric=weight), every[:SEEDS]
    panels = {
        f"{rule}, seed {seed}" if len(seeds) > 1 else rule: np.array(
            [[value for _, value in line] for line in grid.where(attn=rule, seed=seed).lines("factor", "layer", "head")]
        )
        for seed in seeds
        for rule in found.rules
        if seed in found.seeds_of(rule)
    }
    return head_maps(
        panels,
        sorted({(int(layer), int(head)) for layer, head in grid.by("layer", "head")}),  # type: ignore[call-overload]
        [f"{factor:g}" for factor in found["heads"].values("factor")],
        title=title if seeds == every else f"{title} ({len(seeds)} of {len(every)} seeds)",
        label=WEIGHTS[weight],
        x=ACROSS,
        columns=min(len(found.rules), ABREAST),
    )


def _weight(found: Findings, rule: str, factor: float, weight: str, which: str) -> list[float]:
    """The weight on the number in the heads of a name in ``WHICH``, one number for each seed."""
    heads = heads_named(found["heads"].where(attn=rule, factor=factor, metric=weight), which)
    return [fmean(values) for _, values in sorted(heads.by("seed").items())]


def _best(found: Findings, rule: str, seed: int, factor: float, weight: str, which: str) -> str:
    own = found["heads"].where(attn=rule, seed=seed, factor=factor, metric=weight)
    best = heads_named(own, which).frame.iloc[0]
    return f"{best['layer']:g}.{best['head']:g}: {short(best['value'])}"


def _mean(values: Sequence[float]) -> str:
    return short(fmean(values))


def _median(values: Sequence[float]) -> str:
    return "none" if math.isnan(value := median(values)) else short(value)


def _interval(shares: Sequence[float]) -> str:
    if not (values := known(shares)):
        return "nothing to recover"
    mean = paired([0.0] * len(values), values, "difference")
    return md.interval(mean.effect, mean.low, mean.high, ".2f")


BEST = ("last-best", "best")
STREAM = (
    (("share of the last answer's added error that goes away", "put back at the query"), KINDS, "healed", _interval),
    (("norm at the query, stretched", "of"), NORMS, "norm", _mean),
)
