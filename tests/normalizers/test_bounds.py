"""Options at the ends of what is accepted, and batches without a prompt."""

import pytest
import torch

from icl_lab import normalizers
from icl_lab.base.errors import LabError
from icl_lab.base.option_values import kinds
from icl_lab.normalizers.base import causal
from icl_lab.testing.rule_inputs import gradients, qkv, single
from tests.cases import representatives
from tests.normalizers.test_contract import ALL

ENDS = [sign * 10.0**power for power in (-300, -44, -38, -30, -20, -6, 0, 6, 15) for sign in (1, -1)]
NUMBERS = {
    float: [*ENDS, 0.0, 1.000001, 1.0001, 1.5, 2.5, 10.0],
    int: [0, 1, -1, 2, 15, 1000, 10**5, 10**6, 10**9, 10**15],
}
OPTIONS = [
    (f"{around}{name}:{key}=", kind)
    for registry, around in ((normalizers.registry, ""), (normalizers.wrappers, "softmax+"))
    for name in registry.names()
    for key, option in registry.options(name).items()
    for kind in kinds(option.annotation)
    if kind in NUMBERS
]


@pytest.mark.parametrize(("option", "kind"), OPTIONS)
def test_no_number_that_is_accepted_gives_nan(option, kind):
    """On unit-normal queries and keys in single precision, forward and backward; the rest is refused in one line."""
    tensors = [x.float() for x in qkv(12, gain=1.0)]
    accepted = 0
    for number in NUMBERS[kind]:
        for more in ("", ",learn=no", ",form=exp"):
            try:
                rule = single(f"{option}{number!r}{more}")
            except LabError as refusal:
                assert "\n" not in str(refusal)
                continue
            accepted += 1
            o, grads = gradients(rule, tensors, causal(12))
            parts = {"o": o, "w": rule.weights(tensors[0], tensors[1], causal(12)), **grads}
            assert not [name for name, part in parts.items() if not part.isfinite().all()], f"{option}{number!r}{more}"
    assert accepted


@pytest.mark.parametrize("choice", representatives(ALL))
def test_a_batch_without_prompts_gives_none(choice):
    rule = single(choice)
    for visible in (causal(5), causal(5).clone(), torch.ones(0, 1, 5, 5, dtype=torch.bool)):
        q, k, v = (x.float()[:0].clone().requires_grad_() for x in qkv(5))
        o, w = rule.attend(q, k, v, visible), rule.weights(q, k, visible)
        assert (o.shape, w.shape) == ((0, 4, 5, 4), (0, 4, 5, 5))
        if o.requires_grad:
            o.sum().backward()
