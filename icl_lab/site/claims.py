"""Claims as the site shows them: the verdict with its number, the cells of both sides, and their values a seed.

Verdicts of the repository's runs are read from ``results/claims.csv``; others are judged now. Nothing is trained.
"""

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from icl_lab.comparison.verdict import State, Verdict
from icl_lab.errors import LabError
from icl_lab.grid import Grid
from icl_lab.papers import experiment as experiments
from icl_lab.papers import folders, headlines, ledger, quantities, record, verdicts
from icl_lab.papers.finished import Finished
from icl_lab.papers.ledger import Row
from icl_lab.papers.schema import Claim, Experiment, Quantity
from icl_lab.progress import Tick, counted, silent
from icl_lab.runs.presets import PRESETS
from icl_lab.runs.store import Store
from icl_lab.site import comparisons
from icl_lab.site.comparisons import Comparison
from icl_lab.site.names import address
from icl_lab.site.specifications import Grids

FEW = 12  # claims that the first page shows where none of the headline ones was tested


@dataclass(frozen=True)
class Judged:
    """A claim at one scale: a row of the record, with the values of both sides that the verdict was judged from."""

    experiment: str
    made: Experiment
    preset: str
    claim: Claim
    row: Row
    left: Sequence[float] = ()
    right: Sequence[float] = ()

    @property
    def anchor(self) -> str:
        """Its place on the page of its experiment, the same as long as the claim says the same."""
        return f"{self.preset}-{hashlib.sha256(self.claim.statement.encode()).hexdigest()[:8]}"

    @property
    def page(self) -> str:
        """Address in the site of its numbers."""
        return f"experiments/{address(self.experiment)}.html#{self.anchor}"

    @property
    def verdict(self) -> Verdict:
        """The verdict, as the record holds it."""
        return ledger.verdict_of(self.row)

    @property
    def agrees(self) -> bool | None:
        """True if the interval agrees with the claim, False if it shows the opposite, None if neither."""
        return ledger.agrees(self.row)

    @property
    def said(self) -> str:
        """The verdict in words, with a warning where it may be a chance find among so many."""
        return ledger.verdict_words(self.row)

    @property
    def direction(self) -> str:
        """The direction that is told, or why nothing is judged."""
        return str(self.verdict.direction if self.verdict.judged else self.verdict.state)

    @property
    def size(self) -> str:
        """The size that is told; empty where none is."""
        return ledger.size_words(self.row)

    @property
    def value(self) -> str:
        """The effect and its interval."""
        return ledger.interval_words(self.row)

    @property
    def notes(self) -> str:
        """Notes that limit the verdict: what was not learned, left out, or may be a chance find."""
        chance = ledger.CHANCE_FIND if ledger.may_be_chance(self.row) else ""
        return "; ".join(filter(None, (self.row["words"].partition("; ")[2], chance)))

    @property
    def tone(self) -> str:
        """The tone in which its verdict is shown: words of one kind each, so that colours never tell it alone."""
        if not self.verdict.judged:
            return "none" if self.verdict.state is State.NOTHING_TO_JUDGE else "open"
        if self.agrees is not None:
            return "yes" if self.agrees else "no"
        return "same" if self.row["decided"] else "open"

    @property
    def printed(self) -> str:
        """The printed effect on the same cells; empty where there is none."""
        return ledger.printed_words(self.row)

    @property
    def seeds(self) -> list[int]:
        """The training seeds that the verdict rests on."""
        return [int(seed) for seed in self.row["seeds"].split()]

    @property
    def ratio(self) -> bool:
        """True where left over right is told, not left minus right."""
        return self.row["scale"] == "log-ratio"

    def number(self, column: str) -> float:
        """Returns the effect or an end of its interval as it is told: a ratio or a difference; NaN where none is."""
        value = float(self.row[column] or "nan")
        return math.exp(value) if self.ratio else value

    @property
    def told(self) -> str:
        """The effect in three digits."""
        return "" if math.isnan(self.number("effect")) else f"{self.number('effect'):.3g}"

    @property
    def interval(self) -> str:
        """The interval at the confidence of the look that the verdict rests on; empty where there is none."""
        low, high = self.number("low"), self.number("high")
        sure = f"{100 * float(self.row['confidence'] or 'nan'):.4g} % interval"
        return "" if math.isnan(low) else f"{sure} [{low:.3g}, {high:.3g}]"

    @property
    def remark(self) -> str:
        """The verdict in words, where they say more than the effect, its interval and the seeds."""
        words = self.row["words"]
        return words if not self.told or ";" in words or "these prompts" in words else ""

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
    def table(self) -> list[tuple[str, list[str]]]:
        """Rows of (side, value a seed), and their ratio or difference; nothing where no seed is told."""
        if not self.left:
            return []
        gaps = [a / b if self.ratio else a - b for a, b in zip(self.left, self.right, strict=True)]
        last = "ratio" if self.ratio else "difference"
        rows = zip((*self.names, last), (self.left, self.right, gaps), strict=True)
        return [(name, [f"{value:.4g}" for value in values]) for name, values in rows]

    @property
    def sides(self) -> list[tuple[str, str]]:
        """Rows of (side, the cells over which it is a mean)."""
        return [(side.of, at(side)) for side in (self.claim.left, self.claim.right)]

    @property
    def trainings(self) -> list[tuple[str, str]]:
        """The hashes of the trainings it hangs on, each with the normalizer put in for the test."""
        parts = (each.partition("->") for each in self.row["specs"].split())
        return [(spec, swap) for spec, _, swap in parts]


