"""True if the training seeds that came after a verdict bear it out.

The first look that decides is the verdict, and no later seed takes it back (``sequential``). Where other claims asked
for more seeds of the same trainings, these are a second sample that had no part in it. It shows two faults that the
look itself cannot: an effect that was large enough to be seen early is told too large on average, and differences that
are far from normal are decided too soon.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from icl_lab.comparison.sequential import SPENT, Decision, Relation, difference
from icl_lab.comparison.statistics import Effect
from icl_lab.comparison.verdict import Replicated, Verdict

LEAST = min(SPENT)  # fewer seeds say nothing


@dataclass(frozen=True, kw_only=True)
class Replication:
    """The effect over the later seeds alone, with its 95 % interval, and what it says of the verdict."""

    effect: Effect  # left against right, as in the decision
    says: Replicated


def replicate(
    relation: Relation,
    margin: float,
    decision: Decision,
    left: Sequence[float],
    right: Sequence[float],
    resolution: float = 0.0,
) -> Replication | None:
    """Compares a verdict with the seeds that its look did not read; None where there is none, or fewer than three.

    Arguments are those of ``sequential.decide``. With (low, high) the effects for which the verdict is right: borne
    out, the later mean lies within; spoken against, the whole 95 % interval lies outside; else not borne out. Test
    prompts are the same for all seeds: their variance is no part of this interval.
    """
    if not decision.verdict.decided or len(left) - decision.seeds < LEAST:
        return None
    low, high = right_for(relation, decision.verdict, decision.effect.effect, margin)
    later = difference(left[decision.seeds :], right[decision.seeds :], decision.effect.scale, resolution)
    if low < later.effect < high:
        return Replication(effect=later, says=Replicated.BORNE_OUT)
    against = later.high <= low or later.low >= high
    return Replication(effect=later, says=Replicated.SPOKEN_AGAINST if against else Replicated.NOT_BORNE_OUT)


def right_for(relation: Relation, verdict: Verdict, effect: float, margin: float) -> tuple[float, float]:
    """Returns between which two effects (left - right, or its log ratio) a verdict is right.

    ``effect`` is the one that was seen: it tells on which side a claim of equality was contradicted.
    """
    if verdict is Verdict.NO_DIFFERENCE or (relation == "equal" and verdict is Verdict.SUPPORTED):
        return -margin, margin
    if relation == "equal":
        return (margin, math.inf) if effect > 0 else (-math.inf, -margin)
    # Of "not below" the verdicts part at the margin below, of "not above" at that above, of the others at 0.
    border = {"not below": -margin, "not above": margin}.get(relation, 0.0)
    upwards = (relation in ("above", "not below")) == (verdict is Verdict.SUPPORTED)
    return (border, math.inf) if upwards else (-math.inf, border)
