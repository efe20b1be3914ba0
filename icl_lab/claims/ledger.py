"""Verdicts on claims: the record of one (``Finding``), its words, tables and counts, and ``results/claims.csv``."""

import csv
import io
import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, get_args, get_origin

import msgspec
import numpy as np
import scipy
from msgspec.structs import replace

from icl_lab.base import markdown as md
from icl_lab.base.errors import RunFailed
from icl_lab.base.files import sha256
from icl_lab.comparison import sequential
from icl_lab.comparison.statistics import MARGIN, Scale
from icl_lab.comparison.verdict import Direction, EffectSize, Relation, State, size_words, verdict_words
from icl_lab.runs.presets import PRESETS

if TYPE_CHECKING:
    from icl_lab.claims.files import Titled
    from icl_lab.claims.schema import Experiment
    from icl_lab.runs.store import Store

NAME = "claims.csv"
VERSION = 5  # raised when claims are judged otherwise than before from the same numbers
# What the repository's record was judged from, the correlation of seeds within a block that it found, and a seal on
# both files.
BASIS = "claims-basis.csv"
FIRST = min(sequential.SPENT)  # seeds of the first look
LIKELY = 0.1  # a chance to decide a claim that is worth its seeds
LARGEST = 700.0  # e^709 is the largest power of e that a float holds


class Paper(NamedTuple):
    """A paper: what its references in experiments contain, and its title in a report."""

    mark: str
    title: str