def at(side: Quantity) -> str:
    """Returns the cells of a side in words.

    >>> at(Quantity("ssa", {"sigma_f": [4.0, 5.0], "length": [40.0]}))
    'sigma_f 4, 5; length 40'
    """
    told = [f"{axis} {', '.join(f'{value:g}' for value in values)}" for axis, values in side.cells.items()]
    return "; ".join(told) or "training conditions"


@dataclass(frozen=True)
class Claims:
    """The claims that rest on something, those to begin with, comparisons beside them, and why there are none."""

    all: Sequence[Judged] = ()
    first: Sequence[Judged] = ()
    comparisons: Sequence[Comparison] = ()
    why_none: str = ""
    failed: bool = False  # why there are none is a fault, and not that nothing was tested
    explained: str = field(default=verdicts.EXPLAINED, repr=False)

    @property
    def summary(self) -> str:
        """Count of the verdicts among those shown first."""
        return ledger.tally_of(each.row for each in self.first)

    @property
    def tally(self) -> str:
        """Count of the verdicts over all scales, those of theory apart."""
        empirical = [each for each in self.all if not each.row["theory"]]
        told = ledger.tally_of(each.row for each in empirical)
        theory = len(self.all) - len(empirical)
        return f"Over all scales {told}" + f". Beside them {theory} of theory" * bool(theory)

    def by(self, what: str) -> dict[str, list[Judged]]:
        """Returns the claims by a field of theirs (``experiment``, ``preset``), or by the ``paper`` that makes them."""
        found: dict[str, list[Judged]] = {}
        for each in self.all:
            key = each.made.paper if what == "paper" else str(getattr(each, what))
            found.setdefault(key, []).append(each)
        return found


class _Read(Finished):
    """Finished runs whose grids are read once for all experiments, and errors of single prompts not at all."""

    grids: Grids

    def measured(self, of: str, seed: int) -> tuple[Grid, None]:
        run = self.store.run(self.spec(of), seed, self.variant(of).tested_with)
        if (run.key, run.swap) not in self.grids:
            self.grids[run.key, run.swap] = run.grid()
        return self.grids[run.key, run.swap], None


def judged(store: Store, files: Path, tick: Tick = silent, grids: Grids | None = None) -> Claims:
    """Reads or judges all claims on what is stored; where that cannot be done, says why.

    Grids that are in ``grids`` are not read again.
    """
    grids = {} if grids is None else grids
    try:
        known, beside, found = dict[str, dict[str, list[Row]]](), list[Comparison](), list[Judged]()
        for row in record.everything(files, store, PRESETS)[0]:
            known.setdefault(row["experiment"], {}).setdefault(row["preset"], []).append(row)
        for name in counted(experiments.names(files), "reading claims", tick, str):
            made = experiments.load(name, files)
            for preset, rows in known.get(name, {}).items():
                if any(row["state"] != State.NOT_RUN for row in rows):
                    fitting, _ = experiments.fitting(made, preset)
                    here, compared = _with_values(name, fitting, store, preset, rows, grids)
                    found, beside = found + here, beside + compared
    except LabError as reason:
        return Claims(why_none=f"The claims cannot be judged: {reason}", failed=True)
    if not found:
        return Claims(why_none="No claim of the experiments has been tested by these runs.")
    found = _rated(found)
    return Claims(found, _first(found), beside)


def _with_values(
    name: str, made: Experiment, store: Store, preset: str, rows: Sequence[Row], grids: Grids
) -> tuple[list[Judged], list[Comparison]]:
    """The claims of an experiment at a scale with both sides' values, and its comparison where grids tell them."""
    finished, analysis = _Read(made, store, preset), made.question()
    finished.grids = grids
    places = folders.of(name, store, preset) if analysis is not None else []
    studied = folders.Studies(finished, analysis, places)
    found = []
    for claim, row in zip(made.claims, rows, strict=True):
        if row["state"] == State.NOT_RUN:
            continue
        entry = Judged(name, made, preset, claim, row)
        if entry.seeds and entry.told:
            place = next((place for place in places if place.name == row["study"]), None)
            source = quantities.source(finished, claim, studied.read(place))
            left, right = source.values(claim, entry.seeds)
            entry = replace(entry, left=left, right=right)
        found.append(entry)
    compared = comparisons.against_baseline(name, finished, preset) if analysis is None else None
    return found, [compared] if compared is not None else []


def _rated(found: Sequence[Judged]) -> list[Judged]:
    """The claims with the false discovery rates that they have among all of them; theory has none."""
    tested = (each.verdict.judged and not each.row["theory"] for each in found)
    p = [float(each.row["p"] or "nan") if test else math.nan for each, test in zip(found, tested, strict=True)]
    return [replace(each, row={**each.row, "q": str(q)}) for each, q in zip(found, verdicts.rates(p), strict=True)]


def _first(found: Sequence[Judged]) -> list[Judged]:
    """The headline claims, each at the largest scale that decides it."""
    largest = {(row["experiment"], row["claim"]): row["preset"] for row in ledger.strongest([e.row for e in found])}
    strongest = {key: e for e in found if largest[key := (e.experiment, e.claim.statement)] == e.preset}
    return [strongest[key] for key in headlines.HEADLINES if key in strongest] or list(strongest.values())[:FEW]
