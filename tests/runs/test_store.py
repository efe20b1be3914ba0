"""Runs on disk: whole files only, damage that is named, and work that survives being killed."""

import dataclasses
import hashlib
import io
import json
import os
import pickle
import resource
import shutil
import stat
import threading
import time

import msgspec
import pytest
import torch
from safetensors.torch import save_model

from icl_lab import pipeline as sweeping
from icl_lab import tasks
from icl_lab.base.errors import BadValue, RunFailed, Stopped, UnknownName
from icl_lab.base.files import publish
from icl_lab.model.gpt2 import ModelSpec
from icl_lab.runs import status
from icl_lab.runs.checkpoints import NAMES as CHECKPOINTS
from icl_lab.runs.spec import RunSpec
from icl_lab.runs.store import Store
from icl_lab.runs.verify import everything
from icl_lab.training.loop import train

pytestmark = pytest.mark.usefixtures("quick_pictures")


@pytest.mark.slow
def test_a_finished_run_is_read_and_not_repeated(tiny, lab, monkeypatch):
    grid = sweeping.sweep(tiny(), 0, lab)
    monkeypatch.setattr(sweeping, "train", None)
    monkeypatch.setattr(sweeping, "measure", None)
    assert sweeping.sweep(tiny(), 0, lab).frame.equals(grid.frame)
    run = lab.store.run(tiny(), 0)
    (run.folder / "model.safetensors").unlink()  # git keeps the weights of few runs
    assert run.finished
    assert sweeping.sweep(tiny(), 0, lab).frame.equals(grid.frame)


@pytest.mark.slow
def test_the_layout(tiny, lab):
    spec = tiny("every:balance=half", "ssa:n=2,learn=no")
    sweeping.sweep(spec, 3, lab)
    folder = lab.store.root / "runs" / "every-balance=half" / "ssa-n=2,learn=no" / f"smoke-{spec.hash}" / "seed-3"
    assert {path.name for path in folder.iterdir() if path.name[0] != "."} == {
        "spec.json", "env.json", "history.csv", "model.safetensors", "positions.csv", "errors.safetensors", "grid.csv",
        "measured.json",
        "manifest.json",
    }  # fmt: skip
    env = json.loads((folder / "env.json").read_text())
    assert {"commit", "device", "threads", "versions", "machine", "command", "finished"} <= env.keys()
    assert lab.store.at(folder) == lab.store.run(spec, 3)
    with pytest.raises(UnknownName, match="seed-7"):
        lab.store.at(folder.with_name("seed-7"))
    grid = lab.store.run(spec, 3).grid()
    assert list(grid.frame.columns) == [
        "task", "attn", "preset", "spec", "seed", "sigma", "length", "metric", "value", "stderr", "count",
    ]  # fmt: skip
    assert {"ssa:n=2,learn=no", "reference:always-false", "reference:exact-rule"} <= set(grid.values("attn"))
    assert stat.S_IMODE((folder / "grid.csv").stat().st_mode) == 0o666 & ~umask()


def umask():
    mask = os.umask(0)
    os.umask(mask)
    return mask


@pytest.mark.slow
def test_runs_of_a_preset_or_of_hashes(tiny, lab):
    first, other = (tiny("linear", "softmax", f"train.steps={steps}") for steps in (2, 3))
    for spec in (first, other):
        sweeping.sweep(spec, 0, lab)
    names = lambda *args, **kwargs: {run.spec.hash for run in lab.store.runs(*args, **kwargs)}  # noqa: E731
    assert names(preset=first.preset) == names() == {first.hash, other.hash}
    assert names(preset=first.preset[:-1]) == names(hashes=[]) == set()
    assert names(hashes=[other.hash, "00000000"]) == {other.hash}


def test_the_hash_names_the_numbers_and_not_the_preset(tiny):
    spec = tiny()
    assert len(spec.hash) == 8
    assert spec.hash == tiny().hash
    assert spec.hash != tiny("linear", "softmax", "train.steps=61").hash
    assert spec.hash != tiny("linear", "ssa").hash
    assert spec.hash != tiny("linear", "softmax", "test.prompts=128").hash


