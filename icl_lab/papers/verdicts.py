"""Finding on a claim: its verdict, from two rows of numbers, one number a training seed."""

import math
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path

import numpy as np
import scipy

from icl_lab.comparison import blocks, sequential
from icl_lab.comparison.sequential import Look
from icl_lab.comparison.statistics import MARGIN, Effect, Evaluation, Scale
from icl_lab.comparison.verdict import Relation, State, Verdict, agrees, direction_of, settled, size_of
from icl_lab.papers.printed import PublishedEffect
from icl_lab.papers.schema import Claim
from icl_lab.parts.registry import require

LIKELY = 0.1  # a chance to decide a claim that is worth its seeds
FIRST = min(sequential.SPENT)  # seeds of the first look

EXPLAINED = (
    "Direction: the side on which the whole interval lies. Errors are compared, so that below is better for the left "
    "side. Size: against the effect that the paper prints for the same cells, where it prints one: as printed (it lies "
    "in the interval), smaller, larger, or excluded (the interval has another direction, or none); else against the "
    "margin of no difference, a ratio of 1.25 or a difference of 0.05 unless the claim says otherwise. Not told: the "
    "interval allows for more than one of these. Seeds are looked at after 3, 5, 8, 12, 16, 24, 32, 48 and 64 of them; "
    "the interval is that of the last look, and so wide (99 % up to 8 seeds, then 99.5 to 99.9 %) that the intervals "
    "of all looks together hold the effect with 95 %. It ends at -1 and 1 for rates and shares. It includes the "
    "variance over test prompts; where the errors of single prompts are not kept, the most that it can be, the "
    "standard errors of both sides added. 'These prompts' "
    "stands beside the seeds where nothing is known of it, or the verdict would not stand the most. Not learned: the "
    "median model of a side errs in training conditions at least a quarter as much as the best reference that reads no "
    "example, so that nothing is judged away from them. No better than trivial: in the cells of the claim neither side "
    "errs less than such a reference. Nothing to judge: what the claim is about did not occur in half of the seeds or "
    "more; where it occurred in most, the others are passed over and named. Exploratory: seeds finished before the "
    "claim was registered are among those that judge it, for lack of three later ones. One block: all seeds were "
    "trained at one commit on one class of machine. A verdict holds at its scale and says nothing about another one. "
    f"{sequential.RISK}"
)