# A short name -> what names the paper in an experiment's file; the rest are controls of our own.
PAPERS = {
    "ssa": Paper("2508.14685", "SSA (Naim, Bhar, Bolte, Asher 2025, arXiv 2508.14685)"),
    "ssmax": Paper("2501.19399", "SSMax (Nakanishi 2025, arXiv 2501.19399)"),
    "lssa": Paper("2501.13428", "LSSA (Gao and Spratling 2025, arXiv 2501.13428)"),
    "poster": Paper("El Alami", "The poster (El Alami and El Hassani)"),
}
OURS = "Other papers and controls of this laboratory"
TITLES = {name: paper.title for name, paper in PAPERS.items()} | {"": OURS}  # by the short names of ``paper_of``
RATE = 0.05  # of false discoveries
CHANCE_FIND = "may be a chance find"
SMALL = ("smoke", "nano")  # presets of a minute: a verdict there is marked
LIMITED = "‡: exploratory, or of one block of seeds or these test prompts alone."
MARKS = f"†: may be a chance find (false discovery rate above 5 %). {LIMITED} °: small scale (preset nano or smoke)."
RATES = {"": "", "shared": "shared rate", "own": "own rates", "different": "rates differ"}
SAID_ONCE = re.compile(" than printed|printed effect |( by)? the margin")  # of a size, where ``LEGEND`` explains it
LEGEND = (
    "Ours: a ratio, or a difference of rates and losses, with its interval; below 1 (0) favours the first named. "
    "*Below*, *above*: the side of no difference on which the interval lies; neither word: inconclusive. "
    "*As printed*, *smaller*, *larger*, *excluded*: against the printed effect. *Within*, *beyond*, *not below*, "
    "*not above*: against 1.25, as a difference 0.05, or the number that follows. A second interval takes seeds as "
    f"unpaired (or paired) and decides nothing. {MARKS} …: begins as the claim above."
)
DITTO = 3  # words with which two claims begin alike
# A comment at a paragraph about a verdict: <!-- cites ssa-table1 | SSA errs less ... | lite | below -->
CITES = re.compile(r"<!-- cites ([^|]+?) \| ([^|]+?) \| ([^|]+?) \| ([^|]+?) -->")
EXPLAINED = (
    "Direction: the side on which the whole interval lies. Errors are compared, so that below is better for the "
    "left side. Size: against the effect that the paper prints for the same cells, where it prints one: as printed "
    "(it lies in the interval), smaller, larger, or excluded (the interval has another direction, or none); else "
    "against the margin of no difference, a ratio of 1.25 or a difference of 0.05 unless the claim says otherwise. "
    "Inconclusive: the interval allows for more than one of these. Seeds are looked at after 3, 5, 8, 12, 16, 24, "
    "32, 48 and 64 of them; the interval is that of the last look, and so wide (99 % up to 8 seeds, then 99.5 to "
    "99.9 %) that the intervals of all looks together hold the effect with 95 %. It ends at -1 and 1 for rates and "
    "shares. It includes the variance over test prompts; where the errors of single prompts are not kept, the most "
    "that it can be, the standard errors of both sides added. 'These prompts' follows the seeds where nothing is "
    "known of it, or the verdict would not stand the most. Not learned: the median model of a side errs in training"
    " conditions at least a quarter as much as the best reference that reads no example, so that nothing is judged "
    "away from them. No better than trivial: in the cells of the claim a side errs no less than such a reference. "
    "Untrained positions: learned positions beyond the training length. At the ceiling: both sides within the "
    "margin of an end of a rate or share. Small scale: preset nano or smoke. Nothing to judge: what the claim is "
    "about did not occur in half of the seeds or more; where it occurred in most, the others are passed over and "
    "named. Exploratory: seeds finished before the claim was registered are among those that judge it, for lack of "
    "three later ones. One block: all seeds were trained at one commit on one class of machine. A verdict holds at "
    f"its scale and says nothing about another one. {sequential.RISK}"
)


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """Finding on a claim at one scale, as it is judged, stored and shown: its fields are the columns of the record.

    Effects are left against right: the logarithm of their ratio, or their difference. Unknown numbers are NaN.
    """

    experiment: str = ""
    preset: str = ""
    claim: str  # its statement
    relation: Relation
    state: State
    direction: Direction = Direction.INCONCLUSIVE
    size: EffectSize = EffectSize.INCONCLUSIVE
    agrees: bool | None = None  # False: the interval shows the opposite of the claim; None: neither
    decided: bool = False  # the interval answers the claim, so that no further seed is needed
    margin: float = math.nan  # of no difference
    scale: Scale | None = None
    effect: float = math.nan
    low: float = math.nan
    high: float = math.nan
    confidence: float = math.nan  # of the interval
    pairing: Literal["", "paired", "unpaired"] = ""  # of the interval over seeds; empty where nothing is trained
    other_low: float = math.nan  # the interval of the other pairing, which decides nothing
    other_high: float = math.nan
    rates: Literal["", "shared", "own", "different"] = ""  # learning rates of both sides
    p: float = math.nan
    q: float = math.nan  # false discovery rate at which it is still among the discoveries of all
    printed: float = math.nan  # effect
    seeds: tuple[int, ...] = ()  # the training seeds that it rests on
    left: tuple[float, ...] = ()  # the value of each seed
    right: tuple[float, ...] = ()
    right_seeds: tuple[int, ...] = ()  # of the right side, where it has others than the left
    blocks: tuple[int, ...] = ()  # of each seed: commit and class of machine, numbered
    more: int | None = None  # further seeds that would decide it, were effect and spread to stay
    more_prompts: int | None = None  # seeds that would, if all test prompts that there are were asked
    chance: float = math.nan  # that up to 64 seeds decide it
    hours: float = math.nan  # of one core, for one more seed of both sides
    seeds_error: float = math.nan  # standard error over training seeds
    prompts_error_below: float = math.nan  # over test prompts
    prompts_error_above: float = math.nan
    note: str = ""  # why nothing is judged
    unlearned: str = ""  # how many of the tested models have not learned their task
    these_prompts: bool = False  # the interval is about seeds alone: what single prompts add is not kept
    skipped: tuple[int, ...] = ()  # seeds in which what the claim is about did not occur
    left_out: tuple[int, ...] = ()  # seeds that suggested the claim, or were finished before it was registered
    exploratory: bool = False  # such seeds judge it
    study: str = ""  # folder of the analysis that it is read from; empty where it is read from grids
    theory: bool = False  # a bound or an identity, which no training enters
    specs: tuple[str, ...] = ()  # hashes of its trainings, each with ->NORMALIZER where one is put in for the test
    judged_from: str = ""  # checksum of runs, studies and file

    @property
    def judged(self) -> bool:
        """True if direction and size were read from an interval."""
        return self.state is State.JUDGED

    @property
    def open(self) -> bool:
        """True if further seeds may decide it."""
        return self.state in (State.FEW_SEEDS, State.NOT_RUN) or (self.judged and not self.decided)

    @property
    def gaps(self) -> list[float]:
        """Effect of each seed; nothing where both sides have seeds of their own."""
        if self.right_seeds:
            return []
        pairs = zip(self.left, self.right, strict=True)
        return [math.log(a) - math.log(b) if self.ratio else a - b for a, b in pairs]

    @property
    def ratio(self) -> bool:
        """True where left over right is compared, False where left minus right is."""
        return self.scale == "log-ratio"

    def shown(self, value: float) -> float:
        """Return an effect as the ratio or the difference that it is."""
        return (math.inf if value > LARGEST else math.exp(value)) if self.ratio else value

    @property
    def interval(self) -> str:
        """The effect with its interval; empty where there is none."""
        effect, low, high = map(self.shown, (self.effect, self.low, self.high))
        return "" if math.isnan(effect) else md.interval(effect, low, high)

    @property
    def confidence_words(self) -> str:
        """The confidence of the interval: "99 % interval"; empty where there is none."""
        return "" if math.isnan(self.confidence) else f"{100 * self.confidence:.4g} % interval"

    @property
    def printed_words(self) -> str:
        """The printed effect on the same cells; empty where there is none."""
        return "" if math.isnan(self.printed) else f"{self.shown(self.printed):.3g}"

    @property
    def outcome(self) -> str:
        """The direction, or why nothing is judged."""
        return str(self.direction if self.judged else self.state)

    @property
    def small(self) -> bool:
        """True of a small scale."""
        return self.preset in SMALL

    @property
    def marks(self) -> str:
        """Marks of a direction, as ``MARKS`` explains them."""
        return "†" * self.may_be_chance + "‡" * self.limited + "°" * (self.judged and self.small)

    @property
    def limited(self) -> bool:
        """True if it is exploratory, or holds for one block of seeds or for these test prompts alone."""
        return self.judged and (self.exploratory or self.these_prompts or self.one_block)

    @property
    def one_block(self) -> bool:
        """True if all seeds were trained at one commit on one class of machine."""
        return len(set(self.blocks)) == 1 and self.count >= FIRST

    @property
    def count(self) -> int:
        """Training seeds of the side that has fewer."""
        return min(len(self.seeds), len(self.right_seeds) or len(self.seeds))

    @property
    def counts(self) -> str:
        """Training seeds in numbers: "5", or "5 and 32" of left and right."""
        return f"{len(self.seeds)}" + (f" and {len(self.right_seeds)}" if self.right_seeds else "")

    @property
    def direction_words(self) -> str:
        """The direction with its marks, or why nothing is judged."""
        return self.outcome + self.marks

    @property
    def other_interval(self) -> str:
        """The interval of the other pairing, which decides nothing; empty where there is none."""
        if math.isnan(self.other_low):
            return ""
        low, high = map(self.shown, (self.other_low, self.other_high))
        return f"{'unpaired' if self.pairing == 'paired' else 'paired'} [{low:.3g}, {high:.3g}]"

    @property
    def intervals(self) -> str:
        """The effect with its interval, and that of the other pairing."""
        return "; ".join(filter(None, (self.interval, self.other_interval)))

    @property
    def size_words(self) -> str:
        """The size, with the margin where the effect was held against it; empty where it is inconclusive."""
        known = self.judged and self.size is not EffectSize.INCONCLUSIVE
        return size_words(self.size, self.margin, self.scale or "log-ratio") if known else ""

    @property
    def verdict(self) -> str:
        """The verdict in words: "below; less than a quarter either way"."""
        if not self.judged:
            return str(self.state)
        return verdict_words(self.direction, self.size, self.margin, self.scale or "log-ratio")

    @property
    def may_be_chance(self) -> bool:
        """True if its direction may be a chance find among all claims."""
        return self.direction is not Direction.INCONCLUSIVE and self.q > RATE

    @property
    def marked(self) -> str:
        """The verdict, with a warning where its direction may be a chance find, and at a small scale."""
        warnings = [CHANCE_FIND] * self.may_be_chance + ["small scale"] * (self.judged and self.small)
        return "; ".join([self.verdict, *warnings])

    @property
    def short(self) -> str:
        """The verdict as short as ``LEGEND`` explains it."""
        if not self.judged:
            return str(self.state)
        size = SAID_ONCE.sub("", self.size)
        if self.scale and "margin" in self.size and self.margin != MARGIN[self.scale]:
            size += f" {self.shown(self.margin):.3g}"
        known = [str(word) for word in (self.direction, size) if word != Direction.INCONCLUSIVE]
        return (", ".join(known) or str(Direction.INCONCLUSIVE)) + self.marks

    @property
    def words(self) -> str:
        """The effect with its interval, a ratio or a difference, the seeds, and what limits it."""
        return "; ".join(filter(None, (self.effect_words, *self.limits)))

    @property
    def effect_words(self) -> str:
        """The effect with its interval, and the seeds that it rests on; empty where there is none."""
        if math.isnan(self.effect):
            return ""
        effect, low, high = map(self.shown, (self.effect, self.low, self.high))
        interval = "no interval" if math.isnan(low) else f"[{low:.3g}, {high:.3g}]"
        right = f" and {span(self.right_seeds)}" if self.right_seeds else ""
        how_sure = ", one seed" if len(self.seeds) == 1 and not right else f" {interval}, {span(self.seeds)}{right}"
        which = "ratio" if self.ratio else "difference"
        return f"{which} {effect:.3g}{how_sure}" + ", these prompts" * self.these_prompts

    @property
    def limits(self) -> list[str]:
        """Limits: why nothing is judged, models that have not learned, seeds left out or passed over."""
        before = f"{span(self.left_out)} predate the claim; excluded" if self.left_out else ""
        if math.isnan(self.effect):
            return [each for each in (self.note, before) if each]
        skipped = f"nothing to judge in {span(self.skipped)}" if self.skipped else ""
        block = "one block" if self.one_block else ""
        exploratory = "exploratory" if self.exploratory else ""
        limits = (self.note, self.unlearned, before, skipped, exploratory, block, self.other_interval)
        return [each for each in (*limits, RATES[self.rates]) if each]

    @property
    def outlook(self) -> str:
        """Needs of a claim that is open: seeds and hours of one core, or more test prompts."""
        if self.state is State.FEW_SEEDS and self.more is not None:
            return f"{_seeds(self.more)} for a first look"
        if not self.judged or self.decided:
            return ""
        if self.more is not None:
            cost = "" if math.isnan(self.hours) else f", {_time(self.more * self.hours)} on one core"
            return f"about {_seeds(self.more)}{cost}"
        if self.more_prompts is not None:
            return f"more test prompts, then about {self.more_prompts} seeds"
        return f"{'probably ' * (self.chance >= LIKELY)}more than {max(sequential.SPENT)} seeds"


