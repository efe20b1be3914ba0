"""Every rule of the registry is in the page, and weighs as torch does."""

import pytest
import torch

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


# Where rounding to single precision is amplified: the root beside a threshold, 1 + erf where it nearly vanishes, and
# the fifteenth power, which multiplies by fifteen what a weight was rounded by.
ROUGH = {"entmax:alpha=3": 1e-3, "l1:phi=gelu": 1e-2, "lssa+reweight:p=15": 1e-4}

LEVELS = {"equal": 0.0, "equal up to rounding": 3e-8}


def test_every_rule_is_computed_or_named_with_a_reason():
    here = live.names() | live.names("wrapper")
    there = {*normalizers.names(), *normalizers.wrappers.names()}
    assert here | set(MISSING) == there
    assert not here & set(MISSING)
    assert all(MISSING.values())


@torch.no_grad()
def level(model, size):
    """Makes queries, and with them scores, as small as ``size``."""
    for block in model.blocks:
        block.attention.qkv.weight[:32] *= size
        block.attention.qkv.bias[:32] *= size
    return model


@pytest.fixture(scope="module")
def both(build, compute_each, true):
    """Every choice in the page and in torch, computed when first asked for: what has become of it by learning, what is
    put in after training, rows of equal scores, and beyond single precision with scores of some size and large ones.
    """
    kept = {}

    def call(how, choice):
        if how not in kept:
            sharp = {"double": 2.0, "thousands": 60.0}.get(how, 4.0)
            put = CHOICES if how == "put in" else None
            models = [build("softmax" if put else each, sharp=sharp) for each in CHOICES]
            models = [level(each, LEVELS[how]) for each in models] if how in LEVELS else models
            kept[how] = (models, dict(zip(CHOICES, compute_each(models, PROMPT, put), strict=True)))
        models, found = kept[how]
        model = models[CHOICES.index(choice)]
        if how == "put in":
            model.swap_rule(choice)
        return found[choice], true(model.double() if how in ("double", "thousands") else model, PROMPT)

    return call


@pytest.mark.parametrize("choice", CHOICES)
def test_weights_of_a_rule_that_has_learned(both, apart, choice):
    assert max(apart(*both("learned", choice)).values()) < ROUGH.get(choice, 1e-5)


@pytest.mark.parametrize("choice", CHOICES)
def test_weights_of_a_rule_put_in_after_training(both, apart, choice):
    assert max(apart(*both("put in", choice)).values()) < ROUGH.get(choice, 1e-5)


@pytest.mark.parametrize("how", LEVELS)
@pytest.mark.parametrize("choice", CHOICES)
def test_rows_of_equal_scores(both, apart, how, choice):
    """Uniform up to rounding, without mass, 0 / 0: what a rule makes of them it makes in the page."""
    assert max(apart(*both(how, choice)).values()) < 1e-5


@pytest.mark.parametrize("choice", [choice for choice in CHOICES if choice != "l1:phi=gelu"])
def test_formulas_hold_beyond_single_precision(both, apart, choice):
    """In double precision only the numbers that a rule has learned are rounded, which the page holds in single."""
    assert max(apart(*both("double", choice)).values()) < 1e-6


@pytest.mark.parametrize("choice", [choice for choice in CHOICES if choice != "l1:phi=gelu"])
def test_scores_in_the_thousands(both, apart, choice):
    """Nothing overflows. Rounding of what was learned is amplified by such scores."""
    found, wanted = both("thousands", choice)
    assert abs(wanted["scores"]).max() > 1000
    assert max(apart(found, wanted).values()) < 1e-2
