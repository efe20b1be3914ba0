"""Activations by name: they are those of the forward pass, and what is put in their place is computed with."""

import sys

import pytest
import torch
from torch.nn import functional as F

from icl_lab import normalizers, tasks
from icl_lab.base.errors import BadValue, LabError, UnknownName
from icl_lab.base.rng import stream
from icl_lab.model import positions
from icl_lab.model.gpt2 import GPT2, ModelSpec, TokenSpec
from icl_lab.model.trace import DIMS
from icl_lab.runs.spec import resolve
from tests.cases import representatives

READING = TokenSpec(width=1, outputs=1, roles=2, train_tokens=12)
ATTENTION = ["q", "k", "v", "scores", "weights", "heads", "attention"]
RULES = [*normalizers.names(), "lssa+reweight:p=3", "softmax+gated", "ssa+gated:per=channel", "forget+gated"]
# Their weights are made of more than scores: of the vectors, of halves of them, or of their directions.
OWN_SCORES = {"cosformer", "differential", "lssa", "lssa+reweight:p=3", "qassmax", "sima", "threshold"}
every_rule = pytest.mark.parametrize("name", representatives(RULES))


def build(attn="softmax", reading=READING, **spec):
    model = GPT2(ModelSpec(**{"layers": 2, "heads": 4, "width": 16, **spec}), reading, attn, stream(0, "init"))
    with torch.no_grad():
        for name, p in model.named_parameters():
            if p.ndim == 2 and ".rule." not in name and not name.startswith("positions"):
                p.mul_(10)  # far from uniform
    return model.eval()


def tokens(address="tokens", b=3, t=8):
    return torch.randn(b, t, 1, generator=stream(0, address))


def names(layers=2, parts=("before", *ATTENTION, "mlp", "after")):
    return [*(f"layers.{layer}.{part}" for layer in range(layers) for part in parts), "final_norm", "answers"]


@torch.no_grad()
@every_rule
def test_a_trace_is_the_forward_pass_and_so_are_its_patches(name):
    model, seen = build(name), {}
    trace = model.trace(tokens())
    assert trace.names == list(trace) == names()
    assert torch.equal(trace["answers"], model(tokens()))
    model(tokens(), watch=lambda layer, w, z: seen.update({layer: (w, z)}))
    for layer in range(2):
        at = f"layers.{layer}."
        for watched, part in zip(seen[layer], ("weights", "scores"), strict=True):
            assert torch.equal(watched, trace[at + part])
        attention = model.blocks[layer].attention
        read = model.blocks[layer].before_attention(trace[at + "before"])
        reads = {} if attention.rule.reads_tokens == "no" else {"x": read}
        o = attention.rule.output(trace[at + "weights"] @ trace[at + "v"], **reads)
        torch.testing.assert_close(trace[at + "heads"], o, rtol=1e-4, atol=1e-5)
        joined = trace[at + "heads"].transpose(1, 2).flatten(2)
        torch.testing.assert_close(trace[at + "attention"], attention.project(joined))
        total = trace[at + "before"] + trace[at + "attention"] + trace[at + "mlp"]
        torch.testing.assert_close(trace[at + "after"], total)
    assert torch.equal(model.read_out(trace["final_norm"]), trace["answers"])
    for patch in (dict(trace), {each: lambda x: x for each in trace}):  # its own activations change no bit
        assert torch.equal(model.trace(tokens(), patch)["answers"], trace["answers"])


@torch.no_grad()
@every_rule
def test_what_comes_later_is_computed_from_a_patch(name):
    model = build(name)
    trace, other = model.trace(tokens()), model.trace(tokens("others"))
    pairs = ("layers.1.before", "answers"), ("layers.1.heads", "layers.1.attention"), ("final_norm", "answers")
    for part, later in pairs:
        found = model.trace(tokens(), {part: other[part]})
        assert torch.equal(found[part], other[part])
        assert torch.equal(found[later], other[later])
        assert torch.equal(found["layers.0.after"], trace["layers.0.after"])
        assert not torch.equal(found["answers"], trace["answers"])
    matrices = {f"layers.1.{part}": other[f"layers.1.{part}"] for part in ("weights", "v")}
    found = model.trace(tokens(), {"layers.1.before": other["layers.1.before"], **matrices})
    torch.testing.assert_close(found["answers"], other["answers"], rtol=1e-4, atol=1e-4)
    if model.rules[0].reads_tokens != "weights":
        found = model.trace(tokens(), {f"layers.1.{part}": other[f"layers.1.{part}"] for part in "qk"})
        assert torch.equal(found["layers.1.weights"], other["layers.1.weights"])


