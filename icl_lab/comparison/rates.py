"""Learning-rate curves: error in training conditions over a factor of the recipe's rates, one curve per normalizer.

A run of a curve is trained like the run that is asked for, with ``train.rate`` and, under Muon, ``train.muon_rate``
multiplied by the factor, from a tuning seed (100 and up). It is tested in training conditions on tuning prompts
(``test.draws=tuning``), which no training and no other test draws: no number of a test grid is read.

    error at a factor   geometric mean over the tuning seeds (arithmetic of losses in nats); infinite if one diverged.
                        Where errors are shares of wrong answers: the training loss, mean over the last tenth of the
                        steps, each on prompts seen once. A share is 0 at most rates of a task that is learned.
    least               factor of the least error; it has a bracket where the factors on both sides of it err more
    best                factor that is taken: the least, or half of it by two rules that favour the lower rate
                        tie    from 3 tuning seeds on, half the factor errs alike: the 95 % t interval of
                               log(error at half / error), paired by seed, holds 0 (of losses in nats the difference)
                        cliff  a seed failed at twice the factor (it diverged, or erred 1/4 of the trivial reference
                               or more), and half the factor errs at most 3 times as much
                        Bests are thus chosen by errors in training conditions; intervals at own rates leave the choice
                        of the rate out
    sensitivity         mean over the factors of log(min(error, cap) / error at the best), nats; of losses in nats the
                        mean difference. The cap is the trivial reference, of training losses the largest first one
                        (arXiv 2309.14322, Sec. 2.2, caps at the loss of the untrained model)
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from statistics import fmean, geometric_mean
from typing import TYPE_CHECKING, Any

import msgspec

from icl_lab import tasks
from icl_lab.base import markdown as md
from icl_lab.base.errors import BadValue
from icl_lab.comparison.statistics import paired
from icl_lab.figures.lines import TunedLine
from icl_lab.figures.lines import tuned as drawn
from icl_lab.runs import command, provenance
from icl_lab.runs.measure import TestSpec
from icl_lab.runs.run import Run
from icl_lab.runs.spec import RunSpec
from icl_lab.runs.store import Store
from icl_lab.runs.summary import GATE, training_cell, trivial_error
from icl_lab.tasks.base import Task

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FACTORS = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0)
POWERS = 8  # factors reach from 2^-8 to 2^8
BEST = ("best", "rate", "muon_rate", "least", "low", "high", "error")  # columns that are NaN without a bracket
HEAD = ["normalizer", "best", "rate", "least", "bracket", "error", "sensitivity"]  # of a table; then one per factor
FIRST_SEED = 100  # of tuning: no plan has so many seeds (execute/where.py)
PROMPTS = 1024
FEWEST = 2  # tuning seeds of every factor of a curve; the least and both its neighbours have all
TIE_SEEDS = 3  # fewer say nothing about a tie
CLIFF = 3.0  # times the least error that half its factor may err, where a seed failed at twice the factor
TAIL = 0.1  # share of the steps, the last, over which a training loss is averaged


def is_power(factor: float) -> bool:
    """Return True for a power of 2."""
    return factor > 0 and math.log2(factor).is_integer()


def scaled(spec: RunSpec, factor: float) -> RunSpec:
    """Return a specification with its rates multiplied; raise ``BadValue`` where one would leave (0, 1]."""
    rates = _rates(spec, factor)
    if max(rates.values()) > 1:
        raise BadValue(f"{factor:g} times the rates of {spec.name}: a rate is at most 1, got {max(rates.values()):g}.")
    return msgspec.structs.replace(spec, train=msgspec.structs.replace(spec.train, **rates))


def _rates(spec: RunSpec, factor: float) -> dict[str, float]:
    names = ["rate", *(["muon_rate"] if spec.train.optimizer == "muon" else [])]
    return {name: getattr(spec.train, name) * factor for name in names}  # a power of 2: exact, there and back


def tuning(spec: RunSpec, factor: float) -> RunSpec:
    """Return the specification of a run of the curve of ``spec``: scaled rates, tested on tuning prompts alone."""
    task = tasks.build(spec.task)
    here = training_cell(task, spec)
    axes = {axis: values if axis in task.facets else [here[axis]] for axis, values in spec.test.axes.items()}
    test = TestSpec(prompts=PROMPTS, axes=axes, draws="tuning", positions=spec.test.positions)
    return msgspec.structs.replace(scaled(spec, factor), test=test)


@dataclass(frozen=True)
class Curve:
    """Errors of a normalizer at each factor of the rates of ``spec``, one per tuning seed (infinite: diverged)."""

    spec: RunSpec
    errors: Mapping[float, Sequence[float]]
    trivial: float
    log: bool

    def mean(self, factor: float) -> float:
        """Return the mean error at a factor; geometric where errors span decades."""
        values = self.errors[factor]
        return (geometric_mean if self.log and min(values) > 0 else fmean)(values)

    @property
    def means(self) -> dict[float, float]:
        """Mean error by factor, in ascending order."""
        return {factor: self.mean(factor) for factor in sorted(self.errors)}

    @property
    def lowest(self) -> float | None:
        """Factor with the least mean error, at an edge or not; None where every training diverged."""
        finite = {factor: mean for factor, mean in self.means.items() if math.isfinite(mean)}
        return min(finite, key=finite.__getitem__, default=None)

    @property
    def bracket(self) -> tuple[float, float] | None:
        """Nearest factors on both sides of the best that err more; None where a side has none."""
        below, above = self._worse
        return (below[-1], above[0]) if below and above else None

    @property
    def _worse(self) -> tuple[list[float], list[float]]:
        if (lowest := self.lowest) is None:
            return [], []
        worse = [factor for factor, mean in self.means.items() if mean > self.mean(lowest)]
        return [factor for factor in worse if factor < lowest], [factor for factor in worse if factor > lowest]

    @property
    def best(self) -> float | None:
        """Factor of the least mean error, or half of it after a tie or below a cliff; None without a bracket."""
        factor = None if self.bracket is None else self.lowest
        if factor is None or factor / 2 not in self.errors:
            return factor
        near = self.mean(factor / 2) <= CLIFF * self.mean(factor)
        return factor / 2 if self._tied(factor) or (near and self.fails(2 * factor)) else factor

    def fails(self, factor: float) -> bool:
        """Return True where a tuning seed learned nothing at a factor: its error is ``GATE`` of the trivial or more."""
        return max(self.errors.get(factor, [0.0])) >= GATE * self.trivial

    def _tied(self, factor: float) -> bool:
        here, half = self.errors[factor], self.errors[factor / 2]
        if len(here) != len(half) or len(here) < TIE_SEEDS or not all(map(math.isfinite, [*here, *half])):
            return False
        return not paired(here, half, "log-ratio" if self.log and min(*here, *half) > 0 else "difference").clear

    @property
    def tuned(self) -> RunSpec | None:
        """Specification at the best rates; None without a best."""
        return None if self.best is None else scaled(self.spec, self.best)

    @property
    def sensitivity(self) -> float:
        """Mean excess over the least error, over the factors; NaN where every training diverged."""
        if (lowest := self.lowest) is None:
            return math.nan
        capped = [min(mean, self.trivial) for mean in self.means.values()]
        least = min(self.mean(lowest), self.trivial)
        return fmean(math.log(each / least) if self.log else each - least for each in capped)

    def wider(self) -> list[float]:
        """Return the factor beyond each edge that errs no more than the best; empty with a bracket, or none left."""
        if self.lowest is None:
            return []
        below, above = self._worse
        beyond = [*([] if below else [min(self.errors) / 2]), *([] if above else [max(self.errors) * 2])]
        return [each for each in beyond if 2.0**-POWERS <= each <= 2.0**POWERS and _allowed(self.spec, each)]


def _allowed(spec: RunSpec, factor: float) -> bool:
    return max(_rates(spec, factor).values()) <= 1


def curve(spec: RunSpec, runs: Mapping[float, Sequence[Run]]) -> Curve:
    """Return the curve of finished runs, by factor."""
    task = tasks.build(spec.task)
    if task.rates:
        read = {factor: [[] if run.diverged else run.history() for run in group] for factor, group in runs.items()}
        errors = {factor: [_last(rows, spec.train.steps) for rows in group] for factor, group in read.items()}
        cap = max((rows[0]["loss"] for group in read.values() for rows in group if rows), default=math.nan)
    else:
        errors = {factor: [_error(run, task.headline) for run in group] for factor, group in runs.items()}
        first = next(iter(runs.values()))[0]  # references have the same errors in all runs
        cap = trivial_error(first.grid(), task, first.spec)
    return Curve(spec, errors, cap, task.log_scale or task.rates)


def _error(run: Run, metric: str) -> float:
    return math.inf if run.diverged else float(run.grid().where(attn=run.name, metric=metric).frame["value"].mean())


def _last(history: Sequence[Mapping[str, float]], steps: int) -> float:
    """Mean training loss of the last tenth of the steps; infinite without a history, after a divergence."""
    return fmean(row["loss"] for row in history if row["step"] > (1 - TAIL) * steps) if history else math.inf


def measure(task: Task) -> str:
    """Return the label of the error of a curve."""
    return "Training loss, last tenth of the steps" if task.rates else task.metric_label(task.headline)


def stored(spec: RunSpec, store: Store) -> Curve | None:
    """Return the curve that a store holds of a specification; None where no factor was run, or it is not whole.

    Its runs share task, model, steps and scaling with ``spec``. It is whole where every power of two between its ends
    has the first two tuning seeds, and the least and its neighbours all that any factor has.
    """
    if not (runs := stored_runs(spec, store)):
        return None
    stored_curve = curve(spec, runs)
    return None if holes(stored_curve.lowest, runs) else stored_curve


def stored_runs(spec: RunSpec, store: Store) -> dict[float, list[Run]]:
    """Return the finished runs of the curve of a specification, by factor in ascending order."""
    found = dict[float, list[Run]]()
    powers = range(-2 * POWERS, 2 * POWERS + 1)  # ``spec`` may itself be at an edge of the recipe's curve
    for factor in filter(lambda each: _allowed(spec, each), (2.0**power for power in powers)):
        at = tuning(spec, factor)
        runs = [store.run(at, seed) for seed in store.seeds(at) if seed >= FIRST_SEED]
        if finished := [run for run in runs if run.finished]:
            found[factor] = finished
    return found


def holes(least: float | None, runs: Mapping[float, Sequence[Run]]) -> dict[float, list[int]]:
    """Return the tuning seeds that factors between the ends of a curve lack; its error is the smallest at ``least``."""
    seeds = sorted({run.seed for group in runs.values() for run in group})
    low, high = (round(math.log2(edge)) for edge in (min(runs), max(runs)))
    lacks = dict[float, list[int]]()
    for factor in (2.0**power for power in range(low, high + 1)):
        near = least is None or least / 2 <= factor <= least * 2
        has = {run.seed for run in runs.get(factor, ())}
        lacks[factor] = [seed for seed in (seeds if near else seeds[:FEWEST]) if seed not in has]
    return {factor: lacking for factor, lacking in lacks.items() if lacking}


def own(specs: Sequence[RunSpec], store: Store) -> list[RunSpec]:
    """Return specifications at the best rates of their stored curves, whatever code made these (``check_code``).

    Raises ``BadValue`` with the command that makes the curves, where one is not there, not whole, or its best has no
    bracket.
    """
    curves = [stored(spec, store) for spec in specs]
    tuned = [None if each is None else each.tuned for each in curves]
    lacking = [spec for spec, best in zip(specs, tuned, strict=True) if best is None]
    if not lacking:
        return [best for best in tuned if best is not None]
    missing = holes(curve(lacking[0], runs).lowest, runs) if (runs := stored_runs(lacking[0], store)) else {}
    hole = ", ".join(f"x{factor:g} (seed {md.listed(map(str, seeds))})" for factor, seeds in missing.items())
    why = (
        f"the stored learning-rate curve of {lacking[0].attn} lacks {hole}"
        if hole
        else ("no stored learning-rate curve with a best between two worse rates")
    )
    raise _refused(lacking, store, why)


def check_code(specs: Sequence[RunSpec], store: Store) -> None:
    """Raise ``BadValue``, with the command that makes it anew, where a stored curve was made with other code."""
    found = [[*provenance.changed(chain(*stored_runs(spec, store).values()))] for spec in specs]
    if changed := [spec for spec, differences in zip(specs, found, strict=True) if differences]:
        kinds = md.listed(dict.fromkeys(each.kind for differences in found for _, each in differences))
        raise _refused(changed, store, f"the stored learning-rate curve was made with other code ({kinds})", anew=True)


def _refused(specs: Sequence[RunSpec], store: Store, why: str, *, anew: bool = False) -> BadValue:
    """The refusal of curves, with the command that makes those which share task and settings with the first."""
    first, asked = specs[0], _settings(specs[0])
    attns = [spec.attn for spec in specs if (spec.task, _settings(spec)) == (first.task, asked)]
    runs = stored_runs(first, store)
    seeds = {run.seed for group in runs.values() for run in group}
    count = len(seeds) if len(seeds) > FEWEST else 1  # two are usual, and go without saying
    wider = {*FACTORS, *runs, *holes(curve(first, runs).lowest, runs)} if runs else {*FACTORS}
    more = {"factors": ",".join(f"{factor:.12g}" for factor in sorted(wider))} if wider > {*FACTORS} else {}
    line = command.trains("rates", first.task, attns, first.preset, asked, count, store.root, **more, retrain=anew)
    return BadValue(f"{', '.join(attns)} on {first.task} at {first.preset}: {why}; make it: {line}")


def _settings(spec: RunSpec) -> list[str]:
    return [each for each in command.differences(spec) if not each.startswith("test.")]


def muon(spec: RunSpec) -> float:
    """Return Muon's rate of a specification; 0 under another optimizer."""
    return spec.train.muon_rate if spec.train.optimizer == "muon" else 0.0


