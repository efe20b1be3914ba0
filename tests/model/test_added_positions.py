"""Position codes that add to scores: their numbers against transformers, and what every normalizer does with them."""

import math

import pytest
import torch
from torch.func import functional_call, vmap
from torch.nn import functional as F

from icl_lab import normalizers
from icl_lab.base.errors import BadValue
from icl_lab.base.rng import stream
from icl_lab.model import positions
from icl_lab.model.gpt2 import GPT2, ModelSpec, TokenSpec
from icl_lab.normalizers.base import causal, extra
from icl_lab.runs.spec import resolve
from icl_lab.testing.rule_inputs import HEADS, WIDTH, masks, qkv, stirred
from tests.cases import representatives

WITHOUT = ("cosformer", "sima")  # they have no scores
WRAPPED = ("lssa+reweight:p=3", "ssa+gated", "forget+gated", "sigmoid:l1=yes", "relu:divide=l1", "elastic:bias=4")
ADDED = [name for name in (*normalizers.names(), *WRAPPED) if name not in WITHOUT]
# Normalizers that read queries and keys by other ways than their product.
OTHERWISE = ("lssa", "qassmax", "differential", "threshold", "soft-avg", "four-functions", "forget")
OTHERWISE += ("lssa+reweight:p=3", "forget+gated")


