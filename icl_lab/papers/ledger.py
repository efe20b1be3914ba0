"""All claims of all experiments with their verdicts at each scale: tables, counts, texts that cite them."""

import csv
import io
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple, cast

from icl_lab import markdown as md
from icl_lab.comparison.statistics import Scale
from icl_lab.comparison.verdict import Direction, EffectSize, State, Verdict
from icl_lab.papers import claims, cost, experiment, verdicts
from icl_lab.papers.schema import Experiment
from icl_lab.papers.verdicts import Finding
from icl_lab.runs.presets import PRESETS
from icl_lab.runs.store import Store

# A short name -> what names the paper in an experiment's file; the rest are controls of our own.


class Paper(NamedTuple):
    """A paper: what its references in experiments contain, and its title in a report."""

    mark: str
    title: str


PAPERS = {
    "ssa": Paper("2508.14685", "SSA (Naim, Bhar, Bolte, Asher 2025, arXiv 2508.14685)"),
    "ssmax": Paper("2501.19399", "SSMax (Nakanishi 2025, arXiv 2501.19399)"),
    "lssa": Paper("2501.13428", "LSSA (Gao and Spratling 2025, arXiv 2501.13428)"),
    "poster": Paper("El Alami", "The poster (El Alami and El Hassani)"),
}
RATE = 0.05  # of false discoveries
CHANCE_FIND = "may be a chance find"
COLUMNS = ("experiment", "preset", "claim", "relation", "margin", "state", "direction", "size", "agrees", "decided")
NUMBERS = ("scale", "effect", "low", "high", "confidence", "p")
# Standard errors over training seeds and over test prompts, below and above the effect (NaN: unknown), and the chance
# that 64 seeds decide an open claim.
ERRORS = ("seeds_error", "prompts_error_below", "prompts_error_above", "chance")
# A comment at a paragraph about a verdict: <!-- cites ssa-table1 | SSA errs less ... | lite | below -->
CITES = re.compile(r"<!-- cites ([^|]+?) \| ([^|]+?) \| ([^|]+?) \| ([^|]+?) -->")


Row = Mapping[str, str]  # of ``results/claims.csv``


@dataclass(frozen=True, kw_only=True)
class JudgedClaim:
    """One claim at one scale. ``q`` is the false discovery rate at which it is still among the discoveries of all."""

    experiment: str
    preset: str
    finding: Finding
    q: float = math.nan
    theory: bool = False  # a bound or an identity, which no training enters


def at(files: Path, store: Store, preset: str, correlation: float | None = None) -> list[JudgedClaim]:
    """Judges all claims at one scale; trains nothing. Claims about variants that do not fit the scale are left out."""
    entries, costs = list[JudgedClaim](), cost.Costs(store, preset)
    for name in experiment.names(files):
        made, _, found = claims.stored(name, files, store, preset, costs, correlation)
        entries += of(name, made, preset, found)
    return entries


def of(name: str, made: Experiment, preset: str, found: Iterable[Finding]) -> list[JudgedClaim]:
    """Returns the findings of an experiment as entries."""
    question = made.question()
    theory = question is not None and not question.trains
    return [JudgedClaim(experiment=name, preset=preset, finding=each, theory=theory) for each in found]


def rated(entries: Sequence[JudgedClaim]) -> list[JudgedClaim]:
    """Returns the entries with the false discovery rates that they have among all of them; theory has none."""
    found = [math.nan if entry.theory else _p(entry.finding) for entry in entries]
    return [replace(entry, q=q) for entry, q in zip(entries, verdicts.rates(found), strict=True)]


def strongest(rows: Iterable[Row]) -> list[Row]:
    """Returns one row a claim: of the largest scale that decides it, else of the one with most seeds."""
    chosen = dict[tuple[str, str], Row]()
    for row in rows:
        key = row["experiment"], row["claim"]
        chosen[key] = max((chosen.get(key, row), row), key=_strength)
    return list(chosen.values())


