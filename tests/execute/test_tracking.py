"""Trackers hold each step once, however often a training is cut short, and no result depends on them."""

import os
import re
from dataclasses import replace
from pathlib import Path

import pytest

import icl_lab as icl
from icl_lab.base.errors import BadValue, Stopped, UnknownName
from icl_lab.execute.complete import finish
from icl_lab.execute.tracking import FOLDER, KINDS, Tracking
from icl_lab.execute.where import Where
from icl_lab.training import loop
from tests.execute.test_parallel import contents

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("quick_pictures")]

SHORT = ["train.steps=20", "train.batch=8", "model.width=16", "model.heads=2", "test.prompts=64"]
SHORT += ["test.axes.length=5,12"]
DIVERGES = ["model.norm=no", "model.layers=8", "train.rate=1", "train.warmup=0", "train.clip=0"]  # in step 2 or 3
ROWS = [5, 10, 15, 20]
GROUPED = ("train/loss", "train/rate", "train/length", "model/bound", "attention/entropy/0", "learned/b/0.1")
ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def _short_rows(monkeypatch, request):
    if "jobs" not in request.node.name:  # another process has rows of 50 steps
        monkeypatch.setattr(loop, "ROW", 5)


@pytest.fixture(scope="session")
def trackio_folder(tmp_path_factory):
    """Trackio reads once where its database is: when it is imported."""
    os.environ["TRACKIO_DIR"] = str(tmp_path_factory.mktemp("trackio"))


@pytest.fixture(params=["tensorboard", "trackio"])
def tracked(request, lab, trackio_folder):
    """A tracker that is installed here, in a session of its own."""
    lab = followed(lab, f"{request.param}:{lab.store.root.parent.name}")
    yield lab
    lab.tracked.close()


def followed(lab, asked, **changes):
    made = replace(lab, tracked=Tracking(asked, lab.store.root, lab.say), **changes)
    object.__setattr__(made, "said", lab.said)
    return made


def logged(results, asked):
    """Steps of each name in each run of a tracker, in the order in which they were logged."""
    (kind, _, project), found = asked.partition(":"), {}
    if kind == "tensorboard":
        from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

        for place in (results / FOLDER / kind / project).iterdir():
            events = EventAccumulator(str(place), size_guidance={"scalars": 0}).Reload()
            read = {"scalars": events.Scalars, "images": events.Images, "tensors": events.Tensors}
            known = {name: each(name) for what, each in read.items() for name in events.Tags()[what]}
            found[place.name] = {name.removesuffix("/text_summary"): [e.step for e in known[name]] for name in known}
        return found
    from trackio.sqlite_storage import SQLiteStorage

    for run in SQLiteStorage.get_runs(project):
        found[run] = {"specification": [0]} if SQLiteStorage.get_run_config(project, run)["task"] else {}
        for row in SQLiteStorage.get_logs(project, run):
            for name in row.keys() - {"step", "timestamp"}:
                found[run].setdefault(name, []).append(row["step"])
    return found


def told(lab):
    return logged(lab.store.root, lab.tracked.asked)


def name_of(run):
    return run.key.replace("/", "-")


def test_each_row_then_grid_pictures_and_headline(tiny, tracked):
    run = tracked.store.run(tiny("linear", "ssa", *SHORT), 3)
    finish(run, tracked)
    assert name_of(run).endswith(f"-{run.spec.hash}-seed-3")
    found = told(tracked)
    assert list(found) == [name_of(run)]
    names = found[name_of(run)]
    assert [names[name] for name in GROUPED] == [ROWS] * len(GROUPED)
    assert not names.keys() & {"loss", "rate", "length", "bound", "score.0", "b 0.1"}
    for name in ("grid", "heat-map", "learning-curve", "test/model", "test/zero"):
        assert names[name] == [20], name
    assert "specification" in names
    assert tracked.said == []
    finish(run, tracked)  # what is there is not logged again
    assert told(tracked) == found


def test_a_run_that_is_there_is_logged_whole(tiny, lab, tracked):
    """One that a node of a cluster did, or that was finished before anybody followed it."""
    run = tracked.store.run(tiny("linear", "softmax", *SHORT), 0)
    finish(run, lab)
    finish(run, tracked)
    names = told(tracked)[name_of(run)]
    assert (names["train/loss"], names["test/model"], "specification" in names) == (ROWS, [20], True)


