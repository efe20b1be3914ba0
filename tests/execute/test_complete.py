"""Many runs from one command: announced in total, none lost because another failed, and taken up where they stood."""

import errno
import math
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock

import msgspec
import pytest
import torch

from icl_lab.analyses import frame
from icl_lab.base.errors import BadValue, RunFailed, Stopped
from icl_lab.cli.runs import listing
from icl_lab.execute import complete as launching
from icl_lab.execute.announce import Clock, announce, announce_all, count_words, tell_engine
from icl_lab.execute.complete import complete
from icl_lab.execute.parallel import trainings_first
from icl_lab.execute.reporter import Silent
from icl_lab.execute.study import complete_for
from icl_lab.execute.where import Where
from icl_lab.pipeline import sweep, trained
from icl_lab.runs import archiving, estimate
from icl_lab.runs.command import differences
from icl_lab.runs.evidence.archive import Archive
from icl_lab.runs.spec import resolve
from icl_lab.runs.store import Store
from tests.execute.conftest import Notes

pytestmark = pytest.mark.usefixtures("quick_pictures")


RUN = ["--task", "linear", "--preset", "smoke", "--set", "train.steps=5 test.axes.sigma_x=1 test.axes.sigma_f=1,2"]


@pytest.fixture
def second_each(monkeypatch):
    """Every run is estimated to take a second a step at full length, and its test none."""
    monkeypatch.setattr(estimate, "training_seconds", lambda spec, device, since=0: (float(spec.train.steps), 1234))
    monkeypatch.setattr(estimate, "test_seconds", lambda spec, device: 0.0)


@pytest.mark.slow
def test_models_of_an_analysis_are_tested_for_claims(tiny, lab):
    """With their own normalizer: it says whether they have learned. A finished run without weights is trained again."""
    done, bare, new = (lab.store.run(tiny("linear"), seed) for seed in range(3))
    for run in (done, bare):
        sweep(run.spec, run.seed, lab)
    (bare.folder / "model.safetensors").unlink()
    asked = [done, bare, new, new.swapped("ssa")]
    deviant, boundary = frame.build("deviant", {}), frame.build("boundary", {})

    def rehearsed(analysis, tested):
        lab.said.clear()
        told = Notes()
        assert not complete_for(analysis, asked, lab, Where(dry_run=True, progress=told), tested=tested)
        return lab.said[-1].partition(",")[0], told.lines

    def to(*words):
        return [f"{word}  {run.place}" for word, run in zip(words, asked, strict=False)]

    assert rehearsed(None, True) == ("trains 1 of 3 models", to("done", "done", "to do", "to do"))
    assert rehearsed(deviant, True) == ("trains 2 of 3 models", to("done", "to do", "to do"))
    assert rehearsed(boundary, True) == ("trains 2 of 3 models", to("done", "to do", "to do", "to do"))
    assert rehearsed(deviant, False)[0] == "trains 2 of 3 models"
    lab.said.clear()
    assert complete_for(boundary, asked, lab, Where(progress=False), tested=True)
    (counted,) = [line for line in lab.said if " models, about " in line]
    assert counted.startswith("trains 2 of 3 models")
    assert all(run.done(tested=True, models=True) for run in asked)


@pytest.mark.parametrize(
    ("device", "engine", "finished", "told"),
    [
        ("cuda", "eager", False, True),
        ("cuda", "eager", True, False),
        ("cuda", "graph", False, False),
        ("cpu", "eager", False, False),
    ],
)
def test_who_trains_eagerly_on_a_gpu_hears_of_graphs(device, engine, finished, told):
    said, spec = [], resolve("linear", "softmax", "smoke", [f"train.engine={engine}"])
    run = SimpleNamespace(spec=spec, finished=finished, trained=False)
    tell_engine([run, run], SimpleNamespace(device=torch.device(device), say=said.append))
    assert ["train.engine=graph" in line for line in said] == [True] * told


def test_a_command_tells_once_of_engines(tiny, lab, monkeypatch):
    seen = []
    monkeypatch.setattr(launching, "tell_engine", lambda runs, lab: seen.append(list(runs)))
    runs = [lab.store.run(tiny("linear"), seed) for seed in range(2)]
    complete(runs, lab, Where(dry_run=True))
    assert seen == [runs]