def _strength(row: Row) -> tuple[bool, bool, bool, int, int]:
    state, scale, decided = verdict_of(row).state, list(PRESETS).index(row["preset"]), row["decided"] == "yes"
    seeds = len(row["seeds"].split())
    return decided, state is State.JUDGED, state is not State.NOT_RUN, scale if decided else seeds, scale


def verdict_of(row: Row) -> Verdict:
    """Returns the verdict of a row."""
    return Verdict(state=State(row["state"]), direction=Direction(row["direction"]), size=EffectSize(row["size"]))


def agrees(row: Row) -> bool | None:
    """Returns whether the interval of a row agrees with its claim; None where it tells neither."""
    return {"yes": True, "no": False}.get(row["agrees"])


def interval_words(row: Row) -> str:
    """Returns the effect of a row with its interval; empty where there is none.

    >>> interval_words({"scale": "log-ratio", "effect": "-0.693147", "low": "-1.1", "high": "0"})
    '0.5 [0.333, 1]'
    """
    values = [float(row[name] or "nan") for name in ("effect", "low", "high")]
    effect, low, high = map(math.exp, values) if row["scale"] == "log-ratio" else values
    return "" if math.isnan(effect) else md.interval(effect, low, high)


def size_words(row: Row) -> str:
    """Returns the size that a row tells; empty where none is, or nothing is judged."""
    return row["verdict"].partition("; ")[2]


def may_be_chance(row: Row) -> bool:
    """Returns True if a row tells a direction that may be a chance find among all claims."""
    return verdict_of(row).direction is not Direction.NOT_TOLD and float(row["q"] or "nan") > RATE


def verdict_words(row: Row) -> str:
    """Returns the verdict of a row, with a warning where its direction may be a chance find among all claims."""
    return "; ".join([row["verdict"], *([CHANCE_FIND] if may_be_chance(row) else [])])


def printed_words(row: Row) -> str:
    """Returns the printed effect of a row, a ratio or a difference; empty where there is none."""
    return verdicts.value_words(float(row["printed"]), cast(Scale, row["scale"])) if row["printed"] else ""


def paper_of(text: str) -> str:
    """Returns the short name of the paper that an experiment's file names first."""
    found = {name: text.find(paper.mark) for name, paper in PAPERS.items() if paper.mark in text}
    return min(found, key=lambda name: found[name], default="")


def tally(verdicts: Iterable[tuple[Verdict, bool | None]]) -> str:
    """Counts verdicts in words; each comes with whether the interval agrees with its claim.

    >>> below, open_ = (Verdict(state=State.JUDGED, direction=d) for d in (Direction.BELOW, Direction.NOT_TOLD))
    >>> tally([(below, True), (below, False), (open_, None), (Verdict(state=State.NOT_RUN), None)])
    '4 claims: 1 as claimed, 1 against the claim, 1 neither told; 1 not run'
    """
    every = list(verdicts)
    judged = [agrees for verdict, agrees in every if verdict.judged]
    counts = {"as claimed": judged.count(True), "against the claim": judged.count(False)}
    counts["neither told"] = len(judged) - sum(counts.values())
    states = [verdict.state for verdict, _ in every if not verdict.judged]
    sizes = [verdict.size for verdict, _ in every if verdict.judged]
    printed = {
        size: sizes.count(size)
        for size in (EffectSize.AS_PRINTED, EffectSize.SMALLER, EffectSize.LARGER, EffectSize.EXCLUDED)
    }
    parts = [_counted(counts), _counted({state: states.count(state) for state in State})]
    parts.append(f"size: {_counted(printed)}" if any(printed.values()) else "")
    return f"{len(every)} claims: {'; '.join(filter(None, parts)) or 'none'}"


def tally_of(rows: Iterable[Row]) -> str:
    """Counts the verdicts of rows in words."""
    return tally((verdict_of(row), agrees(row)) for row in rows)


def _counted(counts: Mapping[str, int] | Mapping[State, int] | Mapping[EffectSize, int]) -> str:
    return ", ".join(f"{count} {name}" for name, count in counts.items() if count)


