"""``verify`` finds every damage in a results folder, and ``repair`` makes again what is damaged and no more."""

import random

import pytest

from icl_lab.runs.verify import everything, prepare_repair
from tests.runs.test_manifest import DAMAGES, finished, restored  # noqa: F401

pytestmark = pytest.mark.usefixtures("quick_pictures")


def damaged(folder):
    return [finding for finding in everything(folder) if finding.state == "damaged"]


@pytest.mark.slow
def test_what_was_written_is_whole(restored):  # noqa: F811
    lab, _ = restored
    states = [(finding.kind, finding.state) for finding in everything(lab.store.root)]
    assert states == [("run", "whole"), ("test with another normalizer", "whole")]


@pytest.mark.parametrize("how", DAMAGES)
@pytest.mark.slow
def test_every_damage_to_any_file_is_found(restored, how):  # noqa: F811
    """Ten times each, in places drawn anew; none is silently accepted."""
    lab, run = restored
    rng = random.Random(how)
    files = [path for path in run.folder.rglob("*") if path.is_file() and path.name[0] != "."]
    for _ in range(10):
        path = rng.choice(files)
        whole = path.read_bytes()
        path.write_bytes(DAMAGES[how](whole))
        assert damaged(lab.store.root), path.name
        path.write_bytes(whole)
    assert not damaged(lab.store.root)


def test_one_run_can_be_asked_for_alone(restored):  # noqa: F811
    lab, run = restored
    (run.folder / "grid.csv").write_text("")
    (found,) = damaged(run.folder)
    assert found.place == run.folder
    assert "grid.csv is damaged or edited (0 bytes in place of" in found.why


def test_weights_that_were_removed_for_room_are_no_damage(restored):  # noqa: F811
    lab, run = restored
    (run.folder / "model.safetensors").unlink()
    assert not damaged(lab.store.root)
    (run.folder / "positions.csv").unlink()
    assert "positions.csv is missing" in damaged(lab.store.root)[0].why


def test_a_run_without_manifest_is_counted_as_such(restored):  # noqa: F811
    _, run = restored
    (run.folder / "manifest.json").unlink()
    assert next(everything(run.folder)).state == "no manifest"


def bits(folder):
    kept = ("model.safetensors", "grid.csv", "positions.csv", "errors.safetensors", "history.csv")
    return {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.name in kept}


def test_the_command_prints_a_table_and_names_the_damage(restored, run, tmp_path):  # noqa: F811
    lab, made = restored
    root = lab.store.root
    code, text, _ = run("verify", str(root))
    assert code == 0
    assert text.splitlines()[1].split() == ["run", "1", "0", "0", "0"]
    (made.folder / "grid.csv").write_text("no")
    code, text, err = run("verify", str(root))
    assert code == 1
    assert f"damaged: {made.folder / 'grid.csv'} is damaged or edited" in text
    assert err == f"icl-lab: 1 is damaged; icl-lab repair {root}\n"
    code, _, err = run("verify", str(tmp_path / "nothing"))
    assert code == 2
    assert f"there is no folder '{tmp_path / 'nothing'}'" in err
    code, _, err = run("verify", str(tmp_path))
    assert (code, err) == (2, f"icl-lab: {tmp_path} holds no run, no study and no evidence.\n")


@pytest.mark.parametrize(
    ("name", "trains"),
    [
        ("grid.csv", False),
        ("errors.safetensors", False),
        ("swap-ssa/positions.csv", False),
        ("history.csv", True),
        ("model.safetensors", True),
        ("manifest.json", True),
    ],
)
@pytest.mark.slow
def test_repair_does_again_what_is_damaged_and_no_more(restored, run, monkeypatch, name, trains):  # noqa: F811
    from icl_lab import pipeline as sweeping

    lab, made = restored
    before = bits(made.folder)
    path = made.folder / name
    path.write_bytes(DAMAGES["cut short"](path.read_bytes()))
    calls, train = [], sweeping.train
    monkeypatch.setattr(sweeping, "train", lambda *a, **k: (calls.append(1), train(*a, **k))[1])
    code, text, err = run("repair", "--dry-run", str(lab.store.root))
    assert code == 0
    assert not calls
    assert damaged(lab.store.root)
    code, text, err = run("repair", str(lab.store.root))
    assert code == 0, err
    assert "made again: linear | softmax" in text
    assert bool(calls) == trains
    assert not damaged(lab.store.root)
    assert bits(made.folder) == before


@pytest.mark.slow
@pytest.mark.parametrize("name", ["grid.csv", "swap-ssa/positions.csv", "model.safetensors"])
def test_a_repair_that_was_killed_is_known_and_goes_on(restored, run, name):  # noqa: F811
    """What is damaged was removed, and the process ended before it was made again."""
    lab, made = restored
    before = bits(made.folder)
    path = made.folder / name
    path.write_bytes(DAMAGES["cut short"](path.read_bytes()))
    for finding in damaged(lab.store.root):
        prepare_repair(finding)
    assert not path.exists()
    code, out, err = run("verify", str(lab.store.root))
    assert (code, "was cut short" in out) == (1, True), err
    code, _, err = run("repair", str(lab.store.root))
    assert code == 0, err
    assert not damaged(lab.store.root)
    assert bits(made.folder) == before
    assert not list(made.folder.rglob(".repairing"))
    (made.folder / ".learned.png-left").write_text("killed while it drew")
    assert run("repair", str(lab.store.root))[0] == 0
    assert not (made.folder / ".learned.png-left").exists()


def test_what_nobody_can_know_is_left_and_named(restored, run):  # noqa: F811
    lab, made = restored
    (made.folder / "spec.json").write_text("{}")
    code, _, err = run("repair", str(lab.store.root))
    assert code == 1
    assert "left: " in err
    assert "spec.json cannot be read" in err
    assert "1 of 2 could not be made again from here" in err or "1 of 1 could not be made again from here" in err


@pytest.mark.slow
def test_a_damaged_comparison_is_built_again_from_its_runs(run, tmp_path):
    small = "train.steps=20 train.batch=8 model.width=16 model.heads=2 test.prompts=64 test.axes.length=5,12"
    words = [word for setting in small.split() for word in ("--set", setting)]
    asked = ["--task", "linear", "--attn", "softmax", "--attn", "ssa", "--preset", "smoke", "--name", "mine"]
    code, _, err = run("compare", *asked, *words)
    assert code == 0, err
    root = tmp_path / "results"
    table = root / "mine" / "comparison.csv"
    whole = table.read_text()
    table.write_text(whole.replace("ssa", "ssb", 1))
    code, text, _ = run("verify", str(root))
    assert code == 1
    assert "comparison.csv is damaged or edited" in text
    code, text, err = run("repair", str(root))
    assert code == 0, err
    assert f"made again: {root / 'mine'}" in text
    assert table.read_text() == whole
    assert not damaged(root)
