"""The forward pass of the page is torch's, whatever a model is made of; what is changed in it has the same effect."""

from itertools import product

import pytest
import torch

from icl_lab.model.gpt2 import TokenSpec
from tests.cases import few

pytestmark = pytest.mark.slow

PROMPT = [1.0, -0.5, -2.0, 0.7, 30.0, 1.0, 0.1, -1.0, -0.4, 0.3, 2.2, -1.7, 0.0, 5.0, -3.0, 1.0, 0.6]
SHAPES = {
    "llama, norms of queries and keys, rotary": {"block": "llama", "qk_norm": True, "positions": "rotary"},
    "no MLP, sinusoidal, odd widths": {"mlp": False, "positions": "sinusoidal:theta=500", "heads": 2, "width": 14},
    "no norms, no positions, one head": {"norm": False, "positions": "none", "heads": 1, "layers": 3},
    "norms in front and of queries and keys, tagged": {"norm_in": True, "qk_norm": True, "roles": "tagged"},
    "rotary, stretched beyond training, one layer": {"positions": "rotary:ntk=yes", "layers": 1},
    "a norm in front only": {"norm_in": True, "norm": False, "layers": 1},
}


@pytest.mark.parametrize("spec", few(1, SHAPES.values()), ids=SHAPES)
def test_models_of_any_shape(build, compute, true, apart, spec):
    model = build("ssa", sharp=1.0, **spec)
    assert max(apart(compute(model, [PROMPT])[0], true(model, PROMPT)).values()) < 1e-5


@pytest.mark.exhaustive
def test_many_prompts_of_any_length(build, compute, true, apart):
    model = build("softmax", sharp=2.0)
    rng = torch.Generator().manual_seed(1)
    prompts = [(3 * torch.randn(1 + number % 40, generator=rng)).tolist() for number in range(50)]
    found = compute(model, prompts)
    assert max(max(apart(each, true(model, p)).values()) for each, p in zip(found, prompts, strict=True)) < 1e-5


@pytest.mark.exhaustive
def test_tokens_of_several_numbers(build, compute, true, apart):
    model = build("lssa", layers=1, reading=TokenSpec(3, 4, 1, 12))
    assert max(apart(compute(model, [PROMPT[:15]])[0], true(model, PROMPT[:15])).values()) < 1e-5


def test_tokens_that_are_whole_numbers(build, compute, true, apart):
    model = build("softmax", layers=1, reading=TokenSpec(1, 7, 1, 12, vocabulary=7))
    tokens = [0, 6, 3, 3, 5, 1, 2]
    found, wanted = compute(model, [tokens])[0], true(model, tokens)
    assert found["outputs"].shape == (7, 7)
    assert max(apart(found, wanted).values()) < 1e-5


@pytest.mark.exhaustive
def test_positions_that_were_swapped_after_training(build, compute, true, apart):
    model = build("softmax", layers=1, positions="rotary")
    model.swap_positions("rotary:theta=7")
    found = compute(model, [PROMPT])[0]
    assert max(apart(found, true(model, PROMPT)).values()) < 1e-5


@pytest.mark.parametrize("rule", few(1, ["softmax", "ssa+gated"]))
def test_a_head_that_is_off_adds_nothing(build, compute, true, apart, rule):
    model = build(rule)
    found = compute(model, [PROMPT], off=[[0, 1], [1, 2]])[0]
    with torch.no_grad():  # columns of the projection read the heads one after another
        model.blocks[0].attention.project.weight[:, 8:16] = 0
        model.blocks[1].attention.project.weight[:, 16:24] = 0
    assert max(apart(found, true(model, PROMPT)).values()) < 1e-5


@pytest.mark.parametrize("heads", [[(0, 1)], [(1, 0), (1, 1), (1, 2), (1, 3)], "all"])
@pytest.mark.parametrize("rule", few(1, ["softmax", "differential"]))
def test_patched_attention_is_that_of_a_patch_in_the_model(build, compute, true, apart, heads, rule):
    """The weights of a calm prompt stand in the place of a head's own, and what comes after reads what that makes."""
    model, calm = build(rule), [0.5 * x if x != 30.0 else 0.2 for x in PROMPT]
    kept = true(model, calm)["weights"]
    chosen = list(product(range(2), range(4))) if heads == "all" else heads
    t = len(PROMPT)
    visible = torch.ones(t, t).tril().bool().numpy()
    patch = [kept[at][visible].tolist() if at in chosen else None for at in product(range(2), range(4))]

    def put(layer, weights, scores):
        weights = weights.clone()
        for there, head in chosen:
            if there == layer:
                weights[:, head] = torch.from_numpy(kept[layer, head])
        return weights

    found, wanted = compute(model, [PROMPT], patch=patch)[0], true(model, PROMPT, put)
    assert abs(found["outputs"] - true(model, PROMPT)["outputs"]).max() > 1e-3  # it does something
    assert max(apart(found, wanted)[part] for part in ("outputs", "scores")) < 1e-5
