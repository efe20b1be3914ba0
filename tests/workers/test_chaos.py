"""The command line with workers elsewhere, over a way that breaks: the results are those of this machine."""

import os
import pty
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

from icl_lab import outside
from tests.workers.compared import contents

ROOT = Path(__file__).parents[2]
SMALL = ["--set", "train.steps=120", "--set", "train.batch=8", "--set", "test.prompts=64", "--no-evidence"]
SMALL += ["--set", "model.width=16", "--set", "model.heads=2"]
SMALL += ["--set", "test.axes.sigma_x=1", "--set", "test.axes.sigma_f=1,2"]
SWEEP = ["sweep", "--task", "linear", "--preset", "smoke", *SMALL]

# What stands for ssh: options, a host, and words that a shell reads. It starts in a folder of its own, passes on what
# comes back, and twice breaks off after some bytes.
SSH = """
import os, random, subprocess, sys
words = sys.argv[1:]
while words[0].startswith("-"):
    del words[: 2 if words[0] == "-o" else 1]
host, command = words[0], " ".join(words[1:])
place = os.path.join(os.path.dirname(os.path.abspath(sys.argv[0])), host)
os.makedirs(place, exist_ok=True)
number = sum(name.startswith("connection") for name in os.listdir(place))
open(os.path.join(place, f"connection-{number}"), "w").close()
worker = subprocess.Popen(["sh", "-c", command], stdout=subprocess.PIPE, cwd=place)
left = random.Random(f"{host} {number}").randrange(300_000, 900_000) if number < 1 else float("inf")
while data := os.read(worker.stdout.fileno(), 1 << 12):
    os.write(1, data)
    left -= len(data)
    if left < 0:
        print("client_loop: send disconnect: Broken pipe", file=sys.stderr, flush=True)
        os._exit(255)
sys.exit(worker.wait())
"""

# icl-lab as it is started there: it keeps and sends a checkpoint as often as it can, and prints where it should not.
PROGRAM = """
import os
from icl_lab.cli.main import main
from icl_lab.runs import checkpoints
from icl_lab.training import loop
from icl_lab.workers import mirror
loop.CHECKPOINT_SECONDS = mirror.OFTEN = 0.0
mirror.SHARE = 0
whole = checkpoints.resume
def resume(*words):
    progress = whole(*words)
    open(f"from-{progress.step}", "w").close()
    return progress
checkpoints.resume = resume
row = loop.row
def loud(*words):
    print("a library says hello")
    os.write(1, b'\\n{"end": "failed", "reason": "a library said so"}\\n')
    return row(*words)
loop.row = loud
main()
"""


def script(path, text):
    path.parent.mkdir(exist_ok=True)
    path.write_text(f"#!{sys.executable}\n{text}")
    path.chmod(0o755)
    return path


def icl_lab(*words, env=(), **more):
    variables = {**os.environ, "PYTHONPATH": str(ROOT), **dict(env)}
    return subprocess.Popen([sys.executable, "-m", "icl_lab", *words], env=variables, text=True, **more)


def done(*words, env=(), **more):
    with icl_lab(*words, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **more) as process:
        out, err = process.communicate()
    return process.returncode, out, err


@pytest.mark.slow
@pytest.mark.exhaustive
def test_over_a_way_that_breaks_the_results_are_those_of_this_machine(tmp_path, own_parts):
    page = (ROOT / "docs" / "outside-parts.md").read_text()
    (tmp_path / "square.py").write_text(page.split("```python\n")[1].partition("```")[0])  # a rule as printed there
    words = [*SWEEP, "--attn", "ssa", "--attn", "square:c=3", "--import", "./square.py"]
    code, _, err = done(*words, "--threads", "2", "--jobs", "2", "--results", "here", cwd=tmp_path)
    assert code == 0, err
    script(tmp_path / "bin" / "ssh", SSH)
    program = script(tmp_path / "bin" / "program", PROGRAM)
    far = ["--on", "gpu1,ann@gpu2", "--remote-command", f"exec {program}", "--results", "far"]
    env = {"PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}"}
    code, _, err = done(*words, *far, cwd=tmp_path, env=env)
    assert code == 0, err
    assert err.count("lost: ") == 2, err
    assert err.count("it goes on from its last checkpoint") == 2
    outside.load(str(tmp_path / "square.py"))
    here, there = contents(tmp_path / "here"), contents(tmp_path / "far")
    assert there == here
    assert len(here) == 12
    # Trainings went on from the middle.
    steps = [int(path.name.partition("-")[2]) for path in (tmp_path / "bin").glob("*gpu*/from-*")]
    assert max(steps) > 0
    assert not list(tmp_path.glob("far/**/checkpoint*"))


def workers_of(driver):
    """The processes that a driver has started."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, parent = path.read_text().rpartition(")")[2].split()[:2]
        except OSError:  # gone by now
            continue
        if int(parent) == driver and state != "Z":
            found.append(int(path.parent.name))
    return found


def until(condition, seconds=100):
    """Waits for a condition."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it never came true"
        time.sleep(0.05)


LONG = ["--set", "train.steps=200000", "--threads", "2"]


def begun(folder, count):
    """Whether so many trainings have kept a checkpoint, or are about to: their specification is there."""
    return len(list(folder.rglob("spec.json"))) >= count


@pytest.mark.slow
@pytest.mark.exhaustive
def test_workers_of_a_driver_that_died_stop_with_a_checkpoint(tmp_path):
    words = [*SWEEP, *LONG, "--attn", "softmax", "--seeds", "2", "--jobs", "2", "--results", str(tmp_path)]
    with icl_lab(*words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as driver:
        try:
            until(lambda: begun(tmp_path, 2))
            workers = workers_of(driver.pid)
            assert len(workers) == 2
        finally:
            driver.kill()  # and what is left does not train on where the test fails
    until(lambda: not any(Path(f"/proc/{number}").exists() for number in workers), seconds=60)
    assert len(list(tmp_path.rglob("checkpoint.pt"))) == 2


@pytest.mark.slow
@pytest.mark.exhaustive
@pytest.mark.parametrize("jobs", [1, 2])
def test_a_closed_terminal_keeps_checkpoints(tmp_path, jobs):
    words = [*SWEEP, *LONG, "--attn", "softmax", "--seeds", "2", "--jobs", str(jobs), "--results", str(tmp_path)]
    child, terminal = pty.fork()
    if child == 0:
        signal.signal(signal.SIGHUP, signal.SIG_DFL)  # which a suite under nohup would hand on as ignored
        os.environ["PYTHONPATH"] = str(ROOT)
        os.execv(sys.executable, [sys.executable, "-m", "icl_lab", *words])
    os.set_blocking(terminal, False)

    def ready():
        with suppress(BlockingIOError):
            os.read(terminal, 1 << 16)
        return begun(tmp_path, jobs)

    try:
        until(ready)
    finally:
        os.close(terminal)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 75
    assert len(list(tmp_path.rglob("checkpoint.pt"))) == jobs


def test_what_nohup_ignores_stays_ignored(monkeypatch):
    from icl_lab.cli.options import catch_signals

    kinds = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGHUP)
    before = {number: signal.getsignal(number) for number in kinds}
    try:
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        catch_signals()
        assert signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
        signal.signal(signal.SIGHUP, signal.SIG_DFL)
        asked = catch_signals()
        os.kill(os.getpid(), signal.SIGHUP)
        assert asked()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
