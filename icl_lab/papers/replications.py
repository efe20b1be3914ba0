"""True if the verdicts of the ledger hold: each against the training seeds that came after the look that decided."""

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from statistics import median

from icl_lab import markdown as md
from icl_lab.comparison.sequential import SPENT
from icl_lab.comparison.verdict import Replicated, Verdict
from icl_lab.papers.ledger import Entry
from icl_lab.papers.verdicts import effect_words

MANY = 12  # seeds of a look, from which on looks are counted together


def replicated(entries: Iterable[Entry]) -> list[Entry]:
    """Returns the verdicts after which three or more seeds came."""
    return [entry for entry in entries if entry.finding.replication is not None]


def summary(entries: Sequence[Entry]) -> str:
    """Sentences on replication: verdicts, those with enough later seeds, and what these say."""
    again, verdicts = replicated(entries), sum(entry.finding.verdict.decided for entry in entries)
    if not again:
        return f"After none of {verdicts} verdicts came three or more seeds."
    counts = _counts(again)
    found = ", ".join(f"{counts[says]} {says}" for says in Replicated)
    text = f"After {len(again)} of {verdicts} verdicts came three or more training seeds: {found}."
    shares = effect_shares(again)
    if not shares:
        return text
    return f"{text} The effect that later seeds show is {median(shares):.2f} times that of the verdict (the median)."


def effect_shares(entries: Iterable[Entry]) -> list[float]:
    """Returns, for verdicts that are a difference from 0, the later effect as a share of the one that was decided on.

    An effect that had to be large to be seen so early shrinks afterwards: shares below 1.
    """
    found = []
    for entry in entries:
        replication, decision = entry.finding.replication, entry.finding.decision
        sided = entry.finding.claim.is_ in ("above", "below") and entry.finding.verdict is not Verdict.NO_DIFFERENCE
        if replication is not None and decision is not None and sided and math.isfinite(replication.effect.effect):
            found.append(replication.effect.effect / decision.effect.effect)
    return found


def table(entries: Sequence[Entry]) -> list[str]:
    """Returns the summary, what later seeds say by the look that decided, and each verdict that is not borne out."""
    again = replicated(entries)
    lines = [summary(entries), "", *md.head(["verdicts after", *Replicated, "later effect, median share"])]
    groups = [(f"{look} seeds", [look]) for look in SPENT if look < MANY]
    groups.append((f"{MANY} seeds or more", [look for look in SPENT if look >= MANY]))
    for words, looks in groups:
        group = [entry for entry in again if len(entry.finding.seeds) in looks]
        counts = _counts(group)
        shares = effect_shares(group)
        share = f"{median(shares):.2f} of {len(shares)}" if shares else "—"
        lines.append(md.row([words, *(str(counts[says]) for says in Replicated), share]))
    doubtful = [
        entry
        for entry in again
        if entry.finding.replication and entry.finding.replication.says is not Replicated.BORNE_OUT
    ]
    if doubtful:
        lines += ["", *md.head([Replicated.NOT_BORNE_OUT, "scale", "verdict", "at the verdict", "later seeds"])]
        lines += [_doubt(entry) for entry in doubtful]
    return lines


def _counts(entries: Iterable[Entry]) -> Counter[Replicated]:
    return Counter(entry.finding.replication.says for entry in entries if entry.finding.replication is not None)


def _doubt(entry: Entry) -> str:
    f = entry.finding
    assert f.found is not None
    assert f.replication is not None
    return md.row(
        [
            f"{f.claim.statement} ({md.code(entry.experiment)})",
            f"`{entry.preset}`",
            entry.said,
            effect_words(f.found, f.seeds),
            effect_words(f.replication.effect, f.replication_seeds),
        ]
    )
