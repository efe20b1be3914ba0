"""A rule that is typed into the page is read as on the command line: the same is taken, the same refused."""

import pytest

from icl_lab import normalizers
from icl_lab.errors import LabError

REFUSED = [
    *("", "nonsense", "ssa:", "ssa:n", "ssa:n=", "ssa:n=2,n=3", "ssa:m=2", "softmax:tau=2", "ssa n=2", ":n=2"),
    *("ssa:n=0.5", "ssa:n=1", "ssa:b=0", "ssa:b=x", "ssa:n=nan", "ssa:n=inf", "ssa:n=1e30", "ssa:learn=maybe"),
    *("temperature:tau=0", "temperature:tau=-1", "llama4:beta=0", "llama4:length=0", "llama4:length=2.5"),
    *("ssmax:learn=no,bias=yes", "ssmax:s=swop", "elastic:bias=-1", "elastic:bias=99999", "elastic:bias=3,learn=no"),
    *("entmax:alpha=1", "entmax:alpha=0.5", "scale-invariant:tau=0", "cosformer:horizon=0", "sa-softmax:variant=4"),
    *("qassmax:hidden=0", "l1:phi=cosh", "sigmoid:l1=1", "relu:divide=n", "sima:axis=x", "stick-breaking:remainder=x"),
    *("softmax+nonsense", "softmax+ssa", "reweight", "lssa+reweight:p=0", "lssa+reweight:p=1.5", "relu+reweight"),
    *("sigmoid+reweight", "l1:phi=tanh+reweight", "stick-breaking:remainder=none+reweight", "differential+reweight"),
    *("softmax+gated+gated", "forget+reweight", "softmax+gated+reweight", "raw+reweight", "inverse+reweight"),
    *(f"{rule}+reweight" for rule in ("exp", "sink", "softpick", "elastic", "sa-softmax", "recentred", "sima")),
    *("four-functions+reweight", "cosformer+reweight", "relu:divide=l1+reweight"),
]
TAKEN = [
    *("ssa:n=2,learn=no", " ssa ", "ssa: n = 2 , b = 1", "ssa:n=+2", "ssa:n=2.", "ssa:n=.2e1", "ssa:n=1e+1", "ssa:b=e"),
    *("ssa:n=1,learn=b", "ssmax:s=-1", "llama4:length=train", "sigmoid:l1=yes+reweight", "l1:phi=exp+reweight:p=2"),
    *("lssa+reweight:p=15+gated", "entmax:alpha=1.75", "elastic:bias=0,learn=no", "softmax+reweight:p=+3"),
]


PROMPT = [1.0, 2.0, -3.0, 0.5, 0.2, 9.0]


@pytest.fixture(scope="module")
def said(build, compute_each):
    """What the page makes of each choice, put into one model."""
    choices = [*REFUSED, *TAKEN]
    found = compute_each([build()] * len(choices), PROMPT, [choice or " " for choice in choices])
    return dict(zip(choices, found, strict=True))


@pytest.mark.parametrize("choice", REFUSED)
def test_what_the_command_line_refuses(said, choice):
    with pytest.raises(LabError):
        normalizers.build_layers(choice, layers=2, heads=4, head_dim=8, train_tokens=12)
    assert said[choice]["refused"]
    assert "\n" not in said[choice]["refused"]


@pytest.mark.parametrize("choice", TAKEN)
def test_what_the_command_line_takes(said, build, true, apart, choice):
    model = build()
    model.swap_rule(choice)
    assert max(apart(said[choice], true(model, PROMPT)).values()) < 1e-5


def test_heads_that_cannot_be_divided(build, compute):
    model = build("softmax", heads=1)
    for choice in ("soft-avg", "four-functions"):
        assert "multiple" in compute(model, [[1.0]], rule=choice)[0]["refused"]
    odd = build("softmax", heads=2, width=14)
    assert "even" in compute(odd, [[1.0]], rule="differential")[0]["refused"]


def test_starts_drawn_at_random_are_held_for_some_options(build, compute):
    said = compute(build(), [[1.0, 2.0]], rule="qassmax:hidden=8")[0]["refused"]
    assert "per=channel,hidden=64" in said


def test_a_name_is_answered_with_those_that_there_are(build, compute):
    said = compute(build(), [[1.0]], rule="sofmax")[0]["refused"]
    assert "sofmax" in said
    assert "softmax" in said
    assert "n, b, learn, per" in compute(build(), [[1.0]], rule="ssa:m=2")[0]["refused"]
