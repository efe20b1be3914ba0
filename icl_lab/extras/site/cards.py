"""Cards of normalizers as the site shows them: the table on its first page, and a page each."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from icl_lab.base import markdown as md
from icl_lab.claims import card
from icl_lab.claims import experiment as experiments
from icl_lab.claims.card import BASELINE, FOLDER, VERSION, Answers, Card
from icl_lab.claims.ledger import Finding
from icl_lab.execute import judge
from icl_lab.execute.where import Where
from icl_lab.extras.site.names import address
from icl_lab.runs.store import Store

TONES = {"better": "yes", "worse": "no", "alike": "same"}


@dataclass(frozen=True)
class Cards:
    """The questions of the suite, the verdicts of ``judge --all`` on each, and cards of normalizers with runs."""

    questions: Mapping[str, str] = field(default_factory=dict)  # text of each, ``RULE`` in place of the normalizer
    found: Mapping[str, Answers] = field(default_factory=dict)  # by normalizer
    cards: Sequence[Card] = ()

    @property
    def rows(self) -> list[tuple[Card, list[Finding | None]]]:
        """Cards with the finding on every question, most verdicts first."""
        rows = [(each, [self.found[each.rule].get(name) for name in self.questions]) for each in self.cards]
        return sorted(rows, key=lambda row: -sum(found is not None and found.judged for found in row[1]))


NONE = Cards()


def stored(store: Store, where: Where) -> Cards:
    """Judge all normalizers against softmax on stored runs; none where the experiments have no suite.

    Verdicts are those of ``judge --all``, cards those of ``judge``; nothing is trained.
    """
    if not (experiments.place(Path(where.experiments)) / FOLDER / VERSION).is_file():
        return NONE
    found = judge.judge_all(judge.Trial(""), store, where)[BASELINE]
    asked = [claim for made in card.suite(Path(where.experiments)).experiments for claim in made.claims]
    return Cards({claim.where: claim.statement for claim in asked}, found, judge.cards(found, store, where))


def page(made: Card) -> str:
    """Return the path of the page of a card."""
    return f"judge/{address(made.rule)}.html"


def tone(found: Finding | None) -> str:
    """Return the tone of a verdict, that of a claim with the same meaning."""
    if found is None or not found.judged:
        return "none"
    return TONES.get(card.verdict(found), "open")


def interval(found: Finding | None) -> str:
    """Return the interval of the effect in two digits; empty where there is none."""
    if found is None or math.isnan(found.low):
        return ""
    return f"[{md.short(found.shown(found.low))}, {md.short(found.shown(found.high))}]"