COLUMNS = {field.name: field for field in msgspec.structs.fields(Finding)}


def _seeds(count: int) -> str:
    return f"{count} more seed{'s' * (count > 1)}"


def _time(hours: float) -> str:
    return f"{hours:.2g} h" if hours >= 1 else f"{max(1, round(60 * hours))} min"


def span(seeds: Sequence[int]) -> str:
    """Name training seeds: "seeds 0 to 7", or one by one where some are left out."""
    if len(seeds) == 1:
        return f"seed {seeds[0]}"
    whole = list(seeds) == list(range(seeds[0], seeds[-1] + 1))
    return f"seeds {seeds[0]} to {seeds[-1]}" if whole else f"seeds {', '.join(map(str, seeds))}"


def rated(findings: Sequence[Finding]) -> list[Finding]:
    """Return findings with the false discovery rates that they have among all of them; theory has none.

    Source: Benjamini & Hochberg 1995, J. R. Stat. Soc. B 57. Where nothing is judged it is NaN and does not count.
    """
    p = np.array([each.p if each.judged and not each.theory else math.nan for each in findings], dtype=float)
    known = ~np.isnan(p)
    if known.any():
        p[known] = scipy.stats.false_discovery_control(p[known])
    return [replace(each, q=float(q)) for each, q in zip(findings, p, strict=True)]