def test_a_field_that_is_new_renames_nothing(tiny):
    class Wider(ModelSpec, frozen=True):
        invented: float = 1.5

    spec = tiny()
    shape = msgspec.structs.asdict(spec.model)
    assert msgspec.structs.replace(spec, model=Wider(**shape)).hash == spec.hash
    assert msgspec.structs.replace(spec, model=Wider(**shape, invented=2.0)).hash != spec.hash
    assert spec.whole()["model"]["mlp"] is True  # written, though it has its default
    assert spec.whole()["train"]["curriculum"]["start"] == 11


def test_equal_specifications_have_one_hash(tiny):
    spec = tiny()
    read = msgspec.json.decode(json.dumps(spec.whole()), type=RunSpec)
    assert read == spec
    assert read.hash == spec.hash
    usual = "model.positions=learned model.mask=causal train.clip=1.0 train.schedule=cosine test.draws=ours"
    for setting in usual.split():
        again = tiny("linear", "softmax", setting)
        assert (again, again.hash) == (spec, spec.hash), setting


class Interrupted(Exception):
    pass


def stop_at(step):
    """A training that is cut off after ``step`` steps, with checkpoints at every one."""

    def cut(*args, keep, **options):
        def keep_and_stop(progress):
            keep(progress)
            if progress.step >= step:
                raise Interrupted

        return train(*args, keep=keep_and_stop, **options)

    return cut


@pytest.fixture
def cut(lab, monkeypatch):
    """Begins a run of a specification, with two checkpoints, and cuts it off at step 20."""

    def begin(spec):
        with monkeypatch.context() as patch:
            patch.setattr("icl_lab.training.loop.CHECKPOINT_SECONDS", 0)
            patch.setattr(sweeping, "train", stop_at(20))
            with pytest.raises(Interrupted):
                sweeping.sweep(spec, 0, lab)
        run = lab.store.run(spec, 0)
        assert all((run.folder / name).exists() for name in CHECKPOINTS)
        return run

    return begin


@pytest.fixture
def stopped(tiny, cut):
    return cut(tiny())


@pytest.fixture
def afresh(lab):
    """What a run gives in a results folder of its own, where nothing is kept."""
    other = dataclasses.replace(lab, store=Store(lab.store.root.parent / "other"))
    return lambda spec, seed=0: sweeping.sweep(spec, seed, other).frame


@pytest.mark.exhaustive
@pytest.mark.parametrize("damage", ["truncate", "alter", "empty"])
@pytest.mark.parametrize(
    ("names", "says"),
    [
        (CHECKPOINTS[:0], "goes on from step 20 (checkpoint.pt)"),
        (CHECKPOINTS[:1], "goes on from step 19 (checkpoint-before.pt)"),
        (CHECKPOINTS, "no checkpoint is whole; starts from step 0"),
    ],
)
def test_a_damaged_checkpoint_falls_back_and_says_so(stopped, lab, tiny, afresh, names, says, damage):
    for name in names:
        path = stopped.folder / name
        data = path.read_bytes()
        path.write_bytes({"truncate": data[:-100], "alter": data[:2000] + b"x" + data[2001:], "empty": b""}[damage])
    grid = sweeping.sweep(tiny(), 0, lab)
    assert any(says in line for line in lab.said), lab.said
    assert sum("is damaged" in line for line in lab.said) == len(names)
    assert afresh(tiny()).equals(grid.frame)


def test_a_stopped_run_stands_at_its_newest_whole_checkpoint(stopped, tiny, lab):
    assert stopped.checkpoint_step == 20
    assert lab.store.run(tiny(), 1).checkpoint_step == 0
    newest, before = (stopped.folder / name for name in CHECKPOINTS)
    newest.write_bytes(newest.read_bytes()[:-1] + b"?")
    assert stopped.checkpoint_step == 19
    before.write_bytes(b"")
    assert stopped.checkpoint_step == 0


class Evil:
    """A pickle that would make a file when it is read."""

    def __init__(self, mark):
        self.mark = mark

    def __reduce__(self):
        return (open, (self.mark, "w"))


