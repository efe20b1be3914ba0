"""README and docs: short enough, in step with the code, and everything that they name exists."""

import re
import shlex
from itertools import pairwise
from pathlib import Path

import click
import pytest

import icl_lab
from icl_lab import normalizers, tasks
from icl_lab.cli import index
from icl_lab.cli.main import cli
from icl_lab.runs.spec import resolve

ROOT = Path(__file__).parent.parent
README = ROOT / "README.md"
PAGES = index.pages(ROOT)
EXAMPLES = {"square:c=3", "mine"}  # rules that a reader is to write
ELSEWHERE = {"icl_lab/normalizers/square.py", "path/to/file.toml", "site/"}  # files that a reader writes or builds
# Words that stand for what a reader puts there.
PLACEHOLDERS = {"COMMAND", "FOLDER", "$SLURM_ARRAY_TASK_ID"}
# What the pages describe and the code does not have yet; a name that is there by now must leave this list.
COMING_COMMANDS = {"evidence", "check-part", "report"}
COMING_TARGETS = {"test-fast"}
COMING_OPTIONS = {"--import", "--evidence"}
COMING_PLACES = {"results/evidence"}

every_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)


def written(page):
    """A page without what is generated from the commands, which is true as it stands."""
    return re.sub(r"<!-- index commands -->.*?<!-- end -->", "", page.read_text(), flags=re.DOTALL)


def spans(text):
    """The inline code of a page."""
    return re.findall(r"`([^`\n]+)`", re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE))


def blocks(text, language=""):
    """The code blocks of a page in one language; commands stand in blocks that name none."""
    return re.findall(rf"^```{language}\n(.*?)^```", text, flags=re.DOTALL | re.MULTILINE)


def lines(text):
    """Every command line of a page: those in blocks, and inline code that begins as one does."""
    inline = [" ".join(span.split()) for span in re.findall(r"`((?:make|icl-lab) [^`]+)`", text.replace("```", ""))]
    for line in [line for block in blocks(text) for line in block.splitlines()] + inline:
        if re.match(r"([A-Z_]+=\S+ )*(make|icl-lab) ", line):
            yield line, shlex.split(line, comments=True)


def made():
    """Targets of the Makefile, each with the command that it calls, and the names of the variables."""
    text = (ROOT / "Makefile").read_text()
    targets = {}
    for name, recipe in re.findall(r"^([a-z][\w-]*):(?! *\w+ *=).*\n((?:\t.*\n)*)", text, flags=re.MULTILINE):
        called = re.search(r"\$\(LAB\) ([\w-]+)", recipe)
        targets[name] = called[1] if called else ""
    return targets, set(re.findall(r"^ *([A-Z_]+) *[?:]?=", text, flags=re.MULTILINE)) | {"PYTHON"}


TARGETS, VARIABLES = made()
ALL_OPTIONS = {name for command in cli.commands.values() for option in command.params for name in option.opts}


def parse(name, words):
    """Parses the options of a command; raises where one does not exist, without asking for those that are missing."""
    command = cli.commands[name]
    command.make_parser(click.Context(command, info_name=name)).parse_args(list(words))


def test_the_readme_is_short():
    assert len(README.read_text().split()) <= 1800


def test_a_rule_is_defined_once_in_the_readme():
    assert len(re.findall(r"\*\*rule\*\*", README.read_text())) == 1


@every_page
def test_tables_are_in_step(page):
    text = page.read_text()
    assert index.fill(text, ROOT) == text, "run: make index"


def test_every_table_stands_somewhere():
    marks = [mark for page in PAGES for mark in re.findall(r"<!-- index (\w+) -->", page.read_text())]
    assert sorted(marks) == sorted(index.BLOCKS)


def test_findings_in_the_readme_have_verdicts():
    table = re.search(r"<!-- index findings -->\n(.*?)<!-- end -->", README.read_text(), flags=re.DOTALL)[1]
    verdicts = [line.split("|")[-2].strip() for line in table.splitlines()[2:]]
    assert 8 <= len(verdicts) <= 16
    assert {"supported", "contradicted"} <= set(verdicts)


@every_page
def test_links_lead_to_files(page):
    for target in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", page.read_text()):
        if not target.startswith("https://"):
            assert (page.parent / target).exists(), target


