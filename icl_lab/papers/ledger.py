"""All claims of all experiments with their verdicts at each scale: tables, replications, texts that cite them."""

import csv
import io
import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median

from icl_lab import markdown as md
from icl_lab.comparison.sequential import SPENT
from icl_lab.comparison.verdict import Replicated, Verdict
from icl_lab.papers import claims, cost, experiment, verdicts
from icl_lab.papers.verdicts import Finding, effect_words
from icl_lab.runs.presets import PRESETS
from icl_lab.runs.store import Store

# A short name -> what names the paper in an experiment's file; the rest are controls of our own.
PAPERS = {"ssa": "2508.14685", "ssmax": "2501.19399", "lssa": "2501.13428", "poster": "El Alami"}
RATE = 0.05  # of false discoveries
COLUMNS = ("experiment", "preset", "claim", "relation", "margin", "verdict")
NUMBERS = ("scale", "effect", "low", "high", "confidence", "p")
# Of the seeds that came after the verdict: their effect with its 95 % interval, which they are, and what they say.
LATER = ("later_effect", "later_low", "later_high", "later_seeds", "later")
# Standard errors over training seeds and over test prompts, below and above the effect (NaN: not told), and the chance
# that 64 seeds decide an open claim.
ERRORS = ("seeds_error", "prompts_error_below", "prompts_error_above", "chance")
MANY = 12  # seeds of a look, from which on looks are counted together
# A comment at a paragraph about a verdict: <!-- cites ssa-table1 | SSA errs less ... | lite | supported -->
CITES = re.compile(r"<!-- cites ([^|]+?) \| ([^|]+?) \| ([^|]+?) \| ([^|]+?) -->")


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One claim at one scale. ``q`` is the false discovery rate at which it is still among the discoveries there."""

    experiment: str
    paper: str
    preset: str
    finding: Finding
    q: float = math.nan

    @property
    def said(self) -> str:
        """The verdict, marked where it is one of those that may be false discoveries among so many."""
        doubtful = self.finding.verdict.decided and self.q > RATE
        return f"{self.finding.verdict} (alone)" if doubtful else str(self.finding.verdict)


def at(files: Path, store: Store, preset: str) -> list[Entry]:
    """Judges all claims at one scale; trains nothing.

    The false discovery rate is over the claims that are judged here. Claims about variants that do not fit the scale
    are left out.
    """
    entries, costs = list[Entry](), cost.Costs(store, preset)
    for name in experiment.names(files):
        made, _, found = claims.stored(name, files, store, preset, costs)
        entries += [Entry(experiment=name, paper=made.paper, preset=preset, finding=finding) for finding in found]
    return among(entries)


def among(entries: Sequence[Entry]) -> list[Entry]:
    """Returns the entries with the false discovery rates that they have among each other."""
    rates = verdicts.rates([_p(entry.finding) for entry in entries])
    return [replace(entry, q=q) for entry, q in zip(entries, rates, strict=True)]


def everywhere(files: Path, store: Store) -> list[Entry]:
    """Judges all claims at every scale, in the order of claims and then of scales.

    A claim stands once for each scale at which it was run, or once, at no scale, where it was run nowhere.
    """
    found: dict[tuple[str, str], list[Entry]] = {}
    for preset in PRESETS:
        if not store.has(preset):
            continue
        for entry in at(files, store, preset):
            found.setdefault((entry.experiment, entry.finding.claim.statement), []).append(entry)
    rows = []
    for name in experiment.names(files):
        made = experiment.load(name, files)
        for claim in made.claims:
            judged = found.get((name, claim.statement), [])
            run = [entry for entry in judged if entry.finding.verdict is not Verdict.NOT_RUN]
            never = Finding(claim=claim, verdict=Verdict.NOT_RUN)
            rows += run or [Entry(experiment=name, paper=made.paper, preset="", finding=never)]
    return rows


def strongest(entries: Iterable[Entry]) -> list[Entry]:
    """Returns one entry a claim: the one that rests on most seeds, of equals the larger scale."""
    order, chosen = list(PRESETS), dict[tuple[str, str], Entry]()
    for entry in entries:
        key = (entry.experiment, entry.finding.claim.statement)
        chosen[key] = max(
            (each for each in (chosen.get(key), entry) if each is not None),
            key=lambda e: (len(e.finding.seeds), order.index(e.preset) if e.preset else -1),
        )
    return list(chosen.values())


def paper_of(text: str) -> str:
    """Returns the short name of the paper that an experiment's file names first."""
    found = {name: text.find(mark) for name, mark in PAPERS.items() if mark in text}
    return min(found, key=lambda name: found[name], default="")