def hostile(kind, state, mark):
    """Checkpoints with a right checksum whose content is not that of the run."""
    changed = {
        "negative step": {**state, "step": -1},
        "step beyond the end": {**state, "step": 10**9},
        "unknown key": {**state, "surprise": 1},
        "no model": {key: value for key, value in state.items() if key != "model"},
        "half a model": {**state, "model": dict(list(state["model"].items())[:3])},
        "another shape": {**state, "model": {key: value[..., :1] for key, value in state["model"].items()}},
        "another optimizer": {**state, "optimizer": {"adam": {"state": {}, "param_groups": []}}},
        "unknown normalizer": {**state, "attn": "nosuch"},
        "a list": [1, 2],
    }
    with io.BytesIO() as buffer:
        if kind == "garbage":
            buffer.write(b"not a checkpoint")
        elif kind == "code":
            pickle.dump(Evil(mark), buffer, protocol=2)
        else:
            torch.save(changed[kind], buffer)
        data = buffer.getvalue()
    return hashlib.sha256(data).digest() + data


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    "kind",
    ["negative step", "step beyond the end", "unknown key", "no model", "half a model", "another shape",
     "another optimizer", "unknown normalizer", "a list", "garbage", "code"],
)  # fmt: skip
def test_a_checkpoint_of_wrong_content_is_left_aside(stopped, lab, tiny, afresh, tmp_path, kind):
    """And no code of it runs; the training starts afresh, with the same bits."""
    path, mark = stopped.folder / "checkpoint.pt", tmp_path / "ran"
    state = torch.load(io.BytesIO(path.read_bytes()[32:]), weights_only=True)
    path.write_bytes(hostile(kind, state, str(mark)))
    (stopped.folder / "checkpoint-before.pt").unlink()
    assert stopped.checkpoint_step in (0, 20, 10**9)  # what is estimated from it must not fail
    grid = sweeping.sweep(tiny(), 0, lab)
    assert any(f"{path} " in line and "is left aside" in line for line in lab.said), lab.said
    assert not mark.exists()
    assert afresh(tiny()).equals(grid.frame)


def test_leftovers_of_killed_writes_go_when_a_run_is_locked(tiny, lab):
    run = lab.store.run(tiny(), 0)
    run.folder.mkdir(parents=True)
    left = [run.folder / name for name in (".grid.csv-abc", ".checkpoint.pt-x1", status.NAME, f".{status.NAME}-x1")]
    for path in left:
        path.write_text("half")
    (run.folder / ".heat-map.png-abc").write_text("somebody draws at this moment, and holds nothing")
    with run.locked(print):
        assert {path.name for path in run.folder.iterdir()} == {".lock", ".heat-map.png-abc"}


def test_old_checkpoints_go_when_a_run_is_locked(tiny, lab):
    run = lab.store.run(tiny(), 0)
    run.folder.mkdir(parents=True)
    for name in ("checkpoint-before.pt", "checkpoint.pt"):
        (run.folder / name).write_text("x")
    with run.locked(print):
        assert (run.folder / "checkpoint.pt").exists()
    (run.folder / "model.safetensors").write_text("weights")
    with run.locked(print):
        assert not list(run.folder.glob("checkpoint*"))


@pytest.mark.slow
def test_a_read_only_run_is_read(tiny, lab, monkeypatch):
    grid = sweeping.sweep(tiny(), 0, lab)

    def refused(lock, timeout):
        raise PermissionError(30, "Read-only file system")

    monkeypatch.setattr("filelock.FileLock.acquire", refused)
    assert sweeping.load_or_train(lab.store.run(tiny(), 0), lab).attn == "softmax"
    assert sweeping.sweep(tiny(), 0, lab).frame.equals(grid.frame)
    with pytest.raises(RunFailed, match="seed-1 cannot be written: Read-only file system"):
        sweeping.sweep(tiny(), 1, lab)


