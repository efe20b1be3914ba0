"""A training that diverges counts as the worst, stops nothing else, and is neither hidden nor done again unasked."""

import csv
import math

import pytest

from icl_lab import pipeline as sweeping
from icl_lab.base.errors import Diverged
from icl_lab.training import loop

pytestmark = [pytest.mark.usefixtures("quick_pictures"), pytest.mark.slow]

SMALL = "train.steps=20 train.batch=8 model.width=16 model.heads=2 test.prompts=64 test.axes.length=5,12"
# Without norms and warm-up, at the highest rate there is: after two or three steps.
DIVERGES = ["model.norm=no", "model.mlp=no", "model.layers=8", "train.rate=1", "train.warmup=0", "train.clip=0"]


def options(*settings):
    return ["--set", " ".join((SMALL, *settings))]


@pytest.fixture
def lost(tiny, lab):
    spec = tiny("linear", "softmax", *DIVERGES)
    return lab.store.run(spec, 0), sweeping.sweep(spec, 0, lab)


def test_every_cell_of_a_diverged_training_is_the_worst(lost):
    run, grid = lost
    own = grid.where(attn="softmax").frame
    assert set(own[own["metric"] == "mse-code"]["value"]) == {math.inf}
    marked = own[own["metric"] == "not-finite"]
    assert len(marked) == len(own[own["metric"] == "mse-code"])
    assert set(marked["value"]) == {1.0}
    assert math.isfinite(grid.where(attn="reference:zero", metric="mse-code").frame["value"].iloc[0])
    assert run.finished
    assert not run.trained
    assert run.diverged.startswith("the loss is ")


def test_a_rate_of_errors_is_one(tiny, lab):
    grid = sweeping.sweep(tiny("every", "softmax", *DIVERGES), 0, lab)
    assert set(grid.where(attn="softmax", metric=["last", "any"]).frame["value"]) == {1.0}


def test_it_is_read_and_not_trained_again_unless_forced(lost, lab, monkeypatch):
    run, grid = lost
    monkeypatch.setattr(sweeping, "train", None)
    assert sweeping.sweep(run.spec, 0, lab).frame.equals(grid.frame)
    with pytest.raises(Diverged, match="the loss is"):
        sweeping.load_or_train(run, lab)
    run.clear()
    assert not run.diverged


def test_what_was_known_before_it_diverged_is_kept(tiny, lab, monkeypatch):
    spec = tiny("linear", "softmax", "train.steps=100")
    step = loop.advance

    def breaks(engine, spec, seed, number):
        loss = step(engine, spec, seed, number)
        return loss * math.nan if number == 77 else loss

    monkeypatch.setattr(loop, "advance", breaks)
    sweeping.sweep(spec, 0, lab)
    run = lab.store.run(spec, 0)
    assert run.diverged.startswith("the loss is nan at step 78;")
    assert [row["step"] for row in run.history()] == [50]
    assert not list(run.folder.glob("*.pt"))


def compare(run, *more):
    return run("compare", "--task", "linear", "--attn", "softmax", "--attn", "ssa", "--preset", "smoke", *more)


@pytest.fixture
def one_diverges(monkeypatch):
    """Seed 1 of ssa diverges."""
    train = sweeping.train

    def trained(model, task, spec, seed, *rest, **more):
        if model.attn == "ssa" and seed == 1:
            raise Diverged("the loss is nan at step 3; a lower rate may help.")
        return train(model, task, spec, seed, *rest, **more)

    monkeypatch.setattr(sweeping, "train", trained)


@pytest.mark.exhaustive
def test_one_diverged_run_does_not_stop_a_comparison(run, one_diverges, tmp_path):
    code, _, err = compare(run, *options(), "--seeds", "3", "--name", "mine")
    assert code == 0, err
    assert "diverged: linear | ssa | smoke | seed 1 (the loss is nan at step 3; a lower rate may help.)" in err
    folder = tmp_path / "results" / "mine"
    text = (folder / "table.md").read_text()
    assert "### Trainings that diverged" in text
    assert "| ssa | 1 | the loss is nan at step 3;" in text
    assert "Trainings that diverged" in (folder / "report.html").read_text()
    rows = list(csv.DictReader((folder / "comparison.csv").read_text().splitlines()))
    assert {(row["attn"], row["effect"], row["low"], row["p_holm"]) for row in rows} == {("ssa", "inf", "nan", "nan")}


@pytest.mark.exhaustive
def test_nor_where_runs_are_done_at_once(run, tmp_path):
    """Both seeds diverge, in whatever process: the second is done in spite of the first."""
    words = ["--task", "linear", "--attn", "softmax", "--preset", "smoke", *options(*DIVERGES)]
    words += ["--seeds", "2", "--jobs", "2"]
    _, err = run.failed("sweep", *words)
    assert sum(line.startswith("diverged: linear | softmax") for line in err.splitlines()) == 2
    text, _ = run.ok("list", "runs", "--results", str(tmp_path / "results"))
    (line,) = [line for line in text.splitlines() if line.split()[1] == "softmax"]
    assert "seeds 0, 1 diverged" in line


def test_an_analysis_leaves_it_out_and_says_so(run, one_diverges, tmp_path):
    asked = ["--task", "linear", "--attn", "ssa", "--preset", "smoke", "--seeds", "2", *options()]
    text, err = run.ok("deviant", *asked, "--prompts", "64", "--name", "mine")
    assert "Left out, because the training diverged: ssa, seed 1." in text
    assert "diverged: linear | ssa | smoke | seed 1" in err


def test_a_sweep_of_it_fails_each_time_and_blames_no_part(run):
    for _ in range(2):
        out, err = run.failed("sweep", "--task", "linear", "--attn", "ssa", "--preset", "smoke", *options(*DIVERGES))
        assert "diverged: linear | ssa | smoke | seed 0 (the loss is" in err
        assert err.splitlines()[-1] == "icl-lab: 1 of 1 trainings diverged, see above; there is no model of them."
        assert "a lower train.rate, or train.clip=1, may help." in err
        assert "check-part" not in out + err
        assert "more steps" not in out + err


BROKEN = '''
from icl_lab.normalizers import registry
from icl_lab.normalizers.base import WarpedScore


@registry.add("nan-warp")
class NanWarp(WarpedScore):
    """Weights that are no numbers.

    Formula: softmax(0 z / 0)
    Paper: none
    """

    def warp(self, z, n):
        return 0 * z / 0
'''


@pytest.mark.usefixtures("own_parts")
def test_no_number_before_training_names_the_check(run, tmp_path):
    path = tmp_path / "nan_warp.py"
    path.write_text(BROKEN)
    words = ["--import", str(path), "sweep", "--task", "linear", "--attn", "nan-warp", "--preset", "smoke", *options()]
    for seeds in ("1", "2"):
        out, err = run.failed(*words, "--seeds", seeds, "--results", str(tmp_path / "results"))
        assert "the loss is nan at step 1, before any weight has moved; icl-lab check-part nan-warp looks" in err
        assert "nan-warp: not learned: in training conditions its answers are no finite numbers; check-part" in err
        assert out.splitlines()[-1].startswith("next: ")
        assert out.splitlines()[-1].endswith(f"--import {path} check-part nan-warp")
        for word in ("infk", "nank", "inf%", "nan%", "train.rate", "compare"):
            assert word not in out + err
