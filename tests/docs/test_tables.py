"""The pages that are written from docstrings and commands, and the script that writes them."""

import re
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from docs import tables
from docs.manual import manual
from icl_lab import analyses
from icl_lab.base.errors import UnknownName
from icl_lab.cli import catalogue
from icl_lab.cli.main import cli

ROOT = Path(__file__).parents[2]

STALE = "before\n<!-- index presets -->\nold\n<!-- end -->\nafter\n"


def test_filling_replaces_what_stands_between_marks():
    filled = tables.fill(STALE)
    assert "`lite`" in filled
    assert "old" not in filled
    assert filled.startswith("before\n")
    assert filled.endswith("after\n")
    assert tables.fill(filled) == filled


def test_an_unknown_mark_is_named():
    with pytest.raises(UnknownName, match="positons"):
        tables.fill("<!-- index positons -->\n<!-- end -->\n")


@pytest.mark.parametrize("what", ["tasks", "normalizers", "positions"])
def test_every_part_says_what_it_is_and_its_source(what):
    for registry in catalogue.registries(what):
        for entry in registry.entries():
            assert entry.line.endswith((".", "?")), f"{entry.name}: the first line is a sentence"
            assert entry.formula, f"{entry.name} has no Formula: line"
            assert re.search(r"\d{4}", entry.paper), f"{entry.name} has no Paper: line with a year"


@pytest.mark.parametrize(
    ("paper", "numbers"),
    [
        (
            "Naim et al. 2025, arXiv 2508.14685, Eq. 2 and Table 1; Garg et al. 2022, arXiv 2208.01066 (dim=20)",
            "2508.14685, Eq. 2 and Table 1; 2208.01066 (dim=20)",
        ),
        ("none, of this laboratory", "none, of this laboratory"),
    ],
)
def test_a_source_is_its_arxiv_numbers(paper, numbers):
    assert tables.source(paper) == numbers


def script(*words):
    done = CliRunner().invoke(tables.main, [*map(str, words)])
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return done.exit_code, done.stdout, done.stderr


def test_the_files_named_are_written_and_then_in_step(tmp_path):
    page = tmp_path / "page.md"
    page.write_text(STALE)
    assert script(page)[:2] == (0, f"wrote {page}\n")
    assert "`lite`" in page.read_text()
    assert script(page)[:2] == (0, "1 pages are in step.\n")


def test_a_check_names_stale_pages_and_writes_nothing(tmp_path):
    page = tmp_path / "page.md"
    page.write_text(STALE)
    code, _, err = script("--check", page)
    assert code == 1
    assert str(page) in err
    assert page.read_text() == STALE


def test_outside_the_repository_it_says_so(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code, _, err = script()
    assert code == 1
    assert "run this in the folder of the repository" in err


@pytest.mark.parametrize("command", ["index", "card"])
def test_a_command_that_went_names_its_successor(run, command):
    _, err = run.refused(command, "x", results=None)
    assert f"There is no command '{command}' any more: " in err


@click.group()
def program():
    """A program."""


@program.command()
@click.argument("what")
@click.option("--kind", type=click.Choice(["one", "two"]), default="one", show_default=True, help="A <kind>.")
@click.option("--size", type=click.IntRange(1, 9), default=1, show_default=True, help="Its size.")
def first(what, kind, size):
    """Do the first thing."""


@program.group()
def many():
    """Several in one."""


@many.command()
def inner():
    """The inner one."""


def test_the_manual_has_arguments_options_and_inner_commands():
    text = "\n".join(manual(program, "tool"))
    assert re.findall(r"^## `(.*)`", text, flags=re.MULTILINE) == ["first", "many", "many inner"]
    assert "Usage: `tool first [OPTIONS] WHAT`" in text
    assert "* `--kind [one|two]`: A &lt;kind>. [default: one]\n" in text
    assert "* `--size NUMBER`: Its size. [default: 1]\n" in text
    assert "Do the first thing." in text
    assert "--help" not in text


def test_an_option_of_many_commands_is_explained_once():
    group = click.Group()
    for name in "abcdefg":
        shared = ["--size", "--seed", *(["--name"] if name < "e" else [])]
        options = [click.Option([each], help="Of many.") for each in (*shared, f"--only-{name}")]
        group.add_command(click.Command(name, params=options, help="Do it."))
    text = "\n".join(manual(group, "tool"))
    assert text.count("* `--size TEXT`: Of many.") == 1
    assert text.count("As above: all.") == 4
    assert text.count("As above: all but `--name`.") == 3
    assert "* `--only-c TEXT`: Of many." in text.partition("## `c`")[2].partition("## `d`")[0]


def test_subcommands_are_written_and_analyses_are_not():
    sections = re.findall(r"^## `(.*)`", "\n".join(manual(cli, "icl-lab")), flags=re.MULTILINE)
    assert "evidence add" in sections
    assert not {*analyses.names()} & {*sections}
    assert {*cli.commands} - {*analyses.names()} <= {*sections}


def test_experiments_have_a_clause_and_a_source():
    (row,) = [row for row in tables.BLOCKS["experiments"](ROOT) if row.startswith("| `ssa-table1` |")]
    assert re.fullmatch(
        r"\| `ssa-table1` \| Which rule follows functions far from training\? \| 2508.14685, Table 1 \| \d+ \|", row
    )
    (short,) = [row for row in tables.BLOCKS["experiments"](ROOT) if row.startswith("| `ssa-depth` |")]
    assert "Depth:" in short
