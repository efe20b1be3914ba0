"""One paper's claims as a document: the numbers of its page in the documentation, in LaTeX that can be compiled."""

import re
from pathlib import Path

import pytest

from docs import tables
from icl_lab.base import markdown as md
from icl_lab.base.errors import UnknownName
from icl_lab.claims import ledger, paper_report
from icl_lab.claims.ledger import Finding
from icl_lab.comparison.verdict import State
from icl_lab.runs.store import Store

ROOT = Path(__file__).parents[2]
PRINTABLE = set("†‡°—−±×≥≤→σ")  # beside ASCII: those that inputenc or ``tables.LATEX`` know


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """The report of SSMax, from the repository's record."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(paper_report.record, "everything", lambda *_: (tables.recorded(ROOT), {}))
        return paper_report.written("ssmax", ROOT / "experiments", Store(tmp_path_factory.mktemp("none")))


def rows_of(text):
    return [line for line in text.splitlines() if re.match(r"\| (\d+ \| )?\w", line)]


@pytest.mark.slow
def test_the_numbers_are_those_of_the_papers_page(written):
    page = (ROOT / "docs" / "papers" / "ssmax.md").read_text().split("<!-- index paper_ssmax -->")[1]
    documented = [md.cells(line) for line in page.splitlines() if re.match(r"\| [\w…]", line)][1:]
    reported = [md.cells(line) for line in rows_of(written["report.md"].decode())]
    ours = [f"{row[3]} (printed {row[2]})" if row[2] != "—" else row[3] for row in reported]
    assert len(documented) > 40
    assert sorted(ours) == sorted(row[1] for row in documented)
    assert page.strip().splitlines()[0] in written["report.md"].decode()


@pytest.mark.parametrize("name", ledger.PAPERS)
def test_a_report_has_the_title_of_the_papers_page(name):
    assert (ROOT / "docs" / "papers" / f"{name}.md").read_text().startswith(f"# {ledger.PAPERS[name].title}\n")


@pytest.mark.slow
def test_every_claim_stands_in_the_latex_with_its_numbers(written):
    text = written["report.tex"].decode()
    body = text[text.index(r"\endlastfoot") : text.index(r"\end{longtable}")]
    lines = [line for line in body.splitlines() if line.endswith(r"\\")]
    assert len(lines) == len(rows_of(written["report.md"].decode()))
    assert all(len(re.findall(r"(?<!\\)&", line)) == 7 for line in lines)
    assert r"\texttt{lite2}, 32, shared rate & \texttt{ssmax-figure6}" in body
    assert "-0.061, 0.17" in body


def test_the_latex_is_a_whole_document(written):
    text = written["report.tex"].decode()
    opened, closed = (re.findall(rf"\\{word}\{{(\w+)\}}", text) for word in ("begin", "end"))
    assert opened[0] == closed[-1] == "document"
    assert opened == closed[::-1]
    assert text.startswith(r"\documentclass")
    bare = re.sub(r"\\[{}]", "", text)
    assert bare.count("{") == bare.count("}")
    # What TeX reads as a command stands there as one alone: no bare %, $, #, _ or ^.
    assert re.findall(r"(?<!\\)[%$#_^~]", text) == []
    assert {letter for letter in text if ord(letter) > 126} <= PRINTABLE
    assert "`" not in text


def test_each_figure_is_there_and_shown_in_both(written):
    pictures = [name for name in written if name.endswith((".png", ".pdf"))]
    claims = len(rows_of(written["report.md"].decode()))
    assert len(pictures) == 2 * -(-claims // paper_report.FIGURE)
    for name in pictures:
        text = written["report.md" if name.endswith(".png") else "report.tex"].decode()
        assert name in text
        assert written[name][:4] == (b"\x89PNG" if name.endswith(".png") else b"%PDF")


def test_effects_are_drawn_in_units_of_their_margin(monkeypatch):
    drawn = []
    monkeypatch.setattr(paper_report.pictures, "forest", lambda *rows, **how: drawn.extend(rows))
    values = {"margin": 0.5, "effect": -1.0, "low": -2.0, "high": 0.5, "printed": -0.25}
    paper_report._forest([Finding(claim="c", relation="below", state=State.JUDGED, **values)], 2)
    labels, shown, judged = drawn
    assert (labels, shown.tolist(), judged) == (["3  c"], [[-2, -4, 1, -0.5]], [True])


def test_a_wrong_paper_is_one_line_with_those_there_are(run, tmp_path):
    with pytest.raises(UnknownName):
        paper_report.written("ssx", ROOT / "experiments", Store(tmp_path))
    _, told = run.refused("paper-report", "ssx")
    assert told.strip().splitlines()[-1].endswith("There are: lssa, poster, ssa, ssmax.")


@pytest.mark.slow
def test_the_command_writes_where_it_is_told(run, tmp_path, monkeypatch):
    monkeypatch.setattr(paper_report.record, "everything", lambda *_: (tables.recorded(ROOT), {}))
    said, _ = run.ok("paper-report", "poster", "--experiments", str(ROOT / "experiments"), "--out", str(tmp_path / "x"))
    assert "report.tex" in said
    names = {"claims-1.pdf", "claims-1.png", "report.md", "report.tex"}
    assert {path.name for path in (tmp_path / "x").iterdir()} == names


def test_the_text_of_the_papers_page_comes_along(written):
    told, typeset = written["report.md"].decode(), written["report.tex"].decode()
    assert "**Needles.** Far beyond the training length" in told
    assert r"\textbf{Needles.} Far beyond the training length" in typeset
    assert "cites" not in told + typeset
    assert "](" not in typeset
    assert told.index("**Needles.**") < told.index("| claim |")


def test_a_statement_is_text_whatever_it_holds(monkeypatch):
    """An end of an index block, a script and a stroke: in the report, and between the marks of a page."""
    claim = "SSA <!-- end --> wins <script>x</script> a|b </table>"
    hostile = Finding(claim=claim, state=State.NOT_RUN, experiment="e", relation="below")
    report = paper_report.markdown("ssa", [hostile], [])
    assert not re.search(r"(?<!\\)<[!/a-z]", report)
    assert r"SSA \<!-- end --> wins \<script>x\</script> a\|b" in report
    monkeypatch.setitem(tables.BLOCKS, "headlines", lambda root: ledger.table([hostile]))
    page = "<!-- index headlines -->\nold\n<!-- end -->\nafter\n"
    once = tables.fill(page)
    assert once.endswith("\n<!-- end -->\nafter\n")
    assert tables.fill(once) == once