def strongest(findings: Iterable[Finding]) -> list[Finding]:
    """Return each claim once: at the largest scale that decides it, else at the one with most seeds."""
    chosen = dict[tuple[str, str], Finding]()
    for each in findings:
        key = each.experiment, each.claim
        chosen[key] = max((chosen.get(key, each), each), key=_strength)
    return list(chosen.values())


def _strength(found: Finding) -> tuple[bool, bool, bool, int, int]:
    scale, ran = list(PRESETS).index(found.preset), found.state is not State.NOT_RUN
    return found.decided, found.judged, ran, scale if found.decided else found.count, scale


def paper_of(text: str) -> str:
    """Return the short name of the paper that an experiment's file names first."""
    found = {name: text.find(paper.mark) for name, paper in PAPERS.items() if paper.mark in text}
    return min(found, key=lambda name: found[name], default="")


def tally(findings: Iterable[Finding]) -> str:
    """Count verdicts in words, those with a printed effect apart: "2 claims: 1 as claimed; 1 not run"."""
    every = list(findings)
    printed, others = [e for e in every if not math.isnan(e.printed)], [e for e in every if math.isnan(e.printed)]
    claims = f"{len(printed or others)} claim{'s' * (len(printed or others) != 1)}"
    if not printed:
        return f"{claims}: {_verdicts(others)}"
    said = f"{claims} with a printed effect: {_verdicts(printed)}"
    if not others:
        return said
    return f"{said}. {len(others)} without one, controls of this laboratory among them: {_verdicts(others)}"


