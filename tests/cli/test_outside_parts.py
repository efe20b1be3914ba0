"""Parts from outside on the command line: commands take them, runs record them, and say where they are missing."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from icl_lab import normalizers
from icl_lab.base import code, outside
from icl_lab.cli.imports import named
from icl_lab.runs import environment
from icl_lab.runs.spec import resolve

pytestmark = pytest.mark.usefixtures("quick_pictures")

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "add-a-normalizer.md").read_text()
SQUARE = PAGE.split("```python\n")[1].partition("```")[0]  # as printed
WRONG = SQUARE.replace("self.c * z", "self.c * z * z.shape[-1]").replace('"square"', '"wrong"')
SETTINGS = "train.steps=10 train.batch=8 test.prompts=64 model.width=16 model.heads=2 test.axes.length=5,12"
SMALL = ["--preset", "smoke", "--set", SETTINGS]
EXPERIMENT = """
title = "A rule of one's own"
paper = "none"
task = "linear"
baseline = "softmax"
conditions = "none"
claims = []
variants = [{name = "softmax", attn = "softmax"}, {name = "square", attn = "square:c=3"}]
"""


@pytest.fixture
def folder(tmp_path, monkeypatch, own_parts):
    """A folder of one's own, outside of the repository, with a rule in it."""
    place = tmp_path / "own"
    place.mkdir()
    (place / "square.py").write_text(SQUARE)
    monkeypatch.chdir(place)
    monkeypatch.delenv("ICL_LAB_IMPORT", raising=False)
    return place


@pytest.fixture
def fresh(monkeypatch):
    """Forget what was imported, as a new process would."""

    def forget():
        for parts in (normalizers.registry._parts, normalizers.registry._sources):
            parts.pop("square", None)
        for name in ("_loaded", "_homes", "_searched"):
            monkeypatch.setattr(outside, name, {})
        for cached in (code._tree, code._definitions, code._imports):
            cached.cache_clear()

    return forget


def sweep(*words, attn="square:c=3"):
    return ["sweep", "--task", "linear", "--attn", attn, *SMALL, *words]


def process(*words, cwd):
    """Runs a command line as a process of its own."""
    variables = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "icl_lab", *words]
    return subprocess.run(command, cwd=cwd, env=variables, capture_output=True, text=True)


def test_imports_are_taken_out_of_any_place(monkeypatch):
    monkeypatch.setenv("ICL_LAB_IMPORT", " a.py, b ,")
    words = ["--import", "c.py", "sweep", "--import=d", "--task", "linear", "--import", "e", "--", "--import", "f"]
    left = ["sweep", "--task", "linear", "--", "--import", "f"]
    assert named(words) == (left, ["a.py", "b", "c.py", "d", "e"])


@pytest.mark.parametrize("words", [["--import"], ["--import="], ["--import", "--task"], ["--import", ""]])
def test_an_import_of_nothing_is_refused(run, words):
    assert "--import takes a module or the path of a .py file" in run.refused(*words)[1]


@pytest.mark.slow
def test_a_run_with_an_outside_rule_says_so_in_its_env(folder, run, tmp_path):
    out, err = run.ok(*sweep("--import=./square.py"), "--results", str(tmp_path / "results"))
    assert "mse" in out or "wrote" in out
    (path,) = (tmp_path / "results").glob("runs/linear/square-c=3/*/seed-0/env.json")
    (part,) = json.loads(path.read_text())["outside"]
    assert {"import": "./square.py", "kind": "normalizer", "name": "square"}.items() <= part.items()
    assert part["sha256"] == next(iter(outside.load("./square.py").hashes.values()))
    assert "distribution" not in part


@pytest.mark.exhaustive
def test_a_later_command_says_which_import_is_missing(folder, run, fresh, tmp_path):
    run(*sweep("--import", "./square.py"))
    fresh()
    (place,) = (tmp_path / "results").glob("runs/*/*/*/seed-0")
    says = f"No normalizer is called 'square'. The run in {place} was made with --import ./square.py: give it again."
    for words in (sweep(), ["heads", "--run", str(place)], ["compare", *sweep("--attn", "softmax")[1:]]):
        _, err = run.refused(*words)
        assert err.strip() == f"icl-lab: {says}"
    assert "square:c=3" in run.ok("list", "runs", "--results", str(tmp_path / "results"))[0]
    assert "finished already" in run.ok(*sweep("--import", "./square.py"))[1]


def test_hashes_do_not_depend_on_where_a_rule_is_kept(folder):
    outside.load("./square.py")
    spec = resolve("linear", "square:c=3.0", "smoke")
    assert spec.attn == "square:c=3"
    assert spec.hash == "40e636e5"  # of the same file as icl_lab/normalizers/square.py


