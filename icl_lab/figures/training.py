"""Training as it went: the loss, the length of the prompts, and what the normalizers learned."""

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from icl_lab.base.learned import places
from icl_lab.figures.axes import NARROW, WIDE, finish, laid_out, legend, log_ticks, panelled, sheet, ticks, wrapped
from icl_lab.figures.base import INKS
from icl_lab.figures.styles import Style, styles

History = Sequence[Mapping[str, float]]
# A training loss next to a test error looks wrong until one knows what it is a mean of.
NOTE = (
    "The training loss is not the tested error: it is the mean over every answer of a prompt, at the lengths of "
    "training. Where nothing in the prompt tells the first answers yet, as in linear, it has a floor above 0."
)
CURVE = 6.0  # inches across
SMOOTH = 15  # rows of a history that a smoothed value is the geometric mean of, fewer near the ends
CROWD = 8  # more normalizers than this get a panel each


def learning_curve(rule: str, history: History, *, title: str, label: str) -> Figure:
    """Draw the training loss of a normalizer, on a logarithmic scale, and the length of the prompts below it."""
    figure = sheet(CURVE, 4.3, title)
    loss, length = figure.subplots(2, sharex=True, height_ratios=(4, 1))
    look, steps = styles([rule])[rule], [row["step"] for row in history]
    loss.plot(steps, [row["loss"] for row in history], linewidth=1, label=rule, **look.line)
    length.plot(steps, [row["length"] for row in history], linewidth=1, **look.line)
    loss.set(yscale="log", ylabel=label)
    log_ticks(loss.yaxis)
    loss.grid(alpha=0.3)
    length.set(ylabel="examples")
    ticks(length.yaxis, length.dataLim.intervaly)
    length.grid(alpha=0.3)
    length.set_xlabel(f"step\n{wrapped(NOTE, CURVE - 1.2, 7)}", fontsize=7)
    return figure


def learned(history: History, *, title: str) -> Figure | None:
    """Draw learned numbers of normalizers against the step, one panel per name, a colour per layer; None if none."""
    found = dict(places(key for row in history for key in row))
    kinds = list(dict.fromkeys(place.name for place in found.values()))
    if not kinds:
        return None
    figure = sheet(3.4 * len(kinds) + 0.8, 3.0, title)
    for axes, kind in zip(laid_out(figure, len(kinds), len(kinds)), kinds, strict=True):
        for key, (name, layer, head) in found.items():
            if name != kind:
                continue
            known = [(row["step"], row[key]) for row in history if key in row]
            label = f"layer {layer}" if head == 0 else None
            axes.plot(*zip(*known, strict=True), color=INKS[layer % len(INKS)], linewidth=1, label=label)
        axes.set(xlabel="step", ylabel=kind)
        axes.grid(alpha=0.3)
    figure.axes[-1].legend(frameon=False, fontsize=7)
    return figure


def losses(
    rules: Mapping[str, Sequence[History]], *, title: str, label: str, baseline: str, width: float = WIDE
) -> Figure:
    """Draw the training losses of every normalizer: each seed thin, their smoothed geometric mean thick.

    More than ``CROWD`` normalizers get a panel each, the ``baseline`` behind in black.
    """
    looks = styles(rules)
    if len(rules) <= CROWD:
        figure = sheet(width, 3.6 if width > NARROW else 4.2, title)
        axes = figure.subplots()
        for rule, seeds in rules.items():
            _losses(axes, seeds, looks[rule], rule)
        panels = {"": axes}
        axes.set_xlabel("step", fontsize=8)
        legend(figure, axes, below=width <= NARROW, size=7)
    else:
        across = max(2, int(width // 1.9))
        figure, found = panelled(len(rules), across, (0, 1.35), (width, 0.8), title, sharex=True, sharey=True)
        panels = dict(zip(rules, found, strict=True))
        for rule, axes in panels.items():
            if rule != baseline:
                _losses(axes, rules[baseline], looks[baseline], baseline, faint=True)
            _losses(axes, rules[rule], looks[rule], rule)
            axes.set_title(wrapped(rule, width / across, 7), fontsize=7)
        figure.supxlabel("step", fontsize=8)
    for axes in panels.values():
        axes.tick_params(labelsize=7)
        finish(axes, "y")
    figure.supylabel(label, fontsize=8)
    return figure


def _losses(axes: Axes, seeds: Sequence[History], look: Style, name: str, faint: bool = False) -> None:
    for history in seeds if not faint else ():
        points = [(row["step"], row["loss"]) for row in history]
        axes.plot(*zip(*points, strict=True), color=look.color, linewidth=0.4, alpha=0.3)
    steps = [row["step"] for row in seeds[0]]
    rows = np.array([[row["loss"] for row in history][: len(steps)] for history in seeds if len(history) >= len(steps)])
    smooth = np.exp(_smooth(np.log(rows).mean(axis=0)))
    axes.plot(steps, smooth, label=name, linewidth=0.8 if faint else 1.6, alpha=0.6 if faint else 1, **look.line)


def spans(rules: Mapping[str, Sequence[History]], *, title: str, label: str) -> Figure:
    """Draw the training losses of every normalizer: the geometric mean over seeds, and their range as a band.

    Means and bands are smoothed over ``SMOOTH`` rows, fewer near the ends.
    """
    figure = sheet(WIDE, 3.8, title)
    axes = figure.subplots()
    for rule, look in styles(rules).items():
        steps, rows = _together(rules[rule])
        low, middle, high = (np.exp(_smooth(pick(rows, 0))) for pick in (np.min, np.mean, np.max))
        axes.plot(steps, middle, linewidth=1.6, label=rule, **look.line)
        axes.fill_between(steps, low, high, color=look.color, alpha=0.15, linewidth=0)
    axes.set_ylabel(label)
    axes.set_xlabel("step", fontsize=8)
    finish(axes, "y")
    legend(figure, axes, below=False, size=7)
    return figure


def _together(seeds: Sequence[History]) -> tuple[list[float], np.ndarray]:
    kept = [{row["step"]: row["loss"] for row in history} for history in seeds]
    steps = [step for step in kept[0] if all(step in other for other in kept)]
    return steps, np.log([[losses[step] for step in steps] for losses in kept])


def _smooth(values: np.ndarray) -> np.ndarray:
    """Running means; windows shrink towards the ends, so that neither end is drawn to the middle."""
    halves = [min(SMOOTH // 2, at, len(values) - 1 - at) for at in range(len(values))]
    return np.array([values[at - half : at + half + 1].mean() for at, half in enumerate(halves)])
