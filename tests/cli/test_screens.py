"""Five commands as a terminal of 80 columns shows them, compared with the screens that are kept beside this file.

After a change that is meant, delete the screen: it is then written anew, and the test fails once.
"""

import math
import os
import shutil
import sys
from pathlib import Path

import click
import pytest

from icl_lab.comparison.statistics import paired
from icl_lab.runs import summary
from tests.site import made

SCREENS = Path(__file__).parent / "screens"
COLUMNS = 80
WHAT = ("--task", "linear", "--preset", "smoke", *(word for field in made.SMALL for word in ("--set", field)))
COMMANDS = {
    "sweep": ("sweep", *WHAT, "--attn", "ssa"),
    "experiment": ("experiment", "made", "--preset", "smoke", "--seeds", "3", "--experiments", "files"),
    "claims": ("claims", "--experiments", "files"),
    "list-runs": ("list", "runs"),
}
COMPARE = ("compare", *WHAT, "--attn", "softmax,ssa", "--seeds", "3", "--at")
pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("quick_pictures")]


@pytest.fixture
def ground(tmp_path, monkeypatch):
    """A folder with three seeds of two normalizers that nobody trained, and an experiment about them."""
    made.experiment(tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("name", COMMANDS)
def test_a_screen_is_as_it_was(name, ground, run):
    with pytest.MonkeyPatch.context() as patch:
        check(name, screen(COMMANDS[name], run, patch))


def check(name, shown):
    """Hold a screen against the one that is kept."""
    kept = SCREENS / f"{name}.txt"
    if not kept.exists():
        kept.write_text(shown)
        pytest.fail(f"{kept} was not there, and is now: read it")
    assert shown == kept.read_text()


def screen(words, run, patch):
    """Return what a command prints to a terminal, without marks of weight."""
    patch.setattr(shutil, "get_terminal_size", lambda *_: os.terminal_size((COLUMNS, 24)))
    patch.setattr(type(sys.stdout), "isatty", lambda _: True)
    return click.unstyle(run.ok(*words, "--results", "results", results=None)[0])


def test_a_comparison_at_one_cell_has_its_own_interval(ground, run, monkeypatch):
    """Three seeds of SSA err 0.5, 0.75 and 0.6 times as much as softmax, which errs 400."""
    with pytest.MonkeyPatch.context() as patch:
        check("compare-at", screen((*COMPARE, "sigma_f=10"), run, patch))
    monkeypatch.setattr(summary, "GATE", math.inf)  # what is learned is not asked
    out, _ = run.ok(*COMPARE, "sigma_f=10", "--results", "results", results=None)
    ratio = paired([400.0] * 3, [200.0, 300.0, 240.0]).ratio
    assert "| `ssa` | 247 | {:.3g} [{:.3g}, {:.3g}] |".format(*ratio) in out.split("At sigma_f=10:")[1]
    _, err = run.refused(*COMPARE, "sigma_f=3.5", "--results", "results", results=None)
    assert "no cell of the test grid has sigma_f=3.5; tested: " in err
    run.refused(*COMPARE, "sigma_f", "--results", "results", results=None)