@pytest.mark.exhaustive
def test_workers_import_what_the_command_imported(folder, tmp_path):
    words = sweep("--seeds", "2", "--jobs", "2", "--results", str(tmp_path / "mine"), "--import", "square.py")
    done = process(*words, cwd=folder)
    assert done.returncode == 0, done.stderr
    paths = sorted((tmp_path / "mine").glob("runs/linear/square-c=3/*/seed-*/env.json"))
    assert len(paths) == 2
    for path in paths:
        assert json.loads(path.read_text())["outside"][0]["import"] == "square.py"
    done = process("list", "runs", "--results", str(tmp_path / "mine"), cwd=folder)
    assert "seeds 0, 1 finished" in done.stdout


@pytest.mark.slow
def test_an_experiment_takes_an_outside_rule(folder, run, tmp_path):
    (folder / "own.toml").write_text(EXPERIMENT)
    out, err = run.ok("experiment", "own.toml", *SMALL, "--results", str(tmp_path / "r"), "--import", "./square.py")
    assert "square" in out


def test_a_file_that_fails_is_one_line_and_exit_2(folder, run):
    (folder / "broken.py").write_text("import nothing_of_the_kind\n")
    code, out, err = run(*sweep("--import", "./broken.py"))
    line = "icl-lab: --import ./broken.py cannot be imported: broken.py, line 1: ModuleNotFoundError: "
    assert (code, out) == (2, "")
    assert err == f"{line}No module named 'nothing_of_the_kind'\n"


@pytest.mark.exhaustive
def test_a_built_in_name_is_taken_before_anything_is_loaded(folder):
    (folder / "mine.py").write_text(SQUARE.replace('"square"', '"softmax"'))
    done = process("list", "presets", "--import", "./mine.py", cwd=folder)
    places = "in icl_lab.normalizers.softmax and in mine.py"
    assert done.returncode == 2
    line = SQUARE.splitlines().index('@registry.add("square")') + 1
    said = f"mine.py, line {line}: The normalizer 'softmax' is registered twice: {places}."
    assert done.stderr == f"icl-lab: --import ./mine.py: {said}\n"


@pytest.mark.slow
def test_a_rule_that_training_switches_to_is_recorded(folder):
    outside.load("./square.py")
    spec = resolve("linear", "softmax", "smoke", ["train.switch_step=10", "train.switch_to=softmax+reweight"])
    assert "outside" not in environment.recorded_parts(spec)
    spec = resolve("linear", "softmax", "smoke", ["train.switch_step=10", "train.switch_to=square+reweight"])
    assert [part["name"] for part in environment.recorded_parts(spec)["outside"]] == ["square"]


def test_listing_names_outside_rules_and_broken_packages(folder, fresh, run, tmp_path, monkeypatch):
    place = tmp_path / "site" / "my_rules-1.2.dist-info"
    place.mkdir(parents=True)
    (place / "METADATA").write_text("Metadata-Version: 2.1\nName: my-rules\nVersion: 1.2\n")
    (place / "entry_points.txt").write_text("[icl_lab.normalizers]\ngone = nothing_of_the_kind\n")
    monkeypatch.syspath_prepend(tmp_path / "site")
    fresh()
    out, err = run.ok("list", "normalizers", "--import", "./square.py")
    assert "square:c" in out
    assert ", square, " in run.ok("list")[0]
    assert err.count("The distribution my-rules 1.2 (entry point gone = nothing_of_the_kind): ") == 1


def test_check_part_passes_a_sound_rule_and_fails_a_wrong_one(folder, run):
    out, err = run.ok("check-part", "./square.py")
    assert {line.partition(" ")[0] for line in out.splitlines()} == {"ok"}
    assert "ok      normalizer square | hiding is deleting" in out.splitlines()
    assert f"{len(out.splitlines())} checks, 0 failed." in err
    (folder / "wrong.py").write_text(WRONG)
    out, err = run.failed("check-part", "./wrong.py")
    failed = [line for line in out.splitlines() if line.startswith("FAILED")]
    sentence = "wrong: prefix_consistent is declared, and a row changes when the prompt goes on"
    assert f"FAILED  normalizer wrong | hiding is deleting | {sentence}" in failed
    assert f"{len(failed)} failed." in err


@pytest.mark.parametrize("choice", ["softmax", "ssa:n=2", "lssa+reweight:p=3"])
def test_check_part_takes_built_in_parts_by_name(run, choice):
    out, _ = run.ok("check-part", choice)
    assert f"normalizer {choice} | " in out or f"wrapper of a normalizer {choice} | " in out
