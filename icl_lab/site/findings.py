"""What the papers' claims came to on these runs: the headline ones, and all with their numbers."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from icl_lab.errors import LabError
from icl_lab.papers import headlines, ledger, replications
from icl_lab.papers.ledger import Entry
from icl_lab.papers.verdicts import RULE
from icl_lab.runs.store import Store

# In words of one kind each, so that colours are never all that tells verdicts apart.
TONES = {
    "supported": "yes",
    "contradicted": "no",
    "no difference": "same",
    "inconclusive": "open",
    "one seed": "open",
    "not learned": "open",
    "nothing to judge": "none",
    "not run": "none",
}
FEW = 12  # claims that the first page shows where none of the headline ones was tested


@dataclass(frozen=True)
class Findings:
    """The entries of the ledger that rest on something, those to begin with, and why there are none."""

    all: Sequence[Entry] = ()
    first: Sequence[Entry] = ()
    why_none: str = ""

    @property
    def summary(self) -> str:
        """How many of those to begin with have each verdict, in the order of what they decide."""
        counts: Counter[str] = Counter(entry.finding.verdict for entry in self.first)
        return ", ".join(f"{counts[verdict]} {verdict}" for verdict in TONES if counts[verdict])

    @property
    def tally(self) -> str:
        """How many have each verdict."""
        return ledger.tally(self.all)

    @property
    def later(self) -> str:
        """Whether training seeds that came after a verdict bear it out."""
        return replications.summary(self.all)

    @property
    def rule(self) -> str:
        """What the verdicts mean."""
        return RULE

    @property
    def papers(self) -> dict[str, list[Entry]]:
        """The entries by the paper that makes the claim, as experiments name it."""
        found: dict[str, list[Entry]] = {}
        for entry in self.all:
            found.setdefault(entry.paper, []).append(entry)
        return found


def judged(store: Store, files: Path) -> Findings:
    """Judges all claims on what is stored, and trains nothing; where that cannot be done, says why."""
    try:
        entries = [entry for entry in ledger.everywhere(files, store) if entry.finding.verdict != "not run"]
    except LabError as reason:
        return Findings(why_none=f"The claims cannot be judged: {reason}")
    if not entries:
        return Findings(why_none="No claim of the experiments has been tested by these runs.")
    strongest = {(entry.experiment, entry.finding.claim.statement): entry for entry in ledger.strongest(entries)}
    named = [(name, text) for name, texts in headlines.HEADLINES.items() for text in texts]
    first = [strongest[claim] for claim in named if claim in strongest]
    return Findings(entries, first or list(strongest.values())[:FEW])


def tone(entry: Entry) -> str:
    """The tone in which a verdict is shown."""
    return TONES.get(entry.finding.verdict, "open")
