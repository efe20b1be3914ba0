"""Makefile: variables reach the program as they were typed, none is run as code, and a wrong one is named."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from icl_lab.cli import menu
from icl_lab.cli.main import cli
from tests.make_lines import program_words

ROOT = Path(__file__).parents[2]
NAMES = ["TASK", "ATTN", "PRESET", "SEEDS", "SET", "RUN", "NAME", "RESULTS", "DEVICE", "JOBS"]
CODE = ["$(touch {})", "$$(touch {})", "$(shell touch {})", "`touch {}`", "; touch {}"]
CODE += ["'\"; touch {}", "a  b * ? \\n #"]
STUB = '#!/bin/sh\nprintf \'%s\\0\' "$@" > "$MARKS/argv"\n'

pytestmark = pytest.mark.skipif(shutil.which("make") is None, reason="no make")


@pytest.fixture
def make(tmp_path, monkeypatch):
    """Run make with a stub in place of Python; returns the words that it gets."""
    stub = tmp_path / "python"
    stub.write_text(STUB)
    stub.chmod(0o755)
    monkeypatch.setenv("MARKS", str(tmp_path))

    def call(*words):
        command = ["make", "-C", str(ROOT), f"PYTHON={stub}", *words]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return (tmp_path / "argv").read_text().split("\0")[:-1]

    return call


@pytest.mark.parametrize("code", CODE)
def test_values_arrive_as_typed_and_run_nothing(make, tmp_path, code):
    """Each option, a name (of a folder, or of what is trained), and further words, which are parted at spaces alone."""
    code = code.format(tmp_path / "ran")
    texts = {name: f"{name}1,2{code}" for name in NAMES if name != "NAME"}
    words = make("experiment", *map("=".join, texts.items()))
    assert words[:3] == ["-m", "icl_lab", "experiment"]
    assert {name: words[words.index(f"--{name.lower()}") + 1] for name in texts} == texts
    text = f"1,2{code}"
    assert make("experiment", f"NAME={text}") == ["-m", "icl_lab", "experiment", text]
    assert make("judge", f"ATTN={text}", "SEEDS=5") == ["-m", "icl_lab", "judge", text, "--seeds", "5"]
    assert make("compare", f"NAME={text}") == ["-m", "icl_lab", "compare", "--name", text]
    assert make("sweep", f"NAME={text}")[-2:] == ["--name", text]  # which says that it takes none
    assert make("compare", f"ARGS=--set {code}")[3:] == ["--set", *code.split()]
    assert not (tmp_path / "ran").exists()


def test_a_line_is_read_as_tests_of_pages_read_it(make):
    typed = ["TASK=linear", "ATTN=softmax ssa", "SEEDS=3", "ARGS=--dry-run --position -5", "JOBS=2"]
    for target in ("sweep", "compare", "mine"):
        found, wanted = make(target, *typed)[2:], program_words(["make", target, *typed])
        assert (found[0], sorted(found)) == (wanted[0], sorted(wanted))
        assert found[-3:] == wanted[-3:]
    assert make("sweep")[2:] == program_words(["make", "sweep"])


def test_the_environment_gives_no_option(make, monkeypatch):
    for name in (*NAMES, "ARGS", "OPTIONS", "LAB", "GIVEN", "TAKEN"):
        monkeypatch.setenv(name, "the name of this machine")
    assert make("compare", "TASK=linear") == ["-m", "icl_lab", "compare", "--task", "linear"]
    assert make("sweep")[2:] == ["sweep", "--task", "linear", "--attn", "softmax"]


@pytest.mark.parametrize("word", ["TSAK=linear", "OPTIONS=x", "LAB=touch ran", "GIVEN=$(shell touch ran)"])
def test_an_unknown_variable_is_one_line(word, tmp_path):
    done = subprocess.run(["make", "-C", str(ROOT), "sweep", word], capture_output=True, text=True, check=False)
    (line,) = done.stderr.splitlines()
    assert (done.returncode, done.stdout.count("ran")) == (2, 0)
    assert f"There is no variable {word.split('=')[0]}; there are TASK ATTN" in line
    assert not (ROOT / "ran").exists()


@pytest.mark.parametrize("target", ["test", "check"])
def test_words_for_pytest_are_not_run_as_code(make, tmp_path, target):
    words = make(target, f"ARGS=-k 'a or b' $(touch {tmp_path}/ran) ; touch {tmp_path}/ran")
    assert words[words.index("-k") + 1] == "a or b"
    assert words[-3:] == [";", "touch", f"{tmp_path}/ran"]
    assert not (tmp_path / "ran").exists()


@pytest.mark.slow
def test_help_names_every_command():
    done = subprocess.run(["make", "-C", str(ROOT), "help"], capture_output=True, text=True, check=True)
    commands, _, own = done.stdout.partition("Work on the repository:")
    shown, _, rare = commands.partition("Further commands:")
    named = re.findall(r"^  make (\S+) ", shown, re.MULTILINE) + re.findall(r"[\w-]+", rare.replace("  make ", ""))
    assert sorted(named) == sorted(cli.commands)
    targets = [line for line in shown.splitlines() if line.startswith("  make ")]
    assert targets[0].split()[1] == "sweep"
    assert len(targets) <= 25
    assert not [line for line in targets if "..." in line or len(line) > 110]
    listed = set(re.findall(r"^override OWN := (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)[0].split())
    assert set(re.findall(r"^  make (\S+) ", own, re.MULTILINE)) == listed - {"docs-html", "execute"}


def test_the_menu_of_the_program_is_in_the_same_groups(run):
    out, _ = run.ok("--help")
    groups = re.findall(r"^(\w[\w ]*):$", out, re.MULTILINE)
    assert groups == ["Options", *menu.GROUPS, "Further commands"]
    assert "..." not in out.partition("Train and compare:")[2]
