"""Installed normalizers in the precisions that a model may be turned to, before and after."""

import itertools

import pytest
import torch

from icl_lab import normalizers
from icl_lab.transformers import install

SERVED = [name for name in normalizers.names() if name != "forget"]  # which a KV cache cannot serve
AROUND = ("softmax+gated", "softmax+gated:per=channel", "softmax+reweight", "lssa+reweight", "qassmax+gated")
DAILY = ("ssa", "differential", AROUND[1])
MODELS = [
    pytest.param(choice, kind, marks=() if choice in DAILY else pytest.mark.exhaustive)
    for choice, kind in zip([*SERVED, *AROUND], itertools.cycle(["gpt2", "llama"]), strict=False)
]
CLOSE = {torch.bfloat16: 0.1, torch.float16: 0.02, torch.float64: 1e-4}  # of the largest logit


@pytest.mark.slow
@pytest.mark.parametrize("precision", CLOSE)
@pytest.mark.parametrize(("choice", "kind"), MODELS, ids=str)
def test_a_model_may_change_its_precision_before_and_after(tiny_model, choice, precision, kind):
    tokens = torch.arange(1, 9).view(1, 8)
    model = tiny_model(kind)
    install(model, choice)
    with torch.no_grad():
        wanted = model(tokens).logits
        after = model.to(precision)(tokens).logits
        again = tiny_model(kind).to(precision)
        install(again, choice)
        before = again(tokens).logits
    for found in (before, after):
        assert found.dtype == precision
        assert (found.float() - wanted).abs().max() <= CLOSE[precision] * wanted.abs().max()
