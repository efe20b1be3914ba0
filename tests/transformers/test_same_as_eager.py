"""Softmax by the road of the normalizers is what each model computes by its own eager attention."""

import pytest
import torch

from icl_lab.transformers import install, uninstall
from tests.transformers.conftest import KINDS


def both(model, **given):
    """Logits by eager attention, and by softmax as a normalizer."""
    model.set_attn_implementation("eager")
    with torch.no_grad():
        eager = model(**given).logits
        install(model, "softmax")
        ours = model(**given).logits
    uninstall(model)
    return eager, ours


@pytest.mark.parametrize("kind", KINDS)
def test_softmax_is_eager(tiny_model, ids, padded, kind):
    model = tiny_model(kind)
    four = torch.ones(3, 1, 9, 9, dtype=torch.bool).tril()
    four[2, :, 5:, 1] = False
    cases = {"whole": {"input_ids": ids}, "padded": padded}
    if kind not in ("bert", "roberta"):
        places = torch.tensor([[0, 1, 2, 3, 0, 1, 2, 3, 4]]).expand(3, -1)
        cases["packed"] = {"input_ids": ids, "position_ids": places}
    if kind not in ("mistral", "gemma3"):  # a given mask would take the place of their windows
        cases["a mask of one's own"] = {"input_ids": ids, "attention_mask": torch.where(four, 0.0, torch.finfo().min)}
    for name, given in cases.items():
        eager, ours = both(model, **given)
        live = padded["attention_mask"].bool() if name == "padded" else torch.ones_like(ids, dtype=torch.bool)
        # Sums are taken in another order, on every CPU a little otherwise: a few units of single precision (1.2e-7).
        assert (eager - ours)[live].abs().max() <= 4e-6 * eager.abs().max(), name


def test_attention_is_not_nearly_uniform_in_these_models(tiny_model, ids):
    for kind in KINDS:
        model = tiny_model(kind)
        model.set_attn_implementation("eager")
        attentions = model(ids, output_attentions=True).attentions
        assert attentions[-1].amax(-1)[:, :, -1].max() > 0.3, kind


@pytest.mark.parametrize("kind", ["gpt2", "gemma3", "bert"])
def test_weights_are_handed_out_when_asked_for(tiny_model, ids, kind):
    model = tiny_model(kind)
    model.set_attn_implementation("eager")
    wanted = model(ids, output_attentions=True).attentions
    install(model, "softmax")
    assert model(ids).attentions is None
    got = model(ids, output_attentions=True).attentions
    for ours, eager in zip(got, wanted, strict=True):
        torch.testing.assert_close(ours, eager, atol=1e-6, rtol=0)


@pytest.mark.parametrize(("kind", "setting"), [("gpt2", "attn_pdrop"), ("llama", "attention_dropout")])
def test_dropout_drops_the_same_weights(tiny_model, ids, kind, setting):
    model = tiny_model(kind, **{setting: 0.4}).train()
    for module in model.modules():
        if isinstance(module, torch.nn.Dropout) and setting == "attn_pdrop" and "attn" not in str(module):
            module.p = 0.4 if module.p == 0.4 else 0.0

    def drawn():
        torch.manual_seed(5)
        return model(ids).logits

    model.set_attn_implementation("eager")
    eager = drawn()
    install(model, "softmax")
    torch.testing.assert_close(drawn(), eager, atol=1e-5, rtol=1e-5)
    assert (drawn() - model.eval()(ids).logits).abs().max() > 0.1


def test_nothing_is_dropped_outside_training(tiny_model, ids):
    # Some models pass their dropout in either mode.
    from icl_lab.transformers.attention import attention

    model = tiny_model("gpt2")
    install(model, "ssa")
    layer, q = model.transformer.h[0].attn, torch.randn(2, 4, 5, 8)
    mask = torch.ones(2, 1, 5, 5, dtype=torch.bool).tril()
    dropped = [attention(layer.train(mode), q, q, q, mask, dropout=0.5)[0] for mode in (True, False, False)]
    assert not torch.allclose(dropped[0], dropped[1])
    assert torch.equal(dropped[1], dropped[2])


def test_half_precision_stays_what_it_is(tiny_model, ids):
    model = tiny_model("llama").to(torch.bfloat16)
    eager, ours = both(model, input_ids=ids)
    assert ours.dtype is torch.bfloat16
    assert (eager - ours).abs().max() <= 0.03 * eager.abs().max()


def test_scores_are_scaled_as_the_model_says(tiny_model, ids):
    # Granite's factor is 0.8, not 1 / sqrt(8): a temperature that undoes it gives another model's output.
    model = tiny_model("granite")
    usual = tiny_model("granite", attention_multiplier=8**-0.5)
    install(model, f"temperature:tau={0.8 * 8**0.5}")
    torch.testing.assert_close(model(ids).logits, usual(ids).logits, atol=1e-4, rtol=1e-4)
