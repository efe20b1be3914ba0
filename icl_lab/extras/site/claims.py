"""Claims as the site shows them: the finding, the cells of both sides, and the value of each seed.

Findings on the repository's runs are read from ``results/claims.csv``; others are judged now. Nothing is trained.
"""

import hashlib
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import ClassVar

from matplotlib import ticker

from icl_lab.base.errors import LabError
from icl_lab.base.grid import Grid
from icl_lab.base.progress import Tick, counted, silent
from icl_lab.claims import experiment as experiments
from icl_lab.claims import headlines, ledger, record
from icl_lab.claims.ledger import Finding
from icl_lab.claims.schema import Claim, Experiment, Quantity
from icl_lab.claims.sides import Sides
from icl_lab.comparison.verdict import State
from icl_lab.extras.site import comparisons
from icl_lab.extras.site.comparisons import Comparison
from icl_lab.extras.site.names import address
from icl_lab.extras.site.specifications import Grids
from icl_lab.runs.presets import PRESETS
from icl_lab.runs.store import Store

BADGES = {"yes": "as claimed", "no": "against", "same": "no difference", "open": "open"}
NOT_JUDGED = "not judged"
FEW = 12  # claims that the first page shows where none of the headline ones was tested


@dataclass(frozen=True)
class ClaimEntry:
    """A claim of an experiment with the finding at one scale."""

    made: Experiment
    claim: Claim
    found: Finding

    @property
    def anchor(self) -> str:
        """Its place on the page of its experiment, the same as long as the claim says the same."""
        return f"{self.found.preset}-{hashlib.sha256(self.found.claim.encode()).hexdigest()[:8]}"

    @property
    def page(self) -> str:
        """Address in the site of its numbers."""
        return f"experiments/{address(self.found.experiment)}.html#{self.anchor}"

    @property
    def notes(self) -> str:
        """Notes that limit the verdict, and whether it may be a chance find."""
        return "; ".join([*self.found.limits, *[ledger.CHANCE_FIND] * self.found.may_be_chance])

    @property
    def tone(self) -> str:
        """The tone in which its verdict is shown: words of one kind each, so that it is never shown by colour alone."""
        if not self.found.judged:
            return "none" if self.found.state is State.NOTHING_TO_JUDGE else "open"
        if self.found.agrees is not None:
            return "yes" if self.found.agrees else "no"
        return "same" if self.found.decided else "open"

    @property
    def badge(self) -> str:
        """The verdict on the claim, or why nothing is judged."""
        return BADGES[self.tone] if self.found.judged else self.found.outcome

    @property
    def effect(self) -> str:
        """The effect in three digits; empty where there is none."""
        return "" if math.isnan(self.found.effect) else f"{self.found.shown(self.found.effect):.3g}"

    @property
    def interval(self) -> str:
        """The interval at the confidence of the look that the verdict rests on; empty where there is none."""
        low, high = self.found.shown(self.found.low), self.found.shown(self.found.high)
        return "" if math.isnan(low) else f"{self.found.confidence_words} [{low:.3g}, {high:.3g}]"

    @property
    def remark(self) -> str:
        """The finding in words, where they say more than the effect, its interval and the seeds."""
        more = not self.effect or self.found.limits or self.found.these_prompts
        return self.found.words if more else ""

    @property
    def names(self) -> tuple[str, str]:
        """Both sides by name; of one that is compared with itself, in which cells."""
        left, right = self.claim.left, self.claim.right
        return (
            (left.of, right.of) if left.of != right.of else (f"{left.of} at {at(left)}", f"{right.of} at {at(right)}")
        )

    @property
    def relation(self) -> str:
        """The claimed relation of both sides in words."""
        return (" equals " if self.claim.is_ == "equal" else f" {self.claim.is_} ").join(self.names)

    @property
    def seeds(self) -> list[int]:
        """Training seeds that a side has, the columns of ``table``."""
        return sorted({*self.found.seeds, *self.found.right_seeds})

    @property
    def table(self) -> list[tuple[str, list[str]]]:
        """Rows of (side, value of each seed), and their ratio or difference; empty without a value.

        A seed that one side lacks has an empty cell.
        """
        found = self.found
        if not found.left:
            return []
        left = dict(zip(found.seeds, found.left, strict=True))
        right = dict(zip(found.right_seeds or found.seeds, found.right, strict=True))
        gaps = {k: left[k] / right[k] if found.ratio else left[k] - right[k] for k in left.keys() & right.keys()}
        last = "ratio" if found.ratio else "difference"
        rows = zip((*self.names, last), (left, right, gaps), strict=True)
        return [(name, [f"{row[k]:.4g}" if k in row else "" for k in self.seeds]) for name, row in rows]

    @property
    def sides(self) -> list[tuple[str, str]]:
        """Rows of (side, the cells over which it is a mean)."""
        return [(side.of, at(side)) for side in (self.claim.left, self.claim.right)]

    @property
    def trainings(self) -> list[tuple[str, str]]:
        """The hashes of its trainings, each with the normalizer put in for the test."""
        parts = (each.partition("->") for each in self.found.specs)
        return [(spec, swap) for spec, _, swap in parts]


