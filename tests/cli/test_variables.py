"""Make variables: what they hold arrives as it was typed, is never run as code, and reaches whatever takes it."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import click
import pytest

from icl_lab.cli import menu, variables
from icl_lab.cli.deferred import loaded
from icl_lab.cli.main import cli
from icl_lab.errors import BadValue, UnknownOption

ROOT = Path(__file__).parents[2]
NAMES = ["TASK", "ATTN", "NAME", "RUN", "PRESET", "SEEDS", "JOBS", "DEVICE", "RESULTS", "WHAT", "PROMPT", "PROMPTS"]
NAMES += ["FUNCTION", "ARGS"]
STUB = """#!/bin/sh
printf '%s\\n' "$@" > "$MARKS/argv"
env -0 > "$MARKS/environment"
"""

needs_make = pytest.mark.skipif(shutil.which("make") is None, reason="no make")


@pytest.fixture
def make(tmp_path, monkeypatch):
    """Runs make with a stub in the place of Python; returns its words and its environment."""
    stub = tmp_path / "python"
    stub.write_text(STUB)
    stub.chmod(0o755)
    monkeypatch.setenv("MARKS", str(tmp_path))

    def call(*words):
        done = subprocess.run(
            ["make", "-C", str(ROOT), f"PYTHON={stub}", *words], capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        pairs = (line.split("=", 1) for line in (tmp_path / "environment").read_text().split("\0") if line)
        return (tmp_path / "argv").read_text().splitlines(), dict(pairs)

    return call


@needs_make
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    "code", ["$(touch {})", "$$(touch {})", "$(shell touch {})", "`touch {}`", "; touch {}", "'\"; touch {}"]
)
def test_no_variable_is_run_as_code(make, tmp_path, name, code):
    text = "1,2" + code.format(tmp_path / "ran")
    words, environment = make("compare", f"{name}={text}")
    assert words == ["-m", "icl_lab", "make", "compare"]
    assert environment[name] == text
    assert environment["GIVEN"] == name
    assert not (tmp_path / "ran").exists()


@needs_make
@pytest.mark.parametrize("name", ["GIVEN", "FOUND", "MAKES", "OWN", "ASKED", "READY"])
@pytest.mark.parametrize("typed", [True, False])
def test_the_lists_of_the_makefile_are_its_own(make, tmp_path, monkeypatch, name, typed):
    code = f"$(shell touch {tmp_path / 'ran'})"
    if not typed:
        monkeypatch.setenv(name, code)
    words, environment = make("compare", *([f"{name}={code}"] if typed else []), "TASK=linear")
    assert words == ["-m", "icl_lab", "make", "compare"]
    assert "TASK" in environment["GIVEN"].split()
    assert not (tmp_path / "ran").exists()


@needs_make
@pytest.mark.parametrize("target", ["test", "check"])
def test_words_for_pytest_are_not_run_as_code(make, tmp_path, target):
    words, _ = make(target, f"ARGS=-k 'a or b' $(touch {tmp_path}/ran) ; touch {tmp_path}/ran")
    assert words[words.index("-k") + 1] == "a or b"
    assert words[-3:] == [";", "touch", f"{tmp_path}/ran"]
    assert not (tmp_path / "ran").exists()


@needs_make
def test_any_other_target_is_asked_of_the_program(make):
    words, environment = make("mine", "ATTN=softmax ssa", "POSITION=-5")
    assert words == ["-m", "icl_lab", "make", "mine"]
    assert sorted(environment["GIVEN"].split()) == ["ATTN", "POSITION"]


@needs_make
def test_the_environment_is_told_apart_from_what_was_typed(make, monkeypatch):
    monkeypatch.setenv("RESULTS", "elsewhere")
    monkeypatch.setenv("NAME", "the name of this machine")
    _, environment = make("sweep", "TASK=linear")
    assert (environment["GIVEN"], environment["FOUND"]) == ("TASK", "RESULTS")


@needs_make
@pytest.mark.slow
def test_help_names_every_command():
    done = subprocess.run(["make", "-C", str(ROOT), "help"], capture_output=True, text=True, check=True)
    commands, _, own = done.stdout.partition("Work on the repository:")
    shown, _, rare = commands.partition("Further commands:")
    named = re.findall(r"^  make (\S+) ", shown, re.MULTILINE) + re.findall(r"[\w-]+", rare.replace("  make ", ""))
    assert sorted(named) == sorted(name for name, part in cli.commands.items() if not part.hidden)
    assert set(re.findall(r"^  make (\S+) ", own, re.MULTILINE)) == {
        "help",
        "test",
        "test-all",
        "test-fast",
        "test-lowest",
        "check",
        "lock",
        "docs",
        "notebooks",
    }


@needs_make
def test_help_begins_with_sweep_and_cuts_no_line():
    done = subprocess.run(["make", "-C", str(ROOT), "help"], capture_output=True, text=True, check=True)
    shown = done.stdout.partition("Further commands:")[0].splitlines()
    targets = [line for line in shown if line.startswith("  make ")]
    assert targets[0].split()[1] == "sweep"
    assert len(targets) <= 25
    assert not [line for line in targets if "..." in line or len(line) > 110]


def test_the_menu_of_the_program_is_in_the_same_groups(run):
    code, out, _ = run("--help")
    assert code == 0
    groups = re.findall(r"^(\w[\w ]*):$", out, re.MULTILINE)
    assert groups == ["Options", *menu.GROUPS, "Further commands"]
    assert "..." not in out.partition("Train and compare:")[2]


def test_a_typed_variable_becomes_the_option_of_its_name():
    values = {
        "TASK": "linear",
        "ATTN": "softmax 'ssa:n=2'",
        "SEEDS": "3",
        "DRY_RUN": "yes",
        "FORCE": "no",
        "SET": "a.b=1",
    }
    values |= {"ARGS": "--set 'c.d=1, 2' --overlay", "RESULTS": "a b", "SHARD": "-1/2", "DEVICE": ""}
    words = variables.words(loaded(cli.commands["sweep"]), values, values, [])
    pairs = [
        "--task",
        "linear",
        "--attn",
        "softmax",
        "--attn",
        "ssa:n=2",
        "--seeds",
        "3",
        "--dry-run",
        "--set",
        "a.b=1",
    ]
    assert words == [*pairs, "--results", "a b", "--shard=-1/2", "--set", "c.d=1, 2", "--overlay"]


def test_a_name_is_an_argument_or_an_option():
    values = {"NAME": "x"}
    assert variables.words(loaded(cli.commands["experiment"]), values, values, []) == ["x"]
    assert variables.words(loaded(cli.commands["compare"]), values, values, [])[-2:] == ["--name", "x"]


def test_what_a_command_needs_has_a_usual_value():
    assert variables.words(loaded(cli.commands["sweep"]), {}, [], []) == ["--task", "linear", "--attn", "softmax"]
    assert variables.words(loaded(cli.commands["functions"]), {}, [], []) == []


def test_a_typed_variable_that_is_not_taken_is_named():
    with pytest.raises(UnknownOption, match=r"functions takes no option 'SEEDS'.*It takes: ARGS, RESULTS"):
        variables.words(loaded(cli.commands["functions"]), {"SEEDS": "3"}, ["SEEDS"], [])


def test_a_variable_of_the_environment_counts_where_it_is_taken():
    values = {"SEEDS": "3", "RESULTS": "r"}
    assert variables.words(loaded(cli.commands["functions"]), values, [], values) == ["--results", "r"]
    assert variables.words(loaded(cli.commands["functions"]), {"RESULTS": ""}, [], ["RESULTS"]) == []


def test_an_open_quote_is_one_line():
    with pytest.raises(BadValue, match="ARGS=--x 'y cannot be read"):
        variables.words(loaded(cli.commands["sweep"]), {"ARGS": "--x 'y"}, ["ARGS"], [])


def test_options_are_spelled_as_make_takes_them():
    context = loaded(cli.commands["sweep"]).make_context(
        "sweep", ["--task", "linear", "--attn", "a", "--attn", "b:c=1"]
    )
    names = {parameter.name: parameter for parameter in context.command.params}
    said = [(names["task"], "linear"), (names["attns"], "a"), (names["attns"], "b:c=1"), (names["results"], "x y")]
    assert variables.spelled(loaded(cli.commands["sweep"]), said) == "TASK=linear ATTN='a b:c=1' RESULTS='x y'"


def test_a_command_that_is_new_takes_its_variables(run, monkeypatch):
    """What a file in icl_lab/analyses gives: a command, and with it a target."""

    @click.command("mine")
    @click.option("--position", default=0)
    @click.option("--attn", "attns", multiple=True)
    def mine(position, attns):
        click.echo(f"{position} {attns} {sys.argv}")

    monkeypatch.setitem(cli.commands, "mine", mine)
    monkeypatch.setenv("GIVEN", "POSITION ATTN")
    monkeypatch.setenv("POSITION", "-5")
    monkeypatch.setenv("ATTN", "softmax ssa")
    code, out, err = run("make", "mine")
    assert code == 0, err
    assert out.startswith("-5 ('softmax', 'ssa') ['make', 'mine', '--position=-5', '--attn', 'softmax'")
    code, _, err = run("make", "mien")
    assert (code, err.splitlines()[0].partition(" There")[0]) == (
        2,
        "icl-lab: No command is called 'mien'. Did you mean 'mine'?",
    )
