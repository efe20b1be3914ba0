"""Single numbers of a disturbed prompt: classified alone, and read from the residual stream."""

import math

import pytest
import torch

from icl_lab import tasks
from icl_lab.analyses import runner
from icl_lab.analyses.probe import Probe, fit, metrics_and_layers, readings, states
from icl_lab.base.grid import Grid
from icl_lab.base.rng import stream
from icl_lab.model.gpt2 import GPT2, ModelSpec, TokenSpec
from icl_lab.runs.measure import TestSpec, draw

CPU = torch.device("cpu")
TASK = tasks.build("every:balance=half")
TEST = TestSpec(prompts=128, axes={"length": [12.0]})


def model_of(**fields):
    spec = ModelSpec(layers=2, heads=2, width=16, positions="none", **fields)
    return GPT2(spec, TokenSpec(1, 1, 2, 24), "softmax", stream(0, "init")).eval()


def sign_reader(through=1.0):
    """A model without blocks that do anything: it answers with the sign of the number that it reads."""
    model = model_of(norm=False, mlp=False, attention=False)
    with torch.no_grad():
        model.read_in.bias.zero_()
        model.read_in.weight.fill_(1.0)
        model.read_in.weight[0] = -1.0
        model.read_out.weight.fill_(through / 14)
        model.read_out.bias.zero_()
    return model


def grid_of(model, at=0, factors=(1.0, 100.0), seed=1):
    lessons = TASK.sample(stream(seed, "lesson"), 128, 12)
    rows = readings(model, TASK, lessons, draw(TASK, 12, TEST, {}), at, factors, CPU)
    return Grid.of(rows, ["layer", "factor"])


def test_numbers_stand_alone_in_order():
    prompt = TASK.prompt_of([1, -2, 3])
    single = TASK.singly(prompt)
    assert single.tokens[:, 0, 0].tolist() == [1, -2, 3]
    assert single.tokens.shape == (3, 2, 1)
    assert (single.targets[:, 0] > 0).tolist() == [True, False, True]  # not what the prompt says after each
    some = tasks.build("some")
    assert (some.singly(some.prompt_of([1, -2, 3])).targets[:, 0] > 0).tolist() == [True, False, True]


def test_model_of_signs_is_right_alone_and_wrong_together():
    grid = grid_of(sign_reader())
    assert set(grid.where(metric=["alone-deviant", "alone-others"]).frame["value"]) == {0}
    # True prompts end with a positive number; false ones with either: a half or so of them are answered wrongly.
    assert 0.1 < grid.at(metric="together", factor=1.0) < 0.4
    inverted = grid_of(sign_reader(through=-1.0))
    assert inverted.at(metric="alone-others", factor=1.0) == 1


def test_only_one_number_grows_and_is_none_of_the_others():
    """A model that takes the sign of a number beyond 20 for the opposite errs there, and there alone."""
    model = sign_reader()
    read = model.forward
    model.forward = lambda tokens, *rest, **more: torch.where(tokens.abs() > 20, -tokens, read(tokens, *rest, **more))
    grid = grid_of(model, at=3, factors=(1.0, 1e6))
    assert [grid.at(metric="alone-deviant", factor=factor) for factor in (1.0, 1e6)] == [0, 1]
    assert [grid.at(metric="alone-others", factor=factor) for factor in (1.0, 1e6)] == [0, 0]
    large = TASK.deviate(draw(TASK, 12, TEST, {}), [3], 1e6)  # asked of another index, it is one of eleven
    rows = readings(model, TASK, TASK.sample(stream(1, "lesson"), 128, 12), large, 4, [1.0], CPU)
    found = Grid.of(rows, ["layer", "factor"]).at(metric="alone-others")
    assert found == pytest.approx(1 / 11, abs=0.03)


def test_both_classes_weigh_the_same():
    """Index 0 is negative in one prompt of 24: a model that always says positive is wrong half of the time there."""
    model = sign_reader(through=0.0)
    with torch.no_grad():
        model.read_out.bias.fill_(1.0)
    grid = grid_of(model)
    assert grid.at(metric="alone-deviant", factor=1.0) == 0.5
    assert grid.at(metric="together", factor=1.0) == 0.5