def rate_words(spec: RunSpec) -> str:
    """Return the learning rates of a specification: ``0.005 (Muon 0.005)``."""
    return f"{spec.train.rate:g}" + (f" (Muon {muon(spec):g})" if muon(spec) else "")


def words(specs: Mapping[str, RunSpec], tuned: Mapping[str, Curve] | None = None) -> str:
    """Say the learning rates of compared specifications: shared, different, or the best of the curves ``tuned``."""
    said = {name: rate_words(spec) for name, spec in specs.items()}
    each = ", ".join(f"{name} {rate}" for name, rate in said.items())
    if tuned is not None:
        counts = sorted({len(errors) for curve in tuned.values() for errors in curve.errors.values()})
        over = f" over {' or '.join(map(str, counts))} tuning seed{'s' * (counts != [1])}" if counts else ""
        return f"Own learning rates, each the best of its curve{over}: {each}."
    if len(shared := set(said.values())) > 1:
        return f"Learning rates differ: {each}."
    return f"Shared learning rate: {shared.pop()}."


def curves_of(specs: Mapping[str, RunSpec], store: Store) -> dict[str, Curve]:
    """Return the stored curves of specifications that were trained at their best rates, as factors of these rates."""
    found = {name: stored(spec, store) for name, spec in specs.items()}
    return {name: curve for name, curve in found.items() if curve is not None}


