"""Exported graphs compute in the page what torch computes: every normalizer, at lengths that were not traced."""

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

from icl_lab import normalizers, tasks
from icl_lab.analyses.attention import live
from icl_lab.analyses.attention.live.export import Output, Weights
from icl_lab.analyses.attention.live.graph import operators, pack, trace
from icl_lab.normalizers.softmax import Softmax
from icl_lab.runs.evidence.archive import Archive
from icl_lab.runs.spec import resolve
from icl_lab.runs.store import Store
from tests.cases import few

HEADS, WIDTH = 4, 8
LENGTHS = (1, 2, 7, 40)
OPTIONS = [
    *("ssa:n=2,b=e,per=layer", "ssa:n=1,learn=no", "ssa:form=exp", "ssmax:s=swap", "ssmax:bias=yes"),
    *("temperature:tau=0.5", "llama4:variant=ministral3,length=3", "llama4:beta=0.5,length=5"),
    *(f"l1:phi={phi}" for phi in ("relu2", "relu6", "gelu", "sigmoid", "softplus", "mish", "exp", "tanh", "square")),
    *("raw:l1=yes", "sigmoid:bias=train", "sigmoid:bias=visible", "sigmoid:bias=visible,l1=yes"),
    *("relu:divide=visible", "relu:divide=l1", "relu:divide=root", "sink:s=2,learn=no", "elastic:bias=4"),
    *("entmax:alpha=1.2", "entmax:alpha=2", "entmax:alpha=3", "recentred:l1=yes", "stick-breaking:remainder=none"),
    *(f"sa-softmax:variant={number}" for number in (0, 1, 2)),
    *("scale-invariant:tau=2", "cosformer:horizon=current", "cosformer:horizon=5", "sima:axis=feature"),
    *("selective:first=no", "differential:norm=no", "qassmax:per=head", "ssmax-free:beyond=clamp"),
    *("lssa+reweight", "lssa+reweight:p=15", "softmax+reweight:p=1", "softmax+gated", "forget+gated:per=channel"),
    *("lssa+reweight:p=3+gated:phi=softplus", "ssa+talking-heads", "log-n:power=2", "l1:phi=expressive"),
    *("entmax:learn=yes", "threshold:differential=no", "p-softmax:p=0.5", "top-k:k=2", "standardized:gamma=100"),
]
# Together they ask for every operator that any of the package does.
EACH = ["softmax", "ssa", "stick-breaking", "cosformer", "top-k", "qassmax", "differential", "sa-softmax", "selective"]
REST = [*(name for name in normalizers.names() if name not in EACH), *OPTIONS]
# As a share of the largest number; looser where rounding to single precision is amplified: by a root beside a
# threshold, by 1 + erf where it nearly vanishes, by a power that multiplies what a weight was rounded by.
CLOSE = 1e-5
ROUGH = {"entmax:alpha=3": 1e-3, "l1:phi=gelu": 1e-2, "lssa+reweight:p=15": 1e-4}


def learned(choice):
    """A normalizer away from its start, as if it had learned."""
    rule = normalizers.build(choice, heads=HEADS, head_dim=WIDTH, train_tokens=12, layer=1).eval()
    rng = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for part in rule.parameters():
            part.add_(0.2 * torch.randn(part.shape, generator=rng))
    return rule.requires_grad_(False)


def drawn(t, size=2.0):
    """Tokens, queries, keys and sums of values."""
    rng = torch.Generator().manual_seed(t)
    x, o = torch.randn(1, t, HEADS * WIDTH, generator=rng), torch.randn(1, HEADS, t, WIDTH, generator=rng)
    q, k = size * torch.randn(2, 1, HEADS, t, WIDTH, generator=rng)
    return x, q, k, o


def apart(found, wanted):
    """The largest difference, as a share of the largest number."""
    wanted = wanted.numpy()
    assert np.isfinite(found).all()
    assert found.shape == wanted.shape
    return abs(found - wanted).max() / max(abs(wanted).max(), 1e-30)


@pytest.mark.slow
@pytest.mark.parametrize("choice", few(len(EACH), [*EACH, *REST]))
def test_a_graph_equals_the_normalizer_in_torch(run_graphs, choice):
    """At lengths up to beyond those of training; scores that spread, that are all equal, and in the thousands."""
    rule = learned(choice)
    (graphs,) = live.export_normalizer(choice, [rule], HEADS, WIDTH)
    given = [*(drawn(t) for t in LENGTHS), drawn(9, size=0.0), drawn(9, size=40.0)]
    parts = [(Weights(rule), [each[:3] for each in given])]
    if rule.finishes:
        parts.append((Output(rule), [(each[0], each[3]) for each in given]))
    found = run_graphs([graphs.weights, *([graphs.output] if graphs.output else [])], [some for _, some in parts])
    for (part, inputs), answers in zip(parts, found, strict=True):
        shares = [apart(answer, part(*each)) for answer, each in zip(answers, inputs, strict=True)]
        assert max(shares[:-1]) < ROUGH.get(choice, CLOSE)
        assert shares[-1] < 1e-2  # rounding, too, is in the thousands


