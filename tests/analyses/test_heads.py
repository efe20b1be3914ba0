"""What heads attend to: rows of a model, statistics of any sign by hand, and along every axis of the test grid."""

import math

import pytest
import torch

from icl_lab.analyses import runner
from icl_lab.analyses.attention_rows import attention_rows, entropy, head_rows, shares, statistics
from icl_lab.analyses.findings import StoredGrids
from icl_lab.analyses.heads import Heads, cells_along_axes, spread_out, training
from icl_lab.base.grid import Grid
from icl_lab.pipeline import subject
from icl_lab.runs.measure import TestSpec, draw


def test_statistics_of_a_row_by_hand():
    weights = torch.tensor([0.5, 0.1, 0.2, 0.0, 0.2], dtype=torch.float64)
    found = {name: value.item() for name, value in statistics(weights, roles=2).items()}
    entropy = -(0.5 * math.log(0.5) + 0.1 * math.log(0.1) + 2 * 0.2 * math.log(0.2))
    wanted = {"largest": 0.5, "top-2": 0.7, "top-5": 1.0, "first": 0.5, "itself": 0.2, "previous": 0.0, "negative": 0.0}
    wanted |= {"entropy": entropy / math.log(5), "effective": math.exp(entropy), "numbers": 0.9, "answers": 0.1}
    assert found == pytest.approx(wanted)
    assert "numbers" not in statistics(weights, roles=1)
    assert statistics(torch.ones(1), roles=1)["entropy"].item() == 0


def test_the_five_largest_of_six_weights_are_summed():
    found = statistics(torch.tensor([0.3, 0.05, 0.2, 0.15, 0.2, 0.1]), roles=1)
    assert [found[name].item() for name in ("largest", "top-2", "top-5")] == pytest.approx([0.3, 0.5, 0.95])


def test_negative_weights_are_counted_among_all_keys():
    weights = torch.tensor([[0.5, -0.1, 0.0, -0.4], [0.25, 0.25, 0.25, 0.25]])
    assert statistics(weights, roles=1)["negative"].tolist() == [0.5, 0]


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
    assert training(grid) == {"sigma_f": 1, "sigma_x": 1, "length": 12}
    one = {"metric": "first", "sigma_f": 3, "sigma_x": 1, "length": 12, "layer": 0, "head": 0}
    assert grid.at(index=1, **one) == 1  # the first question sees one token only
    sums = [grid.at(index=12, **{**one, "metric": part}) for part in ("numbers", "answers")]
    assert sum(sums) == pytest.approx(1, abs=1e-6)
    table = Heads().table(found)
    assert sum("| sigma_f 3 |" in line for line in table) == 1
    assert sum("| as in training |" in line for line in table) == 1
    assert "log n with ssa (largest weight 0." in Heads().finding(found)


def test_heads_are_read_where_the_question_ends(runs, lab):
    settings = ["test.axes.length=32,48", "test.axes.depth=50"]
    groups = runs("needle:alphabet=4,keys=2", "softmax", settings=settings)
    found = runner.ask(Heads(prompts=64), groups, lab)
    assert found["heads"].values("index") == [1]
    assert "numbers" not in found["heads"].values("metric")
    assert "answers" not in "".join(Heads().table(found))


def test_claims_are_medians_over_heads_in_training_conditions():
    rows = [
        {"sigma": sigma, "length": 40, "layer": 0, "head": head, "index": index, "metric": "entropy"}
        | {"value": value * sigma + (index == 40), "stderr": 0, "count": 9}
        for sigma in (1.0, 10.0)
        for index in (1, 40)
        for head, value in enumerate((0.5, 0.25, 4.0))
    ]
    who = {"task": "every", "preset": "lite", "spec": "0", "seed": 0, "attn": "ssa"}
    analysis = Heads()
    found = StoredGrids({"heads": Grid.of(rows, ["sigma", "length", "layer", "head", "index"], **who)})
    assert analysis.value(found, "ssa", {}, "", 0) == 1.5
    assert analysis.value(found, "ssa", {"sigma": [10.0]}, "entropy", 0) == 6
    assert analysis.value(found, "ssa", {"sigma": [10.0], "index": [1]}, "entropy", 0) == 5
    assert analysis.value(found, "ssa", {"sigma": [1.0, 10.0], "index": [1]}, "entropy", 0) == 2.75
    assert analysis.value(found, "reference:0.1", {}, "negative", 0) == 0.1
    with pytest.raises(KeyError, match="no cell has metric=largest"):
        analysis.value(found, "ssa", {}, "largest", 0)


def test_entropy_and_shares_of_signed_weights():
    weights = torch.tensor([[0.5, -0.5, 0.0], [2.0, 0.0, 0.0]])
    assert shares(weights).tolist() == [[0.5, 0.5, 0.0], [1.0, 0.0, 0.0]]
    assert entropy(weights).tolist() == pytest.approx([math.log(2), 0.0])


def test_attention_rows_are_those_that_the_model_uses(tiny, untrained):
    trained = untrained(tiny("needle:alphabet=4,keys=2", "ssa", "test.axes.length=32,48", "test.axes.depth=50"))
    model, task, device = trained.model, trained.task, trained.lab.device
    prompt = draw(task, 32, TestSpec(prompts=64, axes={"length": [32.0]}), {})
    at = task.asking(32)
    (row, *_) = attention_rows(model, prompt, at, device)
    whole = {}
    model(prompt.tokens, watch=lambda layer, w, z: whole.update({layer: (w, z)}))
    n = len(row.weights)
    assert torch.allclose(row.weights[:, 0], whole[0][0][:n, :, at, : at + 1], atol=1e-6)
    assert torch.allclose(row.scores[:, 0], whole[0][1][:n, :, at, : at + 1], atol=1e-5)
    answered = subject(model, task, device).predict(prompt)[:n, task.answers]
    assert torch.allclose(row.outputs[:, task.answers], answered, atol=1e-5)


def test_rows_of_heads_hold_means_over_prompts():
    values = torch.tensor([[[1.0, 2.0]], [[3.0, 6.0]]])  # two prompts, one layer, two heads
    rows = head_rows({"largest": values}, {"length": 8})
    where = {"length": 8, "layer": 0, "metric": "largest", "count": 2}
    assert rows[0] == {**where, "head": 0, "value": 2.0, "stderr": pytest.approx(1.0)}  # sqrt(2 / 2)
    assert rows[1] == {**where, "head": 1, "value": 4.0, "stderr": pytest.approx(2.0)}  # sqrt(8 / 2)
