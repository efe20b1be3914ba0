"""What heads attend to: statistics by hand, and along every axis of the test grid."""

import math

import pytest
import torch

from icl_lab.analyses import runner
from icl_lab.analyses.attention_rows import statistics
from icl_lab.analyses.heads import Heads, cells_along_axes, spread_out, training
from icl_lab.base.grid import Grid


def test_statistics_of_a_row_by_hand():
    weights = torch.tensor([0.5, 0.1, 0.2, 0.0, 0.2], dtype=torch.float64)
    found = {name: value.item() for name, value in statistics(weights, roles=2).items()}
    entropy = -(0.5 * math.log(0.5) + 0.1 * math.log(0.1) + 2 * 0.2 * math.log(0.2))
    assert found == pytest.approx(
        {
            "largest": 0.5,
            "top-2": 0.7,
            "top-5": 1.0,
            "entropy": entropy / math.log(5),
            "effective": math.exp(entropy),
            "first": 0.5,
            "itself": 0.2,
            "previous": 0.0,
            "negative": 0.0,
            "numbers": 0.9,
            "answers": 0.1,
        }
    )
    assert "numbers" not in statistics(weights, roles=1)
    assert statistics(torch.ones(1), roles=1)["entropy"].item() == 0


def test_the_five_largest_of_six_weights_are_summed():
    found = statistics(torch.tensor([0.3, 0.05, 0.2, 0.15, 0.2, 0.1]), roles=1)
    assert [found[name].item() for name in ("largest", "top-2", "top-5")] == pytest.approx([0.3, 0.5, 0.95])


def test_negative_weights_are_counted_among_all_keys():
    weights = torch.tensor([[0.5, -0.1, 0.0, -0.4], [0.25, 0.25, 0.25, 0.25]])
    assert statistics(weights, roles=1)["negative"].tolist() == [0.5, 0]
    assert statistics(weights, roles=1)["largest"].tolist() == pytest.approx([0.5, 0.25])


def test_cells_differ_from_training_along_one_axis():
    here, axes = {"sigma": 1.0, "length": 40.0}, {"sigma": [1.0, 3.0], "length": [10.0, 40.0]}
    assert cells_along_axes(here, axes) == [here, {"sigma": 3.0, "length": 40.0}, {"sigma": 1.0, "length": 10.0}]


def test_answers_are_spread_evenly_in_the_logarithm():
    assert spread_out(32) == [1, 2, 4, 8, 16, 32]
    assert spread_out(3) == [1, 2, 3]


@pytest.mark.slow
def test_grid_and_table_of_finished_runs(runs, lab):
    groups = runs("linear", "ssa", settings=["test.axes.sigma_f=1,3"])
    found = runner.ask(Heads(prompts=64), groups, lab)
    grid = found["heads"]
    assert grid.axes == ["sigma_x", "sigma_f", "length", "layer", "head", "index"]
    assert training(grid) == {"sigma_f": 1, "sigma_x": 1, "length": 12}
    one = {"metric": "first", "sigma_f": 3, "sigma_x": 1, "length": 12, "layer": 0, "head": 0}
    assert grid.at(index=1, **one) == 1  # the first question sees one token only
    sums = [grid.at(index=12, **{**one, "metric": part}) for part in ("numbers", "answers")]
    assert sum(sums) == pytest.approx(1, abs=1e-6)
    table = Heads().table(found)
    assert sum("| sigma_f 3 |" in line for line in table) == 1
    assert sum("| as in training |" in line for line in table) == 1
    assert list(Heads().figures(found, "a title")) == ["heads"]
    assert "log n with ssa (largest weight 0." in Heads().finding(found)


def test_heads_are_read_where_the_question_ends(runs, lab):
    settings = ["test.axes.length=32,48", "test.axes.depth=50"]
    groups = runs("needle:alphabet=4,keys=2", "softmax", settings=settings)
    found = runner.ask(Heads(prompts=64), groups, lab)
    assert found["heads"].values("index") == [1]
    assert "numbers" not in found["heads"].values("metric")
    assert "answers" not in "".join(Heads().table(found))


def test_claims_are_medians_over_heads_in_training_conditions(tmp_path):
    rows = [
        {"sigma": sigma, "length": 40, "layer": 0, "head": head, "index": index, "metric": "entropy"}
        | {"value": value * sigma + (index == 40), "stderr": 0, "count": 9}
        for sigma in (1.0, 10.0)
        for index in (1, 40)
        for head, value in enumerate((0.5, 0.25, 4.0))
    ]
    who = {"task": "every", "preset": "lite", "spec": "0", "seed": 0, "attn": "ssa"}
    grid = Grid.of(rows, ["sigma", "length", "layer", "head", "index"], **who)
    (tmp_path / "heads.csv").write_text(grid.csv())
    analysis = Heads()
    found = analysis.read(tmp_path)
    assert analysis.seeds(found) == [0]
    assert analysis.value(found, "ssa", {}, "", 0) == 1.5
    assert analysis.value(found, "ssa", {"sigma": [10.0]}, "entropy", 0) == 6
    assert analysis.value(found, "ssa", {"sigma": [10.0], "index": [1]}, "entropy", 0) == 5
    assert analysis.value(found, "ssa", {"sigma": [1.0, 10.0], "index": [1]}, "entropy", 0) == 2.75
    assert analysis.value(found, "reference:0.1", {}, "negative", 0) == 0.1
    with pytest.raises(KeyError, match="no cell has metric=largest"):
        analysis.value(found, "ssa", {}, "largest", 0)