def fails(monkeypatch, *seeds):
    """Let these seeds diverge."""
    whole = launching.finish

    def finish(run, lab, tested=True, models=False):
        if run.seed in seeds:
            raise RunFailed("the loss is nan at step 3")
        return whole(run, lab, tested, models)

    monkeypatch.setattr(launching, "finish", finish)


@pytest.mark.slow
def test_a_run_that_diverges_does_not_stop_those_after_it(run, tmp_path, monkeypatch):
    fails(monkeypatch, 0)
    out, err = run.failed("sweep", "--attn", "ssa", *RUN, "--seeds", "3")
    assert "failed: linear | ssa | smoke | seed 0 (the loss is nan at step 3)" in err
    assert err.splitlines()[-1].startswith("icl-lab: 1 of 3 runs did not finish, see above; the others are finished")
    assert [path.parent.name for path in sorted(tmp_path.rglob("grid.csv"))] == ["seed-1", "seed-2"]
    assert "over 2 seeds" in out


def test_a_single_run_that_fails_says_why_in_its_last_line(run, monkeypatch):
    fails(monkeypatch, 0)
    _, err = run.failed("sweep", "--attn", "ssa", *RUN)
    assert err.splitlines()[-1] == "icl-lab: the loss is nan at step 3"


@pytest.mark.slow
def test_several_runs_are_announced_in_total(tiny, lab, second_each):
    runs = [lab.store.run(tiny("linear", rule), seed) for rule in ("softmax", "ssa") for seed in range(3)]
    sweep(runs[0].spec, 0, lab)
    said = lab.said
    said.clear()
    announce_all(runs, Clock(lab.device), lab.say)
    assert said.pop() == "trains 5 of 6 models, about 5 min (1 finished here)"
    announce_all(runs, Clock(lab.device), lab.say, jobs=2)
    assert said.pop().endswith("about 2 min, 2 at once (1 finished here)")
    announce_all(runs[:1], Clock(lab.device), lab.say)
    assert said == []
    announce_all([runs[0], runs[0]], Clock(lab.device), lab.say)
    assert said == []
    assert count_words(runs[:1], Clock(lab.device)) == "trains nothing: 1 model (1 finished here)"


def test_a_test_with_another_rule_is_no_further_training(tiny, lab, second_each):
    runs = [lab.store.run(tiny(), 0), lab.store.run(tiny(), 0, "ssmax")]
    announce_all(runs, Clock(lab.device), lab.say)
    assert lab.said[-1] == "trains 1 of 1 model, about 60 s"
    launching.rehearse(runs, lab, Clock(lab.device), Where(progress=False))
    assert lab.said[-1] == "trains 1 of 1 model, about 60 s"
    launching.rehearse(runs, lab, Clock(lab.device), Where(progress=False, jobs=2))
    assert lab.said[-1] == "trains 1 of 1 model, about 60 s, 2 at once"


@pytest.mark.slow
def test_a_training_that_is_tested_in_two_ways_is_one_training(tiny, lab, second_each):
    runs = [lab.store.run(spec, 0) for spec in (tiny(), tiny("linear", "softmax", "test.prompts=32"))]
    announce_all(runs, Clock(lab.device), lab.say)
    assert lab.said[-1] == "trains 1 of 1 model, about 60 s"
    trained(runs[0], lab)
    assert [Clock(lab.device)(run)[0] for run in runs] == [0, 0]
    announce(runs[1], lab, Clock(lab.device))
    assert "trained already, as another run, to be tested" in lab.said[-1]
    other = lab.store.run(tiny("linear", "softmax", "train.batch=9"), 0)
    assert Clock(lab.device)(other)[0] == 60


def test_what_shares_a_training_comes_after_all_that_do_not(tiny, lab):
    """Side by side both would train, or one would wait for the other."""
    one, two = tiny(), tiny("linear", "softmax", "test.prompts=32")
    runs = [lab.store.run(spec, seed, rule) for spec in (one, two) for seed in (0, 1) for rule in ("", "ssa")]
    order = [(run.spec is two, run.seed, run.swap) for run in trainings_first(runs)]
    assert order == [(late, seed, swap) for late in (False, True) for swap in ("", "ssa") for seed in (0, 1)]


def test_what_is_left_after_a_stop_is_announced(tiny, lab, second_each):
    steps, run = iter([False] * 29), lab.store.run(tiny(), 0)
    object.__setattr__(lab, "stopping", lambda: next(steps, True))
    with pytest.raises(Stopped):
        trained(run, lab)
    announce(run, lab, Clock(torch.device("cpu")))
    assert "30 of 60 steps left, about 33 s" in lab.said[-1]


