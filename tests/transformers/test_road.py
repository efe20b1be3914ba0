"""Normalizers that scale the query stay on the fused kernel: no matrix of scores is made for them."""

import pytest
from torch.nn import functional as F

from icl_lab.normalizers.base import ScaledQuery
from icl_lab.transformers import install

SCALED = ["softmax", "temperature", "log-n", "ssmax", "ssmax-free"]


@pytest.fixture
def calls(monkeypatch):
    """What is asked of the fused kernel: whether with its own causal mask."""
    asked = []

    def fused(*tensors, kernel=F.scaled_dot_product_attention, **said):
        asked.append(said.get("is_causal", False))
        return kernel(*tensors, **said)

    def explicit(*_):
        raise AssertionError("a matrix of weights was made")

    monkeypatch.setattr(F, "scaled_dot_product_attention", fused)
    monkeypatch.setattr(ScaledQuery, "weights", explicit)
    return asked


@pytest.mark.parametrize("kind", ["gpt2", "gemma3"])
@pytest.mark.slow
def test_scaled_queries_take_the_fused_kernel(tiny_model, ids, padded, calls, kind):
    model = tiny_model(kind)
    for rule in SCALED:
        install(model, rule)
        calls.clear()
        model(ids)
        # The first layer of Gemma has a window, which the kernel's own mask does not know.
        assert calls == [kind != "gemma3", True], rule
        calls.clear()
        model(**padded)
        assert calls == [False, False], rule


def test_weights_that_are_asked_for_leave_it(tiny_model, ids, calls):
    model = tiny_model("llama", attention_dropout=0.1)
    install(model, "ssmax")
    for ask in (lambda: model(ids, output_attentions=True), lambda: model.train()(ids)):
        with pytest.raises(AssertionError, match="a matrix of weights was made"):
            ask()


def test_where_nobody_can_tell_weights_are_handed_out(tiny_model, ids, monkeypatch):
    from icl_lab.transformers import attention

    model = tiny_model("gpt2")
    install(model, "ssmax")
    monkeypatch.setattr(attention, "collector", None)  # a version of transformers that keeps it elsewhere
    assert len(model(ids, output_attentions=True).attentions) == 2
