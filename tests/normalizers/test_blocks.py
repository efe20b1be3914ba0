"""Blocks of query rows: the rows of the whole matrix under every mask, bias and precision, in less memory."""

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from icl_lab import normalizers
from icl_lab.model import positions
from icl_lab.model.gpt2 import GPT2, ModelSpec, TokenSpec
from icl_lab.normalizers import base
from icl_lab.normalizers.base import RowWise, Scored, WarpedScore, by_blocks, causal, extra, full, scores
from icl_lab.testing.rule_inputs import HEADS, masks, qkv, stirred, with_tokens
from icl_lab.testing.rule_masks import padded
from tests.cases import representatives

ROWS, TOKENS = 4, 10  # neither 4 nor a block of 3 rows divides 10
WHOLE = ("selective", "sima", "cosformer:horizon=current")  # which read the queries or the keys of other rows
FUSED = (
    "softmax",
    "temperature",
    "log-n",
    "llama4",
    "ssmax",
    "ssmax-free",
    "qassmax",
    "inverse",
    "differential",
    "sink",
)
MORE = (
    *("lssa+reweight:p=3", "ssmax-free+reweight", "ssa+talking-heads", "forget+gated", "entmax:alpha=1.3,learn=yes"),
    *("elastic:bias=4", "recentred:l1=yes", "sima:axis=feature", "sigmoid:bias=visible,l1=yes"),
)
RULES = [name for name in (*normalizers.names(), *MORE, *WHOLE) if name not in FUSED]


@pytest.fixture
def short(monkeypatch):
    """Let prompts of 10 tokens be long ones, and count the weights that are computed at once."""
    monkeypatch.setattr(base, "BLOCK", ROWS)
    monkeypatch.setattr(base, "LONG", TOKENS)


class Sizes(TorchDispatchMode):
    """The largest tensor of floating point that operations return, in numbers."""

    most = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        for x in tree_leaves(out):
            if isinstance(x, torch.Tensor) and x.is_floating_point():
                self.most = max(self.most, x.numel())
        return out


def largest(work):
    with Sizes() as sizes:
        work()
    return sizes.most


# Rows of every normalizer in blocks are daily in its contract (testing/rule_masks).
@pytest.mark.parametrize("choice", representatives(RULES))
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-11), (torch.float32, 1e-5)])
def test_blocks_give_the_output_of_the_whole(short, choice, dtype, tolerance):
    checked, (q, k, v) = stirred(choice).to(dtype), (x.to(dtype) for x in qkv(TOKENS))
    rule, x = with_tokens(checked, q)
    seen = {**masks(TOKENS), "a mask for each prompt": padded(TOKENS)}
    window = causal(TOKENS) & ~causal(TOKENS).roll(3, 0).tril(-3)  # the last three keys
    assert window.sum(-1).tolist() == [1, 2, *[3] * 8]
    for name, visible in (seen | {"a window": window}).items():
        wanted = rule.output(rule.weights(q, k, visible, **extra(rule, None, x)) @ v, **extra(rule, None, x))
        got = rule.attend(q, k, v, visible, **extra(rule, None, x))
        torch.testing.assert_close(got, wanted, rtol=1e3 * tolerance, atol=tolerance, msg=lambda m, n=name: f"{n}: {m}")