@pytest.mark.slow
def test_a_results_folder_that_vanishes_is_whole_again(tiny, lab):
    def tick(stage, done, total, note):
        if done == 50:
            shutil.rmtree(lab.store.root)

    grid = sweeping.sweep(tiny(), 0, dataclasses.replace(lab, tick=tick))
    run = lab.store.run(tiny(), 0)
    assert [finding.state for finding in everything(lab.store.root)] == ["whole"]
    assert run.grid().frame.equals(grid.frame)
    assert list(lab.store.runs()) == [run]


@pytest.mark.slow
def test_a_finished_run_is_kept_until_it_is_finished_again(tiny, lab):
    sweeping.sweep(tiny(), 0, lab)
    run = lab.store.run(tiny(), 0)
    before = {name: (run.folder / name).read_bytes() for name in ("grid.csv", "model.safetensors", "history.csv")}
    run.clear()
    assert not run.finished
    assert not run.trained
    assert {name: (run.folder / ".replaced" / name).read_bytes() for name in before} == before
    run.clear()  # what is there now is not finished, and takes the place of nothing
    assert {name: (run.folder / ".replaced" / name).read_bytes() for name in before} == before
    sweeping.sweep(tiny(), 0, lab)
    run.forget_replaced()
    assert not (run.folder / ".replaced").exists()


@pytest.mark.slow
def test_a_checkpoint_of_another_run_is_left_aside(stopped, lab, tiny, afresh):
    other = lab.store.run(tiny(), 1)
    other.folder.mkdir(parents=True)
    for name in CHECKPOINTS:
        (other.folder / name).write_bytes((stopped.folder / name).read_bytes())
    grid = sweeping.sweep(tiny(), 1, lab)
    assert sum("is of another run (linear softmax" in line for line in lab.said) == 2
    assert any("starts from step 0" in line for line in lab.said)
    assert afresh(tiny(), 1).equals(grid.frame)


def test_a_folder_with_another_specification_is_left_alone(tiny, lab):
    run = lab.store.run(tiny(), 0)
    publish(run.folder / "spec.json", b"{}\n")
    with pytest.raises(RunFailed, match=r"cannot be read: .*missing required field"):
        sweeping.sweep(tiny(), 0, lab)
    other = json.dumps(tiny("linear", "softmax", "train.rate=0.5").whole())
    publish(run.folder / "spec.json", other.encode())
    with pytest.raises(RunFailed, match="another specification"):
        sweeping.sweep(tiny(), 0, lab)
    assert (run.folder / "spec.json").read_text() == other


@pytest.mark.slow
def test_a_second_process_says_that_it_waits_and_then_reads(tiny, lab):
    run, said = lab.store.run(tiny(), 0), []
    second = type(lab)(lab.store, lab.device, said.append)
    with run.locked(lab.said.append):
        thread = threading.Thread(target=sweeping.sweep, args=(tiny(), 0, second))
        thread.start()
        deadline = time.monotonic() + 20
        while not said and time.monotonic() < deadline:
            time.sleep(0.01)
        assert "another process is working on" in said[0]
        assert not run.trained
    thread.join(60)
    assert run.finished


def test_weights_that_do_not_fit_the_disk_are_named(tiny, lab):
    run = lab.store.run(tiny(), 0)
    run.begin()
    model = tiny().untrained(tasks.build("linear"), 0)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, before[1]))  # bytes of a file, as a quota has it
    try:
        with pytest.raises(RunFailed, match="cannot be written: File too large"):
            run.keep_model(model, [{"step": 1.0}], {})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert not run.trained


@pytest.mark.parametrize("attn", ["softmax", "ssmax-free"])  # of the second, layers share a parameter
def test_weights_are_stored_as_safetensors_stores_a_model(tiny, lab, tmp_path, attn):
    spec = tiny("linear", attn, "model.layers=2")
    run, model = lab.store.run(spec, 0), spec.untrained(tasks.build("linear"), 0)
    run.keep_model(model, [{"step": 1.0}], {})
    save_model(model, str(tmp_path / "model.safetensors"))
    assert run.read("model.safetensors") == (tmp_path / "model.safetensors").read_bytes()


