"""Grids as arrays: each number where it belongs, and what is missing told from what is infinite."""

import math

from icl_lab.base.grid import Grid
from icl_lab.extras.site import numbers
from icl_lab.extras.site.shown_task import ShownTask
from tests.site import made


def at(data, who, metric, **place):
    flat = 0
    for axis in data["axes"]:
        flat = flat * len(axis["values"]) + axis["values"].index(place[axis["name"]])
    return data["values"][who][metric]["v"][flat]


def test_every_value_is_where_its_labels_say(tmp_path):
    run = made.finished(made.store(tmp_path), "ssa")
    subject = ShownTask.of(run.spec, run.grid())
    data, metric = numbers.arrays(run.grid(), subject), subject.headline
    assert data["who"][0] == "ssa"
    assert at(data, "ssa", metric, sigma_x=10.0, sigma_f=2.0, length=20.0) == 400
    assert at(data, "reference:zero", metric, sigma_x=1.0, sigma_f=2.0, length=40.0) == 240
    assert numbers.in_training(data, subject) == 40  # sigma 1 and 1, and the longest length of training


def test_a_cell_that_was_not_measured_is_none_and_no_other_moves(tmp_path):
    run = made.store(tmp_path).run(made.spec_of("ssa"), 0)
    grid = made.grid_of(run, drop=[(3.0, 2.0, 20.0)])
    data = numbers.arrays(grid, ShownTask.of(run.spec, grid))
    assert at(data, "ssa", "mse-code", sigma_x=3.0, sigma_f=2.0, length=20.0) is None
    assert at(data, "ssa", "mse-code", sigma_x=3.0, sigma_f=2.0, length=40.0) == 240


def test_what_is_infinite_or_lost_is_said(tmp_path):
    run = made.trained(made.store(tmp_path).run(made.spec_of(), 0))
    frame = {"sigma_x": 1.0, "sigma_f": 1.0, "attn": "softmax", "stderr": 0.0, "count": 64}
    rows = [
        frame | {"length": 10.0, "metric": "mse-code", "value": math.inf},
        frame | {"length": 10.0, "metric": "not-finite", "value": 1.0},
        frame | {"length": 40.0, "metric": "mse-code", "value": math.nan},
    ]
    grid = Grid.of(rows, ["sigma_x", "sigma_f", "length"], **run.labels)
    data = numbers.arrays(grid, ShownTask.of(run.spec, grid))
    assert data["values"]["softmax"]["mse-code"]["v"] == ["inf", None]
    assert data["lost"] == {"mse-code": [0]}
    assert [metric["name"] for metric in data["metrics"]] == ["mse-code"]


def test_a_long_history_is_thinned_to_its_end():
    history = [{"step": float(i), "loss": 1.0 / i} for i in range(1, 1002)]
    told = numbers.training(history)
    assert len(told["step"]) <= numbers.MOST_ROWS + 1
    assert told["step"][-1] == 1001
    assert numbers.training([]) == {}


def test_of_a_history_only_what_is_drawn_is_handed_on():
    row = {"step": 1.0, "loss": 0.123456, "length": 12.0, "rate": 1e-3, **{f"b 0.{head}": 1.0 for head in range(40)}}
    told = numbers.training([row])
    assert told["loss"] == [0.1235]
    assert len(told) == 2 + numbers.MOST_LEARNED
    assert "rate" not in told


def test_seeds_in_other_cells_are_not_joined(tmp_path):
    run = made.store(tmp_path).run(made.spec_of("ssa"), 0)
    whole, part = made.grid_of(run), made.grid_of(run, drop=[(s, f, 20.0) for s in (1, 3, 10) for f in (1, 2, 10)])
    grids = {seed: numbers.arrays(grid, ShownTask.of(run.spec, grid)) for seed, grid in enumerate((whole, part, whole))}
    assert numbers.together(grids)["seeds"] == [0, 2]


def test_learned_parameters_stand_by_layer_and_head():
    row = {"step": 1.0, "loss": 1.0, "b 0.0": 0.5, "b 0.1": 0.25, "b 1.0": 2.0, "n 0.0": 3.0}
    assert numbers.learned([{"step": 0.0}, row]) == [
        ("b", ["0", "1"], [("0", ["0.5", "0.25"]), ("1", ["2", ""])]),
        ("n", ["0"], [("0", ["3"])]),
    ]