@torch.no_grad()
@every_rule
def test_scores_are_what_weights_are_made_of_or_refused(name):
    model, at = build(name), "layers.0.scores"
    other = model.trace(tokens("others"))
    patch = {at: other[at], "layers.0.before": other["layers.0.before"]} if "forget" in name else {at: other[at]}
    if name in OWN_SCORES:
        with pytest.raises(BadValue, match=r"makes its weights of more than these scores: patch q, k or weights"):
            model.trace(tokens(), patch)
    else:
        found = model.trace(tokens(), patch)
        torch.testing.assert_close(found["layers.0.weights"], other["layers.0.weights"], rtol=1e-4, atol=1e-5)
        assert torch.equal(found[at], other[at])
    # A bias of positions is part of the scores, and is not added twice.
    if name == "softmax":
        model = build(name, positions="alibi")
        trace = model.trace(tokens(), {at: lambda z: z + 1})
        torch.testing.assert_close(trace["layers.0.weights"], model.trace(tokens())["layers.0.weights"])


@torch.no_grad()
@pytest.mark.parametrize("name", ["softmax+gated", "forget+gated:per=channel", "differential"])
def test_what_follows_the_sum_works_on_patched_weights(name):
    """Twice the weights are twice the gated sum; the norm of differential attention takes the factor out again."""
    model = build(name)
    own = model.trace(tokens())["layers.0.heads"]
    found = model.trace(tokens(), {"layers.0.weights": lambda w: 2 * w})["layers.0.heads"]
    torch.testing.assert_close(found, (1 if name == "differential" else 2) * own, rtol=1e-3, atol=1e-4)


@torch.no_grad()
def test_queries_and_keys_have_norms_of_their_own():
    model = build(qk_norm=True, positions="none", norm=False)
    attention = model.blocks[0].attention
    attention.norm_q.weight.fill_(2)
    attention.norm_k.weight.fill_(3)
    trace = model.trace(tokens())
    q, k, _ = attention.qkv(trace["layers.0.before"]).chunk(3, -1)
    for name, raw, gain in (("q", q, 2), ("k", k, 3)):
        heads = raw.view(3, 8, 4, 4).transpose(1, 2)
        torch.testing.assert_close(trace[f"layers.0.{name}"], gain * F.rms_norm(heads, (4,), eps=1e-5))


@torch.no_grad()
def test_a_function_may_change_one_head_at_one_token():
    model = build("ssmax")
    before = model.trace(tokens())

    def silence(x):
        x[:, 2, -1] = 0
        return x

    found = model.trace(tokens(), {"layers.0.heads": silence})
    assert found["layers.0.heads"][:, 2, -1].abs().max() == 0
    changed = (found["layers.0.heads"] != before["layers.0.heads"]).any(-1).any(0)
    assert changed.nonzero().tolist() == [[2, 7]]
    assert torch.equal(found["answers"][:, :-1], before["answers"][:, :-1])
    assert not torch.equal(found["answers"][:, -1], before["answers"][:, -1])
    found = model.trace(tokens(), {"layers.0.weights": silence})  # the others are summed by another road, and rounded
    changed = (found["layers.0.heads"] - before["layers.0.heads"]).abs().amax((0, 3)) > 1e-4
    assert changed.nonzero().tolist() == [[2, 7]]


@torch.no_grad()
@pytest.mark.parametrize(
    "spec",
    [
        *({"positions": code} for code in positions.registry.names()),
        {"final_norm": "none"}, {"norm": False}, {"block": "llama", "qk_norm": True, "positions": "rotary"},
        {"roles": "tagged", "norm_in": True}, {"mlp": False}, {"attention": False},
    ],
    ids=str,
)  # fmt: skip
def test_every_shape_of_model_is_traced(spec):
    model = build(**spec)
    trace, other = model.trace(tokens()), model.trace(tokens("others"))
    assert torch.equal(trace["answers"], model(tokens()))
    gone = {str({"mlp": False}): ["mlp"], str({"attention": False}): ATTENTION}.get(str(spec), [])
    assert trace.names == [name for name in names() if name.rpartition(".")[2] not in gone]
    assert torch.equal(model.trace(tokens(), dict(trace))["answers"], trace["answers"])
    patched = model.trace(tokens(), {"layers.0.before": other["layers.0.before"]})
    assert torch.equal(patched["answers"], other["answers"])
    if not gone:
        patch = {f"layers.0.{part}": other[f"layers.0.{part}"] for part in "qk"}
        assert torch.equal(model.trace(tokens(), patch)["layers.0.weights"], other["layers.0.weights"])


@torch.no_grad()
@pytest.mark.parametrize(("task", "setting"), [("linear", "model.read_in=scaled"), ("needle", ""), ("recall", "")])
def test_prompts_are_read_and_are_read_as_they_are(task, setting):
    spec = resolve(task, "ssa", "smoke", [setting] if setting else [])
    made = tasks.build(task)
    model = spec.untrained(made, 0).eval()
    prompt = made.sample(stream(0, "prompts"), 2, 16)
    trace = model.trace(prompt)
    assert torch.equal(trace["answers"], model(prompt.tokens))
    # Rescaled prompts have a second pass, over the first tokens as they are: it is not the one that is traced.
    assert all(x.shape[-2] == prompt.tokens.shape[1] for x in trace.values())
    numbers = prompt.tokens.double() if prompt.tokens.is_floating_point() else prompt.tokens.int()
    assert torch.equal(model.trace(numbers)["answers"], model(prompt.tokens))


