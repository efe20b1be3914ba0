"""Words of the code: docstrings begin with a noun or an imperative verb, and names do not come from the stop-list."""

import ast
import re
from pathlib import Path

import pytest

import icl_lab

ROOT = Path(icl_lab.__file__).parent
BEGINNINGS = re.compile(r"(What|Whether|How|Where|As|Of|Those|That)\b(?!-)")
# Names that said too little; docs/glossary.md has the word to take.
RIDDLES = {"at_work", "hold", "crowd", "veil", "widen", "plainly", "think", "untold"}
TAKEN = {("model/blocks.py", "widen"), ("testing/base.py", "hold")}  # names of stored parameters; an assertion


def definitions():
    """Modules, classes and functions of the package: place, node, its own name."""
    for path in sorted(ROOT.rglob("*.py")):
        place = str(path.relative_to(ROOT))
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Module):
                yield place, node, path.stem
            elif isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                yield place, node, node.name


def test_names_of_tests_have_at_most_sixty_characters():
    tests = Path(__file__).parent
    names = {found for path in tests.rglob("*.py") for found in re.findall(r"def (test_\w+)", path.read_text())}
    assert {name for name in names if len(name) > 60} == set()


@pytest.mark.slow
def test_docstrings_begin_with_a_noun_or_a_verb():
    found = [
        f"{place}: {line}"
        for place, node, _ in definitions()
        if (line := (ast.get_docstring(node) or "").partition("\n")[0]) and BEGINNINGS.match(line)
    ]
    assert found == []


@pytest.mark.slow
def test_names_are_none_of_the_stop_list():
    named = {(place, name.strip("_")) for place, _, name in definitions()}
    assert {(place, name) for place, name in named if name in RIDDLES} - TAKEN == set()