@every_page
def test_named_files_exist(page):
    for span in spans(page.read_text()):
        if re.fullmatch(r"(?:[\w.-]{2,}/)+[\w.-]*", span) and span not in ELSEWHERE | COMING_PLACES:
            assert any((place / span).exists() for place in (ROOT, ROOT / "icl_lab")), span


def test_the_tree_in_the_readme_is_the_tree():
    tree = next(block for block in blocks(README.read_text()) if block.startswith("icl_lab/"))
    named = {word.rstrip("/") for line in tree.splitlines()[1:] for word in re.findall(r"^ {2}(\w+/|\w+\.py)", line)}
    named |= {word for line in tree.splitlines() for word in re.findall(r"(\w+\.py)", line)}
    inside = Path(icl_lab.__file__).parent
    there = {p.name for p in inside.iterdir() if p.suffix == ".py" or (p / "__init__.py").exists()}
    assert named - there == set()
    assert there - named <= {"__init__.py", "__main__.py"}


@every_page
def test_make_lines_name_targets_and_variables(page):
    for line, words in lines(written(page)):
        if "make" not in words:
            continue
        settings = dict(word.split("=", 1) for word in words if re.match(r"[A-Z_]+=", word))
        target = next(
            (word for word in words[words.index("make") + 1 :] if word not in settings and "=" not in word), ""
        )
        if target in COMING_TARGETS:
            continue
        assert target in TARGETS, line
        assert set(settings) <= VARIABLES, line
        if "ARGS" in settings:
            parse(TARGETS[target], shlex.split(settings["ARGS"]))
        if "TASK" in settings:
            tasks.canonical(settings["TASK"])
        for rule in set(settings.get("ATTN", "").split()) - EXAMPLES:
            normalizers.canonical(rule)


@every_page
def test_commands_exist_with_their_options(page):
    for line, words in lines(written(page)):
        if "icl-lab" not in words or COMING_OPTIONS & set(words):
            continue
        name, *rest = words[words.index("icl-lab") + 1 :]
        if name in COMING_COMMANDS | PLACEHOLDERS:
            continue
        assert name in cli.commands, line
        rest = [word.replace("$SLURM_ARRAY_TASK_ID", "1") for word in rest]
        if line.strip().startswith("icl-lab") and rest:
            try:
                cli.commands[name].make_context(name, list(rest), help_option_names=["-h", "--help"])
            except click.ClickException as error:
                pytest.fail(f"{line}: {error.format_message()}")
        for option, value in pairwise(rest):
            if option == "--task":
                tasks.canonical(value)
            if option in ("--attn", "--swap") and value not in EXAMPLES:
                normalizers.canonical(value)


@every_page
def test_options_in_the_text_exist(page):
    text = written(page)
    for option in {
        word for span in [*spans(text), *blocks(text)] for word in re.findall(r"(?<![\w-])--[a-z][a-z-]+", span)
    }:
        assert option in ALL_OPTIONS | COMING_OPTIONS | {"--help"}, option


@every_page
def test_settings_in_the_text_are_fields(page):
    whole = resolve("needle", "softmax").whole() | {"model.rope_theta": None}
    for path in re.findall(r"--set ([\w.]+)=", written(page).replace("\n", " ")):
        place = whole
        for key in [path] if path in whole else path.split("."):
            assert key in place, path
            place = place[key]


def test_what_is_coming_is_not_there_yet():
    assert not COMING_COMMANDS & set(cli.commands)
    assert not COMING_TARGETS & set(TARGETS)
    assert not COMING_OPTIONS & (ALL_OPTIONS | {name for option in cli.params for name in option.opts})
    assert not any((ROOT / place).exists() for place in COMING_PLACES)


def test_the_example_rule_runs_as_printed():
    import torch

    (example,) = [block for block in blocks(README.read_text(), "python") if 'add("square")' in block]
    assert example in blocks((ROOT / "docs" / "add-a-rule.md").read_text(), "python")
    try:
        exec(compile(example, "square.py", "exec"), {"__name__": "square"})
        rule = normalizers.build("square:c=3", heads=1, head_dim=4, train_tokens=8)
        q, k = torch.randn(2, 1, 1, 5, 4, generator=torch.Generator().manual_seed(0))
        visible = torch.ones(5, 5, dtype=torch.bool)
        torch.testing.assert_close(rule.weights(q, k, visible), (3 * q @ k.mT / 2).softmax(-1))
    finally:
        normalizers.registry._parts.pop("square", None)  # other tests try every rule that there is