def tally(entries: Sequence[Entry]) -> str:
    """Returns how many claims there are and how many entries have each verdict, in words."""
    counts = Counter(entry.finding.verdict for entry in entries).most_common()
    claims = len({(entry.experiment, entry.finding.claim.statement) for entry in entries})
    scales = f", judged {len(entries)} times, once a scale" if claims < len(entries) else ""
    return f"{claims} claims{scales}: " + ", ".join(f"{count} {verdict}" for verdict, count in counts)


def table(entries: Sequence[Entry], studies: str = "") -> list[str]:
    """Returns the entries as lines of a Markdown table.

    With ``studies``, the address of the folder of all studies, the name of an experiment leads to the tables of the
    one that its claim is read from.
    """
    head = md.head(["experiment", "claim", "where", "published", "scale", "here", "verdict", "would decide it"])
    return [*head, *(md.row(_cells(entry, studies)) for entry in entries)]


def table_csv(entries: Sequence[Entry]) -> str:
    """Returns the entries as CSV, with every number that a verdict rests on."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([*COLUMNS, *NUMBERS, "q", "seeds", "outlook", *LATER, *ERRORS, "study"])
    for e in entries:
        f = e.finding
        numbers: list[object] = [""] * len(NUMBERS)
        errors: list[object] = [""] * len(ERRORS)
        if f.decision is not None and f.found is not None:
            c = f.found
            numbers = [c.scale, c.effect, c.low, c.high, f.decision.confidence, f.decision.p]
            errors = [c.seeds_error, *c.prompts_error, f.chance if f.verdict is Verdict.INCONCLUSIVE else ""]
        seeds = " ".join(map(str, f.seeds))
        row = [e.experiment, e.preset, f.claim.statement, f.claim.is_, f.margin, f.verdict, *numbers, e.q, seeds]
        later: list[object] = [""] * len(LATER)
        if f.replication is not None:
            c = f.replication.effect
            later = [c.effect, c.low, c.high, " ".join(map(str, f.replication_seeds)), f.replication.says]
        writer.writerow([*row, f.outlook, *later, *errors, f.study.name if f.study else ""])
    return text.getvalue()


def _cells(entry: Entry, studies: str) -> list[str]:
    f = entry.finding
    here, name = f.words or "—", md.code(entry.experiment)
    return [
        f"[{name}]({studies}/{f.study.name}/table.md)" if studies and f.study else name,
        f.claim.statement,
        f.claim.where,
        f.claim.published,
        f"`{entry.preset}`" if entry.preset else "—",
        here,
        entry.said,
        f.outlook,
    ]


def _p(finding: Finding) -> float:
    return finding.decision.p if finding.decision is not None and finding.verdict.tested else math.nan


def replicated(entries: Iterable[Entry]) -> list[Entry]:
    """Returns the verdicts after which three or more seeds came."""
    return [entry for entry in entries if entry.finding.replication is not None]


def replication_summary(entries: Sequence[Entry]) -> str:
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


def replication_table(entries: Sequence[Entry]) -> list[str]:
    """Returns the summary, what later seeds say by the look that decided, and each verdict that is not borne out."""
    again = replicated(entries)
    lines = [replication_summary(entries), "", *md.head(["verdicts after", *Replicated, "later effect, median share"])]
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


def stale_citations(text: str, entries: Sequence[Entry]) -> Iterator[str]:
    """Yields a sentence for each verdict that a text cites and that is another one now, or does not exist."""
    verdicts = {(e.experiment, e.finding.claim.statement, e.preset): e.finding.verdict for e in entries}
    for name, statement, preset, cited in CITES.findall(text):
        now = verdicts.get((name, statement, preset))
        if now is None:
            yield f"{name} has no claim '{statement}' that was run at {preset}, which a paragraph cites"
        elif now != cited:
            yield f"{name}, '{statement}', is {now} at {preset}, and a paragraph cites it as {cited}"
