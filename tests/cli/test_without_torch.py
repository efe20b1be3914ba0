"""Commands that name things: answered from sources and files, without an import of torch."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from icl_lab.base import outside
from icl_lab.claims import experiment
from icl_lab.cli import catalogue
from icl_lab.runs.presets import PRESETS

ROOT = Path(__file__).parents[2]
CODE = """
import sys
from icl_lab.cli.main import main
try:
    main()
except SystemExit:
    pass
print(*sorted({"torch", "scipy", "pandas", "pyarrow", "matplotlib"} & set(sys.modules)), "are loaded")
"""
NAMING = ["list", "cite ssa linear", "list experiments", "--help", "sweep --help", "compare --help"]


def lines(*words):
    command, env = [sys.executable, "-c", CODE, *words], {**os.environ, "ICL_LAB_EVIDENCE": "results/evidence"}
    return subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT, env=env).stdout.splitlines()


@pytest.mark.parametrize("words", NAMING)
def test_names_and_help_are_shown_without_torch(words):
    *told, last = lines(*words.split())
    assert (last, len(told) > 5) == ("are loaded", True)


@pytest.mark.parametrize("words", [[], ["--long"]])
def test_verdicts_of_the_record_are_shown_without_torch(words, tmp_path):
    *told, last = lines("claims", "ssa-table1", "--results", str(tmp_path), *words)
    assert last == "pyarrow scipy are loaded"
    assert any("SSA errs less than softmax far from training" in line for line in told)


@pytest.mark.parametrize("what", catalogue.KINDS)
def test_sources_name_the_parts_that_are_registered(what, monkeypatch):
    monkeypatch.setattr(outside, "brings", lambda group: False)
    read = catalogue.entries(what)
    registered = [entry for registry in catalogue.registries(what) for entry in registry.entries(outside=False)]
    assert len(read) > 5
    assert read == registered


def test_sources_name_the_presets():
    assert catalogue.names("presets") == list(PRESETS)


def test_experiments_are_listed_by_a_line_each(run):
    files = ROOT / "experiments"
    code, out, err = run("list", "experiments", "--experiments", str(files))
    *lines, last = out.splitlines()
    assert (code, err) == (0, "")
    assert lines == [f"{name}: {experiment.read(name, files).title}" for name in experiment.names(files)]
    assert f"list experiments {experiment.names(files)[-1]} " in last


def test_one_experiment_is_listed_with_its_cost(run):
    out, _ = run.ok("list", "experiments", "ssa-table1", "--experiments", str(ROOT / "experiments"))
    assert out.splitlines()[0] == "ssa-table1"
    assert "    lite   0 of " in out
    assert "operations a seed of all" in out


@pytest.mark.parametrize("text", ['title = "', "title = 3\n", 'paper = "x"\n'])
def test_a_damaged_experiment_is_named(run, tmp_path, text):
    (tmp_path / "broken.toml").write_text(text)
    _, err = run.refused("list", "experiments", "--experiments", str(tmp_path))
    assert str(tmp_path / "broken.toml") in err
    assert err.count("\n") == 1
