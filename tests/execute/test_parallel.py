"""Runs in parallel: none is lost because a worker died, another run failed, or everything was stopped."""

import os
import pty
import signal
import subprocess
import sys
import time
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest

from icl_lab.base.errors import RunFailed, Stopped
from icl_lab.cli.signals import catch_signals
from icl_lab.execute import parallel
from icl_lab.execute.parallel import RETRIES, Ending, Processes, WorkItem
from icl_lab.execute.progress import Job
from icl_lab.execute.where import Where
from icl_lab.runs.status import Status
from icl_lab.runs.store import Store
from tests.api.conftest import contents as contents_of

ROOT = Path(__file__).parents[2]
contents = partial(contents_of, but=("env.json", "manifest.json"))  # the one holds times, the other its checksum


@pytest.fixture(autouse=True)
def _quick(monkeypatch):
    monkeypatch.setattr(parallel, "LOOK", 0.01)


class Scripted:
    """An engine whose workers end as they are told: for each run a list of endings, one an attempt; None: it works."""

    def __init__(self, jobs, **script):
        self.jobs, self.script = jobs, {name: list(endings) for name, endings in script.items()}
        self.started, self.stopped, self.killed, self.working, self.most = [], [], [], set(), 0
        self.status = Status("train", 5, 5)

    def start(self, item, slot):
        ending = self.script[item].pop(0)
        if ending == "held":
            return None
        self.started.append(item)
        self.working.add(item)
        self.most = max(self.most, len(self.working))
        return ScriptedAttempt(self, item, ending)


class ScriptedAttempt:
    def __init__(self, engine, name, end):
        self.engine, self.name, self.end, self.looked = engine, name, end, 0

    def ending(self):
        self.looked += 1
        if self.end is None or self.looked < 2:
            return None
        self.engine.working.discard(self.name)
        return self.end

    def status(self):
        return self.engine.status

    def place(self):
        return "far"

    def stop(self):
        self.engine.stopped.append(self.name)
        self.end = self.end or Ending("stopped", "at a checkpoint")

    def kill(self):
        self.engine.killed.append(self.name)


DONE, LOST, FAILED = Ending("done"), Ending("lost", "SIGKILL"), Ending("failed", "ValueError: sigma is a cat")


def execute(engine, stopping=lambda: False, watch=lambda jobs: None):
    said, jobs = [], [Job(name, 3, name) for name in engine.script]
    parallel.execute(jobs, engine, stopping, watch, said.append)
    return {job.name: job for job in jobs}, said


def test_one_run_that_dies_or_fails_costs_no_other():
    most = RETRIES + 1
    engine = Scripted(2, a=[DONE], once=[LOST, DONE], dies=[LOST] * most, fails=[FAILED], b=[DONE], c=[DONE])
    jobs, said = execute(engine)
    states = {name: job.state for name, job in jobs.items()}
    assert states == {"a": "done", "once": "done", "dies": "killed", "fails": "failed", "b": "done", "c": "done"}
    assert {name: engine.started.count(name) for name in jobs} == {
        **dict.fromkeys(jobs, 1), "once": 2, "dies": most
    }  # fmt: skip
    assert jobs["fails"].reason == "ValueError: sigma is a cat"
    assert jobs["dies"].reason.startswith(f"killed {most} times, last by SIGKILL; where memory is short, fewer --jobs")
    assert said.count("lost: once (SIGKILL); it goes on from its last checkpoint") == 1
    assert engine.most == 2
    assert all(job.over and job.step == job.size for job in jobs.values())


@pytest.mark.parametrize("status", [Status("train", 5, 5), Status("test", 1, 9)])
def test_a_run_at_work_has_a_step_left(status):
    seen, engine = [], Scripted(1, a=[DONE])
    engine.status = status
    execute(engine, watch=lambda jobs: seen.extend((job.state, job.step, job.place, job.status) for job in jobs))
    assert ("at work", 2, "far", status) in seen


def test_a_run_done_again_forgets_the_status_before():
    seen, engine = [], Scripted(1, a=[LOST, DONE])

    def watch(jobs):
        seen.extend((job.state, job.attempts, job.status) for job in jobs)
        engine.status = None  # the second worker has said nothing

    execute(engine, watch=watch)
    assert ("starting", 2, None) in seen


def test_a_stop_is_told_once_and_what_has_not_begun_is_left():
    engine = Scripted(2, a=[None], b=[LOST], c=[DONE])
    looks = iter([False])
    jobs, _ = execute(engine, stopping=lambda: next(looks, True))
    assert engine.stopped == ["a", "b"]
    assert [(job.state, job.reason) for job in jobs.values()] == [
        ("stopped", "at a checkpoint"),
        ("stopped", "SIGKILL"),
        ("stopped", "not begun"),
    ]
    assert engine.killed == []


