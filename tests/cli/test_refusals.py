"""What cannot be is refused in one line, before memory is taken for it or a step is trained."""

import os

import pytest

from icl_lab.base.files import publish
from icl_lab.runs import estimate, store
from icl_lab.training import loop

SMALL = ["model.width=8", "train.batch=4", "train.steps=60", "train.warmup=2", "test.axes.length=5,10"]
T = ["--preset", "smoke", *(word for each in SMALL for word in ("--set", each))]
LINEAR, EVERY = ["--task", "linear", "--attn", "softmax", *T], ["--task", "every", "--attn", "softmax", *T]
SWEEP, COMPARE = ["sweep", *LINEAR], ["compare", *LINEAR, "--attn", "ssa"]


@pytest.fixture(autouse=True)
def untrained(monkeypatch, tmp_path):
    """A training is a failure, and the machine has 16 GB whatever it has."""

    def never(*words, **names):
        raise AssertionError("this trains")

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(loop, "advance", never)
    monkeypatch.setattr(estimate, "test_seconds", never)
    monkeypatch.setattr(estimate, "training_seconds", never)  # it makes a model, and a batch as long as the longest
    monkeypatch.setattr(estimate, "room", lambda device: 16e9)


def setting(*fields):
    return [*SWEEP, *(word for field in fields for word in ("--set", field))]


