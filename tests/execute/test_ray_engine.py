"""A Ray cluster: the runs are those of this machine, also when a node dies in the middle."""

import importlib.util
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from unittest.mock import Mock

import pytest

from icl_lab.base import outside
from icl_lab.base.errors import BadValue
from icl_lab.execute import ray_engine
from icl_lab.execute.complete import pool, undrawn
from icl_lab.execute.parallel import Ending, WorkItem
from icl_lab.execute.where import Where
from icl_lab.pipeline import sweep as whole_pass
from icl_lab.runs import manifest
from icl_lab.runs.evidence.archive import Archive
from icl_lab.runs.store import Store
from icl_lab.runs.verify import everything
from tests.cli.test_outside_parts import SQUARE
from tests.execute.test_parallel import contents, ended, until

ROOT = Path(__file__).parents[2]
SMALL = ["--set", "train.batch=8 test.prompts=64 test.axes.sigma_x=1 test.axes.sigma_f=1,2", "--no-evidence"]
SWEEP = ["sweep", "--task", "linear", "--preset", "smoke", "--attn", "ssa", *SMALL, "--threads", "1"]


class Told:
    """The notes, in this process; asked to stop after so many words."""

    def __init__(self, words=10**9):
        self.words, self.said = words, []

    @property
    def note(self):
        return self

    def remote(self, number, step, host):
        self.said.append(step)
        return len(self.said) >= self.words


def item_of(run):
    where = Where(results="nowhere", device="cpu", threads=1, evidence=False, progress=False)
    which = {"spec": run.spec, "seed": run.seed, "swap": run.swap}
    return WorkItem(**which, finish=undrawn, where=where, command="typed", imports=outside.imported())


@pytest.fixture
def far(monkeypatch):
    """Do the task of an order as a node would, without Ray; return its ending and files."""

    class Ray:
        wait = staticmethod(lambda answers, timeout: (answers, []))
        get = staticmethod(lambda answer: answer)

    monkeypatch.setitem(sys.modules, "ray", Ray)
    monkeypatch.setattr(ray_engine, "OFTEN", 0.0)

    def do(run, version=None, words=10**9):
        given = ray_engine._present(run), ray_engine._parts(), version or ray_engine._version()
        return ray_engine.execute(item_of(run), *given, 1, Told(words))

    return do


def keep(run, answer):
    """Write what came back, as the task of a cluster does; returns how it ended."""
    task = object.__new__(ray_engine.RayTask)
    task._run, task._item = run, item_of(run)
    task._keep(*answer)
    return task._end


@pytest.mark.slow
def test_what_comes_back_is_the_run_of_this_machine(far, tiny, lab, tmp_path):
    here = lab.store.run(tiny(), 0)
    whole_pass(here.spec, 0, lab)
    there = Store(tmp_path / "there").run(tiny(), 0)
    with there.locked(lab.say):
        assert keep(there, far(there)) == Ending("done")
    assert there.finished
    assert contents(tmp_path / "there") == contents(lab.store.root)
    swapped = there.swapped("ssmax")
    assert keep(swapped, far(swapped)) == Ending("done")
    assert swapped.finished


@pytest.mark.slow
def test_a_stopped_task_brings_its_checkpoint(far, tiny, lab, tmp_path):
    here = lab.store.run(tiny(), 0)
    whole_pass(here.spec, 0, lab)
    there = Store(tmp_path / "there").run(tiny(), 0)
    there.folder.mkdir(parents=True)
    ending = keep(there, far(there, words=20))
    assert (ending.state, "stopped at step" in ending.reason) == ("stopped", True)
    assert (there.folder / "checkpoint.pt").exists()
    assert keep(there, far(there)) == Ending("done")
    assert not (there.folder / "checkpoint.pt").exists()
    assert contents(tmp_path / "there") == contents(lab.store.root)


