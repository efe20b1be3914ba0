"""The model: what it computes, what it cannot see, and that the named normalizer is what it runs."""

import pytest
import torch

from icl_lab import normalizers
from icl_lab.base.errors import BadValue
from icl_lab.base.rescale import PairRescaling
from icl_lab.base.rng import stream
from icl_lab.model import positions
from icl_lab.model.blocks import MLP
from icl_lab.model.gpt2 import GPT2, ModelSpec, TokenSpec
from icl_lab.runs.spec import resolve
from tests.cases import representatives

READING = TokenSpec(width=1, outputs=1, roles=2, train_tokens=12)
NO_SCORES = ("cosformer", "sima")
CODES = positions.registry.names()


def build(attn="softmax", reading=READING, **spec):
    return GPT2(ModelSpec(**{"layers": 2, "heads": 4, "width": 16, **spec}), reading, attn, stream(0, "init"))


def tokens(b=2, t=8, w=1):
    return torch.randn(b, t, w, generator=stream(0, "tokens"))


def future_gradient(model, at=4):
    """The gradient of the answer at one token with respect to every token."""
    x = tokens().requires_grad_()
    model(x)[:, at].sum().backward()
    return x.grad


@pytest.mark.parametrize("name", representatives(name for name in normalizers.names() if name not in NO_SCORES))
def test_the_future_has_exactly_no_influence(name):
    for code in CODES:
        gradient = future_gradient(build(name, positions=code))
        assert gradient[:, 5:].abs().max() == 0, code
        assert gradient[:, 4].abs().max() > 0, code


@pytest.mark.parametrize("code", CODES)
@pytest.mark.parametrize("roles", ["shared", "tagged"])
def test_the_past_and_the_roles_have_influence(code, roles):
    model = build(positions=code, roles=roles)
    gradient = future_gradient(model)
    assert (gradient[:, :5].abs().amax(dim=(0, 2)) > 0).all()
    if roles == "tagged":
        assert (torch.autograd.grad(model(tokens()).sum(), model.roles)[0].abs().amax(1) > 0).all()


def test_order_is_seen_through_positions():
    """Without a position code, one layer's answer at the end does not know the order of what came before."""
    x = tokens(t=6).double()
    swapped = x[:, [1, 0, 2, 3, 4, 5]]
    for code in CODES:
        model = build(positions=code, layers=1).double()
        assert torch.allclose(model(x)[:, -1], model(swapped)[:, -1], rtol=0, atol=1e-12) == (code == "none"), code


def test_rotary_scores_depend_on_distances_only():
    code, where = positions.build("rotary", 16, 8, 9), torch.arange(9)
    q, k = torch.randn(2, 1, 1, 1, 8, dtype=torch.float64).expand(2, 1, 1, 9, 8)
    turned_q, turned_k = code.turn(q, k, where)
    scores = turned_q @ turned_k.transpose(-1, -2)
    assert torch.allclose(scores[..., 3, 1], scores[..., 8, 6], atol=1e-5)
    assert not torch.allclose(scores[..., 3, 1], scores[..., 8, 1], atol=1e-3)
    assert torch.allclose(turned_q.norm(dim=-1), q.norm(dim=-1), atol=1e-6)


def test_sinusoidal_by_hand():
    code = positions.build("sinusoidal:theta=100", 4, 2, 3)
    placed = code.place(torch.zeros(1, 3, 4), torch.arange(3))
    angle = torch.tensor([[0.0, 0], [1, 0.1], [2, 0.2]])
    assert torch.allclose(placed[0], torch.cat((angle.sin(), angle.cos()), 1), atol=1e-6)


def test_ntk_stretches_the_slowest_wave_and_not_the_fastest():
    plain, scaled = (positions.build(f"rotary{option}", 16, 8, 10) for option in ("", ":ntk=yes"))
    q = torch.randn(1, 1, 40, 8)
    near, far = torch.arange(10), torch.arange(40)
    for where in (near, near[:5]):  # as many as in training, or fewer: as in training
        few = q[:, :, : len(where)]
        assert torch.equal(plain.turn(few, few, where)[0], scaled.turn(few, few, where)[0])
    turned = scaled.turn(q, q, far)[0]
    # Wave 0 (numbers 0 and 4) has frequency 1 whatever theta is; wave 3 turned by 36 is the plain one turned by 9.
    assert torch.allclose(turned[..., [0, 4]], plain.turn(q, q, far)[0][..., [0, 4]], atol=1e-5)
    same = q[:, :, 36:37].expand(1, 1, 40, 8)
    assert torch.allclose(turned[0, 0, 36, [3, 7]], plain.turn(same, same, far)[0][0, 0, 9, [3, 7]], atol=1e-5)
    assert plain.prefix_consistent
    assert not scaled.prefix_consistent