@pytest.mark.slow
def test_layers_share_a_graph_unless_their_constants_differ():
    rules = normalizers.build_layers("ssa", layers=2, heads=HEADS, head_dim=WIDTH, train_tokens=12)
    rules[1].raw_n.data += 1
    first, second = live.export_normalizer("ssa", list(rules), HEADS, WIDTH)
    assert first.weights.nodes is not second.weights.nodes
    assert first.weights.nodes == second.weights.nodes
    assert first.weights.numbers != second.weights.numbers
    rules = normalizers.build_layers("differential", layers=2, heads=HEADS, head_dim=WIDTH, train_tokens=12)
    first, second = live.export_normalizer("differential", list(rules), HEADS, WIDTH)
    assert first.output.nodes != second.output.nodes  # the first share of the norm hangs on the layer


@pytest.mark.exhaustive
def test_a_stored_model_is_as_torch_has_it(compute, true):
    """A trained model of the repository, with its own normalizer and with another."""
    root = Path(__file__).parents[4] / "results"
    run = Store(root / "none", Archive(root / "evidence")).run(resolve("every:balance=half", "ssa", "lite"), 0)
    model = run.spec.untrained(tasks.build("every:balance=half"), 0)
    run.load_model(model)
    model.eval()
    rng = torch.Generator().manual_seed(0)
    prompts = [(scale * torch.randn(t, generator=rng)).tolist() for t, scale in ((7, 1), (33, 3), (90, 1))]
    for choice in ("", "softmax"):
        found = compute(model, prompts, swaps=["softmax"], choice=choice)
        if choice:
            model.swap_rule(choice)
        for each, prompt in zip(found, prompts, strict=True):
            wanted = true(model, prompt)
            for part in ("weights", "scores", "outputs"):
                assert abs(each[part] - wanted[part]).max() < CLOSE * abs(wanted[part]).max()


class Odd(Softmax):
    """Softmax for an odd number of keys, uniform weights for an even one: no graph serves both."""

    def weights(self, q, k, visible):
        return super().weights(q, k, visible) if q.shape[2] % 2 else visible / visible.sum(-1, keepdim=True)


class Peeking(Softmax):
    """Looks at its numbers to decide."""

    def weights(self, q, k, visible):
        return super().weights(q, k if q.max() > 1 else -k, visible)


class Counting(Softmax):
    """Depends on how often it was asked."""

    def weights(self, q, k, visible):
        self.times = getattr(self, "times", 0) + 1
        return super().weights(q * self.times, k, visible)


class Special(Softmax):
    """Asks for an operator that the page lacks."""

    def weights(self, q, k, visible):
        return super().weights(torch.special.bessel_j0(q), k, visible)


@pytest.mark.parametrize(
    ("kind", "says"),
    [
        (Odd, "torch cannot export the normalizer 'mine'"),
        (Peeking, "the normalizer 'mine' decides by its own numbers"),
        (Counting, "computes something else"),
        (Special, "the page has no operator aten.special_bessel_j0"),
    ],
)
@pytest.mark.slow
def test_what_has_no_graph_is_refused_in_a_line(kind, says):
    rule = kind(normalizers.base.Site(HEADS, WIDTH, 12))
    with pytest.raises(live.NotExportable, match=says) as caught:
        live.export_normalizer("mine", [rule], HEADS, WIDTH)
    assert "\n" not in str(caught.value)


def test_operators_are_those_of_the_interpreter(node):
    known = set(node(None, "console.log(JSON.stringify(Object.keys(engine.OPERATORS)))"))
    assert operators() - known == {"held", "given", "out", "icl_lab.weights", "icl_lab.output"}
    assert known <= operators()


class Plain(nn.Module):
    """Operators by which no normalizer of the package comes, in one number each."""

    varying = (1,)

    def forward(self, x):
        x = x[0]
        parts = [x.remainder(0.7), (x / 0.3).floor(), torch.div(x, 0.3, rounding_mode="trunc"), x.erf(), x.flip(0)]
        parts += [F.pad(x, (0, 0, 1, 0))[1:], x.log_softmax(-1), x.prod(-1, keepdim=True) + x, x.isnan() | (x != x)]
        return torch.cat([part.to(x.dtype) for part in parts], -1).unsqueeze(0)


@pytest.mark.slow
def test_operators_that_a_normalizer_from_outside_may_ask_for(run_graphs):
    def example(t):
        return (torch.randn(1, t, 5, generator=torch.Generator().manual_seed(t)),)

    graph = pack(trace(Plain(), "it", example), Plain(), "it")
    for t in (3, 8):
        ((found,),) = run_graphs([graph], [[example(t)]])
        np.testing.assert_allclose(found, Plain()(*example(t)).numpy(), atol=1e-5)