@pytest.mark.slow
def test_models_of_the_evidence_are_only_tested(far, tiny, lab, tmp_path):
    """Their weights are sent, and not written here."""
    whole_pass(tiny(), 0, lab)
    first = lab.store.run(tiny(), 0)
    layer = Archive(tmp_path / "evidence")
    names = ("spec.json", "env.json", "history.csv", "model.safetensors")
    layer.add({first.key: {name: (first.folder / name).read_bytes() for name in names}})
    near, there = (Store(tmp_path / name, layer).run(tiny(), 0) for name in ("near", "there"))
    whole_pass(near.spec, 0, replace(lab, store=Store(tmp_path / "near", layer)))
    assert keep(there, far(there)) == Ending("done")
    assert contents(tmp_path / "there") == contents(tmp_path / "near")
    assert not (there.folder / "model.safetensors").exists()
    assert set(manifest.read(there.folder)) == {
        *("spec.json", "measured.json", "errors.safetensors", "positions.csv", "grid.csv")
    }
    assert [finding.state for finding in everything(there.folder)] == ["whole"]


def test_files_travel_so_that_the_manifest_comes_last(tmp_path):
    for name in ("grid.csv", "model.safetensors", "spec.json", "errors.safetensors", ".lock", "heat-map.png", "a.svg"):
        (tmp_path / name).touch()
    (tmp_path / ".staged").mkdir()
    (tmp_path / ".staged" / "x").touch()
    (tmp_path / "swap-ssmax").mkdir()
    (tmp_path / "swap-ssmax" / "grid.csv").touch()
    found = list(ray_engine.files_of(tmp_path))
    assert set(found[:2]) == {"spec.json", "errors.safetensors"}
    assert set(found[2:]) == {"grid.csv", "model.safetensors", "swap-ssmax/grid.csv"}


@pytest.mark.usefixtures("own_parts")
@pytest.mark.parametrize("name", ["mine.py", "mine"])
def test_parts_from_outside_are_sent_along(tmp_path, name):
    place = tmp_path / name if name.endswith(".py") else tmp_path / name / "__init__.py"
    place.parent.mkdir(exist_ok=True)
    place.write_text(SQUARE)
    outside.load(str(tmp_path / name))
    parts = ray_engine._parts()
    assert list(parts) == [f"0/{place.relative_to(tmp_path)}"]
    for each, data in parts.items():
        (path := tmp_path / "node" / "imports" / each).parent.mkdir(parents=True)
        path.write_bytes(data)
    orders = outside.imported()
    (told,) = ray_engine._imported_below(str(tmp_path / "node"), orders)
    assert Path(told["target"]) == tmp_path / "node" / "imports" / "0" / name
    assert Path(told["target"]).exists()


def test_a_node_of_another_version_is_refused(far, tiny, tmp_path):
    run = Store(tmp_path).run(tiny(), 0)
    ending, made, _ = far(run, version="icl_lab 0.0.0 (source 0) with torch 1")
    assert (ending.state, made) == ("failed", {})
    assert "here it is icl_lab 0.0.0" in ending.reason


def test_a_run_that_fails_on_a_node_says_why(far, tiny, tmp_path, monkeypatch):
    monkeypatch.setattr("icl_lab.pipeline.sweep", Mock(side_effect=ValueError("sigma is a cat")))
    ending, _, _ = far(Store(tmp_path).run(tiny(), 0))
    assert ending == Ending("failed", "ValueError: sigma is a cat")


def test_an_answer_without_all_files_is_no_finished_run(tiny, tmp_path):
    run = Store(tmp_path).run(tiny(), 0)
    answer = Ending("done"), {"history.csv": b""}, set()
    assert keep(run, answer) == Ending("failed", "the task ended without all of its files")


def test_a_cluster_without_ray_is_one_clear_line(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)  # an import of it fails
    monkeypatch.delenv("RAY_AUTH_MODE", raising=False)
    with pytest.raises(BadValue, match=r"pip install 'icl_lab\[ray\]'"):
        pool(Where(engine="ray"))


def test_an_open_cluster_is_refused(monkeypatch):
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    with pytest.raises(BadValue, match="open to everybody"):
        pool(Where(engine="ray"))


def test_a_cluster_is_remote_and_runs_are_parallel():
    where = Where(engine="ray", jobs=2)
    assert (where.remote, where.parallel) == (True, True)
    assert (Where(jobs=2).remote, Where(jobs=2).parallel, Where().parallel) == (False, True, False)


def test_a_node_of_a_cluster_has_a_device_of_its_own(lab):
    assert Where(engine="ray").of_runs(lab).device == "auto"
    assert Where().of_runs(lab).device == "cpu"


