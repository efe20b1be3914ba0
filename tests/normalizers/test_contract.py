"""The contract of a normalizer, over every normalizer there is: a new file is covered by being there."""

import pytest
import torch

from icl_lab import normalizers
from icl_lab.base.errors import LabError
from icl_lab.normalizers.base import causal, is_causal
from icl_lab.testing.normalizers import CHECKS
from icl_lab.testing.rule_inputs import HEADS, TRAINED, WIDTH, build, gradients, qkv, scored
from icl_lab.testing.verdicts import RULES, Part, choices
from tests.cases import few

WRAPPED = ["softmax+reweight:p=15", "lssa+reweight:p=3+gated", "forget+gated", "ssa+talking-heads", "ssa:form=exp"]
WRAPPED += ["differential+gated:per=channel", "entmax:alpha=1.3,learn=yes", "elastic:bias=3"]
MORE = [
    *("ssa:n=2,learn=no", "sink:s=0,learn=no", "entmax:alpha=1.3", "entmax:alpha=2", "log-n:power=0.5"),
    *("p-softmax:p=0.5", "top-k:k=2", "standardized:gamma=100", "threshold:p=1,differential=no", "cosformer:horizon=3"),
    *("ssmax:s=0.43", "softmax+reweight:p=1", "lssa+reweight:p=15", "ssa+reweight:p=3", "stick-breaking+reweight"),
    *("llama4:beta=2,length=2", "qassmax:hidden=3", "ssmax-free+gated", "cosformer:horizon=current+gated"),
]
PARTS = [Part(RULES, registry, name) for registry in RULES.registries for name in registry.names()]
PLAIN = normalizers.names()
ALL = list(dict.fromkeys([*PLAIN, *WRAPPED, *(choice for part in PARTS for choice in choices(part)), *MORE]))


@pytest.mark.slow
@pytest.mark.parametrize("choice", few(len(PLAIN) + len(WRAPPED), ALL))
def test_every_rule_keeps_the_contract(choice) -> None:
    for check in CHECKS:
        check(choice)


def test_every_rule_and_every_option_is_tried() -> None:
    assert {choice.partition(":")[0].partition("+")[0] for choice in ALL} >= set(normalizers.names())
    assert {"sigmoid:bias=visible,l1=yes", "l1:phi=mish", "ssa:per=layer", "cosformer:horizon=current"} <= set(ALL)
    assert {"softmax+reweight", "lssa+reweight"} <= set(ALL)


def test_the_causal_mask_is_known_by_identity() -> None:
    assert is_causal(causal(6))
    assert is_causal(causal(6, torch.device("cpu")))
    assert not is_causal(causal(6).clone())
    with torch.inference_mode():
        made = causal(4321)  # a size nobody else asks for: it is made here
    assert not made.is_inference()


@pytest.mark.slow
@pytest.mark.parametrize("choice", ["softmax+reweight:p=15", "lssa+reweight:p=15"])
def test_rows_of_1024_keys_stay_finite_under_a_high_power(choice: str) -> None:
    rule = normalizers.build(choice, heads=HEADS, head_dim=WIDTH, train_tokens=1024)
    peak = torch.zeros(1024)
    peak[0] = 50.0
    for tensors in ([x.float() for x in qkv(1024, b=1)], scored(peak), scored(torch.ones(1024))):
        o, grads = gradients(rule, tensors, causal(1024))
        assert o.isfinite().all()
        assert all(grad.isfinite().all() for grad in grads.values())
        sums = rule.weights(tensors[0], tensors[1], causal(1024)).sum(-1)
        torch.testing.assert_close(sums, torch.ones_like(sums), atol=1e-4, rtol=0)


