"""Cores are divided among runs, one each; whoever says how many runs at once gets that many."""

import pytest
import torch

import icl_lab as icl
from icl_lab import normalizers
from icl_lab.execute import allocation
from icl_lab.execute.announce import Clock
from icl_lab.execute.complete import allocated, complete
from icl_lab.normalizers.softmax import Softmax
from icl_lab.runs import estimate
from icl_lab.runs.spec import resolve
from icl_lab.runs.store import Store

CPU = torch.device("cpu")


@pytest.fixture
def machine(monkeypatch):
    """Set cores, seconds of a training, and the bytes that are free."""
    now = {"threads": 8}
    monkeypatch.setattr(torch, "get_num_threads", lambda: now["threads"])
    monkeypatch.setattr(torch, "set_num_threads", lambda number: now.update(threads=number))

    def settle(cores=8, training=1000.0, free=1e12):
        now["threads"] = cores
        monkeypatch.setattr(estimate, "training_seconds", lambda spec, device, since=0: (training, 1))
        monkeypatch.setattr(estimate, "test_seconds", lambda spec, device: 0.0)
        monkeypatch.setattr(allocation, "free_memory", lambda: free)

    return settle


def runs(tmp_path, count, attn="ssa"):
    spec = resolve("linear", attn, "smoke")
    return [Store(tmp_path).run(spec, seed) for seed in range(count)]


@pytest.mark.parametrize(("cores", "count", "wanted"), [(8, 20, 8), (8, 5, 5), (8, 1, 1), (2, 20, 2), (1, 20, 1)])
def test_there_is_a_run_for_each_core(machine, tmp_path, cores, count, wanted):
    machine(cores)
    assert allocation.runs_at_once(runs(tmp_path, count), CPU, Clock(CPU)) == wanted


def test_memory_seconds_and_other_devices_bound_it(machine, tmp_path):
    asked = runs(tmp_path, 20)
    one = estimate.size_of(asked[0].spec).training
    machine(free=one * 4 / allocation.SPARED)
    assert allocation.runs_at_once(asked, CPU, Clock(CPU)) == 4
    machine(free=0.0)
    assert allocation.runs_at_once(asked, CPU, Clock(CPU)) == 1
    machine(training=allocation.QUICK / 20)
    assert allocation.runs_at_once(asked, CPU, Clock(CPU)) == 1
    machine()
    assert allocation.runs_at_once(asked, torch.device("cuda"), Clock(CPU)) == 1


@pytest.mark.parametrize(
    ("cores", "asked", "count", "threads"),
    [(16, {}, 1, 8), (4, {}, 1, 4), (16, {"threads": 16}, 1, 16), (16, {}, 4, 4), (16, {"jobs": 2}, 4, 8)],
)
def test_one_run_has_eight_threads_at_most(machine, tmp_path, lab, cores, asked, count, threads):
    machine(cores)
    assert allocated(icl.Where(**asked), runs(tmp_path, count), lab, Clock(CPU))[1].threads == threads


@pytest.mark.parametrize(("asked", "wanted"), [({}, 8), ({"jobs": 3}, 3), ({"jobs": 1}, 1), ({"engine": "ray"}, None)])
def test_what_is_asked_for_is_done(machine, tmp_path, lab, asked, wanted):
    machine()
    where = icl.Where(results=tmp_path, **asked)
    found, _ = allocated(where, runs(tmp_path, 20), lab, Clock(CPU))
    assert found.jobs == wanted
    assert found.reporter is where.reporter


def test_parts_of_this_program_alone_stay_in_it(machine, tmp_path, lab, own_parts):
    machine()

    @normalizers.registry.add("mine-alone")
    class Mine(Softmax):
        """Softmax, defined here."""

    assert allocated(icl.Where(), runs(tmp_path, 20, "mine-alone"), lab, Clock(CPU))[0].jobs is None


@pytest.mark.exhaustive
def test_a_sweep_of_minutes_is_done_by_processes(machine, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(allocation, "QUICK", 0.0)
    machine(cores=2)
    here = icl.Where(results=tmp_path)
    few = {"train.steps": 5, "test.prompts": 16, "test.axes.length": "5", "test.axes.sigma_f": "1"}
    found = icl.sweep("linear", "ssa", "smoke", few, seeds=2, where=here)
    assert [run.seed for run in found] == [0, 1]
    assert "2 to do, 2 at once with 1 thread each" in capsys.readouterr().err


def test_free_memory_is_read_where_the_system_says_it(monkeypatch, tmp_path):
    said = tmp_path / "meminfo"
    said.write_text("MemTotal:       100 kB\nMemAvailable:    70 kB\n")
    monkeypatch.setattr(allocation, "MEMINFO", said)
    assert allocation.free_memory() == 70 * 1024
    monkeypatch.setattr(allocation, "MEMINFO", tmp_path / "none")
    assert allocation.free_memory() > 0


def test_announced_time_is_of_the_threads_that_each_run_has(machine, tmp_path, monkeypatch, lab):
    machine(cores=8)
    measured = lambda spec, device, since=0: ({1: 300.0, 2: 240.0, 8: 200.0}[torch.get_num_threads()], 1)  # noqa: E731
    monkeypatch.setattr(estimate, "training_seconds", measured)
    asked = [lab.store.run(resolve("linear", "ssa", "smoke"), seed) for seed in range(8)]
    complete(asked, lab, icl.Where(results=lab.store.root, dry_run=True, progress=False))
    assert lab.said[-1] == "trains 8 of 8 models, about 5 min, 8 at once"
    complete(asked, lab, icl.Where(results=lab.store.root, dry_run=True, progress=False, jobs=4))
    assert lab.said[-1] == "trains 8 of 8 models, about 8 min, 4 at once"