@pytest.mark.parametrize("error", [RuntimeError("no more"), KeyboardInterrupt()], ids=["error", "second Ctrl-C"])
def test_whatever_ends_the_pool_ends_its_workers(error):
    engine = Scripted(2, a=[None], b=[None], c=[None])

    def watch(jobs):
        raise error

    with pytest.raises(type(error)):
        execute(engine, watch=watch)
    assert engine.stopped == engine.killed == ["a", "b"]


def test_a_run_that_another_process_holds_comes_later():
    engine = Scripted(1, a=["held", "held", DONE], b=[DONE])
    jobs, _ = execute(engine)
    assert engine.started == ["b", "a"]
    assert jobs["a"].attempts == 1


def test_no_jobs_is_no_work():
    assert execute(Scripted(2)) == ({}, [])


# What workers of the tests below do instead of a training; a process finds them by their names.


def dies_once(run, lab, tested, models):
    mark = run.folder.parent / "died"
    if not mark.exists():
        mark.touch()
        os.kill(os.getpid(), signal.SIGKILL)


def fails(run, lab, tested, models):
    raise RunFailed("the data are bad")


def breaks(run, lab, tested, models):
    print("a library says hello")
    raise ValueError("sigma is a cat")


def waits(run, lab, tested, models):
    (run.folder / "pid").write_text(str(os.getpid()))
    while not lab.stopping():
        time.sleep(0.01)
    raise Stopped("stopped at step 3")


def deaf(run, lab, tested, models):
    (run.folder / "pid").write_text(str(os.getpid()))
    time.sleep(600)


@pytest.fixture
def job(tiny, tmp_path):
    def build(finish, seed=0):
        run = Store(tmp_path).run(tiny(), seed)
        run.folder.mkdir(parents=True, exist_ok=True)
        where = Where(results=tmp_path, device="cpu", threads=1, evidence=False, progress=False)
        return Job(f"seed {seed}", 60, WorkItem(spec=run.spec, seed=seed, finish=finish, where=where, command="typed"))

    return build


def until(condition, seconds=120):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it never came true"
        time.sleep(0.05)


@pytest.mark.slow
def test_processes_die_fail_and_break(job):
    jobs, said = [job(dies_once), job(fails, 1), job(breaks, 2)], []
    parallel.execute(jobs, Processes(3), lambda: False, lambda jobs: None, said.append)
    assert [(each.state, each.attempts) for each in jobs] == [("done", 2), ("failed", 1), ("failed", 1)]
    assert [each.reason for each in jobs[1:]] == ["the data are bad", "ValueError: sigma is a cat"]
    assert said == ["lost: seed 0 (SIGKILL); it goes on from its last checkpoint"]


@pytest.mark.exhaustive
def test_processes_stop_when_asked_or_are_killed(job, monkeypatch, tmp_path):
    jobs = [job(waits), job(deaf, 1)]
    pids = lambda: [int(path.read_text() or 0) for path in tmp_path.rglob("pid")]  # noqa: E731
    began = lambda: len(pids()) == 2 and all(pids())  # noqa: E731
    monkeypatch.setattr(parallel, "GRACE", 0.5)

    def watch(told):
        if told[0].state == "stopped":
            raise KeyboardInterrupt  # a second Ctrl-C

    with pytest.raises(KeyboardInterrupt):
        parallel.execute(jobs, Processes(2), began, watch, lambda text: None)
    assert (jobs[0].state, jobs[0].reason) == ("stopped", "stopped at step 3")
    until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids()), seconds=10)


def test_several_gpus_are_taken_in_turn(monkeypatch):
    monkeypatch.setattr("torch.cuda.device_count", lambda: 2)
    assert [parallel._gpu(slot) for slot in range(3)] == ["cuda:0", "cuda:1", "cuda:0"]
    monkeypatch.setattr("torch.cuda.device_count", lambda: 1)
    assert parallel._gpu(1) == "cuda"


# The command line.

FEW = "train.batch=8 test.prompts=64 model.width=16 model.heads=2 test.axes.sigma_x=1 test.axes.sigma_f=1,2"
SWEEP = ["sweep", "--task", "linear", "--preset", "smoke", "--attn", "softmax", "--jobs", "2", "--set", FEW]
SWEEP += ["--no-evidence", "--threads", "2"]
LONG = ["--set", "train.steps=200000", "--seeds", "2", "--allow-large"]
# Workers keep checkpoints often and train slowly, so that there is a middle to be met.
OFTEN = """
import sys, time
if sys.orig_argv[-1].startswith("from icl_lab.execute.parallel"):
    from icl_lab.training import loop
    loop.CHECKPOINT_SECONDS = 0.0
    row = loop.row
    loop.row = lambda *words: time.sleep(0.3) or row(*words)
"""