@dataclass(frozen=True, kw_only=True)
class Finding:
    """Finding on a claim at one scale: the verdict, the look that it rests on, and what more would decide it."""

    claim: Claim
    verdict: Verdict
    look: Look | None = None
    seeds: tuple[int, ...] = ()  # the training seeds that it rests on
    note: str = ""
    margin: float = math.nan
    printed: PublishedEffect | None = None  # on the scale of the effect
    hours: float = math.nan  # of training, for one more seed of both sides
    failed: str = ""  # how many of these seeds have not learned their task
    these_prompts: bool = False  # the interval is about seeds alone: what single prompts add is not kept
    skipped_seeds: tuple[int, ...] = ()  # what the claim is about did not occur in them
    exploratory_seeds: tuple[int, ...] = ()  # finished, but their results suggested the claim: they do not judge it
    exploratory: bool = False  # seeds that were finished before the claim was registered judge it
    blocks: tuple[Hashable, ...] = ()  # of the seeds: the class of machine and the commit of their training
    gaps: tuple[float, ...] = ()  # effect of each seed
    about: tuple[
        tuple[str, str], ...
    ] = ()  # the hashes of the trainings that it hangs on, each with the normalizer put in
    study: Path | None = None  # the folder of the analysis that it is read from; None where grids of runs tell

    @property
    def effect(self) -> Effect | None:
        """The effect at the look that the verdict rests on; None where nothing was run."""
        return None if self.look is None else self.look.effect

    @property
    def decided(self) -> bool:
        """True if the interval answers the claim, so that no further seed is needed."""
        return self.verdict.judged and bool(settled(*self._interval))

    @property
    def agrees(self) -> bool | None:
        """True if the interval shows what the claim says, False if the opposite, None if neither."""
        return agrees(*self._interval) if self.verdict.judged else None

    @property
    def open(self) -> bool:
        """True if further seeds may decide it."""
        few = self.verdict.state in (State.FEW_SEEDS, State.NOT_RUN)
        return few or (self.verdict.judged and not self.decided)

    @property
    def _interval(self) -> tuple[Relation, float, float, float]:
        assert self.effect is not None
        return self.claim.is_, self.margin, self.effect.low, self.effect.high

    @property
    def verdict_words(self) -> str:
        """The verdict in words, with the margin where that is what the effect was held against."""
        scale = "log-ratio" if self.effect is None else self.effect.scale
        return self.verdict.words(self.margin, scale)

    @property
    def words(self) -> str:
        """The effect with its interval, a ratio or a difference, the seeds, and what limits it."""
        early = self.exploratory_seeds
        before = f"{span(early)} suggested it or came before it, left out" if early else ""
        if self.effect is None:
            return "; ".join(filter(None, (self.note, before)))
        effect = effect_words(self.effect, self.seeds) + ", these prompts" * self.these_prompts
        skipped = f"nothing to judge in {span(self.skipped_seeds)}" if self.skipped_seeds else ""
        exploratory = "exploratory" if self.exploratory else ""
        block = "one block" if len(set(self.blocks)) == 1 and len(self.seeds) >= FIRST else ""
        return "; ".join(filter(None, (effect, self.note, self.failed, before, skipped, exploratory, block)))

    @property
    def confidence_words(self) -> str:
        """The confidence of the interval: "99 % interval"; empty where there is none."""
        return "" if self.look is None else confidence_words(self.look.confidence)

    @property
    def printed_words(self) -> str:
        """The printed effect on the same cells; empty where there is none."""
        if self.printed is None or self.effect is None:
            return ""
        return value_words(self.printed.value, self.effect.scale)

    @property
    def more(self) -> int | None:
        """Further seeds that would decide an open claim, were effect and spread to stay; None where none would."""
        aim = self._look_that_decides(len(self.seeds))
        return None if aim is None else aim - len(self.seeds)

    @cached_property
    def chance(self) -> float:
        """The chance that up to 64 seeds decide an open claim."""
        if self.look is None or not self.verdict.judged or self.decided:
            return 0.0
        effect, have = self.look.effect, len(self.seeds)
        return sequential.chance_to_decide(
            self.claim.is_, effect.effect, self.look.deviation, self.margin, have, effect.prompts_error
        )

    @property
    def outlook(self) -> str:
        """Outlook of an open claim in words: seeds and hours of one core, or more test prompts."""
        if self.verdict.state is State.FEW_SEEDS:
            return f"{_more(FIRST - len(self.seeds))} for a first look"
        if not self.open or self.look is None:
            return ""
        if (more := self.more) is not None:
            cost = "" if math.isnan(self.hours) else f", {more * self.hours:.2g} h of one core"
            return f"about {_more(more)}{cost}"
        enough = self._look_that_decides(0, all_prompts=True)
        if enough is not None:
            return f"more test prompts, then about {enough} seeds"
        perhaps = f", or with a chance of {self.chance:.0%} fewer" if self.chance >= LIKELY else ""
        return f"more than {max(sequential.SPENT)} seeds{perhaps}"

    def _look_that_decides(self, beyond: int, *, all_prompts: bool = False) -> int | None:
        """The look beyond so many seeds that would decide an open claim, on these test prompts or on all there are."""
        if self.look is None or not self.verdict.judged or self.decided or math.isnan(self.look.deviation):
            return None
        effect, prompts_error = self.look.effect, (0.0, 0.0) if all_prompts else self.look.effect.prompts_error
        return sequential.seeds_to_decide(
            self.claim.is_, effect.effect, self.look.deviation, self.margin, beyond, prompts_error
        )


def _more(seeds: int) -> str:
    return f"{seeds} more seed{'s' * (seeds > 1)}"


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """Both sides of a claim: one number a training seed each, and what is known of their errors.

    ``unlearned`` says of the first so many seeds why nothing may be judged from them, ``noise`` how far the effect over
    them hangs on test prompts; ``blocks`` names the block of each seed, where known.
    """

    seeds: Sequence[int]
    left: Sequence[float]
    right: Sequence[float]
    scale: Scale
    noise: Callable[[int], Evaluation | None] = lambda seeds: None
    resolution: float = 0.0
    span: float = math.inf  # beyond which no difference of the two sides lies
    unlearned: Callable[[int], str] = lambda seeds: ""
    blocks: Sequence[Hashable] = ()
    correlation: float = 0.0  # of seeds within a block, as the ledger tells it

    @property
    def gaps(self) -> list[float]:
        """Effect of each seed: left - right, or the logarithm of their ratio."""
        pairs = zip(self.left, self.right, strict=True)
        return [math.log(a) - math.log(b) if self.scale == "log-ratio" else a - b for a, b in pairs]


