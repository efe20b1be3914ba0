"""The bound of the answers beside the largest of them: rows, table, sentence, and the numbers of claims."""

import math

import pytest

from icl_lab import tasks
from icl_lab.analyses.boundary import Boundary, bounds, report
from icl_lab.analyses.findings import cell
from icl_lab.analyses.frame import Findings
from icl_lab.base.grid import Grid
from icl_lab.base.rng import stream
from icl_lab.figures import bounds as pictures
from icl_lab.runs.spec import resolve

SMALL = ["model.width=16", "model.heads=2", "model.layers=1"]


def found_of(trained, rows):
    asked = trained.labelled([{"side": 1, "metric": "bound", "value": 1.0, "count": 1}])
    grids = {"boundary": Grid.of(asked, ["side"])}
    if rows:
        grids[bounds.GRID] = Grid.of(trained.labelled(rows), ["spread"])
    return Findings(grids, {"softmax": trained.spec})


@pytest.fixture
def bounded(untrained):
    """A model, what is found of its answers, and its own numbers."""
    trained = untrained(resolve("linear", "softmax", "smoke", SMALL))
    found = found_of(trained, bounds.answer_bounds(trained))
    return trained, found, bounds.kept(found)["softmax"][0]


@pytest.mark.slow
def test_rows_of_a_model_are_its_bound_and_what_it_reaches(bounded):
    trained, found, known = bounded
    bound = float(trained.model.answer_bound()[1])
    labels = {"labels", "largest-label", "label-rms", "labels-beyond"}
    assert set(known) == {"bound", "largest", "error", "floor", "rescaled"} | labels
    assert list(known["bound"].values()) == [pytest.approx(bound, rel=1e-5)] * len(bounds.SPREADS)
    assert list(known["largest"]) == list(bounds.SPREADS)
    assert sorted(known["largest"].values()) == list(known["largest"].values())  # the largest so far
    assert all(known["largest"][spread] <= bound * 1.00001 for spread in bounds.SPREADS)
    assert all(known["floor"][spread] <= known["error"][spread] for spread in bounds.SPREADS)
    assert trained.model.rescaling is None  # as it was
    asked, c = Boundary(), known["bound"][1.0]
    assert asked.value(found, "softmax", {}, "answer-bound", 0) == pytest.approx(math.log(c))
    assert asked.value(found, "softmax", {}, "reached", 0) == pytest.approx(max(known["largest"].values()) / c)
    assert asked.scale_of(trained.task, "answer-bound") == "log-ratio"


def test_labels_of_a_training_are_drawn_again_from_its_seed():
    spec = resolve("linear", "softmax", "smoke", ["train.steps=3", "train.batch=2", "train.shift.sigma_f=2"])
    found, seen = bounds.training_labels(spec, 5, 3.0), []
    for step in range(3):
        prompt = tasks.build("linear").sample(stream(5, "train", step), 2, spec.train.length_at(step), sigma_f=2.0)
        seen += prompt.tokens[:, 1::2, 0].flatten().tolist()
    assert found["labels"] == len(seen)
    assert found["largest-label"] == pytest.approx(max(map(abs, seen)))
    assert found["label-rms"] == pytest.approx(2 * math.sqrt(2))
    assert found["labels-beyond"] == pytest.approx(len(seen) * tasks.build("linear").share_beyond(1.5))
    assert "largest-possible" not in found
    bounded = bounds.training_labels(resolve("linear:law=uniform", "softmax", "smoke", ["train.steps=1"]), 0, 3.0)
    assert bounded["largest-possible"] == pytest.approx(3 + math.sqrt(3))
    assert bounds.training_labels(resolve("every", "softmax", "smoke"), 0, 3.0) == {}


@pytest.mark.slow
def test_claims_hold_c_against_the_labels_and_against_numbers(untrained):
    trained = untrained(resolve("linear:law=uniform", "softmax", "smoke", [*SMALL, "train.steps=4"]))
    found, asked = found_of(trained, bounds.answer_bounds(trained)), Boundary()
    known = bounds.kept(found)["softmax"][0]
    c, of = known["bound"][10.0], {name: values.get(10.0) for name, values in known.items()}
    for metric, against in (("bound-over-rms", math.sqrt(2)), ("bound-over-possible", 3 + math.sqrt(3))):
        assert asked.value(found, "softmax", {}, metric, 0) == pytest.approx(math.log(c / against), abs=1e-4)
        assert asked.scale_of(trained.task, metric) == "log-ratio"
    for metric, number in (("bound-over-largest", c / of["largest-label"]), ("labels-beyond", of["labels-beyond"])):
        assert asked.value(found, "softmax", {}, metric, 0) == pytest.approx(math.log(number), abs=1e-4)
    assert asked.value(found, "reference:28", {}, "answer-bound", 0) == pytest.approx(math.log(28))
    assert asked.scale_of(trained.task, "reached") == "difference"


def test_c_is_compared_where_no_largest_answer_is_kept():
    cells = [cell(metric, value, spread=bounds.SHOWN) for metric, value in (("bound", 8.0), ("label-rms", 2.0))]
    kept = Grid.of(cells, ["spread"], task="linear", attn="softmax", preset="smoke", spec="0", seed=0)
    assert bounds.claimed(kept, "bound-over-rms") == pytest.approx(math.log(4))


@pytest.mark.slow
def test_the_table_says_how_much_of_the_error_is_floor(bounded):
    trained, found, known = bounded
    line = next(line for line in report.answer_table(found) if line.startswith("| `softmax` | 0"))
    assert f"{known['floor'][10.0] / known['error'][10.0]:.0%}" in line
    assert f"| {known['bound'][10.0]:.2f} |" in line
    assert report.sentence(found).startswith("The final norm and the read-out bound all answers at C: ")
    models, words = bounds.bounded(found), report.words(trained.task)
    drawn = pictures.bound(models, title="t", words=words)
    assert len(drawn.axes) == 2
    assert {"softmax", "labels rescaled"} <= set(drawn.axes[1].get_legend_handles_labels()[1])


@pytest.mark.parametrize("setting", ["model.final_norm=none", "model.read_in=scaled"])
def test_no_floor_rows_without_bound_or_with_rescaling(untrained, setting):
    trained = untrained(resolve("linear", "softmax", "smoke", [*SMALL, setting]))
    assert bounds.answer_bounds(trained) == []
    found = found_of(trained, [])
    assert report.sentence(found) == ""
    assert any("| `softmax` | 0 | none |" in line for line in report.answer_table(found))