def test_rows_after_the_last_checkpoint_are_logged_once(tiny, tracked, monkeypatch):
    monkeypatch.setattr(loop, "CHECKPOINT_SECONDS", 0)
    run = tracked.store.run(tiny("linear", "softmax", *SHORT), 0)
    rows = tracked.tracked.rows

    def dying(run, history):
        rows(run, history)
        if history[-1]["step"] == 15:
            raise KeyboardInterrupt  # nothing is kept, as after SIGKILL

    monkeypatch.setattr(tracked.tracked, "rows", dying)
    with pytest.raises(KeyboardInterrupt):
        finish(run, tracked)
    assert run.checkpoint_step == 14  # row 15 is there already, and will be trained again
    tracked.tracked.close()
    finish(run, followed(tracked, tracked.tracked.asked))
    found = told(tracked)[name_of(run)]
    assert (found["train/loss"], found["test/model"]) == (ROWS, [20])


def test_a_stopped_training_goes_on_in_its_run(tiny, tracked):
    run = tracked.store.run(tiny("linear", "softmax", *SHORT), 0)
    steps = iter(range(100))
    with pytest.raises(Stopped):
        finish(run, replace(tracked, stopping=lambda: next(steps) > 14))
    finish(run, tracked, tested=False)
    assert told(tracked)[name_of(run)]["train/loss"] == ROWS
    finish(run, tracked)
    found = told(tracked)[name_of(run)]
    assert (found["train/loss"], found["test/model"]) == (ROWS, [20])


def test_a_test_with_another_normalizer_is_in_the_run(tiny, tracked):
    run = tracked.store.run(tiny("linear", "softmax", *SHORT), 0)
    for each in (run, run.swapped("ssmax:s=swap")):
        finish(each, tracked)
    names = told(tracked)[name_of(run)]
    assert names["train/loss"] == ROWS
    assert names["test/model"] == names["swap-ssmax-s-swap/test/model"] == [20]


def test_a_trackio_run_of_ones_own_goes_on(tiny, lab, trackio_folder):
    import trackio

    project = lab.store.root.parent.name
    trackio.init(project=project, name="own", config={"task": "mine"}, embed=False, auto_log_cpu=False)
    finish(lab.store.run(tiny("linear", "softmax", *SHORT), 0), followed(lab, "trackio:theirs"))
    trackio.log({"mine": 1.0}, step=3)
    trackio.finish()
    assert logged(None, f"trackio:{project}") == {"own": {"specification": [0], "mine": [3]}}


def test_a_diverged_training_is_followed_to_its_end(tiny, tracked):
    run = tracked.store.run(tiny("linear", "softmax", *SHORT, *DIVERGES), 0)
    finish(run, tracked)
    assert run.diverged
    assert told(tracked)[name_of(run)]["test/model"] == [20]
    assert tracked.said == []


@pytest.mark.parametrize("part", ["last_steps", "open", "write", "finish"])
def test_a_tracker_that_fails_is_named_once(tiny, lab, part, monkeypatch, trackio_folder):
    monkeypatch.setattr(KINDS["trackio"], part, lambda *about: [] / 0)
    lab = followed(lab, f"trackio:fails-{part}")  # a project of its own: what one has kept, the next would not log
    runs = [lab.store.run(tiny("linear", "softmax", *SHORT), seed) for seed in (0, 1)]
    for run in runs:
        finish(run, lab)
    assert all(run.finished for run in runs)
    (line,) = lab.said
    assert re.fullmatch(f"--track trackio:fails-{part} fails: TypeError: unsupported operand .*; runs go on.", line)


def test_a_folder_that_cannot_be_written_stops_nothing(tiny, lab):
    lab.store.root.mkdir()
    (lab.store.root / FOLDER).write_text("no folder")
    run = lab.store.run(tiny("linear", "softmax", *SHORT), 0)
    finish(run, lab := followed(lab, "tensorboard"))
    assert run.finished
    assert len(lab.said) == 1


