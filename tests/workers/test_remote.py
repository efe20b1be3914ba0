"""Workers that share nothing with the driver: silent, lost, refused, stopped; made up, so that each does as it must."""

import contextlib
import json
import sys
import time

import pytest

from icl_lab.errors import Stopped
from icl_lab.workers import attempt, process, supervisor
from icl_lab.workers.identity import hello
from icl_lab.workers.job import Job
from icl_lab.workers.process import Behind
from icl_lab.workers.supervisor import RETRIES, STRIKES, supervise

# Says hello, takes orders and files until "go"; then does what it finds in the file "does", next attempt next word.
WORKER = """
import hashlib, json, os, sys, time
def tell(**told):
    print(json.dumps(told), flush=True)
def send(name, data):
    tell(file=name, size=len(data), sha256=hashlib.sha256(data).hexdigest())
    sys.stdout.buffer.write(data)
    sys.stdout.flush()
print("Welcome to this machine", flush=True)
tell(hello=json.loads(sys.argv[1]))
files = {}
while "go" not in (told := json.loads(sys.stdin.buffer.readline())):
    if "file" in told:
        files[told["file"]] = sys.stdin.buffer.read(told["size"])
    else:
        orders = told
step = int(files.get("checkpoint.pt", b"0"))
does = orders["does"][min(len(orders["does"]) - 1, int(files["attempt"]))]
tell(step=step + 1)
if does in ("dies", "is silent", "is taken away"):
    send("checkpoint.pt", b"%d" % (step + 1))
    while "got" not in json.loads(sys.stdin.buffer.readline()):
        pass
if does == "dies":
    os._exit(9)
if does == "is silent":
    time.sleep(1.5)
    send("grid.csv", b"of an abandoned worker")
    tell(end="done")
    time.sleep(60)
if does == "is taken away":
    tell(end="stopped", reason="stopped at step 1")
if does == "fails":
    tell(end="failed", reason="the loss is nan at step 3")
if does == "waits":
    while "stop" not in json.loads(sys.stdin.buffer.readline()):
        pass
    send("checkpoint.pt", b"7")
    tell(end="stopped", reason="stopped at step 7 of 9")
if does == "forgets":
    tell(end="done")
if does == "works":
    send("model.safetensors", b"model after %d" % step)
    tell(gone=["checkpoint.pt"])
    send("grid.csv", b"grid after %d" % step)
    tell(end="done")
if does == "leads out":
    send("../grid.csv", b"")
    time.sleep(60)
"""


class Memory:
    """The files of a job, and how often it was begun."""

    def __init__(self):
        self.files, self.begun, self.order, self.free = {}, -1, [], True

    @contextlib.contextmanager
    def held(self, stopping):
        while not self.free:
            if stopping():
                raise Stopped("stopped while waiting for another process.")
            time.sleep(0.01)
        yield not self.complete()

    def parcels(self):
        self.begun += 1
        yield "attempt", b"%d" % self.begun, {}
        yield from ((name, data, {}) for name, data in self.files.items())

    def take(self, name, data):
        from icl_lab.workers.protocol import inside

        self.files[inside(name)] = data
        self.order.append(name)

    def drop(self, names):
        for name in names:
            self.files.pop(name, None)

    def complete(self):
        return "grid.csv" in self.files


def place(name="far", at_once=1, said=None, worker=WORKER, **more):
    words = json.dumps(said or hello() | {"host": f"host-of-{name}"})
    return Behind(name, (sys.executable, "-c", worker, words), at_once, **more)


def job(*does, name="a run"):
    return Job(name, {"does": does}, 9, Memory())


@pytest.fixture
def said():
    return []


def test_a_lost_worker_goes_on_from_the_drivers_checkpoint(said):
    work = job("dies", "dies", "works")
    (outcome,) = supervise([work], [place()], say=said.append)
    assert (outcome.state, outcome.attempts) == ("done", 3)
    assert work.files.files == {"model.safetensors": b"model after 2", "grid.csv": b"grid after 2"}
    assert work.files.order == ["checkpoint.pt", "checkpoint.pt", "model.safetensors", "grid.csv"]
    assert [line.partition(" (")[0] for line in said] == ["lost: a run at host-of-far"] * 2


def test_a_run_that_is_lost_too_often_says_so():
    (outcome,) = supervise([job("dies")], [place()])
    assert (outcome.state, outcome.attempts) == ("killed", RETRIES + 1)
    assert outcome.reason.startswith("lost 3 times, last: Welcome to this machine")
    assert outcome.reason.endswith("The same command goes on from its last checkpoint")


def test_a_silent_worker_is_given_up_and_what_it_says_later_is_not_heard(said, monkeypatch):
    left = []
    monkeypatch.setattr(attempt, "GRACE", 0.05)
    monkeypatch.setattr(
        process.ProcessPipe, "kill", lambda pipe: left.append(pipe)
    )  # to end ssh does not end what it led to
    work = job("is silent", "works")
    (outcome,) = supervise([work], [place()], silence=0.6, say=said.append)
    time.sleep(1.2)  # by now it has spoken
    monkeypatch.undo()
    left[0].kill()
    assert left[0].wait(5)
    assert (outcome.state, outcome.attempts) == ("done", 2)
    assert work.files.order.count("grid.csv") == 1
    assert work.files.files["grid.csv"] == b"grid after 1"
    assert said == [
        "lost: a run at host-of-far (nothing was heard for 1 s); it goes on from its last checkpoint",
    ]


