"""Six commands as a terminal of 80 columns shows them, compared with the screens that are kept beside this file.

After a change that is meant, delete the screen: it is then written anew, and the test fails once.
"""

import os
import shutil
import sys
from pathlib import Path

import click
import pytest

from tests.site import made

SCREENS = Path(__file__).parent / "screens"
COLUMNS = 80
WHAT = ("--task", "linear", "--preset", "smoke", *(word for field in made.SMALL for word in ("--set", field)))
COMMANDS = {
    "compare": ("compare", *WHAT, "--attn", "softmax,ssa", "--seeds", "3"),
    "compare-at": ("compare", *WHAT, "--attn", "softmax,ssa", "--seeds", "3", "--at", "sigma_f=10"),
    "sweep": ("sweep", *WHAT, "--attn", "ssa"),
    "experiment": ("experiment", "made", "--preset", "smoke", "--seeds", "3", "--experiments", "files"),
    "claims": ("claims", "--experiments", "files"),
    "list-runs": ("list", "runs"),
}
pytestmark = pytest.mark.slow


@pytest.fixture
def ground(tmp_path, monkeypatch):
    """A folder with three seeds of two normalizers that nobody trained, and an experiment about them."""
    made.experiment(tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("name", COMMANDS)
def test_a_screen_is_as_it_was(name, ground, run, monkeypatch, quick_pictures):
    shown = screen(COMMANDS[name], ground, run, monkeypatch)
    kept = SCREENS / f"{name}.txt"
    if not kept.exists():
        kept.write_text(shown)
        pytest.fail(f"{kept} was not there, and is now: read it")
    assert shown == kept.read_text()


def screen(words, ground, run, monkeypatch):
    """Return what a command prints to a terminal, without marks of weight."""
    monkeypatch.setattr(shutil, "get_terminal_size", lambda *_: os.terminal_size((COLUMNS, 24)))
    monkeypatch.setattr(type(sys.stdout), "isatty", lambda _: True)
    out, err = run.ok(*words, "--results", "results", results=None)
    return click.unstyle(out)