def judge(claim: Claim, evidence: Evidence, printed: PublishedEffect | None = None, hours: float = math.nan) -> Finding:
    """Judges a claim from its ``evidence``, at the last look that the seeds allow.

    Where a side has not learned its task in training conditions, nothing is judged far from them. Nor is anything where
    a value is not finite, because a training diverged or an answer overflowed: no seed is left out for that.
    """
    seeds, left, right = evidence.seeds, evidence.left, evidence.right
    lost = [
        (side.of, [seed for seed, value in zip(seeds, values, strict=True) if not math.isfinite(value)])
        for side, values in ((claim.left, left), (claim.right, right))
    ]
    if any(lost_seeds for _, lost_seeds in lost):
        which = "; ".join(f"{of}: {span(lost_seeds)}" for of, lost_seeds in lost if lost_seeds)
        lacks = evidence.unlearned(len(seeds))
        state = State.NOT_LEARNED if lacks else State.NOTHING_TO_JUDGE
        why = lacks or f"answers that are no finite numbers ({which})"
        return Finding(claim=claim, verdict=Verdict(state=state), seeds=tuple(seeds), note=why)
    margin = margin_of(claim, evidence.scale)
    look = sequential.look(
        left,
        right,
        evidence.scale,
        evidence.noise,
        evidence.resolution,
        partial(_inflation, evidence),
        evidence.span,
    )
    used, effect = tuple(seeds[: look.seeds]), look.effect
    lacks = evidence.unlearned(look.seeds)
    if lacks:
        verdict = Verdict(state=State.NOT_LEARNED)
    elif len(seeds) < FIRST:
        verdict = Verdict(state=State.FEW_SEEDS)
    else:
        size = size_of(effect.low, effect.high, margin, None if printed is None else printed.value)
        verdict = Verdict(state=State.JUDGED, direction=direction_of(effect.low, effect.high), size=size)
    return Finding(
        claim=claim,
        verdict=verdict,
        look=look,
        seeds=used,
        note=lacks,
        margin=margin,
        printed=printed,
        hours=hours,
        blocks=tuple(evidence.blocks[: look.seeds]),
        gaps=tuple(evidence.gaps[: look.seeds]),
    )


def _inflation(evidence: Evidence, seeds: int) -> float:
    """Factor on the standard error over the first so many seeds, for their correlation within blocks."""
    return blocks.inflation(evidence.blocks[:seeds], evidence.correlation) if evidence.blocks else 1.0


def margin_of(claim: Claim, scale: Scale) -> float:
    """Margin of no difference: the claim's own, a ratio where ratios are compared, or that of the scale."""
    if claim.margin is None:
        return MARGIN[scale]
    require(scale == "difference" or claim.margin > 1, "the margin of a ratio must be above 1", claim.margin)
    return math.log(claim.margin) if scale == "log-ratio" else claim.margin


def value_words(value: float, scale: Scale) -> str:
    """Returns an effect, on the scale on which it is compared, as the ratio or the difference that it is."""
    return f"{math.exp(value) if scale == 'log-ratio' else value:.3g}"


def effect_words(effect: Effect, seeds: Sequence[int]) -> str:
    """An effect with its interval, a ratio or a difference, and the training seeds that it rests on."""
    ratio = effect.scale == "log-ratio"
    value, low, high = effect.ratio if ratio else (effect.effect, effect.low, effect.high)
    interval = "no interval" if math.isnan(low) else f"[{low:.3g}, {high:.3g}]"
    how_sure = ", one seed" if len(seeds) == 1 else f" {interval}, {span(seeds)}"
    return f"{'ratio' if ratio else 'difference'} {value:.3g}{how_sure}"


def confidence_words(confidence: float) -> str:
    """Returns the confidence of an interval in words; empty where there is none (NaN).

    >>> confidence_words(0.995)
    '99.5 % interval'
    """
    return "" if math.isnan(confidence) else f"{100 * confidence:.4g} % interval"


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
        values[known] = scipy.stats.false_discovery_control(values[known])
    return [float(value) for value in values]