def _verdicts(every: Sequence[Finding]) -> str:
    judged = [each for each in every if each.judged]
    answers = [each.agrees for each in judged]
    counts = {"as claimed": answers.count(True), "against the claim": answers.count(False)}
    counts["inconclusive"] = answers.count(None)
    states, sizes = [each.state for each in every if not each.judged], [each.size for each in judged]
    printed = {
        size: sizes.count(size)
        for size in (EffectSize.AS_PRINTED, EffectSize.SMALLER, EffectSize.LARGER, EffectSize.EXCLUDED)
    }
    parts = [_counted(counts), _counted({state: states.count(state) for state in State})]
    parts.append(f"size: {_counted(printed)}" if any(printed.values()) else "")
    return "; ".join(filter(None, parts)) or "none"


def _counted(counts: Mapping[str, int] | Mapping[State, int] | Mapping[EffectSize, int]) -> str:
    return ", ".join(f"{count} {name}" for name, count in counts.items() if count)


def table(findings: Iterable[Finding], address: str = "") -> list[str]:
    """Return lines of a Markdown table; the name of a claim's experiment leads to ``address``/NAME.toml."""
    head = md.head(["claim", "printed", "ours", "direction", "size", "scale, seeds", "experiment"])
    return [*head, *(md.row(_cells(each, address)) for each in findings)]


