"""The residual stream at the query, put back part by part, on models small enough to know what each part does."""

import math

import pytest
import torch

from icl_lab import tasks
from icl_lab.analyses.saturation.measure import ALL, healing, patches, rows_at
from icl_lab.base.rng import stream
from icl_lab.model.gpt2 import GPT2, ModelSpec, TokenSpec
from icl_lab.runs.measure import TestSpec, draw

EVERY = tasks.build("every:balance=half")
QUERY = 3
TOKEN = 6  # of the last of four numbers


def model_of(**fields):
    """Three layers at random, with weights large enough for every part to count."""
    spec = ModelSpec(**{"layers": 3, "heads": 2, "width": 8, **fields})
    model = GPT2(spec, TokenSpec(1, 1, 2, 16), "softmax", stream(0, "init")).eval()
    with torch.no_grad():
        for name, p in model.named_parameters():
            if p.ndim == 2 and not name.startswith("positions"):
                p.mul_(8)
    return model


@pytest.fixture(scope="module")
def prompts():
    calm = draw(EVERY, 4, TestSpec(prompts=64, axes={"length": [4.0]}), {})
    return calm, EVERY.deviate(calm, [QUERY], 100.0)


def patched(model, prompt, *made):
    """The activations of a pass with patches."""
    return model.trace(prompt, {name: change for each in made for name, change in each.items()})


@torch.no_grad()
def test_patching_the_residual_stream_gives_the_calm_answers(prompts):
    model = model_of()
    calm, wild = (rows_at(model, prompt.tokens, TOKEN) for prompt in prompts)
    plain = [model(prompt.tokens) for prompt in prompts]
    for layer in range(3):  # the query's label, the one token that sees it, is not asked
        found = patched(model, prompts[1], patches("residual", [layer], TOKEN, calm, wild))["answers"]
        assert torch.equal(found[:, : TOKEN + 1], plain[0][:, : TOKEN + 1]), layer
    assert not torch.allclose(plain[0][:, TOKEN], plain[1][:, TOKEN], atol=1e-3)


@torch.no_grad()
@pytest.mark.parametrize("kind", ["attention", "mlp", "outputs", "input", "weights"])
def test_a_patch_puts_back_what_it_says_and_nothing_before_it(prompts, kind):
    model = model_of()
    calm, wild = (rows_at(model, prompt.tokens, TOKEN) for prompt in prompts)
    trace = patched(model, prompts[1], patches(kind, [1], TOKEN, calm, wild))
    found = {name: x[..., TOKEN, :] for name, x in trace.items()}
    for name in ("layers.0.attention", "layers.0.mlp", "layers.0.after"):
        assert torch.equal(found[name], wild[name])
    back = {"attention": ["attention"], "mlp": ["mlp"], "outputs": ["attention", "mlp"]}.get(kind, [])
    for name in ("attention", "mlp"):
        assert torch.equal(found[f"layers.1.{name}"], calm[f"layers.1.{name}"]) == (name in back)
    if kind == "input":
        moved = wild["layers.1.after"] + calm["layers.0.before"] - wild["layers.0.before"]
        assert torch.allclose(found["layers.1.after"], moved, rtol=1e-5, atol=1e-4)
    if kind == "weights":

        def watch(layer, own, scores):
            rows = own[:, :, :TOKEN], calm["layers.1.weights"].unsqueeze(2), own[:, :, TOKEN + 1 :]
            return torch.cat(rows, 2) if layer == 1 else own

        by_hand = model(prompts[1].tokens, watch)
        assert torch.allclose(trace["answers"], by_hand, rtol=1e-5, atol=1e-5)
        assert not torch.allclose(found["layers.1.attention"], wild["layers.1.attention"], atol=1e-3)
    plain = model(prompts[1].tokens)
    assert torch.allclose(trace["answers"][:, :TOKEN], plain[:, :TOKEN], rtol=1e-5, atol=1e-5)


