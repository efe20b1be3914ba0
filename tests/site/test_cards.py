"""Every run has a card; a damaged one says why, and hides no other."""

import pytest

from icl_lab.evidence.layer import Layer
from icl_lab.runs.store import Store
from icl_lab.site import cards
from tests.site import made


def read(store):
    return {card.name: card for card in cards.every(store)}


def test_a_finished_run_says_what_made_it(tmp_path):
    store = made.store(tmp_path)
    made.finished(store, "ssa", seed=3, learned={"b 0.0": 0.5})
    card = read(store)["ssa"]
    assert (card.state, card.seed, card.date, card.kind) == ("finished", 3, "2026-11-21", "run")
    assert card.env["commit"] == "abc123"
    assert [name for name, _, _ in card.sums] == [
        "env.json", "grid.csv", "history.csv", "model.safetensors", "positions.csv", "spec.json"
    ]  # fmt: skip
    assert card.learned == (("b", ["0"], [("0", ["0.5"])]),)
    assert dict(card.fields)["train.steps"] == "60"
    assert card.rule == "ssa"


@pytest.mark.parametrize("name", ["grid.csv", "history.csv", "env.json", "manifest.json"])
def test_a_damaged_file_is_a_sentence_and_hides_no_other_run(tmp_path, name):
    store = made.store(tmp_path)
    run = made.finished(store, "ssa")
    made.finished(store, "softmax")
    path = run.folder / name
    path.write_bytes(path.read_bytes()[:-3] + b"9\n\n")
    found = read(store)
    assert found["softmax"].state == "finished"
    assert found["ssa"].state == "damaged"
    assert name in found["ssa"].damage


def test_a_folder_whose_specification_cannot_be_read_is_listed(tmp_path):
    store = made.store(tmp_path)
    run = made.finished(store, "ssa")
    made.finished(store, "softmax")
    (run.folder / "spec.json").write_text("{")
    found = list(cards.every(store))
    assert [card.state for card in found] == ["finished", "damaged"]
    assert "spec.json" in found[1].damage


def test_a_grid_without_rows_is_damaged(tmp_path):
    store = made.store(tmp_path)
    run = made.trained(store.run(made.spec_of(), 0))
    head = "task,attn,preset,spec,seed,sigma_x,sigma_f,length,metric,value,stderr,count\n"
    (run.folder / "manifest.json").unlink()
    (run.folder / "grid.csv").write_text(head)
    assert read(store)["softmax"].state == "damaged"


def test_a_run_that_is_not_finished_says_how_far_it_is(tmp_path):
    store = made.store(tmp_path)
    store.run(made.spec_of("softmax"), 0).begin()
    made.trained(store.run(made.spec_of("ssa"), 0))
    found = read(store)
    assert found["softmax"].state == "at step 0 of 60"
    assert found["ssa"].state == "trained, not tested"
    assert found["ssa"].data["history"]["loss"] == [3, 2, 1]


def test_a_rule_that_is_not_here_is_shown_by_its_grid(tmp_path):
    store = made.store(tmp_path)
    made.called(store, "rule-of-mine")
    card = read(store)["rule-of-mine"]
    assert (card.state, card.at_home) == ("finished", "40")


def test_a_grid_without_training_conditions_has_no_error_of_them(tmp_path):
    made.finished(made.store(tmp_path), settings=["train.shift.sigma_x=100"])
    (card,) = read(made.store(tmp_path)).values()
    assert card.at_home == ""
    assert "trained at sigma_x=100, tested at 1, 3, 10" in card.notes


def test_a_test_with_another_rule_has_a_card_of_its_own(tmp_path):
    store = made.store(tmp_path)
    run = made.finished(store, "softmax")
    made.measured(run.swapped("ssmax:s=swap"), 0.5)
    found = read(store)
    assert found["softmax->ssmax:s=swap"].kind == "swap"
    assert found["softmax->ssmax:s=swap"].at_home == "20"
    assert found["softmax"].at_home == "40"
    assert len({card.id for card in found.values()}) == 2


def test_evidence_and_ones_own_runs_both_count(tmp_path):
    other = made.store(tmp_path / "theirs")
    kept = made.finished(other, "ssa")
    made.measured(kept.swapped("ssmax:s=swap"), 0.5)
    layer = Layer(tmp_path / "evidence")
    names = ("spec.json", "env.json", "history.csv", "grid.csv")
    files = {path.relative_to(kept.folder).as_posix(): path for name in names for path in kept.folder.rglob(name)}
    layer.put({kept.key: {name: path.read_bytes() for name, path in files.items()}})
    store = Store(tmp_path / "results", layer)
    made.finished(store, "softmax")
    found = read(store)
    assert {name: card.state for name, card in found.items()} == {
        "softmax": "finished",
        "ssa": "evidence",
        "ssa->ssmax:s=swap": "evidence",
    }
    manifest = {name: digest for name, _, digest in cards.read(kept).sums}
    assert {name: digest for name, _, digest in found["ssa"].sums}["grid.csv"] == manifest["grid.csv"]
