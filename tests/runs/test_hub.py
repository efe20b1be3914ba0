"""Repositories of the hub: what is written there is read back equal; nothing is sent by accident."""

import re
import shutil
from pathlib import Path

import pandas as pd
import pytest
import torch
import yaml

import icl_lab as icl
from icl_lab.base.errors import BadValue, LabError, RunFailed
from icl_lab.cli.main import cli
from icl_lab.execute.complete import complete
from icl_lab.runs import archiving, hub, manifest, verify
from icl_lab.runs.evidence.archive import Archive
from icl_lab.runs.manifest import Stamp

pytestmark = pytest.mark.usefixtures("quick_pictures")

FEW = {"train.steps": 5, "test.prompts": 64, "test.axes.sigma_f": [1, 2], "test.axes.length": [5, 12]}


@pytest.fixture
def place(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ICL_LAB_EVIDENCE", "")
    return icl.Where(results="results", progress=False)


@pytest.fixture(scope="module")
def swept(tmp_path_factory, one_pixel):
    """A results folder with a run, swept once for all tests here."""
    folder = tmp_path_factory.mktemp("swept")
    with one_pixel():
        icl.sweep("linear", "ssa", "smoke", FEW, where=icl.Where(results=folder, progress=False))
    return folder


@pytest.fixture
def run(swept, place):
    """The run in a results folder that a test may change."""
    shutil.copytree(swept, "results")
    return icl.sweep("linear", "ssa", "smoke", FEW, where=place)


def publish(*words):
    cli.main(["publish", *words], standalone_mode=False)


def front_matter(folder):
    return yaml.safe_load((folder / "README.md").read_text().split("---")[1])


@pytest.mark.slow
def test_a_run_fetched_from_its_repository_is_the_run(run, tmp_path):
    publish("linear/ssa/smoke", "--to", "repository")
    assert front_matter(tmp_path / "repository")["library_name"] == "icl_lab"
    place = (tmp_path / "repository" / "README.md").read_text().partition("--local-dir results/")[2].partition("`")[0]
    shutil.copytree("repository", tmp_path / "elsewhere" / place)
    again = icl.find(run.stored.spec.name, where=icl.Where(results="elsewhere", progress=False))
    pd.testing.assert_frame_equal(again.grid.frame, run.grid.frame)
    tokens = run.prompts(4).tokens
    assert torch.equal(again.model(tokens), run.model(tokens))
    assert [each.state for each in verify.everything(tmp_path / "elsewhere")] == ["whole"]


@pytest.mark.slow
def test_a_run_of_the_evidence_is_published(run, tmp_path, monkeypatch):
    archive, tokens = Archive(tmp_path / "evidence"), run.prompts(4).tokens
    cells = lambda run: [{"sigma_x": 1.0, "sigma_f": 1.0, "length": 5.0}]  # noqa: E731
    archive.add({run.stored.key: archiving.run_files(run.stored, weights=True, cells=cells)})
    answers = run.model(tokens)
    shutil.rmtree("results")
    monkeypatch.setenv("ICL_LAB_EVIDENCE", str(archive.root))
    publish("linear/ssa/smoke", "--to", "repository")
    place = tmp_path / "elsewhere" / "runs" / run.stored.key
    shutil.copytree("repository", place)
    assert [each.state for each in verify.everything(tmp_path / "elsewhere")] == ["whole"]
    assert torch.equal(icl.load("repository")(tokens), answers)


@pytest.fixture
def published(run):
    """The published run's folder, and no results but the run's grid in memory."""
    assert len(run.grid.frame)
    publish("linear/ssa/smoke", "--to", "repository")
    shutil.rmtree("results")
    return Path("repository")


@pytest.mark.slow
def test_a_published_folder_is_found_and_loaded(published, run, place):
    found = icl.find(published, where=place)
    assert (found.hash, found.seed, found.folder) == (run.hash, run.seed, published.absolute())
    pd.testing.assert_frame_equal(found.grid.frame, run.grid.frame)
    tokens = found.prompts(4).tokens
    assert torch.equal(icl.load("repository", where=place)(tokens), found.model(tokens))
    assert complete([found.stored], found.lab, place)
    assert not Path("results", "runs").exists()  # nothing is trained or tested again
    publish("repository", "--to", "again")
    assert Path("again", "README.md").read_bytes() == (published / "README.md").read_bytes()
    with pytest.raises(BadValue, match="repository holds the run of seed 0, not of 3"):
        icl.find(published, 3, where=place)
    with pytest.raises(BadValue, match="no folder of a run"):
        icl.find(published.parent / "elsewhere", where=place)


@pytest.mark.parametrize(
    ("name", "change", "complaint"),
    [
        ("grid.csv", lambda data: data[:-3], "grid.csv is damaged"),
        ("grid.csv", lambda data: data.replace(b",0,", b",-1,"), "its seed is -1"),
        ("grid.csv", lambda data: data.replace(b"linear,", b"every,"), "is of another run: task is every"),
        ("spec.json", lambda data: data.replace(b'"preset": "smoke"', b'"preset": "lite"'), "spec.json is damaged"),
        ("spec.json", lambda data: b"[" * 10**5, "nested too deeply"),
        ("spec.json", lambda data: data.replace(b'"linear"', b'"nosuch"'), "nosuch"),
        ("model.safetensors", lambda data: data[:-4] + b"1234", "its hash is not that of env.json"),
        ("manifest.json", lambda data: data.replace(b"grid.csv", b"../g.csv"), "is no file of its folder"),
    ],
)
def test_a_folder_of_damaged_files_is_refused(published, place, name, change, complaint):
    path = published / name
    before, after = path.read_bytes(), change(path.read_bytes())
    assert after != before
    path.write_bytes(after)
    if complaint.startswith(("its", "is of")):  # a manifest that fits
        stamps = manifest.read(published) | {name: Stamp.of(after)}
        (published / manifest.NAME).write_bytes(manifest._written(stamps))
    with pytest.raises(LabError, match=re.escape(complaint)):
        icl.load(published, where=place)


def test_a_folder_that_says_no_seed_is_refused(published, place):
    (published / "grid.csv").unlink()
    with pytest.raises(RunFailed, match="does not say its seed"):
        icl.find(published, where=place)


@pytest.mark.slow
def test_a_damaged_run_is_not_published(run, tmp_path):
    path = run.stored.folder / "positions.csv"
    path.write_bytes(path.read_bytes()[:-3])
    with pytest.raises(RunFailed, match=r"positions.csv is damaged"):
        publish("linear/ssa/smoke", "--to", "repository")
    assert not (tmp_path / "repository").exists()


def rename(folder, private):
    return str(private)


def climb(folder, private):
    return f"../../../../../../{private.name}"


def link(folder, private):
    (folder / "positions.csv").unlink()
    (folder / "positions.csv").symlink_to(private)
    return "positions.csv"


def leave(folder, private):
    shutil.copy(private, folder / "notes.txt")
    return "notes.txt"


@pytest.mark.parametrize("lead", [rename, climb, link, leave])
@pytest.mark.parametrize("stamp", [Stamp.of(b"secret"), Stamp(3, "0" * 64)])
def test_only_files_of_the_run_are_published(run, tmp_path, lead, stamp):
    private, folder = tmp_path / "private", run.stored.folder
    private.write_bytes(b"secret")
    name = lead(folder, private)
    stamps = manifest.read(folder) | {name: stamp}
    (folder / manifest.NAME).write_bytes(manifest._written(stamps))
    with pytest.raises(RunFailed, match=re.escape(name)):
        publish("linear/ssa/smoke", "--to", "repository")
    assert not (tmp_path / "repository").exists()


@pytest.mark.parametrize(("name", "words"), [(manifest.NAME, r"json is missing"), ("grid.csv", "is not finished")])
def test_a_run_that_is_not_whole_is_not_published(run, name, words):
    (run.stored.folder / name).unlink()
    with pytest.raises(RunFailed, match=words):
        hub.of_run(run.stored)


@pytest.mark.slow
def test_all_cells_are_one_data_set(run, place, tmp_path):
    icl.sweep("every", "softmax", "smoke", {"train.steps": 5}, where=place)
    publish("--all", "--to", "cells")
    cells = icl.cells(where=place)
    found = pd.read_parquet(tmp_path / "cells" / hub.CELLS)
    assert list(found) == list(cells)
    assert len(found) == len(cells)
    assert found["value"].tolist() == cells["value"].tolist()
    card = (tmp_path / "cells" / "README.md").read_text()
    assert f"{len(cells):,} cells of 2 specifications: 2 tasks" in card
    counts = {column: re.search(rf"\| `{column}` \| .* \| ([\d,]+) \|", card)[1] for column in cells}
    assert counts == {column: f"{cells[column].nunique():,}" for column in cells}
    assert front_matter(tmp_path / "cells")["configs"] == [{"config_name": "default", "data_files": hub.CELLS}]


@pytest.mark.slow
def test_the_data_set_is_read_by_the_package_datasets(run, tmp_path, monkeypatch):
    datasets = pytest.importorskip("datasets", reason="pip install 'icl_lab[eval]' brings it")
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    publish("--all", "--to", "cells")
    found = datasets.load_dataset(str(tmp_path / "cells"), split="train")
    assert found["value"] == pd.read_parquet(tmp_path / "cells" / hub.CELLS)["value"].tolist()


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["linear/ssa/smoke"], "Give a new folder"),
        (["linear/ssa/smoke", "--to", "a", "--hub", "b/c"], "Give a new folder"),
        (["--to", "a"], "Name one RUN, or give --all"),
        (["linear/ssa/smoke", "--all", "--to", "a"], "Name one RUN, or give --all"),
        (["linear/ssa/smoke", "--to", "results"], "results is not empty: name a new folder"),
        (["linear/ssa/lite", "--to", "a"], "No stored run is called"),
        (["linear/ssa/smoke", "--hub", "b/c"], "b/c cannot be sent to the hub: Token is required"),
    ],
)
def test_what_cannot_be_published_is_refused(run, tmp_path, monkeypatch, words, complaint):
    pytest.importorskip("huggingface_hub")
    monkeypatch.setattr("huggingface_hub.utils._headers.get_token", lambda: None)
    with pytest.raises(Exception, match=complaint) as refused:
        publish(*words)
    assert isinstance(refused.value, LabError) or type(refused.value).__name__ == "UsageError"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["results"]
