"""The README: its tables are what the docstrings say, its files exist, and it names no place but the repository."""

import re
from pathlib import Path

import pytest

from icl_lab.cli import index

ROOT = Path(__file__).parent.parent
README = ROOT / "README.md"


def test_the_tables_are_in_step_with_the_docstrings():
    text = README.read_text()
    assert index.fill(text) == text, "run: make index"
    for what in ("tasks", "normalizers", "positions", "presets"):
        assert f"<!-- index {what} -->" in text


def test_filling_writes_what_is_missing():
    empty = "before\n<!-- index presets -->\nold\n<!-- end -->\nafter\n"
    filled = index.fill(empty)
    assert "`lite`" in filled
    assert "old" not in filled
    assert filled.startswith("before\n")
    assert filled.endswith("after\n")
    assert index.fill(filled) == filled


@pytest.mark.parametrize("what", ["tasks", "normalizers", "positions"])
def test_every_part_says_what_it_is_and_where_it_comes_from(what):
    for registry in index.KINDS[what]:
        for entry in registry.entries():
            assert entry.line.endswith((".", "?")), f"{entry.name}: the first line is a sentence"
            assert entry.formula, f"{entry.name} has no Formula: line"
            assert re.search(r"\d{4}", entry.paper), f"{entry.name} has no Paper: line with a year"


def test_links_and_named_files_exist():
    text = README.read_text()
    for target in re.findall(r"\]\(([^)#]+)\)", text):
        if not target.startswith("https://"):
            assert (ROOT / target).exists(), target
    for row in re.findall(r"^\| (`[^|]+`) \| [^|]+ \|$", text, flags=re.MULTILINE):
        for name in re.findall(r"`([\w/]+\.py|[\w]+/)`", row):
            assert (ROOT / "icl_lab" / name).exists(), name