def test_probe_reads_only_what_the_states_hold():
    grid = grid_of(sign_reader())
    assert grid.where(metric="probe-deviant", factor=100.0).frame["value"].tolist() == [0] * 3  # at each layer
    blind = sign_reader()
    with torch.no_grad():
        blind.read_in.weight.zero_()
    assert grid_of(blind).at(metric="probe-others", factor=1.0, layer=2) == 0.5


def test_weights_of_a_probe_by_hand():
    """Two points a class on a line, one class three times as often: the border stays in the middle."""
    points = torch.tensor([[[2.0]], [[2.0]], [[2.0]], [[-2.0]]]).double()
    classes = torch.tensor([[True], [True], [True], [False]])
    slope, offset = fit(points, classes).tolist()
    # Weighted normal equations: sum of c x^2 = 8, of c = 2, of c x y = 4, of c y = 0; ridge 1e-3 times their mean, 5.
    assert slope == pytest.approx(4 / (8 + 0.005))
    assert offset == pytest.approx(0, abs=1e-12)


@pytest.mark.slow
def test_states_stand_between_the_blocks_and_are_normed():
    model = model_of()
    prompt = draw(TASK, 12, TEST, {}).take(3)
    first, *_, last = states(model, TASK, prompt)
    read = model.read_in(prompt.tokens)[:, ::2]
    torch.testing.assert_close(first.float(), torch.nn.functional.layer_norm(read, (16,), eps=0.0))
    assert first.shape == last.shape == (3, 12, 16)
    model.norm = torch.nn.Identity()
    even = torch.nn.LayerNorm(16, eps=0.0, elementwise_affine=False)
    torch.testing.assert_close(model.read_out(even(_stream(model, prompt))), model.read_out(last.float()))
    assert not any(block._forward_hooks for block in model.blocks)


def _stream(model, prompt):
    kept = {}
    hook = model.norm.register_forward_hook(lambda norm, read, written: kept.update(x=read[0]))
    model(prompt.tokens)
    hook.remove()
    return kept["x"][:, ::2]


@pytest.mark.slow
def test_table_and_figure_of_finished_runs(runs, lab):
    groups = runs("every:balance=half", "softmax", "ssa")
    analysis = Probe(position=1, factors=(100.0,), prompts=64)
    found = runner.ask(analysis, groups, lab)
    assert found["probe"].values("factor") == [1.0, 100.0]  # the undisturbed prompt is always among them
    assert metrics_and_layers(found)[0] == ("together", -1.0)
    assert len(metrics_and_layers(found)) == 3 + 2 * 2
    text = "\n".join(analysis.table(found))
    assert "| `ssa` | others, by probe after layer 1 |" in text
    assert "| `ssa` | others, by probe as read in |" in text
    assert "by a linear probe after layer 1 it is " in analysis.finding(found)
    assert analysis.tag == "at-1"


def test_claims_are_read_from_stored_files(tmp_path):
    who = {"task": "every", "preset": "lite", "spec": "0", "seed": 3, "attn": "ssa"}
    errors = {("together", -1.0): 0.25, ("probe-others", 0.0): 0.5, ("probe-others", 1.0): 0.125}
    rows = [
        {"metric": metric, "layer": layer, "factor": factor, "value": error * factor, "stderr": factor, "count": 9}
        for (metric, layer), error in errors.items()
        for factor in (1.0, 2.0)
    ]
    analysis, one = Probe(), {"factor": [1.0]}
    (tmp_path / "probe.csv").write_text(Grid.of(rows, ["layer", "factor"], **who).csv())
    found = analysis.read(tmp_path)
    assert analysis.seeds(found) == [3]
    assert analysis.value(found, "ssa", {"factor": [1.0, 2.0]}, "", 3) == 0.375
    assert analysis.value(found, "ssa", one, "probe-others", 3) == 0.125  # the last layer
    assert analysis.value(found, "ssa", {**one, "layer": [0.0]}, "probe-others", 3) == 0.5
    assert analysis.prompts_error(found, "ssa", {"factor": [1.0, 2.0]}, "", 3) == 1.5
    assert analysis.value(found, "reference:0.5", one, "", 3) == 0.5
    with pytest.raises(KeyError, match="names its factor"):
        analysis.value(found, "ssa", {}, "", 3)
    unknown = Grid.of([row | {"value": math.nan} for row in rows], ["layer", "factor"], **who)
    (tmp_path / "probe.csv").write_text(unknown.csv())
    with pytest.raises(KeyError, match="all of one class"):
        analysis.value(analysis.read(tmp_path), "ssa", one, "", 3)
