"""Normalizers in half, single and double precision: their own numbers in one, queries and keys in another."""

import pytest
import torch

from icl_lab.base.rng import stream
from icl_lab.model.gpt2 import GPT2, ModelSpec, TokenSpec
from icl_lab.normalizers.base import causal
from icl_lab.testing.rule_inputs import FromQueries, perturb, qkv, single
from tests.cases import representatives
from tests.normalizers.test_contract import ALL

TYPES = (torch.bfloat16, torch.float16, torch.float32, torch.float64)
CLOSE = {torch.bfloat16: 0.06, torch.float16: 0.02, torch.float32: 1e-4, torch.float64: 1e-4}  # of the largest number


# A row whose only product is that of a key at the horizon is 0 / 0 of cos(pi / 2), which is another in each precision.
@pytest.mark.parametrize("choice", representatives(each for each in ALL if each != "cosformer:horizon=3"))
@pytest.mark.slow
def test_every_rule_works_in_every_precision_beside_every_other(choice):
    """Weights, outputs and gradients are of the type of the queries, and near those of single precision."""
    for own in TYPES:
        rule = single(choice)
        perturb(rule)
        rule.to(own)
        exact = single(choice)
        exact.load_state_dict({name: value.float() for name, value in rule.state_dict().items()})
        for given in TYPES:
            q, k, v = (x.to(given) for x in qkv(6))
            for visible in (causal(6), causal(6).clone()):
                wanted = exact.attend(q.float(), k.float(), v.float(), visible)
                asked = q.clone().requires_grad_()
                o, w = rule.attend(asked, k, v, visible), rule.weights(q, k, visible)
                assert (o.dtype, w.dtype) == (given, given), (own, given)
                room = max(CLOSE[own], CLOSE[given]) * wanted.abs().max()
                assert (o.float() - wanted).abs().max() <= room, (own, given)
                if o.requires_grad:
                    o.float().sum().backward()
                    assert asked.grad is None or asked.grad.isfinite().all(), (own, given)
            if isinstance(rule, FromQueries):
                assert rule.output_at(q, v).dtype == given
            else:
                assert rule.output(v).dtype == given


@pytest.mark.parametrize("attn", ["softmax", "forget", "qassmax", "softmax+gated", "ssa", "asentmax", "differential"])
@pytest.mark.parametrize("precision", TYPES)
def test_a_model_of_numbers_in_any_precision(attn, precision):
    spec = ModelSpec(layers=2, heads=2, width=8)
    model = GPT2(spec, TokenSpec(width=1, outputs=1, roles=2, train_tokens=8), attn, stream(0, "half"))
    tokens = torch.randn(2, 6, 1, generator=stream(1, "half"))
    wanted = model(tokens)
    found = model.to(precision)(tokens.to(precision))
    assert found.dtype == precision
    assert (found - wanted).abs().max() <= 0.1 * wanted.abs().max()