def at(side: Quantity) -> str:
    """Return the cells of a side in words.

    >>> at(Quantity("ssa", {"sigma_f": [4.0, 5.0], "length": [40.0]}))
    'sigma_f 4, 5; length 40'
    """
    named = [f"{axis} {', '.join(f'{value:g}' for value in values)}" for axis, values in side.cells.items()]
    return "; ".join(named) or "training conditions"


@dataclass(frozen=True)
class Forest:
    """Forest plot of a claim: the effect with its interval at each scale, smallest first, on one axis."""

    entries: Sequence[ClaimEntry]
    width: ClassVar[int] = 320  # of a row
    height: ClassVar[int] = 22

    @property
    def ratio(self) -> bool:
        """True where ratios are drawn, False where differences are."""
        return any(each.found.ratio for each in self.entries)

    @cached_property
    def _ends(self) -> tuple[float, float]:
        """Both ends of the axis: all effects, and of wide intervals as much again as effects span."""
        found = [each.found for each in self.entries]
        inner = [0.0, *(v for each in found for v in (each.effect, each.printed) if math.isfinite(v))]
        span = max(max(inner) - min(inner), max(abs(value) for value in inner), 0.05)
        low = min([*inner, *(each.low for each in found if not math.isnan(each.low))])
        high = max([*inner, *(each.high for each in found if not math.isnan(each.high))])
        return max(low, min(inner) - span), min(high, max(inner) + span)

    def x(self, effect: float) -> float:
        """Return the place of an effect in the row, within both ends."""
        low, high = self._ends
        return round(8 + (self.width - 16) * (min(max(effect, low), high) - low) / (high - low), 1)

    @property
    def ticks(self) -> list[tuple[float, str]]:
        """Marks of the axis: place and number."""
        low, high = map(math.exp, self._ends) if self.ratio else self._ends
        logs = (ticker.LogLocator(subs=(1, 2, 5)), ticker.LogLocator()) if self.ratio else ()
        for locator in (*logs, ticker.MaxNLocator(4)):
            values = [float(f"{value:.6g}") for value in locator.tick_values(low, high) if low <= value <= high]
            if len(values) in (3, 4, 5):
                break
        return [(self.x(math.log(value) if self.ratio else value), f"{value:g}") for value in values]

    @classmethod
    def each(cls, entries: Iterable[ClaimEntry]) -> "list[Forest]":
        """Return one for each claim that has an interval at any scale."""
        found = dict[str, list[ClaimEntry]]()
        for entry in sorted(entries, key=lambda entry: list(PRESETS).index(entry.found.preset)):
            found.setdefault(entry.found.claim, []).append(entry)
        return [cls(scales) for scales in found.values() if any(each.interval for each in scales)]


