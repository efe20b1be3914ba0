"""Analyses from outside: a command each, and a contract that finds what is wrong with one."""

from pathlib import Path

import pytest

from icl_lab.testing.analyses import _answers

pytestmark = pytest.mark.usefixtures("quick_pictures")

ROOT = Path(__file__).parents[2]
SPREAD = '''"""How far answers spread."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from matplotlib.figure import Figure

from icl_lab.analyses import registry
from icl_lab.analyses.frame import Analysis, option
from icl_lab.runs.measure import predict


@registry.add("spread")
@dataclass(frozen=True, kw_only=True)
class Spread(Analysis):
    """How far do answers spread in training conditions?"""

    grids: ClassVar[Mapping[str, Sequence[str]]] = {"spread": ()}
    title: ClassVar[str] = "spread of answers"

    prompts: int = option(16, "Test prompts.", least=2)

    def measure(self, trained):
        with torch.no_grad():
            value = float(predict(trained.subjects()[trained.label], trained.prompts(self.prompts)).std())
        return {"spread": [{"metric": "sd", "value": value, "stderr": 0.0, "count": self.prompts}]}

    def table(self, found):
        return [f"{name} {found['spread'].where(attn=name).frame['value'].mean():.3g}" for name in found.rules]

    def figures(self, found, title):
        return {"spread": Figure()}
'''
FAULTS = {
    ("float(predict", "float(torch.rand(()) + predict"): "the same models get the same numbers",
    ('return {"spread": Figure()}', "return {}"): "it answers with grids a table and figures",
    ('{"spread": [{"metric"', '{"sprad": [{"metric"'): "it answers with grids a table and figures",
    ("frozen=True, ", ""): "it says what it is",
    ("    def table", '    def check(self, spec):\n        {}["task"]\n\n    def table'): (
        "it refuses a task in one line or accepts it"
    ),
    (
        "    def table",
        "    def read(self, folder):\n        return None\n\n    def table",
    ): "what it writes can be read",
}


@pytest.fixture
def spread(tmp_path, monkeypatch, own_parts):
    """Write an analysis into a folder of one's own, changed as a test wants it."""
    monkeypatch.chdir(tmp_path)

    def write(old="", new=""):
        assert old in SPREAD
        (tmp_path / "spread.py").write_text(SPREAD.replace(old, new, 1) if old else SPREAD)
        return "./spread.py"

    return write


@pytest.mark.slow
def test_a_sound_analysis_passes_its_contract(spread, run):
    assert "5 checks, 0 failed" in run.ok("check-part", spread())[1]


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: FAULTS[fault])
def test_a_faulty_analysis_fails_the_check_about_its_fault(spread, run, fault):
    _answers.cache_clear()
    code, out, _ = run("check-part", spread(*fault))
    _answers.cache_clear()
    assert code == 1
    assert any(line.startswith(f"FAILED  analysis spread | {FAULTS[fault]} | ") for line in out.splitlines()), out


def test_an_analysis_called_like_a_command_is_refused(spread, run):
    _, err = run.refused("list", "presets", "--import", spread('"spread")', '"sweep")'))
    assert "the analysis 'sweep' is called like the command icl-lab sweep" in err


def test_an_outside_analysis_is_a_command_where_it_is_imported(spread, run):
    assert "No such command 'spread'" in run.refused("spread", "--task", "linear")[1]
    assert "How far do answers spread" in run.ok("--help", "--import", spread())[0]
    out, _ = run.ok("spread", "--task", "linear", "--attn", "softmax", "--dry-run")
    assert "to do  results/runs/linear/softmax" in out
