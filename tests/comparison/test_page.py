"""The page of a comparison says what the grids say, stands alone, and contradicts neither itself nor its pictures."""

import base64
import math
import re
from dataclasses import replace
from html import unescape
from urllib.parse import unquote

import pytest
import scipy.stats

from icl_lab import normalizers
from icl_lab.comparison import page
from icl_lab.comparison.page import Row, Section, Table
from icl_lab.comparison.page.facts import Facts, setup
from icl_lab.comparison.page.figures import CROWD
from icl_lab.comparison.page.tables import clear_best, seeds_table
from icl_lab.comparison.page.words import contrasts
from icl_lab.comparison.study import compare
from icl_lab.runs.spec import resolve
from tests.comparison.made import SPEC, facts, study, times

BETTER = {"softmax": times(1.0), "ssa": times(0.1, 0.001), "lssa": times(0.9, 0.05)}


@pytest.fixture(scope="module")
def better():
    return study(BETTER)


@pytest.fixture(scope="module")
def text(better):
    known = facts(better)
    section = Section("Claims", Table(["claim"], [Row(["a sentence"])], "A note above.", words=True), ["A note below."])
    return page.html(
        better,
        SPEC,
        page.pictures(better, known),
        "icl-lab compare <script>alert(1)</script>",
        "here & now",
        [section],
        facts=known,
        files={"comparison.csv": "a,b\n1,<2>\n", "table.md": "# ünï |"},
    )


@pytest.mark.slow
def test_a_page_stands_alone_and_escapes_what_it_is_told(text):
    assert "<script" not in text
    assert "&lt;script&gt;" in text
    assert "here &amp; now" in text
    assert not re.findall(r"(?:src|srcset|href)=\"(?!data:|#)", text), "no file beside it, no request"
    assert len(text) < 1_500_000


@pytest.mark.slow
def test_every_picture_is_there_for_a_desk_and_for_a_telephone(text):
    wide = re.findall(r'<img alt="([^"]+)" src="data:image/png;base64,([^"]+)"', text)
    narrow = re.findall(r'srcset="data:image/png;base64,([^"]+)"', text)
    assert len(wide) == len(narrow) == 5
    for (alt, picture), small in zip(wide, narrow, strict=True):
        sizes = [int.from_bytes(base64.b64decode(data)[16:20], "big") for data in (picture, small)]
        assert sizes[1] <= 600 <= sizes[0]
        assert len(alt) > 40


def test_every_link_of_the_page_has_its_anchor(text):
    links = re.findall(r'href="#([^"]+)"', text)
    assert len(links) >= 10
    assert set(links) <= set(re.findall(r'id="([^"]+)"', text))


def test_downloads_hold_the_files_to_the_letter(text):
    links = dict(re.findall(r'<a download="([^"]+)" href="data:[^,]+,([^"]*)"', text))
    assert unquote(unescape(links["linear-comparison.csv"])) == "a,b\n1,<2>\n"
    assert unquote(unescape(links["linear-table.md"])) == "# ünï |"


def test_the_set_up_and_the_formulas_are_told(text):
    for words in ("2 layers, 4 heads, width 64", "6,000 steps of 32 prompts", "0123456789ab", "2 cores", "0, 1, 2"):
        assert words in text, words
    entries = {entry.name: entry for entry in normalizers.registry.entries()}
    for rule in BETTER:
        assert entries[rule].formula in unescape(text)


def test_fields_in_which_runs_differ_are_said_to(better):
    known = facts(better)
    known["ssa"] = [Facts(resolve("linear", "ssa", "lite", ["model.layers=1"]), "", {}, ())]
    assert dict(setup(better, SPEC, known))["model"].startswith("differs: 2 layers")


def test_notes_on_coverage_stand_below_the_numbers(text):
    assert text.index('class="finding"') < text.index('id="setup"') < text.index('id="forest"')
    assert text.index('id="numbers"') < text.index("simulated studies") > text.index('id="seeds"')


def test_the_finding_names_what_differs_and_what_does_not(better):
    said = page.finding(better)
    assert said.startswith("Against softmax (ratio of errors with its 95 % interval, below 1 is better), over 3 seeds")
    assert "ssa (0.100 [0.09" in said
    assert "errs less" in said
    assert "The other one against softmax: inconclusive." in said
    worse = page.finding(study({"softmax": times(1.0), "ssa": times(2.0, 0.001)}))
    assert "errs more" in worse
    assert "less" not in worse
    same = page.finding(study({"softmax": times(1.0), "ssa": times(1.0, 0.3)}))
    assert "no normalizer differs clearly." in same


