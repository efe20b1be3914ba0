"""What is read is what was written: every damage to a file of a run is named, and none is used."""

import json
import random

import msgspec
import pytest
import torch

from icl_lab import pipeline as sweeping
from icl_lab.base.errors import RunFailed
from icl_lab.base.files import sha256
from icl_lab.runs import manifest, reuse, summary
from icl_lab.runs.manifest import Stamp
from icl_lab.runs.session import Lab
from icl_lab.runs.spec import resolve
from icl_lab.runs.store import Store

READS = {  # a file -> what reads it
    "grid.csv": lambda run: run.grid(),
    "errors.safetensors": lambda run: run.errors(),
    "history.csv": lambda run: run.history(),
    "env.json": lambda run: run.env(),
    "model.safetensors": lambda run: run.read("model.safetensors"),
}


def flipped(data):
    """One bit, somewhere."""
    at = random.Random(len(data)).randrange(len(data))
    return data[:at] + bytes([data[at] ^ 4]) + data[at + 1 :]


def a_digit_changed(data):
    at = max(place for place, byte in enumerate(data) if chr(byte) in "12345678")
    return data[:at] + bytes([data[at] + 1]) + data[at + 1 :]


DAMAGES = {
    "one bit flipped": flipped,
    "one digit changed": a_digit_changed,
    "cut short": lambda data: data[: len(data) // 2],
    "its last line cut": lambda data: b"\n".join(data.split(b"\n")[:-2]) + b"\n",
    "emptied": lambda data: b"",
    "something else": lambda data: b"\xff\xfe not this",
    "longer": lambda data: data + b"\n",
}


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A finished run of a second, trained once for all tests here."""
    small = ["train.steps=20", "train.batch=8", "model.width=16", "model.heads=2", "test.prompts=64"]
    spec = resolve("linear", "softmax", "smoke", [*small, "test.axes.length=5,12"])
    lab = Lab(Store(tmp_path_factory.mktemp("a") / "results"), torch.device("cpu"), lambda text: None)
    sweeping.sweep(spec, 0, lab)
    sweeping.sweep(spec, 0, lab, "ssa")
    return lab, lab.store.run(spec, 0)


@pytest.fixture
def restored(finished):
    """The run; what a test does to its files is undone after it."""
    lab, run = finished
    before = {path: path.read_bytes() for path in run.folder.rglob("*") if path.is_file() and path.name[0] != "."}
    yield lab, run
    for path, data in before.items():
        path.write_bytes(data)


@pytest.mark.slow
def test_measured_files_are_named_with_size_and_checksum(finished):
    _, run = finished
    for place in (run.folder, run.swapped("ssa").place):
        named = manifest.read(place)
        there = {path.name for path in place.iterdir() if path.is_file() and path.name[0] != "."}
        assert set(named) == there - {manifest.NAME}
        for name, stamp in named.items():
            assert stamp == Stamp.of((place / name).read_bytes())


def test_a_stamp_by_hand():
    assert Stamp.of(b"abc") == Stamp(3, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad")


@pytest.mark.parametrize("how", DAMAGES)
@pytest.mark.parametrize("name", READS)
@pytest.mark.slow
def test_no_damage_is_read(restored, name, how):
    _, run = restored
    path = run.folder / name
    path.write_bytes(DAMAGES[how](path.read_bytes()))
    with pytest.raises(RunFailed, match=rf"{name} is damaged or edited \(.*\); delete its folder, or add --retrain"):
        READS[name](run)


def test_no_damage_to_the_test_with_another_rule_is_read(restored):
    _, run = restored
    path = run.swapped("ssa").place / "grid.csv"
    path.write_bytes(flipped(path.read_bytes()))
    with pytest.raises(RunFailed, match=r"grid\.csv is damaged or edited"):
        run.swapped("ssa").measured()
    run.measured()  # the test with the normalizer of the training is none the worse


def test_errors_that_were_removed_are_missed(restored):
    """Without them intervals would be told that leave the prompts out."""
    _, run = restored
    (run.folder / "errors.safetensors").unlink()
    with pytest.raises(RunFailed, match=r"errors\.safetensors is missing; delete its folder, or add --retrain"):
        run.measured()


def test_a_file_from_elsewhere_is_refused(restored):
    _, run = restored
    manifest.note(run.folder, {}, over=["errors.safetensors"])
    with pytest.raises(RunFailed, match=r"errors.safetensors is not among the files that manifest.json names"):
        run.errors()


@pytest.mark.parametrize("how", ["cut short", "emptied", "something else", "longer", "its last line cut"])
def test_a_damaged_manifest_is_named(restored, how):
    _, run = restored
    path = run.folder / manifest.NAME
    path.write_bytes(DAMAGES[how](path.read_bytes()))
    with pytest.raises(RunFailed, match=r"manifest\.json is damaged or edited"):
        run.grid()


@pytest.mark.slow
def test_a_folder_without_a_manifest_gets_one_with_its_next_test(restored):
    lab, run = restored
    before = run.grid().csv()
    (run.folder / manifest.NAME).unlink()
    assert run.grid().csv() == before
    (run.folder / "grid.csv").unlink()
    sweeping.sweep(run.spec, 0, lab)
    assert set(manifest.read(run.folder)) == {
        *("spec.json", "history.csv", "env.json", "model.safetensors"),
        *("measured.json", "errors.safetensors", "positions.csv", "grid.csv"),
    }
    assert run.grid().csv() == before


def test_damage_before_the_manifest_is_not_sealed(restored):
    _, run = restored
    (run.folder / manifest.NAME).unlink()
    weights = run.folder / "model.safetensors"
    weights.write_bytes(flipped(weights.read_bytes()))
    with pytest.raises(RunFailed, match=r"model\.safetensors is damaged or altered"):
        manifest.note(run.folder, {}, over=(), before=["env.json", "model.safetensors"])
    assert not (run.folder / manifest.NAME).exists()


def test_weights_of_another_training_are_refused(restored):
    _, run = restored
    weights = run.folder / "model.safetensors"
    other = flipped(weights.read_bytes())
    manifest.note(run.folder, {"model.safetensors": other}, over=["model.safetensors"])
    weights.write_bytes(other)
    with pytest.raises(RunFailed, match=r"model\.safetensors is damaged or altered"):
        run.read("model.safetensors")


def test_weights_that_are_no_tensors_are_named(restored):
    """Written as such, they are as their checksum says."""
    _, run = restored
    env = json.dumps(run.env() | {"model_sha256": sha256(b"weights")}).encode()
    files = {"env.json": env, "model.safetensors": b"weights"}
    manifest.note(run.folder, files, over=list(files))
    for name, data in files.items():
        (run.folder / name).write_bytes(data)
    with pytest.raises(RunFailed, match=r"model\.safetensors cannot be read"):
        run.answer_bound()
    assert summary.bound_words(run) == "damaged (see icl-lab verify)"


def test_a_damaged_run_lends_its_model_to_no_other(restored, tiny):
    lab, run = restored
    alike = msgspec.structs.replace(run.spec, test=msgspec.structs.replace(run.spec.test, prompts=32))
    weights = run.folder / "model.safetensors"
    weights.write_bytes(flipped(weights.read_bytes()))
    other, said = lab.store.run(alike, 0), []
    with other.locked(said.append):
        other.begin()
        reuse.weights(other, said.append)
    assert not other.trained
    assert "model.safetensors is damaged or edited" in said[0]