def test_a_node_that_is_taken_away_is_no_end():
    work = job("is taken away", "works")
    (outcome,) = supervise([work], [place()])
    assert (outcome.state, outcome.attempts) == ("done", 2)
    assert work.files.files["grid.csv"] == b"grid after 1"


def test_an_exception_is_not_tried_again():
    (outcome,) = supervise([job("fails", "works")], [place()])
    assert (outcome.state, outcome.reason, outcome.attempts) == ("failed", "the loss is nan at step 3", 1)


def test_a_worker_that_ends_without_its_files_has_failed():
    (outcome,) = supervise([job("forgets")], [place()])
    assert (outcome.state, outcome.reason) == ("failed", "the worker ended without all of its files")


def test_a_file_that_leads_out_of_the_folder_is_not_kept():
    work = job("leads out")
    (outcome,) = supervise([work], [place()])
    assert outcome.state == "failed"
    assert "no name inside" in outcome.reason
    assert work.files.files == {}


def test_a_request_to_stop_brings_back_checkpoints():
    jobs = [job("waits", name=str(number)) for number in range(3)]
    begun = []

    def watch(standings):
        begun[:] = [each.step for each in standings if each.state == "at work" and each.step]

    outcomes = supervise(jobs, [place(at_once=2)], watch=watch, stopping=lambda: len(begun) == 2)
    assert [outcome.state for outcome in outcomes] == ["stopped"] * 3
    assert [outcome.reason for outcome in outcomes] == ["stopped at step 7 of 9"] * 2 + ["not begun"]
    assert [each.files.files.get("checkpoint.pt") for each in jobs] == [b"7", b"7", None]


def test_who_waits_for_another_process_stops_when_asked():
    work = job("works")
    work.files.free = False
    (outcome,) = supervise([work], [place()], stopping=lambda: True)
    assert outcome.state == "stopped"


def test_what_another_process_has_finished_is_done():
    work = job("fails")
    work.files.files["grid.csv"] = b"of another"
    (outcome,) = supervise([work], [place()])
    assert outcome.state == "done"


def test_a_place_of_another_version_gets_no_runs(said):
    other = place("old", said=hello() | {"torch": "2.0.1"})
    work = [job("works", name=str(number)) for number in range(3)]
    outcomes = supervise(work, [other, place("new")], say=said.append)
    assert [(outcome.state, outcome.attempts) for outcome in outcomes] == [("done", 1)] * 3
    (line,) = said
    assert line.startswith("no more runs at old: old has icl_lab")
    assert "torch 2.0.1; here it is" in line


def test_without_a_place_left_the_reason_is_said():
    outcomes = supervise([job("works"), job("works")], [place("old", 2, said=hello() | {"commit": "other"})])
    assert [outcome.state for outcome in outcomes] == ["failed"] * 2
    assert outcomes[0].reason.startswith("no place is left (old has icl_lab")


def test_a_place_that_starts_no_worker_is_left_and_the_runs_go_elsewhere(said, monkeypatch):
    monkeypatch.setattr(supervisor, "PAUSE", 0.01)
    dead = place("dead", worker="import sys; sys.exit('ssh: connect to host dead: No route to host')")
    work = [job("works", name=str(number)) for number in range(4)]
    outcomes = supervise(work, [dead, place("alive")], say=said.append)
    assert [(outcome.state, outcome.attempts) for outcome in outcomes] == [("done", 1)] * 4
    outcomes = supervise([job("works")], [dead], say=said.append)
    assert outcomes[0].reason == "no place is left (dead: ssh: connect to host dead: No route to host)"
    assert said[-1] == "no more runs at dead: ssh: connect to host dead: No route to host"
    assert STRIKES > 1


def test_a_place_that_queues_is_waited_for(monkeypatch):
    late = "import time; time.sleep(1.2)\n" + WORKER
    (outcome,) = supervise([job("works")], [place(worker=late)], silence=0.1)  # of which five before the hello
    assert (outcome.state, outcome.attempts) == ("done", 1)
    silent = place(worker="import time; time.sleep(60)", queues=False)
    monkeypatch.setattr(supervisor, "PAUSE", 0.01)
    (outcome,) = supervise([job("works")], [silent], silence=0.05)
    assert outcome.reason == "no place is left (far: nothing was heard for 0 s)"


def test_silence_while_this_process_slept_does_not_count(monkeypatch):
    class Still:
        sounds = 1

    now = [0.0]
    monkeypatch.setattr(attempt.time, "monotonic", lambda: now[0])
    silence = attempt.Silence(Still())
    now[0] = 1000.0  # the lid was closed
    assert silence.look() == 1.0
    now[0] += 0.5
    assert silence.look() == 1.5
    Still.sounds += 1
    assert silence.look() == 0.0