def test_training_conditions_are_a_second_declared_summary():
    """By hand: p of a paired t test of log errors, not corrected for one normalizer, whatever cells stand beside it."""
    here = {0: 0.70, 1: 0.78, 2: 0.62}
    factor = lambda s, k: here[k] * (1 + 0.1 * k) if s == 1 else 1.0 + 0.3 * k  # noqa: E731
    some = study({"softmax": times(1.0), "ssa": lambda s, k: factor(s, k) * s * s})
    p = float(scipy.stats.ttest_1samp([math.log(each) for each in here.values()], 0.0).pvalue)
    assert 0.05 / some.family.size < p < 0.05
    mean = math.exp(sum(map(math.log, here.values())) / 3)
    said = page.finding(some)
    assert f". In training conditions: ssa ({mean:.3f} [" in said
    assert f"], p {p:.2g}) errs less." in said
    assert "by the mean log error over sigma_f 2 to 10: no normalizer differs clearly" in said
    assert some.effects("ssa")[1.0, 1.0][1]  # the map does not hatch it
    rows = [row for row in compare(some) if (row.get("sigma_x"), row.get("sigma_f")) == (1, 1)]
    assert [(row["family"], row["p_holm"]) for row in rows] == [(1, pytest.approx(p))]


@pytest.mark.slow
def test_a_difference_that_correction_undoes_is_said_to_be_one():
    rules = {"softmax": times(1.0)} | {f"variant {n}": times(1.02, 0.2) for n in range(8)}
    rules["ssa"] = times(0.8, 0.02)  # alone p is below 0.05, over nine normalizers it is not
    said = page.finding(study(rules))
    assert "no normalizer differs clearly" in said
    assert "not once p is corrected for 9 comparisons: ssa errs less" in said


def test_the_head_of_the_table_says_over_how_many_comparisons(better):
    note = page.table(better, SPEC).note
    assert "over all 10 comparisons with softmax" in note
    assert "over 2 for the summaries" in note
    assert "over 10 comparisons" in page.pictures(better)["ratios"].caption
    assert "over 2 comparisons" in page.pictures(better)["forest"].caption
    lone = study({"softmax": times(1.0), "ssa": times(0.1)}, seeds=1)
    assert "No p values" in page.table(lone, SPEC).note


@pytest.mark.slow
def test_a_mean_is_bold_only_while_its_p_stands_correction():
    """The same two normalizers: clearly apart alone, no longer so beside nine others."""
    rules = {"softmax": times(1.0), "ssa": times(0.5, 0.03)}
    cell = study(rules).line("sigma_f")[1]
    assert clear_best(study(rules), cell) == "ssa"
    crowd = study(rules | {f"variant {n}": times(2.0, 0.002 * (n + 1)) for n in range(9)})
    assert all(crowd.versus("ssa", other, cell).clear for other in crowd.grids if other != "ssa")
    assert clear_best(crowd, cell) == ""


def test_a_difference_within_the_margin_is_said_to_be_small():
    said = page.finding(study({"softmax": times(1.0), "ssa": times(1.01, 0.02), "lssa": times(1.0, 0.3)}))
    assert "no normalizer differs clearly. No difference beyond a factor 1.25: ssa (1.0" in said
    assert said.endswith("The other one against softmax: inconclusive.")


@pytest.mark.slow
def test_the_forest_is_hollow_where_correction_undoes():
    rules = {"softmax": times(1.0), "ssa": times(0.8, 0.02)}
    for more, style in ((0, "full"), (9, "none")):
        made = study(rules | {f"variant {n}": times(1.02, 0.2) for n in range(more)})
        axes = page.pictures(made)["forest"].wide.axes[0]
        row = [label.get_text() for label in axes.get_yticklabels()].index("ssa")
        (dot,) = (line for line in axes.lines if line.get_marker() not in ("None", "|") and line.get_ydata()[0] == row)
        assert dot.get_fillstyle() == style


@pytest.mark.slow
def test_one_seed_decides_nothing():
    lone = study({"softmax": times(1.0), "ssa": times(0.1)}, seeds=1)
    assert page.finding(lone).startswith("One training seed decides nothing")
    assert not any(row.best for row in page.table(lone, SPEC).rows)
    assert "One seed: how much training differs" in page.html(lone, SPEC, {}, "", "")


def test_a_bold_mean_beats_all_others():
    # The next by its mean is clearly behind; the third is so noisy that nothing is known of it.
    noisy = {0: 0.11, 1: 6.0, 2: 0.5}
    rules = {"softmax": lambda s, k: noisy[k] * s * s, "ssa": times(0.1, 0.001), "lssa": times(0.2, 0.003)}
    some = study(rules)
    cell = some.line("sigma_f")[1]
    assert some.versus("ssa", "lssa", cell).clear
    assert not some.versus("ssa", "softmax", cell).clear
    assert clear_best(some, cell) == ""
    assert clear_best(study({**rules, "softmax": times(1.0)}), cell) == "ssa"


@pytest.mark.slow
@pytest.mark.parametrize("noise", [0.01, 0.05, 0.15, 0.3])
def test_no_cell_is_bold_that_the_map_hatches(noise):
    some = study({"softmax": times(1.0), "ssa": times(0.8, noise), "lssa": times(0.85, noise / 3)})
    table = page.table(some, SPEC)
    for row in table.rows:
        if row.reference or row.cells[0] == some.baseline:
            continue
        effects = some.effects(row.cells[0])
        for place in row.best:
            sigma = float(table.head[place].removeprefix("sigma_f "))
            assert effects[1.0, sigma][1], f"{row.cells[0]} at {sigma}"


