"""The ledger: every claim at every scale, and which of them is shown."""

import csv
import dataclasses
import io
import math
from pathlib import Path

import pytest

from icl_lab.comparison.verdict import Verdict
from icl_lab.papers import experiment, ledger
from icl_lab.papers.ledger import Entry
from icl_lab.papers.schema import Claim, Quantity
from icl_lab.papers.verdicts import Finding, judge
from icl_lab.runs.store import Store

FILES = Path(__file__).parents[2] / "experiments"


def claim(statement="s"):
    side = Quantity("a", {"sigma_f": [1.0]})
    return Claim(statement=statement, where="w", left=side, is_="below", right=side, published="8 against 45")


def found(*left, statement="s"):
    return judge(claim(statement), range(len(left)), left, [1.0] * len(left), "log-ratio", hours=0.1)


CLEAR = (0.5, 0.502, 0.498)
WIDE = (0.5, 1.5, 0.9)
AFTER = (*CLEAR, 0.5, 0.505, 0.495)


def test_false_discovery_rates_are_over_what_is_judged():
    entries = ledger.among(
        [
            Entry(experiment="one", paper="p", preset="lite", finding=found(*CLEAR)),
            Entry(experiment="two", paper="p", preset="lite", finding=found(*WIDE, statement="t")),
            Entry(
                experiment="three", paper="p", preset="lite", finding=Finding(claim=claim("u"), verdict=Verdict.NOT_RUN)
            ),
            Entry(experiment="four", paper="p", preset="lite", finding=found(0.5, statement="v")),  # one seed
        ]
    )
    first, second, third, fourth = entries
    assert first.q == pytest.approx(2 * first.finding.decision.p)
    assert second.q == pytest.approx(second.finding.decision.p)
    assert math.isnan(third.q)
    assert math.isnan(fourth.q)


def test_a_verdict_that_holds_only_by_itself_is_marked():
    assert Entry(experiment="one", paper="p", preset="lite", finding=found(*CLEAR), q=0.04).said == "supported"
    assert Entry(experiment="one", paper="p", preset="lite", finding=found(*CLEAR), q=0.06).said == "supported (alone)"
    assert Entry(experiment="one", paper="p", preset="lite", finding=found(*WIDE), q=0.9).said == "inconclusive"


def test_the_scale_with_most_seeds_is_shown_and_of_equals_the_larger():
    few, many = (
        Entry(experiment="one", paper="p", preset="lite", finding=found(*CLEAR)),
        Entry(experiment="one", paper="p", preset="nano", finding=found(*WIDE, 0.7, 1.1)),
    )
    assert ledger.strongest([few, many]) == [many]
    large = Entry(experiment="one", paper="p", preset="lite2", finding=found(*CLEAR))
    assert ledger.strongest([large, few]) == [large]
    never = Entry(experiment="one", paper="p", preset="", finding=Finding(claim=claim(), verdict=Verdict.NOT_RUN))
    assert ledger.strongest([never, few]) == [few]
    other = Entry(experiment="one", paper="p", preset="lite", finding=found(*CLEAR, statement="t"))
    assert ledger.strongest([few, other]) == [few, other]


def test_the_table_says_all_and_the_csv_holds_every_number():
    entries = [
        Entry(experiment="one", paper="p", preset="lite", finding=found(*CLEAR), q=0.001),
        Entry(experiment="one", paper="p", preset="", finding=Finding(claim=claim("u"), verdict=Verdict.NOT_RUN)),
    ]
    assert ledger.tally(entries) == "2 claims: 1 supported, 1 not run"
    twice = [*entries, Entry(experiment="one", paper="p", preset="nano", finding=found(*WIDE))]
    assert ledger.tally(twice) == "2 claims, judged 3 times, once a scale: 1 supported, 1 not run, 1 inconclusive"
    head, line, first, second = ledger.table(entries)
    assert first.count("|") == second.count("|") == head.count("|") == line.count("|")
    assert "ratio 0.5 [" in first
    assert "seeds 0 to 2" in first
    assert "| — | — | not run |" in second
    rows = list(csv.DictReader(io.StringIO(ledger.table_csv(entries))))
    assert float(rows[0]["effect"]) == pytest.approx(math.log(0.5), abs=1e-3)
    assert float(rows[0]["confidence"]) == pytest.approx(0.99)
    assert rows[0]["seeds"] == "0 1 2"
    assert (rows[1]["verdict"], rows[1]["effect"]) == ("not run", "")
    assert (rows[0]["later"], rows[0]["later_seeds"], rows[0]["later_effect"]) == ("", "", "")
    assert (rows[0]["chance"], rows[0]["prompts_error_below"], rows[1]["seeds_error"]) == ("", "nan", "")
    decision = entries[0].finding.decision
    assert float(rows[0]["seeds_error"]) == pytest.approx(decision.effect.seeds_error)
    open_claim = found(*WIDE)
    (row,) = csv.DictReader(
        io.StringIO(ledger.table_csv([Entry(experiment="one", paper="p", preset="nano", finding=open_claim)]))
    )
    assert 0 < float(row["chance"]) == open_claim.chance < 1
    (later,) = csv.DictReader(
        io.StringIO(ledger.table_csv([Entry(experiment="one", paper="p", preset="lite", finding=found(*AFTER))]))
    )
    assert (later["later"], later["later_seeds"]) == ("borne out", "3 4 5")
    assert float(later["later_low"]) < float(later["later_effect"]) < float(later["later_high"])
    assert float(later["later_effect"]) == pytest.approx(math.log(0.5), abs=1e-3)


def test_a_claim_leads_to_the_study_that_it_is_read_from():
    read = dataclasses.replace(found(*CLEAR), study=Path("results/experiments/one-lite-0a1b2c"))
    entries = [
        Entry(experiment="one", paper="p", preset="lite", finding=read),
        Entry(experiment="one", paper="p", preset="nano", finding=found(*CLEAR)),
    ]
    from_study, from_grids = ledger.table(entries, studies="there")[2:]
    assert from_study.startswith("| [`one`](there/one-lite-0a1b2c/table.md) |")
    assert from_grids.startswith("| `one` |")
    assert ledger.table(entries)[2].startswith("| `one` |")
    rows = csv.DictReader(io.StringIO(ledger.table_csv(entries)))
    assert [row["study"] for row in rows] == ["one-lite-0a1b2c", ""]


def test_papers_are_told_apart_by_what_their_files_name_first():
    assert ledger.paper_of("Naim 2025, arXiv 2508.14685, App J; Nakanishi 2025, arXiv 2501.19399") == "ssa"
    assert ledger.paper_of("Nakanishi 2025, arXiv 2501.19399, Figure 2") == "ssmax"
    assert ledger.paper_of("of our own") == ""
    named = {ledger.paper_of(experiment.load(name, FILES).paper) for name in experiment.names(FILES)}
    assert set(ledger.PAPERS) <= named


@pytest.mark.slow
def test_without_results_every_claim_stands_once_as_not_run(tmp_path):
    entries = ledger.everywhere(FILES, Store(tmp_path))
    claims = [text.statement for name in experiment.names(FILES) for text in experiment.load(name, FILES).claims]
    assert [entry.finding.claim.statement for entry in entries] == claims
    assert {entry.finding.verdict for entry in entries} == {Verdict.NOT_RUN}


def test_a_claim_that_was_not_learned_is_no_discovery():
    closed = dataclasses.replace(found(*CLEAR), verdict=Verdict.NOT_LEARNED)
    (entry,) = ledger.among([Entry(experiment="one", paper="p", preset="lite", finding=closed)])
    assert math.isnan(entry.q)