@pytest.mark.parametrize("code", ["learned:rows=40,random=40", "sinusoidal:random=40", "rotary:random=40"])
def test_random_places_are_fresh_in_training_and_fixed_in_tests(code):
    model = build(positions=code)
    places = [model.positions.where(12, stream(0, "places", step), torch.device("cpu")) for step in (1, 1, 2)]
    for where in places:
        assert len(where.unique()) == 12
        assert (where.diff() > 0).all()
        assert 0 <= where.min() <= where.max() < 40
    assert torch.equal(places[0], places[1])
    assert not torch.equal(places[0], places[2])
    x = tokens(t=12)
    assert torch.equal(model(x), model(x))
    assert not torch.equal(model(x), model(x, places=model.places(x.shape[1], stream(0, "places", 1), x.device)))
    assert not model.prefix_consistent
    with pytest.raises(BadValue, match="41 tokens do not fit into the 40 places"):
        model(tokens(t=41))


def test_another_code_at_test_reads_the_same_weights():
    model, other = build(positions="rotary"), build(positions="rotary:theta=100")
    x = tokens()
    before = model(x)
    model.swap_positions("rotary:theta=100")
    assert torch.equal(model(x), other(x))
    assert not torch.equal(model(x), before)
    for there, here in (("learned", "rotary"), ("rotary", "learned")):
        with pytest.raises(BadValue, match="learned vectors"):
            build(positions=there).swap_positions(here)


def test_a_llama_block_by_hand():
    model = build(block="llama", layers=1, heads=1, positions="none").double()
    parts = dict(model.named_parameters())
    assert not any(name.startswith("blocks") and name.endswith("bias") for name in parts)
    assert parts["blocks.0.mlp.gate.weight"].shape == (48, 16)  # 8/3 of 16 is 42.7, to the next 8
    with torch.no_grad():
        for p in parts.values():
            p.copy_(torch.randn(p.shape, generator=stream(0, "llama"), dtype=torch.float64))
    x = tokens(b=1, t=3).double()

    def rms(z, weight):
        return z / (z.square().mean(-1, keepdim=True) + 1e-5).sqrt() * weight

    h = x @ parts["read_in.weight"].T + parts["read_in.bias"]
    z = rms(h, parts["blocks.0.before_attention.weight"])
    q, k, v = (z @ parts["blocks.0.attention.qkv.weight"].T).chunk(3, -1)
    scores = (q @ k.transpose(1, 2) / 4).masked_fill(torch.ones(3, 3).triu(1).bool(), -torch.inf)
    h = h + scores.softmax(-1) @ v @ parts["blocks.0.attention.project.weight"].T
    z = rms(h, parts["blocks.0.before_mlp.weight"])
    gate, wide = (z @ parts[f"blocks.0.mlp.{name}.weight"].T for name in ("gate", "widen"))
    h = h + (gate * torch.sigmoid(gate) * wide) @ parts["blocks.0.mlp.project.weight"].T
    wanted = rms(h, parts["norm.weight"]) @ parts["read_out.weight"].T + parts["read_out.bias"]
    assert torch.allclose(model(x), wanted, atol=1e-10)


def test_parameters_as_the_paper_counts_them():
    """12 (12 d^2 + 13 d) + 2 d + 512 d + 2 d + (d + 1) = 9,609,473 at d = 256; with the token table 22.5M."""
    model = build(layers=12, heads=8, width=256)
    assert model.parameter_count() == 9_609_473
    assert model.parameter_count_of_paper() == 22_475_265


def test_the_start_is_that_of_gpt2():
    model = build(layers=8, width=64)
    deviations = {name: p.std().item() for name, p in model.named_parameters() if p.ndim == 2 and p.numel() >= 4096}
    for name, deviation in deviations.items():
        expected = 0.02 / 4 if name.endswith("project.weight") else 0.02
        assert deviation == pytest.approx(expected, rel=0.05), name
    assert all(p.abs().max() == 0 for name, p in model.named_parameters() if name.endswith("qkv.bias"))


@pytest.mark.parametrize("reading", [READING, TokenSpec(1, 5, 1, 12, vocabulary=5)])
@pytest.mark.parametrize("part", ["read_in", "read_out"])
def test_the_start_of_one_part_alone_is_multiplied(part, reading):
    one, four = (build(reading=reading, **{f"{part}_start": start}) for start in (1.0, 4.0))
    usual, large = one.state_dict(), four.state_dict()
    assert torch.equal(large[f"{part}.weight"], 4 * usual[f"{part}.weight"])
    assert all(torch.equal(large[name], p) for name, p in usual.items() if name != f"{part}.weight")
    bounds = [model.answer_bound()[1] * (4 if part == "read_out" and model is one else 1) for model in (one, four)]
    torch.testing.assert_close(*bounds)
    assert resolve("linear", "softmax", "lite", [f"model.{part}_start=1"]).hash == "aaa54924"
    assert resolve("linear", "softmax", "lite", [f"model.{part}_start=4"]).hash != "aaa54924"
    for wrong in ("0", "inf", "1e9"):
        with pytest.raises(BadValue, match=rf"model.{part}_start: .*above 0"):
            resolve("linear", "softmax", "lite", [f"model.{part}_start={wrong}"])