def moved_words(curves: Mapping[str, Curve]) -> list[str]:
    """Say of each curve whose best is another one than the rate that was trained with."""
    found = []
    for name, each in curves.items():
        if each.best is None:
            found.append(f"{name}: its curve has no best any more.")
        elif each.best != 1:
            found.append(f"{name}: the best of its curve has moved to {each.best:g} times the rates of these runs.")
    return found


def cliff_words(curves: Mapping[str, Curve]) -> list[str]:
    """Name the curves of which a tuning seed fails one factor above the best."""
    steep = [name for name, c in curves.items() if c.best and c.fails(2 * c.best)]
    said = "a tuning seed learns nothing, so that training seeds may fail at the best too"
    return [f"One step above the best of {', '.join(steep)} {said}."] if steep else []


def rows(curves: Mapping[str, Curve]) -> list[dict[str, Any]]:
    """Return the best of each curve as rows: factors, rates, bracket, error, sensitivity; NaN without a bracket."""
    found = []
    for each in curves.values():
        row = {"attn": each.spec.attn, "width": each.spec.model.width, **dict.fromkeys(BEST, math.nan)}
        if each.bracket and each.best and each.tuned:
            best, tuned = each.best, each.tuned
            numbers = (best, tuned.train.rate, muon(tuned), each.lowest, *each.bracket, each.mean(best))
            row |= dict(zip(BEST, numbers, strict=True))
        found.append(row | {"sensitivity": each.sensitivity})
    return found