def test_nothing_is_seen_half_written(tmp_path, monkeypatch):
    path = tmp_path / "grid.csv"
    publish(path, b"old")

    def full(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        publish(path, b"new")
    assert path.read_bytes() == b"old"
    assert [item.name for item in tmp_path.iterdir()] == ["grid.csv"]


@pytest.mark.slow
def test_a_full_disk_is_named_and_the_last_checkpoint_stays(tiny, lab, monkeypatch, stopped):
    kept = {name: (stopped.folder / name).read_bytes() for name in CHECKPOINTS}

    def full(path, data):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("icl_lab.training.loop.CHECKPOINT_SECONDS", 0)
        patch.setattr("icl_lab.runs.checkpoints.publish", full)
        with pytest.raises(RunFailed, match=f"{stopped.folder} cannot be written: No space left on device"):
            sweeping.sweep(tiny(), 0, lab)
    left = {path.read_bytes() for path in stopped.folder.glob("checkpoint*.pt")}
    assert kept["checkpoint.pt"] in left
    assert sweeping.sweep(tiny(), 0, lab) is not None


def test_a_place_that_cannot_be_a_folder(tiny, lab):
    lab.store.root.write_text("a file where the folder should be")
    with pytest.raises(RunFailed, match="cannot be written"):
        sweeping.sweep(tiny(), 0, lab)


@pytest.mark.slow
def test_a_switched_run_resumes_and_loads(tiny, lab, cut, afresh):
    spec = tiny("linear", "softmax", "train.switch_step=10", "train.switch_to=ssmax")
    run = cut(spec)
    grid = sweeping.sweep(spec, 0, lab)
    assert afresh(spec).equals(grid.frame)
    (run.folder / "grid.csv").unlink()
    assert sweeping.sweep(spec, 0, lab).frame.equals(grid.frame)


@pytest.mark.slow
def test_a_swap_is_an_evaluation_of_its_own_beside_the_run(tiny, lab):
    spec, run = tiny(), lab.store.run(tiny(), 0)
    plain = sweeping.sweep(spec, 0, lab)
    before = (run.folder / "model.safetensors").read_bytes()
    swapped = sweeping.sweep(spec, 0, lab, "ssmax:s=swap")
    assert (run.folder / "swap-ssmax-s=swap" / "grid.csv").exists()
    assert swapped.values("attn")[0] == "softmax->ssmax:s=swap"
    assert run.grid().frame.equals(plain.frame)
    assert (run.folder / "model.safetensors").read_bytes() == before
    cell = {"metric": "mse-code", "sigma_x": 1, "sigma_f": 1, "length": 12}
    assert swapped.at(attn="softmax->ssmax:s=swap", **cell) != plain.at(attn="softmax", **cell)
    assert swapped.at(attn="reference:3-nn", **cell) == plain.at(attn="reference:3-nn", **cell)
    same = sweeping.sweep(spec, 0, lab, "temperature:tau=1")
    own = plain.at(attn="softmax", **cell)
    assert same.at(attn="softmax->temperature:tau=1", **cell) == pytest.approx(own, rel=1e-5)
    run.clear()
    assert not run.swapped("ssmax:s=swap").finished


@pytest.mark.slow
def test_another_test_grid_reuses_the_trained_model(tiny, lab, monkeypatch):
    sweeping.sweep(tiny(), 0, lab)
    wide = tiny("linear", "softmax", "test.axes.sigma_f=1,5")
    with monkeypatch.context() as patch:
        patch.setattr(sweeping, "train", None)
        grid = sweeping.sweep(wide, 0, lab)
        assert any("trained alike" in line for line in lab.said)
        cell = {"attn": "softmax", "metric": "mse-code", "sigma_x": 1, "sigma_f": 1, "length": 12}
        assert grid.at(**cell) == lab.store.run(tiny(), 0).grid().at(**cell)
        with pytest.raises(TypeError):  # another seed, and another training, are other models
            sweeping.sweep(wide, 1, lab)
        with pytest.raises(TypeError):
            sweeping.sweep(tiny("linear", "softmax", "train.steps=61"), 0, lab)


@pytest.mark.slow
def test_options_of_tests_reuse_the_trained_model(tiny, lab, monkeypatch):
    """A model of plain regression is tested under a shift; training under it is another."""
    plain = sweeping.sweep(tiny("regression", "softmax"), 0, lab)
    with monkeypatch.context() as patch:
        patch.setattr(sweeping, "train", None)
        grid = sweeping.sweep(tiny("regression:shift=overlap", "softmax"), 0, lab)
        assert any("trained alike" in line for line in lab.said)
        assert set(plain.values("metric")) < set(grid.values("metric"))
        cell = {"attn": "softmax", "metric": "mse-late", "sigma_x": 1, "sigma_f": 1, "length": 12}
        assert grid.at(**cell) == plain.at(**cell)
        with pytest.raises(TypeError):
            sweeping.sweep(tiny("regression:shift=overlap,shifted=always", "softmax"), 0, lab)


@pytest.mark.slow
def test_a_stop_between_two_shifts_keeps_the_model(tiny, lab):
    asked = []

    def tick(stage, done, total, note):
        if stage == "sweep" and done:
            asked.append(done)

    stopped = type(lab)(lab.store, lab.device, lab.said.append, tick, lambda: bool(asked))
    with pytest.raises(Stopped, match="stopped while testing"):
        sweeping.sweep(tiny(), 0, stopped)
    run = lab.store.run(tiny(), 0)
    assert asked == [1]
    assert run.trained
    assert not run.finished
    sweeping.sweep(tiny(), 0, lab)
    assert run.finished


@pytest.mark.slow
def test_a_stop_while_waiting_for_another_process(tiny, lab):
    run = lab.store.run(tiny(), 0)
    waiting = type(lab)(lab.store, lab.device, lab.said.append, stopping=lambda: True)
    with run.locked(lab.said.append), pytest.raises(Stopped, match="while waiting"):
        sweeping.sweep(tiny(), 0, waiting)
    assert not run.trained


@pytest.mark.slow
def test_another_rotary_base_at_test_reuses_the_weights(tiny, lab):
    trained_alike = "model.positions=rotary"
    plain = sweeping.sweep(tiny("linear", "softmax", trained_alike), 0, lab)
    spec = tiny("linear", "softmax", trained_alike, "model.rope_theta=500000")
    assert spec.test.positions == "rotary:theta=500000"
    other = sweeping.sweep(spec, 0, lab)
    assert any("trained alike" in line for line in lab.said)
    cell = {"metric": "mse-code", "sigma_f": 1, "sigma_x": 1, "length": 12}
    assert plain.at(attn="softmax", **cell) != other.at(attn="softmax", **cell)
    assert plain.at(attn="reference:zero", **cell) == other.at(attn="reference:zero", **cell)
    with pytest.raises(BadValue, match="learned vectors"):
        tiny("linear", "softmax", "model.positions=learned", "model.rope_theta=500000")


def test_a_switch_step_may_be_a_share_of_the_steps_in_any_order(tiny):
    def switched(step, *settings):
        return tiny("linear", "softmax", f"train.switch_step={step}", "train.switch_to=ssmax", *settings)

    told = switched("7/8", "train.steps=80")
    assert told.train.switch_step == 70
    assert told.hash == switched(70, "train.steps=80").hash
    assert switched("7/8", "train.switch_step=3").train.switch_step == 3  # the last word counts
    wrong = {"7/0": "such as 7/8", "a/b": "such as 7/8", "9/8": "< steps", "-1/8": "at least 0"}
    for step, complaint in wrong.items():
        with pytest.raises(BadValue, match=complaint):
            switched(step)
    with pytest.raises(BadValue, match="a whole number of at least 0"):
        tiny("linear", "softmax", "train.warmup=1/8")


def test_a_shared_parameter_returns_to_every_layer(tiny, lab):
    """It is stored once: a model of another process must find it under each of its names."""
    spec = tiny("needle", "ssmax-free", "model.layers=2", "train.steps=2", "test.axes.length=64")
    run = lab.store.run(spec, 0)
    model = sweeping.trained(run, lab)
    again = sweeping.trained(lab.store.run(spec, 0), lab)
    for name, value in model.state_dict().items():
        assert torch.equal(value, again.state_dict()[name]), name
    one, other = (rule.p for rule in again.rules)
    assert one is other
