"""A run that is done elsewhere: its folder here ends as if it had been done here, byte for byte."""

import shutil
from dataclasses import replace

import msgspec
import pytest

from icl_lab import outside as parts
from icl_lab.errors import RunFailed, Stopped
from icl_lab.evidence.layer import Layer
from icl_lab.pipeline import sweep
from icl_lab.runs import manifest
from icl_lab.runs.store import Store
from icl_lab.runs.verify import everything
from icl_lab.training import loop
from icl_lab.workers import mirror, run_files
from icl_lab.workers.folder import names
from icl_lab.workers.job import Job
from icl_lab.workers.run_files import RunFiles
from icl_lab.workers.supervisor import supervise
from tests.workers.compared import TIMED


def order(run, tested=True, **more):
    return {
        "remote": True,
        "spec": msgspec.to_builtins(run.spec),
        "seed": run.seed,
        "swap": run.swap,
        "results": "",
        "device": "cpu",
        "threads": 1,
        "command": "typed",
        "evidence": False,
        "tested": tested,
        "imports": parts.orders(),
        "silence": 60,
        **more,
    }


class Watched(RunFiles):
    """Notes what comes and goes, in order."""

    def __init__(self, run, tested=True):
        super().__init__(run, tested, lambda text: None)
        object.__setattr__(self, "events", [])

    def parcels(self):
        for name, data, more in super().parcels():
            self.events.append(f"sent {name}")
            yield name, data, more

    def take(self, name, data):
        self.events.append(name)
        super().take(name, data)

    def drop(self, names):
        names = list(names)
        self.events += [f"without {name}" for name in names]
        super().drop(names)


def far_away(run, far, tested=True, **more):
    files = Watched(run, tested)
    (outcome,) = supervise([Job("a run", order(run, tested), run.spec.train.steps, files)], [far], **more)
    return outcome, files.events


def contents(run, *but):
    return {name: (run.folder / name).read_bytes() for name in names(run.folder) if name not in (*TIMED, *but)}


@pytest.fixture
def here(tiny, lab):
    """The same run, done here."""
    sweep(tiny(), 0, lab)
    return lab.store.run(tiny(), 0)


@pytest.mark.slow
def test_a_run_elsewhere_is_the_run_here(here, tiny, tmp_path, far):
    run = Store(tmp_path / "far").run(tiny(), 0)
    outcome, events = far_away(run, far)
    assert (outcome.state, outcome.attempts) == ("done", 1), outcome.reason
    assert contents(run) == contents(here)
    assert len(contents(run)) > 4
    assert [finding.state for finding in everything(run.folder)] == ["whole"]
    assert run.env()["command"] == "typed"
    # What says that the rest is whole comes last: a driver that dies in between has a run that goes on.
    assert events[0] == "sent spec.json"
    assert events[-1] == "grid.csv"
    assert events.index("history.csv") < events.index("env.json") < events.index("model.safetensors")
    assert events.index("model.safetensors") < events.index("positions.csv")
    outcome, events = far_away(run, far)  # a second time there is nothing to do
    assert (outcome.state, events, len(far.pipes)) == ("done", [], 1)


@pytest.mark.slow
def test_a_lost_worker_goes_on_from_what_it_sent(here, tiny, tmp_path, far, monkeypatch):
    """It dies after its second checkpoint has arrived; the next one goes on from there."""
    monkeypatch.setattr(loop, "CHECKPOINT_SECONDS", 0.0)
    monkeypatch.setattr(mirror, "OFTEN", 0.0)
    monkeypatch.setattr(mirror, "SHARE", 0)
    run, seen, said = Store(tmp_path / "far").run(tiny(), 0), [], []

    def take(self, name, data):
        seen.append(name)
        whole(self, name, data)
        if seen.count("checkpoint.pt") == 2 and len(far.pipes) == 1:
            far.pipes[0].hang_up()  # the driver is gone, for this worker
            raise_once.append(True)

    whole, raise_once = Watched.take, []
    monkeypatch.setattr(Watched, "take", take)
    outcome, events = far_away(run, far, say=said.append)
    assert outcome.state == "done", outcome.reason
    assert len(far.pipes) == 2
    assert [type(error) for error in far.pipes[0].raised] == [Stopped]
    assert "sent checkpoint.pt" in events
    assert "without checkpoint.pt" in events
    assert contents(run) == contents(here)
    assert said[0].startswith("lost: a run at ")


