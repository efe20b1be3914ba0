"""The ledger: every claim at every scale, and which of them is shown."""

import csv
import io
import math
from dataclasses import replace
from pathlib import Path

import pytest

from icl_lab.comparison.verdict import State, Verdict
from icl_lab.papers import experiment, ledger, record
from icl_lab.papers.ledger import JudgedClaim
from icl_lab.papers.printed import PublishedEffect
from icl_lab.papers.schema import Claim, Quantity
from icl_lab.papers.verdicts import Evidence, Finding, judge

FILES = Path(__file__).parents[2] / "experiments"
PRINTED = PublishedEffect(value=math.log(0.064), source="t")
CLEAR = (0.5, 0.502, 0.498)
WIDE = (0.5, 1.5, 0.9)


def claim(statement="s"):
    side = Quantity("a", {"sigma_f": [1.0]})
    return Claim(statement=statement, where="w", left=side, is_="below", right=side, published="8 against 45")


def found(*left, statement="s", printed=None):
    evidence = Evidence(seeds=range(len(left)), left=left, right=[1.0] * len(left), scale="log-ratio")
    return judge(claim(statement), evidence, printed, 0.1)


def entry(finding, preset="lite", experiment="one", **fields):
    return JudgedClaim(experiment=experiment, preset=preset, finding=finding, **fields)


def rows(*entries):
    return record.judged(entries)


def never(statement="s"):
    return Finding(claim=claim(statement), verdict=Verdict(state=State.NOT_RUN))


def test_false_discovery_counts_all_but_theory():
    first, second, third, fourth, theory = ledger.rated(
        [
            entry(found(*CLEAR)),
            entry(found(*WIDE, statement="t"), preset="nano"),
            entry(never("u")),
            entry(found(0.5, statement="v")),  # one seed
            entry(found(*CLEAR), theory=True),
        ]
    )
    assert first.q == pytest.approx(2 * first.finding.look.p)
    assert second.q == pytest.approx(second.finding.look.p)
    assert all(math.isnan(each.q) for each in (third, fourth, theory))
    closed = replace(found(*CLEAR), verdict=Verdict(state=State.NOT_LEARNED))
    assert math.isnan(ledger.rated([entry(closed)])[0].q)


def test_a_direction_that_may_be_a_chance_find_says_so():
    sure, doubtful, open_ = rows(entry(found(*CLEAR), q=0.04), entry(found(*CLEAR), q=0.06), entry(found(*WIDE), q=0.9))
    assert ledger.verdict_words(sure) == "below; more than a quarter"
    assert ledger.verdict_words(doubtful) == "below; more than a quarter; may be a chance find"
    assert ledger.verdict_words(open_) == "not told"


def test_the_largest_scale_that_decides_a_claim_is_shown():
    nano, lite, open_, one_seed = rows(
        entry(found(*CLEAR), preset="nano"),
        entry(found(*CLEAR)),
        entry(found(*WIDE), preset="lite2"),
        entry(found(0.5), preset="deep2"),
    )
    assert ledger.strongest([lite, one_seed, nano, open_]) == [lite]
    assert ledger.strongest([one_seed, open_]) == [open_]
    (more,) = rows(entry(found(*WIDE, *WIDE), preset="nano"))
    assert ledger.strongest([more, open_]) == [more]  # where none decides it, that of most seeds
    assert ledger.strongest([one_seed]) == [one_seed]
    (not_run,) = rows(entry(never(), preset="deep2"))
    assert ledger.strongest([not_run, one_seed]) == [one_seed]
    (other,) = rows(entry(found(*CLEAR, statement="t")))
    assert ledger.strongest([lite, other]) == [lite, other]


def test_the_table_says_direction_and_size():
    below, printed, unrun = rows(
        entry(found(*CLEAR)), entry(found(*CLEAR, printed=PRINTED, statement="t")), entry(never("u"))
    )
    head, line, first, second, third = ledger.table([below, printed, unrun], "there")
    assert first.count("|") == second.count("|") == third.count("|") == head.count("|") == line.count("|")
    assert first.startswith("| s | — | 0.5 [0.")
    assert "| below | more than a quarter | `lite`, 3 | [`one`](there/one.toml) |" in first
    assert "| t | 0.064 | 0.5 [" in second
    assert "| below | smaller than printed |" in second
    assert third == "| u | — | — | not run | — | — | [`one`](there/one.toml) |"


def test_the_csv_holds_every_number():
    clear, wide, unrun = entry(found(*CLEAR, printed=PRINTED), q=0.001), entry(found(*WIDE)), entry(never("u"))
    first, second, third = csv.DictReader(io.StringIO(ledger.table_csv([clear, wide, unrun])))
    assert float(first["effect"]) == pytest.approx(math.log(0.5), abs=1e-3)
    assert float(first["confidence"]) == pytest.approx(0.99)
    assert float(first["printed"]) == pytest.approx(math.log(0.064))
    assert (first["seeds"], first["agrees"], first["decided"], first["chance"]) == ("0 1 2", "yes", "yes", "")
    assert float(first["seeds_error"]) == pytest.approx(clear.finding.effect.seeds_error)
    assert (second["agrees"], second["decided"], second["direction"]) == ("", "", "not told")
    assert 0 < float(second["chance"]) == wide.finding.chance < 1
    assert (third["state"], third["effect"], third["printed"]) == ("not run", "", "")


def test_verdicts_are_counted_in_words():
    counted = ledger.tally_of(
        rows(
            entry(found(*CLEAR, printed=PRINTED)),
            entry(found(2.0, 2.01, 1.99)),
            entry(found(*WIDE)),
            entry(never()),
        )
    )
    assert counted == (
        "4 claims: 1 as claimed, 1 against the claim, 1 neither told; 1 not run; size: 1 smaller than printed"
    )


def test_lines_for_the_terminal():
    made = experiment.load("ssa-table1", FILES)
    first = made.claims[0]
    evidence = Evidence(seeds=range(3), left=WIDE, right=[1.0] * 3, scale="log-ratio")
    finding = judge(first, evidence, PRINTED, 0.1)
    title, statement, told, outlook = ledger.lines(made, rows(entry(finding, experiment="ssa-table1")))
    assert title == made.title
    assert statement == f"  {first.statement} ({first.where})"
    assert told.startswith("    not told | ratio 0.877 [")
    assert "| printed 0.064 | lite" in told
    assert outlook.endswith("would decide it")


def test_papers_are_told_apart_by_what_their_files_name_first():
    assert ledger.paper_of("Naim 2025, arXiv 2508.14685, App J; Nakanishi 2025, arXiv 2501.19399") == "ssa"
    assert ledger.paper_of("Nakanishi 2025, arXiv 2501.19399, Figure 2") == "ssmax"
    assert ledger.paper_of("of our own") == ""
    named = {ledger.paper_of(experiment.load(name, FILES).paper) for name in experiment.names(FILES)}
    assert set(ledger.PAPERS) <= named
