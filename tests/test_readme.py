"""README and docs: short enough, in step with the code, and everything that they name exists."""

import ast
import io
import pkgutil
import re
import shlex
import tokenize
from itertools import pairwise
from pathlib import Path

import click
import pytest
import torch

import icl_lab
from benchmarks.__main__ import bench
from docs import tables
from icl_lab import normalizers, tasks
from icl_lab.claims import ledger
from icl_lab.cli.deferred import loaded
from icl_lab.cli.imports import named
from icl_lab.cli.main import cli
from icl_lab.runs.spec import resolve
from tests.make_lines import program_words

ROOT = Path(__file__).parent.parent
README = ROOT / "README.md"
PAGES = tables.pages(ROOT)
FINDINGS = ROOT / tables.FINDINGS
EXAMPLES = {"square:c=3", "mine", "sine", "lookup:keys=12"}  # normalizers that a reader is to write
# Files that a reader writes or builds.
ELSEWHERE = {"icl_lab/normalizers/square.py", "path/to/file.toml", "site/", "docs/_build/"}
ELSEWHERE |= {"results/runs/", "results/own/", "results/tracked/"}
# Words that stand for what a reader puts there.
PLACEHOLDERS = {"COMMAND", "FOLDER", "$SLURM_ARRAY_TASK_ID"}
every_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)


def written(page):
    """A page without what is generated from the commands, which is true as it stands."""
    return re.sub(r"<!-- index commands -->.*?<!-- end -->", "", page.read_text(), flags=re.DOTALL)


def spans(text):
    """The inline code of a page."""
    return re.findall(r"`([^`\n]+)`", re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE))


def blocks(text, language=""):
    """The code blocks of a page in one language; commands stand in blocks that name none."""
    found = re.findall(r"^```(.*?)\n(.*?)^```", text, flags=re.DOTALL | re.MULTILINE)
    return [block for named, block in found if named == language]


def lines(text):
    """Every command line of a page: those in blocks, and inline code that begins as one does."""
    inline = [" ".join(span.split()) for span in re.findall(r"`((?:make|icl-lab) [^`]+)`", text.replace("```", ""))]
    written_out = [line for block in blocks(text) for line in block.replace("\\\n", " ").splitlines()]
    for line in written_out + inline:
        if re.match(r"([A-Z_]+=\S+ )*(make|icl-lab) ", line):
            yield line, shlex.split(line, comments=True)


def options_of(command):
    """The options of a command, and of those below it."""
    below = [option for each in getattr(command, "commands", {}).values() for option in options_of(each)]
    return [*(name for option in command.params for name in option.opts + option.secondary_opts), *below]


