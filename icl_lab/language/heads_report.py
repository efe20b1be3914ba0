"""Report on the heads of a language model: a table and a picture."""

from collections.abc import Mapping, Sequence

from matplotlib.figure import Figure

from icl_lab import markdown as md
from icl_lab.analyses.fading import slopes
from icl_lab.analyses.findings import known_median
from icl_lab.figures import heads as pictures
from icl_lab.figures.base import short
from icl_lab.grid import Grid
from icl_lab.language.heads import SATURATED

WORDS = {
    "largest": "largest weight",
    "entropy": "entropy / log n",
    "first": "weight on the first token",
    "temperature": "effective inverse temperature",
}


def table(heads: Grid, layers: Grid) -> list[str]:
    """Medians over heads by the number of keys, how fast the largest weight falls, and the size of hidden states."""
    rules, shown = heads.values("attn"), heads.values("keys")[::-2][::-1]
    columns = [f"n {n:g}" for n in shown]
    text = [
        "Attention of a token that sees n keys: medians over all heads of the model, of means over windows. Slope: of "
        "log(largest weight) on log n; 0: does not fade, −1: fades as fast as a mean does. Saturated: the share of "
        f"heads and windows whose largest weight is above {SATURATED}.",
    ]
    for metric, words in WORDS.items():
        rows = []
        for rule in rules:
            own = heads.where(attn=rule, metric=metric)
            cells = [short(known_median(own.where(keys=n).frame["value"])) for n in shown]
            if metric == "largest":
                cells.append(f"{known_median(slopes(own)):.2f}".replace("-", "−"))
            rows.append([f"`{rule}`", *cells])
        text += ["", *md.table([words, *columns, *(["slope"] if metric == "largest" else [])], rows)]
    rows = []
    for rule in rules:
        own = heads.where(attn=rule, metric="saturated")
        rows.append([f"`{rule}`", *(f"{own.where(keys=n).frame['value'].mean():.3f}" for n in shown)])
    text += ["", *md.table(["saturated", *columns], rows)]
    text += [
        "",
        "Hidden states: the Euclidean norm of the first token over that of the others, in the layer where it is "
        "greatest (counted from 0), and the norm of the others where the last layer reads them.",
        "",
    ]
    rows = []
    for rule in layers.values("attn"):
        states = layers.where(attn=rule).frame.pivot(index="layer", columns="metric", values="value")
        ratio = states["norm-first"] / states["norm"]
        rows.append([f"`{rule}`", short(ratio.max()), f"{ratio.idxmax():g}", short(states["norm"].iloc[-1])])
    return text + md.table(["normalizer", "first over others", "layer", "others at the last layer"], rows)


def figure(heads: Grid, title: str, near: int) -> Figure:
    """Every metric over n, heads as thin lines or a band; the length that counts as that of training is dotted."""
    panels: Mapping[str, Mapping[str, Sequence[list[tuple[float, float]]]]] = {
        words: {
            rule: heads.where(attn=rule, metric=metric).lines("keys", "layer", "head") for rule in heads.values("attn")
        }
        for metric, words in WORDS.items()
    }
    scales = {WORDS[metric]: "xy" for metric in ("largest", "temperature")}
    return pictures.curves(panels, title=title, across="keys that the token sees, n", scales=scales, mark=near, base=2)