@dataclass(frozen=True)
class Claims:
    """The claims that rest on something, those to begin with, comparisons of all variants, and why there are none."""

    all: Sequence[ClaimEntry] = ()
    first: Sequence[ClaimEntry] = ()
    comparisons: Sequence[Comparison] = ()
    why_none: str = ""
    failed: bool = False  # why there are none is a fault, and not that nothing was tested
    explained: str = field(default=ledger.EXPLAINED, repr=False)

    @property
    def verdicts(self) -> tuple[list[str], list[tuple[str, list[int]]]]:
        """Count of verdicts over all scales: the words, and a row of counts for each paper."""
        words = [*BADGES.values(), NOT_JUDGED]
        rows = list[tuple[str, list[int]]]()
        for paper, entries in self.by("paper").items():
            told = [each.badge if each.found.judged else NOT_JUDGED for each in entries]
            rows.append((paper, [told.count(word) for word in words]))
        return words, rows

    def by(self, what: str) -> dict[str, list[ClaimEntry]]:
        """Return the claims by their ``experiment``, or by the ``paper`` that makes them, in the order of PAPERS.

        Of a paper those that README shows come first, and small scales last.
        """
        found: dict[str, list[ClaimEntry]] = {title: [] for title in ledger.TITLES.values()} if what == "paper" else {}
        for each in sorted(self.all, key=_interest) if what == "paper" else self.all:
            name = ledger.TITLES[ledger.paper_of(each.made.paper)] if what == "paper" else each.found.experiment
            found.setdefault(name, []).append(each)
        return {name: entries for name, entries in found.items() if entries}


def _interest(entry: ClaimEntry) -> tuple[int, bool]:
    key = entry.found.experiment, entry.found.claim
    return headlines.HEADLINES.index(key) if key in headlines.HEADLINES else len(headlines.HEADLINES), entry.found.small


class _Read(Sides):
    """Finished runs whose grids are read once for all experiments, and errors of single prompts not at all."""

    grids: Grids

    def measured(self, of: str, seed: int) -> tuple[Grid, None]:
        run = self.store.run(self.spec(of), seed, self.variant(of).tested_with)
        if (run.key, run.swap) not in self.grids:
            self.grids[run.key, run.swap] = run.grid().of_model(self.task.headline)
        return self.grids[run.key, run.swap], None


def judged(store: Store, files: Path, tick: Tick = silent, grids: Grids | None = None) -> Claims:
    """Read or judge all claims on stored runs; where that cannot be done, say why.

    Grids that are in ``grids`` are not read again.
    """
    grids = {} if grids is None else grids
    try:
        known, compared, found = dict[str, dict[str, list[Finding]]](), list[Comparison](), list[ClaimEntry]()
        for each in ledger.rated([e for e in record.everything(files, store, PRESETS)[0] if _tested(e)]):
            known.setdefault(each.experiment, {}).setdefault(each.preset, []).append(each)
        for name in counted(experiments.names(files), "reading claims", tick, str):
            made = experiments.load(name, files)
            claims = {claim.statement: claim for claim in made.claims}
            for preset, findings in known.get(name, {}).items():
                found += [ClaimEntry(made, claims[each.claim], each) for each in findings]
                if made.question() is None:
                    finished = _Read(experiments.fitting(made, preset, curves=store)[0], store, preset)
                    finished.grids = grids
                    beside = comparisons.against_baseline(name, finished, preset)
                    compared += [beside] if beside is not None else []
    except LabError as reason:
        return Claims(why_none=f"The claims cannot be judged: {reason}", failed=True)
    if not found:
        return Claims(why_none="No claim of the experiments has been tested by these runs.")
    return Claims(found, _first(found), compared)


def _tested(found: Finding) -> bool:
    return found.state is not State.NOT_RUN


def _first(entries: Sequence[ClaimEntry]) -> list[ClaimEntry]:
    """The headline claims, each at the largest scale that decides it."""
    chosen = {id(each) for each in ledger.strongest([entry.found for entry in entries])}
    strongest = {(e.found.experiment, e.found.claim): e for e in entries if id(e.found) in chosen}
    return [strongest[key] for key in headlines.HEADLINES if key in strongest] or list(strongest.values())[:FEW]
