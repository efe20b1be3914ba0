"""What a user typed stands in a table's Markdown as text: no code that ends early, no HTML, no new cell."""

import re

import pytest

from icl_lab.analyses import publish
from icl_lab.base import markdown as md
from icl_lab.comparison.page import tables

HOSTILE = "icl-lab compare --results 'a`<script>alert(1)</script>`b|c'"


@pytest.mark.parametrize("text", ["plain", "a`b", "``", "`", "a```b`", HOSTILE])
def test_code_ends_where_the_text_ends(text):
    fence, inside = re.fullmatch(r"(`+)(.*?)\1", md.code(text)).groups()
    assert inside.strip() == text
    assert fence not in inside


def test_what_made_an_analysis_is_code():
    assert f"Made by ``{HOSTILE}``." in publish.text("above", "", [], HOSTILE)


def test_a_cell_makes_no_new_one():
    assert md.cells(md.row(["a|b\nc", "d"])) == ["a|b c", "d"]


def test_the_title_and_the_command_of_a_comparison_are_text(monkeypatch):
    monkeypatch.setattr(tables, "table", lambda *_: tables.Table(["rule"]))
    monkeypatch.setattr(tables, "seeds_table", lambda *_: tables.Table(["rule"]))
    for name in ("finding", "conditions"):
        monkeypatch.setattr(tables.words, name, lambda *_: "")

    class Study:
        seeds = 1

    told = tables.markdown(Study(), None, HOSTILE, title="<b>`x` [y](z)")
    assert told.splitlines()[0] == r"## \<b>\`x\` \[y](z)"
    assert f"Made by ``{HOSTILE}``." in told
