"""The figures of a comparison, each in two widths: for a desk and for a telephone."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from matplotlib.figure import Figure

from icl_lab.comparison.page import words
from icl_lab.comparison.page.facts import Facts
from icl_lab.comparison.page.tables import summaries
from icl_lab.comparison.statistics import MARGIN, paired, resampled, wilson
from icl_lab.comparison.study import Labels, PairedGrids
from icl_lab.figures import lines, maps, ranking, training
from icl_lab.figures.axes import NARROW, WIDE
from icl_lab.figures.base import encode
from icl_lab.figures.ranking import Dot

CROWD = 8  # more normalizers than this are ranked, because their curves would lie on one another
# Effects below these stay pale.
RATIO_FLOOR, DIFFERENCE_FLOOR = MARGIN["log-ratio"] / math.log(2), MARGIN["difference"]
NOT_KEPT = "No interval is drawn: the errors of single prompts were not kept for all runs"


@dataclass(frozen=True)
class Picture:
    """A figure with its heading and caption. ``draw`` takes the width in inches."""

    title: str
    caption: str
    draw: Callable[[float], Figure]

    @cached_property
    def wide(self) -> Figure:
        """The figure for wide screens, and for the files of the page."""
        return self.draw(WIDE)

    @cached_property
    def wide_png(self) -> bytes:
        """The same as a file, which the page holds as well: to encode a picture takes longer than to draw it."""
        return encode(self.wide, "png")

    @property
    def narrow(self) -> Figure:
        """For a telephone."""
        return self.draw(NARROW)


def pictures(study: PairedGrids, facts: Mapping[str, Sequence[Facts]] | None = None) -> dict[str, Picture]:
    """Return the figures by file name: the forest, curves or a ranking, both kinds of maps, and the trainings."""
    found = {"forest": _forest(study)}
    found |= {"ranking": _ranking(study)} if len(study.grids) > CROWD else {"curves": _curves(study)}
    found |= {"ratios": _effects(study), "maps": _maps(study)}
    histories = {name: [fact.history for fact in group if fact.history] for name, group in (facts or {}).items()}
    if histories and all(histories.values()):
        found["learning"] = _learning(study, histories)
    if study.curves:
        found["rates"] = _tuned(study)
    return found


def _tuned(study: PairedGrids) -> Picture:
    from icl_lab.comparison import rates  # few comparisons are at own rates

    caption = "Each normalizer over factors of the rates of these runs, of tuning seeds. Ring: the best."
    return Picture("Learning-rate curves", caption, lambda width: rates.figure(study.curves, rates.measure(study.task)))


def _forest(study: PairedGrids) -> Picture:
    every = words.contrasts(study)
    single = {c.rule: _relative(study, c.rule) if study.seeds > 1 else [] for c in every}
    rows = {c.rule: (Dot(c.middle, c.low, c.high, single[c.rule], c.marked), c.words) for c in every}
    ratio = study.scale == "log-ratio"
    kind = "ratio" if ratio else "difference"
    if study.seeds > 1:
        interval = (
            "small strokes are single seeds, paired. The line is the 95 % interval, over the seeds and, where their "
            f"errors are kept, the prompts; p is corrected (Holm) over {words.compared(study)} comparisons"
        )
    else:
        interval = "of one training, which says nothing of another. " + (
            "The line is the 95 % interval over the test prompts" if study.errors else NOT_KEPT
        )
    return Picture(
        "Against the baseline",
        f"Each normalizer against {study.baseline} by {words.measure(study)}, as a {kind}; "
        f"{interval}. Hollow: p, corrected, is not below 0.05, or there is none.",
        lambda width: ranking.forest(
            rows,
            title="",
            label=f"{kind} to {study.baseline}, by {words.measure(study)}",
            baseline=study.baseline,
            ratio=ratio,
            width=width,
        ),
    )


def _relative(study: PairedGrids, rule: str) -> list[float]:
    """The effect of each seed by itself, as ``contrasts`` has their mean."""
    ours, theirs = (study.summary(name) for name in (rule, study.baseline))
    if not study.summarised:
        cell = study.line(words.along(study))[-1]
        ours, theirs = ([_scaled(study, v) for v in study.values(name, cell)] for name in (rule, study.baseline))
    differences = [a - b for a, b in zip(ours, theirs, strict=True)]
    return [words.to_ratio(d) for d in differences] if study.scale == "log-ratio" else differences


def _scaled(study: PairedGrids, value: float) -> float:
    return math.log(value) if study.scale == "log-ratio" else value


def _curves(study: PairedGrids) -> Picture:
    axis = words.along(study)
    line = study.line(axis)
    return Picture(
        "Along the shift",
        "Each line is the mean over the seeds, each dot one seed, the band all; references"
        f"{' and tests with rescaled prompts' if study.rescaled else ''} dashed and grey.",
        lambda width: lines.rivals(
            [cell[axis] for cell in line],
            {rule: [study.values(rule, cell) for cell in line] for rule in study.grids},
            study.behind(line),
            axis=study.task.axis_words[axis],
            title=words.fixed(study),
            label=words.metric_words(study),
            log=study.task.log_scale,
            width=width,
        ),
    )


def _ranking(study: PairedGrids) -> Picture:
    axis = words.along(study)
    line = study.line(axis)
    # As in training, half-way and farthest.
    chosen = sorted({0, len(line) // 2, len(line) - 1})
    order = list(summaries(study))
    panels = {
        words.cell_words(study, line[place][axis]): ranking.Panel(
            {rule: _dot(study, rule, line[place]) for rule in study.grids},
            {name: values[0] for name, values in study.behind([line[place]]).items()},
        )
        for place in chosen
    }
    if study.seeds > 1:
        bars = "Large dots are means over the seeds, small ones single seeds, lines the 95 % interval over the seeds"
    elif study.errors or study.task.rates:
        bars = "Lines are the 95 % interval over the test prompts of this one training, which says nothing of another"
    else:
        bars = f"Dots are one training each. {NOT_KEPT}"
    return Picture(
        "Every normalizer in order",
        f"{bars}. Normalizers stand in the order of their summary, as in the table; references are grey.",
        lambda width: ranking.ranking(
            panels,
            order,
            title=words.fixed(study),
            label=words.metric_words(study),
            log=study.task.log_scale,
            width=width,
        ),
    )


def _dot(study: PairedGrids, rule: str, cell: Labels) -> Dot:
    """The mean of a normalizer in a cell with its interval: over seeds, or of one seed over its prompts."""
    values = study.values(rule, cell)
    middle = words.mean(values)
    if len(values) > 1:
        log = study.scale == "log-ratio" and min(values) > 0
        effect = paired([1.0 if log else 0.0] * len(values), values, "log-ratio" if log else "difference")
        _, low, high = effect.shown
        # A rate outside 0 to 1 is none, and a wild interval of two seeds would squeeze every other normalizer.
        most = 1.0 if study.task.rates else math.inf
        span = (max(low, min(values) / 10), min(high, 10 * max(values))) if log else (max(low, 0.0), min(high, most))
        return Dot(middle, *span, values)
    if study.errors and study.errors[rule][0].keeps([cell]):
        means = resampled(study.errors[rule][0].at(cell).numpy(), seed=0)
        low, high = np.quantile(means[1:], [0.025, 0.975])
        return Dot(middle, float(low), float(high))
    if study.task.rates:
        count = study.count(cell)
        return Dot(middle, *wilson(middle * count, count))
    return Dot(middle)


def _effects(study: PairedGrids) -> Picture:
    (rows, columns), names = study.task.heat_map, study.task.axis_words
    ratio = study.scale == "log-ratio"
    tables = {rule: study.effects(rule) for rule in study.grids if rule != study.baseline}
    label = f"error / error of {study.baseline}" if ratio else f"error - error of {study.baseline}"
    least = f"a ratio of {2**RATIO_FLOOR:.3g}" if ratio else f"a difference of {DIFFERENCE_FLOOR:g}"
    return Picture(
        "Effects over both axes",
        f"Against {study.baseline}: blue is better, red worse. Hatched: p, corrected over {study.family.size:,} "
        f"comparisons (in training conditions over {study.homes.size}), is not below 0.05"
        + (" (of one seed: p over its prompts, where their errors are kept)" if study.seeds == 1 else "")
        + f". The colours reach at least to {least}, so that effects of no account stay faint.",
        lambda width: maps.effects(
            tables,
            names[rows],
            names[columns],
            label=label,
            least=RATIO_FLOOR if ratio else DIFFERENCE_FLOOR,
            ratio=ratio,
            width=width,
        ),
    )


def _maps(study: PairedGrids) -> Picture:
    (rows, columns), names = study.task.heat_map, study.task.axis_words
    tables, lost = {rule: study.map(rule) for rule in study.grids}, {rule: study.lost(rule) for rule in study.grids}
    crossed = " Crossed: answers of a seed were no finite numbers, and count as wrong." if any(lost.values()) else ""
    return Picture(
        "Errors over both axes",
        f"Means over the seeds, one colour scale for all.{crossed}",
        lambda width: maps.side_by_side(
            tables,
            names[rows],
            names[columns],
            label=words.metric_words(study),
            log=study.task.log_scale,
            width=width,
            lost=lost,
        ),
    )


def _learning(study: PairedGrids, histories: Mapping[str, Sequence[training.History]]) -> Picture:
    crowd = f" Behind each: {study.baseline}." if len(histories) > training.CROWD else ""
    return Picture(
        "How they trained",
        f"Training loss of every run; the thick line is the smoothed geometric mean over the seeds.{crowd} "
        f"{training.NOTE}",
        lambda width: training.losses(histories, title="", label="training loss", baseline=study.baseline, width=width),
    )