def test_specifications_that_differ_by_normalizer_are_as_fast(tiny, lab, monkeypatch):
    """Seeds of one are measured once."""
    asked = []
    monkeypatch.setattr(Clock, "MEASURED", 3)
    monkeypatch.setattr(estimate, "training_seconds", lambda spec, device: asked.append(spec.attn) or (len(asked), 1))
    monkeypatch.setattr(estimate, "test_seconds", lambda spec, device: 0.0)
    clock = Clock(lab.device)
    rules = ("softmax", "softmax", "ssa", "lssa", "log-n", "ssa")
    seconds = [clock(lab.store.run(tiny("linear", rule), seed))[0] for seed, rule in enumerate(rules)]
    assert (asked, seconds) == (["softmax", "ssa", "lssa"], [1, 1, 2, 3, 1, 2])
    assert clock(lab.store.run(tiny("every", "log-n"), 0))[0] == 4  # another task is measured


def test_a_rule_is_as_much_slower_on_one_task_as_on_another(tiny, lab, monkeypatch):
    """Of its training and of its test: a normalizer without a fast pass may be tested for longer than it is trained."""
    rules = {"softmax": (1.0, 10.0), "ssa": (2.0, 70.0)}
    times = {"linear": 1, "every": 5}
    monkeypatch.setattr(Clock, "MEASURED", 3)
    monkeypatch.setattr(estimate, "training_seconds", lambda spec, device: (rules[spec.attn][0] * times[spec.task], 1))
    monkeypatch.setattr(estimate, "test_seconds", lambda spec, device: rules[spec.attn][1] * times[spec.task])
    clock = Clock(lab.device)
    asked = [("linear", "softmax"), ("linear", "ssa"), ("every", "softmax"), ("every", "ssa"), ("every", "log-n")]
    seconds = [clock(lab.store.run(tiny(task, rule), 0))[0] for task, rule in asked]
    assert seconds == [11, 72, 55, 2 * 5 + 7 * 50, 55]  # of a normalizer that is known nowhere: as the first


@pytest.mark.slow
def test_the_test_of_a_trained_run_is_what_is_left(tiny, lab, monkeypatch):
    monkeypatch.setattr(estimate, "training_seconds", lambda spec, device: (100.0, 1))
    monkeypatch.setattr(estimate, "test_seconds", lambda spec, device: 7.0)
    run = lab.store.run(tiny(), 0)
    assert Clock(lab.device)(run)[0] == 107
    assert Clock(lab.device, tested=False)(run)[0] == 100
    runs = [run, run.swapped("ssa"), lab.store.run(tiny("linear", "ssa"), 0)]
    announce_all(runs, Clock(lab.device), lab.say)
    assert lab.said[-1].endswith("trains 2 of 2 models, about 4 min")  # two trainings, three tests: 221 s
    trained(run, lab)
    assert Clock(lab.device)(run) == (7.0, 0, 0)
    announce(run, lab, Clock(lab.device))
    assert "trained already, to be tested: about 7 s" in lab.said[-1]


def test_a_stop_while_trainings_are_timed_is_heard(tiny, lab, second_each):
    clock = Clock(lab.device, stopping=lambda: True)
    with pytest.raises(Stopped, match="before anything was begun"):
        announce_all([lab.store.run(tiny(), seed) for seed in (0, 1)], clock, lab.say)


def test_workers_are_given_the_work_that_is_left(tiny, lab, monkeypatch):
    given = []

    def execute(jobs, *rest):
        given.extend(replace(job) for job in jobs)
        for job in jobs:
            job.state = "done"

    monkeypatch.setattr(launching.parallel, "execute", execute)
    runs = [lab.store.run(tiny(), seed) for seed in (0, 1)]
    trained(runs[1], lab)
    launching.by_workers(runs, lab, Where(), SimpleNamespace(jobs=2), Clock(lab.device))
    work = estimate.training_operations(tiny()), estimate.test_operations(tiny())
    assert {job.item.seed: (job.done, job.whole) for job in given} == {0: (0, sum(work)), 1: (work[0], sum(work))}
    given.clear()
    launching.by_workers(runs, lab, Where(), SimpleNamespace(jobs=2), Clock(lab.device, tested=False))
    assert [job.whole for job in given] == [work[0]] * 2


