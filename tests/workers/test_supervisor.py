"""The supervisor among jobs that die, fail and must stop: none is lost because of another."""

import sys
import threading
from pathlib import Path

import pytest

from icl_lab.workers import attempt, follow, supervisor
from icl_lab.workers.job import Job
from icl_lab.workers.process import Local
from icl_lab.workers.supervisor import RETRIES

# Reads its orders and leaves a mark for each attempt; then does as it was told.
WORKER = """
import json, os, pathlib, signal, sys, time
orders = json.loads(sys.stdin.readline())
marks = pathlib.Path(orders["marks"])
attempt = len(list(marks.glob(f"{orders['number']}-*"))) + 1
(marks / f"{orders['number']}-{attempt}").touch()
asked = []
signal.signal(signal.SIGINT, lambda number, frame: asked.append(number))
if orders["does"] == "dies once" and attempt == 1 or orders["does"] == "dies":
    os.kill(os.getpid(), signal.SIGKILL)
if orders["does"] == "fails":
    sys.exit("ValueError: sigma is a cat")
for step in range(1, 4):
    print(json.dumps({"step": step}), flush=True)
    while orders["does"] == "waits":
        time.sleep(0.01)
        if asked:
            print("stopped at a checkpoint", file=sys.stderr)
            sys.exit(130)
"""
COMMAND = [sys.executable, "-c", WORKER]


def supervise(jobs, command, workers, *, tick=lambda done, total, over: None, **more):
    """By processes of this machine; ``tick`` is told the steps done, all steps, and how many jobs have ended."""

    def watch(standings):
        tick(sum(s.step for s in standings), sum(s.size for s in standings), sum(s.over for s in standings))

    return supervisor.supervise(jobs, [Local(workers, command)], watch=watch, **more)


def job(number, does, marks):
    return Job(f"job {number}", {"number": number, "does": does, "marks": str(marks)}, size=3)


def attempts(marks, number):
    return len(list(marks.glob(f"{number}-*")))


@pytest.mark.slow
def test_chaos(tmp_path):
    """Of twelve, one dies once, one dies always, one fails with a reason: the other nine run exactly once."""
    odd = {3: "dies once", 5: "dies", 7: "fails"}
    heard = []
    outcomes = supervise(
        [job(number, odd.get(number, "works"), tmp_path) for number in range(12)],
        COMMAND,
        2,
        tick=lambda done, total, over: heard.append((done, total)),
    )
    assert [outcome.job.name for outcome in outcomes] == [f"job {number}" for number in range(12)]
    assert {n: outcome.state for n, outcome in enumerate(outcomes) if outcome.state != "done"} == {
        5: "killed",
        7: "failed",
    }
    assert {number: attempts(tmp_path, number) for number in range(12)} == {
        number: {3: 2, 5: RETRIES + 1}.get(number, 1) for number in range(12)
    }
    assert outcomes[5].reason.startswith("killed 3 times, last by SIGKILL;")
    assert "goes on from its last checkpoint" in outcomes[5].reason
    assert outcomes[7].reason == "ValueError: sigma is a cat"
    assert heard[-1] == (36, 36)
    assert all(total == 36 for _, total in heard)


@pytest.mark.slow
def test_a_request_to_stop_reaches_every_process_once_and_the_rest_is_left(tmp_path):
    stop = threading.Event()

    def tick(done, total, over):
        if done >= 2:  # both processes have said that they are at work
            stop.set()

    outcomes = supervise(
        [job(number, "waits", tmp_path) for number in range(5)], COMMAND, 2, stopping=stop.is_set, tick=tick
    )
    assert [outcome.state for outcome in outcomes] == ["stopped"] * 5
    assert [outcome.reason for outcome in outcomes[:2]] == ["stopped at a checkpoint"] * 2
    assert [attempts(tmp_path, number) for number in range(5)] == [1, 1, 0, 0, 0]


@pytest.mark.slow
def test_no_more_processes_than_workers(tmp_path):
    """Each process counts who is at work while it is."""
    count = """asked = []
here = marks / f"at-work-{orders['number']}"
here.touch()
time.sleep(0.1)
(marks / f"saw-{len(list(marks.glob('at-work-*')))}").touch()
here.unlink()
"""
    for workers in (1, 2):
        marks = tmp_path / str(workers)
        marks.mkdir()
        command = [sys.executable, "-c", WORKER.replace("asked = []", count)]
        supervise([job(number, "works", marks) for number in range(6)], command, workers)
        assert {int(path.name.removeprefix("saw-")) for path in marks.glob("saw-*")} <= set(range(1, workers + 1))
        assert (marks / f"saw-{workers}").exists()


