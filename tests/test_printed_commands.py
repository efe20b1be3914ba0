"""The commands of README and of the first hour, as they are printed, in a clean clone; and every experiment."""

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import click
import pytest

from icl_lab.cli.deferred import loaded
from icl_lab.cli.main import cli
from icl_lab.runs import estimate
from tests.make_lines import program_words
from tests.torture.ground import language_model

ROOT = Path(__file__).parents[1]
# Where the programs are that commands start: here, or in an environment that holds what a sweep needs and no more.
BIN = Path(os.environ.get("BARE_VENV", sys.prefix)).absolute() / "bin"
BARE = "BARE_VENV" in os.environ
PAGES = ("README.md", "docs/first-hour.md")
EXPERIMENTS = sorted(path.stem for path in (ROOT / "experiments").glob("*.toml"))
STARTS = ("make ", "icl-lab ", "PYTHON=python make ")
DRY = "ARGS=--dry-run"
# Commands that train, at the preset for a first look; those that take longer even so, rehearsed.
INSTEAD = {
    "make sweep TASK=linear ATTN=ssa": "PRESET=smoke",
    'make sweep TASK=linear ATTN=ssa ARGS="--set train.steps=2000 --set model.layers=3"': "PRESET=smoke "
    'ARGS="--dry-run --set train.steps=2000 --set model.layers=3"',
    'make compare TASK=linear ATTN="softmax ssa ssmax" SEEDS=3': f"PRESET=smoke {DRY}",
    'make boundary TASK=linear ATTN="softmax ssa"': f"PRESET=smoke {DRY}",
    "make experiment NAME=ssa-table1 SEEDS=3": f"PRESET=smoke {DRY}",
    "make judge ATTN=square:c=3": DRY,
    "make sweep TASK=text:file=book.txt ATTN=ssmax": f"PRESET=smoke {DRY}",
    "make sweep ATTN=square:c=3": f"PRESET=smoke {DRY}",
    "icl-lab sweep --task linear --attn ssa --dry-run": "--preset smoke",
    "icl-lab --import ./mine.py sweep --task linear --attn mine": "--preset smoke --dry-run",
}
SKIPPED = {
    "icl-lab evidence fetch --from ARCHIVE": "needs a release, which tests/test_release.py makes",
}
# Commands that need an extra: without it they say in one line what to install.
NEEDS = {"icl-lab lm FOLDER --attn softmax,log-n": "pip install 'icl_lab[hf]'"}
READ = 3  # experiments of the findings' table, at the least
MODEL = "FOLDER"  # in a command: a language model of the reader's
# Of commands that train nothing, and so have no rehearsal, but measure for minutes: a short measurement.
SHORT = {"costs": "--lengths 64 --pairs 1"}

pytestmark = [pytest.mark.exhaustive, pytest.mark.slow, pytest.mark.timeout(3600)]


def printed(page):
    """Commands of a page, in their order: whole lines of code blocks, and code in the text."""
    text = (ROOT / page).read_text()
    found = []
    for language, block, word in re.findall(r"^```(\w*)\n(.*?)^```|`([^`\n]+)`", text, re.MULTILINE | re.DOTALL):
        lines = [] if language else block.splitlines() or [word]
        found += [line for line in (re.split(r"\s+#", each)[0].strip() for each in lines) if line.startswith(STARTS)]
    return list(dict.fromkeys(found))


@pytest.fixture(scope="module")
def clone(tmp_path_factory):
    """A clone of the repository as it is in the working tree, with what the pages tell the reader to write."""
    place = tmp_path_factory.mktemp("clean") / "icl_lab"
    git(ROOT, "clone", "--quiet", str(ROOT), str(place))
    for name in git(ROOT, "ls-files", "--modified", "--others", "--exclude-standard").splitlines():
        if (ROOT / name).exists():
            (place / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, place / name)
        else:
            (place / name).unlink()
    code = re.search(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)[1]
    (place / "icl_lab" / "normalizers" / "square.py").write_text(code)
    (place / "mine.py").write_text(code.replace('"square"', '"mine"'))
    pytest.importorskip("transformers", reason="transformers is not installed")
    language_model(place.parent / "model")
    (place / "book.txt").write_text("".join(f"Line {n} of a book about {n % 7} ships.\n" for n in range(3000)))
    git(place, "add", "--all")
    who = ["-c", "user.name=test", "-c", "user.email=test@example.org"]
    git(place, *who, "commit", "--quiet", "--allow-empty", "-m", "test")
    return place


def git(place, *words):
    return subprocess.run(["git", "-C", str(place), *words], capture_output=True, text=True, check=True).stdout


