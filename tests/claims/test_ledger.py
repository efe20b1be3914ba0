"""The ledger: every claim at every scale, and which of them is shown."""

import csv
import io
import math
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

from icl_lab.claims import experiment, ledger
from icl_lab.claims.ledger import Finding
from icl_lab.claims.schema import Claim, Quantity
from icl_lab.comparison.verdict import Direction, State
from tests.claims import given

FILES = Path(__file__).parents[2] / "experiments"
PRINTED = math.log(0.064)
CLEAR = (0.5, 0.502, 0.498)
WIDE = (0.5, 1.5, 0.9)


def claim(statement="s"):
    side = Quantity("a", {"sigma_f": [1.0]})
    return Claim(statement=statement, where="w", left=side, is_="below", right=side, published="8 against 45")


def found(*left, statement="s", printed=math.nan, preset="lite", **fields):
    judged = given.judged(claim(statement), left, [1.0] * len(left), printed=printed, hours=0.1)
    return replace(judged, experiment="one", preset=preset, **fields)


def never(statement="s", preset="lite"):
    return Finding(experiment="one", preset=preset, claim=statement, relation="below", state=State.NOT_RUN)


def test_false_discovery_counts_all_but_theory():
    first, second, third, fourth, theory = ledger.rated(
        [
            found(*CLEAR),
            found(*WIDE, statement="t", preset="nano"),
            never("u"),
            found(0.5, statement="v"),  # one seed
            found(*CLEAR, theory=True),
        ]
    )
    assert first.q == pytest.approx(2 * first.p)
    assert second.q == pytest.approx(second.p)
    assert all(math.isnan(each.q) for each in (third, fourth, theory))
    assert math.isnan(ledger.rated([found(*CLEAR, state=State.NOT_LEARNED)])[0].q)


def test_a_direction_that_may_be_a_chance_find_says_so():
    sure, doubtful, open_ = found(*CLEAR, q=0.04), found(*CLEAR, q=0.06), found(*WIDE, q=0.9)
    assert sure.marked == "below; more than a quarter"
    assert doubtful.marked == "below; more than a quarter; may be a chance find"
    assert open_.marked == "inconclusive"


def test_the_largest_scale_that_decides_a_claim_is_shown():
    nano, lite = found(*CLEAR, preset="nano"), found(*CLEAR)
    open_, one_seed = found(*WIDE, preset="lite2"), found(0.5, preset="deep2")
    assert ledger.strongest([lite, one_seed, nano, open_]) == [lite]
    assert ledger.strongest([one_seed, open_]) == [open_]
    more = found(*WIDE, *WIDE, preset="nano")
    assert ledger.strongest([more, open_]) == [more]  # where none decides it, that of most seeds
    assert ledger.strongest([one_seed]) == [one_seed]
    not_run = never(preset="deep2")
    assert ledger.strongest([not_run, one_seed]) == [one_seed]
    other = found(*CLEAR, statement="t")
    assert ledger.strongest([lite, other]) == [lite, other]


def test_the_table_says_direction_and_size():
    below, printed, unrun = found(*CLEAR), found(*CLEAR, printed=PRINTED, statement="t"), never("u")
    head, line, first, second, third = ledger.table([below, printed, unrun], "there")
    assert first.count("|") == second.count("|") == third.count("|") == head.count("|") == line.count("|")
    assert first.startswith("| s | — | 0.5 [0.")
    assert "| below | more than a quarter | `lite`, 3 | [`one`](there/one.toml) |" in first
    assert "| t | 0.064 | 0.5 [" in second
    assert "| below | smaller than printed |" in second
    assert third == "| u | — | — | not run | — | — | [`one`](there/one.toml) |"


def test_a_papers_page_says_nothing_twice():
    """A claim that begins as the one above it, after a row for each experiment and scale."""
    first, second = (found(*CLEAR, statement=f"SSA errs less than {name}", q=0.01) for name in ("softmax", "poly"))
    own = found(*CLEAR, statement="Not at home", printed=PRINTED, preset="nano", q=0.9)
    more = replace(found(1.0, 1.01, 0.99, statement="As much"), margin=math.log(1.1))
    tally, _, legend, _, *rows = ledger.page([first, own, second, more, never("u")])
    assert (tally, legend) == (f"{ledger.tally([first, second, more, own, never()])}.", ledger.LEGEND)
    assert rows.pop(5).endswith("| within 1.1 |")
    assert rows == [
        *("| claim | ours | verdict |", "| --- | --- | --- |", "| **one**, `lite`, 3 seeds |  |  |"),
        f"| SSA errs less than softmax | {first.interval} | below, beyond |",
        f"| … poly | {second.interval} | below, beyond |",
        *("| **one** |  |  |", "| u | — | not run |"),
        "| **one**, `nano`, 3 seeds |  |  |",  # a small scale comes last
        f"| Not at home | {own.interval} (printed 0.064) | below, smaller†° |",
    ]


