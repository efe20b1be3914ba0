"""All cells of all runs in one table: every grid once, with its tests with other normalizers, and whose it is."""

from pathlib import Path

import msgspec
import pandas as pd
import pytest

import icl_lab as icl
from icl_lab.base.grid import SETTINGS, WHAT, WHO, stacked
from icl_lab.pipeline import sweep
from icl_lab.runs import archiving
from icl_lab.runs.cells import grids
from icl_lab.runs.command import settings
from icl_lab.runs.evidence.archive import Archive
from icl_lab.runs.spec import resolve
from icl_lab.runs.store import Store

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.usefixtures("quick_pictures")


@pytest.fixture
def two(tiny, lab):
    """Finishes runs of two tasks with other axes, and a test of the first with another normalizer."""
    asked = [(tiny(), ""), (tiny(), "ssmax"), (tiny("every:balance=half", "ssa"), "")]
    return [sweep(spec, 0, lab, swap) for spec, swap in asked]


@pytest.mark.slow
def test_every_cell_stands_there_once(two, lab):
    frame = stacked(grids(lab.store, lab.say))
    assert len(frame) == sum(len(grid.frame) for grid in two)
    axes = [name for name in frame.columns if name not in (*WHO, *SETTINGS, *WHAT, "evidence", "code")]
    assert {*axes} == {axis for grid in two for axis in grid.axes}
    for grid in two:
        task, attn = grid.frame["task"].iloc[0], grid.frame["attn"].iloc[0]
        found = frame[(frame["task"] == task) & (frame["attn"] == attn)]
        own = grid.frame[grid.frame["attn"] == attn]
        assert list(found["value"]) == list(own["value"])
        missing = [axis for axis in axes if axis not in grid.axes]
        assert found[missing].isna().all(axis=None)
        assert not found[grid.axes].isna().any(axis=None)
    assert not frame["evidence"].any()
    assert any("->ssmax" in name for name in frame["attn"])


def test_settings_tell_specifications_of_a_preset_apart():
    """Of all runs of the repository: one hash for each task, normalizer, preset and settings."""
    store = Store(Path("nobody"), Archive(ROOT / "results" / "evidence"))
    found = {}
    for spec in {run.spec.hash: run.spec for run in store.runs()}.values():
        told = settings(spec)
        assert tuple(told) == SETTINGS
        found.setdefault((spec.task, spec.attn, spec.preset, *told.values()), set()).add(spec.hash)
    assert len(found) > 400
    assert not [names for names in found.values() if len(names) > 1]


def test_settings_are_what_the_preset_does_not_say(lab):
    plain = resolve("linear", "ssa", "lite")
    assert set(settings(plain).values()) == {""}
    changed = resolve("linear", "ssa", "lite", ["model.layers=6", "train.shift.sigma_x=3", "test.axes.sigma_x=1,3"])
    assert list(settings(changed).values()) == [
        "model.layers=6", "train.shift={'sigma_x': 3.0}", "test.axes.sigma_x=1,3"
    ]  # fmt: skip
    assert settings(resolve("linear", "ssa", "lite", draws="paper"))["test_settings"].startswith("test.axes.length=40 ")
    gone = msgspec.structs.replace(plain, task="elsewhere")
    assert settings(gone)["train_settings"] == f"(unknown, {gone.hash})"


@pytest.mark.slow
def test_runs_of_the_evidence_are_marked(two, lab, tmp_path):
    archive = Archive(tmp_path / "evidence")
    archive.add({run.key: archiving.run_files(run, weights=False) for run in lab.store.runs()})
    here = stacked(grids(lab.store, lab.say))
    there = stacked(grids(Store(tmp_path / "none", archive), lab.say))
    assert there["evidence"].all()
    columns = [name for name in here.columns if name != "evidence"]
    pd.testing.assert_frame_equal(there[columns], here[columns])


@pytest.mark.slow
def test_a_damaged_run_is_said_and_left_out(two, lab):
    (path,) = lab.store.root.glob("runs/every*/*/*/seed-0/grid.csv")
    path.write_bytes(path.read_bytes()[:-20])
    said = []
    frame = stacked(grids(lab.store, said.append))
    assert set(frame["task"]) == {two[0].frame["task"].iloc[0]}
    assert len(said) == 1
    assert "is damaged" in said[0]


@pytest.mark.slow
def test_the_command_writes_what_python_returns(two, lab, run, tmp_path):
    words = ("--all", "--results", str(lab.store.root), "--no-evidence")
    out, err = run.ok("export", *words, "--out", str(tmp_path / "all.parquet"))
    assert not err
    written = pd.read_parquet(tmp_path / "all.parquet")
    here = icl.cells(where=icl.Where(results=lab.store.root, evidence=False, progress=False))
    pd.testing.assert_frame_equal(written, here, check_dtype=False)
    out, _ = run.ok("export", *words, "--to", "csv")
    assert len(out.splitlines()) == len(here) + 1


def test_an_empty_folder_has_a_table_without_rows(lab):
    assert list(stacked(grids(lab.store, lab.say)).columns) == [*WHO, *SETTINGS, *WHAT, "evidence", "code"]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ((), "Name one PLACE, or give --all"),
        (("--all", "."), "Name one PLACE, or give --all"),
        (("--all", "--table", "grid"), "Name one PLACE, or give --all"),
        (("--all",), "Parquet is no text: name a file with --out"),
        (("--all", "--to", "latex"), "No kind of table of all cells is called 'latex'. There are: csv, parquet."),
    ],
)
def test_what_makes_no_table_is_said_before_anything_is_read(run, monkeypatch, words, says):
    monkeypatch.setattr("icl_lab.api.cells", None)
    out, err = run.refused("export", *words)
    assert not out
    assert says in err


@pytest.mark.slow
def test_a_grid_becomes_a_frame_of_polars(two):
    polars = pytest.importorskip("polars", reason="pip install polars")
    frame = two[0].to_polars()
    assert frame.columns == list(two[0].frame.columns)
    assert frame["value"].to_list() == list(two[0].frame["value"])
    assert isinstance(frame, polars.DataFrame)
