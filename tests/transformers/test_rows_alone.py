"""A text gets the same whatever stands beside it: padding, texts packed into its row, tokens out of its window."""

import pytest
import torch

from icl_lab import normalizers
from icl_lab.normalizers.base import causal
from icl_lab.transformers import install
from tests.cases import REPRESENTATIVES, few

SERVED = [name for name in normalizers.names() if name != "forget"]
MORE = ["lssa+reweight:p=3", "sima:axis=feature", "sigmoid:bias=visible", "ssa+gated:per=channel"]
# Masks are made alike for all; those that count keys or read places show it. What each makes of a mask is daily in the
# contract of normalizers.
DAILY = [*sorted(REPRESENTATIVES), "ssmax", "ssmax-free", "cosformer", "scale-invariant", *MORE]
some_rules = pytest.mark.parametrize("rules", few(1, [DAILY, [name for name in SERVED if name not in DAILY]]), ids=len)


def alike(got, wanted):
    return (got - wanted).abs().max() <= 1e-5 * wanted.abs().max()


@torch.no_grad()
def logits(model, **given):
    cached = {} if "bert" in model.base_model_prefix else {"use_cache": False}
    return model(**given, **cached).logits


@some_rules
@pytest.mark.parametrize("kind", few(1, ["llama", "gpt2"]))
@pytest.mark.slow
def test_a_padded_text_gets_what_it_gets_alone(tiny_model, ids, padded, stirred, kind, rules):
    model = tiny_model(kind)
    for rule in rules:
        install(model, rule, train_tokens=6)
        stirred(model)
        got = logits(model, **padded)
        assert alike(got[1, 3:], logits(model, input_ids=ids[1:2, 3:])[0]), rule
        assert alike(got[2], logits(model, input_ids=ids[2:])[0]), rule


@some_rules
@pytest.mark.slow
def test_packed_texts_get_what_each_gets_alone(tiny_model, ids, stirred, rules):
    model = tiny_model("qwen3")
    places = torch.tensor([[0, 1, 2, 3, 0, 1, 2, 3, 4]])
    for rule in rules:
        install(model, rule, train_tokens=6)
        stirred(model)
        got = logits(model, input_ids=ids[:1], position_ids=places)[0]
        assert alike(got[:4], logits(model, input_ids=ids[:1, :4])[0]), rule
        assert alike(got[4:], logits(model, input_ids=ids[:1, 4:])[0]), rule


@some_rules
@pytest.mark.parametrize("kind", few(1, ["bert", "roberta"]))
@pytest.mark.slow
def test_padding_behind_a_text_changes_nothing(tiny_model, ids, stirred, kind, rules):
    model, mask = tiny_model(kind), torch.ones_like(ids)
    mask[0, 6:] = 0
    for rule in rules:
        install(model, rule, train_tokens=6)
        stirred(model)
        got = logits(model, input_ids=ids, attention_mask=mask)
        assert alike(got[0, :6], logits(model, input_ids=ids[:1, :6])[0]), rule


def test_n_is_the_window_and_not_the_text(tiny_model, ids):
    # One layer with a window of 4: from the fourth token on every query sees 4 keys.
    model = tiny_model("mistral", num_hidden_layers=1)
    install(model, "average")
    weights = model(ids, output_attentions=True).attentions[0][0, 0]
    assert (weights > 0).sum(-1).tolist() == [1, 2, 3, 4, 4, 4, 4, 4, 4]
    torch.testing.assert_close(weights[8, 5:], torch.full((4,), 0.25))
    install(model, "ssmax:s=2,learn=no")
    scaled = model(ids).logits
    install(model, f"temperature:tau={1 / (2 * torch.tensor(4.0).log().item())}")
    torch.testing.assert_close(model(ids).logits[:, 3:], scaled[:, 3:], atol=1e-3, rtol=1e-4)


def test_the_same_rule_in_our_own_attention_gives_the_weights(tiny_model, ids, stirred):
    model, caught = tiny_model("gpt2", num_hidden_layers=1), {}
    install(model, "ssa")
    stirred(model)
    layer = model.transformer.h[0].attn
    layer.c_attn.register_forward_hook(lambda *call: caught.update(qkv=call[2]))
    weights = model(ids, output_attentions=True).attentions[0]
    q, k, _ = (x.view(3, 9, 4, 8).transpose(1, 2) for x in caught["qkv"].split(32, 2))
    torch.testing.assert_close(weights, layer.attention_rule.weights(q, k, causal(9)))