def call(command, place, needs=""):
    """Run a command as a shell does in which the environment is active; fails on a traceback or a bad exit.

    One that ``needs`` what the environment lacks has to fail with one line that says so.
    """
    environment = {name: value for name, value in os.environ.items() if name != "ICL_LAB_EVIDENCE"}
    environment |= {"PATH": f"{BIN}:{os.environ['PATH']}", "PYTHON": "python", "PYTHONPATH": str(place)}
    done = subprocess.run(
        ["bash", "-c", command], cwd=place, env=environment, capture_output=True, text=True, check=False, timeout=900
    )
    assert "Traceback" not in done.stderr, f"{command}\n{done.stderr[-2000:]}"
    if needs:
        assert (done.returncode, done.stderr.count("\n"), needs in done.stderr) == (2, 1, True), done.stderr
    else:
        assert done.returncode == 0, f"{command}\n{done.stderr[-2000:]}"
    assert git(place, "status", "--porcelain") == "", command
    return done.stdout


def parse(command):
    """Return the command of a line; raises where it, or an option of it, does not exist."""
    words = [word for word in shlex.split(command) if not re.match(r"(PYTHON|ICL_LAB_IMPORT)=", word)]
    if words[0] == "make":
        words = ["icl-lab", *program_words(words)]
    assert Path(words[0]).name == "icl-lab" or words[1:3] == ["-m", "icl_lab"], command
    words = words[1:] if Path(words[0]).name == "icl-lab" else words[3:]
    while words[0] == "--import":
        words = words[2:]
    chosen = cli.get_command(click.Context(cli), words[0])
    assert chosen is not None, command
    loaded(chosen).make_context(words[0], words[1:])
    return loaded(chosen)


def check_next(out, place, monkeypatch, done=set()):  # noqa: B006
    """Hold every line that says what to do next against what there is, and do it as it is pasted, each once.

    What trains is rehearsed.
    """
    monkeypatch.chdir(place)
    for line in re.findall(r"^next: (.*?)(?:   \(.*)?$", out, re.MULTILINE):
        if line.startswith("open "):
            assert (place / line.removeprefix("open ")).exists(), line
            continue
        command = parse(line)
        if line in done:
            continue
        done.add(line)
        trains = any("--dry-run" in parameter.opts for parameter in command.params)
        call(f"{line} {'--dry-run' if trains else SHORT.get(command.name, '')}", place)


@pytest.mark.parametrize("page", PAGES)
def test_commands_of_a_page_do_what_they_say(page, clone, monkeypatch):
    ran = 0
    for command in printed(page):
        if command in SKIPPED:
            continue
        typed = command.replace(MODEL, str(clone.parent / "model"))
        out = call(f"{typed} {INSTEAD.get(command, '')}", clone, NEEDS.get(command, "") if BARE else "")
        if not BARE:
            check_next(out, clone, monkeypatch)
        ran += 1
    assert ran > 5


@pytest.mark.parametrize("page", PAGES)
def test_a_page_says_where_icl_lab_is(page):
    assert any(command.startswith("icl-lab ") for command in printed(page))
    assert ".venv/bin" in (ROOT / page).read_text()


def test_a_line_about_what_is_next_that_fails_is_told(clone, monkeypatch):
    for line in ("open nowhere.html", "icl-lab sweep --task lineer --attn ssa", "icl-lab no-such-command"):
        with pytest.raises((AssertionError, click.ClickException)):
            check_next(f"next: {line}   (because)\n", clone, monkeypatch)
    check_next("next: icl-lab list normalizers   (because)\n", clone, monkeypatch)


def test_a_list_of_exceptions_names_nothing_that_is_not_printed():
    known = {command for page in PAGES for command in printed(page)}
    assert {*INSTEAD, *SKIPPED, *NEEDS} <= known


def test_experiments_of_the_findings_are_judged_from_the_store(clone):
    rows = re.findall(
        r"\| `(\w+)`, (\d+), \w+ rates? \| \[`([\w-]+)`\]\(\.\./experiments/",
        (ROOT / "results/findings.md").read_text(),
    )
    assert len(rows) >= READ
    whole = []
    for preset, seeds, name in dict.fromkeys(rows):
        command = f"icl-lab experiment {name} --preset {preset} --seeds {seeds}"
        if "to do" not in call(f"{command} --dry-run", clone):  # of some a variant was left out at this scale
            whole.append(name)
            assert "### Claims" in call(command, clone)
    assert whole


def test_python_of_the_readme(clone):
    (code,) = re.findall(r"`(import icl_lab as icl; [^`]*)`", (ROOT / "README.md").read_text())
    call(f"python -c {shlex.quote(code)}", clone)


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_an_experiment_is_rehearsed_from_stored_runs(name, clone, run, monkeypatch, quick_pictures):
    monkeypatch.chdir(clone)
    monkeypatch.delenv("ICL_LAB_EVIDENCE")
    monkeypatch.setattr(estimate, "training_seconds", lambda *_: (60.0, 1))
    monkeypatch.setattr(estimate, "test_seconds", lambda *_: 1.0)
    code, out, err = run("experiment", name, "--dry-run")
    if 'rates = "own"' in (ROOT / "experiments" / f"{name}.toml").read_text():  # at lite no curve is stored
        assert (code, err.count("make it: icl-lab rates ")) == (2, 1), err
        return
    assert code == 0, err
    if "to do" not in out:
        out, err = run.ok("experiment", name)
        check_next(out, clone, monkeypatch)
    assert git(clone, "status", "--porcelain") == ""