def _cells(found: Finding, address: str) -> list[str]:
    name = md.code(found.experiment)
    ran = found.state is not State.NOT_RUN
    return [
        found.claim,
        found.printed_words or "—",
        found.intervals or found.words or "—",
        found.direction_words,
        found.size_words or "inconclusive" if found.judged else "—",
        ", ".join(filter(None, (f"`{found.preset}`", found.counts, RATES[found.rates]))) if ran else "—",
        f"[{name}]({address}/{found.experiment}.toml)" if address else name,
    ]


def short_table(findings: Iterable[Finding]) -> list[str]:
    """Return findings as lines of a Markdown table for a terminal: a row per claim."""
    rows = [
        [each.claim, each.interval or "—", each.printed_words or "—", each.short, f"{each.preset}, {each.counts}"]
        for each in findings
    ]
    return md.table(["claim", "ours", "printed", "verdict", "scale, seeds"], rows)


def page(findings: Iterable[Finding]) -> list[str]:
    """Return the lines of a paper's page: the count, the legend, and a table with a row for each experiment and scale.

    The claims of an experiment at one scale with as many seeds follow such a row.
    """
    every = list(findings)
    groups = dict[str, dict[str, list[Finding]]]()
    for each in sorted(every, key=lambda found: found.small):  # a small scale leads no page
        ran = each.state is not State.NOT_RUN
        where = f", `{each.preset}`, {each.counts} seed{'s' * (each.counts != '1')}" if ran else ""
        where += f", {RATES[each.rates]}" if ran and each.rates else ""
        groups.setdefault(each.experiment, {}).setdefault(f"**{each.experiment}**{where}", []).append(each)
    rows = list[str]()
    for title, group in (pair for each in groups.values() for pair in each.items()):
        rows += [md.row([title, "", ""]), *map(md.row, _short_cells(group))]
    return [f"{tally(every)}.", "", LEGEND, "", *md.head(["claim", "ours", "verdict"]), *rows]


def _short_cells(findings: Sequence[Finding]) -> Iterator[list[str]]:
    above = list[str]()
    for each in findings:
        words = each.claim.split()
        alike = len(list(takewhile(lambda pair: pair[0] == pair[1], zip(above, words, strict=False))))
        above = words
        claim = " ".join(["…", *words[alike:]]) if DITTO <= alike < len(words) else each.claim
        printed = f" (printed {each.printed_words})" if each.printed_words else ""
        yield [claim, (each.intervals or each.words or "—") + printed, each.short]


def lines(made: "Experiment | Titled", findings: Iterable[Finding]) -> list[str]:
    """Return findings of an experiment as lines for the terminal: verdict, effect, printed effect, outlook."""
    claims = {claim.statement: claim for claim in made.claims}
    shown = [made.title]
    for found in findings:
        claim = claims.get(found.claim)
        effect = found.printed_words or (claim.published if claim else "")
        shown.append(f"  {found.claim} ({claim.where if claim else ''})")
        parts = [found.marked, found.words, found.confidence_words, f"printed {effect}" * bool(effect), found.preset]
        shown.append("    " + " | ".join(filter(None, parts)))
        shown += [f"    {found.outlook} would decide it"] if found.outlook else []
    return shown


def stale_citations(text: str, findings: Iterable[Finding]) -> Iterator[str]:
    """Yield a sentence for each verdict that a text cites and that is another one now, or does not exist."""
    verdicts = {(each.experiment, each.claim, each.preset): each.verdict for each in findings}
    for name, statement, preset, cited in CITES.findall(text):
        now = verdicts.get((name, statement, preset))
        if now is None:
            yield f"{name} has no claim '{statement}' that was run at {preset}, which a paragraph cites"
        elif now != cited:
            yield f"{name}, '{statement}', is '{now}' at {preset}, and a paragraph cites it as '{cited}'"