@pytest.mark.parametrize("switch", [{}, {"mlp": False}, {"attention": False}, {"norm": False}])
def test_asked_only_for_answers_it_gives_the_same_ones(switch):
    whole = build("ssa", **switch)
    tokens = torch.randn(3, 9, 1, generator=stream(0, "answers"))
    asked = whole(tokens, answers=slice(None, None, 2))
    torch.testing.assert_close(asked[:, ::2], whole(tokens)[:, ::2])
    assert torch.equal(asked[:, 1::2], torch.zeros(3, 4, 1))
    last = whole(tokens, answers=slice(-2, -1))
    torch.testing.assert_close(last[:, -2], whole(tokens)[:, -2])


def test_the_activation_is_the_tanh_form_and_its_tail_is_zero():
    """Products of numbers below 1e-38 are slow, and a tail of 1e-35 makes such gradients of those of 1e-5."""
    mlp = MLP(1)
    with torch.no_grad():
        for p, value in ((mlp.widen.weight, 1), (mlp.widen.bias, 0), (mlp.project.weight, 0.25), (mlp.project.bias, 0)):
            p.fill_(value)
    x = torch.linspace(-20, 1, 10_001).unsqueeze(1).requires_grad_()
    y = mlp(x)
    assert y[-1].item() == pytest.approx(0.841192, abs=1e-6)  # 0.841345 is the exact form
    for each in (y, torch.autograd.grad(y.sum(), x)[0]):
        assert ((each.abs() > 1e-20) | (each == 0)).all()
        assert (each[x > -4] != 0).float().mean() > 0.99


@pytest.mark.slow
def test_equal_to_hugging_face_on_the_same_weights():
    """Against the real ``transformers.GPT2Model``, fed through ``inputs_embeds`` as the published code does."""
    transformers = pytest.importorskip("transformers", reason="pip install 'icl_lab[hf]' for the parity test")
    config = transformers.GPT2Config(n_positions=512, n_embd=32, n_layer=3, n_head=4)
    theirs, ours = transformers.GPT2Model(config).eval(), build(layers=3, heads=4, width=32).eval()
    with torch.no_grad():
        for p in theirs.parameters():
            p.add_(0.1 * torch.randn(p.shape, generator=stream(0, "weights")))  # biases and norms away from 0 and 1
        ours.positions.table.copy_(theirs.wpe.weight)
        pairs = [(ours.norm, theirs.ln_f)]
        for mine, block in zip(ours.blocks, theirs.h, strict=True):
            attention, attn = mine.attention, block.attn
            pairs += [(mine.before_attention, block.ln_1), (mine.before_mlp, block.ln_2)]
            pairs += [(attention.qkv, attn.c_attn), (attention.project, attn.c_proj)]
            pairs += [(mine.mlp.widen, block.mlp.c_fc), (mine.mlp.project, block.mlp.c_proj)]
        for mine, other in pairs:
            mine.weight.copy_(other.weight.T if other.weight.ndim == 2 else other.weight)
            mine.bias.copy_(other.bias)
        x = tokens(b=3, t=50)
        hidden = theirs(inputs_embeds=ours.read_in(x)).last_hidden_state
        assert (ours.read_out(hidden) - ours(x)).abs().max() < 1e-5


def one_by_one(model, context, queries):
    """Answers to queries, a prompt each."""
    asked = [torch.cat((context, queries[:, [q]]), 1) for q in range(queries.shape[1])]
    return torch.stack([model(prompt)[:, -1] for prompt in asked], 1)


def queries_of(model, t):
    """Answers to six queries after t tokens, together and one by one, of a model that has left its start."""
    rng = stream(0, "queries")
    with torch.no_grad():
        for p in model.parameters():
            p.add_(0.3 * torch.randn(p.shape, generator=rng))
        context, queries = torch.randn(3, t, 1, generator=rng), 3 * torch.randn(3, 6, 1, generator=rng)
        return model.answer_queries(context, queries), one_by_one(model, context, queries)


@pytest.mark.parametrize("name", representatives(normalizers.names()))
def test_queries_of_one_context_are_answered_at_once(name):
    model = build(name, positions="none")
    ordered = any(rule.ordered for rule in model.rules)
    assert model.queries_apart is not ordered
    if not ordered:
        torch.testing.assert_close(*queries_of(model, 9), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("code", CODES)
@pytest.mark.parametrize("roles", ["shared", "tagged"])
@pytest.mark.parametrize("t", [7, 8])
def test_queries_stand_at_their_place_and_in_their_role(code, roles, t):
    model = build(positions=code, roles=roles)
    assert model.queries_apart
    torch.testing.assert_close(*queries_of(model, t), rtol=1e-4, atol=1e-5)


def test_queries_stand_apart_only_where_nothing_else_counts():
    assert not build(mask="full").queries_apart
    assert not build(positions="rotary:ntk=yes").queries_apart
    model = build()
    model.rescaling = PairRescaling("labels")
    assert not model.queries_apart


def test_tokens_beyond_the_last_place_are_refused():
    model = build(positions="learned:rows=8")
    for ask in (lambda: model(tokens(t=9)), lambda: model.answer_queries(tokens(t=8), tokens(t=3))):
        with pytest.raises(BadValue, match="9 tokens do not fit into the 8 places"):
            ask()
    assert build(positions="none")(tokens(t=600)).shape == (2, 600, 1)