# Targets of the Makefile's own; every other one is a command of the program.
OWN = set(re.search(r"^override OWN := (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)[1].split())
ALL_OPTIONS = {option for each in [cli, *map(loaded, cli.commands.values())] for option in options_of(each)}
BENCH_OPTIONS = set(options_of(bench))  # of ``python -m benchmarks``
# The examples of the pages are there once a reader has written it.
WRITTEN = {"in-context", "spread"}


def test_the_readme_is_short():
    code = r"^```.*?^```|<picture>.*?</picture>|<!--.*?-->"
    words = re.sub(code, "", README.read_text(), flags=re.MULTILINE | re.DOTALL).split()
    assert len(words) <= 650


def test_a_normalizer_is_defined_once_in_the_readme():
    assert len(re.findall(r"\*\*normalizer\*\*", README.read_text())) == 1


@pytest.mark.slow
@every_page
def test_tables_are_in_step(page):
    text = page.read_text()
    assert tables.fill(text, ROOT) == text, "run: python -m docs.tables"


def test_every_table_stands_somewhere():
    marks = [mark for page in PAGES for mark in re.findall(r"<!-- index (\w+) -->", page.read_text())]
    assert sorted(marks) == sorted(tables.BLOCKS)


def test_the_findings_stand_on_one_page():
    text = FINDINGS.read_text()
    assert len(re.sub("<!--.*?-->", "", text, flags=re.DOTALL).split()) <= 1200
    assert len(ledger.CITES.findall(text)) >= 10


@every_page
def test_paragraphs_cite_verdicts_that_hold(page):
    assert list(ledger.stale_citations(page.read_text(), tables.recorded(ROOT))) == []


@every_page
def test_links_lead_to_files(page):
    for target in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", page.read_text()):
        if not target.startswith("https://"):
            assert (page.parent / target).exists(), target


@every_page
def test_named_files_exist(page):
    for span in spans(page.read_text()):
        if re.fullmatch(r"(?:[\w.-]{2,}/)+[\w.-]*", span) and span not in ELSEWHERE:
            assert any((place / span).exists() for place in (ROOT, ROOT / "icl_lab")), span


def prose(text):
    """The docstrings and comments of a module."""
    kinds = ast.Module | ast.ClassDef | ast.FunctionDef
    docstrings = [ast.get_docstring(node) or "" for node in ast.walk(ast.parse(text)) if isinstance(node, kinds)]
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    return "\n".join([*docstrings, *(token.string for token in tokens if token.type == tokenize.COMMENT)])


def dead_names(text, folder):
    """Paths, modules and commands that a module's docstrings and comments name and that are not there."""
    said, roots = prose(text), (ROOT, ROOT / "icl_lab", folder)
    rooms = {path.name for root in (ROOT, ROOT / "icl_lab") for path in root.iterdir() if path.is_dir()}
    for path in re.findall(r"(?<![\w./-])((?:[\w-]+/)+[\w-]+(?:\.\w+)?)", said):
        ours = path.partition("/")[0] in rooms or path.endswith(".py")
        elsewhere = f"{path}/".startswith(tuple(ELSEWHERE))
        if ours and not elsewhere and not any(any(root.glob(f"{path}*")) for root in roots):
            yield path
    for file in re.findall(r"(?<![\w./-])(\w+\.py)\b", said):
        if not any(any(root.rglob(file)) for root in (ROOT / "icl_lab", folder)) and not (ROOT / file).exists():
            yield file
    for module in re.findall(r"\bicl_lab\.\w[\w.]*\b", said):
        try:
            pkgutil.resolve_name(module)
        except (ImportError, AttributeError):
            yield module
    yield from (word for word in re.findall(r"\bicl-lab ([a-z][a-z-]+)", said) if word not in cli.commands)


@pytest.mark.parametrize(
    ("text", "dead"),
    [
        ("# as in runs/store.py and store.py, results/own/x, src/their/thing or n/2", []),
        ("# as in runs/stove.py", ["runs/stove.py"]),
        ("# as in stove.py", ["stove.py"]),
        ("# see claims/verdicts", ["claims/verdicts"]),
        ("# ``icl_lab.runs.store.Store``, icl_lab.claims", []),
        ("# see icl_lab.runs.stove", ["icl_lab.runs.stove"]),
        ('"""Written by ``icl-lab sweep`` and ``icl-lab index``."""', ["index"]),
    ],
)
def test_a_dead_name_in_a_docstring_is_found(text, dead):
    assert list(dead_names(text, ROOT / "icl_lab" / "runs")) == dead


@pytest.mark.parametrize("room", ["icl_lab", "docs", "experiments", "benchmarks"])
def test_docstrings_name_what_exists(room):
    modules = sorted((ROOT / room).rglob("*.py"))
    dead = {str(path.relative_to(ROOT)): list(dead_names(path.read_text(), path.parent)) for path in modules}
    assert {path: names for path, names in dead.items() if names} == {}


def test_the_tree_in_the_readme_is_the_tree():
    tree = next(block for block in blocks(README.read_text()) if block.startswith("icl_lab/"))
    rooms = [re.match(r"((  (\w+/|\w+\.py))+)", line) for line in tree.splitlines()[1:]]
    named = {word.rstrip("/") for found in rooms if found for word in found[0].split()}
    assert len(tree.strip().splitlines()) <= 14
    inside = Path(icl_lab.__file__).parent
    there = {p.name for p in inside.iterdir() if p.suffix == ".py" or (p / "__init__.py").exists()}
    assert named - there == set()
    assert there - named <= {"__init__.py", "__main__.py"}


@every_page
def test_commands_exist_with_their_options(page):
    for line, words in lines(written(page)):
        if "make" in words:
            target = next((word for word in words[words.index("make") + 1 :] if "=" not in word), "")
            name, *rest = [target] if target in OWN | WRITTEN else program_words(words)
        else:  # --import may stand anywhere
            name, *rest = named(words[words.index("icl-lab") + 1 :])[0]
        if name in WRITTEN | (OWN if "make" in words else PLACEHOLDERS):
            continue
        assert name in cli.commands, line
        rest = [word.replace("$SLURM_ARRAY_TASK_ID", "1") for word in rest]
        if line.strip().startswith(("make", "icl-lab")) and rest:
            try:
                cli.commands[name].make_context(name, list(rest), help_option_names=["-h", "--help"])
            except click.ClickException as error:
                pytest.fail(f"{line}: {error.format_message()}")
        for option, value in pairwise(rest):
            if option == "--task" and value not in EXAMPLES:
                tasks.canonical(value)
            if option in ("--attn", "--swap"):  # several at once, where a command takes them
                for rule in set(re.split(r",(?![\w-]+=)|\s+", value)) - EXAMPLES:
                    normalizers.canonical(rule)


@every_page
def test_options_in_the_text_exist(page):
    text = re.sub(r"^(pip|pipx|uvx) .*$", "", written(page), flags=re.MULTILINE)  # other programs have their own
    named = {word for code in [*spans(text), *blocks(text)] for word in re.findall(r"(?<![\w-])--[a-z][a-z-]+", code)}
    assert named - ALL_OPTIONS - BENCH_OPTIONS - {"--help", "--import"} == set()


@every_page
def test_settings_in_the_text_are_fields(page):
    whole = resolve("needle", "softmax").whole() | {"model.rope_theta": None}
    for path in re.findall(r"--set ([\w.]+)=", written(page).replace("\n", " ")):
        place = whole
        for key in [path] if path in whole else path.split("."):
            assert key in place, path
            place = place[key]


def test_the_example_rule_runs_as_printed(own_parts):
    (example,) = [block for block in blocks(README.read_text(), "python") if 'add("square")' in block]
    assert example in blocks((ROOT / "docs" / "add-a-normalizer.md").read_text(), "python")
    exec(compile(example, "square.py", "exec"), {"__name__": "square"})
    rule = normalizers.build("square:c=3", heads=1, head_dim=4, train_tokens=8)
    q, k = torch.randn(2, 1, 1, 5, 4, generator=torch.Generator().manual_seed(0))
    visible = torch.ones(5, 5, dtype=torch.bool)
    torch.testing.assert_close(rule.weights(q, k, visible), (3 * q @ k.mT / 2).softmax(-1))


def test_the_example_task_is_the_one_under_test():
    page = ROOT / "docs" / "add-a-task.md"
    (example,) = [block for block in blocks(page.read_text(), "python") if 'add("sine")' in block]
    assert example == (ROOT / "tests" / "examples" / "sine.py").read_text()


@pytest.mark.slow
@pytest.mark.parametrize("page", [README, ROOT / "docs" / "first-hour.md"], ids=lambda page: page.name)
def test_first_commands_read_what_the_repository_holds(page, run, tmp_path, monkeypatch):
    """Those that compare or ask: only ``sweep`` trains for whoever has just arrived."""
    words = [program_words(each) for line, each in lines(page.read_text()) if line.startswith("make ")]
    monkeypatch.setenv("ICL_LAB_EVIDENCE", str(ROOT / "results" / "evidence"))
    asked = [each for each in words if each and each[0] in ("compare", "boundary", "attention")]
    assert len(asked) > 2
    for each in asked:
        _, err = run.ok(*each, "--dry-run", results=tmp_path)
        assert "trains nothing" in err or "done before" in err, f"{each}: {err}"
