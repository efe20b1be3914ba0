"""How threads wait: asleep where other processes are at work, and as a user has said where one has."""

import os
import subprocess
import sys

import pytest

from icl_lab.cli.main import THREADS, wait_asleep


@pytest.fixture
def policy(tmp_path, monkeypatch):
    """What is said of waiting where ``/proc/loadavg`` holds a line, and what a user has said before."""
    for name in THREADS:
        monkeypatch.setenv(name, "")  # so that it is taken back
        monkeypatch.delenv(name)

    def ask(line, **own):
        for name, value in own.items():
            monkeypatch.setenv(name, value)
        if line:
            (tmp_path / "loadavg").write_text(line)
        wait_asleep(tmp_path / "loadavg")
        return os.environ.get("OMP_WAIT_POLICY")

    return ask


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("5.82 4.74 4.33 5/101 7001\n", "passive"),
        ("0.50 0.10 0.05 2/101 7001\n", "passive"),
        ("0.49 4.74 4.33 5/101 7001\n", None),  # a process that has just begun may end as soon
        ("1.90 1.20 0.40 1/101 7001\n", None),  # the load of a command that has ended: this process alone runs
        ("0.00 0.00 0.00 0/0 0\n", None),  # a sandbox that says nothing
        ("", None),  # another system
    ],
)
def test_threads_sleep_while_they_wait_on_a_busy_machine(policy, line, said):
    assert policy(line) == said


@pytest.mark.parametrize("name", THREADS)
def test_a_users_own_variable_decides(policy, name):
    said = "active" if name == "OMP_WAIT_POLICY" else None
    assert policy("5.82 4.74 4.33 5/101 7001\n", **{name: "active"}) == said


def test_it_is_said_before_torch_is_imported():
    script = (
        "import sys; from icl_lab.cli import main as module\n"
        "module.wait_asleep = lambda: print('torch' in sys.modules)\n"
        "sys.argv = ['icl-lab', 'list']; module.main()"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[0] == "False"
