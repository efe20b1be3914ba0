"""Bidirectional attention (``model.mask=full``): what tokens see, what rules and position codes make of both sides."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from icl_lab import normalizers, tasks
from icl_lab.base.errors import BadValue
from icl_lab.base.rng import stream
from icl_lab.model import positions
from icl_lab.model.gpt2 import GPT2, ModelSpec, TokenSpec
from icl_lab.normalizers.base import count, full, is_full
from icl_lab.testing.rule_inputs import qkv, stirred
from icl_lab.training import engines
from icl_lab.training.optimizers import Optimizer
from icl_lab.training.recipe import TrainSpec
from tests.cases import representatives

ONE_SIDED = ("forget", "scale-invariant", "selective", "stick-breaking")
BOTH = [name for name in normalizers.names() if name not in ONE_SIDED]


def model(attn="softmax", mask="full", code="learned", seed=0):
    spec = ModelSpec(layers=2, heads=4, width=16, positions=code, mask=mask)
    return GPT2(spec, TokenSpec(1, 1, 1, 9), attn, stream(seed, "init"))


@pytest.mark.parametrize("attn", representatives(BOTH))
def test_every_token_sees_every_other(attn):
    tokens = torch.randn(2, 9, 1, generator=torch.Generator().manual_seed(1), requires_grad=True)
    (early,) = torch.autograd.grad(model(attn)(tokens)[:, 0].sum(), tokens)
    assert (early[:, 1:].abs().sum((0, 2)) > 0).all()


def test_a_model_of_both_sides_knows_it_everywhere():
    assert model(mask="causal").prefix_consistent
    assert not model().prefix_consistent
    assert model(code="t5").positions.both_sides
    assert not model(mask="causal", code="t5").positions.both_sides
    exchanged = model(code="alibi")
    exchanged.swap_positions("rotary")
    assert exchanged.positions.both_sides
    tokens, net = torch.randn(2, 6, 1), model("ssmax")
    found = net.trace(tokens)
    assert (found["layers.0.weights"] > 0).all()
    torch.testing.assert_close(found["answers"], net(tokens))


def test_the_layer_is_that_of_torch():
    own = model(code="none").blocks[0].attention
    theirs = nn.MultiheadAttention(16, 4, batch_first=True)
    with torch.no_grad():
        theirs.in_proj_weight.copy_(own.qkv.weight), theirs.in_proj_bias.copy_(own.qkv.bias)
        theirs.out_proj.weight.copy_(own.project.weight), theirs.out_proj.bias.copy_(own.project.bias)
    x = torch.randn(3, 7, 16)
    ours = own(x, full(7), lambda q, k: (q, k), lambda name, y: y, None)
    torch.testing.assert_close(ours, theirs(x, x, x)[0], rtol=1e-5, atol=1e-6)


def test_n_is_the_number_of_all_keys():
    assert is_full(full(5))
    assert not is_full(full(5).clone())
    assert count(full(5)).tolist() == [5] * 5
    q, k, _ = qkv()
    z = q @ k.transpose(-1, -2) / 2  # heads are 4 wide
    rule = stirred("ssmax")
    n = torch.tensor(7.0, dtype=torch.float64).log()
    expected = (rule.s.view(-1, 1, 1) * n * z).softmax(-1)
    torch.testing.assert_close(rule.weights(q, k, full(7)), expected)


@pytest.mark.parametrize("attn", ONE_SIDED)
def test_rules_of_earlier_keys_are_refused(attn):
    with pytest.raises(BadValue, match="earlier tokens alone"):
        model(attn)
    with pytest.raises(BadValue, match="earlier tokens alone"):
        model(f"{attn}+gated")


@pytest.mark.parametrize("code", ["alibi", "kerple", "kerple:variant=power", "fire"])
def test_distances_count_both_ways(code):
    torch.manual_seed(0)
    built = positions.build(code, 16, 4, 9)
    built.both_sides = True
    bias = built.bias(torch.tensor([0, 1, 3, 6, 10]))
    torch.testing.assert_close(bias, bias.transpose(1, 2))
    built.both_sides = False
    causal = torch.ones(5, 5).tril().bool()
    if code != "fire":  # whose distances are shares of the query's place
        assert torch.equal(built.bias(torch.tensor([0, 1, 3, 6, 10]))[:, causal], bias[:, causal])


@pytest.mark.parametrize("attn", ["softmax", "ssa"])
def test_a_step_trains_under_the_mask_of_the_model(attn):
    task, spec = tasks.build("maximum"), TrainSpec()
    net = GPT2(ModelSpec(layers=1, heads=2, width=8, mask="full"), TokenSpec(11, 10, 1, 9), attn, stream(0, "init"))
    prompt = task.sample(stream(0, "test"), 4, 9)
    expected = F.cross_entropy(net(prompt.tokens).flatten(0, 1), prompt.targets.long().flatten())
    optim = Optimizer(spec, dict(net.named_parameters()), net.matrices())
    work = engines.Work(net, task, optim, 0.0, "fp32", 4, 9)
    loss = engines.build("eager", work).step(prompt, torch.arange(9), 1e-3)
    torch.testing.assert_close(loss, expected)