def test_no_jobs_is_no_work():
    assert supervise([], COMMAND, 2) == []


def alive(marks):
    """The processes of this test that are still there."""
    numbers = [int(path.read_text()) for path in marks.glob("process-*")]
    return [number for number in numbers if Path(f"/proc/{number}").exists() and _state(number) != "Z"]


def _state(number):
    return Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()[0]


# Leaves its number, and a mark when it is asked to end.
LASTING = WORKER.replace(
    "asked = []",
    """def leave(number, frame):
    (marks / f"asked-{orders['number']}").touch()
    sys.exit(75)
signal.signal(signal.SIGTERM, leave)
(marks / f"process-{orders['number']}").write_text(str(os.getpid()))
asked = []""",
)


def test_jobs_of_one_name_are_told_apart(tmp_path):
    twice = [
        Job("softmax seed 0", {"number": n, "does": does, "marks": str(tmp_path)}, 3)
        for n, does in enumerate(("fails", "works"))
    ]
    outcomes = supervise(twice, COMMAND, 2)
    assert [outcome.state for outcome in outcomes] == ["failed", "done"]
    assert [attempts(tmp_path, number) for number in range(2)] == [1, 1]


@pytest.mark.parametrize("error", [RuntimeError("no more"), KeyboardInterrupt()], ids=["error", "second Ctrl-C"])
def test_what_ends_the_supervisor_ends_its_processes(tmp_path, error):
    def tick(done, total, over):
        if done >= 2:  # both processes have said that they are at work
            raise error

    with pytest.raises(type(error)):
        supervise([job(n, "waits", tmp_path) for n in range(3)], [sys.executable, "-c", LASTING], 2, tick=tick)
    assert len(list(tmp_path.glob("process-*"))) == 2
    assert len(list(tmp_path.glob("asked-*"))) == 2
    assert not alive(tmp_path)


@pytest.mark.slow
def test_a_process_that_does_not_listen_is_killed(tmp_path, monkeypatch):
    monkeypatch.setattr(attempt, "GRACE", 0.2)
    deaf = LASTING.replace("signal.signal(signal.SIGTERM, leave)", "signal.signal(signal.SIGTERM, signal.SIG_IGN)")

    def tick(done, total, over):
        if done >= 1:
            raise RuntimeError("no more")

    with pytest.raises(RuntimeError, match="no more"):
        supervise([job(0, "waits", tmp_path)], [sys.executable, "-c", deaf], 1, tick=tick)
    assert not alive(tmp_path)


def test_an_error_in_a_thread_of_the_supervisor_is_raised(tmp_path, monkeypatch):
    monkeypatch.setattr(attempt, "GRACE", 0.5)

    def hear(self, attempt, message):
        raise OSError("the pipe burst")

    monkeypatch.setattr(follow.Follower, "_hear", hear)
    with pytest.raises(OSError, match="the pipe burst"):
        supervise([job(n, "waits", tmp_path) for n in range(3)], [sys.executable, "-c", LASTING], 2)
    assert not alive(tmp_path)


def test_a_command_that_cannot_be_started_is_an_error(tmp_path):
    with pytest.raises(FileNotFoundError):
        supervise([job(0, "works", tmp_path)], ["/no/such/program"], 1)


def test_a_line_that_is_no_progress_is_kept_as_a_complaint(tmp_path):
    chatty = WORKER.replace(
        "for step in", "print('a library says hello', flush=True)\nprint('[1]', flush=True)\nfor step in"
    )
    assert [o.state for o in supervise([job(0, "works", tmp_path)], [sys.executable, "-c", chatty], 1)] == ["done"]
    failing = chatty + "\nsys.exit(3)"
    (outcome,) = supervise([job(1, "works", tmp_path)], [sys.executable, "-c", failing], 1)
    assert (outcome.state, outcome.reason) == ("failed", "[1]")


def test_a_job_that_runs_has_a_step_left(tmp_path):
    heard = []
    supervise([job(n, "works", tmp_path) for n in range(2)], COMMAND, 1, tick=lambda *told: heard.append(told))
    assert all(done < total for done, total, over in heard if over < 2)