def test_results_are_the_same_bytes(tmp_path):
    folders = []
    for track in ("", "tensorboard"):
        root = tmp_path / (track or "plain")
        run = icl.sweep("linear", "ssa", "smoke", SHORT, where=icl.Where(results=root, progress=False, track=track))
        folders.append(run.folder)
        assert "track" not in run.command
        assert "track" not in run.env["command"]
    assert contents(folders[0]) == contents(folders[1])


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ("comet", "No tracker is called 'comet'. There are: tensorboard, trackio, wandb."),
        ("tensorbord", "Did you mean 'tensorboard'?"),
        ("tensorboard:", "a project of tensorboard is 1 to 64 letters"),
        ("tensorboard:../out", "a project of tensorboard is 1 to 64 letters"),
        ("nowhere", "nowhere is not installed: pip install nowhere"),
    ],
)
def test_refusals_come_before_a_training(run, tmp_path, monkeypatch, asked, said):
    monkeypatch.setitem(KINDS, "nowhere", None) if asked == "nowhere" else None
    words = ("sweep", "--task", "linear", "--attn", "softmax", "--preset", "smoke")
    for option in (["--track", asked], []):
        out, err = run.refused(*words, *option)
        assert not out
        assert said in err.strip().splitlines()[-1]
        monkeypatch.setenv("ICL_LAB_TRACK", asked)
    with pytest.raises((BadValue, UnknownName)):
        Where(track=asked)
    assert not (tmp_path / "results").exists()


def test_the_command_is_kept_without_the_tracker(run, tmp_path):
    words = ["sweep", "--task", "linear", "--attn", "softmax", "--preset", "smoke"]
    words += [word for text in SHORT for word in ("--set", text)]
    out, _ = run.ok(*words, "--dry-run", "--track=tensorboard")
    assert not (tmp_path / "results").exists()
    out, _ = run.ok(*words, "--track", "tensorboard:mine")
    assert "--track tensorboard:mine" in out.splitlines()[-1]  # what is done next is followed as well
    (env,) = (tmp_path / "results").rglob("env.json")
    assert "--track" not in env.read_text()
    ((_, names),) = logged(tmp_path / "results", "tensorboard:mine").items()
    assert names["train/loss"] == ROWS
    assert names["learning-curve"] == [20]


@pytest.mark.exhaustive
def test_a_comparison_is_a_run_of_its_own(tmp_path, monkeypatch):
    monkeypatch.setenv("ICL_LAB_TRACK", "tensorboard:p")
    where = icl.Where(results=tmp_path, progress=False)
    made = icl.compare("linear", ["softmax", "ssa"], "smoke", SHORT, seeds=2, where=where)
    found = logged(tmp_path, "tensorboard:p")
    assert len(found) == 5
    assert found[made.folder.name]["summary"] == [0]
    answer = icl.learning(made.runs[0], where=where)
    assert "summary" in logged(tmp_path, "tensorboard:p")[answer.folder.name]


@pytest.mark.exhaustive
def test_an_experiment_is_a_run_of_its_own(tmp_path):
    where = icl.Where(results=tmp_path, progress=False, track="tensorboard:p", experiments=ROOT / "experiments")
    done = icl.experiment("ssa-figure3", "smoke", SHORT[:-1], variants=["ssa"], where=where)
    found = logged(tmp_path, "tensorboard:p")
    assert len(found) == 3
    assert found[done.folder.name]["summary"] == [0]


@pytest.mark.exhaustive
def test_jobs_at_once_are_followed_in_their_processes(tmp_path):
    where = icl.Where(results=tmp_path, progress=False, jobs=2, track="tensorboard:p")
    runs = icl.sweep("linear", "softmax", "smoke", ["train.steps=60", *SHORT[1:]], seeds=2, where=where)
    found = logged(tmp_path, "tensorboard:p")
    assert [found[name_of(run.stored)]["train/loss"] for run in runs] == [[50, 60]] * 2
    assert [found[name_of(run.stored)]["test/model"] for run in runs] == [[60]] * 2
    writers = {path.name.split(".")[-2] for path in tmp_path.rglob("events.out.*")}
    assert len(writers) == 2
    assert str(os.getpid()) not in writers  # the processes that trained wrote it
