"""Runs in the evidence: read where the user has none, taken in once checked, written out as they were."""

import hashlib
import json
import lzma
import os
import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import msgspec
import numpy as np
import pytest
import torch

from icl_lab import pipeline as sweeping
from icl_lab.analyses.boundary import curves
from icl_lab.base.errors import BadValue, RunFailed
from icl_lab.base.files import present
from icl_lab.base.grid import Grid
from icl_lab.cli import show
from icl_lab.runs.archiving import run_files
from icl_lab.runs.evidence import archive as archiving
from icl_lab.runs.evidence import tables
from icl_lab.runs.evidence.archive import Archive, choose
from icl_lab.runs.evidence.tables import SCHEMAS, errors_file, errors_of
from icl_lab.runs.session import Lab
from icl_lab.runs.spec import resolve
from icl_lab.runs.store import Store
from tests.cases import few

pytestmark = pytest.mark.usefixtures("quick_pictures")

ROOT = Path(__file__).parents[2]
SMALL = ("train.steps=60", "train.batch=8", "model.width=16", "model.heads=2", "test.prompts=64")
SETTINGS = tuple(word for setting in (*SMALL, "test.axes.length=5,12") for word in ("--set", setting))
NAMED = ("--task", "linear", "--attn", "ssa", "--preset", "smoke", *SETTINGS)
SWAPPED = {f"swap-softmax/{name}" for name in ("measured.json", "grid.csv", "errors.safetensors")}


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A results folder with one finished run, trained once for all tests here."""
    store = Store(tmp_path_factory.mktemp("trained"))
    spec = resolve("linear", "ssa", "smoke", [*SMALL, "test.axes.length=5,12"])
    sweeping.sweep(spec, 0, Lab(store, torch.device("cpu"), lambda text: None))
    return store.run(spec, 0)


@pytest.fixture(scope="module")
def tested(trained, tmp_path_factory):
    """A copy of that folder, in which the model was tested with softmax too."""
    root = tmp_path_factory.mktemp("tested") / "results"
    shutil.copytree(trained.folder.parents[4], root)
    sweeping.sweep(trained.spec, 0, Lab(Store(root), torch.device("cpu"), lambda text: None), "softmax")
    return root


@pytest.fixture
def own(trained, tmp_path):
    """The run in a results folder that a test may change."""
    shutil.copytree(trained.folder.parents[4], tmp_path / "own")
    (run,) = Store(tmp_path / "own").runs()
    return run


@pytest.fixture
def swapped(tested, own):
    """Its test with softmax comes beside the run."""
    return lambda: shutil.copytree(tested, own.folder.parents[4], dirs_exist_ok=True)


@pytest.fixture
def evidence(tmp_path, monkeypatch):
    """An empty archive that commands find."""
    folder = tmp_path / "kept" / "evidence"
    folder.mkdir(parents=True)
    monkeypatch.setenv("ICL_LAB_EVIDENCE", str(folder))
    return Archive(folder)


@pytest.fixture(scope="module")
def added(trained, tmp_path_factory):
    """An archive with the run in it, weights included."""
    evidence = Archive(tmp_path_factory.mktemp("added"))
    assert evidence.add({trained.key: run_files(trained, weights=True)}) == [trained.key]
    return evidence.root


@pytest.fixture
def held(added, evidence):
    """The same, which a test may change."""
    shutil.copytree(added, evidence.root, dirs_exist_ok=True)
    return evidence


@pytest.mark.parametrize(
    ("env", "tested", "recorded"),
    [
        ("{}", "", False),
        ('{"made_by": {}}', "", True),
        ('{"parts": []}', "", True),
        ('{"outside": []}', "", True),
        ("{}", "measured.json", True),
        ("{}", "swap-softmax/measured.json", True),
    ],
)
def test_a_run_says_whether_its_code_may_be_known(evidence, env, tested, recorded):
    files = {"spec.json": b"{}", "env.json": env.encode(), **({tested: b"{}"} if tested else {})}
    evidence.add({"linear/ssa/smoke-12345678/seed-0": files, "linear/ssa/smoke-87654321/seed-0": {"env.json": b"{}"}})
    assert Store(evidence.root / "none", evidence).recorded(["12345678", "00000000"]) is recorded


def test_a_run_that_has_begun_may_say_what_code_made_it(own):
    store = Store(own.folder.parents[4])
    assert store.recorded([own.spec.hash])
    assert not store.recorded(["00000000"])


def everything(folder):
    return {path: path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def altered(run, **fields):
    """Let the record of a run say something else, as by hand."""
    env = json.dumps(run.env() | fields)
    (run.folder / "manifest.json").unlink()
    (run.folder / "env.json").write_text(env)


@pytest.mark.slow
def test_an_added_run_is_read_as_it_was(own, held, tmp_path):
    store = Store(tmp_path / "none", held)
    other = store.run(own.spec, 0)
    assert (other.copied, other.finished, other.trained) == (True, True, True)
    assert other.grid().frame.equals(own.grid().frame)
    assert other.env() == own.env()
    assert other.history() == own.history()
    assert other.errors().axes == own.errors().axes
    assert not (tmp_path / "none").exists()
    assert store.seeds(own.spec) == [0]
    assert [run.key for run in store.runs()] == [own.key]
    assert store.at(other.folder) == other
    assert Store(tmp_path / "none").run(own.spec, 0).copy is None


@pytest.mark.slow
def test_a_model_is_loaded_from_the_evidence_without_writing(own, held, lab, monkeypatch):
    monkeypatch.setattr(sweeping, "train", None)
    other = replace(lab, store=Store(lab.store.root, held))
    model = sweeping.load_or_train(other.store.run(own.spec, 0), other)
    wanted = sweeping.load_or_train(own, lab)
    assert all(a.equal(b) for a, b in zip(model.state_dict().values(), wanted.state_dict().values(), strict=True))
    assert not lab.store.root.exists()


@pytest.mark.slow
def test_missing_weights_are_trained_in_the_users_folder(own, evidence, run, lab):
    run("evidence", "add", str(own.folder))
    before = everything(evidence.root)
    other = replace(lab, store=Store(lab.store.root, evidence))
    there = other.store.run(own.spec, 0)
    assert there.finished
    assert not there.trained
    sweeping.load_or_train(there, other)
    assert there.trained
    assert not there.copied  # the run is the user's own from here on
    assert (there.folder / "model.safetensors").exists()
    assert everything(evidence.root) == before


@pytest.mark.slow
def test_weights_serve_another_test_of_the_same_training(own, held, lab, monkeypatch, tiny):
    monkeypatch.setattr(sweeping, "train", None)
    other = replace(lab, store=Store(lab.store.root, held))
    spec = tiny("linear", "ssa", "test.axes.length=6")
    assert spec.hash != own.spec.hash
    assert sweeping.sweep(spec, 0, other).values("length") == [6]
    swapped = sweeping.sweep(own.spec, 0, other, "softmax")
    assert "ssa->softmax" in swapped.values("attn")
    assert (lab.store.run(own.spec, 0).folder / "spec.json").exists()


@pytest.mark.slow
def test_weights_of_another_seed_are_not_taken(own, held, lab):
    """The evidence holds the weights of seed 0 alone: seed 1 is trained."""
    other = replace(lab, store=Store(lab.store.root, held))
    sweeping.load_or_train(other.store.run(own.spec, 1), other)
    assert other.store.run(own.spec, 1).env()["model_sha256"] != own.env()["model_sha256"]


@pytest.mark.parametrize("same", [True, False])
@pytest.mark.exhaustive
def test_measurements_of_the_same_model_are_taken_over(own, evidence, run, lab, tiny, same):
    wider = tiny("linear", "ssa", "test.axes.length=6")
    at_home = replace(lab, store=Store(own.folder.parents[4]))
    for swap in ("", "softmax"):
        sweeping.sweep(wider, 0, at_home, swap)
    other = at_home.store.run(wider, 0)
    if not same:  # measured with another model than the one that is taken over
        altered(other, model_sha256="0" * 64)
        (other.folder / "model.safetensors").unlink()
    assert run("evidence", "add", str(own.folder), "--weights")[0] == 0
    assert run("evidence", "add", str(other.folder))[0] == 0
    there = Store(lab.store.root, evidence).run(wider, 0)
    assert there.finished
    assert not there.trained
    sweeping.load_or_train(there, replace(lab, store=Store(lab.store.root, evidence)))
    assert not there.copied  # the model is in the user's folder now
    assert [there.finished, there.swapped("softmax").finished] == [same, same]
    if same:
        assert there.grid().frame.equals(other.grid().frame)
        assert there.swapped("softmax").errors().axes == ["sigma_x", "sigma_f", "length"]
        assert there.env() == other.env()


@pytest.mark.slow
def test_sweep_trains_though_the_evidence_has_the_run(held, run, tmp_path):
    out, err = run.ok("sweep", *NAMED)
    assert "evidence" not in err
    assert "steps, about" in err
    assert list((tmp_path / "results").glob("runs/*/*/*/seed-0/grid.csv"))
    assert "equal in all" in out.splitlines()[-1]
    out, err = run.ok("sweep", *NAMED, "--evidence", results=tmp_path / "other")
    assert "trains nothing: 1 model (1 from evidence); --no-evidence trains" in err
    assert not (tmp_path / "other").exists()


@pytest.mark.slow
def test_sweep_says_how_far_a_repeated_run_is(own, evidence, run, tmp_path):
    grid = own.grid()
    first = grid.frame["attn"].eq("ssa") & grid.frame["metric"].eq("mse-code")
    grid.frame.loc[first.idxmax(), "value"] *= 2
    files = {name: (own.folder / name).read_bytes() for name in ("spec.json", "env.json")}
    evidence.add({own.key: {**files, "grid.csv": grid.csv().encode()}})
    out, _ = run.ok("sweep", *NAMED)
    assert "farthest cell 50.0% apart (sigma_x 1, sigma_f 1, length 5)" in out
    assert "beside the repository's run of the same specification and seed:" in out
    assert out.count("rounds differently") == 1


@pytest.mark.slow
def test_compare_reads_the_evidence_and_says_so(own, held, run, tmp_path):
    words = ("compare", *NAMED, "--attn", "softmax")
    assert "trains 1 of 2 models, about 1 s (1 from evidence)" in run.ok(*words)[1]

    def finished(name):
        return sorted(path.parts[-5:-3] for path in (tmp_path / name).glob("runs/*/*/*/seed-0/grid.csv"))

    assert finished("results") == [("linear", "softmax")] * 2  # it alone was trained, and tested rescaled too
    assert "evidence" not in run.ok(*words, "--no-evidence", results=tmp_path / "other")[1]
    assert len(finished("other")) == 3
    code, _, err = run(*words, "--retrain", results=tmp_path / "third")
    assert "--retrain: 2 runs to be done anew, about " in err
    assert "; 1 of the repository's evidence are left out." in err
    assert len(finished("third")) == 3


@pytest.mark.slow
@pytest.mark.parametrize("question", ["boundary", "deviant"])  # one reads the test too, one the model alone
def test_an_analysis_says_once_that_it_reads_the_evidence(question, held, run, monkeypatch):
    monkeypatch.setattr(curves, "SIDE", 40)  # as few points as the detector takes
    _, err = run.ok(question, *NAMED)
    assert err.count("1 from evidence") == 1


def test_unpack_writes_the_files_that_were_added(own, held, run, tmp_path):
    out, _ = run.ok("evidence", "unpack", own.spec.hash, "--to", str(tmp_path / "out"))
    (again,) = Store(tmp_path / "out").runs()
    for name in ("spec.json", "env.json", "history.csv", "grid.csv", "model.safetensors"):
        assert (again.folder / name).read_bytes() == (own.folder / name).read_bytes(), name
    out, _ = run.ok("evidence", "unpack", "linear", "--to", str(tmp_path / "out"))
    assert out.split()[1] == "0"
    (again.folder / "env.json").write_text("{}")
    assert run("evidence", "unpack", "--to", str(tmp_path / "out"))[0] == 1
    assert (again.folder / "env.json").read_text() == "{}"
    assert run("evidence", "unpack", "--to", str(tmp_path / "out"), "--force")[0] == 0
    assert (again.folder / "env.json").read_bytes() == (own.folder / "env.json").read_bytes()
    assert "Did you mean 'linear'" in run.refused("evidence", "unpack", "lniear")[1]


@pytest.mark.slow
def test_adding_twice_changes_nothing(own, held, run):
    before = everything(held.root)
    out, _ = run.ok("evidence", "add", str(own.folder), "--dry-run")
    assert out == f"1 runs are whole; 0 of them would be new in {held.root}, the others are there.\n"
    out, _ = run.ok("evidence", "add", str(own.folder))
    assert out.split()[0] == "0"
    assert everything(held.root) == before


@pytest.mark.exhaustive
def test_another_run_of_the_same_seed_needs_replace(own, held, run):
    altered(own, device="another cpu")
    before = everything(held.root)
    for words in ((), ("--dry-run",)):
        _, err = run.failed("evidence", "add", str(own.folder), *words)
        assert f"{own.key} is in the evidence already with another env.json" in err
        assert "--replace" in err
        assert everything(held.root) == before
    out, _ = run.ok("evidence", "add", str(own.folder), "--replace", "--dry-run")
    assert out.split(";")[1].split()[:2] == ["1", "of"]
    assert everything(held.root) == before
    assert run("evidence", "add", str(own.folder), "--replace")[0] == 0
    kept = held.run(own.key)
    assert b"another cpu" in kept.find("env.json")
    assert "model.safetensors" not in kept  # the old model is not that of the new run


def with_test(evidence, own, before):
    """What is held of a run now: what was there as it was, and its test with softmax."""
    after = evidence.run(own.key).files()
    assert set(after) == {*before, *SWAPPED}
    assert {name: after[name] for name in before} == before
    return after


@pytest.mark.parametrize("named", few(1, [True, False]))
@pytest.mark.slow
def test_a_test_of_the_very_model_that_is_held_is_added(own, evidence, run, swapped, named):
    folder = own.folder.parents[4]
    assert run("evidence", "add", str(own.folder))[0] == 0
    before = evidence.run(own.key).files()
    swapped()
    (own.folder / "grid.csv").unlink()  # as where the model was trained again for this test alone
    (own.folder / "errors.safetensors").unlink()
    where = (str(own.folder),) if named else ("--results", str(folder))
    for words in (("--dry-run",), ()):
        assert "1 of" in run.ok("evidence", "add", *where, *words)[0]
    after = with_test(evidence, own, before)
    assert run("evidence", "add", str(own.folder), "--replace")[0] == 0
    assert evidence.run(own.key).files() == after


@pytest.mark.slow
def test_an_own_grid_does_not_keep_a_test_out(own, evidence, run, swapped):
    """A run of the evidence that was trained again has another ``env.json``, and what is held stays."""
    assert run("evidence", "add", str(own.folder))[0] == 0
    before = evidence.run(own.key).files()
    swapped()
    altered(own, command="another one")
    said = f"1 of 1 runs are new in {evidence.root}; the others were there.\n"
    assert run("evidence", "add", str(own.folder))[:2] == (0, said)
    with_test(evidence, own, before)
    assert run("evidence", "add", str(own.folder), "--replace")[0] == 0
    assert b"another one" in evidence.run(own.key).find("env.json")


@pytest.mark.slow
def test_a_test_of_another_model_is_not_added(own, held, run, swapped):
    folder = own.folder.parents[4]
    swapped()
    (own.folder / "grid.csv").unlink()
    altered(own, model_sha256="0" * 64)
    before = everything(held.root)
    assert "it has no grid.csv" in run.failed("evidence", "add", str(own.folder))[1]
    out, _ = run.ok("evidence", "add", "--results", str(folder))
    assert out.split()[0] == "0"
    (own.folder / "env.json").write_text("{")
    assert "env.json cannot be read" in run.failed("evidence", "add", str(own.folder))[1]
    assert everything(held.root) == before


@pytest.mark.exhaustive
def test_damaged_runs_are_not_added(own, evidence, run):
    from safetensors.torch import load_file, save_file

    spoilt = {
        "grid.csv": own.grid().csv().replace("mse-code,", "mse-code,9", 1).encode(),
        "spec.json": (own.folder / "spec.json").read_bytes().replace(b'"heads": 2', b'"heads": 4'),
        "env.json": b"[",
        "model.safetensors": (own.folder / "model.safetensors").read_bytes()[:-1],
    }
    tensors = load_file(own.folder / "errors.safetensors")
    tensors["errors"][0, 0] += 1
    save_file(tensors, own.folder.parent / "errors.safetensors")
    spoilt["errors.safetensors"] = (own.folder.parent / "errors.safetensors").read_bytes()
    for name, data in spoilt.items():
        whole = (own.folder / name).read_bytes()
        (own.folder / name).write_bytes(data)
        _, err = run.failed("evidence", "add", str(own.folder), "--weights")
        assert name in err or "grid.csv" in err
        assert len(err.splitlines()) == 1
        (own.folder / name).write_bytes(whole)
    assert list(evidence.runs()) == []


def rewritten(pattern, change):
    """A damage of a file of a part, or of the index beside it."""

    def spoil(folder):
        (path,) = folder.parent.glob(pattern)
        path.write_bytes(change(path.read_bytes()))
        return path

    return spoil


def removed(pattern):
    def spoil(folder):
        (path,) = folder.parent.glob(pattern)
        path.unlink()
        return path

    return spoil


SPOILT = {  # each returns what the complaint names
    "truncated": rewritten("*/cells.parquet", lambda data: data[:-9]),
    "changed": rewritten("*/runs.parquet", lambda data: data[:40] + bytes([data[40] ^ 1]) + data[41:]),
    "other weights": rewritten("*/**/*.safetensors", lambda data: data[:-1] + b"!"),
    "other index": rewritten("index.json", lambda data: data.replace(b'"0"', b'"0-1"')),
    "lost table": removed("*/history.parquet"),
    "lost index": removed("index.json"),
    "renamed": lambda folder: folder.rename(folder.with_name("0009-abcdef01")) and folder,
}


@pytest.mark.parametrize("spoil", SPOILT.values(), ids=SPOILT)
@pytest.mark.slow
def test_a_damaged_part_is_named_and_refused(own, held, run, spoil, tmp_path):
    (part,) = held.parts
    named = spoil(held.root / part.name)
    _, err = run.failed("evidence", "verify")
    assert str(named) in err
    assert "Traceback" not in err
    with pytest.raises(RunFailed, match=re.escape(named.name)):
        Store(tmp_path / "none", held).run(own.spec, 0).files.files()


@pytest.mark.parametrize("said", [{"content": "0" * 64}, {"runs": {"linear/ssa/smoke-01234567": "0"}}])
@pytest.mark.slow
def test_an_index_that_says_other_runs_is_named(held, said):
    (part,) = held.parts
    archiving._write_index(held.root, [msgspec.structs.replace(part, **said)])
    _, _, damages = Archive(held.root).verify()
    assert damages[-1] == f"{held.root / part.name} is damaged: it holds other runs than index.json says."


@pytest.mark.slow
def test_a_part_that_no_index_names_is_not_written_over(own, held, run):
    (part,), before = held.parts, everything(held.root)
    archiving._write_index(held.root, [])
    _, err = run.failed("evidence", "add", "--results", str(own.folder.parents[4]), "--weights")
    assert err.count("\n") == 1
    assert f"{held.root / part.name} is there already, and index.json does not name it" in err
    archiving._write_index(held.root, [part])
    assert everything(held.root) == before


@pytest.mark.slow
def test_evidence_that_may_not_be_written_is_said(own, held, run, monkeypatch):
    before = everything(held.root)
    monkeypatch.setattr("os.access", lambda path, how, **_: how != os.W_OK)
    out, err = run.failed("evidence", "add", "--results", str(own.folder.parents[4]), "--replace")
    assert not out
    assert err == f"icl-lab: {held.root} cannot be written.\n"
    assert everything(held.root) == before


@pytest.mark.slow
def test_a_foreign_part_is_named_and_not_read(own, held, run):
    (part,) = held.parts
    shutil.copytree(held.root / part.name, held.root / "another")
    shutil.copy(held.root / part.name / "cells.parquet", held.root / part.name / "more.parquet")
    _, err = run.failed("evidence", "verify")
    assert str(held.root / "another") in err
    assert "more.parquet" in err
    assert [kept.key for kept in held.runs()] == [own.key]


@pytest.mark.parametrize("reason", [KeyboardInterrupt, OSError])
@pytest.mark.parametrize("at", ["publish", "_write_index"])
def test_an_interrupted_addition_leaves_nothing_behind(own, evidence, run, monkeypatch, reason, at):
    files = {own.key: run_files(own, weights=False)}
    before = everything(evidence.root)

    def stop(*args):
        raise reason

    with monkeypatch.context() as patch:
        patch.setattr(archiving, at, stop)
        with pytest.raises((KeyboardInterrupt, RunFailed)):
            evidence.add(files)
    assert {path: data for path, data in everything(evidence.root).items() if path.name != ".lock"} == before
    assert evidence.add(files) == [own.key]


@pytest.mark.slow
def test_what_a_killed_addition_has_left_is_removed_by_the_next(own, held, run):
    (part,) = held.parts
    files = held.run(own.key).files()
    for left in (".adding-abc", "0002-deadbeef"):
        shutil.copytree(held.root / part.name, held.root / left)
        (held.root / left / ".adding").touch()
    assert run("evidence", "verify")[0] == 1
    other = own.key.replace("seed-0", "seed-7")
    assert held.add({other: files}) == [other]
    assert run("evidence", "verify")[0] == 0
    assert len(held.parts) == 2
    assert not (held.root / "0002-deadbeef").exists()


@pytest.mark.parametrize("name", ["index.json", "0002"])
def test_files_of_a_killed_addition_are_removed_by_the_next(own, held, run, name):
    """Those that are written beside their place too, wherever the process was killed."""
    (held.root / f".{name}-left").write_bytes(b"{")
    (held.root / ".adding-left").mkdir()
    (held.root / ".adding-left" / ".runs.parquet-left").write_bytes(b"x")
    files = held.run(own.key).files()
    held.add({own.key.replace("seed-0", "seed-7"): files})
    rest = [path.name for path in held.root.rglob("*left")]
    assert rest == ([] if name == "index.json" else [f".{name}-left"])


@pytest.mark.slow
def test_an_added_run_changes_no_part_that_is_there(own, held):
    (part,) = held.parts
    before = everything(held.root / part.name)
    held.add({own.key.replace("seed-0", f"seed-{seed}"): held.run(own.key).files() for seed in (3, 4, 9)})
    assert everything(held.root / part.name) == before
    assert held.parts[1].runs == {own.key.rpartition("/")[0]: "3-4,9"}
    assert held.seeds(own.key.rpartition("/")[0]) == [0, 3, 4, 9]


def test_of_several_runs_of_which_one_conflicts_none_is_added(own, held):
    files = held.run(own.key).files()
    other = own.key.replace("seed-0", "seed-1")
    before = everything(held.root)
    with pytest.raises(RunFailed, match=rf"{re.escape(own.key)} is in the evidence already with another env.json"):
        held.add({other: files, own.key: files | {"env.json": b"{}"}})
    assert everything(held.root) == before


def test_errors_are_kept_where_a_claim_reads_them(own, evidence):
    cell = {"sigma_x": 1.0, "sigma_f": 2.0, "length": 12.0}
    evidence.add({own.key: run_files(own, weights=False, cells=lambda run: [cell])})
    there = Store(own.folder.parents[5] / "none", evidence).run(own.spec, 0)
    kept = there.errors()
    assert kept.at(cell).equal(own.errors().at(cell))
    assert len(kept.cells) == 1
    there.measured()
    assert not kept.keeps([cell, cell | {"sigma_f": 1.0}])
    with pytest.raises(KeyError, match="single prompts at sigma_x 1, sigma_f 1, length 12 are not kept"):
        kept.at(cell | {"sigma_f": 1.0})


@pytest.mark.slow
def test_the_bound_of_a_run_is_kept_without_its_weights(own, evidence, run, tmp_path):
    assert run("evidence", "add", str(own.folder))[0] == 0
    there = Store(tmp_path / "none", evidence).run(own.spec, 0)
    assert not there.trained
    assert [float(value) for value in there.answer_bound()] == [float(value) for value in own.answer_bound()]


@pytest.mark.slow
def test_a_large_read_out_is_not_kept(own, evidence, run, tmp_path, monkeypatch):
    count = sum(values.numel() for values in own.last_parameters().values())
    for most, kept in ((count - 1, False), (count, True)):
        monkeypatch.setattr("icl_lab.runs.archiving.READ_OUT_NUMBERS", most)
        assert run("evidence", "add", str(own.folder))[0] == 0
        assert (Store(tmp_path / "none", evidence).run(own.spec, 0).answer_bound() is not None) is kept


def test_verify_and_list_name_what_is_there(own, held, run):
    assert "1 runs, 8 files, every checksum is right" in run.ok("evidence", "verify")[0]
    (line,) = run.ok("evidence", "list", "ssa")[0].splitlines()
    assert own.key in line
    assert "weights" in line
    assert run("evidence", "list", "softmax")[0] == 2


def test_evidence_is_chosen_by_task_rule_or_hash(own, held):
    for word in ("", "linear", "ssa", own.spec.hash, f"smoke-{own.spec.hash}", own.key):
        assert [kept.key for kept in choose(held.runs(), word)] == [own.key], word
    assert choose(held.runs(), "lin") == []


def test_the_variable_names_the_evidence_or_none(tmp_path, monkeypatch):
    monkeypatch.setenv("ICL_LAB_EVIDENCE", str(tmp_path / "none"))
    with pytest.raises(BadValue, match="which is no folder"):
        Archive.find()
    monkeypatch.setenv("ICL_LAB_EVIDENCE", "")
    assert Archive.find() is None
    monkeypatch.delenv("ICL_LAB_EVIDENCE")
    (tmp_path / "results" / "evidence").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    assert Archive.find() == Archive(Path("results/evidence"))


def test_a_study_is_found_among_the_repositorys(evidence, tmp_path):
    studies = evidence.root.parent
    (studies / "experiments" / "one-lite").mkdir(parents=True)
    store = Store(tmp_path / "mine", evidence)
    assert store.study(tmp_path / "mine" / "experiments" / "one-lite") == studies / "experiments" / "one-lite"
    assert store.study(tmp_path / "mine" / "other") == tmp_path / "mine" / "other"
    (tmp_path / "mine" / "experiments" / "one-lite").mkdir(parents=True)
    assert store.study(tmp_path / "mine" / "experiments" / "one-lite").is_relative_to(tmp_path / "mine")


# The repository's own evidence, against checksums that were taken of the files before they were packed.

ORIGINALS = [line.split(" ", 2) for line in (Path(__file__).parent / "originals.txt").read_text().splitlines()]
RUNS = [row for row in ORIGINALS if row[2].startswith("runs/")]


@pytest.fixture(scope="module")
def repository():
    return Archive(ROOT / "results" / "evidence")


@pytest.mark.exhaustive
def test_every_original_run_file_comes_back(repository, monkeypatch, capsys, run, tmp_path):
    monkeypatch.setenv("ICL_LAB_EVIDENCE", str(repository.root))
    assert run("evidence", "unpack", "--to", str(tmp_path))[0] == 0
    assert len(RUNS) == 616
    for digest, size, name in RUNS:
        if name.endswith((".csv", ".json")):  # of errors and weights some are kept, of pictures none
            data = (tmp_path / name).read_bytes()
            assert (len(data), hashlib.sha256(data).hexdigest()) == (int(size), digest), name


def test_every_original_table_of_a_study_is_kept():
    for digest, size, name in ORIGINALS:
        if not name.startswith("runs/"):
            path = ROOT / "results" / name
            packed = path.with_name(f"{path.name}.xz")
            data = path.read_bytes() if path.exists() else lzma.decompress(packed.read_bytes())
            assert (len(data), hashlib.sha256(data).hexdigest()) == (int(size), digest), name


@pytest.mark.exhaustive
def test_the_repositorys_evidence_is_whole(repository):
    runs, files, damages = repository.verify()
    assert damages == []
    assert runs >= 125
    assert files >= len(RUNS)


@pytest.mark.slow
@pytest.mark.parametrize("step", [29, pytest.param(1, marks=pytest.mark.exhaustive)])
def test_the_repositorys_runs_pass_every_check(repository, tmp_path, step):
    """Each was checked when it was added: every 29th finds a check that has changed since."""
    for run in list(Store(tmp_path, repository).runs())[::step]:
        run.measured()


@pytest.mark.slow
def test_runs_come_by_the_number_of_their_seeds(own, repository):
    for seed in (10, 2):
        other = Store(own.folder.parents[4]).run(own.spec, seed)
        shutil.copytree(own.folder, other.folder)
    assert [run.seed for run in Store(own.folder.parents[4]).runs()] == [0, 2, 10]
    held = [(run.folder.parent, run.seed) for run in Store(own.folder, repository).runs(preset="lite2")]
    assert held == sorted(held)
    assert max(seed for _, seed in held) > 10


def git(*words):
    """What git says of the repository; skip the test where there is none."""
    done = subprocess.run(["git", "-C", str(ROOT), *words], capture_output=True, text=True)
    return done.stdout if done.returncode in (0, 1) else pytest.skip("not a checkout")


def tracked(*words):
    return [path for name in git("ls-files", "-z", *words).split("\0") if name and (path := ROOT / name).exists()]


def test_tracked_results_stay_small():
    assert sum(path.stat().st_size for path in tracked("results")) < 30_000_000
    assert [path for path in tracked() if path.stat().st_size > 4_000_000] == []


@pytest.mark.slow
def test_parts_have_not_changed_since_they_were_committed(repository):
    """A part that is written anew stands in history twice."""
    for part in repository.parts:
        files = [f"results/evidence/{part.name}/{name}" for name in part.files]
        assert git("log", "--format=%h", "--diff-filter=M", "--", *files) == "", part.name


def test_results_of_users_show_in_no_status():
    names = ["results/runs/a/b/lite-12345678/seed-0/grid.csv", "results/a-lite-abc/report.html", "results/x.csv"]
    listed = git("check-ignore", "--no-index", *names, "results/evidence/0022-01234567/cells.parquet")
    assert listed.split() == names


def test_a_compressed_table_is_read_like_a_plain_one():
    path = present(ROOT / "results" / "boundary-linear-lite" / "boundary.csv")
    assert path.suffix == ".xz"
    assert "slope" in Grid.read(path).axes
    assert present(path.with_name("nothing.csv")) is None


@pytest.mark.slow
def test_a_changed_index_is_read_again(own, held):
    assert held.run(own.key) is not None
    (held.root / "index.json").write_bytes(b"{}")
    with pytest.raises(RunFailed, match="damaged"):
        held.run(own.key)


def test_verify_reads_the_disk_and_not_what_is_in_memory(own, held):
    held.run(own.key).files()
    (held.run(own.key).path / "history.parquet").write_bytes(b"")
    assert "history.parquet is damaged" in held.verify()[2][0]


def test_every_table_that_a_stored_study_names_is_stored_with_it():
    """Pages and pictures are drawn again from tables; a table that stayed on the machine where it was made is lost."""
    listed = git("ls-files", "results").splitlines()
    assert listed
    for record in (name for name in listed if name.endswith("/study.json")):
        for name in json.loads((ROOT / record).read_text())["files"]:
            table = record.replace("study.json", name)
            assert not name.endswith((".csv", ".md")) or {table, f"{table}.xz"} & set(listed), table


def test_why_repeats_differ_is_said_once(monkeypatch, evidence, capsys):
    told = iter([("ssa, seed 0: 5 % apart.", False), ("ssa, seed 1: equal in all 6 cells.", True), None] * 2)
    monkeypatch.setattr(show.summary, "repeated", lambda run, other: next(told))
    own = [SimpleNamespace(copied=False, finished=True, key=str(seed)) for seed in range(3)]
    show.tell_repeat([*own[:2], SimpleNamespace(copied=True), own[2]])
    assert capsys.readouterr().out.splitlines() == [
        *("", "beside the repository's runs of the same specification and seed:"),
        *("ssa, seed 0: 5 % apart.", "ssa, seed 1: equal in all 6 cells.", show.summary.REPEATS_DIFFER),
    ]
    told = iter([None])
    show.tell_repeat(own[:1])
    assert capsys.readouterr().out == ""


# Tables of a part: columns of axes, files that fit none, the spelling of a swap.

KEY = "digits/ssa/nano-00000000/seed-0"
HEAD = "task,attn,preset,spec,seed,{},metric,value,stderr,count\n"


def grid(axes, *rows):
    lines = "".join(f"digits,{name},nano,00000000,0,{row},error,{value},0.25,4\n" for name, row, value in rows)
    return (HEAD.format(axes) + lines).encode()


def part_of(archive, table):
    from pyarrow import parquet

    return parquet.read_table(archive.root / archive.parts[-1].name / f"{table}.parquet")


def test_each_axis_of_a_run_has_a_column(evidence):
    """Two tasks in one part, of which one has axes of its own; an axis that the tables know is not there twice."""
    rows = [("ssa", "0.5,2,8", 0.125), ("reference:zero", "0.5,2,8", 1.0)]
    labels = {"contrast": np.array([0.5]), "moved": np.array([2.0]), "length": np.array([8.0])}
    errors = errors_file(np.array([[0.0, 1.0, 0.0, 0.0]], dtype=np.float32), labels)
    files = {"grid.csv": grid("contrast,moved,length", *rows), "errors.safetensors": errors}
    other = {"grid.csv": grid("sigma_x,length", ("ssa", "1,8", 0.5))}
    second = KEY.replace("seed-0", "seed-1")
    evidence.add({KEY: files, second: other})
    cells = part_of(evidence, "cells")
    assert cells.column_names == [*SCHEMAS["cells"].names, "contrast", "moved"]
    assert cells.select(["key", "contrast", "moved", "sigma_x", "length", "value"]).to_pylist() == [
        {"key": KEY, "contrast": 0.5, "moved": 2.0, "sigma_x": None, "length": 8, "value": 0.125},
        {"key": second, "contrast": None, "moved": None, "sigma_x": 1.0, "length": 8, "value": 0.5},
    ]
    cell = {"contrast": 0.5, "moved": 2.0, "length": 8}
    for table in ("references", "errors"):
        assert part_of(evidence, table).select([*cell]).to_pylist() == [cell]
    again = Archive(evidence.root)
    assert again.run(KEY).files() == files
    assert again.run(KEY).misfits == frozenset()
    assert again.verify() == (2, 3, [])
    evidence.add({KEY.replace("seed-0", "seed-2"): other})  # a part without them is as it always was
    assert part_of(evidence, "cells").schema.equals(SCHEMAS["cells"])


@pytest.mark.parametrize("axis", ["value", "key", "row", "errors", "learned", "part", "Contrast", "a b", "2x", "é", ""])
def test_an_axis_of_no_plain_name_is_kept_as_it_is(evidence, axis):
    files = {"grid.csv": grid(f"contrast,{axis}", ("ssa", "0.5,2", 0.125))}
    evidence.add({KEY: files})
    assert evidence.run(KEY).misfits == {"grid.csv"}
    assert evidence.run(KEY).files() == files
    assert part_of(evidence, "cells").schema.equals(SCHEMAS["cells"])  # of its other axis neither


SPELLED = {
    "grid.csv": [(b"0.125", b"0.1250"), (b"\n", b"\r\n"), (b"0.5,2", b"0.50,2")],
    "history.csv": [(b"0.75", b"7.5e-1"), (b"\n", b"\r\n")],
}


@pytest.mark.parametrize(("name", "old", "new"), [(name, *pair) for name, pairs in SPELLED.items() for pair in pairs])
def test_a_file_that_would_come_back_otherwise_is_kept_as_it_is(evidence, name, old, new):
    """The other file, and the same file of another run, stand in the tables."""
    files = {"grid.csv": grid("contrast,length", ("ssa", "0.5,2", 0.125)), "history.csv": b"step,loss\n50,0.75\n"}
    assert old in files[name]
    second = KEY.replace("seed-0", "seed-1")
    spelled = files | {name: files[name].replace(old, new)}
    evidence.add({KEY: spelled, second: files})
    assert [evidence.run(key).files() for key in (KEY, second)] == [spelled, files]
    assert [evidence.run(key).misfits for key in (KEY, second)] == [{name}, frozenset()]
    assert part_of(evidence, "cells").num_rows == 2 - (name == "grid.csv")
    assert part_of(evidence, "history").num_rows == 2 - (name == "history.csv")
    assert evidence.verify()[2] == []


def test_a_file_that_fits_a_table_by_now_is_written_again(evidence, monkeypatch):
    """As the grids of digits, which stood in no table: by a new part, of the same files; then no more."""
    files = {"grid.csv": grid("contrast,length", ("ssa", "0.5,2", 0.125)), "history.csv": b"\xff"}

    def refuse(axes):
        if "contrast" in axes:
            raise ValueError("no further axes")

    with monkeypatch.context() as patch:
        patch.setattr(tables, "_check_axes", refuse)
        evidence.add({KEY: files})
    assert evidence.run(KEY).misfits == {"grid.csv", "history.csv"}
    assert evidence.changed_by({KEY: files}, replace=True) == []  # of a run that counts no more nothing is kept
    assert evidence.add({KEY: {"history.csv": b"\xff"}}) == [KEY]
    assert len(evidence.parts) == 2
    assert evidence.parts[0].content == evidence.parts[1].content
    assert evidence.run(KEY).files() == files
    assert evidence.run(KEY).misfits == {"history.csv"}
    assert part_of(evidence, "cells")["contrast"].to_pylist() == [0.5]
    assert evidence.add({KEY: files}) == []


def test_single_prompts_that_are_held_stay_where_fewer_are_given(evidence):
    """A run that comes with another test is written again, and what a claim read once is in it."""
    labels, values = {"length": np.array([2.0, 8.0])}, np.eye(2, 4, dtype=np.float32)
    files = {"grid.csv": grid("length", ("ssa", "2", 0.25)), "errors.safetensors": errors_file(values, labels)}
    evidence.add({KEY: files})
    fewer = errors_file(values[:1], {"length": labels["length"][:1]})
    evidence.add({KEY: {"errors.safetensors": fewer, "history.csv": b"step,loss\n50,0.5\n"}})
    assert set(evidence.run(KEY).files()) == {*files, "history.csv"}
    assert errors_of(evidence.run(KEY).find("errors.safetensors"))[0].tolist() == values.tolist()


@pytest.mark.parametrize("order", [1, -1])
def test_a_swap_is_spelled_alike_in_all_tables(evidence, order):
    """As a choice, whatever comes first; the folder is another spelling."""
    folder = "swap-ssmax-s=swap"
    errors = errors_file(np.zeros((1, 4), dtype=np.float32), {"length": np.array([2.0])})
    files = {f"{folder}/errors.safetensors": errors}
    files[f"{folder}/grid.csv"] = grid("length", ("ssa->ssmax:s=swap", "2", 0.25), ("reference:zero", "2", 1.0))
    evidence.add({KEY: dict([*files.items()][::order])})
    row = {"key": KEY, "swap": "ssmax:s=swap", "length": 2}
    for table in ("cells", "errors"):
        assert part_of(evidence, table).select([*row]).to_pylist() == [row]
    assert evidence.run(KEY).files() == files


@pytest.mark.slow
def test_files_that_fit_no_table_are_named(own, evidence, run):
    data = (own.folder / "history.csv").read_bytes()
    (own.folder / "history.csv").write_bytes(data.replace(b"\n", b"\r\n"))
    (own.folder / "manifest.json").unlink()
    said = f"1 have files that fit no table and are kept as they are: {own.key} (history.csv)."
    for words in (("--dry-run",), ()):
        out, _ = run.ok("evidence", "add", str(own.folder), *words)
        assert out.splitlines()[-1] == said
    none = f"0 of 1 runs are new in {evidence.root}; the others were there.\n"
    assert run("evidence", "add", str(own.folder))[1] == none
