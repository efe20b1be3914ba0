"""True if the models of a claim have learned their task: before anything far from training is judged."""

from collections.abc import Sequence
from statistics import median

from icl_lab.papers.finished import Finished
from icl_lab.papers.schema import Claim, Quantity
from icl_lab.runs import summary

GATE = 0.25  # of the way from the best reference of all to the best that reads no example


def unlearned(finished: Finished, claim: Claim, seeds: Sequence[int]) -> str:
    """Returns which side of a claim has not learned its task, and why; nothing where both have, or none is far out.

    Formula: the median over training seeds of (v - e) / (t - e), in training conditions, is at least ``GATE``; v the
    error, t that of the best trivial reference, e that of the best of all: 0 where one is exact, and the floor that a
    loss has where none is. Runs without a grid, or whose grid leaves training conditions out, say nothing.
    """
    if claim.ungated:
        return ""
    for side in (claim.left, claim.right):
        if finished.experiment.variant(side.of) is None or not _far(side, finished):
            continue
        shares = _shares(finished, side.of, seeds)
        if shares and median(shares) >= GATE:
            return (
                f"{side.of} has not learned its task: in training conditions it errs {median(shares):.2g} times as "
                "much as the best trivial reference, counted from the best of all"
            )
    return ""


def failed(finished: Finished, claim: Claim, seeds: Sequence[int]) -> str:
    """Returns how many tested models of each side have not learned the task, in words; empty where all have.

    The median says nothing about them, and an effect over seeds of which some have learned is one of two kinds mixed.
    Where no model was tested in training conditions it is not known, and said.
    """
    counts: list[str] = []
    unknown: dict[str, list[str]] = {}  # why -> which sides
    for of in dict.fromkeys(side.of for side in (claim.left, claim.right)):
        if finished.experiment.variant(of) is None:
            continue
        shares = _shares(finished, of, seeds)
        if lost := sum(not share < GATE for share in shares):
            counts.append(f"{lost} of {len(shares)} of {of}")
        if not shares and not claim.ungated and (reason := _unknown(finished, of, seeds)):
            unknown.setdefault(reason, []).append(of)
    counted = [f"tested models that have not learned: {', '.join(counts)}"] if counts else []
    named = {why: " and ".join(f"'{of}'" for of in sides) for why, sides in unknown.items()}
    unsure = [f"not known whether {sides} learned the task: {why}" for why, sides in named.items()]
    return "; ".join(counted + unsure)


def _far(side: Quantity, finished: Finished) -> bool:
    """True if the cells of a side lie outside training conditions; cells of an analysis' own axes do, or all of it."""
    spec = finished.spec(side.of)
    here = summary.training_cell(finished.task, spec)
    if any(axis not in here or value != here[axis] for axis, values in side.cells.items() for value in values):
        return True
    asked = finished.experiment.question()
    return asked is not None and asked.beyond(spec)


def _unknown(finished: Finished, of: str, seeds: Sequence[int]) -> str:
    """Why it is not known of any of these seeds; empty where it is, and where a task has nothing to tell it by."""
    question = finished.experiment.question()
    trained = question is None or question.trains
    return finished.why_unknown(of, seeds) if seeds and trained and finished.task.trivial else ""


def _shares(finished: Finished, of: str, seeds: Sequence[int]) -> list[float]:
    """Normalised training error per seed; seeds without a grid are skipped."""
    return [share for seed in seeds if (share := _share(finished, of, seed)) is not None]


def _share(finished: Finished, of: str, seed: int) -> float | None:
    """Normalised training error: 0 is the best reference, 1 the best trivial one; None unknown."""
    values, task = finished.errors_in_distribution(of, seed), finished.task
    if not values:
        return None
    trivial = [values[f"reference:{name}"] for name in task.trivial if f"reference:{name}" in values]
    others = {name for name in values if name.startswith("reference:")} - {f"reference:{name}" for name in task.trivial}
    best = min((values[name] for name in others), default=0.0)
    own = values[finished.spec(of).attn]
    return (own - best) / (min(trivial) - best) if trivial and min(trivial) > best else None