@pytest.mark.parametrize(
    "choice", representatives(name for name in RULES if name.partition(":")[0] not in ("cosformer", "sima"))
)
def test_blocks_take_their_part_of_a_bias(short, choice):
    checked, (q, k, v) = stirred(choice), qkv(TOKENS)
    rule, x = with_tokens(checked, q)
    bias = torch.randn(HEADS, TOKENS, TOKENS, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    for visible in (causal(TOKENS), padded(TOKENS)):
        wanted = rule.output(rule.weights(q, k, visible, **extra(rule, bias, x)) @ v, **extra(rule, None, x))
        got = rule.attend(q, k, v, visible, **extra(rule, bias, x))
        torch.testing.assert_close(got, wanted, rtol=1e-8, atol=1e-11)


@pytest.mark.parametrize(
    "choice", ["ssa", "entmax:alpha=1.3,learn=yes", "stick-breaking", "lssa+reweight:p=3", "forget"]
)
def test_gradients_of_blocks_are_those_of_the_whole(short, monkeypatch, choice):
    checked, tensors = stirred(choice), [x.requires_grad_() for x in qkv(TOKENS)]
    rule, x = with_tokens(checked, tensors[0].detach())
    wanted = [*tensors, *(p for p in rule.parameters() if p.requires_grad)]

    def slopes():
        o = rule.attend(*tensors, causal(TOKENS), **extra(rule, None, x))
        return torch.autograd.grad((o * torch.arange(o.numel()).view_as(o).sin()).sum(), wanted)

    blocks = slopes()
    monkeypatch.setattr(base, "LONG", TOKENS + 1)
    for got, whole in zip(blocks, slopes(), strict=True):
        torch.testing.assert_close(got, whole, rtol=1e-8, atol=1e-11)


@pytest.mark.parametrize("choice", ["ssa", "elastic:bias=4", "selective", "cosformer"])
@pytest.mark.parametrize("mask", ["causal", "full"])
@pytest.mark.parametrize("code", positions.registry.names())
def test_a_model_answers_alike_by_blocks(short, monkeypatch, code, mask, choice):
    if (mask == "full" and choice == "selective") or (
        choice == "cosformer" and positions.build(code, 8, 4, 9).adds_to_scores
    ):
        pytest.skip("is refused")
    spec = ModelSpec(layers=2, heads=2, width=8, positions=code, mask=mask)
    model = GPT2(spec, TokenSpec(1, 1, 2, 6), choice, torch.Generator().manual_seed(0))
    with torch.no_grad():
        for p in model.parameters():
            p.add_(0.1 * torch.randn(p.shape, generator=torch.Generator().manual_seed(1)))
    tokens = torch.randn(3, TOKENS, 1, generator=torch.Generator().manual_seed(2))
    for autocast in (False, True):
        with torch.no_grad(), torch.autocast("cpu", torch.bfloat16, enabled=autocast):
            monkeypatch.setattr(base, "LONG", TOKENS)
            blocks = model(tokens)
            monkeypatch.setattr(base, "LONG", TOKENS + 1)
            # Half precision rounds what blocks leave in the last digit of single precision.
            torch.testing.assert_close(blocks, model(tokens), rtol=1e-5, atol=2e-2 if autocast else 1e-5)


def test_a_watcher_sees_whole_matrices(short):
    model = GPT2(ModelSpec(heads=2, width=8), TokenSpec(1, 1, 2, 6), "ssa", torch.Generator().manual_seed(0))
    shapes = []
    model(torch.randn(3, TOKENS, 1), lambda layer, w, z: shapes.append((w.shape, z.shape)))
    assert shapes == [((3, 2, TOKENS, TOKENS),) * 2] * 2
    assert model.trace(torch.randn(3, TOKENS, 1))["layers.1.weights"].shape == (3, 2, TOKENS, TOKENS)


@pytest.mark.parametrize("choice", representatives(name for name in RULES if name not in WHOLE))
def test_no_tensor_is_as_large_as_the_matrix(choice):
    t, rows, h, d = 640, base.BLOCK, 4, 4
    rule = normalizers.build(choice, heads=h, head_dim=d, train_tokens=64)
    q, k, v = (torch.randn(1, h, t, d) for _ in range(3))
    given = extra(rule, None, torch.randn(1, t, h * d))
    whole = largest(lambda: rule.weights(q, k, causal(t), **given) @ v)
    with torch.no_grad():
        blocks = largest(lambda: rule.attend(q, k, v, causal(t), **given))
    assert whole >= t * t
    assert blocks <= h * (rows + 1) * (t + 4)  # stick-breaking pads a row by one


def test_who_is_asked_in_blocks_and_who_whole(short, monkeypatch):
    """Whole: short prompts, cached keys, what reads other rows; by distances of keys under the causal mask alone."""
    (q, k, _), last = qkv(TOKENS), causal(TOKENS)[-1:].view(1, 1, 1, TOKENS)
    for choice, under_full in (("cosformer", 0), ("elastic:bias=4", 0), ("elastic", ROWS), ("ssa", ROWS)):
        rule = stirred(choice)
        assert rule.block_rows(q, k, causal(TOKENS)) == ROWS
        assert rule.block_rows(q, k, full(TOKENS)) == under_full
    assert not rule.block_rows(q[:, :, 1:], k[:, :, 1:], causal(TOKENS - 1))
    assert not rule.block_rows(q[:, :, -1:], k, last)
    assert not any(stirred(choice).block_rows(q, k, causal(TOKENS)) for choice in WHOLE)
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)
    assert not rule.block_rows(q, k, causal(TOKENS))


class OtherRows(Scored):
    """Softmax of scores less the mean of their column, a formula that reads other queries."""

    def rows(self, q, k, visible, bias=None):
        z = scores(q, k, bias)
        return base.softmax(z - z.mean(-2, keepdim=True), visible)


class OtherWeights(WarpedScore):
    """A class whose base is row-wise, and whose own weights are not."""

    def warp(self, z, n):
        return z

    def weights(self, q, k, visible, bias=None, x=None):
        return OtherRows().weights(q, k, visible, bias)


class SaysSo(OtherWeights):
    """The same, declared row-wise against the truth."""

    row_wise = True


def test_a_class_with_other_weights_declares_row_wise_anew(short):
    q, k, v = qkv(TOKENS)
    wanted = OtherRows().weights(q, k, causal(TOKENS)) @ v
    for rule in (OtherRows(), OtherWeights()):
        assert not rule.row_wise
        torch.testing.assert_close(rule.attend(q, k, v, causal(TOKENS)), wanted)
    assert SaysSo().row_wise
    assert RowWise.row_wise
    assert not torch.allclose(by_blocks(SaysSo(), ROWS, q, k, v, causal(TOKENS), None, None), wanted)


def test_wrappers_are_row_wise_where_their_parts_are():
    for choice, wanted in (("selective+reweight", False), ("ssa+reweight", True), ("four-functions", True)):
        assert stirred(choice).row_wise is wanted
    for choice in ("sima+gated", "sima+talking-heads", "selective+gated"):
        assert not stirred(choice).row_wise