@pytest.fixture
def slow(tmp_path):
    """The environment of a command whose workers take their time."""
    (tmp_path / "often").mkdir()
    (tmp_path / "often" / "sitecustomize.py").write_text(OFTEN)
    return {**os.environ, "PYTHONPATH": f"{tmp_path / 'often'}:{ROOT}"}


def start(words, env, **more):
    return subprocess.Popen([sys.executable, "-m", "icl_lab", *words], env=env, text=True, **more)


def ended(process):
    with process:
        _, err = process.communicate(timeout=250)
    return process.returncode, err


def workers_of(driver):
    """The processes that a driver has started."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # gone by now
            state, parent = path.read_text().rpartition(")")[2].split()[:2]
            if int(parent) == driver.pid and state != "Z":
                found.append(int(path.parent.name))
    return found


@pytest.fixture
def undisturbed(tmp_path, slow):
    """What two runs are when nothing is done to them."""
    words = [*SWEEP, "--set", "train.steps=1000", "--seeds", "2"]
    code, err = ended(start([*words, "--results", str(tmp_path / "whole")], slow, stderr=subprocess.PIPE))
    assert code == 0, err
    return words, contents(tmp_path / "whole")


@pytest.mark.exhaustive
@pytest.mark.timeout(600)
def test_disturbed_runs_are_those_of_an_undisturbed_command(tmp_path, slow, undisturbed):
    """Killed, stopped by Ctrl-C, done by two commands in one folder: the bytes are the same."""
    words, whole = undisturbed
    assert len(whole) >= 12
    pipes = {"stderr": subprocess.PIPE, "stdout": subprocess.DEVNULL}
    met = lambda root: len(list(root.rglob("checkpoint.pt"))) == 2  # noqa: E731

    killed = start([*words, "--results", str(tmp_path / "killed")], slow, **pipes)
    until(lambda: met(tmp_path / "killed"))
    os.kill(workers_of(killed)[0], signal.SIGKILL)
    code, err = ended(killed)
    assert (code, err.count("(SIGKILL); it goes on from its last checkpoint")) == (0, 1), err
    assert contents(tmp_path / "killed") == whole

    again = [*words, "--results", str(tmp_path / "stopped")]
    stopped = start(again, slow, **pipes)
    until(lambda: met(tmp_path / "stopped"))
    stopped.send_signal(signal.SIGINT)
    code, err = ended(stopped)
    assert code == 130, err
    assert err.splitlines()[-1] == "icl-lab: stopped; the same command goes on where each run stands."
    assert met(tmp_path / "stopped")
    assert not list(tmp_path.glob("stopped/**/grid.csv"))
    both = [start(again, slow, **pipes) for _ in range(2)]
    assert [ended(each)[0] for each in both] == [0, 0]
    assert contents(tmp_path / "stopped") == whole


@pytest.mark.exhaustive
def test_workers_of_a_command_that_died_stop_with_a_checkpoint(tmp_path, slow):
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    with start([*SWEEP, *LONG, "--results", str(tmp_path)], slow, **quiet) as driver:
        try:
            until(lambda: len(list(tmp_path.rglob("spec.json"))) == 2)
            workers = workers_of(driver)
            assert len(workers) == 2
        finally:
            driver.kill()  # and what is left does not train on where the test fails
    until(lambda: not any(Path(f"/proc/{number}").exists() for number in workers), seconds=60)
    assert len(list(tmp_path.rglob("checkpoint.pt"))) == 2


@pytest.mark.exhaustive
@pytest.mark.parametrize("jobs", [1, 2])
def test_a_closed_terminal_keeps_checkpoints(tmp_path, jobs):
    words = [*SWEEP, *LONG, "--jobs", str(jobs), "--results", str(tmp_path)]
    child, terminal = pty.fork()
    if child == 0:
        signal.signal(signal.SIGHUP, signal.SIG_DFL)  # which a suite under nohup would hand on as ignored
        os.environ["PYTHONPATH"] = str(ROOT)
        os.execv(sys.executable, [sys.executable, "-m", "icl_lab", *words])
    os.set_blocking(terminal, False)

    def ready():
        with suppress(BlockingIOError):
            os.read(terminal, 1 << 16)
        return len(list(tmp_path.rglob("spec.json"))) >= jobs

    try:
        until(ready)
    finally:
        os.close(terminal)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 75
    assert len(list(tmp_path.rglob("checkpoint.pt"))) == jobs


@pytest.mark.usefixtures("run")  # which takes handlers of signals back
def test_what_nohup_ignores_stays_ignored():
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    catch_signals()
    assert signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    asked = catch_signals()
    os.kill(os.getpid(), signal.SIGHUP)
    assert asked()
