"""Single numbers of a disturbed prompt: asked alone, and read from the residual stream."""

import pytest
import torch

from icl_lab import tasks
from icl_lab.analyses import probe, probes
from icl_lab.errors import BadValue
from icl_lab.grid import Grid
from icl_lab.model.gpt2 import GPT2, ModelSpec, Reading
from icl_lab.rng import stream
from icl_lab.runs.measure import TestSpec, draw
from icl_lab.runs.spec import resolve
from icl_lab.sweep import sweep

CPU = torch.device("cpu")
TASK = tasks.build("every:balance=half")
TEST = TestSpec(prompts=128, axes={"length": [12.0]})


def model_of(**fields):
    spec = ModelSpec(layers=2, heads=2, width=16, positions="none", **fields)
    return GPT2(spec, Reading(1, 1, 2, 24), "softmax", stream(0, "init")).eval()


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


def table(model, at=0, factors=(1.0, 100.0), seed=1):
    taught = TASK.sample(stream(seed, "lesson"), 128, 12)
    rows = probe.probe(model, TASK, taught, draw(TASK, 12, TEST, {}), at, factors, CPU)
    return Grid.of(rows, ["layer", "factor"])


def test_each_number_of_the_prompts_stands_alone_in_order():
    prompt = TASK.prompt_of([1, -2, 3])
    single = TASK.singly(prompt)
    assert single.tokens[:, 0, 0].tolist() == [1, -2, 3]
    assert single.tokens.shape == (3, 2, 1)
    assert (single.targets[:, 0] > 0).tolist() == [True, False, True]  # not what the prompt says after each
    some = tasks.build("some")
    assert (some.singly(some.prompt_of([1, -2, 3])).targets[:, 0] > 0).tolist() == [True, False, True]


def test_a_model_that_knows_signs_is_right_alone_and_wrong_together():
    grid = table(sign_reader())
    for factor in (1.0, 100.0):
        assert grid.at(metric="alone-deviant", factor=factor) == 0
        assert grid.at(metric="alone-others", factor=factor) == 0
    # True prompts end with a positive number; false ones with either: a half or so of them are answered wrongly.
    assert 0.1 < grid.at(metric="together", factor=1.0) < 0.4
    inverted = table(sign_reader(through=-1.0))
    assert inverted.at(metric="alone-others", factor=1.0) == 1


def test_only_the_number_that_grows_grows():
    """A model that takes the sign of a number beyond 20 for the opposite errs there, and there alone."""
    model = sign_reader()
    read = model.forward
    model.forward = lambda tokens, *rest, **more: torch.where(tokens.abs() > 20, -tokens, read(tokens, *rest, **more))
    grid = table(model, at=3, factors=(1.0, 1e6))
    assert [grid.at(metric="alone-deviant", factor=factor) for factor in (1.0, 1e6)] == [0, 1]
    assert [grid.at(metric="alone-others", factor=factor) for factor in (1.0, 1e6)] == [0, 0]


def test_both_classes_weigh_the_same_however_rare_one_is():
    """Index 0 is negative in one prompt of 24: a model that always says positive is wrong half of the time there."""
    model = sign_reader(through=0.0)
    with torch.no_grad():
        model.read_out.bias.fill_(1.0)
    grid = table(model)
    assert grid.at(metric="alone-deviant", factor=1.0) == 0.5
    assert grid.at(metric="together", factor=1.0) == 0.5


def test_a_probe_reads_what_is_there_and_not_what_is_not():
    grid = table(sign_reader())
    for layer in (0, 1, 2):
        assert grid.at(metric="probe-deviant", factor=100.0, layer=layer) == 0
    blind = sign_reader()
    with torch.no_grad():
        blind.read_in.weight.zero_()
    assert table(blind).at(metric="probe-others", factor=1.0, layer=2) == 0.5


def test_the_map_of_a_probe_by_hand():
    """Two points a class on a line, one class three times as often: the border stays in the middle."""
    states = torch.tensor([[[2.0]], [[2.0]], [[2.0]], [[-2.0]]]).double()
    classes = torch.tensor([[True], [True], [True], [False]])
    slope, offset = probe.fit(states, classes).tolist()
    # Weighted normal equations: sum of c x^2 = 8, of c = 2, of c x y = 4, of c y = 0; ridge 1e-3 times their mean, 5.
    assert slope == pytest.approx(4 / (8 + 0.005))
    assert offset == pytest.approx(0, abs=1e-12)


def test_states_are_those_between_the_blocks_as_the_next_norm_hands_them_on():
    model = model_of()
    prompt = draw(TASK, 12, TEST, {}).take(3)
    first, *_, last = probe.numbers(model, TASK, prompt, CPU)
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


def test_probes_of_finished_runs(tiny, lab):
    runs = {}
    for attn in ("softmax", "ssa"):
        spec = tiny("every:balance=half", attn, "train.steps=5")
        sweep(spec, 0, lab)
        runs[attn] = [lab.store.run(spec, 0)]
    found = probes.examine(runs, lab, 1, [1.0, 100.0], 64)
    assert found.rules == ["softmax", "ssa"]
    assert found.places()[0] == ("together", -1.0)
    assert len(found.places()) == 3 + 2 * 2
    text, files = probes.publish(found, runs["ssa"][0].spec, lab.store.root / "p", "icl-lab probe")
    assert set(files) == {"probe.csv", "table.md", "probe.png", "probe.svg"}
    assert "| `ssa` | others, by probe after layer 1 |" in text
    assert "| `ssa` | others, by probe as read in |" in text
    assert Grid.read(lab.store.root / "p" / "probe.csv").axes == ["layer", "factor"]


def test_what_cannot_be_asked_is_said(tiny):
    with pytest.raises(BadValue, match="linear has no answer to a single number; take every or some"):
        probes.check(resolve("linear", "softmax"), 0)
    with pytest.raises(BadValue, match="needle has no answer to a single number"):
        probes.check(resolve("needle", "softmax"), 0)
    with pytest.raises(BadValue, match="at an index from 0 to"):
        probes.check(tiny("every"), 99)
