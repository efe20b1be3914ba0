"""Normalizers that read more than the scores, against their published formulas written out here, token by token."""

import math

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from icl_lab import normalizers
from icl_lab.base.errors import BadValue
from icl_lab.normalizers.base import Normalizer, causal
from tests.normalizers.test_values import sig, soft

HEADS, WIDTH, TOKENS = 2, 4, 6


def build(choice: str, layer: int = 0) -> Normalizer:
    return normalizers.build(choice, heads=HEADS, head_dim=WIDTH, train_tokens=3, layer=layer).double()


def drawn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def qkv() -> tuple[Tensor, Tensor, Tensor]:
    q, k, v = drawn(3, 2, HEADS, TOKENS, WIDTH)
    return 2 * q, k, v


def tokens() -> Tensor:
    return drawn(2, TOKENS, HEADS * WIDTH, seed=1)


def perturb(rule: Normalizer) -> Normalizer:
    with torch.no_grad():
        for number, parameter in enumerate(rule.parameters()):
            parameter.add_(0.5 * drawn(*parameter.shape, seed=10 + number))
    return rule


def dot(x: Tensor, y: Tensor) -> float:
    return math.fsum(a * b for a, b in zip(x.tolist(), y.tolist(), strict=True))


def gelu(x: float) -> float:
    return x * (1 + math.erf(x / math.sqrt(2))) / 2


def test_forgetting_attention_by_hand() -> None:
    """Token by token: the score, and a product of the gates of the tokens in between."""
    rule, (q, k, v), x = perturb(build("forget")), qkv(), tokens()
    w, o = rule.weights(q, k, causal(TOKENS), x=x), rule.attend(q, k, v, causal(TOKENS), x=x)
    for b in range(2):
        for h in range(HEADS):
            f = [sig(dot(rule.w[h], x[b, t]) + rule.b[h].item()) for t in range(TOKENS)]
            for i in range(TOKENS):
                row = [math.exp(dot(q[b, h, i], k[b, h, j]) / 2) * math.prod(f[j + 1 : i + 1]) for j in range(i + 1)]
                wanted = [part / sum(row) for part in row]
                assert w[b, h, i, : i + 1].tolist() == pytest.approx(wanted)
                assert o[b, h, i].tolist() == pytest.approx((torch.tensor(wanted).double() @ v[b, h, : i + 1]).tolist())


def test_forget_starts_with_a_zero_bias_and_small_weights() -> None:
    rule = normalizers.build("forget", heads=8, head_dim=64, train_tokens=3)
    assert (rule.b == 0).all()
    assert rule.w.std().item() == pytest.approx(0.02, rel=0.05)
    assert abs(rule.w.mean().item()) < 0.002


def test_forget_says_that_it_needs_the_tokens_and_all_of_them() -> None:
    rule, (q, k, v) = build("forget"), qkv()
    for ask in (lambda: rule.weights(q, k, causal(6)), lambda: rule.attend(q, k, v, causal(6))):
        with pytest.raises(BadValue, match="'forget' reads the tokens of a model"):
            ask()
    with pytest.raises(
        BadValue, match="'forget' reads the tokens of all keys, and a KV cache keeps only keys and values"
    ):
        rule.weights(q[:, :, -1:], k, causal(6)[-1:], x=tokens()[:, -1:])


@pytest.mark.parametrize("phi", ["sigmoid", "softplus"])
@pytest.mark.parametrize("per", ["head", "channel"])
def test_a_gate_by_hand(per: str, phi: str) -> None:
    rule, inside = perturb(build(f"ssa+gated:per={per},phi={phi}")), build("ssa")
    inside.load_state_dict(rule.rule.state_dict())
    (q, k, v), x = qkv(), tokens()
    plain, got = inside.attend(q, k, v, causal(TOKENS)), rule.attend(q, k, v, causal(TOKENS), x=x)
    function = sig if phi == "sigmoid" else lambda value: math.log(1 + math.exp(value))
    for b in range(2):
        for h in range(HEADS):
            for t in range(TOKENS):
                lines = [h] * WIDTH if per == "head" else range(h * WIDTH, (h + 1) * WIDTH)
                gates = [function(dot(rule.w[line], x[b, t])) for line in lines]
                wanted = [g * value for g, value in zip(gates, plain[b, h, t].tolist(), strict=True)]
                assert got[b, h, t].tolist() == pytest.approx(wanted)
    # The weights are those of the normalizer inside, which need no tokens.
    assert torch.equal(rule.weights(q, k, causal(TOKENS)), inside.weights(q, k, causal(TOKENS)))
    with pytest.raises(BadValue, match="'gated' reads the tokens"):
        rule.attend(q, k, v, causal(TOKENS))