def table(rows: Sequence[Row], address: str = "") -> list[str]:
    """Returns rows as lines of a Markdown table; the name of a claim's experiment leads to ``address``/NAME.toml."""
    head = md.head(["claim", "printed", "ours", "direction", "size", "scale, seeds", "experiment"])
    return [*head, *(md.row(_cells(row, address)) for row in rows)]


def _cells(row: Row, address: str) -> list[str]:
    verdict, seeds = verdict_of(row), len(row["seeds"].split())
    name = md.code(row["experiment"])
    ran = verdict.state is not State.NOT_RUN
    return [
        row["claim"],
        printed_words(row) or "—",
        interval_words(row) or row["words"] or "—",
        str(verdict.direction) if verdict.judged else str(verdict.state),
        size_words(row) or "not told" if verdict.judged else "—",
        f"`{row['preset']}`, {seeds}" if ran else "—",
        f"[{name}]({address}/{row['experiment']}.toml)" if address else name,
    ]


def lines(made: Experiment, rows: Iterable[Row]) -> list[str]:
    """Returns rows of an experiment as lines for the terminal: verdict, effect, printed effect, outlook."""
    where = {claim.statement: claim.where for claim in made.claims}
    published = {claim.statement: claim.published for claim in made.claims}
    found = [made.title]
    for row in rows:
        claim, effect = row["claim"], printed_words(row) or published.get(row["claim"], "")
        found.append(f"  {claim} ({where.get(claim, '')})")
        confidence = verdicts.confidence_words(float(row["confidence"] or "nan"))
        parts = [verdict_words(row), row["words"], confidence, f"printed {effect}" * bool(effect), row["preset"]]
        found.append("    " + " | ".join(filter(None, parts)))
        found += [f"    {row['outlook']} would decide it"] if row["outlook"] else []
    return found


def table_csv(entries: Sequence[JudgedClaim]) -> str:
    """Returns the entries as CSV, with every number that a verdict rests on."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([*COLUMNS, *NUMBERS, "q", "printed", "seeds", "blocks", "outlook", *ERRORS, "study", "theory"])
    for e in entries:
        f, v = e.finding, e.finding.verdict
        numbers: list[object] = [""] * len(NUMBERS)
        errors: list[object] = [""] * len(ERRORS)
        if f.look is not None:
            c = f.look.effect
            numbers = [c.scale, c.effect, c.low, c.high, f.look.confidence, f.look.p]
            errors = [c.seeds_error, *c.prompts_error, f.chance if v.judged and not f.decided else ""]
        answer = {True: "yes", False: "no", None: ""}[f.agrees]
        row = [e.experiment, e.preset, f.claim.statement, f.claim.is_, f.margin]
        row += [v.state, v.direction, v.size, answer, "yes" if f.decided else ""]
        effect = "" if f.printed is None else f.printed.value
        seeds, blocks = " ".join(map(str, f.seeds)), len(set(f.blocks)) or ""
        study, theory = f.study.name if f.study else "", "yes" if e.theory else ""
        writer.writerow([*row, *numbers, e.q, effect, seeds, blocks, f.outlook, *errors, study, theory])
    return text.getvalue()


def _p(finding: Finding) -> float:
    return finding.look.p if finding.look is not None and finding.verdict.judged else math.nan


def stale_citations(text: str, rows: Iterable[Row]) -> Iterator[str]:
    """Yields a sentence for each verdict that a text cites and that is another one now, or does not exist."""
    verdicts = {(row["experiment"], row["claim"], row["preset"]): row["verdict"] for row in rows}
    for name, statement, preset, cited in CITES.findall(text):
        now = verdicts.get((name, statement, preset))
        if now is None:
            yield f"{name} has no claim '{statement}' that was run at {preset}, which a paragraph cites"
        elif now != cited:
            yield f"{name}, '{statement}', is '{now}' at {preset}, and a paragraph cites it as '{cited}'"