@pytest.mark.parametrize(
    ("choice", "says"),
    [
        ("entmax:alpha=1", "softmax"),
        ("entmax:alpha=0.5", "alpha must be > 1, got 0.5"),
        ("entmax:alpha=2,learn=yes", "a learned alpha must start above 1.01 and below 2"),
        ("log-n:power=0", "power must be > 0"),
        ("p-softmax:p=1", "p = 1 is softmax"),
        ("p-softmax:p=0", "p must be at least 0.1 and at most 100"),
        ("top-k:k=0", "k must be >= 1"),
        ("standardized:gamma=0", "gamma must be at least 0.001"),
        ("threshold:p=0.5", "p must be >= 1"),
        ("threshold+reweight", "needs rows that sum to 1"),
        ("cosformer:horizon=0", "horizon must be >= 1"),
        ("cosformer:horizon=long", "horizon must be a whole number or current"),
        ("scale-invariant:tau=0", "tau must be > 0"),
        ("softmax+reweight:p=0", "p must be >= 1"),
        ("sigmoid+reweight", "needs rows that sum to 1"),
        ("relu:divide=l1+reweight:p=3", "needs rows that sum to 1"),
        ("sa-softmax:variant=4", "variant must be 0, 1, 2, 3"),
        ("l1:phi=silu", "phi must be relu"),
        ("ssa:learn=n,n=1", "n must be > 1 while it is learned"),
        ("ssa:learn=c", "learn must be yes or no or n, b, got 'c'"),
        ("elastic:bias=-1", "bias must be >= 0 and at most 65,536, got -1"),
        ("elastic:bias=100000", "bias must be >= 0 and at most 65,536, got 100000"),
        ("elastic:bias=4,learn=no", "a bias is learned, so it needs learn=yes"),
        ("llama4:beta=0", "beta must be > 0"),
        ("llama4:length=0", "length must be >= 1, or 'train', got 0"),
        ("llama4:variant=qwen", "variant must be llama4, ministral3"),
        ("qassmax:hidden=0", "hidden must be >= 1 and at most 4,096, got 0"),
        ("qassmax:hidden=5000", "hidden must be >= 1 and at most 4,096, got 5000"),
        ("scale-invariant:tau=1e-300", "tau must be at least 1e-30"),
        ("temperature:tau=1e-38", "tau must be at least 1e-20"),
        ("softmax+reweight:p=1000000000", "p must be >= 1 and at most 100,000"),
        ("entmax:alpha=1.0000001", "alpha must be at least 1.000001 and at most 10"),
        ("entmax:alpha=11", "alpha must be at least 1.000001 and at most 10"),
        ("softmax+gated:phi=tanh", "phi must be sigmoid, softplus"),
        ("softmax+gated:per=token", "per must be head, channel"),
        ("softmax+gated+gated", "a gate on a gate"),
        ("softmax+gated+reweight", "'softmax.gated.reweight': 'reweight' reads queries and keys alone"),
        ("forget+reweight:p=3", "'reweight:p=3' reads queries and keys alone"),
        ("differential+reweight", "needs rows that sum to 1"),
    ],
)
def test_what_cannot_be_is_refused_with_its_bound(choice: str, says: str) -> None:
    with pytest.raises(LabError, match=says):
        build(choice)


@pytest.mark.parametrize(("choice", "heads", "parts"), [("four-functions", 6, 4), ("soft-avg", 3, 2)])
def test_mixtures_refuse_heads_they_cannot_divide(choice: str, heads: int, parts: int) -> None:
    with pytest.raises(LabError, match=f"multiple of {parts}, got {heads}"):
        normalizers.build(choice, heads=heads, head_dim=WIDTH, train_tokens=TRAINED)


def test_layers_share_only_what_is_declared_shared() -> None:
    layers = normalizers.build_layers("ssmax-free+reweight:p=3", layers=3, heads=2, head_dim=4, train_tokens=6)
    names = [name for name, _ in layers.named_parameters()]
    assert sum(name.endswith("rule.p") for name in names) == 1
    assert sum(name.endswith("rule.s") for name in names) == 3