def factors(curves: Mapping[str, Curve]) -> list[float]:
    """Return the factors that a curve has a point at, in ascending order."""
    return sorted({factor for each in curves.values() for factor in each.errors})


def head(curves: Mapping[str, Curve]) -> list[str]:
    """Return the head of a table of curves: ``HEAD`` and the factors."""
    return [*HEAD, *(f"x{factor:g}" for factor in factors(curves))]


def cells(curves: Mapping[str, Curve]) -> list[list[str]]:
    """Return a row of text per curve, under ``head``."""
    found = []
    for label, each in curves.items():
        best = ["none", "", "none", "none", ""]
        if each.bracket and each.best and each.tuned:
            between = f"x{each.bracket[0]:g} to x{each.bracket[1]:g}"
            least = f"x{each.lowest:g}"
            best = [f"x{each.best:g}", rate_words(each.tuned), least, between, md.short(each.mean(each.best))]
        means = [md.short(each.mean(factor)) if factor in each.errors else "" for factor in factors(curves)]
        found.append([label, *best, f"{each.sensitivity:.2g}", *means])
    return found


def table(curves: Mapping[str, Curve]) -> list[str]:
    """Return the table of curves: best factor and rate, its bracket, the error there, sensitivity, errors by factor."""
    return md.table(head(curves), cells(curves))


def figure(curves: Mapping[str, Curve], metric: str) -> "Figure":
    """Draw errors over the factor, a panel per width, a line per normalizer; the best is ringed."""
    panels = dict[str, dict[str, TunedLine]]()
    for each in curves.values():
        line = TunedLine(each.errors, each.means, each.best)
        panels.setdefault(f"width {each.spec.model.width}", {})[each.spec.attn] = line
    first = next(iter(curves.values()))
    title = f"{first.spec.task}, {first.spec.train.steps:,} steps, in training conditions"
    title += " (ring: best; cross: a seed diverged)"
    axis = "factor of the recipe's learning rates"
    return drawn(panels, axis=axis, label=metric, title=title, log=first.log)
