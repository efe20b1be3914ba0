"""The command to type next: as this program was started, with what was asked for, and never with what throws away."""

import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from icl_lab.cli import hints

pytestmark = pytest.mark.usefixtures("quick_pictures")

ROOT = Path(__file__).parents[2]
FIELDS = ["train.steps=10", "train.batch=8", "test.prompts=16", "test.axes.sigma_x=1", "test.axes.sigma_f=1,2"]
SMALL = [word for field in FIELDS for word in ("--set", field)]
SWEEP = ["--task", "linear", "--preset", "smoke", *SMALL]


def following(out):
    return [line.removeprefix("next: ") for line in out.splitlines() if line.startswith("next: ")]


@pytest.mark.slow
def test_after_a_sweep_the_same_is_compared(run, tmp_path):
    out, _ = run.ok("sweep", "--attn", "ssa", *SWEEP, "--retrain", "--threads", "1")
    (line,) = following(out)
    words = shlex.split(line)
    assert words[:2] == ["icl-lab", "compare"]
    assert words.count("--set") == len(SMALL) // 2
    assert words[words.index("--results") + 1] == str(tmp_path / "results")
    assert [words[n + 1] for n, word in enumerate(words) if word == "--attn"] == ["ssa softmax"]
    assert "--retrain" not in out
    out, _ = run.ok(*words[1:-2] if words[-2] == "--results" else words[1:])
    *_, line = following(out)
    assert "--seeds 3" in line
    assert "--set test.axes.sigma_f=1,2" in line


@pytest.mark.slow
def test_rules_without_the_baseline_are_compared_with_the_first(run):
    out, _ = run.ok("sweep", "--attn", "ssa", "--attn", "ssmax", *SWEEP)
    (line,) = following(out)
    assert "--attn 'ssa ssmax'" in line
    assert "--baseline ssa" in line


def test_a_switch_that_was_turned_off_stays_off(run):
    out, _ = run.ok("train", "--attn", "ssa", *SWEEP, "--no-evidence", "--set", "train.steps=1")
    (line,) = following(out)
    assert "--no-evidence" in line.split()
    assert "--evidence" not in line.split()


@pytest.mark.slow
def test_after_a_training_the_same_is_tested(run):
    out, _ = run.ok("train", "--attn", "ssa", *SWEEP)
    assert following(out)[0].startswith("icl-lab sweep --task linear --attn ssa --preset smoke --set train.steps=10")


@pytest.mark.parametrize(
    ("started", "named"),
    [
        ("icl-lab", "icl-lab"),
        ("{here}/bin/icl-lab", "bin/icl-lab"),
        ("/elsewhere/bin/icl-lab", "/elsewhere/bin/icl-lab"),
        ("{here}/on-path/icl-lab", "icl-lab"),
        ("/x/icl_lab/__main__.py", "{script}"),
    ],
)
def test_the_program_is_named_as_it_can_be_typed(tmp_path, monkeypatch, started, named):
    (tmp_path / "on-path").mkdir()
    (tmp_path / "on-path" / "icl-lab").write_text("")
    (tmp_path / "on-path" / "icl-lab").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path / "on-path"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", [started.format(here=tmp_path)])
    assert hints.program() == named.format(script=Path(sys.executable).with_name("icl-lab"))


def test_the_python_of_this_folder_is_named_by_its_place_in_it(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["/x/icl_lab/__main__.py"])
    monkeypatch.setattr(sys, "executable", str(tmp_path / ".venv/bin/python"))
    assert hints.program() == ".venv/bin/python -m icl_lab"


def test_the_script_beside_python_is_named_for_its_module(tmp_path, monkeypatch):
    (tmp_path / ".venv" / "bin").mkdir(parents=True)
    (tmp_path / ".venv" / "bin" / "icl-lab").touch()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["/x/icl_lab/__main__.py", "verify"])
    monkeypatch.setattr(sys, "executable", str(tmp_path / ".venv/bin/python"))
    assert hints.program() == ".venv/bin/icl-lab"


@pytest.mark.slow
@pytest.mark.usefixtures("own_parts")
def test_what_was_imported_is_imported_again(run, tmp_path, monkeypatch):
    (tmp_path / "mine.py").write_text((ROOT / "tests" / "examples" / "lookup.py").read_text())
    monkeypatch.chdir(tmp_path)
    out, err = run.ok("--import", "./mine.py", "train", "--attn", "ssa", *SWEEP)
    assert following(out)[0].startswith("icl-lab --import ./mine.py sweep --task linear --attn ssa")


@pytest.mark.exhaustive
def test_a_hint_works_as_it_is_typed(tmp_path):
    """Through the shell, from the program that was started as a module."""
    root = Path(__file__).parents[2]
    words = [sys.executable, "-m", "icl_lab", "train", "--attn", "ssa", *SWEEP, "--results", str(tmp_path / "a folder")]
    done = subprocess.run(words, capture_output=True, text=True, check=True, cwd=root)
    again = subprocess.run(following(done.stdout)[0], shell=True, capture_output=True, text=True, check=False, cwd=root)
    assert again.returncode == 0, again.stderr
    assert list((tmp_path / "a folder").rglob("grid.csv"))
