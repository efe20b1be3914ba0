"""Tables and pictures that scripts of ``experiments/`` write are in step with the evidence."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.cases import few

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("script", few(1, ["error_over_sigma.py", "bound_law.py", "boundary_arms.py", "causes.py"]))
def test_pages_are_in_step(script):
    words = [sys.executable, str(ROOT / "experiments" / script), "--check"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "nothing out of step" in done.stdout


def test_a_trade_off_that_is_not_stored_is_one_line():
    words = [sys.executable, str(ROOT / "experiments" / "tradeoff.py"), "--preset", "smoke"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith("Error: none has both: ")