# A head and one more node, started by the test itself, each with room for one run.
CLUSTER = """
import sys
from ray.cluster_utils import Cluster
cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
second = cluster.add_node(num_cpus=1)
cluster.wait_for_nodes()
print(cluster.address, flush=True)
for line in sys.stdin:
    cluster.remove_node(second, allow_graceful=False)
    print("gone", flush=True)
cluster.shutdown()
"""
# A training takes long enough for a node to die in the middle.
SLOW = """
import sys, time
if "default_worker.py" in " ".join(sys.orig_argv):
    import importlib.abc
    class Later(importlib.abc.MetaPathFinder):
        def find_spec(self, name, path, target=None):
            if name == "icl_lab.training.loop":
                sys.meta_path.remove(self)
                from icl_lab.training import loop
                row = loop.row
                loop.row = lambda *words: time.sleep(0.5) or row(*words)
    sys.meta_path.insert(0, Later())
"""
cluster = pytest.mark.skipif(not importlib.util.find_spec("ray"), reason="pip install 'icl_lab[ray]'")


@pytest.fixture
def env(tmp_path):
    """A token of the test's own, and processes that import this checkout."""
    (tmp_path / "token").write_text("0" * 64)
    (tmp_path / "slow").mkdir()
    (tmp_path / "slow" / "sitecustomize.py").write_text(SLOW)
    ours = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": str(tmp_path / "token"), "RAY_USAGE_STATS_ENABLED": "0"}
    return {**os.environ, **ours, "PYTHONPATH": str(ROOT)}


def sweep(env, results, *words):
    command = [sys.executable, "-m", "icl_lab", *SWEEP, *words, "--results", str(results)]
    return subprocess.Popen(command, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)


def finished(process, code=0):
    left, err = ended(process)
    assert left == code, err
    return err


@cluster
@pytest.mark.exhaustive
@pytest.mark.timeout(600)
def test_a_cluster_of_its_own(tmp_path, env):
    words = ["--set", "train.steps=100", "--seeds", "2"]
    finished(sweep(env, tmp_path / "here", *words))
    assert "2 to do, " in finished(sweep(env, tmp_path / "ray", *words, "--engine", "ray"))
    assert contents(tmp_path / "ray") == contents(tmp_path / "here")
    slow = {**env, "PYTHONPATH": f"{tmp_path / 'slow'}:{ROOT}"}
    stopped = sweep(slow, tmp_path / "stopped", "--set", "train.steps=100000", "--engine", "ray", "--jobs", "1")
    until(lambda: list((tmp_path / "stopped").rglob(".lock")))  # in the hands of the cluster
    stopped.send_signal(signal.SIGINT)
    assert "icl-lab: stopped; the same command" in finished(stopped, code=130)


@cluster
@pytest.mark.exhaustive
@pytest.mark.timeout(900)
def test_a_node_that_is_killed_in_the_middle(tmp_path, env):
    """Two nodes, three runs; the second node dies once a run is finished and others are at work."""
    words = ["--set", "train.steps=1000", "--seeds", "3"]
    finished(sweep(env, tmp_path / "here", *words))
    slow = {**env, "PYTHONPATH": f"{tmp_path / 'slow'}:{ROOT}"}
    nodes = [sys.executable, "-c", CLUSTER]
    with subprocess.Popen(nodes, env=slow, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as two:
        try:
            address = two.stdout.readline().strip()
            driver = sweep(env, tmp_path / "ray", *words, "--engine", "ray", "--address", address)
            end = time.monotonic() + 250
            while not list((tmp_path / "ray").rglob("grid.csv")):
                assert driver.poll() is None, driver.communicate()[1]
                assert time.monotonic() < end, "no run was finished"
                time.sleep(0.1)
            print("now", file=two.stdin, flush=True)
            assert two.stdout.readline() == "gone\n"
            finished(driver)
        finally:
            two.stdin.close()
    assert contents(tmp_path / "ray") == contents(tmp_path / "here")


@cluster
@pytest.mark.slow
def test_an_address_where_nothing_answers_is_one_clear_line(tmp_path, env):
    err = finished(sweep(env, tmp_path, "--engine", "ray", "--address", "127.0.0.1:1"), code=2)
    assert err.splitlines()[-1].startswith("icl-lab: --engine ray --address 127.0.0.1:1: ")
    assert "Traceback" not in err
