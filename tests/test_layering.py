"""The architecture: imports point down, and each outside library enters by its door."""

import ast
from pathlib import Path

import pytest

import icl_lab

ROOT = Path(icl_lab.__file__).parent

# Lowest floor first. A module may import from floors below its own, and nothing from its own.
FLOORS = [
    "",
    "errors",
    "names streams curriculum published gelu hugging_face tables",
    "statistics",
    "grid tasks normalizers positions",
    "blocks figures",
    "model",
    "measure engines",
    "train",
    "stacked",
    "crew",
    "presets",
    "spec",
    "store machine jobs estimate ablations prompts",
    "analyses",
    "experiments",
    "sweep index",
    "compare together",
    "report",
    "page",
    "console",
    "publishing",
    "runs studies deviants needles fading laws saturations probes heads clips",
    "tradeoff boundaries attention bench",
    "boundary_report attention_report",
    "evidence viewer",
    "ledger",
    "commands",
    "cli",
    "__main__",
    "",
][1:-1]
FLOOR = {name: height for height, line in enumerate(FLOORS) for name in line.split()}
DOORS = {
    "pandas": {"grid"},
    "matplotlib": {
        "figures",
        "report",
        "page",
        "deviants",
        "publishing",
        "needles",
        "fading",
        "laws",
        "saturations",
        "probes",
        "heads",
        "boundary_report",
        "attention_report",
    },  # the others name the type that they return
    "PIL": {"figures"},
    "click": {"cli", "commands", "console", "runs"},
    "tqdm": {"console"},
    "entmax": {"normalizers"},
    "jinja2": {"page"},
    "filelock": {"store"},
    "safetensors": {"store"},
    "transformers": {"hugging_face"},
}
WITHOUT_TORCH = {"errors", "names", "grid", "figures", "published", "statistics", "curriculum", "tables"}


def modules():
    return sorted(path for path in ROOT.rglob("*.py") if path != ROOT / "__init__.py")


def part(path):
    """The name of a module, or of the family that it belongs to."""
    return path.relative_to(ROOT).parts[0].removesuffix(".py")


def imports(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            module = node.module or ""
            yield from (f"{module}.{alias.name}" for alias in node.names) if module == "icl_lab" else [module]


@pytest.mark.parametrize("path", modules(), ids=lambda path: str(path.relative_to(ROOT)))
def test_imports_point_down(path):
    here = part(path)
    assert here in FLOOR, f"{here} has no floor yet; give it one in this file"
    for name in imports(path):
        if not name.startswith("icl_lab."):
            continue
        there = name.split(".")[1]
        if there == "__version__":
            continue
        if there == here:
            # Inside a family a file knows its base and the registry, never a sibling.
            below = name.split(".")[2:3]
            assert below in ([], ["base"]) or path.name == "__init__.py", (
                f"{path.name} may not import its sibling {name}"
            )
        else:
            assert FLOOR[there] < FLOOR[here], f"{here} may not import icl_lab.{there}"


@pytest.mark.parametrize("path", modules(), ids=lambda path: str(path.relative_to(ROOT)))
def test_each_library_enters_by_its_door(path):
    used = {name.split(".")[0] for name in imports(path)}
    for library, doors in DOORS.items():
        assert library not in used or part(path) in doors, f"{part(path)} may not import {library}"
    assert "torch" not in used or part(path) not in WITHOUT_TORCH


def test_the_doors_are_real():
    assert {part(path) for path in modules()} <= set(FLOOR)
    assert "pandas" in {name.split(".")[0] for path in modules() for name in imports(path)}


def test_the_pass_fits_on_one_screen():
    assert len((ROOT / "sweep.py").read_text().splitlines()) <= 110
