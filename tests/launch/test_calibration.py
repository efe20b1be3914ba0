"""Throughput is measured side by side, kept under machine and size, and measured again where it is not sure."""

import json
import os
import pickle
import subprocess
import sys

import pytest

from icl_lab.launch import calibration
from icl_lab.runs.spec import resolve

SPEC = resolve("linear", "softmax", "smoke")


@pytest.fixture
def measured(monkeypatch, tmp_path):
    """An empty cache and a free machine; returns what was measured."""
    met = []
    monkeypatch.setattr(calibration, "place", lambda: tmp_path / "icl_lab" / "calibration.json")
    monkeypatch.setattr(os, "getloadavg", lambda: (0.1, 0.0, 0.0))
    monkeypatch.setattr(
        calibration, "measured", lambda spec, threads: met.append(dict(threads)) or {n: 10.0 * n for n in threads}
    )
    return met


def ask(threads, spec=SPEC):
    said = []
    return calibration.throughput(spec, threads, said.append), bool(said)


def test_what_is_kept_is_not_measured_again(measured):
    assert ask({1: 2, 2: 1}) == ({1: 10.0, 2: 20.0}, True)
    assert ask({1: 2, 2: 1}) == ({1: 10.0, 2: 20.0}, False)
    assert ask({2: 1}) == ({2: 20.0}, False)
    assert measured == [{1: 2, 2: 1}]


def test_other_sizes_and_divisions_are_measured(measured):
    ask({1: 2})
    ask({1: 4})
    ask({1: 2}, resolve("linear", "softmax", "smoke", ["train.batch=128"]))
    ask({1: 2}, resolve("linear", "ssa", "smoke"))
    ask({1: 2}, resolve("linear", "softmax", "smoke", ["train.steps=77"]))  # the length of a training is no size
    assert measured == [{1: 2}, {1: 4}, {1: 2}, {1: 2}]
    assert ask({1: 2, 2: 1})[1]
    assert not ask({1: 4})[1]


def test_nothing_is_kept_of_a_busy_machine(measured, monkeypatch):
    monkeypatch.setattr(os, "getloadavg", lambda: (calibration.BUSY, 0.0, 0.0))
    assert ask({1: 1})[1]
    assert ask({1: 1})[1]


def test_a_measurement_without_an_answer_is_not_kept(measured, monkeypatch):
    monkeypatch.setattr(calibration, "measured", lambda spec, threads: {1: 5.0, 2: 0.0})
    assert ask({1: 2, 2: 1}) == ({1: 5.0, 2: 0.0}, True)
    assert ask({1: 2, 2: 1})[1]


@pytest.mark.parametrize("text", ["", "{", "[1]", '{"a": '])
def test_a_damaged_cache_is_measured_anew(measured, text):
    calibration.place().parent.mkdir()
    calibration.place().write_text(text)
    assert ask({1: 1}) == ({1: 10.0}, True)
    assert list(json.loads(calibration.place().read_text()).values()) == [{"1x1": 10.0}]


def test_without_a_place_to_write_it_is_measured_each_time(measured, monkeypatch, tmp_path):
    (tmp_path / "file").touch()
    monkeypatch.setattr(calibration, "place", lambda: tmp_path / "file" / "calibration.json")
    assert ask({1: 1})[1]
    assert ask({1: 1})[1]


def test_the_cache_follows_the_users_wish(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert calibration.place() == tmp_path / "icl_lab" / "calibration.json"


ANSWER = """
import os, pickle, sys
pickle.load(sys.stdin.buffer)
print("ready", flush=True)
for line in sys.stdin.buffer:
    print(100 * int(line), flush=True)
"""


def answering(monkeypatch, code):
    monkeypatch.setattr(calibration, "WORKER", (sys.executable, "-c", code))
    return calibration.measured("a size", {1: 4, 2: 2, 4: 1})  # such a process imports no torch to read it


def test_all_processes_are_asked_and_summed(monkeypatch):
    assert answering(monkeypatch, ANSWER) == {1: 400.0, 2: 400.0, 4: 400.0}


def test_processes_that_die_add_nothing(monkeypatch):
    assert answering(monkeypatch, "pass") == {1: 0.0, 2: 0.0, 4: 0.0}
    assert answering(monkeypatch, ANSWER.replace("    print", "    int(line) == 1 and os._exit(1)\n    print"))[4] == 0


@pytest.mark.slow
def test_a_process_counts_steps_and_ends_with_its_input():
    with subprocess.Popen(calibration.WORKER, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as worker:
        assert calibration._answers([worker], pickle.dumps((SPEC, []))) == [b"ready"]
        assert float(calibration._answers([worker], b"1\n")[0]) > 1
        worker.stdin.close()
        assert worker.wait(30) == 0