def test_a_gate_around_a_rule_that_reads_tokens_hands_them_on() -> None:
    rule, inside, (q, k, v), x = perturb(build("forget+gated")), build("forget"), qkv(), tokens()
    inside.load_state_dict(rule.rule.state_dict())
    gates = (x @ rule.w.T).sigmoid().transpose(1, 2).unsqueeze(-1)
    wanted = gates * inside.attend(q, k, v, causal(TOKENS), x=x)
    torch.testing.assert_close(rule.attend(q, k, v, causal(TOKENS), x=x), wanted)
    assert rule.reads_tokens == "weights"
    assert build("ssa+gated").reads_tokens == "output"


def test_a_gate_starts_alike_in_builds_and_not_in_layers() -> None:
    layers = normalizers.build_layers("ssa+gated", layers=2, heads=HEADS, head_dim=WIDTH, train_tokens=3)
    assert not torch.equal(layers[0].w, layers[1].w)
    assert torch.equal(layers[1].w, build("ssa+gated", layer=1).w.float())


def test_a_rule_draws_nothing_from_the_generator_of_the_process() -> None:
    torch.manual_seed(3)
    before = torch.get_rng_state()
    for choice in ("forget", "qassmax", "differential", "softmax+gated:per=channel"):
        build(choice)
    assert torch.equal(before, torch.get_rng_state())


def test_a_matrix_that_no_layer_has_room_for_is_refused() -> None:
    with pytest.raises(BadValue, match="a matrix of 65536 x 65536 numbers"):
        normalizers.build("softmax+gated:per=channel", heads=1, head_dim=65_536, train_tokens=3)


@pytest.mark.parametrize("first", ["yes", "no"])
def test_selective_attention_token_by_token(first: str) -> None:
    """By loops: whoever stands between a key and the query, and likes the key in the first head, takes it away."""
    rule, (q, k, _) = build(f"selective:first={first}"), qkv()
    w = rule.weights(q, k, causal(TOKENS))
    for b in range(2):
        for h in range(HEADS):
            for i in range(TOKENS):
                z = []
                for j in range(i + 1):
                    held = sum(max(dot(q[b, 0, between], k[b, 0, j]) / 2, 0) for between in range(j + 1, i))
                    z.append(dot(q[b, h, i], k[b, h, j]) / 2 - (0 if first == "yes" and j == 0 else held))
                assert w[b, h, i, : i + 1].tolist() == pytest.approx(soft(z))


@pytest.mark.parametrize("per", ["channel", "head"])
def test_qassmax_by_hand(per: str) -> None:
    rule, (q, k, _) = perturb(build(f"qassmax:per={per},hidden=3")), qkv()
    w = rule.weights(q, k, causal(TOKENS))
    p = {name: getattr(rule, name).tolist() for name in rule.maps}
    for h in range(HEADS):
        for i in range(TOKENS):
            inner = [gelu(a[0] * math.log(i + 1) + c) for a, c in zip(p["base_in"], p["base_in_bias"], strict=True)]
            base = [
                math.fsum(a * x for a, x in zip(line, inner, strict=True)) + c
                for line, c in zip(p["base_out"], p["base_out_bias"], strict=True)
            ]
            own = base[h * WIDTH : (h + 1) * WIDTH] if per == "channel" else [base[h]] * WIDTH
            row = q[0, h, i].tolist()
            inner = [
                gelu(math.fsum(a * x for a, x in zip(line, row, strict=True)) + c)
                for line, c in zip(p["gate_in"], p["gate_in_bias"], strict=True)
            ]
            gate = [
                1 + math.tanh(math.fsum(a * x for a, x in zip(line, inner, strict=True)) + c)
                for line, c in zip(p["gate_out"], p["gate_bias"], strict=True)
            ]
            gate = gate if per == "channel" else gate * WIDTH
            stretched = torch.tensor([x * f * g for x, f, g in zip(row, own, gate, strict=True)], dtype=torch.float64)
            wanted = soft([dot(stretched, k[0, h, j]) / 2 for j in range(i + 1)])
            assert w[0, h, i, : i + 1].tolist() == pytest.approx(wanted)


def test_qassmax_starts_ungated_within_linear_bounds() -> None:
    rule = normalizers.build("qassmax", heads=4, head_dim=16, train_tokens=3)
    assert (rule.gate_out == 0).all()
    assert (rule.gate_bias == 0).all()
    for name, inputs in {"base_in": 1, "base_in_bias": 1, "base_out": 64, "base_out_bias": 64, "gate_in": 16}.items():
        assert 0.8 < getattr(rule, name).abs().max().item() * inputs**0.5 <= 1, name


