"""Grids of settings: what is trained, which combination is best, effects in each, and what is refused."""

import csv
import math
from statistics import fmean

import pytest

import icl_lab as icl
from icl_lab.base.errors import LabError
from icl_lab.cli.values import grid_of
from icl_lab.comparison.statistics import paired
from icl_lab.execute import grids
from icl_lab.execute.plan import RunPlan
from icl_lab.runs.spec import resolve
from tests.execute.conftest import SET, SMALL

pytestmark = pytest.mark.usefixtures("quick_pictures")


def plan(grid, attns=("softmax",), settings=(), **more):
    return RunPlan("linear", attns, "smoke", [*SET, *settings], grid=grid, **more)


def test_every_combination_is_a_run_of_its_settings(where):
    found = plan({"train.rate": ["0.001", "0.01"], "model.layers": ["1", "2"]}, seeds=[0, 1]).runs(where.store())
    asked = [(run.spec.train.rate, run.spec.model.layers, run.seed) for run in found]
    assert asked == [(rate, layers, seed) for rate in (0.001, 0.01) for layers in (1, 2) for seed in (0, 1)]
    one = resolve("linear", "softmax", "smoke", [*SET, "train.rate=0.001", "model.layers=1"])
    assert found[0].spec.hash == one.hash


def test_effects_and_errors_of_a_grid_are_those_of_its_runs(where, tmp_path):
    reach = {**SMALL, "test.axes.sigma_f": [1, 2, 10]}
    asked = {**reach, "train.rate": [0.001, 0.01]}
    table = icl.grid("linear", ["softmax", "ssa"], "smoke", asked, seeds=2, baseline="softmax", where=where)
    assert table[["train.rate", "attn"]].to_numpy().tolist() == [
        [rate, attn] for rate in ("0.001", "0.01") for attn in ("softmax", "ssa")
    ]
    errors = dict[str, list[float]]()
    for attn in ("softmax", "ssa"):
        runs = icl.sweep("linear", attn, "smoke", {**reach, "train.rate": 0.01}, seeds=2, where=where)
        cells = [run.grid.where(attn=attn, metric="mse-code", sigma_f=1.0).frame["value"] for run in runs]
        errors[attn] = [float(cell.iloc[0]) for cell in cells]
        far = [math.log(run.grid.at(attn=attn, metric="mse-code", sigma_f=f)) for run in runs for f in (2.0, 10.0)]
    row = table.iloc[3]
    assert row["error"] == pytest.approx(fmean(errors["ssa"]))
    ratio = paired(errors["softmax"], errors["ssa"]).ratio[0]
    assert row["in_training"] == pytest.approx(ratio)
    assert row["in_training_low"] < ratio < row["in_training_high"]
    assert row["summary"] == pytest.approx(fmean(far))  # a straight line of log errors from sigma_f 2 to 10
    assert math.isnan(table.iloc[2]["in_training"])
    (folder,) = tmp_path.glob("grid-linear-smoke-*")
    assert (folder / "grid.png").exists()
    stored = list(csv.DictReader((folder / "grid.csv").read_text().splitlines()))
    assert [float(each["error"]) for each in stored] == pytest.approx(table["error"].tolist())


def test_the_best_is_the_least_finite_mean_of_each_normalizer():
    rows = [
        {"attn": "softmax", "rate": "1", "errors": [0.2, 0.2]},
        {"attn": "softmax", "rate": "2", "errors": [0.0, math.inf]},
        {"attn": "softmax", "rate": "4", "errors": [0.1, 0.4]},
        {"attn": "ssa", "rate": "1", "errors": [math.inf]},
    ]
    assert grids.best(rows) == {"softmax": rows[0]}
    rows.append({"attn": "softmax", "rate": "8", "errors": [0.1, 0.1]})
    assert grids.best(rows) == {"softmax": rows[4]}
    rows.append({"attn": "softmax", "rate": "16", "errors": [0.1, 0.1]})
    assert grids.best(rows)["softmax"]["rate"] == "8"


def test_the_figure_frames_the_best_down_and_across():
    """The best has the second of two rates (down) and the first of three numbers of layers (across)."""
    asked = {"train.rate": ["0.1", "0.2"], "model.layers": ["1", "2", "3"]}
    rows = [
        {"attn": "softmax", "train.rate": rate, "model.layers": layers, "errors": [0.5 - 0.1 * (rate == "0.2")]}
        for rate in asked["train.rate"] for layers in asked["model.layers"]
    ]  # fmt: skip
    drawn = grids.figure(plan(asked), rows, {"softmax": rows[3]}, "error")
    (frame,) = (patch for patch in drawn.axes[0].patches if patch.get_linewidth() == 2)
    assert (frame.get_x() + frame.get_width() / 2, frame.get_y() + frame.get_height() / 2) == (0, 1)


@pytest.mark.parametrize(("errors", "scale"), [([0.1, 0.2], "log"), ([0.1, 0.0], "linear")])
def test_an_error_of_zero_is_drawn_on_a_linear_scale(errors, scale):
    asked = {"train.rate": ["0.1", "0.2"]}
    rows = [{"attn": "softmax", "train.rate": rate, "errors": errors} for rate in asked["train.rate"]]
    assert grids.figure(plan(asked), rows, {}, "error").axes[0].get_yscale() == scale