def test_the_csv_holds_every_number():
    clear, wide, unrun = found(*CLEAR, printed=PRINTED, q=0.001), found(*WIDE), never("u")
    first, second, third = csv.DictReader(io.StringIO(ledger.encode([clear, wide, unrun])))
    assert float(first["effect"]) == pytest.approx(math.log(0.5), abs=1e-3)
    assert float(first["confidence"]) == pytest.approx(0.99)
    assert float(first["printed"]) == pytest.approx(math.log(0.064))
    assert (first["seeds"], first["agrees"], first["decided"], first["chance"]) == ("0 1 2", "yes", "yes", "")
    assert float(first["seeds_error"]) == pytest.approx(clear.seeds_error)
    assert (second["agrees"], second["decided"], second["direction"]) == ("", "", "")
    assert 0 < float(second["chance"]) == wide.chance < 1
    assert (third["state"], third["effect"], third["printed"]) == ("not run", "", "")


@pytest.mark.parametrize("agrees", [True, False, None])
def test_a_finding_comes_back_from_the_record_as_it_was(agrees):
    """Each field with a value other than its default, and with it."""
    more = {"more": 2, "more_prompts": 5, "note": "a, note", "unlearned": "u", "study": "s", "specs": ("a", "b->c")}
    more |= {"decided": True, "blocks": (0, 1, 0), "left_out": (3, 4), "skipped": (7,)}
    flags = dict.fromkeys(("theory", "exploratory", "these_prompts"), True)
    whole = found(*WIDE, q=0.5, agrees=agrees, **more, **flags)
    whole = replace(whole, direction=Direction.BELOW, p=0.1 + 0.2, low=-math.inf)
    (back, unrun) = ledger.decode(ledger.encode([whole, never("u")]))
    assert repr(back) == repr(whole)  # NaN is no equal of itself
    assert repr(unrun) == repr(never("u"))


@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        ("direction", "verdict", "columns are those of another version"),
        ("below,judged", "below,guessed", "Invalid enum value 'guessed'"),
        ("0 1 2", "0 one 2", "Expected `int`"),
    ],
)
def test_a_record_that_is_none_is_refused(old, new, complaint):
    text = ledger.encode([found(*CLEAR)])
    assert old in text
    with pytest.raises((ValueError, msgspec.ValidationError), match=complaint):
        ledger.decode(text.replace(old, new, 1))


def test_verdicts_are_counted_in_words():
    counted = ledger.tally([found(*CLEAR, printed=PRINTED), found(2.0, 2.01, 1.99), found(*WIDE), never()])
    assert counted == (
        "1 claim with a printed effect: 1 as claimed; size: 1 smaller than printed. "
        "3 without one, controls of this laboratory among them: 1 against the claim, 1 inconclusive; 1 not run"
    )
    assert ledger.tally([never()]) == "1 claim: 1 not run"


def test_lines_for_the_terminal():
    made = experiment.load("ssa-table1", FILES)
    first = made.claims[0]
    finding = given.judged(first, WIDE, [1.0] * 3, printed=PRINTED, hours=0.1)
    title, statement, told, outlook = ledger.lines(made, [finding])
    assert title == made.title
    assert statement == f"  {first.statement} ({first.where})"
    assert told.startswith("    inconclusive | ratio 0.877 [")
    assert "| printed 0.064 | lite" in told
    assert outlook.endswith("would decide it")


def test_papers_are_told_apart_by_what_their_files_name_first():
    assert ledger.paper_of("Naim 2025, arXiv 2508.14685, App J; Nakanishi 2025, arXiv 2501.19399") == "ssa"
    assert ledger.paper_of("Nakanishi 2025, arXiv 2501.19399, Figure 2") == "ssmax"
    assert ledger.paper_of("of our own") == ""
    named = {ledger.paper_of(experiment.load(name, FILES).paper) for name in experiment.names(FILES)}
    assert set(ledger.PAPERS) <= named
