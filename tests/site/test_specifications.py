"""Every specification has its seeds; a damaged one says why, and hides no other."""

import json

import pytest

from icl_lab.extras.site import specifications
from icl_lab.runs.evidence.archive import Archive
from icl_lab.runs.store import Store
from tests.site import made


def read(store):
    found, _ = specifications.every(store)
    return {spec.name: spec for spec in found}


def test_a_specification_holds_its_seeds_and_what_made_them(tmp_path):
    store = made.store(tmp_path)
    made.finished(store, "ssa", seed=3, learned={"b 0.0": 0.5})
    made.finished(store, "ssa", seed=4, factor=2.0, finished="2026-11-23")
    spec = read(store)["ssa"]
    assert [f"{each.seed} {each.state} {each.error_text}" for each in spec.seeds] == ["3 finished 40", "4 finished 80"]
    assert (spec.errors, spec.date, spec.normalizer) == ("40 to 80", "2026-11-23", "ssa")
    assert spec.seeds[0].env["commit"] == "abc123"
    assert spec.learned == (("b", ["0"], [("0", ["0.5"])]),)
    assert dict(spec.fields)["train.steps"] == "60"
    data = json.loads(spec.data)
    assert data["seeds"] == [3, 4]
    model, zero = (data["values"][who]["mse-code"]["v"] for who in ("ssa", "reference:zero"))
    assert (len(model), len(zero)) == (2, 1)  # a reference is the same in every seed
    assert [2 * value for value in model[0]] == model[1]


@pytest.mark.parametrize("name", ["grid.csv", "history.csv", "env.json", "manifest.json"])
def test_a_damaged_file_is_a_sentence_and_hides_no_other_run(tmp_path, name):
    store = made.store(tmp_path)
    run = made.finished(store, "ssa")
    made.finished(store, "softmax")
    path = run.folder / name
    path.write_bytes(path.read_bytes()[:-3] + b"9\n\n")
    found = read(store)
    assert found["softmax"].seeds[0].state == "finished"
    assert found["ssa"].seeds[0].state == "damaged"
    assert name in found["ssa"].seeds[0].damage


def test_a_folder_whose_specification_cannot_be_read_is_listed(tmp_path):
    store = made.store(tmp_path)
    run = made.finished(store, "ssa")
    made.finished(store, "softmax")
    (run.folder / "spec.json").write_text("{")
    found, (damage,) = specifications.every(store)
    assert [spec.name for spec in found] == ["softmax"]
    assert "spec.json" in damage


def test_a_grid_without_rows_is_damaged(tmp_path):
    store = made.store(tmp_path)
    run = made.trained(store.run(made.spec_of(), 0))
    head = "task,attn,preset,spec,seed,sigma_x,sigma_f,length,metric,value,stderr,count\n"
    (run.folder / "manifest.json").unlink()
    (run.folder / "grid.csv").write_text(head)
    assert read(store)["softmax"].seeds[0].state == "damaged"


def test_a_run_that_is_not_finished_says_how_far_it_is(tmp_path):
    store = made.store(tmp_path)
    store.run(made.spec_of("softmax"), 0).begin()
    made.trained(store.run(made.spec_of("ssa"), 0))
    found = read(store)
    assert found["softmax"].seeds[0].state == "at step 0 of 60"
    assert found["ssa"].seeds[0].state == "trained, not tested"
    data = json.loads(found["ssa"].data)
    assert (data["history"]["0"]["loss"], data["steps"]) == ([3, 2, 1], [[20, 40, 60]])


def test_a_normalizer_that_is_not_here_is_shown_by_its_grid(tmp_path):
    store = made.store(tmp_path)
    made.called(store, "rule-of-mine")
    spec = read(store)["rule-of-mine"]
    assert (spec.seeds[0].state, spec.errors) == ("finished", "40")


def test_a_grid_without_training_conditions_has_no_error_of_them(tmp_path):
    made.finished(made.store(tmp_path), settings=["train.shift.sigma_x=100"])
    (spec,) = read(made.store(tmp_path)).values()
    assert spec.errors == ""
    assert "trained at sigma_x=100, tested at 1, 3, 10" in spec.notes


def test_a_swapped_test_is_a_specification_of_its_own(tmp_path):
    store = made.store(tmp_path)
    run = made.finished(store, "softmax")
    made.measured(run.swapped("ssmax:s=swap"), 0.5)
    found = read(store)
    assert found["softmax->ssmax:s=swap"].swap == "ssmax:s=swap"
    assert found["softmax->ssmax:s=swap"].errors == "20"
    assert found["softmax"].errors == "40"
    assert len({spec.id for spec in found.values()}) == 2


@pytest.mark.slow
def test_evidence_and_ones_own_runs_both_count(tmp_path):
    other = made.store(tmp_path / "theirs")
    kept = made.finished(other, "ssa")
    made.measured(kept.swapped("ssmax:s=swap"), 0.5)
    archive, names = Archive(tmp_path / "evidence"), ("spec.json", "env.json", "history.csv", "grid.csv")
    files = [path for path in kept.folder.rglob("*") if path.name in names]
    archive.add({kept.key: {path.relative_to(kept.folder).as_posix(): path.read_bytes() for path in files}})
    store = Store(tmp_path / "results", archive)
    made.finished(store, "softmax")
    found = read(store)
    states = {name: spec.seeds[0].state for name, spec in found.items()}
    assert states == {"softmax": "finished", "ssa": "evidence", "ssa->ssmax:s=swap": "evidence"}
