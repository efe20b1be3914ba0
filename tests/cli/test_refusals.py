"""What cannot be is refused in one line, before memory is taken for it or a step is trained."""

import os
from unittest.mock import Mock

import pytest

from icl_lab.base.files import publish
from icl_lab.execute.draw import draw_history
from icl_lab.runs import estimate
from icl_lab.runs.run import Run
from icl_lab.training import loop

T = ["--preset", "smoke", "--set", "model.width=8 train.batch=4 train.steps=60 train.warmup=2 test.axes.length=5,10"]
LINEAR, EVERY = ["--task", "linear", "--attn", "softmax", *T], ["--task", "every", "--attn", "softmax", *T]
SWEEP, COMPARE = ["sweep", *LINEAR], ["compare", *LINEAR, "--attn", "ssa"]
NEEDLE = ["needle", "--task", "needle", "--attn", "softmax", "--preset", "smoke"]
THOUSAND = ",".join(map(str, range(1, 1001)))


@pytest.fixture(autouse=True)
def untrained(monkeypatch, tmp_path):
    """A training is a failure, and the machine has 16 GB whatever it has."""
    never = Mock(side_effect=AssertionError("this trains"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(loop, "advance", never)
    monkeypatch.setattr(estimate, "test_seconds", never)
    monkeypatch.setattr(estimate, "training_seconds", never)  # it makes a model, and a batch as long as the longest
    monkeypatch.setattr(estimate, "room", lambda device: 16e9)


@pytest.fixture
def timed(untrained, monkeypatch):
    """A training and a test take a second, by what is estimated."""
    monkeypatch.setattr(estimate, "training_seconds", lambda *_: (1.0, 1))
    monkeypatch.setattr(estimate, "test_seconds", lambda *_: 1.0)


def setting(*fields):
    return [*SWEEP, *(word for field in fields for word in ("--set", field))]


REFUSED = [
    # names that are none, each with the nearest that is one
    (["sweep", "--task", "linaer", "--attn", "ssa"], "No task is called 'linaer'. Did you mean 'linear'?"),
    (["sweep", "--task", "linear", "--attn", "sofmax"], "No normalizer is called 'sofmax'. Did you mean 'softmax'?"),
    ([*SWEEP, "--preset", "liet"], "No preset is called 'liet'. Did you mean 'lite'?"),
    (setting("model.positions=learnt"), "No position code is called 'learnt'. Did you mean 'learned'?"),
    (setting("train.stpes=3"), "no option 'stpes'. Did you mean 'steps'?"),
    (setting("steps=3"), "no option 'steps'"),
    (setting("test.axes.sigma=1"), "no option 'sigma'"),
    ([*SWEEP, "--device", "tpu"], "no device 'tpu'"),
    (["sweep", "--task", "linear"], "Missing option '--attn'"),
    # options of parts, and fields of ``--set``, that take something else
    (["sweep", "--task", "linear", "--attn", "ssa:m=2"], "takes no option 'm'. It takes: n, b, learn, per"),
    (["sweep", "--task", "linear", "--attn", "ssa:n=x"], "n must be a finite number"),
    (["sweep", "--task", "linear", "--attn", "temperature:tau=-1"], "tau must be > 0"),
    (["rates", "--task", "linear", "--attn", ","], "names no normalizer"),
    (setting("train.steps"), "field=value"),
    (setting("train=3"), "is a group"),
    (setting("train.steps.x=3"), "single value"),
    (setting("train.steps=-3"), "it takes a whole number of at least 1 and at most 1,000,000,000 (got '-3')."),
    (setting("train.steps=1.5"), "it takes a whole number of at least 1 and at most 1,000,000,000 (got '1.5')."),
    (setting("model.layers=two"), "model.layers: it takes a whole number of at least 1 and at most 1,000, got 'two'."),
    (setting("train.rate=-1"), "train.rate: it takes a finite number above 0 and at most 1 (got '-1')."),
    (setting("train.rate=inf"), "train.rate: it takes a finite number above 0 and at most 1, got 'inf'."),
    (setting("train.ema=1"), "train.ema: it takes a finite number of at least 0 and below 1 (got '1')."),
    (setting("model.norm=maybe"), "model.norm: it takes yes or no (got 'maybe')."),
    (setting("model.block=bert"), "model.block: Invalid enum value 'bert' (got 'bert')."),
    (setting("model.heads=3"), "heads must divide width"),
    (setting("train.curriculum.start=99"), "start must be <= stop"),
    (setting("test.axes.sigma_x=0"), "sigma_x must be finite and > 0"),
    (setting("test.axes.length=a"), "test.axes.length: it takes a finite number, got 'a'."),
    (setting("test.axes.length=2"), "length must be whole numbers >= 4"),
    (setting("test.axes.length=300"), "600 tokens"),
    # integers beyond any machine, in fields and in options of parts
    (setting("model.width=1000000"), "model.width: it takes a whole number of at least "),
    (setting("train.steps=1e24"), "train.steps: it takes a whole number of at least 1 and at most 1,000,000,000"),
    (setting(f"train.steps={10**30}"), "train.steps: "),
    (setting(f"train.warmup={10**400}"), "train.warmup: it takes a whole number of at least 0"),
    (setting("train.curriculum.rise=1000000000000"), "train.curriculum.rise: it takes a whole number of at least "),
    (setting("model.positions=learned:rows=1000000000000"), "rows must be >= 1 and at most 10,000,000"),
    (setting("model.positions=rotary:random=1000000000000"), "random must be >= 0"),
    (setting("model.positions=sinusoidal:theta=1e24"), "theta must be a finite number of at most 1e+15 in size"),
    (setting("test.prompts=1000000000000"), "test.prompts: it takes a whole number of at least "),
    (setting("test.axes.length=1e9"), "length must be at most 100,000, got 1e+09"),
    (setting("test.axes.sigma_f=1e30"), "sigma_f must be at most 1e+15, got 1e+30"),
    (setting("train.shift.sigma_f=1e30"), "shift.sigma_f must be at most 1e+15, got 1e+30"),
    (setting(f"test.axes.sigma_f={THOUSAND}", f"test.axes.sigma_x={'2,' * 100}2"), "cells, more than the 100,000"),
    (
        ["sweep", "--task", "needle:alphabet=1000000000", "--attn", "ssa"],
        "alphabet must be at least 2 and at most 100,000",
    ),
    (["sweep", "--task", f"needle:keys={10**400}", "--attn", "ssa"], "keys must be a whole number of at most 1e+15"),
    (["sweep", "--task", "linear", "--attn", "ssa:n=1e30"], "a finite number of at most 1e+15 in size, got '1e30'"),
    # sizes of which each is within its bound, and all together are not
    (setting("model.width=65536"), "the training would need about"),
    (setting("train.steps=1000000000", "model.layers=500"), "the training would take about"),
    (setting("model.positions=none", "test.axes.length=100000"), "the test would need about"),
    (setting("test.prompts=100000000"), "the test would need about"),
    ([*SWEEP, "--seeds", "9", "--jobs", "9", "--set", "train.batch=100000"], "9 trainings at once would need about"),
    ([*COMPARE, "--set", "test.prompts=100000000"], "the test would need about"),
    (["ablate", *LINEAR, "--set", "train.batch=1000000"], "the training would need about"),
    ([*NEEDLE[:2], "needle:alphabet=50000", *NEEDLE[3:], "--length", "100000"], "the analysis would need"),
    (["heads", *LINEAR, "--set", "model.positions=none test.axes.length=100000"], "the analysis would need"),
    (["experiment", "ssa-figure3", *T[:2], "--set", "train.batch=1000000"], "the training would need about"),
    # what a test or an analysis needs
    ([*SWEEP, "--set", "model.attention=no", "--swap", "ssa"], "(model.attention=no) has no normalizer to swap"),
    (setting("model.attention=no", "train.switch_to=ssa", "train.switch_step=30"), "has no normalizer to swap for ssa"),
    (["compare", *LINEAR, "--attn", "softmax"], "at least two different normalizers"),
    (["compare", *LINEAR[:2], "--attn", "ssa,ssmax"], "The baseline 'softmax' is not among ssa, ssmax."),
    (["needle"], "name the models: --task and --attn, or --run"),
    (["needle", "--run", "nowhere/seed-0"], "nowhere/seed-0"),
    (["attention", *EVERY], "Missing option '--prompt'"),
    (["attention", "--run", "wrong"], "No run is called 'wrong'"),  # and no option is missed
    (["attention", *EVERY, "--prompt", "1,two"], "got 'two'"),
    (["boundary", *LINEAR, "--slopes", "0"], "a slope must not be 0"),
    (["deviant", *LINEAR, "--position", "11"], "an index from 0 to "),
    (["law", *LINEAR], "only ssmax-free learns a factor for every n, got softmax"),
    (["probe", *EVERY, "--factors", ""], "a number grows by factors other than 1, got none"),
    (["deviant", *EVERY, "--factors", "1e39"], "'1e39' is not a list of numbers from -1e+15 to 1e+15"),
    (["deviant", *EVERY, "--factors", THOUSAND + ",1001"], "factors takes at most 1000 values, got 1,001"),
    (["saturation", *EVERY, "--length", "1000000000"], "'--length': 1000000000 is not in the range"),
    (["theory", "--rows", "1000000", "--keys", "64"], "rows times keys must be at most 10,000,000, got 64,000,000"),
    # options of a place, and of commands that measure
    ([*SWEEP, "--seeds", "0"], "'--seeds': 0 is not in the range 1<=x<=100"),
    ([*SWEEP, "--seeds", "1e9"], "'--seeds': '1e9' is not a valid integer"),
    ([*SWEEP, "--threads", "9" * 20], "is not in the range 1<=x<=1024"),
    ([*SWEEP, "--jobs", "1000000"], "'--jobs': 1000000 is not in the range 1<=x<=1024"),
    *(
        ([*SWEEP, "--shard", shard], "is not part I of N")
        for shard in ("3/2", "1", "a/b", "0/0", "²/3", f"1/{'9' * 30}")
    ),
    (["costs", "--lengths", "64,,128"], "'64,,128' is not a list of whole numbers from 1 to 1,000,000,000"),
    (["costs", "--lengths", "1000000000"], "prompts of 1,000,000,000 tokens would need about"),
    (["experiment", "ssa-table1", "--until-decided", "--budget", "²h"], "'²h' is no time"),
    # names that leave the results, or are another's
    *(
        ([*COMPARE, "--name", name], "--name is a folder")
        for name in ("../../x", "..", ".", "a/../../b", " ", " a", "runs", "RUNS", "./runs/x", "bench", "/x")
    ),
    ([*COMPARE, "--name", "x" * 300], "--name has at most 200 bytes"),
    # words and folders that are none
    ([*SWEEP, "--results", ""], "'' names no folder"),
    ([*SWEEP, "--results", "a\0b"], "is no text of one line"),
    ([*SWEEP, "--results", "\udcff"], "'\\udcff' is no text of one line"),
    ([*SWEEP, "--results", "x" * 300], "is too long for a path"),
    ([*SWEEP, "--results", "/dev/null"], "'/dev/null' is no folder"),
    (["functions", "--results", "/dev/null/x"], "'/dev/null/x' is no folder: /dev/null is a file"),
    ([*COMPARE, "--name", "a\nb"], "is no text of one line"),
    (["list", "runs", "--results", "nosuch"], "there is no folder 'nosuch'"),
    (["claims", "--results", "nosuch"], "there is no folder 'nosuch'"),
    (["list", "experiments", "--experiments", "nosuch"], "there is no folder 'nosuch'"),
    (["heads", "--run", "a\0b"], "is no text of one line"),
    (["list", "experiments", "no-such"], "No experiment is called 'no-such'."),
    (["list", "normalizers", "ssa"], "'ssa' can be a name of experiments alone"),
    (["export", "."], ". holds no table: neither table.md nor a CSV file."),
    (["check-part", "nosuch"], "no module called 'nosuch'"),
    (["check-part", "./nosuch.py"], "no such file"),
    (["check-part", "ssa:n=x"], "n must be a finite number, got 'x'"),
    (["check-part", "ssa:m=2"], "takes no option 'm'"),
    (["check-part", "entmax:alpha=0.5"], "alpha must be > 1"),
    (["experiment", "x" * 5000], "File name too long"),
    (["experiment", "a" * 30_000], "has 30,000 characters, more than the 20,000"),
]


@pytest.mark.parametrize(("words", "said"), REFUSED, ids=range(len(REFUSED)))
def test_what_cannot_be_is_one_line(run, tmp_path, words, said):
    code, out, err = run(*words, **({"results": None} if "--results" in words else {}))
    lines = [line for line in err.splitlines() if line.startswith(("icl-lab: ", "Error: "))]
    assert (code, len(lines)) == (2, 1), err[-500:]
    assert said in lines[0]
    assert not out
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


def test_what_is_large_can_be_asked_for_all_the_same(run, timed):
    words = [*SWEEP, "--set", "train.batch=100000", "--dry-run"]
    assert "--allow-large" in run.refused(*words)[1]
    assert run.ok(*words, "--allow-large")[0].count("to do") == 1


def test_a_run_that_is_there_is_not_too_large_to_be_read(run, monkeypatch):
    monkeypatch.setattr(Run, "trained", True)
    monkeypatch.setattr(Run, "finished", True)
    assert "would need" not in run.ok(*SWEEP, "--set", "train.batch=1000000", "--dry-run")[1]


def test_a_folder_that_vanishes_is_one_line(run, timed, monkeypatch):
    gone = FileNotFoundError(2, os.strerror(2), "results/runs")
    monkeypatch.setattr(Run, "begin", Mock(side_effect=gone))
    _, err = run.failed(*SWEEP)
    assert err.splitlines()[-1] == "icl-lab: results/runs: No such file or directory."


@pytest.mark.slow
def test_a_picture_that_cannot_be_written_is_one_line(run, timed, monkeypatch):
    def full(path, data):
        if path.suffix == ".png":
            raise OSError(28, os.strerror(28))
        publish(path, data)

    monkeypatch.setattr("icl_lab.base.files.publish", full)
    monkeypatch.setattr("icl_lab.execute.complete.finish", lambda run, *given: draw_history(run))
    monkeypatch.setattr(Run, "history", lambda self: [{"step": 50, "loss": 1.0, "length": 5, "rate": 0.1}])
    _, err = run.failed(*SWEEP)
    assert err.splitlines()[-1].endswith("learning-curve.png cannot be written: No space left on device.")