@pytest.mark.parametrize(("grid", "sigmas", "marked", "empty"), [
    ({"test.axes.length": ["5", "10"]}, "1,2,10", False, False),
    ({"train.rate": ["0.01", "0.02"], "test.axes.length": ["5", "10"]}, "1,2,10", False, False),
    ({"train.rate": ["0.01", "0.02"]}, "1", True, True),
])  # fmt: skip
def test_a_model_in_two_tests_has_no_best(where, grid, sigmas, marked, empty):
    fixed = ["train.steps=4", "test.prompts=64", "test.axes.sigma_x=1", f"test.axes.sigma_f={sigmas}"]
    with where.session() as lab:
        text = grids.measure(RunPlan("linear", ["softmax"], "smoke", fixed, grid=grid), lab, where).text
    assert (" * |" in text, "* least of a normalizer" in text) == (marked, marked)
    assert ("empty without such a test" in text) is empty


@pytest.mark.parametrize(
    ("grid", "more", "why"),
    [
        ({"train.rate": ["0.1"]}, {}, "a grid takes two or more values, got 0.1"),
        ({"train.rate": ["0.1", "0.1", "0.2"]}, {}, "each value is named once"),
        ({"train.rate": ["0.001", "1e-3"]}, {}, "train.rate=0.001 and train.rate=1e-3 are one specification"),
        ({"model.mlp": ["yes", "true"]}, {}, "model.mlp=yes and model.mlp=true are one specification"),
        ({"model.layers": ["1", "2"], "model.final_norm": ["block", "layer"]}, {}, "final_norm=layer are one"),
        ({"train.steps": ["4", "5"]}, {}, "both set and in the grid"),
        ({"train.rat": ["1", "2"]}, {}, "train.rat"),
        ({"train.rate": ["0.1", "zwei"]}, {}, "zwei"),
        ({"train.warmup": [*map(str, range(200))], "train.batch": [*map(str, range(8, 60))]}, {}, "10,400 runs"),
        ({"attn.n": ["1.5", "2"]}, {}, "none of softmax takes an option 'n'"),
        ({"attn.n": ["1.5", "2"]}, {"attns": ["ssa", "ssa:n=3"]}, "two of ssa, ssa:n=3 are one normalizer"),
        ({}, {"attns": ["ssa"], "settings": ["attn.n=2"]}, "say --attn ssa:n=VALUE, or --grid attn.n=VALUE,VALUE"),
        ({"train.rate": ["1", "2"]}, {"attns": ["ssa:n=1"]}, r"Its option learn \(yes or no or n, b\) says what is"),
    ],
)
def test_a_grid_that_cannot_be_is_refused_in_one_line(where, tmp_path, grid, more, why):
    with pytest.raises(LabError, match=why) as error, where.session() as lab:
        grids.measure(plan(grid, **more), lab, where)
    assert "\n" not in str(error.value)
    assert not (tmp_path / "runs").exists()


def test_an_option_of_a_normalizer_is_a_field_of_a_grid(where, tmp_path):
    """Softmax takes no n: it is one run, the same beside each."""
    asked = {**SMALL, "attn.n": [1.5, 2, 4]}
    table = icl.grid("linear", ["softmax", "ssa:b=2"], "smoke", asked, baseline="softmax", where=where)
    assert table[["attn.n", "attn"]].to_numpy().tolist() == [
        [n, attn] for n in ("1.5", "2", "4") for attn in ("softmax", "ssa:b=2")
    ]
    for n, each in table[table["attn"] == "ssa:b=2"].set_index("attn.n")["error"].items():
        run = icl.sweep("linear", f"ssa:n={n},b=2", "smoke", SMALL, where=where)
        assert each == run.grid.where(attn=run.attn, metric="mse-code", sigma_f=1.0).frame["value"].iloc[0]
    assert len({tuple(each) for each in table[table["attn"] == "softmax"]["errors"]}) == 1
    assert len(list((tmp_path / "runs").glob("linear/*/*/seed-0"))) == 4


def test_a_baseline_without_another_normalizer_is_refused(where):
    with pytest.raises(LabError, match="needs it and another normalizer"), where.session() as lab:
        grids.measure(plan({"train.rate": ["0.1", "0.2"]}), lab, where, baseline="softmax")


def test_lists_in_settings_are_for_grids():
    with pytest.raises(LabError, match=r"train\.rate has several values; icl\.grid"):
        icl.sweep("linear", "ssa", "smoke", {"train.rate": [0.1, 0.2]})
    with pytest.raises(LabError, match="a list of values"):
        icl.grid("linear", "ssa", "smoke", {"train.rate": 0.1})


def test_commas_inside_options_of_a_value_do_not_part_it():
    given = ("train.rate=0.1, 0.2", "model.positions=rotary:ntk=yes,base=50,none")
    assert grid_of(None, None, given) == {
        "train.rate": ["0.1", "0.2"],
        "model.positions": ["rotary:ntk=yes,base=50", "none"],
    }


def test_the_command_of_a_grid_names_it(where):
    line = plan({"train.rate": ["0.1", "0.2"]}).command("sweep", where)
    assert "--grid train.rate=0.1,0.2" in line