@pytest.mark.slow
def test_the_rule_of_bold_stands_above_the_table(better, text):
    """In one line; how bold is decided stands at the end of the page, and for the terminal in the documentation."""
    assert text.index("Bold: clearly the least") < text.index("<table") < text.index("against each other normalizer")
    written = page.markdown(better, SPEC, "typed")
    marks = ("Bold: clearly the least", "docs/comparing.md", "| normalizer |")
    assert [written.index(mark) for mark in marks] == sorted(map(written.index, marks))


def test_terms_are_explained_above_the_table(better, text):
    written = page.markdown(better, SPEC, "typed")
    for made, mark in ((text, "<table"), (written, "| normalizer |")):
        line = made[made.index("Words: sigma: a standard deviation") : made.index(mark)]
        assert "zero: answers 0" in line
        assert "below 1 is better" in made


def test_not_learned_stands_in_the_table_and_the_finding(better, text):
    assert "learned" not in page.markdown(better, SPEC, "typed")
    lost = replace(better, not_learned={"ssa": "not learned: error 2"})
    written, shown = page.markdown(lost, SPEC, "typed"), page.html(lost, SPEC, {}, "typed", "here")
    rows = {line.split("|")[1].strip(): line for line in written.splitlines() if line.startswith("| ")}
    assert rows["`ssa`"].endswith(" | not learned |")
    assert rows["`lssa`"].endswith(" | yes |")
    assert "say nothing of the normalizer: ssa." in page.finding(lost)
    assert "ssa (0.100 [" in page.finding(better)
    for unlearned in (lost, replace(better, not_learned={"softmax": "not learned: error 2"})):
        assert not re.search(r"\bssa \(|\bssa err", page.finding(unlearned))
        (found,) = (each for each in contrasts(unlearned) if each.rule == "ssa")
        assert (found.marked, ", p " in found.words) == (False, False)
    assert page.finding(unlearned).startswith("Nothing is compared with softmax. Not learned, ")
    assert "<td>not learned</td>" in shown
    assert "ssa: not learned: error 2." in unescape(shown)


@pytest.mark.slow
def test_the_table_is_bold_where_the_seeds_agree():
    noisy = {0: 0.2, 1: 1.0, 2: 3.0}
    sure = study({"softmax": times(1.0), "ssa": lambda s, k: (0.1 + 0.001 * k) * times(1.0)(s, k)})
    written = page.markdown(sure, SPEC, "typed")
    assert "| `ssa` | **0.11** |" in written
    assert written.index("`ssa`") < written.index("`softmax`") < written.index("reference:zero")
    unsure = study({"softmax": times(1.0), "ssa": lambda s, k: noisy[k] * times(0.5)(s, k)})
    assert "**" not in page.markdown(unsure, SPEC, "typed")


@pytest.mark.slow
def test_every_run_has_a_row_of_its_own(better):
    rows = {row.cells[0]: row.cells[1:] for row in seeds_table(better).rows}
    assert len(rows) == 9
    assert rows["softmax, seed 2"][1] == "4.8"  # 1.0 * 2^2 * 1.2
    assert "| `softmax, seed 2` |" in page.markdown(better, SPEC, "typed")


def test_columns_of_one_axis_share_a_head(text):
    assert re.search(r'colspan="5">sigma_f</th>', text)
    assert '<th scope="col">10</th>' in text
    assert '<td class="best">' in text


@pytest.mark.slow
def test_many_rules_are_ranked_and_few_are_curves(better):
    few = {"softmax": times(1.0)} | {f"variant {n}": times(1.0 + n) for n in range(CROWD)}
    assert "curves" in page.pictures(better)
    assert "ranking" not in page.pictures(better)
    many = page.pictures(study(few))
    assert "curves" not in many
    names = [label.get_text() for label in many["ranking"].wide.axes[0].get_yticklabels()]
    assert names == [row.cells[0] for row in page.table(study(few), SPEC).rows if not row.reference]


def test_the_forest_shows_the_finding(better):
    axes = page.pictures(better)["forest"].wide.axes[0]
    assert [label.get_text() for label in axes.get_yticklabels()] == ["ssa", "lssa"]
    assert axes.texts[0].get_text().startswith("0.100 [0.09")


@pytest.mark.slow
def test_without_histories_there_are_no_learning_curves(better):
    assert "learning" not in page.pictures(better)
    assert "learning" in page.pictures(better, facts(better))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["forest", "ranking"])
def test_a_caption_names_no_interval_that_is_not_drawn(name):
    rules = {"softmax": times(1.0)} | {f"variant {n}": times(1.0 + n) for n in range(CROWD)}
    lone, many = (page.pictures(study(rules, seeds=seeds))[name].caption for seeds in (1, 3))
    assert "No interval is drawn" in lone
    assert "95 % interval" in many
    assert "No interval is drawn" not in many