def encode(findings: Iterable[Finding]) -> str:
    """Return findings as CSV, a column for each field; a cell is empty where a field has its default."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    writer.writerows(
        [_cell(getattr(each, name), field.default) for name, field in COLUMNS.items()] for each in findings
    )
    return text.getvalue()


def _cell(value: object, default: object) -> str:
    if value == default or value != value:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    return " ".join(map(str, value)) if isinstance(value, tuple) else str(value)


def decode(text: str) -> list[Finding]:
    """Read findings from CSV; raises ``ValueError`` where columns or cells are others than ``encode`` writes."""
    head, *rows = csv.reader(io.StringIO(text))
    if head != list(COLUMNS):
        raise ValueError("its columns are those of another version")
    kinds = {name: field.type for name, field in COLUMNS.items()}
    fields = [{name: _read(cell, kinds[name]) for name, cell in zip(head, row, strict=True) if cell} for row in rows]
    return msgspec.convert(fields, list[Finding], strict=False)


def _read(cell: str, kind: Any) -> object:
    if get_origin(kind) is tuple:
        return cell.split()
    return cell == "yes" if bool in (kind, *get_args(kind)) else cell


def stored(store: "Store") -> dict[tuple[str, str], list[Finding]]:
    """Return the repository's record by experiment and preset; empty without one.

    Raises ``RunFailed`` where the file is not such a record.
    """
    path = None if store.archive is None else store.archive.root.parent / NAME
    if path is None or not path.exists():
        return {}
    recorded_basis(store)  # which checks the seal
    found = dict[tuple[str, str], list[Finding]]()
    try:
        for each in decode(path.read_text()):
            found.setdefault((each.experiment, each.preset), []).append(each)
    except (OSError, ValueError, csv.Error, msgspec.ValidationError) as error:
        again = "take it from the repository again, or write it anew: icl-lab claims --record"
        raise RunFailed(f"{path} cannot be read: {error}; {again}.") from error
    return found


def seed_correlation(store: "Store") -> float:
    """Return the correlation of seeds within a block that the repository's record found; 0 where there is none."""
    return float(_basis(store).get("correlation", 0.0))


def recorded_basis(store: "Store") -> str:
    """Return the checksum of what the repository's record was judged from; empty without a record."""
    return _basis(store).get("basis", "")


def basis_text(basis: str, several: int, correlation: float, record: str) -> str:
    """Return the file ``BASIS`` of a record."""
    row = {"basis": basis, "several_blocks": str(several), "correlation": f"{correlation:.3f}"}
    return f"{','.join([*row, 'seal'])}\n{','.join([*row.values(), _seal(row, record.encode())])}\n"


def _seal(row: Mapping[str, str], record: bytes) -> str:
    return sha256(json.dumps([row["basis"], row["several_blocks"], row["correlation"], sha256(record)]).encode())[:16]


def _basis(store: "Store") -> dict[str, str]:
    """The row of the file ``BASIS``; raises ``RunFailed`` where it is not such a file, or where its seal is wrong."""
    path = None if store.archive is None else store.archive.root.parent / BASIS
    if path is None or not path.exists():
        return {}
    record = path.with_name(NAME)
    return _sealed(path, record, path.stat().st_mtime_ns, record.stat().st_mtime_ns if record.exists() else 0)


@lru_cache(maxsize=4)  # it is asked for with each experiment, and the record is large
def _sealed(path: Path, record: Path, *changed: int) -> dict[str, str]:
    try:
        (row,) = csv.DictReader(io.StringIO(path.read_text()))
        # Records from before there were seals have none.
        if "seal" in row and row["seal"] != _seal(row, record.read_bytes()):
            raise ValueError(f"it or {NAME} was damaged or edited")
        return {"basis": row["basis"], "correlation": str(float(row["correlation"]))}
    except (OSError, ValueError, KeyError, TypeError, csv.Error) as error:
        raise RunFailed(f"{path} cannot be read: {error}; take it from the repository again.") from error
