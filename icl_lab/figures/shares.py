"""Shares of a whole, part by part: bars that may lie below 0 or far beyond it, each with its number."""

from collections.abc import Mapping, Sequence
from statistics import fmean

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from icl_lab.figures.axes import finish, legend, panelled, wrapped
from icl_lab.figures.base import INKS

ACROSS = 4  # panels in a row
LOOKS = ({"color": INKS[1]}, {"color": INKS[5], "hatch": "///", "edgecolor": "white"})  # of the first key, the second
LEFT, RIGHT = -1.0, 1.0  # what a panel shows; a bar that goes on says so by an arrow


def bars(
    panels: Mapping[str, Mapping[str, Mapping[str, Sequence[float]]]], parts: Sequence[str], *, title: str, label: str
) -> Figure:
    """Draw one panel per model, one bar per part: its mean over seeds as a number, each seed as a dot.

    ``panels`` holds, for each model and each of two keys of the legend, the values of the seeds by part; a part that a
    model does not have is empty. Bars are cut at -1, and an arrow before the number says so.
    """
    across = min(ACROSS, len(panels))
    tall = 0.36 * len(parts) + 0.9
    figure, places = panelled(len(panels), across, (2.6, tall), (3.2, 0.9), title, sharey=True)
    for axes, (model, keys) in zip(places, panels.items(), strict=True):
        axes.axvline(0, color="0.3", linewidth=0.8, zorder=3)
        for at, ((key, shares), look) in enumerate(zip(keys.items(), LOOKS, strict=False)):
            _bars(axes, [shares.get(part, ()) for part in parts], 0.4 * at - 0.2, {"label": key, **look})
        axes.set_title(wrapped(model, 2.5, 9), fontsize=9)
        axes.set(xlim=(1.02 * LEFT, 1.45 * RIGHT), xticks=(-1, -0.5, 0, 0.5, 1), ylim=(len(parts) - 0.5, -0.5))
        axes.set_yticks(range(len(parts)), parts, fontsize=8)
        axes.tick_params(axis="x", labelsize=7)
        finish(axes, "")
        axes.grid(visible=False, axis="y")
    figure.supxlabel(wrapped(label, 2.6 * across + 1.0, 8), fontsize=8)
    legend(figure, places[0], below=False)
    return figure


def _bars(axes: Axes, values: Sequence[Sequence[float]], offset: float, look: Mapping[str, object]) -> None:
    known = {place: seeds for place, seeds in enumerate(values) if len(seeds)}
    means = [fmean(seeds) for seeds in known.values()]
    axes.barh([place + offset for place in known], [max(mean, LEFT) for mean in means], 0.38, **look)  # type: ignore[arg-type]
    for (place, seeds), mean in zip(known.items(), means, strict=True):
        if len(seeds) > 1:
            shown = [seed for seed in seeds if LEFT <= seed <= RIGHT]
            axes.plot(shown, [place + offset] * len(shown), ".", color="0.15", markersize=2.5, zorder=4)
        words = f"{'← ' if mean < LEFT else ''}{mean:z.2f}".replace("-", "−")
        # On the right of 0, where no bar below 0 is in the way.
        axes.text(min(max(mean, *seeds, 0.0), RIGHT) + 0.04, place + offset, words, va="center", fontsize=6.5)
