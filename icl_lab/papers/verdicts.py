"""Verdict on a claim from two rows of numbers, one number a training seed."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
from scipy.stats import false_discovery_control

from icl_lab.comparison import replication, sequential
from icl_lab.comparison.replication import Replication
from icl_lab.comparison.sequential import Decision
from icl_lab.comparison.statistics import MARGIN, Effect, Evaluation, Scale
from icl_lab.comparison.verdict import Replicated, Verdict
from icl_lab.papers.schema import Claim
from icl_lab.registry import require

LIKELY = 0.1  # a chance to decide a claim that is worth its seeds

RULE = (
    "Supported or contradicted: the interval excludes no difference (or, where equality is claimed, lies within the "
    "margin or wholly outside it). No difference: two one-sided tests put the effect within the margin, a ratio of "
    "1.25 or a difference of 0.05 unless the experiment's file says otherwise. Seeds are looked at after 3, 5, 8, 12, "
    "16, 24, 32, 48 and 64 of them; the first look that decides is the verdict, and the intervals are so wide (99 % "
    "up to 8 seeds, then 99.5 to 99.9 %) that all looks together err in at most 5 %. They include the luck of the "
    "test prompts; where single prompts are not kept, the most that it can be, the standard errors of both sides "
    "added. Where a verdict does not stand that, or is open, or nothing is known of the luck, 'these prompts' stands "
    "beside the seeds: the interval is about seeds alone, for the prompts that were asked. Inconclusive: larger "
    "effects than the interval holds are excluded, smaller ones are not. Not learned: of the seeds of a look the "
    "median model errs in training conditions at least a quarter as much as the best reference that reads no example, "
    "so that the look decides nothing far out. Nothing to judge: what the claim is about did not occur in half of the "
    "seeds or more; where it occurred in most, the others are passed over and named. Seeds whose results suggested a "
    "claim are left out and named. A verdict holds at its scale and says nothing about another one; where three or "
    "more seeds came after it and do not bear it out, this is said beside it. "
    f"{sequential.RISK}"
)


@dataclass(frozen=True, kw_only=True)
class Finding:
    """Finding on a claim at one scale: the verdict, the look that it rests on, and what more would decide it."""

    claim: Claim
    verdict: Verdict
    decision: Decision | None = None
    seeds: tuple[int, ...] = ()  # the training seeds that the decision rests on
    note: str = ""
    margin: float = math.nan
    hours: float = math.nan  # of training, for one more seed of both sides
    failed: str = ""  # how many of these seeds have not learned their task
    these_prompts: bool = False  # the interval is about seeds alone: what single prompts add is not kept
    skipped_seeds: tuple[int, ...] = ()  # what the claim is about did not occur in them
    exploratory_seeds: tuple[int, ...] = ()  # finished, but their results suggested the claim: they do not judge it
    replication: Replication | None = None  # over the seeds after the verdict; None where they are too few
    replication_seeds: tuple[int, ...] = ()
    about: tuple[tuple[str, str], ...] = ()  # the hashes of the trainings that it hangs on, each with the rule put in
    study: Path | None = None  # the folder of the analysis that it is read from; None where grids of runs tell

    @property
    def found(self) -> Effect | None:
        """The effect at the look that the verdict rests on; None where nothing was run."""
        return None if self.decision is None else self.decision.effect

    @property
    def runs(self) -> list[tuple[str, str, int]]:
        """The runs that it rests on: the hash of each one's specification, the rule put in, the seed."""
        return [(*test, seed) for test in self.about for seed in self.seeds]

    @property
    def words(self) -> str:
        """The effect with its interval, a ratio or a difference, and the seeds."""
        exploratory = f"suggested by {span(self.exploratory_seeds)}, left out" if self.exploratory_seeds else ""
        if self.found is None:
            return "; ".join(filter(None, (self.note, exploratory)))
        effect = effect_words(self.found, self.seeds) + ", these prompts" * self.these_prompts
        skipped = f"nothing to judge in {span(self.skipped_seeds)}" if self.skipped_seeds else ""
        replication = ""
        if self.replication is not None and self.replication.says is not Replicated.BORNE_OUT:
            later = effect_words(self.replication.effect, self.replication_seeds)
            replication = f"{self.replication.says} by later seeds: {later}"
        return "; ".join(filter(None, (effect, self.note, self.failed, exploratory, skipped, replication)))

    @property
    def more(self) -> int | None:
        """Further seeds that would decide an open claim, were effect and spread to stay; None where none would."""
        aim = self._look(len(self.seeds))
        return None if aim is None else aim - len(self.seeds)

    @cached_property
    def chance(self) -> float:
        """The chance that up to 64 seeds decide an open claim."""
        if self.decision is None or self.verdict is not Verdict.INCONCLUSIVE:
            return 0.0
        effect, have = self.decision.effect, len(self.seeds)
        return sequential.chance_to_decide(
            self.claim.is_, effect.effect, self.decision.deviation, self.margin, have, effect.prompts_error
        )

    @property
    def outlook(self) -> str:
        """Outlook of an open claim in words: seeds and hours of one core, or more test prompts."""
        few = self.decision is not None and self.verdict is Verdict.INCONCLUSIVE
        if self.verdict is Verdict.ONE_SEED or (few and len(self.seeds) < min(sequential.SPENT)):
            return f"{_more(min(sequential.SPENT) - len(self.seeds))} for a first look"
        if self.verdict is not Verdict.INCONCLUSIVE or self.decision is None:
            return ""
        if (more := self.more) is not None:
            cost = "" if math.isnan(self.hours) else f", {more * self.hours:.2g} h of one core"
            return f"about {_more(more)}{cost}"
        enough = self._look(0, all_prompts=True)
        if enough is not None:
            return f"more test prompts, then about {enough} seeds"
        perhaps = f", or with a chance of {self.chance:.0%} fewer" if self.chance >= LIKELY else ""
        return f"more than {max(sequential.SPENT)} seeds{perhaps}"

    def _look(self, beyond: int, *, all_prompts: bool = False) -> int | None:
        """The look beyond so many seeds that would decide an open claim, on these test prompts or on all there are."""
        if self.decision is None or self.verdict is not Verdict.INCONCLUSIVE or math.isnan(self.decision.deviation):
            return None
        relation, effect, spread = self.claim.is_, self.decision.effect, self.decision.deviation
        prompts_error = (0.0, 0.0) if all_prompts else effect.prompts_error
        return sequential.seeds_to_decide(relation, effect.effect, spread, self.margin, beyond, prompts_error)


