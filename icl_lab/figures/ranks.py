"""Things in order of size: heads by their score, trials by theirs."""

from collections.abc import Mapping, Sequence

from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, StrMethodFormatter

from icl_lab.figures.axes import WIDE, finish, laid_out, sheet, wrapped
from icl_lab.figures.styles import styles

ENDS = ("#d55e00", "#e69f00", "#0072b2")  # wrong, in part, right: distinct without red-green vision
MARKS = ("x", "^", "o")
SHOWN = 600  # trials of a normalizer at the most: more would hide one another


def needles(
    heads: Mapping[str, Sequence[float]],
    trials: Mapping[str, tuple[Sequence[float], Sequence[int]]],
    outcomes: Sequence[str],
    *,
    title: str,
) -> Figure:
    """Draw ranked scores of heads, one line per normalizer; below, one panel per normalizer of ranked trials and ends.

    Many trials are thinned at regular steps, the same share of each normalizer.
    """
    rows = -(-len(trials) // 3)
    figure = sheet(WIDE, 3.2 + 2.1 * rows, title)
    looks = styles([*heads, *trials])
    top, below = list(figure.subfigures(2, 1, height_ratios=(3.0, 2.1 * rows), squeeze=False).flat)
    axes = top.subplots()
    for rule, scores in heads.items():
        axes.plot(range(1, len(scores) + 1), scores, linewidth=1.2, markersize=3.5, label=rule, **looks[rule].dotted)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
    axes.set(xlabel="heads of all seeds, best first", ylabel="needle score", ylim=(-0.03, 1.03))
    finish(axes, "")
    axes.legend(frameon=False, fontsize=7, loc="center left", bbox_to_anchor=(1.0, 0.5))
    across = min(3, len(trials))
    panels = laid_out(below, len(trials), across, sharey=True)
    step = max(-(-len(scores) // SHOWN) for scores, _ in trials.values())
    for number, (axes, (rule, (scores, ends))) in enumerate(zip(panels, trials.items(), strict=True)):
        for end, (words, hue, mark) in enumerate(zip(outcomes, ENDS, MARKS, strict=True)):
            places = [place for place in range(0, len(ends), step) if ends[place] == end]
            axes.plot(places, [scores[place] for place in places], mark, color=hue, markersize=3, label=words)
        axes.set_title(wrapped(rule, 9 / across - 0.4, 8), fontsize=8, color=looks[rule].color)
        axes.xaxis.set_major_locator(MaxNLocator(5, integer=True))
        axes.xaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
        axes.set(ylim=(-0.05, 1.05))
        axes.tick_params(labelsize=7)
        if number >= len(trials) - across:
            axes.set_xlabel("trials, best first" + f" (one in {step} is shown)" * (step > 1), fontsize=8)
        if number % across == 0:
            axes.set_ylabel("best head's score", fontsize=8)
        finish(axes, "")
    handles, names = panels[0].get_legend_handles_labels()
    below.legend(handles, names, frameon=False, fontsize=7, loc="outside lower center", ncols=len(names))
    return figure
