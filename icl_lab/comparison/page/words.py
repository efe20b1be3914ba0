"""Sentences of a comparison page: the measurement, the meaning of intervals, and the result."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from icl_lab.base.markdown import listed
from icl_lab.comparison.family import place
from icl_lab.comparison.statistics import CLEAR, MARGIN, margin_words, within
from icl_lab.comparison.study import PairedGrids
from icl_lab.runs.spec import RunSpec

LARGEST = 200.0  # of an effect that is a logarithm: pictures hold no greater ratio
PROMPTS = {
    True: "Intervals include the variance over test prompts, which all models share (a paired bootstrap over prompts, "
    "added in quadrature), and so do p values: p is the level at which the interval would just touch no effect.",
    False: "Intervals and p values are for these test prompts: the variance over prompts is not included.",
}


@dataclass(frozen=True)
class Contrast:
    """A normalizer against the baseline by one number: ratio or difference, with its interval and its corrected p."""

    rule: str
    middle: float
    low: float
    high: float
    p_holm: float
    ratio: bool
    alike: bool  # shown to differ by no more than the margin
    told: bool  # whether p is printed: with one seed it is that of the prompts alone
    learned: bool = True  # whether both sides have learned their task; if not, p and direction are left out

    @property
    def clear(self) -> bool:
        """True if the interval excludes no effect: this comparison by itself."""
        none = 1.0 if self.ratio else 0.0
        return self.low > none or self.high < none

    @property
    def marked(self) -> bool:
        """True if p is below 0.05 once it is corrected."""
        return self.p_holm < CLEAR

    @property
    def words(self) -> str:
        """``0.94 [0.89, 0.99], p 0.03``."""
        if not math.isfinite(self.middle):
            return "no finite answers"
        form = "+.3f" if not self.ratio else ".3f" if self.high < 10 or self.middle < 10 else ".3g"
        interval = "" if math.isnan(self.low) else f" [{self.low:{form}}, {self.high:{form}}]"
        chance = f", p {probability(self.p_holm)}" if self.told and self.p_holm >= 0 else ""
        return f"{self.middle:{form}}{interval}{chance}".replace("-", "−")


def to_ratio(effect: float) -> float:
    """e to the effect; infinity where no picture would hold it, as of two wild seeds or of no finite answers."""
    return math.inf if effect > LARGEST else math.exp(effect)


def contrasts(study: PairedGrids, *, home: bool = False) -> list[Contrast]:
    """Every normalizer against the baseline by the declared summary, or in the last cell where there is none.

    ``home``: in the cell of training instead, the second number that is declared before anything is trained; none where
    it was not tested. p is corrected over the normalizers (``PairedGrids.family_of``), that of another cell over all
    cells too.
    """
    if home and study.home is None:
        return []
    ratio, last = study.scale == "log-ratio", study.line(along(study))[-1]
    margin = MARGIN[study.scale]
    found = []
    unlearned = {rule for rule in study.others if study.not_learned.keys() & {rule, study.baseline}}
    for rule in study.others:
        cell = study.home if home and study.home else {} if study.overalls.effect(rule, {}) else last
        family = study.family_of(cell)
        p = math.nan if rule in unlearned else family.corrected(rule, cell)
        found.append((rule, family.effects[place(rule, cell)], p))

    shown = to_ratio if ratio else float

    return [
        Contrast(
            rule,
            shown(effect.effect),
            shown(effect.low),
            shown(effect.high),
            p_holm=p,
            ratio=ratio,
            alike=within(effect, margin),
            told=study.seeds > 1,
            learned=rule not in unlearned,
        )
        for rule, effect, p in found
    ]


def finding(study: PairedGrids) -> str:
    """Say which normalizers differ from the baseline by the declared summary, and in training conditions.

    The one place in which this is said: of the terminal, of pages, and of ``Study.verdict``.
    """
    every = [each for each in contrasts(study) if each.learned]
    if not every:
        return f"Nothing is compared with {study.baseline}.{_not_learned(study)}"
    what, none = measure(study), 1.0 if study.scale == "log-ratio" else 0.0
    if study.seeds == 1:
        best = min(every, key=lambda each: each.middle)
        less = best.middle < (1 if best.ratio else 0)
        kind = "ratio" if best.ratio else "difference"
        outcome = f"{best.rule} errs least ({kind} to {study.baseline}: {best.words}, below {none:g} is better)."
        outcome = outcome if less else f"no normalizer errs less than {study.baseline}."
        this_one = f"In this one, by {what}, {outcome}{_not_learned(study)}"
        return f"One training seed decides nothing about a normalizer. {this_one}"
    number = "ratio of errors" if study.scale == "log-ratio" else "difference in error"
    number += " with its 95 % interval"
    said = f"Against {study.baseline} ({number}, below {none:g} is better), over {study.seeds} seeds, by {what}: "
    said += _outcome(every, study, compared(study))
    near = [each for each in contrasts(study, home=True) if each.learned]
    if near and (study.summarised or study.home != study.line(along(study))[-1]):
        said += f". In training conditions: {_outcome(near, study, study.family_of(study.home or {}).size)}"
    return f"{said}.{_not_learned(study)}"


def _outcome(every: Sequence[Contrast], study: PairedGrids, family: int) -> str:
    """Which normalizers err less, more, or alike by one number, and how many are inconclusive."""
    none = 1.0 if study.scale == "log-ratio" else 0.0
    sure = [each for each in every if each.marked]
    alike = [each for each in every if each.alike and not each.marked]
    unsure = [each for each in every if each.clear and each not in sure and each not in alike]
    text = []
    for word, found in (
        ("less", [each for each in sure if each.middle < none]),
        ("more", [each for each in sure if each.middle > none]),
    ):
        if found:
            text.append(f"{listed([f'{c.rule} ({c.words})' for c in found])} err{'s' * (len(found) == 1)} {word}")
    said = "; ".join(text) if text else "no normalizer differs clearly"
    if unsure:
        named = [f"{c.rule} errs {'less' if c.middle < none else 'more'} ({c.words})" for c in unsure]
        said += f". Only by its interval, not once p is corrected for {family} comparisons: {listed(named)}"
    if alike:
        named = [f"{c.rule} ({c.words})" for c in alike]
        said += f". No difference beyond {margin_words(study.scale)}: {listed(named)}"
    draws = len(every) - len(sure) - len(unsure) - len(alike)
    if draws and draws < len(every):
        rest = "The other one" if draws == 1 else f"The other {draws}"
        said += f". {rest} against {study.baseline}: inconclusive"
    return said


def _not_learned(study: PairedGrids) -> str:
    if not study.not_learned:
        return ""
    return f" Not learned, so that its errors under a shift say nothing of the normalizer: {listed(study.not_learned)}."


def compared(study: PairedGrids) -> int:
    """Over how many comparisons the p of a ``Contrast`` is corrected."""
    return study.overalls.size or study.family.size


def correction(study: PairedGrids) -> str:
    """Say over how many comparisons p values are corrected, for the head of a table."""
    cells, rules = study.family.size, study.overalls.size
    if not cells:
        return "No p values: one seed without the errors of its prompts."
    said = f"p values are corrected (Holm) over all {cells:,} comparisons with {study.baseline}"
    return f"{said}, and over {rules} for the summaries and in training conditions." if rules else f"{said}."


def probability(p: float) -> str:
    """A p value in two digits: 0.031, < 0.001."""
    return "< 0.001" if p < 0.001 else f"{p:.2g}"


def measure(study: PairedGrids) -> str:
    """The number that normalizers are compared by: the declared summary, or the last cell of the line."""
    if not study.summarised:
        axis = along(study)
        return f"the error at {axis} {study.line(axis)[-1][axis]:g}"
    return f"the {study.task.summary.words(study.task.log_scale)}"


def conditions(study: PairedGrids, spec: RunSpec) -> str:
    """Sentences on metric, cell, seeds, preset, baseline and learning rates."""
    seeds = f"{study.seeds} training seed{'s' * (study.seeds > 1)}"
    said = f"{metric_words(study)}, {fixed(study)}; {seeds}, preset {spec.preset}, baseline {study.baseline}."
    return " ".join(filter(None, [said, study.rates]))


def along(study: PairedGrids) -> str:
    """The axis along which normalizers are compared."""
    return study.task.line_axis


def summary_words(study: PairedGrids) -> str:
    """Sentence on the declared summary, where the test grid reaches it, and on what the clip model is fitted to."""
    task = study.task
    said = [f"Summary: {task.summary.words(task.log_scale)}"] if study.summarised else []
    if task.clip is not None:
        axis, far = task.clip.axis, max(cell[task.clip.axis] for cell in study.cells())
        said.append(f"{'clip' if said else 'Clip'} B fits {axis} {task.clip.start:g} to {far:g} best")
    return "; ".join(said) + "." if said else ""


def fixed(study: PairedGrids) -> str:
    """Axes that do not vary along the line, or are averaged over."""
    axis, means = along(study), study.averaged
    return ", ".join(
        f"mean over {means[name]} values of {name}" if name in means else f"{name} {value:g}"
        for name, value in study.training.items()
        if name != axis
    )


def metric_words(study: PairedGrids) -> str:
    """The headline metric in words."""
    return study.task.metric_label(study.metric)


def mean(values: Sequence[float]) -> float:
    """The mean over seeds."""
    return sum(values) / len(values)


def number(value: float) -> str:
    """A summary in three digits; empty without one."""
    return "" if math.isnan(value) else f"{value:.3g}"


def cell_words(study: PairedGrids, value: float) -> str:
    """A value of the axis as a heading: ``sigma_f 2``."""
    return f"{along(study)} {value:g}"