def bias(t=7, seed=3):
    return torch.randn(HEADS, t, t, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.mark.parametrize("heads", [1, 4, 6, 12, 16])
def test_slopes_of_alibi_are_those_of_transformers(heads):
    bloom = pytest.importorskip("transformers.models.bloom.modeling_bloom")
    theirs = bloom.build_alibi_tensor(torch.ones(1, 2), heads, torch.float32)[:, 0, 1]
    torch.testing.assert_close(torch.tensor(positions.alibi_slopes(heads)), theirs, rtol=0, atol=1e-7)


def test_alibi_by_hand():
    code = positions.build("alibi", 8, 4, 3)  # two heads: slopes 1/16 and 1/256
    added = code.bias(torch.tensor([0, 1, 5]))
    assert added[0, 2].tolist() == [-5 / 16, -4 / 16, 0]
    assert added[1, 1, :2].tolist() == [-1 / 256, 0]


@pytest.mark.parametrize(("buckets", "farthest"), [(32, 128), (8, 20), (2, 5), (33, 128), (7, 20), (9, 20), (15, 9)])
def test_buckets_of_t5_are_those_of_transformers(buckets, farthest):
    t5 = pytest.importorskip("transformers.models.t5.modeling_t5")
    code, distance = positions.build(f"t5:buckets={buckets},farthest={farthest}", 16, 4, 12), torch.arange(1000)
    theirs = t5.T5Attention._relative_position_bucket
    assert torch.equal(code.bucket(distance), theirs(-distance, False, buckets, farthest))
    code.both_sides, distance = True, torch.arange(-500, 500)
    if buckets > 7:  # with fewer theirs has none for far ones on each side
        assert torch.equal(code.bucket(distance), theirs(-distance, True, buckets, farthest))


def test_t5_adds_the_number_of_head_and_bucket():
    code = positions.build("t5:buckets=4,farthest=8", 8, 4, 3)
    with torch.no_grad():
        code.table.copy_(torch.arange(8.0).view(4, 2))  # bucket by head
    added = code.bias(torch.arange(6))
    assert added[0, 5].tolist() == [6, 6, 4, 4, 2, 0]  # distances 5 4 3 2 1 0 in buckets 3 3 2 2 1 0
    assert added[1, 5].tolist() == [7, 7, 5, 5, 3, 1]


def test_kerple_by_hand():
    where = torch.tensor([0, 1, 5])
    code = positions.build("kerple", 8, 4, 3)  # two heads: r = 1/2 and 3/2, s = 1/4 and 3/4
    assert code.bias(where)[0, 2].tolist() == pytest.approx([-0.5 * math.log(2.25), -0.5 * math.log(2), 0])
    assert code.bias(where)[1, 1, :2].tolist() == pytest.approx([-1.5 * math.log(1.75), 0])
    code = positions.build("kerple:variant=power", 8, 4, 3)
    assert code.bias(where)[0, 2].tolist() == pytest.approx([-0.25 * math.sqrt(5), -0.25 * 2, 0])
    assert code.bias(where)[1, 2].tolist() == pytest.approx([-0.75 * 5**1.5, -0.75 * 4**1.5, 0])
    with torch.no_grad():  # beyond the bounds of the published code
        code.r.copy_(torch.tensor([-1.0, 9.0]))
        code.s.copy_(torch.tensor([-1.0, 1.0]))
    assert code.bias(where)[0, 2, 0].item() == pytest.approx(-0.01 * 5**0.01)
    assert code.bias(where)[1, 2, 0].item() == pytest.approx(-25)


@pytest.mark.parametrize("choice", ["kerple", "kerple:variant=power"])
def test_kerple_numbers_come_back_from_beyond_their_bounds(choice):
    """By descent, as in the published code, which clamps them before use; not further out, and in stacks too."""
    code, where = positions.build(choice, 8, 4, 3), torch.arange(6)
    names = ("r", "s")
    with torch.no_grad():
        code.r.copy_(torch.tensor([-1.0, 9.0]))
        code.s.fill_(-1.0)
    started = [getattr(code, name).detach().clone() for name in names]
    for sign in (1, -1):  # the loss wants smaller numbers, then larger ones
        slopes = torch.autograd.grad(-sign * code.bias(where).sum(), [getattr(code, name) for name in names])
        above = "power" in choice
        assert [bool(slope) for slope in slopes[0].tolist()] == ([False, True] if sign == 1 else [True, not above])
        assert [bool(slope) for slope in slopes[1].tolist()] == [sign == -1] * 2

        def total(r, s, sign=sign):
            return -sign * functional_call(code, {"r": r, "s": s}, (where,)).sum()

        code.forward = code.bias
        stacked = [torch.stack((p, p)).requires_grad_() for p in started]
        found = torch.autograd.grad(vmap(total)(*stacked).sum(), stacked)
        for one, both in zip(slopes, found, strict=True):
            assert torch.equal(torch.stack((one, one)), both)


def test_fire_by_hand():
    code = positions.build("fire:hidden=2,length=4", 8, 4, 3)
    with torch.no_grad():
        code.c.fill_(-0.5)  # its size counts, and that of the stretch
        code.stretch.fill_(-1.0)
        code.widen.weight.copy_(torch.tensor([[1.0], [-1.0]]))
        code.widen.bias.copy_(torch.tensor([0.0, 0.5]))
        code.read.weight.copy_(torch.tensor([[2.0, 0.0], [1.0, 3.0]]))
        code.read.bias.copy_(torch.tensor([0.0, 1.0]))
    added = code.bias(torch.arange(8))
    for i, j in ((2, 0), (7, 3), (7, 7)):
        share = math.log(1 + 0.5 * (i - j)) / math.log(1 + 0.5 * max(4, i))
        assert added[0, i, j].item() == pytest.approx(2 * share, abs=1e-5)
        assert added[1, i, j].item() == pytest.approx(share + 3 * max(0.5 - share, 0) + 1, abs=1e-5)


@pytest.mark.parametrize("choice", ["kerple", "kerple:variant=power", "fire", "t5"])
def test_numbers_of_a_code_learn_and_stay_finite(choice):
    reading = TokenSpec(width=1, outputs=1, roles=2, train_tokens=12)
    model = GPT2(ModelSpec(layers=1, heads=4, width=16, positions=choice), reading, "softmax", stream(0, "init"))
    model(torch.randn(2, 30, 1, generator=stream(0, "tokens")))[:, -1].square().sum().backward()
    for name, p in model.positions.named_parameters():
        assert p.grad.isfinite().all(), name
        assert (p.grad != 0).any(), name


@pytest.mark.parametrize("choice", representatives(name for name in ADDED if name not in (*OTHERWISE, "average")))
def test_a_bias_is_part_of_the_score(choice):
    """A bias u_i v_j is one more channel of queries and keys."""
    rule, (q, k, _) = stirred(choice), qkv()
    t = q.shape[2]
    u, v = (torch.randn(t, generator=torch.Generator().manual_seed(seed), dtype=torch.float64) for seed in (1, 2))
    added = torch.outer(u, v).expand(HEADS, t, t)
    u, v = (each.view(t, 1).expand(*q.shape[:3], 1) for each in (u, v))
    wide_q = math.sqrt(WIDTH + 1) * torch.cat([q / math.sqrt(WIDTH), u], -1)
    wide_k = torch.cat([k, v], -1)
    for visible in masks().values():
        torch.testing.assert_close(rule.weights(q, k, visible, added), rule.weights(wide_q, wide_k, visible))


def test_a_bias_of_normalizers_that_read_more_than_products():
    q, k, _ = qkv()
    visible, added = causal(7), bias()
    softmax = stirred("softmax")
    differential = stirred("differential")
    halves = [softmax.weights(q[..., half::2], k[..., half::2], visible, added) for half in (0, 1)]
    torch.testing.assert_close(differential.weights(q, k, visible, added), halves[0] - differential.lam * halves[1])
    cosine = F.cosine_similarity(q.unsqueeze(3), k.unsqueeze(2), -1)
    stretch = math.log(WIDTH) * torch.arange(1, 8).double().log().view(-1, 1)
    y = F.softplus(stretch * (cosine + added)) * visible
    torch.testing.assert_close(stirred("lssa").weights(q, k, visible, added), y / y.sum(-1, keepdim=True))
    threshold = stirred("threshold:differential=no")
    chance = (2 * torch.arange(1, 8).double().log() / WIDTH).sqrt().view(-1, 1)
    passed = (cosine + added - threshold.beta.view(-1, 1, 1) * chance).relu().square() * visible
    torch.testing.assert_close(threshold.weights(q, k, visible, added), passed)
    split = stirred("soft-avg").weights(q, k, visible, added)
    torch.testing.assert_close(split[:, :2], softmax.weights(q, k, visible, added)[:, :2])
    torch.testing.assert_close(split[:, 2:], stirred("average").weights(q, k, visible)[:, 2:])
    forget = stirred("forget")
    moved = forget.weights(q, k, visible, added) / forget.weights(q, k, visible)
    ratio = softmax.weights(q, k, visible, added) / softmax.weights(q, k, visible)
    last = moved[:, :, -1].log() - ratio[:, :, -1].log()
    torch.testing.assert_close(last, last[..., :1].expand_as(last))  # alike but for the sum of the row


@pytest.mark.parametrize("choice", representatives(ADDED))
def test_attend_adds_the_same_bias_as_weights(choice):
    rule, (q, k, v) = stirred(choice), qkv()
    for name, visible in masks().items():
        w = rule.weights(q, k, visible, bias())
        assert (w.masked_select(~visible) == 0).all(), name
        o = rule.attend(q, k, v, visible, bias())
        if not rule.finishes:
            torch.testing.assert_close(o, w @ v)
        assert choice == "average" or not torch.allclose(o, rule.attend(q, k, v, visible)), name


@pytest.mark.parametrize("attn", ["softmax", "ssa", "lssa+reweight:p=3"])
@pytest.mark.parametrize("code", ["alibi", "t5", "kerple", "fire:length=2"])
def test_a_model_adds_the_bias_of_its_code_in_every_layer(code, attn):
    """The weights that a watcher is shown are those of the scores with the bias, which it is shown too."""
    reading = TokenSpec(width=1, outputs=1, roles=2, train_tokens=12)
    model = GPT2(ModelSpec(layers=2, heads=4, width=16, positions=code), reading, attn, stream(0, "init"))
    with torch.no_grad():
        for p in model.positions.parameters():
            p.add_(torch.randn(p.shape, generator=stream(0, "stir")))
    tokens, seen = torch.randn(2, 9, 1, generator=stream(0, "tokens")), []
    out = model(tokens, watch=lambda layer, weights, scores: seen.append((weights, scores)))
    torch.testing.assert_close(model(tokens), out)
    if attn == "softmax":
        for weights, scores in seen:
            torch.testing.assert_close(weights, scores.masked_fill(~causal(9), -math.inf).softmax(-1))
    model.positions = positions.build("none", 16, 4, 12)
    assert len(seen) == 2
    assert not torch.allclose(model(tokens), out, atol=1e-4)


def test_a_normalizer_without_scores_is_refused_before_training():
    with pytest.raises(BadValue, match="'sima' has no scores that a position code could add to, as 'alibi' does"):
        resolve("linear", "sima", "smoke", ["model.positions=alibi"])
    with pytest.raises(BadValue, match="'cosformer' has no scores"):
        resolve("linear", "cosformer", "smoke", ["model.positions=none", "test.positions=alibi"])


def test_an_outside_normalizer_without_bias_works():
    class Plain(normalizers.base.Scored):
        def rows(self, q, k, visible):
            return normalizers.base.softmax(normalizers.base.scores(q, k), visible)

    rule, (q, k, v) = Plain(), qkv()
    assert extra(rule, None, q) == {}
    torch.testing.assert_close(rule.attend(q, k, v, causal(7)), stirred("softmax").attend(q, k, v, causal(7)))
    assert not rule.takes_bias
    with pytest.raises(BadValue, match="'Plain' has no scores"):
        positions.check_scores(positions.build("t5", 16, 4, 12), rule)
