"""Analyses from outside: a command each, and a contract that finds what is wrong with one."""

from pathlib import Path

import pytest

from icl_lab.testing.analyses import _answers

pytestmark = pytest.mark.usefixtures("quick_pictures")

ROOT = Path(__file__).parents[2]
EXAMPLE = (ROOT / "docs" / "analyses.md").read_text().split("```python\n")[1].partition("```")[0]  # as printed
FAULTS = {
    ("summary(values)", "summary(values + __import__('torch').rand(()))"): "the same models get the same numbers",
    ('return {"in-context": drawn}', "return {}"): "it answers with grids a table and figures",
    ('return {"in-context": rows}', 'return {"incontext": rows}'): "it answers with grids a table and figures",
    ("frozen=True, ", ""): "it says what it is",
    ("    def table", "    check = lambda *_: {}[0]\n\n    def table"): "it refuses a task in one line or accepts it",
    ("    def table", "    read = lambda *_: None\n\n    def table"): "what it writes can be read",
}


@pytest.fixture
def written(tmp_path, monkeypatch, own_parts):
    """Write the analysis of the page into a folder of one's own, changed as a test wants it."""
    monkeypatch.chdir(tmp_path)

    def write(old="", new=""):
        assert old in EXAMPLE
        (tmp_path / "mine.py").write_text(EXAMPLE.replace(old, new, 1) if old else EXAMPLE)
        return "./mine.py"

    return write


def test_the_example_analysis_has_forty_lines():
    assert len(EXAMPLE.splitlines()) <= 40


@pytest.mark.slow
def test_a_sound_analysis_passes_its_contract(written, run):
    assert "5 checks, 0 failed" in run.ok("check-part", written())[1]


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: FAULTS[fault])
def test_a_faulty_analysis_fails_the_check_about_its_fault(written, run, fault):
    _answers.cache_clear()
    code, out, _ = run("check-part", written(*fault))
    _answers.cache_clear()
    assert code == 1
    assert any(line.startswith(f"FAILED  analysis in-context | {FAULTS[fault]} | ") for line in out.splitlines()), out


def test_an_analysis_called_like_a_command_is_refused(written, run):
    _, err = run.refused("list", "presets", "--import", written('"in-context")', '"sweep")'))
    assert "the analysis 'sweep' is called like the command icl-lab sweep" in err


def test_an_outside_analysis_is_a_command_where_it_is_imported(written, run):
    assert "No such command 'in-context'" in run.refused("in-context", "--task", "linear")[1]
    assert "How fast does the error fall" in run.ok("--help", "--import", written())[0]
    out, _ = run.ok("in-context", "--task", "linear", "--attn", "softmax", "--dry-run")
    assert "to do  results/runs/linear/softmax" in out
