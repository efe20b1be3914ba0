"""The page of an analysis: its sections, what it says, and that words stay words."""

import pytest

from icl_lab.analyses import publish
from icl_lab.analyses.deviant import Deviant
from icl_lab.analyses.publish import asked, page, sections
from icl_lab.runs.store import by_rule

LINES = ["Of two normalizers.", "", "### Errors", "", "| rule | x1 |", "| --- | --- |", "| `ssa` | **0.1** |"]
LINES += ["| reference:zero | 2 |", "* a note", "", "| other |", "| --- |", "| 3 |"]
HOSTILE = "</style><script>alert(1)</script>"


def made(tiny, lab, finding="Softmax errs more.", lines=LINES):
    groups = by_rule([lab.store.run(tiny(), seed) for seed in (0, 1)])
    study = publish.record("deviant", Deviant(), groups, "icl-lab deviant")
    return page(study, Deviant(), groups, finding, lines, {"deviant": b"png"})


def test_headings_and_tables_begin_sections():
    first, errors, note = sections(LINES)
    assert (first.title, first.notes, first.table.head) == ("", ["Of two normalizers."], [])
    assert (errors.title, errors.table.head) == ("Errors", ["rule", "x1"])
    assert [row.cells for row in errors.table.rows] == [["ssa", "0.1"], ["reference:zero", "2"]]
    assert [row.reference for row in errors.table.rows] == [False, True]
    assert (note.notes, note.table.head, len(note.table.rows)) == (["a note"], ["other"], 1)
    apart = sections(["| a |", "| --- |", "| 1 |", "", "Then:", "", "| b |", "| --- |", "| 2 |"])
    assert [each.table.head for each in apart] == [["a"], ["b"]]


def test_the_page_names_question_finding_and_set_up(tiny, lab):
    text = made(tiny, lab)
    for words in (
        "Multiply one number",
        "Softmax errs more.",
        "1 layers, 2 heads, width 16",
        "0, 1",
        "icl-lab deviant",
    ):
        assert words in text
    assert text.count("<table") == 2
    assert "http" not in text


@pytest.mark.parametrize("where", ["finding", "lines"])
def test_hostile_words_stay_words(tiny, lab, where):
    lines = [*LINES, f"| {HOSTILE} |", "| --- |", f"| {HOSTILE} |"] if where == "lines" else LINES
    text = made(tiny, lab, HOSTILE if where == "finding" else "fine", lines)
    assert "<script>" not in text
    assert "&lt;script&gt;" in text


@pytest.mark.slow
def test_the_page_fits_a_telephone(tiny, lab, tmp_path, new_tab):
    wide = ["| rule |" + " x |" * 40, "| --- |" + " --- |" * 40, "| ssa |" + " 0.123 |" * 40]
    (tmp_path / "report.html").write_text(made(tiny, lab, lines=wide))
    tab = new_tab(viewport={"width": 420, "height": 800})
    tab.goto((tmp_path / "report.html").as_uri())
    assert tab.evaluate("document.documentElement.scrollWidth") <= 420
    tab.close()


def test_options_are_written_as_one_reads_them():
    options = {"every_answer": False, "axes": {"sigma": [1.0, 2.5]}, "rate": 1e-4, "attn": "", "shots": [], "seeds": 3}
    told = {"Every answer": "no", "Axes": "sigma 1, 2.5", "Rate": "0.0001", "Seeds": "3"}
    assert dict(asked(options)) == {**told, "Attn": "the usual", "Shots": "the usual"}