@pytest.mark.slow
def test_a_forced_run_that_was_stopped_goes_on(tiny, lab):
    """A scheduler that wants its machine back starts the same command again, --force and all."""
    run = lab.store.run(tiny(), 0)
    sweep(run.spec, 0, lab)
    before = run.grid().csv()
    steps = iter([False] * 20)
    object.__setattr__(lab, "stopping", lambda: next(steps, True))
    with pytest.raises(Stopped):
        complete([run], lab, Where(retrain=True))
    stood = run.checkpoint_step
    assert stood > 0
    object.__setattr__(lab, "stopping", lambda: False)
    complete([run], lab, Where(retrain=True))
    assert f"goes on from step {stood} (checkpoint.pt)." in lab.said
    assert run.grid().csv() == before
    assert not (run.folder / launching.FORCED).exists()
    lab.said.clear()
    complete([run], lab, Where(retrain=True))  # finished since: now it is repeated from the start
    assert not any("goes on" in line for line in lab.said)


@pytest.mark.slow
def test_a_training_is_forced_as_often_as_it_is_asked_for(run, tmp_path):
    written = []
    for force in ([], ["--retrain"], ["--retrain"], []):
        run.ok("sweep", "--attn", "ssa", *RUN, *force)
        (model,) = tmp_path.rglob("model.safetensors")
        written.append(model.stat().st_mtime_ns)
    assert written[0] < written[1] < written[2] == written[3]


@pytest.mark.slow
def test_three_seeds_end_in_one_table(run):
    out, _ = run.ok("sweep", "--attn", "ssa", *RUN, "--seeds", "3")
    assert out.count("sigma_x down, sigma_f across") == 1
    assert "ssa, mean ± standard deviation over 3 seeds" in out
    assert len(re.findall(r"^ssa, seed \d: [\d.]+ in training conditions; wrote: ", out, flags=re.MULTILINE)) == 3


@pytest.mark.slow
def test_runs_are_listed_by_what_they_are_and_where_they_stand(tiny, lab):
    plain, odd = tiny(), tiny("linear", "softmax", "model.width=32")
    for seed in (0, 1, 2):
        sweep(plain, seed, lab)
    sweep(plain, 0, lab, "ssmax")
    lab.store.run(odd, 4).begin()
    lines = list(listing(lab.store, print))
    assert len(lines) == 2
    (first,) = (line for line in lines if plain.hash in line)
    (second,) = (line for line in lines if odd.hash in line)
    assert "seed 0 finished, tested with ssmax; seeds 1, 2 finished" in first
    assert "model.width=16 train.steps=60 train.batch=8 test.axes.length=5,12" in first
    assert "seed 4 at step 0 of 60" in second
    assert "model.width" not in second
    damaged = lab.store.run(plain, 0)
    (damaged.folder / "model.safetensors").unlink()
    (damaged.folder / "env.json").write_text("{")
    (line,) = (line for line in listing(lab.store, print) if plain.hash in line)
    assert "seed 0 damaged (see icl-lab verify)" in line
    assert "seeds 1, 2 finished" in line


def test_a_run_of_a_preset_differs_in_nothing():
    assert differences(resolve("linear", "ssa", "lite")) == []
    assert differences(resolve("linear", "ssa", "lite", ["model.norm=no"])) == ["model.norm=no"]
    assert differences(resolve("linear", "four-functions", "smoke", ["model.heads=4"])) == ["model.heads=4"]
    lost = msgspec.structs.replace(resolve("linear", "ssa", "smoke"), attn="another")
    assert differences(lost)[0].startswith("(No normalizer is called 'another'")