REFUSED = [
    # integers beyond any machine, in fields and in options of parts
    (setting("model.width=1000000"), "model.width: it takes a whole number of at least "),
    (setting("model.layers=1000000"), "model.layers: it takes a whole number of at least "),
    (setting("train.batch=1000000000"), "train.batch: it takes a whole number of at least "),
    (setting("train.steps=1000000000000"), "train.steps: it takes a whole number of at least "),
    (setting("train.steps=1e24"), "train.steps: it takes a whole number of at least 1 and at most 1,000,000,000"),
    (setting(f"train.steps={10**30}"), "train.steps: "),
    (setting(f"train.warmup={10**400}"), "train.warmup: it takes a whole number of at least 0"),
    (setting("train.curriculum.stop=1000000000"), "train.curriculum.stop: it takes a whole number of at least "),
    (setting("train.curriculum.rise=1000000000000"), "train.curriculum.rise: it takes a whole number of at least "),
    (setting("model.positions=learned:rows=1000000000000"), "rows must be >= 1 and at most 10,000,000"),
    (setting("model.positions=rotary:random=1000000000000"), "random must be >= 0"),
    (setting("model.positions=sinusoidal:theta=1e24"), "theta must be a finite number of at most 1e+15 in size"),
    (setting("test.prompts=1000000000000"), "test.prompts: it takes a whole number of at least "),
    (setting("test.axes.length=1e9"), "length must be at most 100,000, got 1e+09"),
    (setting("test.axes.sigma_f=1e30"), "sigma_f must be at most 1e+15, got 1e+30"),
    (setting("train.shift.sigma_f=1e30"), "shift.sigma_f must be at most 1e+15, got 1e+30"),
    (
        setting(f"test.axes.sigma_f={','.join(map(str, range(1, 1200)))}", f"test.axes.sigma_x={','.join(['2'] * 99)}"),
        "cells, more than the 100,000",
    ),
    (
        ["sweep", "--task", "needle:alphabet=1000000000", "--attn", "ssa"],
        "alphabet must be at least 2 and at most 100,000",
    ),
    (["sweep", "--task", "needle:keys=1000000000", "--attn", "ssa"], "keys must be at least 1 and at most 100,000"),
    (
        ["sweep", "--task", "needle-vectors:dim=1000000000", "--attn", "ssa"],
        "dim must be at least 1 and at most 100,000",
    ),
    (["sweep", "--task", f"needle:keys={10**400}", "--attn", "ssa"], "keys must be a whole number of at most 1e+15"),
    (
        ["sweep", "--task", "linear", "--attn", "ssa:n=1e30"],
        "n must be a finite number of at most 1e+15 in size, got '1e30'",
    ),
    # sizes of which each is within its bound, and all together are not
    (setting("model.width=65536"), "the training would need about"),
    (setting("train.batch=1000000"), "the training would need about"),
    (setting("train.steps=1000000000", "model.layers=500"), "the training would take about"),
    (
        setting("model.positions=none", "train.curriculum.start=100000", "train.curriculum.stop=100000"),
        "the training would",
    ),
    (setting("model.positions=none", "test.axes.length=100000"), "the test would need about"),
    (setting("test.prompts=100000000"), "the test would need about"),
    ([*SWEEP, "--seeds", "9", "--jobs", "9", "--set", "train.batch=100000"], "9 trainings at once would need about"),
    (["train", *LINEAR, "--set", "train.batch=1000000"], "the training would need about"),
    (["compare", *LINEAR, "--attn", "ssa", "--set", "test.prompts=100000000"], "the test would need about"),
    (["ablate", *LINEAR, "--set", "train.batch=1000000"], "the training would need about"),
    (
        ["needle", "--task", "needle:alphabet=50000", "--attn", "softmax", *T[:2], "--length", "100000"],
        "the analysis would need",
    ),
    (
        ["heads", *LINEAR, "--set", "model.positions=none", "--set", "test.axes.length=100000"],
        "the analysis would need",
    ),
    (
        ["experiment", "ssa-figure3", "--preset", "smoke", "--set", "train.batch=1000000"],
        "the training would need about",
    ),
    # what a test or an analysis needs
    (
        [*SWEEP, "--set", "model.attention=no", "--swap", "ssa"],
        "a model without attention (model.attention=no) has no normalizer to swap",
    ),
    (setting("model.attention=no", "train.switch_to=ssa", "train.switch_step=30"), "has no normalizer to swap for ssa"),
    (["compare", *LINEAR, "--attn", "softmax"], "at least two different normalizers"),
    (["saturation", *EVERY, "--factors", "1e300"], "'1e300' is not a list of numbers from -1e+15 to 1e+15"),
    (["probe", *EVERY, "--factors", "1"], "a number grows by factors other than 1, got none"),
    (["probe", *EVERY, "--factors", ""], "a number grows by factors other than 1, got none"),
    (["deviant", *EVERY, "--factors", "1e39"], "'1e39' is not a list of numbers from -1e+15 to 1e+15"),
    (["deviant", *EVERY, "--factors", ",".join(map(str, range(1001)))], "factors takes at most 1000 values, got 1,001"),
    (["saturation", *EVERY, "--length", "1000000000"], "'--length': 1000000000 is not in the range"),
    (
        ["needle", "--task", "needle", "--attn", "softmax", "--trials", "1000000000"],
        "'--prompts': 1000000000 is not in the range",
    ),
    (["attention", *LINEAR, "--prompt", "1,2", "--last", "1000000000"], "'--last': 1000000000 is not in the range"),
    (["theory", "--seeds", "1000000000"], "'--seeds': 1000000000 is not in the range"),
    (["theory", "--rows", "1000000", "--keys", "64"], "rows times keys must be at most 10,000,000, got 64,000,000"),
    (["experiment", "ssa-figure3", "--seeds", "1000000000"], "'--seeds': 1000000000 is not in the range"),
    # options of commands that measure
    (["costs", "--pairs", "1000000000"], "1000000000 is not in the range"),
    (["costs", "--lengths", "1000000000"], "prompts of 1,000,000,000 tokens would need about"),
    (["experiment", "ssa-table1", "--until-decided", "--budget", "²h"], "'²h' is no time"),
    # names that leave the results, or are another's
    *(
        ([*COMPARE, "--name", name], "--name is a folder")
        for name in ("../../x", "..", ".", "a/../../b", " ", " a", "runs", "RUNS", "./runs/x", "bench", "/x")
    ),
    ([*COMPARE, "--name", "x" * 300], "--name has at most 200 bytes"),
    # words and folders that are none
    ([*SWEEP, "--results", "a\0b"], "is no text of one line"),
    ([*SWEEP, "--results", "\udcff"], "'\\udcff' is no text of one line"),
    ([*SWEEP, "--results", "x" * 300], "is too long for a path"),
    ([*SWEEP, "--results", "x/" * 3000], "is too long for a path"),
    ([*SWEEP, "--results", "/dev/null"], "'/dev/null' is no folder"),
    (["functions", "--results", "/dev/null/x"], "'/dev/null/x' is no folder: /dev/null is a file"),
    ([*COMPARE, "--name", "a\nb"], "is no text of one line"),
    (["list", "runs", "--results", "nosuch"], "there is no folder 'nosuch'"),
    (["claims", "--results", "nosuch"], "there is no folder 'nosuch'"),
    (["list", "experiments", "--experiments", "nosuch"], "there is no folder 'nosuch'"),
    (["claims", "--results", ""], "'' names no folder"),
    (["heads", "--run", "a\0b"], "is no text of one line"),
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


def test_what_is_large_can_be_asked_for_all_the_same(run, monkeypatch):
    words = [*SWEEP, "--set", "train.batch=100000", "--dry-run"]
    monkeypatch.setattr(estimate, "training_seconds", lambda *_: (1.0, 1))
    monkeypatch.setattr(estimate, "test_seconds", lambda *_: 1.0)
    code, _, err = run(*words)
    assert (code, "--allow-large" in err) == (2, True)
    code, out, _ = run(*words, "--allow-large")
    assert (code, out.count("to do")) == (0, 1)


def test_a_run_that_is_there_is_not_too_large_to_be_read(run, monkeypatch):
    monkeypatch.setattr(store.Run, "trained", True)
    monkeypatch.setattr(store.Run, "finished", True)
    code, _, err = run(*SWEEP, "--set", "train.batch=1000000", "--dry-run")
    assert (code, "would need" in err) == (0, False)


def test_a_folder_that_vanishes_is_one_line(run, monkeypatch):
    def gone(self):
        raise FileNotFoundError(2, os.strerror(2), "results/runs")

    monkeypatch.setattr(store.Run, "begin", gone)
    monkeypatch.setattr(estimate, "training_seconds", lambda *_: (1.0, 1))
    monkeypatch.setattr(estimate, "test_seconds", lambda *_: 1.0)
    code, _, err = run(*SWEEP)
    assert (code, err.splitlines()[-1]) == (1, "icl-lab: results/runs: No such file or directory.")


@pytest.mark.slow
def test_a_picture_that_cannot_be_written_is_one_line(tmp_path, monkeypatch, run):
    def full(path, data):
        if path.suffix == ".png":
            raise OSError(28, os.strerror(28))
        publish(path, data)

    monkeypatch.setattr("icl_lab.base.files.publish", full)
    monkeypatch.setattr("icl_lab.execute.complete.finish", lambda run, lab, tested, models: draw(run))

    def draw(run):
        from icl_lab.execute.draw import draw_history

        monkeypatch.setattr(store.Run, "history", lambda self: [{"step": 50, "loss": 1.0, "length": 5, "rate": 0.1}])
        draw_history(run)

    monkeypatch.setattr(estimate, "training_seconds", lambda *_: (1.0, 1))
    monkeypatch.setattr(estimate, "test_seconds", lambda *_: 1.0)
    code, _, err = run(*SWEEP)
    assert code == 1
    assert err.splitlines()[-1].endswith("learning-curve.png cannot be written: No space left on device.")


def test_a_comma_alone_is_no_normalizer(run):
    code, _, err = run("rates", "--task", "linear", "--attn", ",")
    assert code == 2
    assert "names no normalizer" in err