@pytest.mark.parametrize("layer", [0, 3])
@pytest.mark.parametrize("norm", ["yes", "no"])
def test_differential_attention_by_hand(norm: str, layer: int) -> None:
    rule, (q, k, v) = perturb(build(f"differential:norm={norm}", layer)), qkv()
    start = 0.8 - 0.6 * math.exp(-0.3 * layer)
    share = math.exp(dot(rule.a1, rule.b1)) - math.exp(dot(rule.a2, rule.b2)) + start
    assert rule.lam.item() == pytest.approx(share)
    w, o = rule.weights(q, k, causal(TOKENS)), rule.attend(q, k, v, causal(TOKENS))
    for h in range(HEADS):
        for i in range(TOKENS):
            maps = [
                soft([dot(q[0, h, i, at::2], k[0, h, j, at::2]) / math.sqrt(2) for j in range(i + 1)]) for at in (0, 1)
            ]
            wanted = [a - share * c for a, c in zip(*maps, strict=True)]
            assert w[0, h, i, : i + 1].tolist() == pytest.approx(wanted)
            summed = torch.tensor(wanted, dtype=torch.float64) @ v[0, h, : i + 1]
            if norm == "yes":
                summed = (1 - start) * summed / (summed.square().mean() + 1e-5).sqrt()
            assert o[0, h, i].tolist() == pytest.approx(summed.tolist())


def test_differential_attention_starts_at_the_share_of_its_layer() -> None:
    for layer, start in ((0, 0.2), (1, 0.8 - 0.6 * math.exp(-0.3)), (11, 0.8 - 0.6 * math.exp(-3.3))):
        rule = normalizers.build("differential", heads=4, head_dim=64, train_tokens=3, layer=layer)
        assert rule.lam.item() == pytest.approx(start, abs=0.25)  # exp(a1.b1) - exp(a2.b2) is near 0
        assert torch.cat([rule.a1, rule.b1, rule.a2, rule.b2]).std().item() == pytest.approx(0.1, rel=0.2)
    with pytest.raises(BadValue, match="the width of a head must be even, for two halves, got 3"):
        normalizers.build("differential", heads=4, head_dim=3, train_tokens=3)


def test_differential_attention_is_that_of_transformers() -> None:
    """The same numbers through DiffLlama, whose projections are set so that they hand on what is there."""
    modeling = pytest.importorskip("transformers.models.diffllama.modeling_diffllama")
    heads, half, layer = HEADS, WIDTH // 2, 2
    width = 2 * heads * half
    config = modeling.DiffLlamaConfig(
        hidden_size=width, num_attention_heads=2 * heads, num_key_value_heads=2 * heads, head_dim=half,
        rms_norm_eps=1e-5, attention_dropout=0.0, attn_implementation="eager",
    )  # fmt: skip
    theirs, rule = modeling.DiffLlamaAttention(config, layer).double(), perturb(build("differential", layer))
    x = tokens()
    with torch.no_grad():
        for name, ours in {"q1": "a1", "k1": "b1", "q2": "a2", "k2": "b2"}.items():
            getattr(theirs, f"lambda_{name}").copy_(getattr(rule, ours))
        theirs.o_proj.weight.copy_(torch.eye(width))
        for number, name in enumerate(("q_proj", "k_proj", "v_proj")):
            getattr(theirs, name).weight.copy_(drawn(width, width, seed=20 + number))
        mask = torch.zeros(1, 1, TOKENS, TOKENS).double().masked_fill(~causal(TOKENS), -torch.inf)
        unturned = torch.ones(1, TOKENS, half).double(), torch.zeros(1, TOKENS, half).double()
        wanted, _ = theirs(x, unturned, mask)
        q, k, v = (
            F.linear(x, getattr(theirs, name).weight).view(2, TOKENS, 2 * heads, half).transpose(1, 2)
            for name in ("q_proj", "k_proj", "v_proj")
        )
        # Theirs: heads of the first map, then of the second. A head of ours has both, in its even and odd channels.
        q, k = (torch.stack(part.chunk(2, 1), -1).flatten(-2) for part in (q, k))
        v = torch.cat(v.chunk(2, 1), -1)
        got = rule.attend(q, k, v, causal(TOKENS)).transpose(1, 2).reshape(2, TOKENS, width)
    torch.testing.assert_close(got, wanted, rtol=1e-5, atol=1e-5)  # their softmax is in single precision


@pytest.mark.parametrize("variant", ["llama4", "ministral3"])
def test_llama4_scales_as_transformers_do(variant: str) -> None:
    places = torch.arange(40)
    if variant == "ministral3":
        modeling = pytest.importorskip("transformers.models.ministral3.modeling_ministral3")
        wanted = modeling.get_llama_4_attn_scale(places.unsqueeze(0), 0.3, 8).flatten()
    else:  # as Llama4TextAttention.forward of transformers, which has no function of it
        wanted = torch.log1p(torch.floor((places.float() + 1.0) / 8)) * 0.3 + 1.0
    rule = build(f"llama4:beta=0.3,variant={variant},length=8")
    torch.testing.assert_close(rule.scale(places.double() + 1), wanted.double(), rtol=1e-6, atol=0)