def test_what_does_not_fit_is_refused_in_a_line():
    model = build()
    refused = {r"\(3, 8\)": lambda x: x[..., 0], "no tensor but NoneType": lambda x: None, "no tensor but float": 0.0}
    for line, patch in refused.items():
        with pytest.raises(BadValue, match=rf"activation 'layers.0.mlp' is \(3, 8, 16\), and its patch is {line}\."):
            model.trace(tokens(), {"layers.0.mlp": patch})
    for asked in ({"patch": {"layers.1.head": tokens()}}, {"only": ["layers.1.head"]}):
        with pytest.raises(UnknownName, match=r"is called 'layers.1.head'. Did you mean 'layers.1.heads'"):
            model.trace(tokens(), **asked)
    with pytest.raises(BadValue, match=r"reads tokens \(b, t, 1\) of numbers, not \(3, 8\) of torch.float32"):
        model.trace(tokens()[..., 0])
    with pytest.raises(BadValue, match=r"reads a Prompt or a tensor of tokens, not ndarray\."):
        model.trace(tokens().numpy())
    words = build(reading=TokenSpec(1, 5, 1, 12, vocabulary=5))
    for wrong in (torch.full((2, 4), 5), torch.full((2, 4), -1), torch.zeros(2, 4), torch.zeros(2, 4, 1)):
        with pytest.raises(BadValue, match=r"reads tokens \(b, t\) of whole numbers from 0 to 4, not \(2, 4"):
            words.trace(wrong)
    whole = torch.zeros(3, 8, 16)
    for odd, line in ((whole.to("meta"), "without values"), (whole.to(torch.complex64), "of complex numbers")):
        with pytest.raises(BadValue, match=rf"its patch is \(3, 8, 16\) {line}\."):
            model.trace(tokens(), {"layers.0.mlp": odd})
    for odd in (tokens(b=0), tokens(t=0), tokens().to("meta"), tokens().to(torch.complex64)):
        with pytest.raises(BadValue, match=r"reads tokens \(b, t, 1\) of numbers, not"):
            model.trace(odd)
    for asked in ({"patch": {0: whole}}, {"patch": {None: whole}}, {"only": [3]}, {"only": [("a", "b")]}):
        with pytest.raises(BadValue, match=r"called by a name such as 'layers\.0\.heads', not by"):
            model.trace(tokens(), **asked)


def test_the_model_stays_as_it_is_after_an_error():
    model = build("ssa+gated")
    before = model(tokens())

    def fail(x):
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        model.trace(tokens(), {"layers.1.q": fail})
    assert torch.is_grad_enabled()
    assert torch.equal(model(tokens()), before)
    assert not any(part._forward_hooks or part._forward_pre_hooks for part in model.modules())


def test_a_trace_is_a_read_only_mapping():
    trace = build().trace(tokens(), only=["*.weights", "answers"])
    assert trace.names == ["layers.0.weights", "layers.1.weights", "answers"]
    assert build().trace(tokens(), only="answers").names == ["answers"]
    assert len(trace) == 3
    assert "answers" in trace
    assert "layers.0.heads" not in trace
    assert trace.get("layers.0.heads") is None
    with pytest.raises(UnknownName, match=r"Did you mean 'layers.0.weights'") as said:
        trace["layers.0.weight"]
    assert isinstance(said.value, KeyError)
    with pytest.raises(TypeError):
        trace["answers"] = tokens()
    assert repr(trace).splitlines()[0].split(maxsplit=1) == ["layers.0.weights", "(3, 4, 8, 8)"]


def test_gradients_reach_activations_and_patches():
    model = build("ssmax")
    assert not model.trace(tokens())["answers"].requires_grad
    trace = model.trace(tokens(), gradients=True)
    (slope,) = torch.autograd.grad(trace["answers"][:, -1].sum(), trace["layers.1.heads"])
    leaf = trace["layers.1.heads"].detach().requires_grad_()
    model.trace(tokens(), {"layers.1.heads": leaf}, gradients=True)["answers"][:, -1].sum().backward()
    torch.testing.assert_close(leaf.grad, slope)
    assert slope[:, :, -1].abs().max() > 0


def test_dimensions_are_named():
    pytest.importorskip("xarray", reason="xarray is not installed: pip install 'icl_lab[notebook]'")
    trace = build().trace(tokens(), gradients=True)
    for name in trace:
        found = trace.to_xarray(name)
        assert (found.name, found.dims) == (name, DIMS[name.rpartition(".")[2]])
        assert found.to_numpy().tolist() == trace[name].tolist()
    assert trace.to_xarray("layers.0.k").dims == ("prompt", "head", "key", "channel")
    weights = trace.to_xarray("layers.0.weights")
    assert dict(weights.sizes) == {"prompt": 3, "head": 4, "query": 8, "key": 8}
    assert weights.sum("key").to_numpy() == pytest.approx(1, abs=1e-5)


def test_without_xarray_it_is_said_of_a_trace(monkeypatch):
    monkeypatch.setitem(sys.modules, "xarray", None)
    with pytest.raises(LabError, match=r"to_xarray needs xarray, .*: pip install 'icl_lab\[notebook\]'"):
        build().trace(tokens()).to_xarray("answers")
