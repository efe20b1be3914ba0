"""What the findings say of verdicts and the seeds that came after them."""

import pytest

from icl_lab.comparison.verdict import Verdict
from icl_lab.papers import ledger
from icl_lab.papers.ledger import Entry
from icl_lab.papers.schema import Claim, Quantity
from icl_lab.papers.verdicts import Finding, judge

SIDE = Quantity("a", {"sigma_f": [1.0]})


def entry(statement, *left, is_="below"):
    claim = Claim(statement=statement, where="w", left=SIDE, is_=is_, right=SIDE)
    return Entry(
        experiment="one",
        paper="p",
        preset="nano",
        finding=judge(claim, range(len(left)), left, [0.0] * len(left), "difference"),
    )


CLEAR = (-1.0, -1.01, -0.99)
ENTRIES = [
    entry("shrinks", *CLEAR, -0.5, -0.6, -0.4),
    entry("stays", *CLEAR, -0.9, -0.8, -1.0),
    entry("turns", *CLEAR, 0.5, 0.6, 0.7),
    entry("none at first", 0.0, 0.001, -0.001, 0.5, 0.0, 0.1),
    entry("nothing came", *CLEAR),
    entry("open", -1.0, 1.0, 0.3),
    Entry(
        experiment="one",
        paper="p",
        preset="",
        finding=Finding(
            claim=Claim(statement="not run", where="w", left=SIDE, is_="below", right=SIDE), verdict=Verdict.NOT_RUN
        ),
    ),
]


def test_the_summary_counts_verdicts_with_later_seeds():
    told = ledger.replication_summary(ENTRIES)
    assert told.startswith("After 4 of 5 verdicts came three or more training seeds: 2 borne out, 1 not borne out, 1 s")
    assert told.endswith("The effect that later seeds show is 0.50 times that of the verdict (the median).")
    assert ledger.replication_summary(ENTRIES[4:]) == "After none of 1 verdicts came three or more seeds."
    assert ledger.replication_summary(ENTRIES[3:4]).endswith("0 borne out, 1 not borne out, 0 spoken against.")


def test_shares_are_those_of_verdicts_that_are_a_difference():
    assert ledger.effect_shares(ENTRIES) == [pytest.approx(share) for share in (0.5, 0.9, -0.6)]
    equal = entry("equal", 0.0, 0.001, -0.001, 0.01, 0.0, 0.0, is_="equal")
    assert ledger.effect_shares([equal]) == []


def test_the_table_counts_by_looks_and_names_what_is_not_borne_out():
    five = entry("at five", -1.0, -1.3, -0.6, -1.1, -0.9, -0.8, -0.9, -1.0)
    assert len(five.finding.seeds) == 5
    spread = [-0.2, -1.8]  # t of 3.3 over eight seeds, where 3.5 is asked, and of 4.1 over twelve
    twelve = entry("at twelve", *spread * 6, -1.0, -1.0, -1.0)
    assert len(twelve.finding.seeds) == 12
    lines = ledger.replication_table([*ENTRIES, five, twelve])
    assert "| 3 seeds | 2 | 1 | 1 | 0.50 of 3 |" in lines
    assert "| 5 seeds | 1 | 0 | 0 | 0.92 of 1 |" in lines
    assert "| 8 seeds | 0 | 0 | 0 | — |" in lines
    assert "| 12 seeds or more | 1 | 0 | 0 | 1.00 of 1 |" in lines
    first, second = lines[-2:]
    assert first.startswith("| turns (`one`) | `nano` | supported | difference -1 [")
    assert first.endswith("seeds 3 to 5 |")
    assert second.startswith("| none at first (`one`)")
    assert not any("not borne out |" in line for line in ledger.replication_table([*ENTRIES[:2], five])[6:])