@torch.no_grad()
def test_all_outputs_and_the_input_together_are_the_calm_prompt(prompts):
    """Each by itself is not: the two halves of the stream at the end."""
    model = model_of()
    calm, wild = (rows_at(model, prompt.tokens, TOKEN) for prompt in prompts)
    kinds = ("outputs", range(3)), ("input", [2])
    outputs, entry = (patches(kind, layers, TOKEN, calm, wild) for kind, layers in kinds)
    aim = model(prompts[0].tokens)[:, TOKEN]
    both = patched(model, prompts[1], outputs, entry)["answers"]
    assert torch.allclose(both[:, TOKEN], aim, atol=1e-3)
    for changes in (outputs, entry):
        one = patched(model, prompts[1], changes)["answers"]
        assert not torch.allclose(one[:, TOKEN], aim, atol=1e-2)


def shares_of(model, factor=100.0):
    calm = draw(EVERY, 4, TestSpec(prompts=256, axes={"length": [4.0]}), {})
    rows = healing(model, EVERY, calm, QUERY, factor)
    return {(row["metric"], row["layer"]): row["value"] for row in rows}


def all_zero():
    """A model of one layer without norms, every number of it 0, to be written by hand."""
    spec = ModelSpec(layers=1, heads=1, width=4, positions="none", norm=False)
    model = GPT2(spec, TokenSpec(1, 1, 2, 16), "softmax", stream(0, "init")).eval()
    with torch.no_grad():
        for p in model.parameters():
            p.zero_()
    return model


def test_a_number_that_drowns_the_context_by_hand():
    """The answer is the number itself minus a bound on it: right while the number is below the bound, which is 30.

    No part of the attention or of the MLP knows the number, so that only its own part of the stream does harm.
    """
    model = all_zero()
    with torch.no_grad():
        model.read_in.weight[0, 0] = 1.0
        model.blocks[0].attention.project.bias[1] = 30.0  # what the context says: false
        model.blocks[0].attention.project.bias[3] = 40.0  # nobody reads it: the norm of (30, 40) is 50
        model.read_out.weight[0, 0] = 1.0
        model.read_out.weight[0, 1] = -1.0
    found = shares_of(model, factor=1e6)
    assert found["input-healed", 0] == pytest.approx(1)
    assert found["residual-healed", 0] == pytest.approx(1)
    parts = ("weights", "attention", "mlp", "outputs")
    assert {found[f"{part}-healed", layer] for part in parts for layer in (ALL, 0)} == {0}
    assert found["attention-norm", 0] == pytest.approx(50)
    assert found["mlp-norm", 0] == 0
    assert found["stream-norm", 0] > 1e5


def test_a_number_that_acts_through_the_mlp_alone_by_hand():
    """The read-out does not see the number; the MLP copies it, and putting its output back heals everything."""
    model = all_zero()
    with torch.no_grad():
        model.read_in.weight[0, 0] = 1.0
        model.blocks[0].mlp.widen.weight[0, 0] = 1.0
        model.blocks[0].mlp.project.weight[2, 0] = 1.0
        model.read_out.weight[0, 2] = 1.0
        model.read_out.bias[0] = -50.0
    found = shares_of(model, factor=1e6)
    assert found["mlp-healed", 0] == found["mlp-healed", ALL] == found["outputs-healed", ALL] == pytest.approx(1)
    assert found["weights-healed", ALL] == found["attention-healed", ALL] == 0
    assert found["input-healed", 0] == 0  # after the block the MLP has read the number already


def test_nothing_added_is_no_share_and_a_missing_part_has_no_row():
    found = shares_of(model_of(layers=1, mlp=False), factor=1.0)
    assert all(math.isnan(value) for (metric, _), value in found.items() if metric.endswith("-healed"))
    assert {metric for metric, _ in found} == {
        *(f"{kind}-healed" for kind in ("weights", "attention", "outputs", "input", "residual")),
        *("attention-norm", "stream-norm"),
    }


def test_another_truth_is_refused():
    linear = tasks.build("linear")
    calm = draw(linear, 8, TestSpec(prompts=16, axes={"length": [8.0]}), {})
    with pytest.raises(ValueError, match="the truth of the last answer changes with the number at index 7"):
        healing(model_of(), linear, calm, 7, 10.0)
