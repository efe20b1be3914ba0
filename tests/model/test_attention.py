"""The attention inside a model: watched, replaced, bounded, and left out."""

import pytest
import torch

from icl_lab.base.rng import stream
from icl_lab.model.gpt2 import GPT2, ModelSpec, TokenSpec
from icl_lab.runs.spec import resolve


def model_of(attn="softmax", tokens=24, **fields):
    return GPT2(ModelSpec(**fields), TokenSpec(1, 1, 2, tokens), attn, stream(0, "init")).eval()


@torch.no_grad()
def test_weights_that_a_watch_returns_are_used():
    model = model_of(layers=1, heads=2, width=8, positions="none", norm=False)
    model.blocks[0].attention.qkv.weight.mul_(50)  # far from uniform
    model.blocks[0].attention.project.weight.mul_(50)
    tokens = torch.randn(4, 24, 1, generator=stream(0, "x"))
    plain, kept = model(tokens), {}
    assert torch.equal(model(tokens, lambda layer, w, z: kept.update({layer: w})), plain)
    assert torch.allclose(model(tokens, lambda layer, w, z: kept[layer]), plain, atol=1e-6)
    mean = model(tokens, lambda layer, w, z: torch.full_like(w, 1 / 24))
    model.swap_rule("average")
    assert torch.allclose(mean[:, -1], model(tokens)[:, -1], atol=1e-6)
    assert not torch.allclose(mean[:, -1], plain[:, -1], atol=1e-2)


@torch.no_grad()
@pytest.mark.parametrize("attn", ["ssa+gated", "ssa+gated:per=channel,phi=softplus", "differential", "forget+gated"])
def test_watched_weights_are_finished_as_their_own(attn):
    model = model_of(attn, layers=2, heads=2, width=8, positions="none").double()
    for p in model.parameters():
        p.mul_(5 if p.ndim == 2 else 1)  # gates far from what they start at
    tokens, kept = torch.randn(4, 24, 1, generator=stream(0, "x"), dtype=torch.float64), {}
    plain = model(tokens, lambda layer, w, z: kept.update({layer: w}))
    assert torch.allclose(model(tokens, lambda layer, w, z: kept[layer]), plain, atol=1e-12)
    halved = model(tokens, lambda layer, w, z: torch.full_like(w, 1 / 24).tril())
    assert not torch.allclose(halved, plain, atol=1e-6)


def test_a_rule_is_handed_what_the_projections_read():
    """The tokens after the norm, of the layer's own pass: by hand from a layer's input."""
    model, read, seen = model_of("forget", layers=1, heads=2, width=8, positions="none"), [], []
    model.blocks[0].attention.qkv.register_forward_pre_hook(lambda _, given: read.append(given[0]))
    rule = model.blocks[0].attention.rule
    usual = rule.attend
    rule.attend = lambda *given, x: seen.append(x) or usual(*given, x=x)
    model(torch.randn(3, 5, 1, generator=stream(0, "x")))
    assert torch.equal(seen[0], read[0])


@pytest.mark.parametrize("attn", ["softmax+gated", "forget", "qassmax", "differential", "elastic:bias=5"])
def test_maps_of_a_normalizer_leave_other_starts_alone(attn):
    """The start of a model hangs on its seed alone, and Muon moves none of a normalizer's matrices."""
    plain, model = model_of(layers=2, heads=2, width=8), model_of(attn, layers=2, heads=2, width=8)
    others = {name: p for name, p in model.named_parameters() if ".rule." not in name}
    assert others.keys() == dict(plain.named_parameters()).keys()
    assert all(torch.equal(p, others[name]) for name, p in plain.named_parameters())
    assert model.matrices() == plain.matrices()
    assert any(p.ndim == 2 for name, p in model.named_parameters() if ".rule." in name) is (attn != "differential")


def test_mlp_alone_answers_from_one_token():
    """Without attention the examples before a number change nothing: no learning in context."""
    model = model_of(layers=2, heads=2, width=16, attention=False)
    x = torch.randn(2, 12, 1, generator=stream(0, "x"), requires_grad=True)
    (gradient,) = torch.autograd.grad(model(x)[:, 8].sum(), x)
    assert gradient[:, 8].abs().min() > 0
    assert gradient[:, [*range(8), *range(9, 12)]].abs().max() == 0


@torch.no_grad()
@pytest.mark.parametrize("fields", [{}, {"block": "llama"}, {"norm": False}], ids=str)
def test_a_norm_after_the_read_in_bounds_the_first_block(fields):
    """By hand, with a read-in and positions that a test writes down: (x - mean) / sd, or x / rms for llama."""
    tokens = torch.tensor([[[0.5], [-1.0], [1000.0]]])
    entered = {}
    for norm_in in (False, True):
        model = model_of(layers=1, heads=1, width=4, norm_in=norm_in, **fields)
        model.blocks[0].register_forward_pre_hook(lambda block, given, at=norm_in: entered.update({at: given[0]}))
        model(tokens)
    x = entered[False].double()
    middle = 0 if fields.get("block") == "llama" else x.mean(-1, keepdim=True)
    by_hand = (x - middle) / ((x - middle).square().mean(-1, keepdim=True) + 1e-5).sqrt()
    assert torch.allclose(entered[True].double(), by_hand, atol=1e-5)
    assert entered[False][0, 2].norm() > 300
    assert entered[True][0, 2].norm() < 2 + 1e-4  # sqrt(width)


def test_without_norm_after_the_read_in_a_model_is_what_it_was():
    """No parameter more, and the same draws for all others with and without it."""
    plain, normed = (dict(model_of(layers=2, heads=2, width=8, norm_in=on).named_parameters()) for on in (False, True))
    assert set(normed) - set(plain) == {"norm_in.weight", "norm_in.bias"}
    assert set(plain) <= set(normed)
    for name, p in plain.items():
        assert torch.equal(p, normed[name]), name
    for spec, hash in ((resolve("linear", "softmax"), "aaa54924"), (resolve("every:balance=half", "ssa"), "6109698a")):
        assert spec.hash == hash
    assert resolve("linear", "softmax", "lite", ["model.norm_in=yes"]).hash != resolve("linear", "softmax").hash
