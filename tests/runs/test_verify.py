"""``verify`` finds every damage in a results folder; what is deleted is made again, bit for bit."""

import random
import shutil

import pytest

from icl_lab import pipeline
from icl_lab.runs.verify import everything
from tests.runs.test_manifest import DAMAGES, finished, restored  # noqa: F401

pytestmark = pytest.mark.usefixtures("quick_pictures")


def damaged(folder):
    return [finding for finding in everything(folder) if finding.state == "damaged"]


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
    text, _ = run.ok("verify", str(root))
    rows = [line.rsplit(maxsplit=4) for line in text.splitlines()[1:]]
    assert rows[:2] == [["run", "1", "0", "0", "0"], ["test with another normalizer", "1", "0", "0", "0"]]
    (made.folder / "grid.csv").write_text("no")
    text, err = run.failed("verify", str(root))
    assert f"damaged: {made.folder / 'grid.csv'} is damaged or edited" in text
    assert err == "icl-lab: 1 is damaged, see above; delete it and repeat what made it\n"
    assert f"there is no folder '{tmp_path / 'nothing'}'" in run.refused("verify", str(tmp_path / "nothing"))[1]
    _, err = run.refused("verify", str(tmp_path))
    assert err == f"icl-lab: {tmp_path} holds no run, no study and no evidence.\n"


@pytest.mark.parametrize("name", ["grid.csv", "swap-ssa/positions.csv", "history.csv", "model.safetensors"])
@pytest.mark.slow
def test_a_damaged_run_is_deleted_and_made_again(restored, run, name):  # noqa: F811
    lab, made = restored
    before = bits(made.folder)
    path = made.folder / name
    path.write_bytes(DAMAGES["cut short"](path.read_bytes()))
    for finding in damaged(lab.store.root):
        shutil.rmtree(finding.place, ignore_errors=True)  # that of a run holds those of its tests
    pipeline.sweep(made.spec, made.seed, lab)
    pipeline.sweep(made.spec, made.seed, lab, swap="ssa")
    assert not damaged(lab.store.root)
    assert bits(made.folder) == before


@pytest.mark.slow
def test_a_damaged_comparison_is_found(run, tmp_path):
    small = "train.steps=20 train.batch=8 model.width=16 model.heads=2 test.prompts=64 test.axes.length=5,12"
    asked = ["--task", "linear", "--attn", "softmax,ssa", "--preset", "smoke", "--name", "mine", "--set", small]
    _, err = run.ok("compare", *asked)
    root = tmp_path / "results"
    table = root / "mine" / "comparison.csv"
    whole = table.read_text()
    table.write_text(whole.replace("ssa", "ssb", 1))
    assert "comparison.csv is damaged or edited" in run.failed("verify", str(root))[0]
    table.unlink()
    assert run("compare", *asked, "--retrain")[0] == 0
    assert table.read_text() == whole
    assert not damaged(root)
