"""Every rule of the registry is in the page, and weighs as torch does."""

import pytest

from icl_lab import normalizers
from icl_lab.analyses.attention import live
from icl_lab.analyses.attention.live.carried import MISSING

CHOICES = [
    *normalizers.names(),
    *("ssa:n=2,b=e,per=layer", "ssa:n=1,learn=no", "ssmax:s=swap", "ssmax:bias=yes", "ssmax-free:beyond=clamp"),
    *("temperature:tau=0.5", "llama4:variant=ministral3,length=3", "llama4:beta=0.5,length=5"),
    *(f"l1:phi={phi}" for phi in ("relu2", "relu6", "gelu", "sigmoid", "softplus", "mish", "exp", "tanh", "square")),
    *("raw:l1=yes", "sigmoid:bias=train", "sigmoid:bias=visible", "sigmoid:bias=visible,l1=yes"),
    *("relu:divide=visible", "relu:divide=l1", "relu:divide=root", "sink:s=2,learn=no", "elastic:bias=4"),
    *("entmax:alpha=1.2", "entmax:alpha=2", "entmax:alpha=3", "recentred:l1=yes", "stick-breaking:remainder=none"),
    *(f"sa-softmax:variant={number}" for number in (0, 1, 2)),
    *("scale-invariant:tau=2", "cosformer:horizon=current", "cosformer:horizon=5", "sima:axis=feature"),
    *("selective:first=no", "differential:norm=no", "qassmax:per=head"),
    *("lssa+reweight", "lssa+reweight:p=15", "softmax+reweight:p=1", "softmax+gated", "forget+gated:per=channel"),
    *("lssa+reweight:p=3+gated:phi=softplus",),
]
PROMPT = [1.0, -0.5, -2.0, 0.7, 3.0, 1.0, 0.1, -1.0, -0.4, 0.3, 2.2, -1.7, 0.0, 5.0, -3.0, 1.0, 0.6]


# Where rounding to single precision is amplified: the root beside a threshold, and 1 + erf where it nearly vanishes.
ROUGH = {"entmax:alpha=3": 1e-3, "l1:phi=gelu": 1e-2}


def test_every_rule_is_computed_or_named_with_a_reason():
    here = live.names() | live.names("wrapper")
    there = {*normalizers.names(), *normalizers.wrappers.names()}
    assert here | set(MISSING) == there
    assert not here & set(MISSING)
    assert all(MISSING.values())


@pytest.mark.parametrize("choice", CHOICES)
def test_weights_of_a_rule_that_has_learned(build, compute, true, apart, choice):
    model = build(choice)
    shares = apart(compute(model, [PROMPT])[0], true(model, PROMPT))
    assert max(shares.values()) < ROUGH.get(choice, 1e-5)


@pytest.mark.parametrize("choice", CHOICES)
def test_weights_of_a_rule_put_in_after_training(build, compute, true, apart, choice):
    model = build("softmax")
    found = compute(model, [PROMPT], rule=choice)[0]
    model.swap_rule(choice)
    assert max(apart(found, true(model, PROMPT)).values()) < ROUGH.get(choice, 1e-5)


@pytest.mark.parametrize("choice", [choice for choice in CHOICES if choice != "l1:phi=gelu"])
def test_formulas_hold_beyond_single_precision(build, compute, true, apart, choice):
    """In double precision only the numbers that a rule has learned are rounded, which the page holds in single."""
    model = build(choice, sharp=2.0)
    found = compute(model, [PROMPT])[0]
    assert max(apart(found, true(model.double(), PROMPT)).values()) < 1e-6