@pytest.mark.slow
def test_a_worker_that_is_asked_to_stop_leaves_its_checkpoint_with_the_driver(here, tiny, tmp_path, far):
    run, steps = Store(tmp_path / "far").run(tiny(), 0), []

    def watch(standings):
        steps[:] = [each.step for each in standings if each.step]

    spec = tiny("linear", "softmax", "train.steps=100000")
    long = Store(tmp_path / "far").run(spec, 0)
    outcome, events = far_away(long, far, watch=watch, stopping=lambda: bool(steps))
    assert outcome.state == "stopped"
    assert outcome.reason.startswith("stopped at step ")
    assert "checkpoint.pt" in events
    assert (long.folder / "checkpoint.pt").exists()
    assert not run.folder.exists()


@pytest.mark.slow
def test_another_rule_is_tested_in_the_model_that_is_here(here, tiny, lab, tmp_path, far):
    shutil.copytree(lab.store.root, tmp_path / "far")
    sweep(tiny(), 0, lab, "ssmax")
    run = Store(tmp_path / "far").run(tiny(), 0, "ssmax")
    outcome, events = far_away(run, far)
    assert outcome.state == "done", outcome.reason
    assert "sent model.safetensors" in events
    assert [event for event in events if not event.startswith("sent")] == [
        "swap-ssmax/manifest.json",
        "swap-ssmax/errors.safetensors",
        "swap-ssmax/positions.csv",
        "swap-ssmax/grid.csv",
    ]
    assert contents(run) == contents(here)


@pytest.mark.slow
def test_only_a_model_is_wanted(here, tiny, tmp_path, far):
    run = Store(tmp_path / "far").run(tiny(), 0)
    outcome, events = far_away(run, far, tested=False)
    assert (outcome.state, run.trained, run.finished) == ("done", True, False)
    assert (run.folder / "model.safetensors").read_bytes() == (here.folder / "model.safetensors").read_bytes()


@pytest.mark.slow
def test_the_model_of_a_run_that_was_trained_alike_is_taken_over(here, tiny, lab, far):
    wider = tiny("linear", "softmax", "test.axes.length=5,12,20")
    run = lab.store.run(wider, 0)
    outcome, events = far_away(run, far)
    assert outcome.state == "done", outcome.reason
    assert "sent model.safetensors" in events
    assert "model.safetensors" not in events


@pytest.mark.slow
def test_a_model_of_the_evidence_is_tested_and_not_copied(here, tiny, lab, tmp_path, far):
    layer = Layer(tmp_path / "evidence")
    kept = {name: data for name, data in contents(here).items() if "/" not in name}
    kept["env.json"] = (here.folder / "env.json").read_bytes()
    layer.put({here.key: {name: kept[name] for name in ("spec.json", "env.json", "history.csv", "model.safetensors")}})
    near, apart = (Store(tmp_path / name, layer).run(tiny(), 0) for name in ("near", "apart"))
    sweep(near.spec, 0, replace(lab, store=Store(tmp_path / "near", layer)))
    outcome, _ = far_away(apart, far)
    assert outcome.state == "done", outcome.reason
    assert contents(apart) == contents(near)
    assert not (apart.folder / "model.safetensors").exists()
    assert set(manifest.read(apart.folder)) == {"spec.json", "errors.safetensors", "positions.csv", "grid.csv"}
    assert [finding.state for finding in everything(apart.folder)] == ["whole"]


def test_what_is_found_in_a_folder(tmp_path):
    for name in ("spec.json", "model.safetensors", "grid.csv", "errors.safetensors", ".lock", "heat-map.png", "a.svg"):
        (tmp_path / name).touch()
    (tmp_path / ".staged").mkdir()
    (tmp_path / ".staged" / "x").touch()
    (tmp_path / "swap-ssmax").mkdir()
    (tmp_path / "swap-ssmax" / "grid.csv").touch()
    found = list(names(tmp_path))
    assert set(found) == {"spec.json", "errors.safetensors", "model.safetensors", "grid.csv", "swap-ssmax/grid.csv"}
    assert set(found[:2]) == {"spec.json", "errors.safetensors"}  # though written at one moment with the others


def test_a_full_disk_here_fails_the_run_and_says_why(tiny, tmp_path, far, monkeypatch):
    def full(path, data):
        raise RunFailed(f"{path} cannot be written: No space left on device.")

    run = Store(tmp_path / "far").run(tiny("linear", "softmax", "train.steps=1"), 0)
    monkeypatch.setattr(run_files, "write", full)
    outcome, _ = far_away(run, far)
    assert outcome.state == "failed"
    assert "No space left" in outcome.reason