@pytest.mark.exhaustive
def test_an_ablation_with_several_jobs(tmp_path):
    """Its parts are runs of one normalizer and seed: they once had one name."""
    words = [sys.executable, "-m", "icl_lab", "ablate", "--attn", "softmax", *RUN, "--jobs", "2", "--threads", "2"]
    done = subprocess.run([*words, "--results", str(tmp_path)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert len(list(tmp_path.rglob("grid.csv"))) == 6
    assert "%|" not in done.stderr  # no bar where nobody looks


@pytest.mark.slow
def test_runs_that_another_process_clears_meanwhile_are_missed(tiny, lab):
    """A comparison beside a --force must not end as if all were there."""
    runs = [lab.store.run(tiny(), seed) for seed in (0, 1)]

    class Clearing(Silent):
        def finished(self, run, already):
            if run.seed == 1:
                runs[0].clear()

    with pytest.raises(RunFailed, match=r"1 of 2 runs were cleared meanwhile by another process"):
        complete(runs, lab, Where(progress=Clearing()))


@pytest.mark.slow
def test_a_run_by_its_folder_is_not_trained_again_in_another(run, tmp_path):
    _, err = run.ok("sweep", "--attn", "softmax", *RUN)
    (grid,) = (tmp_path / "results").rglob("grid.csv")
    _, err = run.ok("deviant", "--run", str(grid.parent), "--prompts", "64", results=tmp_path / "other")
    assert not list((tmp_path / "other").rglob("model.safetensors"))
    assert list((tmp_path / "other").rglob("deviant.csv"))


def test_runs_above_eight_hours_need_allow_large(lab, monkeypatch):
    monkeypatch.setattr(estimate, "training_seconds", lambda *_: (5 * 3600.0, 1))
    monkeypatch.setattr(estimate, "test_seconds", lambda *_: 0.0)
    runs = [lab.store.run(resolve("linear", "ssa", "deep"), seed) for seed in range(2)]
    complete(runs[:1], lab, Where(dry_run=True, progress=Silent()))
    assert "--allow-large" not in lab.said[-1]
    said = r"about 10.0 h .*more than 8.0 h: --preset \w+ would take .* (s|min); add --allow"
    with pytest.raises(BadValue, match=said):
        complete(runs, lab, Where(progress=Silent()))
    assert not lab.store.root.exists()
    complete(runs, lab, Where(dry_run=True, progress=Silent()))
    assert "--allow-large" in lab.said[-1]  # a rehearsal says the same
    for how in ({"jobs": 2}, {"shard": (0, 1)}):  # half of the time
        complete(runs, lab, Where(dry_run=True, progress=Silent(), **how))
        assert "--allow-large" not in lab.said[-1]


def test_who_allows_it_is_asked_nothing(tmp_path):
    for allowed, longest in ((True, math.inf), (False, 8 * 3600)):
        with Where(results=tmp_path, allow_large=allowed, progress=Silent()).session() as lab:
            assert lab.longest == longest


@pytest.mark.slow
def test_a_run_of_the_evidence_is_tested_with_its_new_model(tiny, lab, tmp_path):
    """The evidence has its grid alone; a test with another normalizer, asked after it, needs its weights."""
    sweep(tiny(), 0, lab)
    archive, run = Archive(tmp_path / "evidence"), lab.store.run(tiny(), 0)
    archive.add({run.key: archiving.run_files(run, weights=False)})
    own = replace(lab, store=Store(tmp_path / "own", archive))
    asked = [own.store.run(tiny(), 0), own.store.run(tiny(), 0, "ssmax")]
    assert [each.finished for each in asked] == [True, False]
    assert complete(asked, own, Where(results=tmp_path / "own", progress=False))
    assert all(each.finished and not each.copied for each in asked)
    assert asked[0].grid().csv() == run.grid().csv()


@pytest.mark.slow
def test_a_model_that_was_killed_before_it_was_drawn_is_drawn(tiny, lab):
    """The models of an analysis, which are trained and not tested."""
    run = lab.store.run(tiny(), 0)
    trained(run, lab)
    curve = run.folder / "learning-curve.png"
    left = curve.with_name(".learning-curve.png.left")
    left.write_bytes(b"")
    complete([run], lab, Where(dry_run=True), tested=False)
    assert not curve.exists()
    complete([run], lab, Where(), tested=False)
    assert curve.exists()
    assert not left.exists()
    curve.write_bytes(b"kept")
    complete([run], lab, Where(), tested=False)
    assert curve.read_bytes() == b"kept"


@pytest.mark.slow
def test_finished_runs_in_a_read_only_folder_are_read(tiny, lab, monkeypatch):
    """There Linux refuses to remove even what does not exist."""
    runs = [lab.store.run(tiny(), seed) for seed in (0, 1)]
    for run in runs:
        sweep(run.spec, run.seed, lab)
    monkeypatch.setattr(Path, "unlink", Mock(side_effect=OSError(errno.EROFS, "Read-only file system")))
    assert launching.complete(runs, lab, Where(progress=False))