def _more(seeds: int) -> str:
    return f"{seeds} more seed{'s' * (seeds > 1)}"


def judge(
    claim: Claim,
    seeds: Sequence[int],
    left: Sequence[float],
    right: Sequence[float],
    scale: Scale,
    noise: Callable[[int], Evaluation | None] = lambda seeds: None,
    resolution: float = 0.0,
    unlearned: Callable[[int], str] = lambda seeds: "",
    hours: float = math.nan,
) -> Finding:
    """Judges a claim about two quantities, one number a training seed each, paired by position.

    ``unlearned`` says of the first so many seeds why a side has not learned its task in training conditions; a look at
    these decides nothing. Nor is anything judged where a value is not finite, because a training diverged or an answer
    overflowed: no seed is left out for that.
    """
    lost = [
        (side.of, [seed for seed, value in zip(seeds, values, strict=True) if not math.isfinite(value)])
        for side, values in ((claim.left, left), (claim.right, right))
    ]
    if any(lost_seeds for _, lost_seeds in lost):
        which = "; ".join(f"{of}: {span(lost_seeds)}" for of, lost_seeds in lost if lost_seeds)
        lacks = unlearned(len(seeds))
        why = lacks or f"answers that are no finite numbers ({which})"
        verdict = Verdict.NOT_LEARNED if lacks else Verdict.INCONCLUSIVE
        return Finding(claim=claim, verdict=verdict, seeds=tuple(seeds), note=why)
    margin = margin_of(claim, scale)
    decision = sequential.decide(
        claim.is_, left, right, scale, margin, noise, resolution, lambda count: not unlearned(count)
    )
    used = tuple(seeds[: decision.seeds])
    lacks = "" if decision.verdict.decided else unlearned(decision.seeds)
    alone = Verdict.ONE_SEED if len(seeds) == 1 else decision.verdict
    verdict = Verdict.NOT_LEARNED if lacks else alone
    repeated = replication.replicate(claim.is_, margin, decision, left, right, resolution)
    return Finding(
        claim=claim,
        verdict=verdict,
        decision=decision,
        seeds=used,
        note=lacks,
        margin=margin,
        hours=hours,
        replication=repeated,
        replication_seeds=tuple(seeds[decision.seeds :]) if repeated is not None else (),
    )


def margin_of(claim: Claim, scale: Scale) -> float:
    """Margin of no difference: the claim's own, a ratio where ratios are compared, or that of the scale."""
    if claim.margin is None:
        return MARGIN[scale]
    require(scale == "difference" or claim.margin > 1, "the margin of a ratio must be above 1", claim.margin)
    return math.log(claim.margin) if scale == "log-ratio" else claim.margin


def effect_words(effect: Effect, seeds: Sequence[int]) -> str:
    """An effect with its interval, a ratio or a difference, and the training seeds that it rests on."""
    ratio = effect.scale == "log-ratio"
    value, low, high = effect.ratio if ratio else (effect.effect, effect.low, effect.high)
    interval = "no interval" if math.isnan(low) else f"[{low:.3g}, {high:.3g}]"
    how_sure = ", one seed" if len(seeds) == 1 else f" {interval}, {span(seeds)}"
    return f"{'ratio' if ratio else 'difference'} {value:.3g}{how_sure}"


def span(seeds: Sequence[int]) -> str:
    """Names training seeds: "seeds 0 to 7", or one by one where some are left out."""
    if len(seeds) == 1:
        return f"seed {seeds[0]}"
    whole = list(seeds) == list(range(seeds[0], seeds[-1] + 1))
    return f"seeds {seeds[0]} to {seeds[-1]}" if whole else f"seeds {', '.join(map(str, seeds))}"


def rates(p_values: Sequence[float]) -> list[float]:
    """Returns for each claim the smallest false discovery rate at which it would still be among the discoveries.

    Source: Benjamini & Hochberg 1995, J. R. Stat. Soc. B 57. NaN (nothing to judge) stays NaN and does not count.
    """
    values = np.array(p_values, dtype=float)
    known = ~np.isnan(values)
    if known.any():
        values[known] = false_discovery_control(values[known])
    return [float(value) for value in values]
