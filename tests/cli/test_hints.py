"""The command to type next: as this program was started, with what was asked for, and never with what throws away."""

import shlex
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


@pytest.mark.parametrize(
    ("started", "python", "named"),
    [
        ("icl-lab", "", "icl-lab"),
        ("{here}/bin/icl-lab", "", "bin/icl-lab"),
        ("/elsewhere/bin/icl-lab", "", "/elsewhere/bin/icl-lab"),
        ("{here}/on-path/icl-lab", "", "icl-lab"),
        ("/x/icl_lab/__main__.py", "", "{script}"),
        ("/x/icl_lab/__main__.py", "{here}/.venv/bin/python", ".venv/bin/python -m icl_lab"),
        ("/x/icl_lab/__main__.py", "{here}/scripted/python", "scripted/icl-lab"),  # the script beside this Python
    ],
)
def test_the_program_is_named_as_it_can_be_typed(tmp_path, monkeypatch, started, python, named):
    for folder in ("on-path", "scripted"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "icl-lab").touch(0o755)
    monkeypatch.setenv("PATH", str(tmp_path / "on-path"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", [started.format(here=tmp_path), "verify"])
    script = Path(sys.executable).with_name("icl-lab")
    if python:
        monkeypatch.setattr(sys, "executable", python.format(here=tmp_path))
    assert hints.program() == named.format(script=script)


@pytest.mark.slow
@pytest.mark.usefixtures("own_parts")
def test_after_a_sweep_the_same_is_compared_as_typed(run, tmp_path, monkeypatch):
    """With what was imported, and with a switch that was turned off."""
    (tmp_path / "mine.py").write_text((ROOT / "tests" / "examples" / "lookup.py").read_text())
    monkeypatch.chdir(tmp_path)
    (line,) = following(run.ok("--import", "./mine.py", "sweep", "--attn", "ssa", *SWEEP, "--no-evidence")[0])
    typed = "icl-lab --import ./mine.py compare --task linear --attn 'ssa softmax' --preset smoke --set train.steps=10"
    assert line.startswith(typed)
    assert "--no-evidence" in line.split()
    assert "--evidence" not in line.split()
